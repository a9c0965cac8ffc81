//! Ledgers whose runs were purged: sound, unless something else is missing; and purges that are killed.

use serde_json::Value;

use super::ledger::Ledger;
use super::on_both_stores;
use crate::process::server::{Process, SOON, Server, eventually};

on_both_stores! {
    a_ledger_with_purged_runs_is_sound_and_one_that_lacks_more_is_not
    a_purge_that_is_killed_leaves_whole_runs_and_goes_on
    a_preview_says_what_a_run_purges
}

/// A retention that is over at once, which no call may set.
async fn keeps_nothing(ledger: &Ledger) {
    let keep = "update namespaces set keep_completed_ms = 1, keep_aborted_ms = 1, keep_failed_ms = 1";
    ledger.data.sql(keep).await;
}

async fn number(ledger: &Ledger, statement: &str) -> u64 {
    ledger.data.sql(statement).await[0][0].as_ref().unwrap().parse().unwrap()
}

async fn is_sound(ledger: &Ledger) {
    let (code, said) = ledger.run(&["verify"]).await;
    assert_eq!(code, 0, "{said}");
}

/// What `retention` says: the runs and the events of each walk.
fn found(said: &str) -> (u64, u64) {
    let lines = said.lines().filter(|line| line.starts_with('{'));
    let each = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    each.fold((0, 0), |(runs, events), of| {
        (runs + of["runs"].as_u64().unwrap(), events + of["events"].as_u64().unwrap())
    })
}

async fn a_ledger_with_purged_runs_is_sound_and_one_that_lacks_more_is_not(ledger: Ledger) {
    ledger.fill().await;
    keeps_nothing(&ledger).await;
    let (code, said) = ledger.run(&["retention", "run"]).await;
    assert_eq!(code, 0, "{said}");
    let gone = number(&ledger, "select count(*) from runs where purged_at is not null").await;
    assert!(gone > 0, "{said}");
    assert_eq!(
        number(
            &ledger,
            "select count(*) from run_events e join runs r on r.run_id = e.run_id where r.purged_at is not null"
        )
        .await,
        0
    );
    is_sound(&ledger).await;
    let (code, said) = ledger.run(&["export"]).await;
    assert_eq!(code, 0, "{said}");
    // Served, and looked at again.
    Server::start(&ledger.store()).await.is_ready().await;
    is_sound(&ledger).await;
    for (damage, wanted) in [
        ("delete from run_events where run_id = 'running'", "run_events default/running: revision"),
        (
            "delete from runs where run_id = (select min(run_id) from runs where purged_at is not null)",
            "position: expected ",
        ),
    ] {
        ledger.data.sql(damage).await;
        let (code, said) = ledger.run(&["verify"]).await;
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("NOT SOUND") && said.contains(wanted), "{wanted}: {said}");
    }
}

async fn a_preview_says_what_a_run_purges(ledger: Ledger) {
    let (code, said) = ledger.run(&["bench", "fill", "700"]).await;
    assert_eq!(code, 0, "{said}");
    keeps_nothing(&ledger).await;
    let (code, preview) = ledger.run(&["retention", "preview", "--output", "json"]).await;
    assert_eq!(code, 0, "{preview}");
    let (runs, events) = found(&preview);
    let before = number(&ledger, "select count(*) from run_events").await;
    assert!((650..=700).contains(&runs), "all but those of the shards' newest events: {preview}");
    let (code, purged) = ledger.run(&["retention", "run", "--output", "json"]).await;
    assert_eq!((code, found(&purged)), (0, (runs, events)), "{purged}");
    assert_eq!(number(&ledger, "select count(*) from run_events").await, before - events);
    let (code, again) = ledger.run(&["retention", "run", "--output", "json"]).await;
    assert_eq!((code, found(&again)), (0, (0, 0)), "{again}");
    let (code, said) = ledger.run(&["retention", "run", "--only", "nobody"]).await;
    assert!(code == 2 && said.contains("--only nobody"), "{code}: {said}");
    is_sound(&ledger).await;
}

async fn a_purge_that_is_killed_leaves_whole_runs_and_goes_on(ledger: Ledger) {
    let (code, said) = ledger.run(&["bench", "fill", "6000"]).await;
    assert_eq!(code, 0, "{said}");
    keeps_nothing(&ledger).await;
    let left = async || number(&ledger, "select count(*) from runs where purged_at is null").await;
    let mut killed = 0;
    let mut last = left().await;
    while last > 1_000 {
        let mut purge = Process::spawn(&["retention", "run", "--store", &ledger.store()]);
        let begun = eventually(SOON, async || Some(left().await).filter(|now| *now < last)).await;
        purge.kill();
        begun.expect("it purges");
        last = left().await;
        killed += u32::from(last > 1_000);
        is_sound(&ledger).await;
    }
    let mut purge = Process::spawn(&["retention", "run", "--store", &ledger.store()]);
    let (code, said) = purge.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    assert!(left().await < 20, "what is due does not stay");
    is_sound(&ledger).await;
    assert!(killed > 0, "a purge was killed in its middle");
}
