//! The log as JSON lines: all of it, in one order, with the links of the time.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::ledger::Ledger;
use super::on_both_stores;
use crate::process::server::{Process, SOON, eventually};
use crate::support::commands::{Asking as _, start, update};
use crate::support::postgres::direct;

on_both_stores! {
    the_whole_log_is_written_in_one_order
    a_session_is_shown_whole_by_who_is_linked_at_the_end
    a_thread_and_a_run_are_shown_alone
    parts_of_the_log_are_the_whole_log
    an_export_that_finds_nothing_says_of_what
    a_file_is_there_once_it_is_complete
    a_file_that_no_export_of_this_wrote_is_not_replaced
    what_is_no_regular_file_is_written_to_and_stays
    a_file_that_is_not_complete_is_not_left_behind
    a_reader_that_has_seen_enough_ends_it_quietly
}

/// The lines that an export prints. The last line gives their number.
pub(super) async fn exported(ledger: &Ledger, args: &[&str]) -> Vec<Value> {
    let (code, said) = ledger.run(&[&["export"], args].concat()).await;
    assert_eq!(code, 0, "{said}");
    let lines: Vec<Value> =
        said.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(said.contains(&format!("exported {} event", lines.len())), "{said}");
    lines
}

/// The run and the revision of each line.
pub(super) fn places(lines: &[Value]) -> Vec<(String, u64)> {
    lines.iter().map(|line| (line["runId"].as_str().unwrap().to_owned(), line["revision"].as_u64().unwrap())).collect()
}

fn of_run(lines: &[Value], run_id: &str) -> Vec<Value> {
    lines.iter().filter(|line| line["runId"] == run_id).cloned().collect()
}

async fn the_whole_log_is_written_in_one_order(ledger: Ledger) {
    ledger.fill().await;
    let lines = exported(&ledger, &[]).await;
    let held = ledger.data.sound().await;
    let mut events = held.events;
    // Each was a commit of its own, so no two have one time.
    events.sort_by_key(|event| event.at);
    let expected: Vec<(String, u64)> =
        events.iter().map(|event| (event.key.run_id.to_string(), event.revision.get())).collect();
    assert_eq!(places(&lines), expected);
    for (line, event) in lines.iter().zip(&events) {
        assert_eq!(line["at"], event.at.to_string());
        assert_eq!(line["to"], event.to.name());
        assert_eq!(line["from"], event.from.map_or(Value::Null, |from| from.name().into()));
        assert_eq!(line["taskThreadId"], held.runs[&event.key].task_thread_id);
    }
    let failed = of_run(&lines, "failed");
    assert_eq!(failed[1]["reason"], json!({"code": "TIMEOUT", "text": "it broke"}));
    assert_eq!(failed[1]["principal"], json!({"kind": "anonymous"}));
    let sessions_of =
        |run_id| of_run(&lines, run_id).iter().map(|line| line["auditSessionId"].clone()).collect::<Vec<_>>();
    assert_eq!(sessions_of("running"), ["audit-2"]);
    assert_eq!(sessions_of("linked"), [Value::Null, "audit-1".into(), "audit-1".into()]);
    assert_eq!(sessions_of("unlinked"), [Value::Null, "audit-1".into(), Value::Null, Value::Null]);
    assert_eq!(exported(&ledger, &[]).await, lines, "once more, it is the same");
}

async fn a_session_is_shown_whole_by_who_is_linked_at_the_end(ledger: Ledger) {
    ledger.fill().await;
    let all = exported(&ledger, &[]).await;
    let session = exported(&ledger, &["--audit-session", "audit-1"]).await;
    assert_eq!(session, of_run(&all, "linked"), "from its first event, though it was linked by its second");
    // At that time, the other one was linked too.
    let unlinked_at = of_run(&all, "unlinked")[2]["at"].as_str().unwrap().to_owned();
    let then = exported(&ledger, &["--audit-session", "audit-1", "--until", &unlinked_at]).await;
    let runs: Vec<(String, u64)> = places(&then);
    assert!(runs.contains(&("unlinked".to_owned(), 1)) && runs.contains(&("linked".to_owned(), 1)), "{runs:?}");
    assert!(!runs.contains(&("unlinked".to_owned(), 3)), "{runs:?}");
    assert!(exported(&ledger, &["--audit-session", "nobody's"]).await.is_empty());
    let both = ["--audit-session", "audit-1", "--task-thread", "thread-2"];
    assert!(exported(&ledger, &both).await.is_empty(), "both must be so");
}

