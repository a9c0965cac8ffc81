//! The sweep: finds runs whose lease or deadline is over, and asks for their end.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::domain::{Agents, Ask, Command, Disposition, Principal, RunKey, Shard};
use crate::engine::{Engine, Failure};
use crate::store::leases::OverduePlace;
use crate::store::{StoreError, Upkeep};
use crate::telemetry::record;

/// Runs that are found and ended together at most, of those whose lease is over and of those that are due.
const RUNS_MAX: usize = 512;

/// The time that an end may be queued. A shard that stands still is swept again, and holds up no other shard.
const END_WAIT_MAX: Duration = Duration::from_secs(2);

/// Ends every run of a shard whose time is over, and passes over those that cannot be ended. Returns the number of
/// runs that it ended. A pass ends early where the shard stands still: the next one begins with the runs that are
/// overdue then, and nobody who waits for the end of this task waits for page after page of refusals.
///
/// # Errors
///
/// The store cannot be asked for these runs.
pub async fn sweep(store: &dyn Upkeep, engine: &Engine, shard: Shard) -> Result<usize, StoreError> {
    let (mut ended, mut place) = (0, OverduePlace::default());
    loop {
        let found = store.overdue(shard, &place, RUNS_MAX).await?;
        let ends = join_all(found.runs.into_iter().map(|key| end(engine, key))).await;
        ended += ends.iter().filter(|end| matches!(end, End::Made)).count();
        // A run that is refused, or cannot be read, shows that the shard goes on.
        let stands_still = !ends.is_empty() && ends.iter().all(|end| matches!(end, End::NotNow));
        match found.next {
            Some(next) if !stands_still => place = next,
            Some(_) | None => return Ok(ended),
        }
    }
}

/// The reasons for which the authority ends runs, as metrics name them.
const REASONS: &[&str] = &["ABORT_GRACE_EXPIRED", "ATTEMPT_TIMEOUT", "ORPHANED", "SUSPENSION_TIMEOUT", "TIMEOUT"];

fn named(reason_code: Option<&str>) -> &'static str {
    REASONS.iter().find(|reason| Some(**reason) == reason_code).copied().unwrap_or("OTHER")
}

/// What became of a run whose time was over.
enum End {
    /// This sweep ended the run, or let it go on.
    Made,
    /// The run needs no end, or cannot be ended.
    Passed,
    /// The run was not ended, nor will others be at the moment.
    NotNow,
}

/// Ends a run. The next sweep tries again after a failure.
async fn end(engine: &Engine, key: RunKey) -> End {
    let RunKey { namespace, run_id } = key.clone();
    let command = Command {
        key,
        ask: Ask::Sweep,
        expected_revision: None,
        request: None,
        principal: Principal::authority(),
        oversize: Vec::new(),
        prepared: crate::domain::Prepared::default(),
        trace: None,
        agents: Agents::All,
    };
    match engine.submit(command, Some(Instant::now() + END_WAIT_MAX)).await {
        Ok(answer) => match answer.disposition {
            Disposition::Applied => {
                let reason_code = answer.run.ending.reason_code.as_deref();
                let (namespace, run_id) = (namespace.as_str(), run_id.as_str());
                if answer.run.status.is_terminal() {
                    record::swept(named(reason_code));
                }
                tracing::debug!(namespace, run_id, reason_code, "a run's time was over");
                End::Made
            }
            Disposition::Unchanged | Disposition::Replayed | Disposition::RecordedLate => End::Passed,
        },
        // The cause of the failure has been logged.
        Err(Failure::Refused(_) | Failure::StoreRefused | Failure::StoreCorrupt) => End::Passed,
        Err(
            Failure::Overloaded { .. }
            | Failure::Draining
            | Failure::StoreUnavailable
            | Failure::Deadline
            | Failure::OutcomeUnknown,
        ) => End::NotNow,
    }
}
