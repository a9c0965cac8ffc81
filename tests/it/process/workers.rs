//! `run worker` on the real server: its program's end is the run's, and what becomes of a worker that is killed, frozen
//! or told to stop.

use prost_types::Duration as WireDuration;
use runledger_proto::json;
use runledger_proto::v1::{
    ClaimRunRequest, GetRunRequest, GetRunResponse, ReleaseRunRequest, RequestAbortRequest, Run, RunStatus, RunView,
    StartRunRequest, WaitRunRequest,
};

use super::data::Data;
use super::server::{Process, SOON, Server, eventually};

/// The ttl of a worker that is to live, on however busy a machine. The worker hears of requests to abort within a third
/// of it.
const LIVING: &str = "9s";

struct Scene {
    server: Server,
}

impl Scene {
    async fn new() -> Self {
        let server = Server::start("memory").await;
        server.is_ready().await;
        Self { server }
    }

    /// A worker of run `run-1`, whose program is a shell's script.
    fn worker(&self, ttl: &str, script: &str) -> Process {
        self.spawn(&["--task-thread-id", "thread-1", "--run-id", "run-1", "--lease-ttl", ttl], script)
    }

    fn spawn(&self, flags: &[&str], script: &str) -> Process {
        let address = self.server.address.to_string();
        let mut args = vec!["run", "worker", "--server", &address];
        args.extend(flags);
        args.extend(["--", "bash", "-c", script]);
        Process::spawn_with(&args, &[("PATH", "/usr/local/bin:/usr/bin:/bin")])
    }

    async fn run(&self) -> Option<Run> {
        let asked = GetRunRequest { run_id: "run-1".to_owned(), ..GetRunRequest::default() };
        self.server.client().get_run(asked).await.ok().and_then(|answer| answer.into_inner().run)
    }

    async fn whole(&self) -> GetRunResponse {
        let view = Some(RunView::Whole.into());
        let asked = GetRunRequest { run_id: "run-1".to_owned(), view, ..GetRunRequest::default() };
        self.server.client().get_run(asked).await.unwrap().into_inner()
    }

    /// A pending run that is given something.
    async fn given(&self, input: serde_json::Value) {
        let asked = StartRunRequest {
            task_thread_id: "thread-1".to_owned(),
            run_id: "run-1".to_owned(),
            deferred: true,
            input: input.as_object().map(json::structure),
            ..StartRunRequest::default()
        };
        self.server.client().start_run(asked).await.unwrap();
    }

