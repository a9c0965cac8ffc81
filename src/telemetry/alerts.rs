//! The alerts: rules for Prometheus, made of the table of metrics.

use std::fmt::Write as _;

use self::Severity::{Page, Ticket};
use super::metrics::{self, Metric};

/// One alert. Its paragraph for whoever is woken stands in `docs/alerts.md`, under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// The name.
    pub name: &'static str,
    /// What is asked of Prometheus.
    pub expression: String,
    /// The time for which it must hold.
    pub lasts: &'static str,
    /// Whether somebody is woken, or reads of it in the morning.
    pub severity: Severity,
    /// What has happened, in one sentence. `{{ ... }}` is filled in by Prometheus.
    pub summary: &'static str,
}

/// Whether somebody is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Somebody is woken.
    Page,
    /// Somebody reads of it in the morning.
    Ticket,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Ticket => "ticket",
        }
    }
}

/// The share of calls that may fail by the service's own fault: of a thousand, one.
const BUDGET: f64 = 0.001;

/// The statuses of calls that failed by the service's own fault, as OpenTelemetry's conventions have them, but for
/// those that its callers choose: a deadline that is too short, a method that is not there.
const FAILED: &str = "UNKNOWN|INTERNAL|UNAVAILABLE|DATA_LOSS";

/// Streams end by UNAVAILABLE when their connection comes of age, and are resumed. What is no method of the service, as a
/// prober's HTTP is not, is no failure of it.
const STREAMS: &str = ".*/Watch.*|.*Reflection.*|_OTHER";

fn name(metric: &Metric) -> String {
    metric.prometheus_name()
}

/// The share of calls that failed, of all replicas, in a window.
fn failed(window: &str) -> String {
    let count = format!("{}_count", name(&metrics::CALL_DURATION));
    let method = metrics::prometheus_label(metrics::RPC_METHOD);
    let status = metrics::prometheus_label(metrics::RPC_STATUS);
    format!(
        "sum(rate({count}{{{method}!~\"{STREAMS}\",{status}=~\"{FAILED}\"}}[{window}])) / \
         sum(rate({count}{{{method}!~\"{STREAMS}\"}}[{window}]))"
    )
}

/// The calls a second that a replica refuses since it is overloaded. A caller that reaches its own limit is refused so,
/// too, and loads nothing.
fn overloaded() -> String {
    let refused = format!("sum by (instance) (rate({}{{reason=\"OVERLOADED\"}}[5m]))", name(&metrics::REFUSALS));
    let limited = format!("sum by (instance) (rate({}{{limit!=\"memory\"}}[5m]))", name(&metrics::LIMITED));
    format!("{refused} - ({limited} or 0 * {refused})")
}

/// A replica that answered within a day, and that Prometheus knows of and cannot ask; or there is none to ask. A replica
/// tells what it is from its start on, whether its store is open or not.
fn replica_down() -> String {
    let told = name(&metrics::BUILD_INFO);
    let down = format!("(up == 0 and on (job, instance) last_over_time({told}[1d]))");
    format!("{down} or (absent({told}) unless on () {down})")
}

/// The store does not answer, or answers and takes no commit: the probe that a replica writes may succeed all the same. A
/// few that fail may be the fault of their runs.
fn store_down() -> String {
    let commits = format!("{}_count", name(&metrics::COMMIT_DURATION));
    let made = |outcomes: &str| format!("sum by (job, instance) (increase({commits}{{outcome{outcomes}}}[2m]))");
    let (failed, committed) = (made("=~\"unavailable|refused|unknown\""), made("=\"committed\""));
    let up = format!("max by (job, instance) ({})", name(&metrics::STORE_UP));
    format!("({up} == 0) or ({failed} > 3 unless {committed} > 0)")
}

/// The time within which 99 of 100 are, of each replica.
fn p99(metric: &Metric) -> String {
    format!("histogram_quantile(0.99, sum by (instance, le) (rate({}_bucket[5m])))", name(metric))
}

/// The budget is used up this many times as fast as it may be: looked at in a long window, and in a short one, so that
/// the alert ends soon after its cause.
fn burns(times: f64, long: &str, short: &str) -> String {
    let bound = times * BUDGET;
    format!("{} > {bound:.4} and {} > {bound:.4}", failed(long), failed(short))
}

/// All of them.
#[must_use]
pub fn all() -> Vec<Alert> {
    of_calls().into_iter().chain(of_files()).collect()
}

fn alert(
    name: &'static str,
    severity: Severity,
    lasts: &'static str,
    expression: String,
    summary: &'static str,
) -> Alert {
    Alert { name, expression, lasts, severity, summary }
}

