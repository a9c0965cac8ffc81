//! The codes of `google.rpc.Code` that the authority uses.

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Nobody can say whether the call was applied.
    Unknown,
    /// The request breaks a rule, whatever the ledger holds.
    InvalidArgument,
    /// The time was over.
    DeadlineExceeded,
    /// The named run or namespace does not exist.
    NotFound,
    /// Another run or namespace has this name.
    AlreadyExists,
    /// The caller may not make the call.
    PermissionDenied,
    /// Too much was asked for at once.
    ResourceExhausted,
    /// The run is not in a state for it.
    FailedPrecondition,
    /// Another caller came first.
    Aborted,
    /// The request names a revision or position beyond the end.
    OutOfRange,
    /// The fault is in the ledger.
    Internal,
    /// The call cannot be answered now.
    Unavailable,
    /// There is no such method.
    Unimplemented,
    /// The caller has not proven who it is.
    Unauthenticated,
}

impl Code {
    /// The code's number in `google.rpc.Code`.
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
            Self::Unimplemented => 12,
            Self::Unauthenticated => 16,
        }
    }
}