    /// The run, once it is so.
    async fn until(&self, is_so: impl Fn(&Run) -> bool) -> Run {
        let found = eventually(SOON, async || self.run().await.filter(&is_so)).await;
        found.unwrap_or_else(|| panic!("it never was so"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_ends_well_completes_its_run_and_its_output_is_passed_on() {
    let scene = Scene::new().await;
    let script = "echo out; echo err >&2; echo $RUNLEDGER_RUN_ID $RUNLEDGER_LEASE_EPOCH $RUNLEDGER_TASK_THREAD_ID";
    let (code, said) = scene.worker("30s", script).exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    for line in ["out\n", "err\n", "run-1 1 thread-1\n", "runledger: run run-1 has ended: completed\n"] {
        assert!(said.contains(line), "{said}");
    }
    let run = scene.run().await.unwrap();
    assert_eq!((run.status(), run.revision), (RunStatus::Completed, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_fails_fails_its_run_with_its_last_words() {
    let scene = Scene::new().await;
    let (code, said) = scene.worker("30s", "for i in {1..40}; do echo line $i >&2; done; exit 7").exited(SOON).await;
    assert_eq!(code, 7, "{said}");
    assert!(said.contains("runledger: run run-1 has ended: failed / EXIT_STATUS\n"), "{said}");
    let run = scene.run().await.unwrap();
    assert_eq!((run.status(), run.reason_code.as_str()), (RunStatus::Failed, "EXIT_STATUS"));
    assert!(
        run.failure_reason.starts_with("the program ended with exit status 7\nline 21\n"),
        "{}",
        run.failure_reason
    );
    assert!(run.failure_reason.ends_with("line 40"), "{}", run.failure_reason);
    let (code, said) = scene.spawn(&["--task-thread-id", "t"], "kill -9 $$").exited(SOON).await;
    assert_eq!(code, 128 + 9, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_program_says_of_its_progress_is_shown_while_it_lives() {
    let scene = Scene::new().await;
    let mut worker = scene.worker("60s", "echo ::progress 3/10 fetching; read -t 60 < <(sleep 60)");
    let run = scene.until(|run| run.progress.is_some()).await;
    let progress = run.progress.unwrap();
    assert_eq!((progress.done, progress.total, progress.message.as_str()), (3, 10, "fetching"));
    assert_eq!((run.revision, run.lease.is_some_and(|lease| lease.expires_at.is_some())), (1, true));
    worker.signal("TERM");
    let (code, said) = worker.exited(SOON).await;
    assert_eq!(code, 128 + 15, "{said}");
    let run = scene.run().await.unwrap();
    assert_eq!((run.status(), run.reason_code.as_str()), (RunStatus::Aborted, "WORKER_STOPPED"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_abort_ends_the_program_softly_and_after_the_grace_by_force() {
    for (script, grace) in [("sleep 60", None), ("trap '' TERM; sleep 60; sleep 60", Some(1))] {
        let scene = Scene::new().await;
        let flags = ["--task-thread-id", "t", "--run-id", "run-1", "--lease-ttl", LIVING, "--kill-after", "1s"];
        let mut worker = scene.spawn(&flags, script);
        scene.until(|run| run.status() == RunStatus::Running).await;
        let asked = RequestAbortRequest {
            run_id: "run-1".to_owned(),
            reason: "enough".to_owned(),
            grace: grace.map(|seconds| WireDuration { seconds, nanos: 0 }),
            ..RequestAbortRequest::default()
        };
        scene.server.client().request_abort(asked).await.unwrap();
        let (status, said) = worker.ended(SOON).await;
        assert!(!status.success(), "{said}");
        let run = scene.until(|run| run.status() == RunStatus::Aborted).await;
        // If the program had to be killed, the authority may have been first.
        let known =
            if grace.is_some() { vec!["ABORT_REQUESTED", "ABORT_GRACE_EXPIRED"] } else { vec!["ABORT_REQUESTED"] };
        assert!(known.contains(&run.reason_code.as_str()), "{}", run.reason_code);
        assert_eq!(run.abort_request.unwrap().reason, "enough");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_ends_well_after_a_request_to_abort_has_completed_the_run_only_if_it_says_so() {
    for (last_words, code, status, reason) in
        [("echo ::completed;", 0, RunStatus::Completed, ""), ("", 128 + 15, RunStatus::Aborted, "ABORT_REQUESTED")]
    {
        let scene = Scene::new().await;
        let script = format!("trap '{last_words} exit 0' TERM; echo ::progress 1; while :; do sleep 0.05; done");
        let mut worker = scene.worker(LIVING, &script);
        // By then its trap is set.
        scene.until(|run| run.progress.is_some()).await;
        let asked = RequestAbortRequest { run_id: "run-1".to_owned(), ..RequestAbortRequest::default() };
        scene.server.client().request_abort(asked).await.unwrap();
        let (ended, said) = worker.exited(SOON).await;
        assert_eq!(ended, code, "{said}");
        assert!(!said.contains("::completed"), "{said}");
        let run = scene.run().await.unwrap();
        assert_eq!((run.status(), run.reason_code.as_str()), (status, reason), "{run:?}");
        assert!(run.abort_request.is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_finds_what_its_run_was_given() {
    let scene = Scene::new().await;
    let flags = ["--task-thread-id", "t", "--metadata", r#"{"url": "https://a/?b=c", "n": [1, null]}"#];
    let (code, said) = scene.spawn(&flags, "echo $RUNLEDGER_METADATA").exited(SOON).await;
    assert!(code == 0 && said.contains(r#"{"n":[1,null],"url":"https://a/?b=c"}"#), "{said}");
    let (_, said) = scene.spawn(&["--task-thread-id", "t"], "echo =$RUNLEDGER_METADATA=").exited(SOON).await;
    assert!(said.contains("={}="), "{said}");
}

/// The process that ends the program of a worker that is gone.
#[cfg(target_os = "linux")]
fn guard_of(worker: u32) -> String {
    find_guard(worker).expect("it has a guard")
}

#[cfg(target_os = "linux")]
fn find_guard(worker: u32) -> Option<String> {
    let tasks = std::fs::read_dir(format!("/proc/{worker}/task")).unwrap();
    // A thread may end meanwhile.
    let children = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
    let all = children.collect::<Vec<_>>().join(" ");
    let is_guard = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("worker-guard"))
    };
    all.split_whitespace().find(is_guard).map(str::to_owned)
}

/// The program, and what it started: those that its shell waits for would go on by themselves.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_whose_worker_is_killed_by_force_does_not_live_on() {
    for trap in ["", "trap '' TERM; "] {
        let script = format!("{trap}sleep 60 & echo files ${{RUNLEDGER_RESULT%/*}}; echo pids $$ $! .; wait");
        let scene = Scene::new().await;
        let flags = ["--task-thread-id", "t", "--kill-after", "1s"];
        let mut worker = scene.spawn(&flags, &script);
        // The worker passes on what its program says once the guard knows the program.
        worker.says(" .\n").await;
        let said = worker.said();
        let pids = said.lines().find_map(|line| line.strip_prefix("pids ")?.strip_suffix(" .")).unwrap();
        // As a manager does that tells everybody to end, and kills who is left.
        let guard = guard_of(worker.pid());
        assert!(std::process::Command::new("kill").args(["-TERM", &guard]).status().unwrap().success());
        worker.kill();
        let live = |pid: &str| {
            // A process that has ended and was not waited for still exists.
            let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !status.is_empty() && !status.contains(") Z ")
        };
        let gone = eventually(SOON, async || (!pids.split_whitespace().any(live)).then_some(())).await;
        assert!(gone.is_some(), "{pids}");
        let files = said.lines().find_map(|line| line.strip_prefix("files ")).unwrap();
        let gone = eventually(SOON, async || (!std::path::Path::new(files).exists()).then_some(())).await;
        assert!(files.contains("runledger-worker.") && gone.is_some(), "{files}");
    }
}

/// A guard that hangs is ended before another is started, and ends no program of a worker that lives.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_hangs_is_replaced_and_its_successor_ends_the_program() {
    let signal = |name: &str, pid: &str| {
        assert!(std::process::Command::new("kill").args([name, pid]).status().unwrap().success(), "{name} {pid}");
    };
    let live = |pid: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !status.is_empty() && !status.contains(") Z ")
    };
    let scene = Scene::new().await;
    let mut worker = scene.spawn(&["--claim", "--lease-ttl", LIVING, "--kill-after", "1s"], "echo pid $$ .; sleep 60");
    let hung = eventually(SOON, async || find_guard(worker.pid())).await.expect("it has a guard");
    signal("-STOP", &hung);
    let asked = StartRunRequest {
        task_thread_id: "queue".to_owned(),
        run_id: "run-1".to_owned(),
        deferred: true,
        ..StartRunRequest::default()
    };
    scene.server.client().start_run(asked).await.unwrap();
    worker.says(" .\n").await;
    let said = worker.said();
    let program = said.lines().find_map(|line| line.strip_prefix("pid ")?.strip_suffix(" .")).unwrap();
    assert!(!live(&hung), "it was ended");
    assert!(live(program) && guard_of(worker.pid()) != hung);
    worker.kill();
    let gone = eventually(SOON, async || (!live(program)).then_some(())).await;
    assert!(gone.is_some(), "{program}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_run_of_a_killed_worker_is_orphaned_soon_after_its_ttl() {
    let scene = Scene::new().await;
    let mut worker = scene.worker("1s", "sleep 2");
    scene.until(|run| run.status() == RunStatus::Running).await;
    worker.kill();
    let asked = WaitRunRequest { run_id: "run-1".to_owned(), ..WaitRunRequest::default() };
    let run = scene.server.client().wait_run(asked).await.unwrap().into_inner().run.unwrap();
    assert_eq!((run.status(), run.reason_code.as_str(), run.presumed), (RunStatus::Failed, "ORPHANED", true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_thawed_worker_reports_is_kept_and_changes_nothing_else() {
    let scene = Scene::new().await;
    let directory = tempfile::TempDir::new().unwrap();
    let gate = directory.path().join("gate");
    let mut worker = scene.worker("1s", &format!("until [ -e {} ]; do sleep 0.05; done", gate.display()));
    scene.until(|run| run.status() == RunStatus::Running).await;
    worker.signal("STOP");
    let orphan = scene.until(|run| run.status() == RunStatus::Failed).await;
    assert_eq!(orphan.outcome(), RunStatus::Failed);
    std::fs::write(gate, "").unwrap();
    worker.signal("CONT");
    let (code, said) = worker.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("is kept as a late report"), "{said}");
    let run = scene.run().await.unwrap();
    assert_eq!((run.status(), run.outcome(), run.revision), (RunStatus::Failed, RunStatus::Completed, 3));
    assert_eq!((&run.completed_at, &run.reason_code), (&orphan.completed_at, &orphan.reason_code));
    assert_eq!(run.late_report.unwrap().lease_epoch, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_ended_ends_its_program_and_one_that_runs_elsewhere_is_not_begun() {
    let scene = Scene::new().await;
    let mut worker = scene.worker(LIVING, "trap 'exit 0' TERM; echo ::progress 1; while :; do sleep 0.05; done");
    scene.until(|run| run.progress.is_some()).await;
    let (code, said) = scene.worker(LIVING, "echo begun").exited(SOON).await;
    assert!(code == 1 && said.contains("is running already") && !said.contains("begun"), "{said}");
    let ended = runledger_proto::v1::AbortRunRequest { run_id: "run-1".to_owned(), ..Default::default() };
    scene.server.client().abort_run(ended).await.unwrap();
    let (code, said) = worker.exited(SOON).await;
    assert!(said.contains("is not this worker's any more"), "{said}");
    assert_eq!(code, 128 + 15, "whoever waits for the run is not told that it was completed: {said}");
    assert_eq!(scene.run().await.unwrap().revision, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_claims_takes_what_matches_one_after_the_other_and_goes_on_after_a_failure() {
    let scene = Scene::new().await;
    for (n, team) in [(1, "blue"), (2, "red"), (3, "blue")] {
        let asked = StartRunRequest {
            task_thread_id: "queue".to_owned(),
            run_id: format!("run-{n}"),
            deferred: true,
            labels: [("team".to_owned(), team.to_owned())].into(),
            ..StartRunRequest::default()
        };
        scene.server.client().start_run(asked).await.unwrap();
    }
    let flags = ["--claim", "--label", "team=blue", "--idle", "100ms"];
    let (code, said) =
        scene.spawn(&flags, "echo did $RUNLEDGER_RUN_ID; [ $RUNLEDGER_RUN_ID != run-1 ]").exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    let did: Vec<&str> = said.lines().filter(|line| line.starts_with("did ")).collect();
    assert_eq!(did, ["did run-1", "did run-3"]);
    assert_eq!(scene.run().await.unwrap().status(), RunStatus::Failed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_claims_goes_on_after_a_run_that_was_aborted() {
    let scene = Scene::new().await;
    for n in 1..=2 {
        let asked = StartRunRequest {
            task_thread_id: "queue".to_owned(),
            run_id: format!("run-{n}"),
            deferred: true,
            ..StartRunRequest::default()
        };
        scene.server.client().start_run(asked).await.unwrap();
    }
    let flags = ["--claim", "--idle", "100ms", "--lease-ttl", LIVING];
    let mut worker = scene.spawn(&flags, "[ $RUNLEDGER_RUN_ID = run-2 ] || sleep 60; echo did $RUNLEDGER_RUN_ID");
    scene.until(|run| run.status() == RunStatus::Running).await;
    let asked = RequestAbortRequest { run_id: "run-1".to_owned(), ..RequestAbortRequest::default() };
    scene.server.client().request_abort(asked).await.unwrap();
    let (code, said) = worker.exited(SOON).await;
    assert!(code == 0 && said.contains("did run-2"), "{said}");
    assert_eq!(scene.run().await.unwrap().reason_code, "ABORT_REQUESTED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_lost_its_run_ends_its_program_and_not_the_run_of_who_followed() {
    let scene = Scene::new().await;
    let mut worker = scene.worker(LIVING, "trap '' TERM; sleep 60; sleep 60");
    scene.until(|run| run.status() == RunStatus::Running).await;
    let mut client = scene.server.client();
    let released = ReleaseRunRequest { run_id: "run-1".to_owned(), lease_epoch: 1, ..ReleaseRunRequest::default() };
    client.release_run(released).await.unwrap();
    let ttl = Some(WireDuration { seconds: 60, nanos: 0 });
    let claimed = ClaimRunRequest { run_id: "run-1".to_owned(), lease_ttl: ttl, ..ClaimRunRequest::default() };
    client.claim_run(claimed).await.unwrap();
    worker.says("is not this worker's any more").await;
    worker.signal("INT");
    worker.signal("TERM");
    let (status, said) = worker.ended(SOON).await;
    assert!(!status.success(), "{said}");
    let run = scene.run().await.unwrap();
    assert_eq!((run.status(), run.lease.unwrap().epoch), (RunStatus::Running, 3), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_outlives_an_outage_of_its_server_and_reports_after_it() {
    let directory = tempfile::TempDir::new().unwrap();
    let data = Data::Sqlite(directory.path().join("ledger.db"));
    let mut server = Server::start(&data.store()).await;
    server.is_ready().await;
    let address = server.address.to_string();
    let scene = Scene { server };
    let gate = directory.path().join("gate");
    let mut worker = scene.worker(LIVING, &format!("until [ -e {} ]; do sleep 0.05; done", gate.display()));
    scene.until(|run| run.status() == RunStatus::Running).await;
    server = scene.server;
    server.process.kill();
    worker.says("(trying again)").await;
    // As if it had been away for ten ttls, with the run's lease over since nine.
    data.sql("update leases set expires_at = expires_at - 90000000").await;
    let server = Server::of(Process::spawn(&["serve", "--listen", &address, "--store", &data.store()])).await;
    let scene = Scene { server };
    std::fs::write(gate, "").unwrap();
    let (code, said) = worker.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    let run = scene.until(|run| run.outcome() == RunStatus::Completed).await;
    assert_eq!((run.status(), run.presumed), (RunStatus::Completed, false), "an outage kills nobody who lives");
}

fn shown(object: Option<&runledger_proto::Struct>) -> Option<String> {
    object.map(json::object)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_finds_what_its_run_was_given_and_what_it_leaves_is_the_runs_result() {
    let scene = Scene::new().await;
    scene.given(serde_json::json!({"order": 7, "of": "Ann"})).await;
    let script = "cat \"$RUNLEDGER_INPUT\" >&2; printf '{ \"printed\": [%s] }' \"$(cat)\" >\"$RUNLEDGER_RESULT\"";
    let flags = ["--claim", "--runs", "1", "--input-on-stdin", "--lease-ttl", LIVING];
    let (code, said) = scene.spawn(&flags, script).exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(r#"{"of":"Ann","order":7}"#), "{said}");
    let whole = scene.whole().await;
    assert_eq!(shown(whole.result.as_ref()).unwrap(), r#"{"printed":[{"of":"Ann","order":7}]}"#);
    assert_eq!(whole.run.unwrap().status(), RunStatus::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_reads_its_input_finds_none_where_its_run_was_given_none() {
    let scene = Scene::new().await;
    let script = "test -z \"$(cat)\" && test -z \"${RUNLEDGER_INPUT-}\"";
    let flags = ["--task-thread-id", "thread-1", "--input-on-stdin", "--lease-ttl", LIVING];
    let (code, said) = scene.spawn(&flags, script).exited(SOON).await;
    assert_eq!(code, 0, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_result_fails_the_run_and_a_failed_program_leaves_its_result_all_the_same() {
    for (script, code, reason, result) in [
        ("echo '[1]' >\"$RUNLEDGER_RESULT\"", 1, "RESULT_INVALID", None),
        ("echo '{\"half\": 1}' >\"$RUNLEDGER_RESULT\"; exit 3", 3, "EXIT_STATUS", Some(r#"{"half":1}"#)),
        ("echo '{' >\"$RUNLEDGER_RESULT\"; exit 3", 3, "EXIT_STATUS", None),
        ("echo '{\"a\":\"b\\u0000\"}' >\"$RUNLEDGER_RESULT\"", 1, "RESULT_INVALID", None),
        ("mkfifo \"$RUNLEDGER_RESULT\"", 1, "RESULT_INVALID", None),
    ] {
        let scene = Scene::new().await;
        let (ended, said) = scene.worker(LIVING, script).exited(SOON).await;
        assert_eq!(ended, code, "{said}");
        let whole = scene.whole().await;
        let run = whole.run.unwrap();
        assert_eq!((run.status(), run.reason_code.as_str()), (RunStatus::Failed, reason), "{said}");
        assert_eq!(shown(whole.result.as_ref()).as_deref(), result);
    }
}
