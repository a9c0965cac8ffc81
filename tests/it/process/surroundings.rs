//! What surrounds the process decides nothing in silence: the environment of all programs, the settings of a role or a
//! database, and the place as the first process of a container.

use std::process::{Command, Stdio};

use runledger::config::ambient;
use runledger_proto::v1::{CompleteRunRequest, StartRunRequest};

use super::admin::ready;
use super::server::{Process, SOON, Server, run};
use crate::support::everywhere::Everywhere;
use crate::support::postgres::{Database, direct};

/// A server with wrong values of all variables that are not its own. `right`: of those, what has a right one.
async fn serves_with(nth: usize, right: &[(&str, &str)]) -> String {
    let wrong = ambient::ALL.iter().flat_map(|ambient| {
        let value = ambient.wrong_values[nth % ambient.wrong_values.len()];
        ambient.names.iter().map(move |name| (*name, value))
    });
    let set: Vec<(&str, &str)> = wrong.chain(right.iter().copied()).collect();
    let flags = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--store", "memory"];
    let mut server = Server::of(Process::spawn_with(&flags, &set)).await;
    server.process.says("  admin  ").await;
    let said = server.process.said();
    let admin = said.lines().find_map(|line| line.strip_prefix("  admin  http://")).unwrap();
    ready(admin.split('/').next().unwrap().parse().unwrap()).await;
    let asked = StartRunRequest { task_thread_id: "t".into(), ..StartRunRequest::default() };
    server.client().start_run(asked).await.unwrap();
    server.process.signal("TERM");
    let (code, said) = server.process.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_variable_of_other_programs_stops_a_server() {
    let most = ambient::ALL.iter().map(|ambient| ambient.wrong_values.len()).max().unwrap();
    for nth in 0..most {
        let said = serves_with(nth, &[]).await;
        assert!(said.contains("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is no http"), "{said}");
        // A right collector leaves the others to be read.
        let right = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"]
            .map(|name| (name, "https://127.0.0.1:1"));
        serves_with(nth, &right).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_a_database_that_would_break_a_session_are_put_right() {
    let database = Database::fresh().await;
    let (dsn, own) = (database.dsn(), direct(&database.dsn()).await);
    for (name, value) in [
        ("idle_session_timeout", "400ms"),
        ("idle_in_transaction_session_timeout", "1s"),
        ("statement_timeout", "5s"),
        ("lock_timeout", "1s"),
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_read_only", "on"),
        ("default_transaction_deferrable", "on"),
        ("datestyle", "SQL, DMY"),
        ("intervalstyle", "sql_standard"),
        ("timezone", "Asia/Kathmandu"),
        ("bytea_output", "escape"),
        ("extra_float_digits", "-15"),
        ("standard_conforming_strings", "off"),
        ("array_nulls", "off"),
        ("transform_null_equals", "on"),
        ("row_security", "off"),
        ("enable_indexscan", "off"),
        ("enable_indexonlyscan", "off"),
        ("enable_nestloop", "off"),
    ] {
        own.batch_execute(&format!("alter database {} set {name} = '{value}'", database.name())).await.unwrap();
    }
    let server = Server::start(&dsn).await;
    server.is_ready().await;
    let listener = async || -> Vec<i32> {
        let found = "select pid from pg_stat_activity where datname = current_database() and query like '%announce.%' \
                     and pid <> pg_backend_pid()";
        own.query(found, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    let mut client = server.client();
    let asked = StartRunRequest { task_thread_id: "t".into(), run_id: "r".into(), ..StartRunRequest::default() };
    client.start_run(asked).await.unwrap();
    let before = listener().await;
    own.batch_execute("select pg_sleep(1.5)").await.unwrap();
    client.complete_run(CompleteRunRequest { run_id: "r".into(), ..CompleteRunRequest::default() }).await.unwrap();
    assert!(before.len() == 1 && listener().await == before, "the listener was lost: {}", server.process.said());
    let said = server.process.said();
    assert!(!said.contains("was lost") && !said.contains("no connection"), "{said}");
    for command in ["verify", "export"] {
        let (code, said) = run(&[command, "--store", &dsn]).await;
        assert_eq!(code, 0, "{said}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_the_first_process_leaves_no_zombie_of_an_orphan() {
    let as_first = ["--pid", "--fork", "--mount-proc"];
    let may = Command::new("unshare").args(as_first).arg("true").stderr(Stdio::piped()).output();
    let Some(may) = may.ok().filter(|may| may.status.success()) else {
        eprintln!("SKIPPED: no process can be the first of a namespace here");
        return;
    };
    drop(may);
    let server = Server::start("memory").await;
    server.is_ready().await;
    // Orphans, and their ends, are children of the first process.
    let script = r#"
others() {
    for file in /proc/[0-9]*/stat; do
        read -r line 2>/dev/null < $file || continue
        case "$line" in "$$ "*) ;; *"(bash) "?" 1 "*|*"(sleep) "?" 1 "*) return 0 ;; esac
    done
    return 1
}
for orphan in 1 2 3; do (sleep 0.05 &); done
while others; do [ $SECONDS -gt 20 ] && exit 3; done
exit 0"#;
    let address = server.address.to_string();
    let mut command = Command::new("unshare");
    command.args(as_first).arg(env!("CARGO_BIN_EXE_runledger"));
    command.args(["run", "worker", "--server", &address, "--task-thread-id", "t", "--", "bash", "-c", script]);
    command.env_clear().envs(Everywhere::environment()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let ended = tokio::task::spawn_blocking(move || command.stdin(Stdio::null()).output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(said.contains("has ended: completed"), "its own child's end is not lost: {said}");
}
