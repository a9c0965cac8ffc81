//! Ledgers of which something was taken out: it is nowhere, they are sound, and a redaction that is killed took out all or
//! nothing.

use runledger::domain::{Ask, Command};
use runledger_proto::v1::RedactRunRequest;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::ledger::Ledger;
use super::on_both_stores;
use crate::process::data::Data;
use crate::process::server::{SOON, Server, eventually, run};
use crate::support::commands::{
    Asking as _, claim, complete, fail, given, leased, left, resume, start, suspend, update,
};
use crate::support::lifecycles::Standing as _;

on_both_stores! {
    what_was_redacted_is_in_no_table_and_no_file_and_no_export
    a_redaction_that_is_killed_takes_out_all_or_nothing
    a_ledger_is_sound_while_redactions_are_under_way
}

/// Found in no other text.
const SECRET: &str = "hunter2-battery-staple";

/// Found under keys alone that are masked.
const MASKED: &str = "correct-horse-is-masked";

/// The rows of each table that show a secret.
async fn shown(ledger: &Ledger, secret: &str) -> u64 {
    let mut rows_of_all = 0;
    for (table, columns) in [
        ("runs", &["record", "metadata", "labels", "task_thread_id"][..]),
        ("run_events", &["event", "keyframe", "request_id"]),
        ("leases", &["progress_message"]),
        ("claims", &["request_id"]),
        ("run_input", &["content"]),
        ("run_results", &["content"]),
        ("run_links", &["content"]),
        ("lifecycles", &["source", "declaration", "principal"]),
        ("suspended", &["kind"]),
    ] {
        let text = match ledger.data {
            Data::Sqlite(_) => "text",
            Data::Postgres(_) => "varchar",
        };
        let shows: Vec<_> =
            columns.iter().map(|column| format!("cast({column} as {text}) like '%{secret}%'")).collect();
        let statement = format!("select count(*) from {table} where {}", shows.join(" or "));
        let rows = ledger.data.sql(&statement).await;
        rows_of_all += rows[0][0].as_ref().unwrap().parse::<u64>().unwrap();
    }
    rows_of_all
}

/// Suspensions with a secret in what they say and in how they were left: one that the run went on from, one that was
/// replaced, and one from which it is ready to go on.
fn waiting(run_id: &str) -> Vec<Command> {
    let suspended = |secret: String| {
        let mut command = suspend(run_id, "HELP", &secret);
        if let Ask::Suspend(suspend) = &mut command.ask {
            suspend.terms.resume_hint = Some(format!("{secret}, as {SECRET}"));
        }
        command
    };
    let resumed = || {
        let mut command = resume(run_id);
        if let Ask::Resume(resume) = &mut command.ask {
            resume.reason = Some(format!("{SECRET} it is"));
        }
        command
    };
    let first = vec![leased(run_id), suspended(format!("{SECRET}?")), resumed(), claim(run_id)];
    let second = vec![suspended(format!("{SECRET}-2?")), suspended(format!("{SECRET}-3?")), resumed()];
    [first, second].concat()
}

/// The secret is in no page of an SQLite file, nor in its log, within a while.
async fn is_in_no_file(ledger: &Ledger, secret: &str) {
    let Data::Sqlite(path) = &ledger.data else { return };
    let shows = |file: &std::path::Path| {
        let bytes = std::fs::read(file).unwrap_or_default();
        bytes.windows(secret.len()).any(|part| part == secret.as_bytes())
    };
    let files = [path.clone(), path.with_extension("db-wal")];
    let gone = eventually(SOON, async || (!files.iter().any(|file| shows(file))).then_some(())).await;
    assert!(gone.is_some(), "old pages still show it");
}

async fn is_sound(ledger: &Ledger) {
    let (code, said) = ledger.run(&["verify"]).await;
    assert_eq!(code, 0, "{said}");
}

