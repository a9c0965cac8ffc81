//! Exports by time from a ledger whose clock was set once: times fall in its shards.

use std::collections::BTreeSet;

use serde_json::Value;

use super::export::{exported, places};
use super::ledger::Ledger;
use super::on_both_stores;
use crate::process::data::Data;

on_both_stores! {
    an_export_by_time_holds_what_came_after_an_event_of_a_wrong_clock
}

fn at(line: &Value) -> &str {
    line["at"].as_str().unwrap()
}

/// The run's events bear times 400 days from now, and the row of `uptime` says that a step was noticed.
async fn was_ahead(ledger: &Ledger, run_id: &str) {
    let (later, noticed) = match &ledger.data {
        Data::Sqlite(_) => ("at + 34560000000000", "1"),
        Data::Postgres(_) => ("at + interval '400 days'", "interval '1 microsecond'"),
    };
    ledger.data.sql(&format!("update run_events set at = {later} where run_id = '{run_id}'")).await;
    ledger.data.sql(&format!("update uptime set steady_ahead = {noticed}")).await;
}

async fn an_export_by_time_holds_what_came_after_an_event_of_a_wrong_clock(ledger: Ledger) {
    ledger.fill().await;
    let before = exported(&ledger, &[]).await;
    for run_id in ["long", "linked"] {
        was_ahead(&ledger, run_id).await;
    }
    let all = exported(&ledger, &[]).await;
    assert_eq!(all.len(), before.len());
    let middle = at(&before[before.len() / 2]).to_owned();
    let tomorrow = "2500-01-01";
    for (since, until) in [(None, Some(&*middle)), (Some(&*middle), None), (Some("2026-01-01"), Some(&*middle))]
        .into_iter()
        .chain([(Some(&*middle), Some(tomorrow))])
    {
        let wanted =
            |line: &&Value| since.is_none_or(|since| at(line) >= since) && until.is_none_or(|until| at(line) < until);
        let wanted: Vec<Value> = all.iter().filter(wanted).cloned().collect();
        let mut args = Vec::new();
        since.inspect(|since| args.extend(["--since", since]));
        until.inspect(|until| args.extend(["--until", until]));
        let found = exported(&ledger, &args).await;
        assert_eq!(
            places(&found).into_iter().collect::<BTreeSet<_>>(),
            places(&wanted).into_iter().collect(),
            "{args:?}"
        );
        let (code, said) = ledger.run(&[&["export"], &args[..]].concat()).await;
        assert!(code == 0 && said.contains("the store's clock was set once: the whole log is read"), "{said}");
    }
    let session = exported(&ledger, &["--audit-session", "audit-1"]).await;
    let wanted = places(&all).into_iter().filter(|(run_id, _)| run_id == "linked").collect::<BTreeSet<_>>();
    assert_eq!(places(&session).into_iter().collect::<BTreeSet<_>>(), wanted, "a session is shown whole");
}
