//! A method as the transport treats its calls: by the table that the proto makes, or, where the service is not ours, by the
//! one below.

use runledger_proto::methods::{self, Kind, METHODS, Shed};

use crate::auth::Access;
use crate::authority::is_shed;
use crate::memory::Pressure;
use crate::telemetry::record;

/// What holds of a call by its path alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Method {
    /// Its number among the methods of the port, and the name that metrics have for it.
    pub(super) named: record::Value,
    pub(super) kind: Kind,
    /// The access that it needs; none for a method that the port does not have.
    pub(super) access: Option<Access>,
    shed: Shed,
}

impl Method {
    pub(super) fn of(path: &str) -> Self {
        if let Some(&methods::Method { path, number, access, kind, shed, .. }) = methods::of(path) {
            return Self { named: (1 + number, &path[1..]), kind, access: Some(access), shed };
        }
        let is_of = |row: &str| row.strip_suffix('*').map_or(path == row, |begin| path.starts_with(begin));
        let row = OTHERS.iter().position(|(row, ..)| is_of(row)).expect("the last row is of every path");
        let (of, kind, access) = OTHERS[row];
        let named = if of.ends_with('*') { (0, UNKNOWN) } else { (1 + METHODS.len() + row, &of[1..]) };
        Self { named, kind, access, shed: Shed::Never }
    }

    /// Whether its calls are not taken on under a pressure on the process's memory.
    pub(super) fn is_shed_at(self, pressure: Pressure) -> bool {
        is_shed(self.shed, pressure)
    }

    /// Whether its calls are refused under overload. Pages have turns of their own; a watch that was cut comes back; and a
    /// call that concerns the process alone is to be answered just then.
    pub(super) fn is_refused_in_need(self) -> bool {
        match self.kind {
            Kind::Call | Kind::Wait => true,
            Kind::Page | Kind::Watch | Kind::Local => false,
        }
    }
}

/// The name of a method that the port does not have: a caller chooses no name of a series.
const UNKNOWN: &str = "_OTHER";

/// The methods of services that are not ours; and then the paths that are no method's, by what they begin with. The first
/// row counts that a path is of.
const OTHERS: [(&str, Kind, Option<Access>); 12] = [
    // Probes have no credential, and the status of a service is no secret.
    ("/grpc.health.v1.Health/Check", Kind::Local, Some(Access::Open)),
    ("/grpc.health.v1.Health/Watch", Kind::Watch, Some(Access::Open)),
    // The protocol is public.
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Kind::Watch, Some(Access::Open)),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Kind::Watch, Some(Access::Open)),
    ("/grpc.health.v1.Health/*", Kind::Local, Some(Access::Open)),
    ("/grpc.reflection.v1.ServerReflection/*", Kind::Watch, Some(Access::Open)),
    ("/grpc.reflection.v1alpha.ServerReflection/*", Kind::Watch, Some(Access::Open)),
    ("/grpc.reflection.*", Kind::Watch, None),
    ("/runledger.v1.ReplicaService/*", Kind::Local, None),
    ("/runledger.v1.IdentityService/*", Kind::Local, None),
    ("/runledger.v1.*", Kind::Call, None),
    ("*", Kind::Local, None),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_method_has_a_name_of_its_own_and_a_callers_text_has_none() {
        let others = OTHERS.iter().map(|(path, ..)| *path).filter(|path| !path.ends_with('*'));
        let paths: Vec<_> = METHODS.iter().map(|method| method.path).chain(others).collect();
        for path in &paths {
            assert_eq!(format!("/{}", Method::of(path).named.1), *path);
        }
        let numbers: BTreeSet<_> = paths.iter().map(|path| Method::of(path).named.0).collect();
        assert_eq!(numbers, (1..=paths.len()).collect());
        for path in ["", "/", "/_OTHER", "runledger.v1.RunService/GetRun", "/runledger.v1.RunService/getrun"] {
            assert_eq!(Method::of(path).named, (0, UNKNOWN), "{path}");
        }
    }

    #[test]
    fn a_method_that_is_not_in_the_table_is_nobodys() {
        for path in [
            "/runledger.v1.RunService/DeleteRun",
            "/runledger.v1.RunService/GetRunX",
            "/runledger.v1.NamespaceService/GetNamespaceX",
            "/runledger.v1.Other/Get",
            "/grpc.reflection.v2.ServerReflection/ServerReflectionInfo",
            "/",
            "",
        ] {
            assert_eq!(Method::of(path).access, None, "{path:?}");
        }
    }
}
