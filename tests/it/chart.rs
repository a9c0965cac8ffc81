//! The Helm chart speaks of this release: each of its settings, its alerts and its dashboard. `make test-deploy` holds
//! the rest of the chart, with Helm.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use runledger::config::file;
use serde_json::Value;

use crate::layering::{files_of, packages};

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
fn a_route_leads_to_every_service_of_the_port() {
    let values = fs::read_to_string(format!("{CHART}/values.yaml")).unwrap();
    let routed = values.lines().filter_map(|line| line.trim().strip_prefix("- method: { service: "));
    let routed: BTreeSet<String> = routed.map(|line| line.trim_end_matches(" }").to_owned()).collect();
    let mut served: BTreeSet<String> = BTreeSet::new();
    for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/proto/runledger/v1")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let names =
            text.lines().filter_map(|line| line.strip_prefix("service ")?.strip_suffix(" {").map(str::to_owned));
        served.extend(names.map(|name| format!("runledger.v1.{name}")));
    }
    assert!(served.len() >= 4, "{served:?}");
    let of_grpc = ["health.v1.Health", "reflection.v1.ServerReflection", "reflection.v1alpha.ServerReflection"];
    served.extend(of_grpc.map(|name| format!("grpc.{name}")));
    assert_eq!(routed, served, "grpcRoute.matches in helm/runledger/values.yaml");
}

#[test]
fn alerts_and_dashboard_of_the_chart_are_those_of_the_server() {
    for (what, file) in [("rules", "prometheus-rules.yaml"), ("dashboard", "grafana-dashboard.json")] {
        let printed = Command::new(env!("CARGO_BIN_EXE_runledger")).args(["monitoring", what]).output().unwrap();
        assert!(printed.status.success() && printed.stdout == fs::read(format!("{CHART}/files/{file}")).unwrap());
    }
}

/// An image is built of what `.dockerignore` lets in.
#[test]
fn whatever_the_program_includes_is_let_into_the_image() {
    let root = fs::canonicalize(env!("CARGO_MANIFEST_DIR")).unwrap();
    let listed = fs::read_to_string(root.join(".dockerignore")).unwrap();
    let let_in: Vec<&str> = listed.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let mut included = 0;
    let files = packages().into_iter().flat_map(|folder| {
        files_of(&folder).into_iter().map(move |(path, source)| (Path::new(&folder).join(path), source))
    });
    let files = files.filter(|(path, _)| path.iter().all(|part| part != "tests" && part != "tests.rs"));
    for (path, source) in files {
        let code = source.split("#[cfg(test)]\nmod ").next().unwrap();
        let words = ["include_str!(\"", "include_bytes!(\""];
        for place in words.iter().flat_map(|word| code.split(word).skip(1)) {
            let place = place.split('"').next().unwrap();
            let file = root.join(&path).parent().unwrap().join(place);
            let file = fs::canonicalize(file).unwrap().strip_prefix(&root).unwrap().to_owned();
            assert!(let_in.iter().any(|folder| file.starts_with(folder)), "{} is not in .dockerignore", file.display());
            included += 1;
        }
    }
    assert!(included >= 12, "{included}");
}
