//! `runledger run wait`.

use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep};

use super::parts::rows;
use crate::cli::connect::{CALL_WAIT_MAX, Server};
use crate::cli::exit::{Stop, exit_codes, say};
use crate::cli::output::{Out, Output, RunFormat, RunOutput};
use crate::text::seconds_or_duration;
use runledger_client::Kind;
use runledger_proto::v1;

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger run wait try-1\n  \
    runledger run wait try-1 --timeout 30m --output json\n\n\
    Shows the run when it has ended, however it has. Goes on by itself where it was cut. Still not ended after \
    --timeout: 4, and the run is not shown. Ctrl-C ends it with 130.\n",
    exit_codes!()
);

/// Time that one call waits. A connection that died in silence is noticed at its end, at the latest.
const CALL_MAX: Duration = Duration::from_mins(5);
/// Time by which an answer may be later than the end that was asked for.
const LATE_MAX: Duration = Duration::from_millis(500);
/// Wait before a `WaitRun` that was cut is made again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub(super) struct WaitArgs {
    /// The run
    run_id: String,
    /// Time to wait: seconds, or such as 30m [default: as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    timeout: Option<Duration>,
    /// Wait until it has ended, or is suspended so that somebody has to do something
    #[arg(long)]
    or_suspended: bool,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    format: RunFormat,
}

pub(super) async fn run(args: WaitArgs) -> Result<(), Stop> {
    let mut client = args.server.client()?;
    let end = args.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let (mut answered, mut lost) = (false, false);
    loop {
        let left = end.map_or(CALL_MAX, |end| end.saturating_duration_since(Instant::now()));
        let request = v1::WaitRunRequest {
            run_id: args.run_id.clone(),
            until: if args.or_suspended { v1::WaitUntil::Suspended } else { v1::WaitUntil::Terminal }.into(),
            timeout: Some(left.min(CALL_MAX).try_into().map_err(|_| Stop::Usage("--timeout is too long".to_owned()))?),
        };
        let asked = Instant::now();
        let call_end = asked + left.min(CALL_MAX) + CALL_WAIT_MAX;
        match client.ask(&request, end.map_or(call_end, |end| call_end.min(end + LATE_MAX))).await {
            Ok(answer) if !answer.timed_out => return show(&args, &answer),
            // The server may wait for less than it was asked to.
            Ok(_) => (answered, lost) = (true, false),
            Err(failure) if failure.kind == Kind::Refused => return Err(failure.into()),
            // No server was ever reached. A call that was cut, or that a server answered for itself, had reached one.
            Err(failure) if failure.kind == Kind::Unreachable && failure.reason.is_none() && !answered => {
                return Err(failure.into());
            }
            Err(failure) => {
                let left = end.map_or(CALL_MAX, |end| end.saturating_duration_since(Instant::now()));
                if !lost && !left.is_zero() {
                    say(&format!("{failure} (trying again)"));
                }
                (answered, lost) = (true, true);
                sleep(left.min(AGAIN_AFTER)).await;
            }
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            if lost {
                let sentence = format!("no answer; whether run {} has ended is not known", args.run_id);
                return Err(Stop::TimedOut(sentence));
            }
            let waited = args.timeout.unwrap_or_default();
            let what = if args.or_suspended { "has not ended, nor been suspended," } else { "has not ended" };
            return Err(Stop::TimedOut(format!("run {} {what} after {waited:?}", args.run_id)));
        }
    }
}

fn show(args: &WaitArgs, answer: &v1::WaitRunResponse) -> Result<(), Stop> {
    let mut out = Out::new();
    match args.format.output() {
        RunOutput::Ids => out.line(&answer.run.as_ref().unwrap_or(&v1::Run::default()).run_id)?,
        RunOutput::As(Output::Json) => out.json(answer)?,
        RunOutput::As(Output::Table) => {
            out.pairs(&rows(answer.run.as_ref().unwrap_or(&v1::Run::default())))?;
        }
    }
    Ok(out.flush()?)
}
