//! The help of `runledger run worker`, after its flags.

use crate::cli::exit::exit_codes;

pub(in crate::cli::run) const HELP: &str = concat!(
    "Examples:\n  \
    runledger run worker --task-thread-id thread-1 -- bash -c 'echo ::progress 1/2 fetching; sleep 1'\n  \
    runledger run worker --claim --label team=search --idle 1s -- ./crawl\n  \
    runledger run worker --claim --max-running instance=1 --idle 1s -- ./crawl\n  \
    runledger run worker --claim --resumable --idle 1s -- ./crawl\n\n\
    The program finds what the run was given in the file RUNLEDGER_INPUT (--input-on-stdin: on standard input), and may \
    write what comes of it, a JSON object of 65,536 bytes at most, to the file RUNLEDGER_RESULT. It finds RUNLEDGER_RUN_ID, RUNLEDGER_TASK_THREAD_ID, RUNLEDGER_LABELS and RUNLEDGER_METADATA (JSON \
    objects, as they were when it began), RUNLEDGER_LEASE_EPOCH, RUNLEDGER_ATTEMPT (from 1), RUNLEDGER_LAST_FAILURE (how the attempt before failed, as JSON: attempt, \
    reasonCode, failureReason) and RUNLEDGER_SERVER (as --server has it) in its environment; \
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
    While attempts are left (run start --max-attempts), a run that would be FAILED, and one whose worker was told to end, goes \
    on with the next claim; a program that ends with 76 says that another attempt would fail as well.\n\n\
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
