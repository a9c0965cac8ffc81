//! Ledgers whose runs were purged: sound, unless something else is missing; and purges that are killed.

use serde_json::Value;

use super::ledger::Ledger;
use super::on_both_stores;
use crate::process::server::{Process, SOON, Server, eventually};
use crate::support::commands::{Asking as _, archive, complete, restore, start};

on_both_stores! {
    a_ledger_with_purged_runs_is_sound_and_one_that_lacks_more_is_not
    a_purge_that_is_killed_leaves_whole_runs_and_goes_on
    a_preview_says_what_a_run_purges
    an_export_of_a_part_finds_all_that_is_left
    events_after_an_end_are_exported_with_their_links
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
        (
            "insert into run_input (shard, namespace, run_id, revision, content)
             select shard, namespace, run_id, 1, '{}' from runs where purged_at is not null order by run_id limit 1",
            "revision 1: row: expected none: no event says so, found one",
        ),
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
    ledger.ended(700).await;
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
    ledger.ended(3_500).await;
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

/// What was purged between two events hides neither from an export of a time, a thread or a session.
async fn an_export_of_a_part_finds_all_that_is_left(ledger: Ledger) {
    let of = |name: &str| {
        start(name).thread("own").changing(|changes| changes.audit_session_id = Some("session".to_owned()))
    };
    let mut commands = vec![of("first")];
    for nth in 0..12 {
        let id = format!("gone-{nth}");
        commands.extend([start(&id), complete(&id)]);
    }
    commands.extend([of("last"), complete("last"), archive("last"), restore("last")]);
    // Every shard has an event that stays.
    commands.extend((0..12).map(|nth| start(&format!("open-{nth}"))));
    ledger.commit(commands).await;
    let lines = async |args: &[&str]| {
        let (code, said) = ledger.run(&[&["export"], args].concat()).await;
        assert_eq!(code, 0, "{said}");
        let lines = said.lines().filter(|line| line.starts_with('{'));
        lines.map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    ledger.data.sql("update namespaces set keep_completed_ms = 1").await;
    let (code, said) = ledger.run(&["retention", "run"]).await;
    assert_eq!(code, 0, "{said}");
    let left = number(&ledger, "select count(*) from run_events").await;
    assert!((13..20).contains(&left), "{left}");
    let all = lines(&[]).await;
    let (gaps, all): (Vec<Value>, Vec<Value>) = all.into_iter().partition(|line| line["type"] == "purged");
    assert_eq!(all.len() as u64, left);
    // What is gone is told in its place: with what is there, it makes up the whole log.
    let gone: u64 = gaps.iter().map(|line| line["events"].as_u64().unwrap()).sum();
    let ends = "select sum(last) from (select max(position) as last from run_events group by shard) as ends";
    assert_eq!(left + gone, number(&ledger, ends).await, "{gaps:?}");
    let whole = |lines: Vec<Value>| lines.into_iter().filter(|line| line["type"] != "purged").collect::<Vec<_>>();
    assert_eq!(whole(lines(&["--since", "1h"]).await), all);
    assert_eq!(lines(&["--namespace", "default"]).await, all, "whose events are gone is not known");
    assert_eq!(lines(&["--until", "1h"]).await, Vec::<Value>::new());
    let of_the_thread: Vec<Value> = all.iter().filter(|line| line["taskThreadId"] == "own").cloned().collect();
    assert!(of_the_thread.iter().any(|line| line["runId"] == "first"), "{of_the_thread:?}");
    assert_eq!(lines(&["--task-thread", "own"]).await, of_the_thread);
    assert_eq!(lines(&["--audit-session", "session"]).await, of_the_thread);
    let (code, said) = ledger.run(&["export", "--run", "gone-3"]).await;
    assert!(code == 1 && said.contains("it was purged: gone-3"), "{code}: {said}");
    // A file that ends with lines of what is gone is gone on with.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.jsonl");
    std::fs::write(&file, format!("{}\n", gaps[0])).unwrap();
    let mut follow =
        Process::spawn(&["export", "--follow", "--store", &ledger.store(), "--output", file.to_str().unwrap()]);
    let caught_up = eventually(SOON, async || {
        let text = std::fs::read_to_string(&file).unwrap();
        Some(text).filter(|text| text.lines().count() >= 1 + gaps.len() + all.len() && text.ends_with('\n'))
    });
    let text = caught_up.await.expect("it goes on");
    assert_eq!(text.lines().count(), 1 + gaps.len() + all.len(), "{text}");
    follow.signal("INT");
    assert_eq!(follow.exited(SOON).await.0, 0);
}

/// What follows the end of a run has the run's links as well.
async fn events_after_an_end_are_exported_with_their_links(ledger: Ledger) {
    let first = start("run").thread("own").changing(|changes| changes.audit_session_id = Some("session".to_owned()));
    ledger.commit(vec![first, complete("run"), archive("run"), restore("run")]).await;
    for args in [&["export"][..], &["export", "--task-thread", "own"], &["export", "--audit-session", "session"]] {
        let (code, said) = ledger.run(args).await;
        assert_eq!(code, 0, "{said}");
        let lines = said.lines().filter(|line| line.starts_with('{'));
        let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4, "{args:?}: {said}");
        assert!(
            lines.iter().all(|line| line["taskThreadId"] == "own" && line["auditSessionId"] == "session"),
            "{said}"
        );
    }
}
