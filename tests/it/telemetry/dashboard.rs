//! The dashboard: held against the table of metrics, and understood by Prometheus.

use std::collections::HashSet;

use promql_parser::label::Matcher;
use promql_parser::parser::{self, Expr, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use runledger::telemetry::metrics::{ALL, Kind, Metric, prometheus_label};
use serde_json::Value;

fn dashboard() -> Value {
    serde_json::from_str(include_str!("../../../helm/runledger/files/grafana-dashboard.json")).unwrap()
}

#[test]
fn every_panel_asks_for_metrics_and_labels_of_the_table_and_every_metric_is_shown() {
    let dashboard = dashboard();
    let mut shown = HashSet::new();
    for panel in dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().unwrap();
        let queries = panel["targets"].as_array().unwrap();
        assert!(!queries.is_empty(), "{title} asks for nothing");
        for query in queries {
            // What Grafana fills in.
            let query = query["expr"].as_str().unwrap().replace("$__rate_interval", "5m").replace("$instance", ".+");
            shown.extend(is_of_the_table(title, &query));
        }
    }
    let replicas = dashboard["templating"]["list"][1]["query"].as_str().unwrap();
    let chosen_of = replicas.strip_prefix("label_values(").unwrap().strip_suffix(", instance)").unwrap();
    is_of_the_table("the choice of replicas", chosen_of);
    // Told for people, or the sums of what is shown.
    let left_out = [
        "runledger_build_info",
        "process_uptime_seconds",
        "runledger_sweep_duration_seconds",
        "runledger_claim_wait_seconds",
        "runledger_rpc_request_bytes",
        "runledger_rpc_unsent_bytes",
        "runledger_queue_bytes",
        "runledger_ring_bytes",
        "runledger_reloads_total",
    ];
    let missing: Vec<_> =
        ALL.iter().map(|metric| metric.prometheus_name()).filter(|name| !shown.contains(name)).collect();
    assert_eq!(missing.iter().map(String::as_str).collect::<HashSet<_>>(), HashSet::from(left_out));
}

#[test]
fn every_panel_has_an_id_of_its_own_and_asks_the_chosen_source_about_the_chosen_replicas() {
    const CHOSEN: &str = r#"{instance=~"$instance""#;
    let source = serde_json::json!({ "type": "prometheus", "uid": "${datasource}" });
    let dashboard = dashboard();
    assert_eq!(dashboard["templating"]["list"][0]["name"], "datasource");
    assert_eq!(dashboard["templating"]["list"][1]["name"], "instance");
    assert_eq!(dashboard["templating"]["list"][1]["datasource"], source);
    let mut ids = HashSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = &panel["title"];
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title} has the id of another panel");
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"], source, "{title}");
        let mut names = HashSet::new();
        for query in panel["targets"].as_array().unwrap() {
            assert!(names.insert(query["refId"].as_str().unwrap()), "{title}: two queries of one refId");
            assert_eq!(query["datasource"], source, "{title}");
            let expression = query["expr"].as_str().unwrap();
            let asked = Asked::of(&expression.replace("$__rate_interval", "5m")).unwrap();
            assert_eq!(expression.matches(CHOSEN).count(), asked.metrics.len(), "{title}: {expression}");
        }
    }
}

#[test]
fn no_two_panels_overlap() {
    let dashboard = dashboard();
    let mut taken = HashSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && taken.insert((x, y)), "{} overlaps another one at {x}, {y}", panel["title"]);
            }
        }
    }
}

/// What Prometheus itself tells of each instance that it asks.
const OF_PROMETHEUS: &str = "up";

/// Holds an expression against the table: every metric that it names has a row, and every label is one of that row's.
/// Returns the names of the metrics.
pub(super) fn is_of_the_table(place: &str, expression: &str) -> HashSet<String> {
    let mut asked = Asked::of(expression).unwrap_or_else(|error| panic!("{place}: {error}: {expression}"));
    assert!(!asked.metrics.is_empty(), "{place}: {expression}");
    asked.metrics.retain(|(name, _)| name != OF_PROMETHEUS);
    let mut labels: HashSet<String> = ["instance", "job", "le"].map(str::to_owned).into();
    for (name, matched) in &asked.metrics {
        let metric = row(name).unwrap_or_else(|| panic!("{place}: {name} is no metric: {expression}"));
        let own: HashSet<_> = metric.labels.iter().map(|label| prometheus_label(label)).collect();
        for label in matched.iter().filter(|label| *label != "instance") {
            assert!(own.contains(label), "{place}: {name} has no label {label}");
        }
        labels.extend(own);
    }
    for label in asked.grouped {
        assert!(labels.contains(&label), "{place}: no label {label}: {expression}");
    }
    asked.metrics.iter().map(|(name, _)| row(name).expect("found above").prometheus_name()).collect()
}

/// The row of a name as Prometheus has it, also of a histogram's parts.
fn row(name: &str) -> Option<&'static Metric> {
    ALL.iter().copied().find(|metric| {
        let own = metric.prometheus_name();
        match metric.kind {
            Kind::Histogram(_) => ["_bucket", "_count", "_sum"].iter().any(|part| name == format!("{own}{part}")),
            Kind::Counter | Kind::Gauge => name == own,
        }
    })
}

/// What an expression asks for.
#[derive(Default)]
struct Asked {
    metrics: Vec<(String, Vec<String>)>,
    grouped: Vec<String>,
}

impl Asked {
    fn of(expression: &str) -> Result<Self, String> {
        let mut asked = Self::default();
        walk_expr(&mut asked, &parser::parse(expression)?).unwrap();
        Ok(asked)
    }
}

impl ExprVisitor for Asked {
    type Error = std::convert::Infallible;

    fn pre_visit(&mut self, plan: &Expr) -> Result<bool, Self::Error> {
        let alone: Option<&VectorSelector> =
            if let Expr::VectorSelector(selector) = plan { Some(selector) } else { None };
        let over_time = if let Expr::MatrixSelector(matrix) = plan { Some(&matrix.vs) } else { None };
        if let Some(selector) = alone.or(over_time) {
            let matched = selector.matchers.matchers.iter().map(|Matcher { name, .. }| name.clone()).collect();
            self.metrics.push((selector.name.clone().unwrap_or_default(), matched));
        }
        if let Expr::Aggregate(aggregate) = plan
            && let Some(parser::LabelModifier::Include(labels)) = &aggregate.modifier
        {
            self.grouped.extend(labels.labels.iter().cloned());
        }
        Ok(true)
    }
}
