//! What is taken out of a run and its history.

use crate::auth::Caller;
use crate::domain::limits::{FAILURE_REASON_BYTES_MAX, REDACTED_PATH_BYTES_MAX, REDACTED_PATHS_MAX};
use crate::domain::{Ask, Command, RedactedPath, Redaction, Violation};
use crate::wire::from_domain::FromDomain;
use crate::wire::mutation::Mutation;
use crate::wire::scalars::text;
use crate::wire::validate::Violations;
use runledger_proto::v1;

/// The command of a `RedactRun`.
///
/// # Errors
///
/// Every violation.
pub fn redact_run(request: v1::RedactRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let v1::RedactRunRequest { run_id, paths, reason, request_id, expected_revision } = request;
    let mut violations = Violations::default();
    if paths.is_empty() || paths.len() > REDACTED_PATHS_MAX {
        violations.push("paths", format!("has {}; expected 1 to {REDACTED_PATHS_MAX}", paths.len()));
    }
    let mut found: Vec<RedactedPath> = Vec::new();
    for (nth, path) in paths.iter().take(REDACTED_PATHS_MAX).enumerate() {
        let field = format!("paths[{nth}]");
        violations.text(&field, path, REDACTED_PATH_BYTES_MAX);
        match RedactedPath::parse(path) {
            Some(path) => found.extend((!found.contains(&path)).then_some(path)),
            None => violations.push(&field, "expected /metadata, a JSON pointer below it, /reason, /progress, /input, /result, /links or /links/REL"),
        }
    }
    let reason = violations.optional("reason", reason, FAILURE_REASON_BYTES_MAX);
    let ask = Ask::Redact(Redaction { paths: found, reason });
    Mutation { ask, run_id, request_id, expected_revision }.command(violations, caller)
}

impl FromDomain<&Redaction> for v1::Redaction {
    fn from_domain(redaction: &Redaction) -> Self {
        Self {
            paths: redaction.paths.iter().cloned().map(String::from).collect(),
            reason: text(redaction.reason.as_ref()),
        }
    }
}
