//! The gauges of the process: what its parts tell when somebody asks for metrics.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::auth::Gate;
use crate::authority::{Authority, AuthoritySlot};
use crate::clock::{Clock as _, SystemClock};
use crate::domain::Time;
use crate::grpc::memory_parts;
use crate::grpc::transport::Totals;
use crate::stdio;
use crate::store::observed::Observed;
use crate::store::{Statistics, Store};
use crate::telemetry::gauges::{Tell, observe};
use crate::telemetry::metrics::{self, Metric};
use crate::telemetry::{chain, observe_process};
use crate::tls::Tls;

/// The shards whose queues are told of.
const SHARDS_MAX: usize = 64;

/// The time from one look at the database's statistics to the next.
const STATISTICS_EVERY: Duration = Duration::from_mins(1);

/// Has the connections and calls told of, and the process.
pub(super) fn of_process(totals: &Arc<Totals>, slot: &AuthoritySlot, tls: Option<&Arc<Tls>>, gate: &Arc<Gate>) {
    observe_process();
    let number = |metric: &'static Metric, read: fn(&Totals) -> f64| {
        let totals = totals.clone();
        observe(metric, move |tell| tell(read(&totals), &[]));
    };
    number(&metrics::CALLS_IN_FLIGHT, |totals| count(totals.open()));
    number(&metrics::CALLS_EXECUTED, |totals| count(totals.calls()));
    number(&metrics::CONNECTIONS, |totals| count(totals.connections()));
    number(&metrics::CONNECTIONS_REFUSED, |totals| large(totals.disagreed()));
    number(&metrics::REQUEST_BYTES, |totals| count(totals.request_bytes()));
    number(&metrics::UNSENT_BYTES, |totals| count(totals.unsent_bytes()));
    observe(&metrics::LINES_LOST, |tell| {
        for stream in [stdio::out(), stdio::err()] {
            tell(large(stream.lost()), &[("stream", stream.name())]);
        }
    });
    number(&metrics::MEMORY_LIMIT, |totals| large(totals.memory().limit().unwrap_or(0)));
    let (parts, of) = (totals.clone(), slot.clone());
    observe(&metrics::MEMORY_PART, move |tell| {
        for part in memory_parts(&parts, of.get()) {
            tell(count(part.bytes), &[("part", part.name)]);
        }
    });
    if let Some(tls) = tls.cloned() {
        observe(&metrics::TLS_EXPIRY, move |tell| tell(seconds_until(tls.not_after()), &[("certificate", "server")]));
    }
    let gate = gate.clone();
    observe(&metrics::JWKS_AGE, move |tell| {
        let Some(trusted) = gate.trusted() else { return };
        for (issuer, age) in trusted.jwts().key_ages() {
            tell(age.as_secs_f64(), &[("issuer", issuer)]);
        }
    });
}

/// Has whether the store can be relied on told.
pub(super) fn of_health(is_well: watch::Receiver<bool>) {
    observe(&metrics::STORE_UP, move |tell| tell(f64::from(u8::from(*is_well.borrow())), &[]));
}

/// Has told what runs here, on which kind of store, whether that is open or not.
pub(super) fn of_build(kind: &'static str) {
    observe(&metrics::BUILD_INFO, move |tell| {
        tell(1.0, &[("version", env!("CARGO_PKG_VERSION")), ("store", kind)]);
    });
}

/// Has the store told of.
pub(super) fn of_store(store: &Arc<Observed<dyn Store>>) {
    let called = store.clone();
    observe(&metrics::STORE_CALLS, move |tell| {
        for (method, calls) in called.calls().all() {
            tell(large(calls), &[("method", method)]);
        }
    });
    let pools = store.clone();
    observe(&metrics::POOL_IN_USE, move |tell| {
        for pool in pools.pools() {
            tell(count(pool.in_use), &[("pool", pool.name)]);
        }
    });
    let pools = store.clone();
    observe(&metrics::POOL_MAX, move |tell| {
        for pool in pools.pools() {
            tell(count(pool.max), &[("pool", pool.name)]);
        }
    });
}

/// Has the queues and watches of the authority told of.
pub(super) fn of_authority(slot: &AuthoritySlot) {
    let of = |metric: &'static Metric, read: fn(&Authority, &mut Tell<'_>)| {
        let slot = slot.clone();
        observe(metric, move |tell| {
            if let Some(authority) = slot.get() {
                read(authority, tell);
            }
        });
    };
    of(&metrics::QUEUE_DEPTH, |authority, tell| {
        for (shard, unanswered) in authority.engine.unanswered().iter().take(SHARDS_MAX).enumerate() {
            tell(count(unanswered.commands), &[("shard", &shard.to_string())]);
        }
    });
    of(&metrics::QUEUE_OLDEST, |authority, tell| {
        for (shard, unanswered) in authority.engine.unanswered().iter().take(SHARDS_MAX).enumerate() {
            tell(unanswered.oldest.unwrap_or_default().as_secs_f64(), &[("shard", &shard.to_string())]);
        }
    });
    of(&metrics::QUEUE_BYTES, |authority, tell| tell(count(authority.engine.bytes().0), &[]));
    of(&metrics::WATCHERS, |authority, tell| {
        let hub = authority.feed.hub();
        tell(count(hub.watches_of_one_run()), &[("of", "one")]);
        tell(count(hub.watches_of_many_runs()), &[("of", "many")]);
    });
    of(&metrics::RING_BYTES, |authority, tell| tell(count(authority.feed.hub().recent_changes_bytes()), &[]));
    of(&metrics::TAILER_LAG, |authority, tell| {
        let hub = authority.feed.hub();
        let is_read = hub.watches_of_one_run() + hub.watches_of_many_runs() > 0;
        if is_read {
            tell(hub.behind_for().as_secs_f64(), &[]);
        }
    });
}

/// Looks at the database's statistics again and again, until the stop.
pub(super) async fn follow_statistics(store: Arc<dyn Store>, stop: CancellationToken) {
    let last: Arc<Mutex<Statistics>> = Arc::default();
    let of = |metric: &'static Metric, read: fn(&Statistics, &mut Tell<'_>)| {
        let last = last.clone();
        observe(metric, move |tell| read(&last.lock(), tell));
    };
    of(&metrics::STORE_SIZE, |last, tell| {
        if last.bytes > 0 {
            tell(large(last.bytes), &[]);
        }
    });
    of(&metrics::RUNS, |last, tell| {
        for (status, runs) in &last.runs {
            tell(*runs, &[("status", status.name())]);
        }
    });
    of(&metrics::LEASES_HELD, |last, tell| {
        if let Some(leases) = last.leases {
            tell(leases, &[]);
        }
    });
    let look = async {
        let mut looks = interval(STATISTICS_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            match store.statistics().await {
                Ok(statistics) => *last.lock() = statistics,
                Err(error) => tracing::debug!(error = chain(&error), "the store tells no statistics"),
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = look => {}
    }
}

/// The time until a time, below zero where it has passed.
fn seconds_until(at: Time) -> f64 {
    let micros = at.micros().saturating_sub(SystemClock.now().micros());
    #[expect(clippy::cast_precision_loss, reason = "a gauge is read to the second")]
    let micros = micros as f64;
    micros / 1_000_000.0
}

#[expect(clippy::cast_precision_loss, reason = "a gauge of more than 2^52 things is as good without its last digit")]
fn count(things: usize) -> f64 {
    things as f64
}

#[expect(clippy::cast_precision_loss, reason = "a gauge of more than 2^52 things is as good without its last digit")]
fn large(things: u64) -> f64 {
    things as f64
}
