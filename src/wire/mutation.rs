//! What all requests that change a run have in common.

use super::validate::Violations;
use crate::auth::Caller;
use crate::domain::{Ask, Command, Prepared, Request, Revision, RunKey, Violation};

/// The fields that every mutation has.
pub(super) struct Mutation {
    pub(super) ask: Ask,
    pub(super) run_id: String,
    pub(super) request_id: String,
    pub(super) expected_revision: Option<u64>,
}

impl Mutation {
    /// The command, if there is no violation but of what may be masked.
    pub(super) fn command(self, mut violations: Violations, caller: &Caller) -> Result<Command, Vec<Violation>> {
        violations.run_id(&self.run_id);
        let request_id = violations.request_id(self.request_id);
        if self.expected_revision == Some(0) && !matches!(self.ask, Ask::Start(_)) {
            violations.push("expected_revision", "must be at least 1: only StartRun may expect that no run exists");
        }
        let settled = violations.settle_but_oversize(Command {
            key: RunKey { namespace: caller.namespace.clone(), run_id: self.run_id.into() },
            ask: self.ask,
            expected_revision: self.expected_revision.map(Revision::from),
            request: None,
            principal: caller.principal.clone(),
            oversize: Vec::new(),
            prepared: Prepared::default(),
            trace: None,
            agents: caller.agents.clone(),
        });
        let (mut command, oversize) = settled?;
        command.oversize = oversize;
        command.request = request_id.map(|id| Request { id, digest: command.digest() });
        Ok(command)
    }
}
