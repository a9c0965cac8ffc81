//! What follows from the access that a method needs, which the proto says of each method.

pub use runledger_proto::methods::Access;

use super::Role;

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

/// What follows from an access.
pub trait Needs {
    /// The runs and namespaces that it is to.
    fn scope(self) -> Scope;

    /// Whether a role allows it, in the namespaces for which it was granted.
    fn admits(self, role: Role) -> bool;

    /// The access as a refusal names it.
    fn name(self) -> &'static str;

    /// The least role that allows it, as a refusal names it, with where it must be granted.
    fn least_role(self) -> &'static str;
}

impl Needs for Access {
    fn scope(self) -> Scope {
        match self {
            Self::Open | Self::Identify => Scope::Nothing,
            Self::Read | Self::Report | Self::Resume | Self::Redact | Self::Declare => Scope::Headers,
            Self::Know | Self::Settle | Self::Export => Scope::Request,
            Self::Inspect | Self::Govern => Scope::Everywhere,
        }
    }

    fn admits(self, role: Role) -> bool {
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

    fn name(self) -> &'static str {
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

    fn least_role(self) -> &'static str {
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
