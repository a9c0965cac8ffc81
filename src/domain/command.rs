//! A command: what is asked, of which run, by whom.

mod digest;

use super::{Ask, MaxRunning, Principal, RunKey};

/// One mutation, validated as far as it can be without the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The run that it is for.
    pub key: RunKey,
    /// What it asks for.
    pub ask: Ask,
    /// The revision that the run must have; 0: it must not exist.
    pub expected_revision: Option<u64>,
    /// What makes it safe to retry.
    pub request: Option<Request>,
    /// Who asks.
    pub principal: Principal,
}

impl Command {
    /// The claimer's own request, by which a claim is remembered apart from any run: a claim notes it, and a claim that is
    /// given back forgets it.
    #[must_use]
    pub fn claim_request(&self) -> Option<&Request> {
        match &self.ask {
            Ask::Claim(claim) => claim.request.as_ref(),
            Ask::GiveBack(claim) => claim.request.as_ref(),
            Ask::Start(_)
            | Ask::Update(_)
            | Ask::Complete(_)
            | Ask::Abort(_)
            | Ask::Fail(_)
            | Ask::Release(_)
            | Ask::RequestAbort(_)
            | Ask::Sweep => None,
        }
    }

    /// How many runs with its value of a label may be running when the run is claimed.
    #[must_use]
    pub fn max_running(&self) -> Option<&MaxRunning> {
        if let Ask::Claim(claim) = &self.ask { claim.max_running.as_ref() } else { None }
    }

    /// Whether repeating it, with nothing to recognise it by, still has one effect at most, and its answer tells as much.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        // Its own revision would refuse the repetition.
        self.ask.is_idempotent() && self.expected_revision.is_none()
    }

    /// About how many bytes the command takes in memory: for bounds on queues and batches.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.key.run_id.len() + self.ask.weight()
    }
}

/// What the authority remembers of an applied call, to recognise its retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller's `request_id`.
    pub id: String,
    /// See [`Command::digest`].
    pub digest: [u8; 32],
}
