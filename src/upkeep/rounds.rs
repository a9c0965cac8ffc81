//! The work that every server repeats: ticks and stamps, which tell that it is alive; sweeps; the tidying of rows
//! that nothing needs any more; and the measurement of what namespaces store.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::sweeper::sweep;
use crate::domain::Shard;
use crate::engine::Engine;
use crate::store::leases::TICK_EVERY;
use crate::store::{StoreError, Upkeep};
use crate::tasks::Supervisor;
use crate::telemetry::{chain, gauges, metrics, record};

/// The time from one sweep to the next, and from one stamp to the next. The loss of a worker is noticed after the ttl
/// and this time at most.
const EVERY: Duration = Duration::from_secs(1);

/// The time from one tidying to the next.
const TIDY_EVERY: Duration = Duration::from_mins(1);

/// The time from one measurement of stored bytes to the next.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// Starts the tasks, which go on until the service stops. Each shard is swept by a task of its own, and the stamp has
/// one, because it must wait for no commit. The ticks wait for nothing: a late tick shows that the process stood
/// still.
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
    let unmeasured = store.clone();
    let measure = move || {
        let store = unmeasured.clone();
        async move {
            while store.measure().await? {}
            Ok(())
        }
    };
    let trouble = "the bytes of namespaces with a quota cannot be measured";
    supervisor.vital("measurer", again(MEASURE_EVERY, trouble, measure, supervisor.stop()));
    let sweeps = Arc::new(Sweeps::new(store.ledger().shard_count));
    let told = sweeps.clone();
    gauges::observe(&metrics::SWEEP_LAG, move |tell| tell(told.lag().as_secs_f64(), &[]));
    for shard in 0..store.ledger().shard_count {
        let (store, engine, sweeps) = (store.clone(), engine.clone(), sweeps.clone());
        let sweep = move || {
            let (store, engine, sweeps) = (store.clone(), engine.clone(), sweeps.clone());
            async move {
                let began = Instant::now();
                let swept = sweep(&*store, &engine, Shard(shard)).await;
                record::sweep(swept.is_ok(), began.elapsed());
                swept.map(|_ended| sweeps.swept(Shard(shard)))
            }
        };
        let trouble = "leases and deadlines cannot be looked at";
        supervisor.vital("sweeper", again(EVERY, trouble, sweep, supervisor.stop()));
    }
}

/// The time at which each shard was last swept.
struct Sweeps(Mutex<Vec<Instant>>);

impl Sweeps {
    fn new(shards: u16) -> Self {
        Self(Mutex::new(vec![Instant::now(); usize::from(shards)]))
    }

    fn swept(&self, shard: Shard) {
        self.0.lock()[usize::from(shard.0)] = Instant::now();
    }

    /// The time since the last sweep of the shard that was swept the longest ago.
    fn lag(&self) -> Duration {
        let oldest = self.0.lock().iter().min().copied();
        oldest.map_or(Duration::ZERO, |oldest| oldest.elapsed())
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
                    tracing::error!(error = chain(&error), "{trouble}");
                }
            }
        }
    }
}
