//! The Helm chart speaks of this release: each of its settings, its alerts and its dashboard. `make test-deploy` holds
//! the rest of the chart, with Helm.

use std::collections::BTreeSet;
use std::fs;

use runledger::config::file;
use serde_json::Value;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/helm/runledger");

/// Settings that the chart derives from its own values: nobody may set them beside those.
const OF_THE_CHART: [&str; 12] = [
    "access_file",
    "admin_listen",
    "insecure",
    "listen",
    "migrate",
    "store",
    "store_file",
    "tls_cert",
    "tls_client_auth",
    "tls_client_ca",
    "tls_client_crl",
    "tls_key",
];

#[test]
fn every_setting_of_the_server_can_be_set_or_is_the_charts_own() {
    let schema = fs::read_to_string(format!("{CHART}/values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let settings = &schema["properties"]["settings"];
    assert_eq!(settings["additionalProperties"], false, "a setting that is misspelt is refused by Helm");
    let offered = settings["properties"].as_object().unwrap().keys().map(String::as_str);
    let taken: BTreeSet<String> = file::settings().iter().map(file::key).collect();
    let spoken_of: Vec<String> = offered.chain(OF_THE_CHART).map(str::to_owned).collect();
    assert_eq!(spoken_of.iter().cloned().collect::<BTreeSet<_>>(), taken);
    assert_eq!(spoken_of.len(), taken.len(), "a setting is offered and derived: {spoken_of:?}");
}

#[test]
fn alerts_and_dashboard_of_the_chart_are_those_of_the_server() {
    for file in ["prometheus-rules.yaml", "grafana-dashboard.json"] {
        let kept = fs::read_to_string(format!("{}/monitoring/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let in_the_chart = fs::read_to_string(format!("{CHART}/files/{file}")).unwrap();
        assert!(kept == in_the_chart, "cp monitoring/{file} helm/runledger/files/");
    }
}
