//! The kind of a call, by its path. The kind decides which bounds hold for the call.

use crate::memory::Pressure;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A call that reads or changes a run, a namespace or a lifecycle, and is answered soon.
    Call,
    /// A call that reads many runs or events: its answer may be the largest there is.
    Page,
    /// A call that is answered when something happens.
    Wait,
    /// A stream of answers.
    Watch,
    /// A call that concerns this process alone, and is answered however busy the process is.
    Local,
}

impl Kind {
    /// The kind of a call to any of this port's services. A test checks the kind of every method of `RunService`.
    pub(super) fn of(path: &str) -> Self {
        if let Some(method) = path.strip_prefix(NAMESPACES) {
            return if method == "ListNamespaces" { Self::Page } else { Self::Call };
        }
        if let Some(method) = path.strip_prefix(LIFECYCLES) {
            return if method == "ListLifecycles" { Self::Page } else { Self::Call };
        }
        let Some(method) = path.strip_prefix(RUNS) else {
            return if path == "/grpc.health.v1.Health/Watch" || path.starts_with("/grpc.reflection.") {
                Self::Watch
            } else {
                Self::Local
            };
        };
        match method {
            "ListRuns" | "CountRuns" | "ListRunEvents" => Self::Page,
            "WaitRun" | "ClaimNextRun" => Self::Wait,
            "WatchRun" | "WatchRuns" => Self::Watch,
            _ => Self::Call,
        }
    }
}

impl Kind {
    /// Whether such a call is refused under overload. Pages have turns of their own; a watch that was cut comes back;
    /// and a call that concerns the process alone is to be answered just then.
    pub(super) fn is_refused_in_need(self) -> bool {
        match self {
            Self::Call | Self::Wait => true,
            Self::Page | Self::Watch | Self::Local => false,
        }
    }
}

/// The pressure on the process's memory from which on a call is not taken on; none for a call that always is. Watches
/// and waits take memory for long. What ends a run or keeps a lease is always taken on: refused, it would cost more.
pub(super) fn is_refused_from(path: &str) -> Option<Pressure> {
    match path.strip_prefix(RUNS)? {
        "WatchRun" | "WatchRuns" | "WaitRun" => Some(Pressure::Tight),
        "StartRun" | "UpdateRun" | "ClaimRun" | "ClaimNextRun" => Some(Pressure::Scarce),
        _ => None,
    }
}

/// All methods of the port, by the names that metrics have for them.
const METHODS: &[&str] = &[
    OTHER,
    "runledger.v1.RunService/UpdateRun",
    "runledger.v1.RunService/HeartbeatRun",
    "runledger.v1.RunService/GetRun",
    "runledger.v1.RunService/StartRun",
    "runledger.v1.RunService/CompleteRun",
    "runledger.v1.RunService/ClaimNextRun",
    "runledger.v1.RunService/WaitRun",
    "runledger.v1.RunService/WatchRun",
    "runledger.v1.RunService/WatchRuns",
    "runledger.v1.RunService/ListRuns",
    "runledger.v1.RunService/FailRun",
    "runledger.v1.RunService/AbortRun",
    "runledger.v1.RunService/ClaimRun",
    "runledger.v1.RunService/ReleaseRun",
    "runledger.v1.RunService/RequestAbort",
    "runledger.v1.RunService/SuspendRun",
    "runledger.v1.RunService/ResumeRun",
    "runledger.v1.RunService/ArchiveRun",
    "runledger.v1.RunService/RestoreRun",
    "runledger.v1.RunService/RedactRun",
    "runledger.v1.RunService/ListLinks",
    "runledger.v1.RunService/ListRunEvents",
    "runledger.v1.RunService/CountRuns",
    "runledger.v1.RunService/CheckTransition",
    "runledger.v1.NamespaceService/CreateNamespace",
    "runledger.v1.NamespaceService/GetNamespace",
    "runledger.v1.NamespaceService/ListNamespaces",
    "runledger.v1.NamespaceService/UpdateNamespace",
    "runledger.v1.NamespaceService/NoteExported",
    "runledger.v1.NamespaceService/DeleteNamespace",
    "runledger.v1.LifecycleService/PutLifecycle",
    "runledger.v1.LifecycleService/GetLifecycle",
    "runledger.v1.LifecycleService/ListLifecycles",
    "runledger.v1.ReplicaService/GetReplica",
    "runledger.v1.IdentityService/WhoAmI",
    "grpc.health.v1.Health/Check",
    "grpc.health.v1.Health/Watch",
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// The name of a method that the port does not have: a caller chooses no name of a series.
const OTHER: &str = "_OTHER";

/// The number and the name of a path's method.
pub(super) fn numbered(path: &str) -> (usize, &'static str) {
    let name = path.strip_prefix('/').unwrap_or_default();
    METHODS.iter().position(|method| *method == name).map_or((0, OTHER), |number| (number, METHODS[number]))
}

/// The beginning of the paths of `RunService`.
pub(in crate::grpc) const RUNS: &str = "/runledger.v1.RunService/";

/// The beginning of the paths of `NamespaceService`.
const NAMESPACES: &str = "/runledger.v1.NamespaceService/";

/// The beginning of the paths of `LifecycleService`.
const LIFECYCLES: &str = "/runledger.v1.LifecycleService/";

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;

    use super::*;
    use runledger_proto::FILE_DESCRIPTOR_SET;

    #[test]
    fn every_method_has_a_name_of_its_own_and_a_callers_text_has_none() {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
        for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
            let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
            assert_eq!(format!("/{}", numbered(&path).1), path);
        }
        for path in ["", "/", "/_OTHER", "runledger.v1.RunService/GetRun", "/runledger.v1.RunService/getrun"] {
            assert_eq!(numbered(path), (0, OTHER), "{path}");
        }
    }

    #[test]
    fn a_stream_of_answers_is_a_watch_and_nothing_else_is() {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
        let service = pool.get_service_by_name("runledger.v1.RunService").unwrap();
        assert_eq!(format!("/{}/", service.full_name()), RUNS);
        for method in service.methods() {
            let kind = Kind::of(&format!("{RUNS}{}", method.name()));
            assert_eq!(kind == Kind::Watch, method.is_server_streaming(), "{}", method.name());
            assert!(!method.is_client_streaming(), "{}: requests are read as one message", method.name());
        }
    }
}