async fn a_thread_and_a_run_are_shown_alone(ledger: Ledger) {
    ledger.fill().await;
    let all = exported(&ledger, &[]).await;
    let thread = exported(&ledger, &["--task-thread", "thread-2"]).await;
    let wanted: Vec<Value> = all.iter().filter(|line| line["taskThreadId"] == "thread-2").cloned().collect();
    assert_eq!((thread.len(), &thread), (3, &wanted));
    assert_eq!(exported(&ledger, &["--run", "long"]).await, of_run(&all, "long"));
    // Behind a keyframe, the links are those that it carries.
    let late = of_run(&all, "long")[40]["at"].as_str().unwrap().to_owned();
    assert_eq!(exported(&ledger, &["--run", "long", "--since", &late]).await, of_run(&all, "long")[40..]);
    let since = exported(&ledger, &["--since", &late]).await;
    assert_eq!(since, all[all.len() - since.len()..]);
    let (code, said) = ledger.run(&["export", "--run", "nobody"]).await;
    assert_eq!((code, said.contains("there is no such run, or it was purged: nobody")), (1, true), "{said}");
}

async fn parts_of_the_log_are_the_whole_log(ledger: Ledger) {
    ledger.fill().await;
    let all = exported(&ledger, &[]).await;
    for cut in [0, 1, 17, 50, all.len() - 1] {
        let at = all[cut]["at"].as_str().unwrap();
        let mut parts = exported(&ledger, &["--until", at]).await;
        assert_eq!(parts.len(), cut, "the end is not in it");
        parts.extend(exported(&ledger, &["--since", at]).await);
        assert_eq!(parts, all);
    }
    assert_eq!(exported(&ledger, &["--since", "1h"]).await, all);
    assert!(exported(&ledger, &["--since", "0s"]).await.is_empty());
    let (code, said) = ledger.run(&["export", "--since", "yesterday"]).await;
    assert_eq!((code, said.contains("how long ago")), (2, true), "{said}");
    for (since, until) in [("1h", "2h"), ("2026-01-31", "2026-01-31")] {
        let (code, said) = ledger.run(&["export", "--since", since, "--until", until]).await;
        assert_eq!((code, said.contains("--since must be earlier than --until")), (2, true), "{said}");
    }
}

async fn an_export_that_finds_nothing_says_of_what(ledger: Ledger) {
    ledger.fill().await;
    let (code, said) = ledger.run(&["export", "--namespace", "tema-a"]).await;
    assert_eq!((code, said.contains("there is no namespace tema-a")), (1, true), "{said}");
    for (args, of) in [
        (&["--task-thread", "typo"][..], "--task-thread"),
        (&["--audit-session", "typo"], "--audit-session"),
        (&["--since", "2500-01-01"], "--since"),
        (&["--task-thread", "thread-2", "--until", "2026-01-01"], "--task-thread and --until"),
    ] {
        let (code, said) = ledger.run(&[&["export"], args].concat()).await;
        assert_eq!(
            (code, said.contains(&format!("exported 0 events: the ledger has none for {of}"))),
            (0, true),
            "{said}"
        );
    }
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lifecycle.jsonl");
    let output = ["export", "--output", file.to_str().unwrap()];
    let (code, said) = ledger.run(&output).await;
    assert_eq!((code, said.contains("had more")), (0, false), "{said}");
    let all = fs::read_to_string(&file).unwrap();
    let middle: Value = serde_json::from_str(all.lines().nth(10).unwrap()).unwrap();
    let (code, said) = ledger.run(&[&output[..], &["--until", middle["at"].as_str().unwrap()]].concat()).await;
    assert_eq!((code, said.contains("the file that was replaced had more")), (0, true), "{said}");
}

async fn a_file_is_there_once_it_is_complete(ledger: Ledger) {
    ledger.fill().await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lifecycle.jsonl");
    for args in [&[][..], &[], &["--force"], &["--run", "linked", "--force"], &["--run", "linked"]] {
        let (code, said) = ledger.run(&[&["export", "--output", file.to_str().unwrap()], args].concat()).await;
        assert_eq!(code, 0, "{said}");
        let lines = if args.contains(&"--run") { 3 } else { 82 };
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), lines, "the old one is replaced: {args:?}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
    let nowhere = directory.path().join("none/lifecycle.jsonl");
    let (code, said) = ledger.run(&["export", "--output", nowhere.to_str().unwrap()]).await;
    assert_eq!((code, said.contains("cannot be written")), (1, true), "{said}");
}

