//! The sweep: finds runs whose lease or deadline is over, and asks for their end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{MissedTickBehavior, interval};

use crate::domain::{Changes, Command, Operation, Principal, RunKey, Terms};
use crate::engine::{Disposition, Engine, Failure};
use crate::store::{Store, StoreError};
use crate::supervise::Supervisor;
use crate::telemetry::chain;

/// From one sweep to the next. With the ttl, how late an end may be noticed; each costs one write and a scan of the
/// leases.
const EVERY: Duration = Duration::from_secs(1);

/// Runs that one sweep ends at most, of those whose lease is over and of those that are due. Where there are more, the
/// next sweep follows at once.
const RUNS_MAX: usize = 512;

/// Sweeps until the service stops.
pub fn start(store: Arc<dyn Store>, engine: Arc<Engine>, supervisor: &Supervisor) {
    let stop = supervisor.stop();
    supervisor.vital("sweeper", async move {
        let mut tick = interval(EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut down = false;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = tick.tick() => {}
            }
            match sweep(&*store, &engine).await {
                Ok(_ended) => down = false,
                Err(error) => {
                    // An outage is logged once, not once a second.
                    if !std::mem::replace(&mut down, true) {
                        tracing::error!(error = chain(&error), "leases and deadlines cannot be looked at");
                    }
                }
            }
        }
    });
}

/// Says that a server is alive, and ends every run whose time is over. Answers how many it ended.
///
/// # Errors
///
/// The store cannot be asked who they are.
pub async fn sweep(store: &dyn Store, engine: &Engine) -> Result<usize, StoreError> {
    let mut ended = 0;
    loop {
        let found = store.overdue(RUNS_MAX).await?;
        let cut = found.len() >= RUNS_MAX;
        let ends = join_all(found.into_iter().map(|key| end(engine, key))).await;
        let now_ended = ends.into_iter().filter(|ended| *ended).count();
        ended += now_ended;
        if !cut || now_ended == 0 {
            return Ok(ended);
        }
    }
}

/// Whether this sweep ended it. What failed is tried again by the next one.
async fn end(engine: &Engine, key: RunKey) -> bool {
    let RunKey { namespace, run_id } = key.clone();
    let command = Command {
        key,
        operation: Operation::Sweep,
        changes: Changes::default(),
        terms: Terms::default(),
        expected_revision: None,
        request: None,
        principal: Principal::authority(),
    };
    match engine.submit(command, None).await {
        Ok(answer) => match answer.disposition {
            Disposition::Applied => {
                let reason_code = answer.run.reason_code.as_deref();
                tracing::info!(namespace, run_id, reason_code, "a run's time was over");
                true
            }
            Disposition::Unchanged | Disposition::Replayed | Disposition::RecordedLate => false,
        },
        // What its cause is has been logged.
        Err(
            Failure::Refused(_)
            | Failure::Overloaded
            | Failure::Draining
            | Failure::StoreUnavailable
            | Failure::StoreRefused
            | Failure::StoreCorrupt
            | Failure::Deadline
            | Failure::OutcomeUnknown,
        ) => false,
    }
}
