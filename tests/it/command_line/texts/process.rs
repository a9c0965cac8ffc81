//! The same by the binary itself: what it refuses, and what it says.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream};
use serde_json::json as value;
use tempfile::TempDir;

use crate::command_line::cli::{cli, command, done, json, ran};
use crate::command_line::{every_command, path};
use crate::support::server::Server;

/// What a command that makes no sense says.
async fn misused(server: &str, args: &[&str]) -> String {
    let ran = cli(server, args).await;
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {}", ran.err);
    ran.err
}

#[tokio::test]
async fn a_time_that_is_not_wholly_understood_is_refused_with_what_to_write() {
    for text in [
        "2026-11-27T22:05:00",
        "2026-11-27 22:05",
        "2026-11-27T23:05:00[Europe/Berlin]",
        "2026-11-27T23:05:00+05:00[Europe/Berlin]",
    ] {
        for args in [["export", "--since", text], ["export", "--until", text]] {
            let said = misused("127.0.0.1:1", &args).await;
            assert!(said.contains("offset") && said.contains("2026-"), "{args:?}: {said}");
        }
        for flag in ["--started-from", "--started-before"] {
            let said = misused("127.0.0.1:1", &["run", "list", flag, text]).await;
            assert!(said.contains("offset"), "{flag} {text}: {said}");
        }
    }
}

#[tokio::test]
async fn an_empty_text_is_never_taken_for_absent() {
    let server = Server::start("memory").await;
    let server = server.address();
    let start = ["run", "start", "--task-thread-id", "t"];
    for flag in
        ["--run-id", "--agent-id", "--tab-group-id", "--workflow", "--parent", "--continues", "--request-id", "--as"]
    {
        let said = misused(server, &[&start[..], &[flag, ""]].concat()).await;
        assert!(said.contains(flag), "{flag}: {said}");
        misused(server, &[&start[..], &[&format!("{flag}=")]].concat()).await;
    }
    for args in [
        &["run", "abort", "r", "--failure-reason", ""][..],
        &["run", "list", "--agent-id", ""],
        &["run", "list", "--context", ""],
        &["export", "--run", ""],
        &["watch", "--cursor", ""],
        &["retention", "preview", "--only", ""],
        &["run", "list", "--namespace", ""],
        &["run", "get", "r", "--queue-label", ""],
        &["lifecycle", "list", ""],
    ] {
        let said = misused(server, args).await;
        assert!(said.contains("is empty") || said.contains("a value is required"), "{args:?}: {said}");
    }
    assert_eq!(done(server, &["run", "list", "-q"]).await, "", "nothing was started");
    // What a command needs is refused by whoever knows its form.
    let ran = cli(server, &["run", "start", "--task-thread-id", ""]).await;
    assert_eq!((ran.code, ran.err.contains("task_thread_id")), (1, true), "{}", ran.err);
    // Where an empty text says something, it is taken.
    done(server, &["run", "start", "--task-thread-id", "t", "--run-id", "r", "--workflow", "w"]).await;
    let run = &json(server, &["run", "update", "r", "--workflow", ""]).await[0]["run"];
    assert_eq!(run["workflowId"], value!(null), "{run}");
}

/// The words of a command, with those that it does not do without.
fn with_what_it_needs(called: &str) -> Vec<String> {
    let command = every_command().into_iter().skip(1).find(|command| path(command) == called).unwrap();
    let mut words: Vec<String> = called.split(' ').map(str::to_owned).collect();
    let needed = command.get_arguments().filter(|arg| arg.is_required_set() && arg.get_long() != Some("store"));
    for arg in needed {
        words.extend(arg.get_long().map(|long| format!("--{long}")));
        words.push(arg.get_possible_values().first().map_or("1", |value| value.get_name()).to_owned());
    }
    words
}