async fn a_file_that_no_export_of_this_wrote_is_not_replaced(ledger: Ledger) {
    ledger.fill().await;
    let all: Vec<Value> = exported(&ledger, &[]).await;
    let line = |changed: &[(&str, Value)]| {
        let mut line = all[3].clone();
        for (field, value) in changed {
            line[*field] = value.clone();
        }
        format!("{line}\n")
    };
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lifecycle.jsonl");
    let whole: String = all.iter().map(|line| line.to_string() + "\n").collect();
    for (text, args, why) in [
        ("an old one".to_owned(), &[][..], "no export wrote it"),
        ("{}\n".to_owned(), &[], "no export wrote it"),
        (format!("{whole}a note\n"), &[], "no export wrote it"),
        (format!("a note\n{whole}"), &[], "no export wrote it"),
        (line(&[("at", json!("2020-01-01T00:00:00Z"))]), &[], "it is of another ledger"),
        (line(&[("runId", json!("another"))]), &[], "this ledger does not have its events"),
        (line(&[("namespace", json!("team-b"))]), &["--namespace", "default"], "it is an export of another namespace"),
        (whole.clone(), &["--run", "linked"], "it is an export of more than this run"),
    ] {
        fs::write(&file, &text).unwrap();
        let arguments = [&["export", "--output", file.to_str().unwrap()], args].concat();
        let (code, said) = ledger.run(&arguments).await;
        assert!(code == 1 && said.contains(why) && said.contains("--force"), "{why}: {code}: {said}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "{why}: it stays");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
        let (code, said) = ledger.run(&[&arguments[..], &["--force"]].concat()).await;
        assert_eq!(code, 0, "{said}");
    }
    let (cursor, lines) = (directory.path().join("default.cursor"), directory.path().join("new.jsonl"));
    let files = [lines.to_str().unwrap(), "--cursor-output", cursor.to_str().unwrap()];
    let arguments = [&["export", "--namespace", "default", "--output"], &files[..]].concat();
    fs::write(&cursor, "a note\n").unwrap();
    let (code, said) = ledger.run(&arguments).await;
    assert!(code == 2 && said.contains("has no cursor of this ledger and namespace"), "{code}: {said}");
    assert_eq!((fs::read_to_string(&cursor).unwrap().as_str(), lines.exists()), ("a note\n", false));
    for (place, wanted) in [(directory.path(), "is there, and no file"), (&*lines, "cannot be both the output and")] {
        let files = [lines.to_str().unwrap(), "--cursor-output", place.to_str().unwrap()];
        let (code, said) = ledger.run(&[&["export", "--namespace", "default", "--output"], &files[..]].concat()).await;
        assert!(code == 2 && said.contains(wanted) && !lines.exists(), "{code}: {said}");
    }
    for force in [Some("--force"), None] {
        let (code, said) = ledger.run(&[&arguments[..], force.as_slice()].concat()).await;
        assert_eq!(code, 0, "{force:?}: {said}");
        fs::remove_file(&lines).unwrap();
    }
}

async fn what_is_no_regular_file_is_written_to_and_stays(ledger: Ledger) {
    ledger.fill().await;
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let made = Command::new("mkfifo").arg(path("pipe")).status().unwrap();
    assert!(made.success());
    let reader = Command::new("cat").arg(path("pipe")).stdout(Stdio::piped()).spawn().unwrap();
    let (code, said) = ledger.run(&["export", "--output", &path("pipe")]).await;
    assert_eq!(code, 0, "{said}");
    let read = reader.wait_with_output().unwrap().stdout;
    assert_eq!(String::from_utf8(read).unwrap().lines().count(), 82);
    assert!(fs::metadata(path("pipe")).unwrap().file_type().is_fifo());
    let (code, said) = ledger.run(&["export", "--output", "/dev/null"]).await;
    assert_eq!((code, fs::metadata("/dev/null").unwrap().is_file()), (0, false), "{said}");
    fs::write(path("old"), "").unwrap();
    for name in ["old", "new"] {
        symlink(name, path("link")).unwrap();
        let (code, said) = ledger.run(&["export", "--output", &path("link")]).await;
        assert_eq!(code, 0, "{said}");
        assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink(), "the link stays");
        assert_eq!(fs::read_to_string(path(name)).unwrap().lines().count(), 82);
        fs::remove_file(path("link")).unwrap();
    }
}

async fn a_file_that_is_not_complete_is_not_left_behind(ledger: Ledger) {
    ledger.fill().await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lifecycle.jsonl");
    let (code, said) = ledger.run(&["export", "--run", "nobody", "--output", file.to_str().unwrap()]).await;
    assert_eq!((code, fs::read_dir(directory.path()).unwrap().count()), (1, 0), "{said}");
}

async fn a_reader_that_has_seen_enough_ends_it_quietly(ledger: Ledger) {
    // More than a pipe holds.
    let name = "r".repeat(120);
    let mut commands = vec![start(&name)];
    commands.extend(
        (0..400).map(|group| update(&name).changing(|changes| changes.tab_group_id = Some(format!("tabs-{group}")))),
    );
    ledger.commit(commands).await;
    let script =
        format!("set -o pipefail; {} export --store '{}' | head -n 1", env!("CARGO_BIN_EXE_runledger"), ledger.store());
    let done = Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    assert_eq!(String::from_utf8(done.stdout).unwrap().lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_that_is_interrupted_leaves_no_file_behind() {
    let ledger = Ledger::postgres().await;
    ledger.fill().await;
    let holder = direct(&ledger.store()).await;
    holder.batch_execute("begin; lock table run_events in access exclusive mode").await.unwrap();
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lifecycle.jsonl");
    let count = || fs::read_dir(directory.path()).unwrap().count();
    let mut export = Process::spawn(&["export", "--store", &ledger.store(), "--output", file.to_str().unwrap()]);
    assert!(eventually(SOON, async || (count() == 1).then_some(())).await.is_some(), "{}", export.said());
    export.signal("INT");
    let (code, said) = export.exited(SOON).await;
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(code == 130 && left.is_empty(), "{code}, {left:?}: {said}");
}
