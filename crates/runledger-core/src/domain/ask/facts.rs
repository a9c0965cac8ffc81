//! What holds of each ask, whatever it brings: a row for each ask, a column for each fact. Whoever decides by such a fact
//! names no ask, and an ask that comes later says all of them here.

use super::{Ask, Start};
use crate::domain::Status;

/// What holds of an ask, whatever it brings.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The RPC that asks for it; the authority's own have none, and the name of what they do.
    pub rpc: &'static str,
    /// The status that it leads to; none where that is the run's own, or depends on it.
    pub leads_to: Option<Status>,
    /// Who may ask for it.
    pub asker: Asker,
    /// Whether a repetition has no effect of its own, and is answered as the first call was, unless that granted something.
    pub repeats: bool,
    /// Whether it is refused where the run's lifecycle is gone, even if it names no phase.
    pub needs_lifecycle: bool,
    /// Whether it is decided on the row of the run's lease.
    pub lease_row: LeaseRow,
    /// What it is decided on besides the sides.
    pub basis: Basis,
}

/// What an ask is decided on besides the [sides](crate::domain::sides).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Its run, which must be there.
    Run,
    /// Its run, or that there is none: it may create one.
    RunOrNone,
    /// Its run and what the log has of it. That may take long to read, and fail: so it is alone in its batch.
    Log,
}

/// Who may ask for something of a run that is there. An operator, who names no agent, counts as each run's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Every agent.
    Anyone,
    /// Every agent; one that is confined to its own runs starts a pending run without an owner, and owns it from then on.
    Starter,
    /// The run's owner.
    Owner,
    /// The owner that goes on with the run: under its lease, where it has one.
    Worker,
    /// The owner that reports the run's outcome: under its lease, where it has one.
    Reporter,
    /// The owner that holds the run's lease: without a lease the ask makes no sense.
    Holder,
    /// Every agent. One that names its lease ends no run that another holds by now.
    Stopper,
    /// The run's owner; every agent, where it takes a running run over. It may name the lease that it means to follow.
    Claimer,
    /// The owner that goes on with the run; or an operator, who names no lease.
    Suspender,
}

/// Whether an ask is decided on the row of its run's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRow {
    /// It is not.
    Unread,
    /// It is, where the run had a lease: a pending run has no such row.
    OfHeld,
    /// It is.
    Read,
}

impl Ask {
    /// What holds of it, whatever it brings.
    #[must_use]
    #[rustfmt::skip]
    pub fn facts(&self) -> Facts {
        use Asker::{Anyone, Claimer, Holder, Owner, Reporter, Starter, Stopper, Suspender, Worker};
        use Basis::{Log, Run, RunOrNone};
        use LeaseRow::{OfHeld, Read, Unread};
        use Status::{Aborted, Completed, Failed, Pending, Running};
        match self {
            //                                                 rpc             leads to         asker      repeats  lifecycle  lease's row  basis
            Self::Start(Start { deferred: true, .. })   => row("StartRun",     Some(Pending),   Anyone,    true,    true,      Unread,      RunOrNone),
            Self::Start(Start { deferred: false, .. })  => row("StartRun",     Some(Running),   Starter,   true,    true,      Unread,      RunOrNone),
            Self::Update(_)                             => row("UpdateRun",    None,            Worker,    false,   true,      Unread,      Run),
            Self::Complete(_)                           => row("CompleteRun",  Some(Completed), Reporter,  true,    true,      Unread,      Run),
            Self::Abort(_)                              => row("AbortRun",     Some(Aborted),   Stopper,   true,    false,     Unread,      Run),
            Self::Fail(_)                               => row("FailRun",      Some(Failed),    Reporter,  true,    false,     Unread,      Run),
            // A claim or a release that was applied makes its own repetition fail.
            Self::Claim(_)                              => row("ClaimRun",     Some(Running),   Claimer,   false,   false,     OfHeld,      Run),
            Self::Release(_)                            => row("ReleaseRun",   None,            Holder,    false,   false,     Unread,      Run),
            Self::GiveBack(_)                           => row("ReleaseRun",   None,            Holder,    false,   false,     Read,        Run),
            Self::RequestAbort(_)                       => row("RequestAbort", None,            Anyone,    true,    false,     Unread,      Run),
            Self::Suspend(_)                            => row("SuspendRun",   None,            Suspender, true,    true,      Unread,      Run),
            Self::Resume(_)                             => row("ResumeRun",    None,            Anyone,    true,    true,      Unread,      Run),
            Self::Sweep                                 => row("Sweep",        None,            Anyone,    true,    false,     Read,        Run),
            Self::Archive                               => row("ArchiveRun",   None,            Owner,     true,    false,     Unread,      Run),
            Self::Restore                               => row("RestoreRun",   None,            Owner,     true,    false,     Unread,      Run),
            // It takes out once more what is taken out already.
            Self::Redact(_)                             => row("RedactRun",    None,            Anyone,    true,    false,     Unread,      Log),
        }
    }

    /// Whether the call, repeated without a request id to recognise it by, still has one effect at most, and the answer
    /// to the repetition tells as much.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        // A lease that was granted to a lost answer is not known from the next one, and a limit that was raised cannot be
        // raised to the same once more.
        let grants = self.brought().terms.lease_ttl_ms.is_some();
        let raises = matches!(self, Self::Resume(resume) if resume.position.max_iterations.is_some());
        self.facts().repeats && !grants && !raises
    }
}

const fn row(
    rpc: &'static str,
    leads_to: Option<Status>,
    asker: Asker,
    repeats: bool,
    needs_lifecycle: bool,
    lease_row: LeaseRow,
    basis: Basis,
) -> Facts {
    Facts { rpc, leads_to, asker, repeats, needs_lifecycle, lease_row, basis }
}
