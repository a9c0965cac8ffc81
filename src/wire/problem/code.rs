//! The codes of `google.rpc.Code` that the authority uses.

/// What kind of problem it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Nobody can say whether the call was applied.
    Unknown,
    /// The request breaks a rule, whatever the ledger holds.
    InvalidArgument,
    /// The time was over.
    DeadlineExceeded,
    /// There is no such thing.
    NotFound,
    /// Another one has this name.
    AlreadyExists,
    /// The caller may not.
    PermissionDenied,
    /// Too much at once.
    ResourceExhausted,
    /// The run is not in a state for it.
    FailedPrecondition,
    /// Somebody else came first.
    Aborted,
    /// Beyond what there is.
    OutOfRange,
    /// The ledger's own trouble.
    Internal,
    /// Not now.
    Unavailable,
}

impl Code {
    /// The number that `google.rpc.Code` gives it.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::Unknown => 2,
            Self::InvalidArgument => 3,
            Self::DeadlineExceeded => 4,
            Self::NotFound => 5,
            Self::AlreadyExists => 6,
            Self::PermissionDenied => 7,
            Self::ResourceExhausted => 8,
            Self::FailedPrecondition => 9,
            Self::Aborted => 10,
            Self::OutOfRange => 11,
            Self::Internal => 13,
            Self::Unavailable => 14,
        }
    }
}
