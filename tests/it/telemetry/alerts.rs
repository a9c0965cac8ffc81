//! The alerts and their runbook: made of the table of metrics, and each known to fire and to be quiet.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use runledger::telemetry::alerts::{Alert, all, rules};

use super::dashboard::is_of_the_table;
use crate::support::postgres::variable;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/monitoring");

#[test]
fn the_rules_that_are_kept_are_those_that_are_made() {
    let kept = std::fs::read_to_string(format!("{FOLDER}/prometheus-rules.yaml")).unwrap();
    assert!(kept == rules(), "runledger monitoring rules > monitoring/prometheus-rules.yaml");
}

#[test]
fn every_alert_asks_for_metrics_and_labels_of_the_table() {
    for Alert { name, expression, .. } in all() {
        is_of_the_table(name, &expression);
    }
}

#[test]
fn every_alert_has_a_paragraph_and_a_test_that_it_fires_and_no_paragraph_is_of_none() {
    let runbook = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/alerts.md")).unwrap();
    let tests = std::fs::read_to_string(format!("{FOLDER}/prometheus-rules-test.yaml")).unwrap();
    let named: HashSet<_> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let alerts: HashSet<_> = all().into_iter().map(|alert| alert.name).collect();
    assert_eq!(named, alerts);
    for alert in alerts {
        let paragraph = runbook.split(&format!("## {alert}\n")).nth(1).unwrap();
        let words = paragraph.split("\n## ").next().unwrap().split_whitespace().count();
        assert!(words >= 20, "{alert} has {words} words");
        let of_it =
            tests.split("exp_alerts:").filter(|before| before.trim_end().ends_with(&format!("alertname: {alert}")));
        assert!(of_it.count() >= 1, "no test shows that {alert} fires");
    }
}

#[test]
fn promtool_finds_the_rules_right_and_each_fires_and_is_quiet_when_it_should() {
    let Some(promtool) = variable("RUNLEDGER_TEST_PROMTOOL") else {
        panic!("`make test` says where promtool is: RUNLEDGER_TEST_PROMTOOL=\"$(tests/promtool)\"");
    };
    for args in [["check", "rules", "prometheus-rules.yaml"], ["test", "rules", "prometheus-rules-test.yaml"]] {
        let ran = Command::new(&promtool).args(args).current_dir(Path::new(FOLDER)).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && said.contains("SUCCESS"), "{said}");
    }
}