async fn what_was_redacted_is_in_no_table_and_no_file_and_no_export(ledger: Ledger) {
    // Rows before, between and after: pages of the file are split and merged, and large values have pages of their own.
    let filler =
        |name: &str, nth: u32| start(&format!("{name}-{nth}")).metadata(&json!({"n": nth, "x": "y".repeat(600)}));
    // Many of them in no order: where pages are split, their old places keep some.
    let spoilt = |nth: u32| {
        start(&format!("run-{}", nth.wrapping_mul(2_654_435_761)))
            .metadata(&json!({"key": format!("{SECRET}-{nth}"), "x": "y".repeat(700)}))
    };
    let mut commands: Vec<_> = (0..300).map(spoilt).collect();
    commands.extend((0..40).map(|nth| filler("before", nth)));
    commands.push(start("spoilt").metadata(&json!({"key": SECRET, "large": "z".repeat(9_000)})).request("first"));
    for nth in 0..70 {
        commands.push(update("spoilt").metadata(&json!({"key": format!("{SECRET}-{nth}"), "nth": nth})));
        commands.push(filler("between", nth));
    }
    commands.push(update("spoilt").metadata(&json!({"large": {"copy": format!("{SECRET}{}", "w".repeat(9_000))}})));
    commands.push(given("beside", &json!({"password": SECRET, "large": "z".repeat(9_000)}), "spoilt"));
    for nth in 0..30 {
        let target = format!("https://example.org/{nth}?key={SECRET}");
        commands.push(left(
            "beside",
            &json!({"token": format!("{SECRET}-{nth}"), "x": "y".repeat(700)}),
            &[("url", &target)],
        ));
    }
    // A lifecycle masks one of two keys; the other one is taken out.
    ledger.put("name: masking\nphases: {any: {initial: true}}\nredact_keys: ['*password*']\n").await;
    let both = json!({"Password": MASKED, "deep": [{"db_password": MASKED}], "note": SECRET});
    commands.push(start("masked").with("masking").metadata(&both).input(&both));
    commands
        .push(update("masked").metadata(&json!({"password_2": MASKED, "note": format!("{SECRET}-2")})).result(&both));
    commands.extend(waiting("waits"));
    commands.push(fail("spoilt").changing(|fields| fields.failure_reason = Some(format!("{SECRET} was refused"))));
    commands.extend((0..40).map(|nth| filler("after", nth)));
    commands.extend((0..40).map(|nth| complete(&format!("before-{nth}"))));
    ledger.commit(commands).await;
    assert!(shown(&ledger, SECRET).await > 70);
    assert_eq!(shown(&ledger, MASKED).await, 0);
    is_in_no_file(&ledger, MASKED).await;
    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let address = server.address.to_string();
    let flags = ["run", "redact", "spoilt", "--server", &address, "--path", "/metadata/key", "--path", "/reason"];
    let (code, said) = run(&[&flags[..], &["--path", "/metadata/large", "--reason", "a password"]].concat()).await;
    assert_eq!(code, 0, "{said}");
    let flags = ["run", "redact", "beside", "--server", &address, "--path", "/input", "--path", "/result"];
    let (code, said) = run(&[&flags[..], &["--path", "/links"]].concat()).await;
    assert_eq!(code, 0, "{said}");
    let flags = ["run", "redact", "masked", "--server", &address, "--path", "/metadata/note", "--path", "/input"];
    let (code, said) = run(&[&flags[..], &["--path", "/result"]].concat()).await;
    assert_eq!(code, 0, "{said}");
    let (code, said) = run(&["run", "redact", "waits", "--server", &address, "--path", "/reason"]).await;
    assert_eq!(code, 0, "{said}");
    let mut client = server.client();
    for nth in 0..300_u32 {
        let asked = RedactRunRequest {
            run_id: format!("run-{}", nth.wrapping_mul(2_654_435_761)),
            paths: vec!["/metadata/key".to_owned()],
            ..RedactRunRequest::default()
        };
        client.redact_run(asked).await.unwrap();
    }
    assert_eq!(shown(&ledger, SECRET).await, 0);
    is_sound(&ledger).await;
    let (code, exported) = ledger.run(&["export"]).await;
    assert!(code == 0 && exported.contains("\"redacted\"") && !exported.contains(SECRET), "{code}");
    assert!(!exported.contains(MASKED), "{exported}");
    // The server still runs, and has written the file anew.
    is_in_no_file(&ledger, SECRET).await;
    drop(server);
    is_sound(&ledger).await;
}

