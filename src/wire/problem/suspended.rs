//! Refusals that concern suspended runs.

use runledger_proto::v1;

use super::{Code, Problem};
use crate::domain::limits::DETAIL_TEXT_BYTES_MAX;
use crate::domain::{Summary, Suspension};
use crate::wire::from_domain::{FromDomain as _, IntoMessage as _};

/// A run that is suspended, and with which the call would go on.
pub(super) fn run_suspended(suspension: &Suspension, ready: bool, run: &Summary) -> Problem {
    let id = &run.run_id;
    let kind = &suspension.kind;
    let message = if ready {
        format!("Run {id} was suspended ({kind}) and is ready to go on: claim it, or report what became of it.")
    } else {
        format!("Run {id} is suspended ({kind}): wait until it is resumed, or report what became of it.")
    };
    let cut = |text: &str| text[..text.floor_char_boundary(DETAIL_TEXT_BYTES_MAX)].to_owned();
    let mut shown = v1::Suspension { resumption: None, ..suspension.into_message() };
    (shown.reason, shown.resume_hint) = (cut(&shown.reason), cut(&shown.resume_hint));
    let error =
        v1::RunSuspendedError { run_id: id.to_string(), suspension: Some(shown), ready, run: Some(run.into_message()) };
    Problem::new(Code::FailedPrecondition, "RUN_SUSPENDED", message)
        .info("run_id", id)
        .info("kind", kind)
        .detail("runledger.v1.RunSuspendedError", &error)
}

pub(super) fn self_raise(run: &Summary) -> Problem {
    let message = format!("Run {}: its own agent does not raise its limits: let somebody else resume it.", run.run_id);
    Problem::new(Code::PermissionDenied, "SELF_RAISE", message)
        .info("run_id", &run.run_id)
        .detail("runledger.v1.RunSummary", &v1::RunSummary::from_domain(run))
}

pub(super) fn budget_exceeded(budget: &str, spent: u64, limit: u64, run: &Summary) -> Problem {
    let id = &run.run_id;
    let message = format!(
        "Run {id} was suspended because it has spent its {budget}: {spent} of {limit}. Raise the limit with it."
    );
    let (run_id, budget) = (id.to_string(), budget.to_owned());
    let error = v1::BudgetExceededError { run_id, budget, spent, limit, run: Some(run.into_message()) };
    Problem::new(Code::FailedPrecondition, "BUDGET_EXCEEDED", message)
        .info("run_id", id)
        .info("budget", &error.budget)
        .info("spent", &spent.to_string())
        .info("limit", &limit.to_string())
        .detail("runledger.v1.BudgetExceededError", &error)
}
