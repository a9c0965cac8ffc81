//! The dashboard: one page for Grafana, made of the table of metrics, from what callers see down to the process.

use serde_json::{Value, json};

use super::metrics::{self, Metric, RPC_METHOD, RPC_STATUS, prometheus_label};

/// A picture on the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panel {
    /// The title.
    pub title: &'static str,
    /// The unit, by Grafana's name.
    pub unit: &'static str,
    /// What is asked of Prometheus, and how each line is called.
    pub queries: Vec<(String, &'static str)>,
    /// What the reader learns from it.
    pub meaning: &'static str,
}

/// The replicas that the reader has chosen.
const CHOSEN: &str = "instance=~\"$instance\"";

fn name(metric: &Metric) -> String {
    metric.prometheus_name()
}

fn gauge(metric: &Metric) -> String {
    format!("{}{{{CHOSEN}}}", name(metric))
}

fn rate_by(metric: &Metric, suffix: &str, by: &str) -> String {
    format!("sum by ({by}) (rate({}{suffix}{{{CHOSEN}}}[$__rate_interval]))", name(metric))
}

fn quantile(quantile: &str, metric: &Metric, by: &str) -> String {
    format!("histogram_quantile({quantile}, {})", rate_by(metric, "_bucket", &format!("le{by}")))
}

fn quantiles(metric: &Metric) -> Vec<(String, &'static str)> {
    vec![
        (quantile("0.5", metric, ""), "p50"),
        (quantile("0.95", metric, ""), "p95"),
        (quantile("0.99", metric, ""), "p99"),
    ]
}

/// The rows of the page, and their panels.
#[must_use]
pub fn rows() -> Vec<(&'static str, Vec<Panel>)> {
    vec![
        ("At a glance", at_a_glance()),
        ("Commands", commands()),
        ("Store", store()),
        ("Watches, leases and claims", watches()),
        ("Callers and process", callers()),
    ]
}

