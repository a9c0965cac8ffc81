//! The table of metrics: each has one row here, and nothing is told under a name that has none. The reference, the
//! dashboard and the alerts are held against this table.
//!
//! No label has a value that a caller chooses: neither a run, nor a thread, nor an agent. So the number of series is
//! bounded by the table.

use std::fmt::Write as _;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// The name, as OpenTelemetry writes it.
    pub name: &'static str,
    pub kind: Kind,
    /// The unit, as UCUM writes it; in braces where it is a count of things. Prometheus shows those without braces at
    /// the end of the name, so a name that ends with its unit has it in braces.
    pub unit: &'static str,
    /// The labels of each series.
    pub labels: &'static [&'static str],
    /// What it tells.
    pub meaning: &'static str,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It is as it is.
    Gauge,
    /// It counts values up to bounds.
    Histogram(&'static [f64]),
}

/// The bounds of calls, as the conventions of OpenTelemetry have them.
const OF_CALLS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// The bounds of times inside the process.
const OF_TIMES: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// The bounds of sizes.
const OF_SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// The label of a call's method.
pub const RPC_METHOD: &str = "rpc.method";
/// The label of a call's status. Releases of the conventions differ in its name, so it stands here alone.
pub const RPC_STATUS: &str = "rpc.response.status_code";