/// What keeps calls from being answered, and watches from going on.
fn of_calls() -> Vec<Alert> {
    let of = |metric: &Metric, condition: &str| format!("{} {condition}", name(metric));
    vec![
        alert(
            "RunledgerReplicaDown",
            Page,
            "2m",
            replica_down(),
            "Prometheus cannot ask {{ $labels.instance }}{{ if not $labels.instance }}any replica{{ end }}.",
        ),
        alert(
            "RunledgerStoreDown",
            Page,
            "1m",
            store_down(),
            "The store does not answer {{ $labels.instance }}, or its commits fail.",
        ),
        alert(
            "RunledgerErrorBudgetBurnsFast",
            Page,
            "2m",
            burns(14.4, "1h", "5m"),
            "Calls fail 14 times as often as one in a thousand: the budget of a month is gone in two days.",
        ),
        alert(
            "RunledgerErrorBudgetBurns",
            Ticket,
            "15m",
            burns(6.0, "6h", "30m"),
            "Calls fail 6 times as often as one in a thousand: the budget of a month is gone in five days.",
        ),
        alert(
            "RunledgerQueueStuck",
            Page,
            // Longer than the window: one stall, as of a failover, is in it for a minute.
            "2m",
            // A command that waits is refused after some seconds, so that the oldest is another one each time.
            format!("max_over_time({}[1m]) > 2", name(&metrics::QUEUE_OLDEST)),
            "Commands wait for {{ $value | humanizeDuration }} in shard {{ $labels.shard }} of {{ $labels.instance }}.",
        ),
        alert(
            "RunledgerQueueSlow",
            Ticket,
            "5m",
            // Where more is asked than is committed, commands that wait for longer are refused: see RunledgerOverloaded.
            format!("{} > 0.1", p99(&metrics::QUEUE_WAIT)),
            "One of a hundred commands waits for {{ $value | humanizeDuration }} at {{ $labels.instance }}.",
        ),
        alert(
            "RunledgerCommitsSlow",
            Ticket,
            "10m",
            format!("{} > 0.5", p99(&metrics::COMMIT_DURATION)),
            "One of a hundred commits takes {{ $value | humanizeDuration }} at {{ $labels.instance }}.",
        ),
        alert(
            "RunledgerOverloaded",
            Page,
            "5m",
            format!("{} > 1", overloaded()),
            "{{ $labels.instance }} refuses {{ $value | humanize }} calls a second as OVERLOADED.",
        ),
        alert(
            "RunledgerWatchesLate",
            Ticket,
            "5m",
            format!("{} > 5", p99(&metrics::WATCH_LAG)),
            "One of a hundred changes is shown {{ $value | humanizeDuration }} after it was made, at {{ $labels.instance }}.",
        ),
        alert(
            "RunledgerTailerStuck",
            Page,
            "1m",
            of(&metrics::TAILER_LAG, "> 10"),
            "{{ $labels.instance }} has not read the log to its end for {{ $value | humanizeDuration }}: watches wait.",
        ),
        alert(
            "RunledgerSweepsLate",
            Page,
            "1m",
            of(&metrics::SWEEP_LAG, "> 30"),
            "{{ $labels.instance }} has not looked for {{ $value | humanizeDuration }} which leases and deadlines are over.",
        ),
    ]
}

/// What is wrong with the files of a server, or will be.
fn of_files() -> Vec<Alert> {
    vec![
        alert(
            "RunledgerCertificateEnds",
            Ticket,
            "1h",
            format!("{} < {}", name(&metrics::TLS_EXPIRY), 7 * 24 * 3600),
            "The certificate of {{ $labels.instance }} ends in {{ $value | humanizeDuration }}.",
        ),
        alert(
            "RunledgerIssuerKeysOld",
            Ticket,
            "5m",
            format!("{} > 3600", name(&metrics::JWKS_AGE)),
            "{{ $labels.instance }} has not read the keys of {{ $labels.issuer }} for {{ $value | humanizeDuration }}.",
        ),
        alert(
            "RunledgerReloadRefused",
            Ticket,
            "0m",
            format!("increase({}{{kind!=\"jwks\",outcome=\"refused\"}}[15m]) > 0", name(&metrics::RELOADS)),
            "{{ $labels.instance }} has found mistakes in changed files ({{ $labels.kind }}), and goes on with the old ones.",
        ),
    ]
}

/// The alerts as a file of rules.
#[must_use]
pub fn rules() -> String {
    let mut text = String::from(
        "# Alerts of Runledger, for Prometheus. `runledger monitoring rules` prints those of a release.\ngroups:\n  \
         - name: runledger\n    rules:\n",
    );
    for Alert { name, expression, lasts, severity, summary } in all() {
        let _written = write!(
            text,
            "      - alert: {name}\n        expr: >-\n          {expression}\n        for: {lasts}\n        labels:\n          \
             severity: {}\n        annotations:\n          summary: >-\n            {summary}\n          runbook: \
             docs/alerts.md#{}\n",
            severity.name(),
            name.to_lowercase(),
        );
    }
    text
}
