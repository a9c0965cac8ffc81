//! The text of each command's help that stands after the flags. A test runs every example.

use super::super::exit::exit_codes;

/// Of `runledger run` itself.
pub(in super::super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger run start --task-thread-id thread-1 --run-id try-1\n  \
    runledger run complete try-1\n  \
    runledger run list --context local\n\n\
    `runledger context` names servers with their TLS, token and namespace.\n",
    exit_codes!()
);

/// The paragraph on safe repetition of a mutation.
macro_rules! once {
    () => {
        "A call that is cut off is sent again with the same request id until --timeout, so it is made once or not at \
         all. Without --request-id each invocation draws its own.\n\n"
    };
}

pub(super) const START: &str = concat!(
    "Examples:\n  \
    runledger run start --task-thread-id thread-1\n  \
    runledger run start --task-thread-id thread-1 --run-id try-1 --route mcp --label team=search\n  \
    runledger run start --task-thread-id thread-1 --deferred --metadata '{\"page\": \"a\"}'\n  \
    echo '{\"url\": \"https://example.com\"}' | runledger run start --task-thread-id thread-1 --input -\n\n\
    A run that is already running stays as it is, and the command succeeds: see the disposition.\n",
    once!(),
    exit_codes!()
);

pub(super) const UPDATE: &str = concat!(
    "Examples:\n  \
    runledger run update try-1 --label team=search --metadata '{\"step\": 2, \"page\": null}'\n  \
    runledger run update try-1 --metadata @metadata.json --expected-revision 1\n  \
    echo '{\"step\": 3}' | runledger run update try-1 --metadata - --tab-group-id ''\n\n\
    Flags that are not given leave their field alone, an empty ID clears it.\n",
    once!(),
    exit_codes!()
);

pub(super) const COMPLETE: &str = concat!(
    "Example:\n  \
    runledger run complete try-1 --metadata '{\"pages\": 3}'\n  \
    echo '{\"found\": 3}' | runledger run complete try-1 --result -\n  \
    runledger run complete try-1 --phase approved --link artifact=s3://bucket/report.pdf\n\n",
    once!(),
    exit_codes!()
);

pub(super) const LINK: &str = concat!(
    "Example:\n  \
    runledger run link try-1 artifact s3://bucket/report.pdf --media-type application/pdf\n\n\
    A link with the same REL and TARGET once more changes nothing. At most 64 a run.\n",
    once!(),
    exit_codes!()
);

pub(super) const ABORT: &str = concat!(
    "Example:\n  \
    runledger run abort try-1 --reason-code USER_CANCELLED\n\n\
    A run that has ended stays as it is, and the command succeeds: see the disposition.\n",
    once!(),
    exit_codes!()
);

pub(super) const FAIL: &str = concat!(
    "Example:\n  \
    runledger run fail try-1 --failure-reason 'the tab crashed' --reason-code CDP_DISCONNECT\n\n\
    A run that has ended stays as it is, and the command succeeds: see the disposition.\n",
    once!(),
    exit_codes!()
);

pub(super) const CLAIM: &str = concat!(
    "Examples:\n  \
    runledger run claim run-2 --lease-ttl 30s\n  \
    runledger run claim run-2 --max-running instance=1\n\n\
    The answer names the epoch of the lease: every later call of its holder gives it. Send a heartbeat every third of \
    the ttl.\n",
    once!(),
    exit_codes!()
);

pub(super) const CLAIM_NEXT: &str = concat!(
    "Examples:\n  \
    runledger run claim-next --label team=search --wait 1s\n  \
    runledger run claim-next --max-running instance=1 --lease-ttl 1m --output json\n  \
    runledger run claim-next --take both --wait 1s\n\n\
    Each run is for one caller. The answer names the run and the epoch of its lease: send a heartbeat every third of the \
    ttl, or give the run back by `runledger run release --not-begun`. A claim that is cut off is made \
    again under the same request id, so no run is taken for an answer that gets lost. No run to claim within --wait: 4. `runledger run \
    worker --claim` does all of it for a program.\n",
    exit_codes!()
);

