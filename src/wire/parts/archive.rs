//! Runs that are hidden from lists.

use crate::auth::Caller;
use crate::domain::{Ask, Command, Violation};
use crate::wire::mutation::Mutation;
use crate::wire::validate::Violations;
use runledger_proto::v1;

/// The command of an `ArchiveRun`.
///
/// # Errors
///
/// Every violation.
pub fn archive_run(request: v1::ArchiveRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let v1::ArchiveRunRequest { run_id, request_id, expected_revision } = request;
    Mutation { ask: Ask::Archive, run_id, request_id, expected_revision }.command(Violations::default(), caller)
}

/// The command of a `RestoreRun`.
///
/// # Errors
///
/// Every violation.
pub fn restore_run(request: v1::RestoreRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let v1::RestoreRunRequest { run_id, request_id, expected_revision } = request;
    Mutation { ask: Ask::Restore, run_id, request_id, expected_revision }.command(Violations::default(), caller)
}
