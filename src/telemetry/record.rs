//! What is recorded as it happens: one function for each metric, so that its labels stand in one place.

use std::time::Duration;

use opentelemetry::KeyValue;

use super::instruments::Instruments;
use super::metrics::{RPC_METHOD, RPC_STATUS};

/// Whether anybody asks for metrics.
#[must_use]
pub fn is_on() -> bool {
    Instruments::get().is_some()
}

/// The most methods and codes that calls are told apart by.
const CODES: usize = 20;

/// A call that is over. `method` and `code`: a number of each, and its name.
pub fn call(method: (usize, &'static str), code: (usize, &'static str), took: Duration) {
    if let Some(on) = Instruments::get() {
        let labels = || [KeyValue::new(RPC_METHOD, method.1), KeyValue::new(RPC_STATUS, code.1)];
        on.call_duration.record(method.0 * CODES + code.0.min(CODES - 1), took.as_secs_f64(), labels);
    }
}

/// A label's value, and its number among all values of the label.
pub type Value = (usize, &'static str);

/// The most values of a status, and of a disposition.
const STATUSES: usize = 8;
const DISPOSITIONS: usize = 8;

/// A command that was decided.
pub fn transition(from: Value, to: Value, disposition: Value) {
    if let Some(on) = Instruments::get() {
        let place = (from.0 * STATUSES + to.0) * DISPOSITIONS + disposition.0;
        on.transitions.count(place, || {
            [KeyValue::new("from", from.1), KeyValue::new("to", to.1), KeyValue::new("disposition", disposition.1)]
        });
    }
}

/// A call that was refused or failed, for this reason.
pub fn refusal(reason: &'static str) {
    if let Some(on) = Instruments::get() {
        on.refusals.count([("reason", reason)]);
    }
}

/// The commands of a batch that begins.
pub fn batch(waits: impl ExactSizeIterator<Item = Duration>) {
    if let Some(on) = Instruments::get() {
        #[expect(clippy::cast_precision_loss, reason = "a batch has hundreds of commands")]
        on.batch_size.record(0, waits.len() as f64, || []);
        for wait in waits {
            on.queue_wait.record(0, wait.as_secs_f64(), || []);
        }
    }
}

/// A commit that has ended. `path`: the way that it took.
pub fn commit(path: Value, outcome: Value, took: Duration) {
    if let Some(on) = Instruments::get() {
        let labels = || [KeyValue::new("path", path.1), KeyValue::new("outcome", outcome.1)];
        on.commit_duration.record(path.0 * 8 + outcome.0, took.as_secs_f64(), labels);
    }
}

/// A commit that is made again.
pub fn commit_retry(reason: Value) {
    if let Some(on) = Instruments::get() {
        on.commit_retries.count(reason.0, || [KeyValue::new("reason", reason.1)]);
    }
}

/// A connection to the database that was waited for.
pub fn pool_wait(pool: Value, waited: Duration) {
    if let Some(on) = Instruments::get() {
        on.pool_wait.record(pool.0, waited.as_secs_f64(), || [KeyValue::new("pool", pool.1)]);
    }
}

/// A frame of a watch.
pub fn frame(kind: Value) {
    if let Some(on) = Instruments::get() {
        on.watch_frames.count(kind.0, || [KeyValue::new("kind", kind.1)]);
    }
}

/// A change that a watch shows which has caught up: the time since its event.
pub fn watch_lag(lag: Duration) {
    if let Some(on) = Instruments::get() {
        on.watch_lag.record(0, lag.as_secs_f64(), || []);
    }
}

/// A watch that goes on where another one had ended.
pub fn watch_resumed(of: Value) {
    if let Some(on) = Instruments::get() {
        on.watch_resumes.count(of.0, || [KeyValue::new("of", of.1)]);
    }
}

/// A sweep of one shard.
pub fn sweep(succeeded: bool, took: Duration) {
    if let Some(on) = Instruments::get() {
        let outcome = if succeeded { "swept" } else { "failed" };
        on.sweep_duration.record(usize::from(succeeded), took.as_secs_f64(), || [KeyValue::new("outcome", outcome)]);
    }
}

/// A run that the authority ended.
pub fn swept(reason: &'static str) {
    if let Some(on) = Instruments::get() {
        on.sweep_ended.count([("reason", reason)]);
    }
}

/// A clock that was set.
pub fn clock_step(clock: &'static str, is_forward: bool) {
    if let Some(on) = Instruments::get() {
        on.clock_steps.count([("clock", clock), ("direction", if is_forward { "forward" } else { "back" })]);
    }
}

/// Runs that were purged.
pub fn purged(runs: u64) {
    if let Some(on) = Instruments::get()
        && runs > 0
    {
        on.purged.add(runs, []);
    }
}

/// A renewal of a lease.
pub fn renewal(outcome: Value) {
    if let Some(on) = Instruments::get() {
        on.lease_renewals.count(outcome.0, || [KeyValue::new("outcome", outcome.1)]);
    }
}

/// A call for the next run. `waited`: the time until it had one.
pub fn claim(outcome: Value, waited: Option<Duration>) {
    if let Some(on) = Instruments::get() {
        on.claims.count(outcome.0, || [KeyValue::new("outcome", outcome.1)]);
        if let Some(waited) = waited {
            on.claim_wait.record(0, waited.as_secs_f64(), || []);
        }
    }
}

/// A call whose credential was refused.
pub fn auth_failure(cause: &'static str) {
    if let Some(on) = Instruments::get() {
        on.auth_failures.count([("cause", cause)]);
    }
}

/// A call that was refused for a limit of its caller.
pub fn limited(limit: &'static str) {
    if let Some(on) = Instruments::get() {
        on.limited.count([("limit", limit)]);
    }
}

/// A look at a file that had changed.
pub fn reload(kind: &'static str, succeeded: bool) {
    if let Some(on) = Instruments::get() {
        on.reloads.count([("kind", kind), ("outcome", if succeeded { "taken" } else { "refused" })]);
    }
}