pub(super) const CHECK: &str = concat!(
    "Examples:\n  \
    runledger run check try-1 --to completed\n  \
    runledger run check --from pending --to running\n\n\
    Changes nothing. `transition` says whether the statuses allow it, and `answer` how the call would be answered: this \
    command ends with 1 where that is a refusal. It looks at the run's status and, as of the acting agent (--as), at \
    its owner; not at leases, revisions or what else the call may say.\n",
    exit_codes!()
);

pub(super) const RELEASE: &str = concat!(
    "Example:\n  \
    runledger run release run-3 --lease-epoch 1\n  \
    runledger run release run-4 --lease-epoch 1 --not-begun\n\n\
    Whoever claims the run within one ttl goes on with it; else it ends as failed. Given back with --not-begun, it \
    waits for the next claim like a pending run.\n",
    once!(),
    exit_codes!()
);

pub(super) const HEARTBEAT: &str = concat!(
    "Examples:\n  \
    runledger run heartbeat run-3 --lease-epoch 1\n  \
    runledger run heartbeat run-3 --lease-epoch 1 --done 3 --total 10 --message fetching\n\n",
    exit_codes!()
);

pub(super) const REQUEST_ABORT: &str = concat!(
    "Examples:\n  \
    runledger run request-abort try-1 --reason 'wrong page'\n  \
    runledger run request-abort try-1 --grace 30s\n\n\
    Its worker hears of it with the next heartbeat. With --grace, the authority ends the run by itself after that.\n",
    once!(),
    exit_codes!()
);

pub(super) const SUSPEND: &str = concat!(
    "Examples:\n  \
    runledger run suspend run-3 --kind HELP --reason 'which account?' --lease-epoch 1\n  \
    runledger run suspend try-1 --kind PAUSED --reason 'not during the release' --suspend-timeout 2d\n\n\
    The run stays RUNNING; nobody holds it, nothing of it expires, and its --run-timeout stands still. Another kind or \
    reason replaces the whole suspension, with its times and its hint; the same is `unchanged`. It stops no process that does not ask: a worker \
    hears of it by its next call, which is refused as RUN_SUSPENDED. `runledger run list --suspended` shows what waits.\n",
    once!(),
    exit_codes!()
);

pub(super) const RESUME: &str = concat!(
    "Examples:\n  \
    runledger run resume try-1 --reason 'account 7'\n  \
    runledger run resume try-1 --reason 'account 7' --lease-ttl 1m\n\n\
    Without --lease-ttl, the run is ready: the next worker takes it by `runledger run claim-next --take ready`. A run that \
    never had a lease goes on as it is. In a phase that suspends, --phase says which one it goes on in.\n",
    once!(),
    exit_codes!()
);

pub(super) const ARCHIVE: &str = concat!(
    "Examples:\n  \
    runledger run archive try-1\n  \
    runledger run list --only-archived\n\n\
    Nothing is deleted: run get, run events and the watches show the run as before.\n",
    once!(),
    exit_codes!()
);

pub(super) const REDACT: &str = concat!(
    "Examples:\n  \
    runledger run redact try-1 --path /metadata/customer/email --reason \"not to be kept\"\n  \
    runledger run redact try-1 --path /reason --path /progress\n\n\
    What is taken out is gone for good: from the run, from every event, from every later export and watch. Copies that the \
    store itself has kept are another matter: see docs/redaction.md.\n",
    once!(),
    exit_codes!()
);

pub(super) const RESTORE: &str = concat!("Example:\n  runledger run restore try-1\n", once!(), exit_codes!());

