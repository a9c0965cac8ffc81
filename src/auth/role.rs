//! The roles in which callers are granted something.

/// What a caller may do in the namespaces that were granted to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It reads runs.
    Reader,
    /// It reads runs, and reports those of its own agents.
    Reporter,
    /// It reads and reports all runs, and looks at replicas.
    Operator,
    /// It does all of this, and makes, changes and deletes namespaces.
    Admin,
}

impl Role {
    /// The role's name in an access file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Reporter => "reporter",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Whether whoever has the role writes the runs of every agent, suspends what another holds, and approves.
    #[must_use]
    pub fn operates(self) -> bool {
        match self {
            Self::Reader | Self::Reporter => false,
            Self::Operator | Self::Admin => true,
        }
    }
}
