//! The alerts and their runbook: held against the table of metrics, and each known to fire and to be quiet.

use std::collections::HashSet;
use std::process::Command;

use super::dashboard::is_of_the_table;
use crate::support::postgres::variable;

const RULES: &str = include_str!("../../../helm/runledger/files/prometheus-rules.yaml");
const TESTS: &str = include_str!("../../prometheus-rules-test.yaml");

/// The name of each alert, and what it asks of Prometheus. `promtool` holds the rest of the file.
fn alerts() -> Vec<(&'static str, &'static str)> {
    let parts: Vec<_> = RULES.split("- alert: ").skip(1).collect();
    let of = |part: &'static str| {
        let mut lines = part.lines();
        let name = lines.next()?;
        assert_eq!(lines.next()?.trim(), "expr: >-", "{name}");
        Some((name, lines.next()?.trim()))
    };
    let alerts: Vec<_> = parts.iter().filter_map(|part| of(part)).collect();
    assert!(alerts.len() == parts.len() && !alerts.is_empty());
    alerts
}

#[test]
fn every_alert_asks_for_metrics_and_labels_of_the_table() {
    for (name, expression) in alerts() {
        is_of_the_table(name, expression);
    }
}

#[test]
fn every_alert_has_a_paragraph_and_a_test_that_it_fires_and_no_paragraph_is_of_none() {
    let runbook = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/alerts.md")).unwrap();
    let named: HashSet<_> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let in_order: Vec<_> = alerts().into_iter().map(|(name, _)| name).collect();
    let alerts: HashSet<_> = in_order.iter().copied().collect();
    assert_eq!(named, alerts);
    let runbooks = RULES.lines().filter_map(|line| line.trim().strip_prefix("runbook: docs/alerts.md#"));
    let anchors: Vec<_> = in_order.iter().map(|name| name.to_lowercase()).collect();
    assert_eq!(runbooks.collect::<Vec<_>>(), anchors);
    for alert in alerts {
        let paragraph = runbook.split(&format!("## {alert}\n")).nth(1).unwrap();
        let words = paragraph.split("\n## ").next().unwrap().split_whitespace().count();
        assert!(words >= 20, "{alert} has {words} words");
        let of_it =
            TESTS.split("exp_alerts:").filter(|before| before.trim_end().ends_with(&format!("alertname: {alert}")));
        assert!(of_it.count() >= 1, "no test shows that {alert} fires");
    }
}

#[test]
fn promtool_finds_the_rules_right_and_each_fires_and_is_quiet_when_it_should() {
    let Some(promtool) = variable("RUNLEDGER_TEST_PROMTOOL") else {
        panic!("`make test` says where promtool is: RUNLEDGER_TEST_PROMTOOL=\"$(tests/promtool)\"");
    };
    let files = [
        ["check", "rules", "helm/runledger/files/prometheus-rules.yaml"],
        ["test", "rules", "tests/prometheus-rules-test.yaml"],
    ];
    for args in files {
        let ran = Command::new(&promtool).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && said.contains("SUCCESS"), "{said}");
    }
}