fn panel(
    title: &'static str,
    unit: &'static str,
    queries: Vec<(String, &'static str)>,
    meaning: &'static str,
) -> Panel {
    Panel { title, unit, queries, meaning }
}

fn at_a_glance() -> Vec<Panel> {
    let (method, status) = (prometheus_label(RPC_METHOD), prometheus_label(RPC_STATUS));
    let calls = &metrics::CALL_DURATION;
    let failed =
        format!("sum by ({status}) (rate({}_count{{{CHOSEN},{status}!=\"OK\"}}[$__rate_interval]))", name(calls));
    vec![
        panel(
            "Store",
            "bool_yes_no",
            vec![(gauge(&metrics::STORE_UP), "{{instance}}")],
            "Whether the store answers each replica and its commits succeed.",
        ),
        panel(
            "Calls",
            "reqps",
            vec![(rate_by(calls, "_count", &method), "{{rpc_method}}")],
            "Calls that ended, by their method.",
        ),
        panel(
            "Calls that were refused or failed",
            "reqps",
            vec![(failed, "{{rpc_response_status_code}}")],
            "By the status that their callers were told. Refusals of the rules are among them.",
        ),
        panel(
            "Why",
            "reqps",
            vec![(rate_by(&metrics::REFUSALS, "", "reason"), "{{reason}}")],
            "The same, by the reason.",
        ),
        panel(
            "Time of a call, 99 of 100",
            "s",
            vec![(
                format!(
                    "histogram_quantile(0.99, sum by (le, {method}) (rate({}_bucket{{{CHOSEN},{method}!~\".*/(Watch|Wait|ClaimNext).*|.*Reflection.*\"}}[$__rate_interval])))",
                    name(calls)
                ),
                "{{rpc_method}}",
            )],
            "Without streams and waits, which last as long as they are asked to.",
        ),
        panel(
            "Transitions",
            "ops",
            vec![(rate_by(&metrics::TRANSITIONS, "", "from, to, disposition"), "{{from}} to {{to}}, {{disposition}}")],
            "Commands that were decided: the status of the run before and after.",
        ),
    ]
}

fn commands() -> Vec<Panel> {
    vec![
        panel("Wait in the queue", "s", quantiles(&metrics::QUEUE_WAIT), "Time until a command's commit begins."),
        panel(
            "Oldest command without an answer",
            "s",
            vec![(gauge(&metrics::QUEUE_OLDEST), "{{instance}} shard {{shard}}")],
            "A line that rises without end is a shard that stands still.",
        ),
        panel(
            "Commands without an answer",
            "short",
            vec![(gauge(&metrics::QUEUE_DEPTH), "{{instance}} shard {{shard}}")],
            "Queued, or in the commit that is under way.",
        ),
        panel("Time of a commit", "s", quantiles(&metrics::COMMIT_DURATION), "All ways and outcomes together."),
        panel(
            "Commits",
            "ops",
            vec![(rate_by(&metrics::COMMIT_DURATION, "_count", "path, outcome"), "{{path}}, {{outcome}}")],
            "By the way that they took, and by their outcome.",
        ),
        panel(
            "Commands of a commit",
            "short",
            quantiles(&metrics::BATCH_SIZE),
            "Load makes commits larger before it makes them later.",
        ),
    ]
}

fn store() -> Vec<Panel> {
    vec![
        panel(
            "Commits made again",
            "ops",
            vec![(rate_by(&metrics::COMMIT_RETRIES, "", "reason"), "{{reason}}")],
            "Hints that did not hold, and what the database asked for.",
        ),
        panel(
            "Connections to the database",
            "short",
            vec![
                (gauge(&metrics::POOL_IN_USE), "{{instance}} {{pool}}"),
                (gauge(&metrics::POOL_MAX), "{{instance}} {{pool}} at most"),
            ],
            "In use, and at most.",
        ),
        panel("Wait for a connection", "s", quantiles(&metrics::POOL_WAIT), "All pools together."),
        panel(
            "Questions to the store",
            "ops",
            vec![(format!("{} > 0", rate_by(&metrics::STORE_CALLS, "", "method")), "{{method}}")],
            "By the method of the store.",
        ),
        panel(
            "Size of the database",
            "bytes",
            vec![(format!("max({})", gauge(&metrics::STORE_SIZE)), "bytes")],
            "Looked at once a minute.",
        ),
        panel(
            "Runs, about",
            "short",
            vec![
                (format!("max by (status) ({})", gauge(&metrics::RUNS)), "{{status}}"),
                (format!("max({})", gauge(&metrics::LEASES_HELD)), "leases"),
            ],
            "As the statistics of Postgres have them; none on SQLite.",
        ),
    ]
}

fn watches() -> Vec<Panel> {
    vec![
        panel("Lag of watches", "s", quantiles(&metrics::WATCH_LAG), "Time from a change to the frame that shows it."),
        panel(
            "Frames",
            "ops",
            vec![
                (rate_by(&metrics::WATCH_FRAMES, "", "kind"), "{{kind}}"),
                (rate_by(&metrics::WATCH_RESUMES, "", "of"), "resumed, of {{of}}"),
            ],
            "By their kind; and watches that went on where another one had ended.",
        ),
        panel(
            "Watches",
            "short",
            vec![(gauge(&metrics::WATCHERS), "{{instance}}, of {{of}}")],
            "Of one run, waits among them, and of many.",
        ),
        panel(
            "Lag of what runs by itself",
            "s",
            vec![
                (gauge(&metrics::TAILER_LAG), "{{instance}} tailer"),
                (gauge(&metrics::SWEEP_LAG), "{{instance}} sweep"),
            ],
            "The last look at the log's end, and at leases and deadlines that are over.",
        ),
        panel(
            "Leases",
            "ops",
            vec![
                (rate_by(&metrics::LEASE_RENEWALS, "", "outcome"), "renewals {{outcome}}"),
                (rate_by(&metrics::SWEEP_ENDED, "", "reason"), "ended: {{reason}}"),
                (rate_by(&metrics::PURGED, "", "instance"), "purged {{instance}}"),
                (rate_by(&metrics::CLOCK_STEPS, "", "clock"), "clock set: {{clock}}"),
            ],
            "Renewals, runs that the authority ended, and runs that it purged; and how often a clock was set.",
        ),
        panel(
            "Claims",
            "ops",
            vec![(rate_by(&metrics::CLAIMS, "", "outcome"), "{{outcome}}")],
            "Calls for the next run.",
        ),
    ]
}

fn callers() -> Vec<Panel> {
    vec![
        panel(
            "Connections and open calls",
            "short",
            vec![
                (gauge(&metrics::CONNECTIONS), "{{instance}} connections"),
                (gauge(&metrics::CALLS_IN_FLIGHT), "{{instance}} open calls"),
                (gauge(&metrics::CALLS_EXECUTED), "{{instance}} in execution"),
            ],
            "Watches and waits are open calls, and not in execution.",
        ),
        panel(
            "Callers that were turned away",
            "reqps",
            vec![
                (rate_by(&metrics::AUTH_FAILURES, "", "cause"), "credential: {{cause}}"),
                (rate_by(&metrics::LIMITED, "", "limit"), "limit: {{limit}}"),
                (rate_by(&metrics::CONNECTIONS_REFUSED, "", "instance"), "{{instance}}: TLS"),
            ],
            "For their credential, a limit of theirs, or TLS.",
        ),
        panel(
            "Certificates and keys",
            "s",
            vec![
                (gauge(&metrics::TLS_EXPIRY), "{{instance}} {{certificate}} ends in"),
                (gauge(&metrics::JWKS_AGE), "{{instance}} {{issuer}} read before"),
            ],
            "Time until the certificate ends, and since issuers' keys were read.",
        ),
        panel(
            "Memory",
            "bytes",
            vec![
                (gauge(&metrics::PROCESS_MEMORY), "{{instance}}"),
                (format!("{} > 0", gauge(&metrics::MEMORY_LIMIT)), "{{instance}} limit"),
            ],
            "Resident, and the most that the process may take.",
        ),
        panel(
            "Memory by part",
            "bytes",
            vec![(format!("sum by (part) ({})", gauge(&metrics::MEMORY_PART)), "{{part}}")],
            "Of all chosen replicas together.",
        ),
        panel(
            "Processor and files",
            "short",
            vec![
                (rate_by(&metrics::PROCESS_CPU, "", "instance"), "{{instance}} processors"),
                (
                    format!("{} / {}", gauge(&metrics::PROCESS_FILES), gauge(&metrics::PROCESS_FILES_MAX)),
                    "{{instance}} files, of those it may open",
                ),
                (rate_by(&metrics::LINES_LOST, "", "stream"), "lines lost, of {{stream}}"),
            ],
            "Processors in use, the share of files that are open, and lines that nobody took.",
        ),
    ]
}

/// The page, as Grafana imports it.
#[must_use]
pub fn dashboard() -> Value {
    let datasource = json!({ "type": "prometheus", "uid": "${datasource}" });
    let (mut panels, mut y, mut id) = (Vec::new(), 0, 1);
    for (title, of_row) in rows() {
        panels.push(json!({
            "id": id, "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": { "h": 1, "w": 24, "x": 0, "y": y },
        }));
        (y, id) = (y + 1, id + 1);
        for (place, panel) in of_row.iter().enumerate() {
            let (x, below) = (place % 3 * 8, place / 3 * 8);
            let targets: Vec<_> = panel
                .queries
                .iter()
                .zip('A'..)
                .map(|((query, legend), letter)| {
                    json!({
                        "refId": letter.to_string(), "expr": query, "legendFormat": legend, "datasource": datasource,
                        "range": true,
                    })
                })
                .collect();
            panels.push(json!({
                "id": id, "type": "timeseries", "title": panel.title, "description": panel.meaning,
                "datasource": datasource, "targets": targets,
                "fieldConfig": { "defaults": { "unit": panel.unit, "min": 0 }, "overrides": [] },
                "options": { "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi" } },
                "gridPos": { "h": 8, "w": 8, "x": x, "y": y + below },
            }));
            id += 1;
        }
        y += of_row.len().div_ceil(3) * 8;
    }
    json!({
        "uid": "runledger", "title": "Runledger", "tags": ["runledger"], "schemaVersion": 39, "version": 1,
        "refresh": "30s", "time": { "from": "now-1h", "to": "now" }, "timezone": "browser",
        "templating": { "list": [
            { "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus" },
            {
                "name": "instance", "label": "Replica", "type": "query", "datasource": datasource,
                "query": format!("label_values({}, instance)", name(&metrics::STORE_UP)),
                "includeAll": true, "multi": true, "refresh": 2, "current": { "text": "All", "value": "$__all" },
            },
        ] },
        "panels": panels,
    })
}