async fn a_ledger_is_sound_while_redactions_are_under_way(ledger: Ledger) {
    const RUNS: u32 = 150;
    let id = |nth: u32| format!("run-{nth}");
    let mut commands = Vec::new();
    for nth in 0..RUNS {
        commands.push(given(&id(nth), &json!({ "password": SECRET }), "parent"));
        for step in 0..4 {
            let target = format!("https://example.org/{step}?key={SECRET}");
            commands.push(left(&id(nth), &json!({ "token": SECRET, "step": step }), &[("url", &target)]));
        }
    }
    ledger.commit(commands).await;
    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let mut client = server.client();
    let mut redacting = JoinSet::new();
    redacting.spawn(async move {
        for nth in 0..RUNS {
            let paths = ["/input", "/result", "/links"].map(str::to_owned).to_vec();
            let asked = RedactRunRequest { run_id: id(nth), paths, ..RedactRunRequest::default() };
            client.redact_run(asked).await.unwrap();
        }
    });
    is_sound(&ledger).await;
    let mut done = None;
    while done.is_none() {
        is_sound(&ledger).await;
        done = redacting.try_join_next();
    }
    done.unwrap().unwrap();
    is_sound(&ledger).await;
    assert_eq!(shown(&ledger, SECRET).await, 0);
}

async fn a_redaction_that_is_killed_takes_out_all_or_nothing(ledger: Ledger) {
    const EVENTS: usize = 600;
    let mut commands = Vec::new();
    for (run_id, secret) in [("measured", "none"), ("spoilt", SECRET)] {
        commands.push(start(run_id).metadata(&json!({"key": secret})));
        let updated = |nth| update(run_id).metadata(&json!({"key": format!("{secret}-{nth}")}));
        commands.extend((1..EVENTS).map(updated));
    }
    ledger.commit(commands).await;
    let asked = |run_id: &str| RedactRunRequest {
        run_id: run_id.to_owned(),
        paths: vec!["/metadata/key".to_owned()],
        ..RedactRunRequest::default()
    };
    let restarted = async || {
        let server = Server::start(&ledger.store()).await;
        server.is_ready().await;
        let client = server.client();
        (server, client)
    };
    // The redaction of a run that is as long says at which moments this one is under way.
    let (server, mut client) = restarted().await;
    let begun = Instant::now();
    client.redact_run(asked("measured")).await.unwrap();
    let quarter = begun.elapsed() / 4;
    drop(server);
    let (mut nothing, mut all) = (0, 0);
    for quarters in [0_u32, 1, 2, 3, 4, 6, 9, 16, 40, 400] {
        let (mut server, mut client) = restarted().await;
        tokio::select! {
            answer = client.redact_run(asked("spoilt")) => drop(answer.unwrap()),
            () = sleep(quarters * quarter) => {}
        }
        server.process.kill();
        drop(server);
        // The database may still be at the commit whose server is gone, and come to its end between two looks.
        let count = eventually(SOON, async || {
            let left = shown(&ledger, SECRET).await;
            let redacted = "select count(*) from run_events
                            where run_id = 'spoilt' and cast(event as varchar) like '%\"redacted\"%'";
            let redacted = ledger.data.sql(redacted).await[0][0].clone().unwrap();
            ((left == 0 || left > EVENTS as u64) && (redacted == "0") == (left > 0)).then_some(left)
        });
        let left = count.await.expect("all or nothing, as the events say");
        is_sound(&ledger).await;
        if left == 0 {
            all += 1;
            // Whoever serves next takes away what the one that was killed has left in old pages.
            let next = Server::start(&ledger.store()).await;
            next.is_ready().await;
            is_in_no_file(&ledger, SECRET).await;
            break;
        }
        nothing += 1;
    }
    assert!(nothing > 0 && all > 0, "{nothing} times it was killed before, {all} times it was made");
}