#[tokio::test]
async fn an_empty_variable_is_refused_by_every_command_that_reads_it() {
    let server = Server::start("memory").await;
    let mut seen = BTreeMap::new();
    for command in every_command().into_iter().skip(1).filter(|command| !command.is_subcommand_required_set()) {
        for arg in command.get_arguments() {
            if let Some(variable) = arg.get_env() {
                // One command for each family tries each variable.
                let family = path(&command).split(' ').next().unwrap().to_owned();
                seen.entry((family, variable.to_str().unwrap().to_owned()))
                    .or_insert_with(|| path(&command).to_owned());
            }
        }
    }
    assert!(seen.len() > 100, "{}", seen.len());
    let token = ("run".to_owned(), "RUNLEDGER_TOKEN".to_owned());
    let tried = seen.into_iter().chain([(token, "run get".to_owned())]).map(async |((_, variable), path)| {
        let words = with_what_it_needs(&path);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let mut command = command(server.address(), &words);
        command.env(&variable, "");
        let ran = ran(command).await;
        let wanted = format!("the variable {variable} is empty: give it a value, or unset it");
        assert!(ran.code == 2 && ran.err.contains(&wanted), "{words:?}: {}: {}", ran.code, ran.err);
    });
    stream::iter(tried).buffer_unordered(4).collect::<Vec<_>>().await;
    // A flag that is given says it in the place of its variable.
    let mut with_flag = command(server.address(), &["run", "list", "-q", "--namespace", "default"]);
    with_flag.env("RUNLEDGER_NAMESPACE", "");
    assert_eq!(ran(with_flag).await.code, 0);
}

#[tokio::test]
async fn an_object_is_json_a_file_or_standard_input_and_is_kept_as_it_is() {
    let server = Server::start("memory").await;
    let server = server.address();
    let directory = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let marked = file("marked.json", "\u{feff}{\"step\": 1}");
    let large = file("large.json", "{\"a\": [{\"id\": 9007199254740993}]}");
    for flag in ["--metadata", "--input"] {
        let start = ["run", "start", "--task-thread-id", "t", "--run-id", &format!("with{flag}")];
        for (text, wanted) in [
            (format!("@{large}"), "a[0].id: 9007199254740993 would be rounded"),
            ("{\"id\": -9007199254740993}".to_owned(), "id: -9007199254740993 would be rounded"),
            ("{\"a\": {\"b\": 1, \"b\": 2}}".to_owned(), "a.b is given twice"),
            ("{\"a\": 1} {}".to_owned(), "trailing characters"),
            ("{\"a\": 1e400}".to_owned(), "out of range"),
            ("{\"a\": NaN}".to_owned(), "expected value"),
            (marked.clone(), "@"),
            ("-".to_owned(), "it is empty"),
        ] {
            let said = misused(server, &[&start[..], &[flag, &text]].concat()).await;
            assert!(said.contains(flag) && said.contains(wanted), "{flag} {text}: {said}");
        }
        done(server, &[&start[..], &[flag, &format!("@{marked}")]].concat()).await;
    }
    assert_eq!(done(server, &["run", "get", "with--input", "--input"]).await, "{\"step\":1}\n");
    let kept = &json(server, &["run", "get", "with--metadata"]).await[0]["run"]["metadata"];
    assert_eq!(kept, &value!({"step": 1}));
    done(server, &["run", "complete", "with--input", "--result", "{\"id\": \"9007199254740993\"}"]).await;
    assert_eq!(done(server, &["run", "get", "with--input", "--result"]).await, "{\"id\":\"9007199254740993\"}\n");
}

#[tokio::test]
async fn a_token_file_may_begin_with_a_mark() {
    let server = Server::start("memory").await;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, "\u{feff}secret\n").unwrap();
    done(server.address(), &["run", "list", "--token-file", path.to_str().unwrap()]).await;
}

#[tokio::test]
async fn a_shorter_retention_says_what_it_undoes_and_waits_for_a_yes() {
    let server = Server::start("memory").await;
    let server = server.address();
    let update = ["namespace", "update", "default"];
    let keeps = async || json(server, &["namespace", "get", "default"]).await[0]["retention"].clone();
    let said = misused(server, &[&update[..], &["--keep", "90"]].concat()).await;
    assert!(said.contains("90s"), "{said}");
    for id in ["one", "two"] {
        done(server, &["run", "start", "--task-thread-id", "t", "--run-id", id]).await;
        done(server, &["run", "complete", id]).await;
    }
    let said = misused(server, &[&update[..], &["--keep-completed", "90d"]].concat()).await;
    assert!(said.contains("0 runs are due at once in default") && said.contains("--yes"), "{said}");
    assert_eq!(keeps().await, value!(null), "nothing was changed");
    let ran = cli(server, &[&update[..], &["--keep", "90d", "--keep-failed", "180d", "--yes"]].concat()).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    let before = keeps().await;
    assert_eq!(before["failed"], value!("15552000s"));
    let said = misused(server, &[&update[..], &["--keep", "30d"]].concat()).await;
    let undone = "--keep is said of failed runs too: they were kept 180d, and are to be kept 30d";
    assert!(said.contains(undone), "{said}");
    assert_eq!(keeps().await, before);
    // Longer, or as before: nobody is asked.
    for longer in [["--keep-failed", "200d"], ["--keep-completed", "ever"], ["--keep-aborted", "90d"]] {
        done(server, &[&update[..], &longer].concat()).await;
    }
}