pub(super) const WORKER: &str = concat!(
    "Examples:\n  \
    runledger run worker --task-thread-id thread-1 -- bash -c 'echo ::progress 1/2 fetching; sleep 1'\n  \
    runledger run worker --claim --label team=search --idle 1s -- ./crawl\n  \
    runledger run worker --claim --max-running instance=1 --idle 1s -- ./crawl\n  \
    runledger run worker --claim --resumable --idle 1s -- ./crawl\n\n\
    The program finds what the run was given in the file RUNLEDGER_INPUT (--input-on-stdin: on standard input), and may \
    write what comes of it, a JSON object of 65,536 bytes at most, to the file RUNLEDGER_RESULT. It finds RUNLEDGER_RUN_ID, RUNLEDGER_TASK_THREAD_ID, RUNLEDGER_LABELS and RUNLEDGER_METADATA (JSON \
    objects, as they were when it began), RUNLEDGER_LEASE_EPOCH and RUNLEDGER_SERVER (as --server has it) in its environment; \
    and where the run goes on after a suspension, RUNLEDGER_PHASE and RUNLEDGER_SUSPENSION: how it was left, as JSON (kind, reason, resumeHint, \
    resumeReason). Two lines of \
    its standard output are for the worker, and are not passed on:\n  \
    ::progress DONE[/TOTAL] [MESSAGE]  how far it is\n  \
    ::completed                        the run is done, although the program was told to end\n\n\
    As the program ends, so does the run:\n  \
    COMPLETED                  with 0 by itself; with 0 after it was told to end, and ::completed\n  \
    suspended                  with 75: by --suspend-kind, for its last line on standard error\n  \
    suspended / INTERRUPTED    with 75 after it was told to end\n  \
    FAILED / EXIT_STATUS       otherwise by itself; the reason is its last words on standard error\n  \
    FAILED / RESULT_INVALID    with 0 by itself, and what it left is no result\n  \
    FAILED / SPAWN_FAILED      it could not be started; the worker ends with 1\n  \
    ABORTED / ABORT_REQUESTED  somebody had asked for the run to be aborted\n  \
    ABORTED / WORKER_STOPPED   this worker had been told to end: SIGTERM, SIGHUP or Ctrl-C\n\n\
    A run that is somebody else's by then, has ended or is suspended stays as it is. The program, and all that it started and \
    that is still in its process group, are told to end by SIGTERM, and by SIGKILL where something is still there after \
    --kill-after; also where this worker is killed by force, then after half of the ttl at the latest, and the run ends \
    as FAILED / ORPHANED. What begins a session of its own (`setsid`, a daemon) is left alone.\n\n",
    "Once a program has run, the worker ends with:\n  \
    the program's own  without --claim\n  \
    128 + the signal   a signal ended the program (without --claim), or this worker\n  \
    1                  without --claim: it ended with 0, and what it left is no result\n  \
    143                without --claim: told to end, it ended with 0, and the run is not completed\n  \
    0                  with --claim: after --runs or --idle, however the runs ended\n\n\
    Where no program has run, or the run's end could not be reported:\n",
    exit_codes!()
);

pub(super) const GET: &str = concat!(
    "Examples:\n  \
    runledger run get try-1\n  \
    runledger run get run-2 --queue-label instance\n  \
    runledger run get try-1 --links\n  \
    runledger run get try-1 --output json\n\n",
    exit_codes!()
);

pub(super) const EVENTS: &str = concat!(
    "Examples:\n  \
    runledger run events try-1\n  \
    runledger run events try-1 --all --output json\n\n",
    exit_codes!()
);

pub(super) const LIST: &str = concat!(
    "Examples:\n  \
    runledger run list --status running,pending --agent-id agent-7\n  \
    runledger run list --label team=search --started-from 2026-11-22T00:00:00Z --all --output json\n\n\
    On a terminal times are ages and what is too wide is cut; elsewhere everything is shown.\n",
    exit_codes!()
);

pub(super) const COUNT: &str = concat!(
    "Examples:\n  \
    runledger run count\n  \
    runledger run count --status failed --workflow-id checkout\n\n\
    Counts are of the newest runs only where there are very many: a line on stderr says so.\n",
    exit_codes!()
);

pub(super) const WATCH: &str = concat!(
    "Examples:\n  \
    runledger run watch try-1\n  \
    runledger run watch try-1 --after-revision 0 --output json\n\n\
    Begins with the run as it is, or with the event after --after-revision. Goes on by itself where it was cut, so \
    nothing is missing and nothing comes twice. Ctrl-C ends it with 130.\n",
    exit_codes!()
);

pub(super) const WAIT: &str = concat!(
    "Examples:\n  \
    runledger run wait try-1\n  \
    runledger run wait try-1 --timeout 30m --output json\n\n\
    Shows the run when it has ended, however it has. Goes on by itself where it was cut. Still not ended after \
    --timeout: 4, and the run is not shown. Ctrl-C ends it with 130.\n",
    exit_codes!()
);
