//! The reason why a caller does not hold a run's lease, in words that are true of the run as it is.

use crate::domain::{LeaseEpoch, Summary};

/// Of a suspended run, to who names no epoch: perhaps somebody else who approves, or moves it.
pub(super) fn rests(rpc: &str, epoch: LeaseEpoch, ready: bool, run: &Summary) -> String {
    let id = &run.run_id;
    if ready {
        return format!("Run {id} was suspended and is ready to go on: claim it, and name the epoch that you get.");
    }
    let more = match rpc {
        "CompleteRun" => {
            " To approve it takes a phase that may complete and waits for that, and an operator who did not execute the run."
        }
        "SuspendRun" => " An operator names none.",
        _ => "",
    };
    format!(
        "Run {id} is suspended, and its lease of epoch {epoch} rests: {rpc} is its last holder's, who names it.{more}"
    )
}

/// Of a run whose attempt has failed by the word of its holder, who says more of it.
pub(super) fn attempt_failed_already(rpc: &str, run: &Summary) -> String {
    format!(
        "The attempt at run {} was reported as failed, and nobody has begun the next one: {rpc} is for who claims it.",
        run.run_id
    )
}

/// `asked`: the epoch that the call named. `epoch`: the run's.
pub(super) fn not_held(rpc: &str, asked: LeaseEpoch, epoch: LeaseEpoch, released: bool, run: &Summary) -> String {
    let Summary { run_id: id, status, presumed, .. } = run;
    if epoch == LeaseEpoch::NONE {
        return without_lease(rpc, asked, id);
    }
    if rpc == "ClaimRun" {
        return format!("Run {id} is at epoch {epoch}, and the claim expected {asked}: look at the run again.");
    }
    match (status.is_terminal(), released) {
        (true, false) if asked == LeaseEpoch::NONE => {
            format!("Run {id} ended as {status} under epoch {epoch}: {rpc} is for who held it, and names that epoch.")
        }
        (false, true) if asked == LeaseEpoch::NONE => {
            format!("The lease of run {id} was released: claim the run, and name the epoch that you get.")
        }
        (false, false) if asked == LeaseEpoch::NONE && rpc == "SuspendRun" => {
            format!(
                "Run {id} has a lease, of epoch {epoch}: {rpc} is its holder's, who names the epoch, or an operator's."
            )
        }
        (false, false) if asked == LeaseEpoch::NONE => {
            format!("Run {id} has a lease, of epoch {epoch}: {rpc} is its holder's, who names the epoch.")
        }
        (true, true) => format!("Run {id} ended as {status}, and nobody held it any more: stop working on it."),
        (true, false) if asked == epoch && *presumed => {
            format!("Run {id} ended as {status} by the authority's conclusion: report how it really ended.")
        }
        (true, false) if asked == epoch => format!("Run {id} has ended as {status}: stop working on it."),
        (true, false) => format!("Run {id} ended as {status} under epoch {epoch}, not {asked}: stop working on it."),
        (false, true) => format!("The lease of run {id} was released, and nobody has claimed it since: claim the run."),
        (false, false) if asked == epoch => format!(
            "The lease of epoch {epoch} of run {id} is over, and nobody has claimed the run since: finish and report its \
             end, or claim it again."
        ),
        (false, false) if asked > epoch => {
            format!("Run {id} is at epoch {epoch}: the ledger does not know of epoch {asked}, stop working on it.")
        }
        (false, false) => {
            format!("Run {id} is at epoch {epoch}, not {asked}: its lease is another one by now, stop working on it.")
        }
    }
}

fn without_lease(rpc: &str, asked: LeaseEpoch, id: &str) -> String {
    match rpc {
        "HeartbeatRun" | "ReleaseRun" => format!("Run {id} has no lease: {rpc} is for a run that has one."),
        _ => format!("Run {id} has no lease, and {rpc} named epoch {asked}: name none."),
    }
}