#[tokio::test]
async fn a_preview_says_what_another_retention_would_purge_by_the_store_and_by_a_server() {
    let directory = TempDir::new().unwrap();
    let store = format!("sqlite:{}/ledger.db", directory.path().display());
    let server = Server::start(&store).await;
    let address = server.address().to_owned();
    for id in ["one", "two", "three"] {
        done(&address, &["run", "start", "--task-thread-id", "t", "--run-id", id]).await;
    }
    done(&address, &["run", "complete", "one"]).await;
    done(&address, &["run", "fail", "two", "--failure-reason", "it broke"]).await;
    let by_server = ["retention", "preview", "--server", &address, "--only", "default"];
    let due = async |args: &[&str]| -> Vec<(String, u64, u64)> {
        let found = json(&address, args).await;
        let one = |of: &serde_json::Value| {
            (of["statuses"].to_string(), of["runs"].as_u64().unwrap(), of["events"].as_u64().unwrap())
        };
        found.iter().map(one).collect()
    };
    let all = r#"["completed","aborted","failed"]"#;
    assert_eq!(due(&[&by_server[..], &["--keep", "1ms"]].concat()).await, [(all.to_owned(), 2, 4)]);
    assert_eq!(due(&[&by_server[..], &["--keep", "1h"]].concat()).await, [(all.to_owned(), 0, 0)]);
    let failed = due(&[&by_server[..], &["--keep-failed", "1ms"]].concat()).await;
    assert_eq!(failed, [(r#"["failed"]"#.to_owned(), 1, 2)]);
    misused(&address, &["retention", "preview", "--server", &address, "--keep", "1h"]).await;
    drop(server);
    // The shard's newest event is never purged.
    let by_store = ["retention", "preview", "--store", &store, "--only", "default"];
    assert_eq!(due(&[&by_store[..], &["--keep", "1ms"]].concat()).await, [(all.to_owned(), 1, 2)]);
    assert_eq!(due(&[&by_store[..], &["--keep", "1h"]].concat()).await, [(all.to_owned(), 0, 0)]);
}

#[tokio::test]
async fn a_store_that_is_not_plainly_a_path_is_refused_by_every_command_that_takes_one() {
    let directory = TempDir::new().unwrap();
    let settings = directory.path().join("settings.toml");
    let mut seen = 0;
    for called in every_command().into_iter().skip(1) {
        if !called.get_arguments().any(|arg| arg.get_long() == Some("store")) || path(&called) == "config show" {
            continue;
        }
        seen += 1;
        let words = with_what_it_needs(path(&called));
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        for (text, wanted) in [
            ("~/x.db", "no shell reads"),
            ("$HOME/x.db", "no shell reads"),
            ("x.db?mode=ro", "takes no parameters"),
            ("file:x.db", "is a path and no address"),
            ("x%20y.db", "no URI"),
            ("x.db ", "a space"),
            ("x.db-wal", "without that ending"),
            ("x.db.lock", "without that ending"),
            ("x/", "names a folder"),
        ] {
            let store = format!("sqlite:{text}");
            let mut tried = vec![command("", &[&words[..], &["--store", &store]].concat())];
            if called.get_arguments().any(|arg| arg.get_env().is_some_and(|name| name == "RUNLEDGER_STORE")) {
                let mut by_variable = command("", &words);
                by_variable.env("RUNLEDGER_STORE", &store);
                std::fs::write(&settings, format!("store = {store:?}\n")).unwrap();
                tried.extend([by_variable, command("", &[&words[..], &["--config", "settings.toml"]].concat())]);
            }
            for mut command in tried {
                command.env_remove("RUNLEDGER_SERVER").current_dir(directory.path());
                let said = format!("{command:?}");
                let ran = ran(command).await;
                assert!(ran.code != 0 && ran.err.contains(wanted), "{said}: {}: {}", ran.code, ran.err);
            }
        }
    }
    assert!(seen >= 6, "{seen}");
    let made: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(made, ["settings.toml"]);
}