/// Makes the rows: the comment of each is what it tells.
macro_rules! metrics {
    ($($(#[doc = $meaning:literal])+ $id:ident: $kind:expr, $name:literal, $unit:literal, [$($label:expr),*];)*) => {
        $($(#[doc = $meaning])+ pub const $id: Metric = Metric {
            name: $name, kind: $kind, unit: $unit, labels: &[$($label),*], meaning: concat!($($meaning),+).trim_ascii(),
        };)*

        /// All rows.
        pub const ALL: &[&Metric] = &[$(&$id),*];
    };
}

metrics! {
    /// Time of a call, from its headers to the last byte of its answer. A watch lasts as long as its stream.
    CALL_DURATION: Kind::Histogram(OF_CALLS), "rpc.server.call.duration", "s", [RPC_METHOD, RPC_STATUS];
    /// Calls, watches and waits that are open.
    CALLS_IN_FLIGHT: Kind::Gauge, "runledger.rpc.in_flight", "{call}", [];
    /// Calls that are in execution or wait for it, without watches and waits.
    CALLS_EXECUTED: Kind::Gauge, "runledger.rpc.executing", "{call}", [];
    /// Connections of clients.
    CONNECTIONS: Kind::Gauge, "runledger.rpc.connections", "{connection}", [];
    /// Connections that were refused, because their clients did not agree with the port on TLS or on who they are.
    CONNECTIONS_REFUSED: Kind::Counter, "runledger.rpc.connections.refused", "{connection}", [];
    /// Bytes of requests that are being received or executed.
    REQUEST_BYTES: Kind::Gauge, "runledger.rpc.request_bytes", "{byte}", [];
    /// Bytes of answers that clients have not taken yet.
    UNSENT_BYTES: Kind::Gauge, "runledger.rpc.unsent_bytes", "{byte}", [];
    /// Watches, of one run (waits for its end among them) and of many.
    WATCHERS: Kind::Gauge, "runledger.rpc.watchers", "{watch}", ["of"];

    /// Commands that were decided: the status before and after, and what came of the command.
    TRANSITIONS: Kind::Counter, "runledger.transitions", "{command}", ["from", "to", "disposition"];
    /// Calls that were refused or failed, by the reason that their callers were told.
    REFUSALS: Kind::Counter, "runledger.refusals", "{call}", ["reason"];

    /// Time that a command waited for its commit to begin.
    QUEUE_WAIT: Kind::Histogram(OF_TIMES), "runledger.queue.wait", "s", [];
    /// Commands without an answer, of each of the first 64 shards.
    QUEUE_DEPTH: Kind::Gauge, "runledger.queue.depth", "{command}", ["shard"];
    /// Time that the oldest command without an answer has waited, of each of the first 64 shards.
    QUEUE_OLDEST: Kind::Gauge, "runledger.queue.oldest", "s", ["shard"];
    /// Bytes of the commands without an answer.
    QUEUE_BYTES: Kind::Gauge, "runledger.queue.bytes", "{byte}", [];

    /// Time of a commit, by the way that it took and by its outcome.
    COMMIT_DURATION: Kind::Histogram(OF_TIMES), "runledger.commit.duration", "s", ["path", "outcome"];
    /// Commands of a commit.
    BATCH_SIZE: Kind::Histogram(OF_SIZES), "runledger.batch.size", "{command}", [];
    /// Commits that were made again, and why.
    COMMIT_RETRIES: Kind::Counter, "runledger.commit.retries", "{commit}", ["reason"];

    /// 1 while the store answers and commits succeed, else 0.
    STORE_UP: Kind::Gauge, "runledger.store.up", "", [];
    /// Questions to the store, by the method.
    STORE_CALLS: Kind::Counter, "runledger.store.calls", "{call}", ["method"];
    /// Connections to the database that are in use.
    POOL_IN_USE: Kind::Gauge, "runledger.pool.in_use", "{connection}", ["pool"];
    /// Connections to the database at most.
    POOL_MAX: Kind::Gauge, "runledger.pool.max", "{connection}", ["pool"];
    /// Time that the use of a connection to the database was waited for.
    POOL_WAIT: Kind::Histogram(OF_TIMES), "runledger.pool.wait", "s", ["pool"];

    /// Time from an event to the frame that shows it, of watches that have caught up.
    WATCH_LAG: Kind::Histogram(OF_TIMES), "runledger.watch.lag", "s", [];
    /// Frames of watches, by their kind.
    WATCH_FRAMES: Kind::Counter, "runledger.watch.frames", "{frame}", ["kind"];
    /// Watches that went on where another one had ended.
    WATCH_RESUMES: Kind::Counter, "runledger.watch.resumes", "{watch}", ["of"];
    /// Time since the log was last read to its end, while anybody watches.
    TAILER_LAG: Kind::Gauge, "runledger.tailer.lag", "s", [];
    /// Bytes of the last changes, which watches take from memory.
    RING_BYTES: Kind::Gauge, "runledger.ring.bytes", "{byte}", [];

    /// Time of a sweep of one shard.
    SWEEP_DURATION: Kind::Histogram(OF_TIMES), "runledger.sweep.duration", "s", ["outcome"];
    /// Runs that the authority ended, by the reason.
    SWEEP_ENDED: Kind::Counter, "runledger.sweep.ended", "{run}", ["reason"];
    /// Times that a clock was set, as this server noticed: the store's, or its own.
    CLOCK_STEPS: Kind::Counter, "runledger.clock.steps", "{step}", ["clock", "direction"];
    /// Runs that were purged, since their namespace keeps them no longer.
    PURGED: Kind::Counter, "runledger.purged", "{run}", [];
    /// Time since the last sweep of the shard that was swept the longest ago.
    SWEEP_LAG: Kind::Gauge, "runledger.sweep.lag", "s", [];
    /// Renewals of leases, by what came of them: made, or lost where the caller did not hold the lease any more.
    LEASE_RENEWALS: Kind::Counter, "runledger.leases.renewals", "{renewal}", ["outcome"];
    /// Calls for the next run, by what came of them.
    CLAIMS: Kind::Counter, "runledger.claims", "{call}", ["outcome"];
    /// Time that a call for the next run took until it had one.
    CLAIM_WAIT: Kind::Histogram(OF_TIMES), "runledger.claim.wait", "s", [];

    /// Bytes that the database takes. Looked at once a minute.
    STORE_SIZE: Kind::Gauge, "runledger.store.size", "By", [];
    /// About how many runs there are, as the statistics of Postgres say; none on SQLite. Looked at once a minute.
    RUNS: Kind::Gauge, "runledger.runs", "{run}", ["status"];
    /// About how many leases are held, as the statistics of Postgres say; none on SQLite. Looked at once a minute.
    LEASES_HELD: Kind::Gauge, "runledger.leases.held", "{lease}", [];

    /// Calls whose credential was refused, by the cause that their callers were told.
    AUTH_FAILURES: Kind::Counter, "runledger.auth.failures", "{call}", ["cause"];
    /// Calls that were refused for a limit of one caller, by the limit.
    LIMITED: Kind::Counter, "runledger.limited", "{call}", ["limit"];
    /// Time since an issuer's keys were last read, or since the start where they never were, by the issuer's name.
    JWKS_AGE: Kind::Gauge, "runledger.jwks.age", "s", ["issuer"];
    /// Time until the server's certificate ends, or the first of those that it serves with it.
    TLS_EXPIRY: Kind::Gauge, "runledger.tls.expiry", "s", ["certificate"];
    /// Reads of files that had changed, and of issuers' keys: by what was read, and what came of it.
    RELOADS: Kind::Counter, "runledger.reloads", "{reload}", ["kind", "outcome"];

    /// Lines of the log, or of standard output, that were lost since nobody took them.
    LINES_LOST: Kind::Counter, "runledger.log.lines_lost", "{line}", ["stream"];
    /// Bytes of memory that a part of the process takes.
    MEMORY_PART: Kind::Gauge, "runledger.memory.part", "By", ["part"];
    /// Bytes of memory that the process may take; 0 where nobody knows.
    MEMORY_LIMIT: Kind::Gauge, "runledger.memory.limit", "By", [];
    /// Always 1: the labels are what was built.
    BUILD_INFO: Kind::Gauge, "runledger.build.info", "", ["version", "store"];
    /// Processor time of the process.
    PROCESS_CPU: Kind::Counter, "process.cpu", "s", [];
    /// Bytes that the process has in memory, those of files among them.
    PROCESS_MEMORY: Kind::Gauge, "process.resident_memory", "By", [];
    /// Files, sockets among them, that the process has open.
    PROCESS_FILES: Kind::Gauge, "process.open_fds", "{file}", [];
    /// Files that the process may have open.
    PROCESS_FILES_MAX: Kind::Gauge, "process.max_fds", "{file}", [];
    /// Time since the process began.
    PROCESS_UPTIME: Kind::Gauge, "process.uptime", "s", [];
}

impl Metric {
    /// The name as Prometheus has it: of a histogram without `_bucket`, `_sum` and `_count`.
    #[must_use]
    pub fn prometheus_name(&self) -> String {
        let unit = match self.unit {
            "s" => "_seconds",
            "By" => "_bytes",
            _ => "",
        };
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{unit}{total}", self.name.replace('.', "_"))
    }
}

/// The name of a label as Prometheus has it.
#[must_use]
pub fn prometheus_label(label: &str) -> String {
    label.replace('.', "_")
}

/// The reference of all metrics, in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from("| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n");
    for metric in ALL {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{}`", prometheus_label(label))).collect();
        let (name, labels) = (metric.prometheus_name(), labels.join(" "));
        let _written = writeln!(text, "| `{name}` | {kind} | {labels} | {} |", metric.meaning);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_name_stands_once_and_says_what_it_means() {
        let names: HashSet<_> = ALL.iter().map(|metric| metric.prometheus_name()).collect();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            assert!(metric.meaning.ends_with('.'), "{}: {:?}", metric.name, metric.meaning);
            assert!(
                metric.name.starts_with("runledger.")
                    || metric.name.starts_with("rpc.server.")
                    || metric.name.starts_with("process."),
                "{}",
                metric.name
            );
            for label in metric.labels {
                assert!(!["run_id", "task_thread_id", "agent_id"].contains(label), "{label}");
            }
        }
    }

    #[test]
    fn the_reference_in_the_docs_is_that_of_the_table() {
        let docs = include_str!("../../docs/telemetry.md");
        assert!(docs.contains(&reference()), "put this into docs/telemetry.md:\n{}", reference());
    }

    #[test]
    fn bounds_grow() {
        for metric in ALL {
            if let Kind::Histogram(bounds) = metric.kind {
                assert!(bounds.is_sorted_by(|one, next| one < next), "{}", metric.name);
            }
        }
    }
}
