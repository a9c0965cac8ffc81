//! The access that each method needs: one table, by the method's path. A method without a row is denied.

use super::Role;

/// What a caller must be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing: everybody may call. A credential that comes with the call must still be good.
    Open,
    /// To know who one is: a good credential, and no role.
    Identify,
    /// To read runs of the call's namespace.
    Read,
    /// To report runs of the call's namespace.
    Report,
    /// To let suspended runs of the call's namespace go on.
    Resume,
    /// To take out of runs of the call's namespace what should not have been written.
    Redact,
    /// To put lifecycles in the call's namespace.
    Declare,
    /// To know a namespace, which the request names.
    Know,
    /// To change the settings of a namespace, which the request names.
    Settle,
    /// To say of a namespace, which the request names, that its events were exported.
    Export,
    /// To make and delete namespaces, and to set the quotas that bound them.
    Govern,
    /// To see the state of a process, which serves all namespaces.
    Inspect,
}

/// The runs and namespaces that an access is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// None: it is no access to runs.
    Nothing,
    /// The runs of the namespace that the call's headers name, as the agent that they name.
    Headers,
    /// A namespace, which the request names.
    Request,
    /// All namespaces.
    Everywhere,
}

impl Access {
    /// The runs and namespaces that it is to.
    #[must_use]
    pub fn scope(self) -> Scope {
        match self {
            Self::Open | Self::Identify => Scope::Nothing,
            Self::Read | Self::Report | Self::Resume | Self::Redact | Self::Declare => Scope::Headers,
            Self::Know | Self::Settle | Self::Export => Scope::Request,
            Self::Inspect | Self::Govern => Scope::Everywhere,
        }
    }

    /// The access that a path of the port needs; none for a method that this port does not have.
    #[must_use]
    pub fn of(path: &str) -> Option<Self> {
        if let Some(method) = path.strip_prefix("/runledger.v1.RunService/") {
            return RUN_SERVICE.iter().find(|(name, _)| *name == method).map(|(_, access)| *access);
        }
        let names = |row: &str| if row.ends_with('/') { path.starts_with(row) } else { path == row };
        OTHERS.iter().find(|(row, _)| names(row)).map(|(_, access)| *access)
    }

    /// Whether a role allows it, in the namespaces for which it was granted.
    #[must_use]
    pub fn is_allowed_to(self, role: Role) -> bool {
        match self {
            Self::Open | Self::Identify => true,
            Self::Read | Self::Know => match role {
                Role::Reader | Role::Reporter | Role::Operator | Role::Admin => true,
            },
            Self::Report => match role {
                Role::Reporter | Role::Operator | Role::Admin => true,
                Role::Reader => false,
            },
            Self::Resume | Self::Inspect | Self::Export => match role {
                Role::Operator | Role::Admin => true,
                Role::Reader | Role::Reporter => false,
            },
            Self::Redact | Self::Declare | Self::Settle | Self::Govern => match role {
                Role::Admin => true,
                Role::Reader | Role::Reporter | Role::Operator => false,
            },
        }
    }

    /// The access as a refusal names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "call",
            Self::Identify => "ask who it is",
            Self::Read => "read runs",
            Self::Report => "report runs",
            Self::Resume => "resume runs",
            Self::Redact => "redact runs",
            Self::Declare => "put lifecycles",
            Self::Know => "read a namespace",
            Self::Settle => "change a namespace",
            Self::Export => "note what was exported",
            Self::Govern => "make or delete namespaces, or to set their quotas",
            Self::Inspect => "inspect a replica",
        }
    }

    /// The least role that allows it, as a refusal names it, with where it must be granted.
    #[must_use]
    pub fn least_role(self) -> &'static str {
        match self {
            Self::Open | Self::Identify => "no role",
            Self::Read | Self::Know => "the role `reader`",
            Self::Report => "the role `reporter`",
            Self::Resume | Self::Export => "the role `operator`",
            Self::Redact | Self::Declare | Self::Settle => "the role `admin`",
            Self::Govern => "the role `admin` in `*`",
            Self::Inspect => "the role `operator` in `*`",
        }
    }
}

/// The methods of `RunService`.
const RUN_SERVICE: &[(&str, Access)] = &[
    ("UpdateRun", Access::Report),
    ("HeartbeatRun", Access::Report),
    ("GetRun", Access::Read),
    ("ListLinks", Access::Read),
    ("StartRun", Access::Report),
    ("CompleteRun", Access::Report),
    ("ClaimNextRun", Access::Report),
    ("WaitRun", Access::Read),
    ("WatchRun", Access::Read),
    ("WatchRuns", Access::Read),
    ("ListRuns", Access::Read),
    ("FailRun", Access::Report),
    ("AbortRun", Access::Report),
    ("ClaimRun", Access::Report),
    ("ReleaseRun", Access::Report),
    ("RequestAbort", Access::Report),
    ("SuspendRun", Access::Report),
    ("ResumeRun", Access::Resume),
    ("ArchiveRun", Access::Report),
    ("RestoreRun", Access::Report),
    ("RedactRun", Access::Redact),
    ("ListRunEvents", Access::Read),
    ("CountRuns", Access::Read),
    ("CheckTransition", Access::Read),
];

/// All other methods, and services whose methods are alike, which end in `/`.
const OTHERS: &[(&str, Access)] = &[
    ("/runledger.v1.IdentityService/WhoAmI", Access::Identify),
    ("/runledger.v1.ReplicaService/GetReplica", Access::Inspect),
    ("/runledger.v1.NamespaceService/CreateNamespace", Access::Govern),
    ("/runledger.v1.NamespaceService/UpdateNamespace", Access::Settle),
    ("/runledger.v1.NamespaceService/NoteExported", Access::Export),
    ("/runledger.v1.NamespaceService/DeleteNamespace", Access::Govern),
    ("/runledger.v1.NamespaceService/GetNamespace", Access::Know),
    ("/runledger.v1.NamespaceService/ListNamespaces", Access::Know),
    ("/runledger.v1.LifecycleService/PutLifecycle", Access::Declare),
    ("/runledger.v1.LifecycleService/GetLifecycle", Access::Read),
    ("/runledger.v1.LifecycleService/ListLifecycles", Access::Read),
    // Probes have no credential, and the status of a service is no secret.
    ("/grpc.health.v1.Health/", Access::Open),
    // The protocol is public.
    ("/grpc.reflection.v1.ServerReflection/", Access::Open),
    ("/grpc.reflection.v1alpha.ServerReflection/", Access::Open),
];

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;
    use runledger_proto::FILE_DESCRIPTOR_SET;

    use super::*;

    #[test]
    fn every_method_of_the_protocol_has_a_row() {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
        let mut methods = 0;
        for service in pool.services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                assert!(Access::of(&path).is_some(), "{path} has no row, and would be denied to everybody");
                methods += 1;
            }
        }
        assert!(methods > 18);
    }

    #[test]
    fn a_row_names_a_method_that_there_is() {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
        let runs = pool.get_service_by_name("runledger.v1.RunService").unwrap();
        for (name, _) in RUN_SERVICE {
            assert!(runs.methods().any(|method| method.name() == *name), "{name}");
        }
    }

    #[test]
    fn a_method_that_is_not_in_the_table_is_nobodys() {
        for path in [
            "/runledger.v1.RunService/DeleteRun",
            "/runledger.v1.RunService/GetRunX",
            "/runledger.v1.NamespaceService/GetNamespaceX",
            "/runledger.v1.Other/Get",
            "/",
            "",
        ] {
            assert_eq!(Access::of(path), None, "{path:?}");
        }
    }
}
