//! The sweep: finds runs whose lease or deadline is over, and asks for their end.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::domain::{Ask, Command, Principal, RunKey, Shard};
use crate::engine::{Disposition, Engine, Failure};
use crate::store::leases::TICK_EVERY;
use crate::store::{StoreError, Upkeep};
use crate::supervise::Supervisor;
use crate::telemetry::chain;

/// The time from one sweep to the next, and from one stamp to the next. The loss of a worker is noticed after the ttl
/// and this time at most.
const EVERY: Duration = Duration::from_secs(1);

/// The time from one tidying to the next.
const TIDY_EVERY: Duration = Duration::from_mins(1);

/// Runs that one sweep of a shard ends at most, of those whose lease is over and of those that are due. If more are
/// found, the next sweep follows at once.
const RUNS_MAX: usize = 512;

/// The time that an end may be queued. A shard that stands still is swept again, and holds up no other shard.
const END_WAIT_MAX: Duration = Duration::from_secs(2);

/// Sweeps until the service stops: each shard by itself, and the stamp by itself, which waits for no commit. The ticks
/// wait for nothing: a late tick shows that the process stood still.
pub fn start(store: &Arc<dyn Upkeep>, engine: &Arc<Engine>, supervisor: &Supervisor) {
    let runs = store.clone();
    let tick = move || {
        runs.tick();
        ready(Ok(()))
    };
    supervisor.vital("uptime", again(TICK_EVERY, "this process cannot be seen running", tick, supervisor.stop()));
    let alive = store.clone();
    let stay_alive = move || {
        let store = alive.clone();
        async move { store.stay_alive().await }
    };
    let trouble = "the ledger cannot be told that a server is alive";
    supervisor.vital("stamp", again(EVERY, trouble, stay_alive, supervisor.stop()));
    let untidy = store.clone();
    let tidy = move || {
        let store = untidy.clone();
        async move {
            while store.tidy().await? {}
            Ok(())
        }
    };
    let trouble = "what nothing needs any more cannot be forgotten";
    supervisor.vital("tidier", again(TIDY_EVERY, trouble, tidy, supervisor.stop()));
    for shard in 0..store.ledger().shard_count {
        let (store, engine) = (store.clone(), engine.clone());
        let sweep = move || {
            let (store, engine) = (store.clone(), engine.clone());
            async move { sweep(&*store, &engine, Shard(shard)).await.map(drop) }
        };
        let trouble = "leases and deadlines cannot be looked at";
        supervisor.vital("sweeper", again(EVERY, trouble, sweep, supervisor.stop()));
    }
}

async fn again<W>(every: Duration, trouble: &'static str, mut work: impl FnMut() -> W, stop: CancellationToken)
where
    W: Future<Output = Result<(), StoreError>>,
{
    let mut tick = interval(every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut down = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        match work().await {
            Ok(()) => down = false,
            Err(error) => {
                // An outage is logged once, not each time.
                if !std::mem::replace(&mut down, true) {
                    tracing::error!(error = chain(&error), trouble);
                }
            }
        }
    }
}

/// Ends every run of a shard whose time is over. Returns the number of runs that it ended.
///
/// # Errors
///
/// The store cannot be asked for these runs.
pub async fn sweep(store: &dyn Upkeep, engine: &Engine, shard: Shard) -> Result<usize, StoreError> {
    let mut ended = 0;
    loop {
        let found = store.overdue(shard, RUNS_MAX).await?;
        let cut = found.len() >= RUNS_MAX;
        let ends = join_all(found.into_iter().map(|key| end(engine, key))).await;
        let now_ended = ends.into_iter().filter(|ended| *ended).count();
        ended += now_ended;
        if !cut || now_ended == 0 {
            return Ok(ended);
        }
    }
}

/// Ends a run, and returns whether this sweep ended it. The next sweep tries again after a failure.
async fn end(engine: &Engine, key: RunKey) -> bool {
    let RunKey { namespace, run_id } = key.clone();
    let command =
        Command { key, ask: Ask::Sweep, expected_revision: None, request: None, principal: Principal::authority() };
    match engine.submit(command, Some(Instant::now() + END_WAIT_MAX)).await {
        Ok(answer) => match answer.disposition {
            Disposition::Applied => {
                let reason_code = answer.run.ending.reason_code.as_deref();
                let (namespace, run_id) = (namespace.as_str(), run_id.as_str());
                tracing::debug!(namespace, run_id, reason_code, "a run's time was over");
                true
            }
            Disposition::Unchanged | Disposition::Replayed | Disposition::RecordedLate => false,
        },
        // The cause of the failure has been logged.
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
