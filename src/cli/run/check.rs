//! `runledger run check`.

use clap::{ArgGroup, Args};

use crate::cli::connect::Caller;
use crate::cli::exit::{Stop, exit_codes};
use crate::cli::fields::Status;
use crate::cli::output::{Format, Out, Output};
use crate::cli::words;
use runledger_proto::v1;

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger run check try-1 --to completed\n  \
    runledger run check --from pending --to running\n\n\
    Changes nothing. `transition` says whether the statuses allow it, and `answer` how the call would be answered: this \
    command ends with 1 where that is a refusal. It looks at the run's status and, as of the acting agent (--as), at \
    its owner; not at leases, revisions or what else the call may say.\n",
    exit_codes!()
);

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("left").args(["run_id", "from"]).required(true))]
pub(super) struct CheckArgs {
    /// The run whose status would be left
    run_id: Option<String>,
    /// The status that would be left, of no run in particular
    #[arg(long, value_name = "STATUS", value_enum)]
    from: Option<Status>,
    /// The status that would be reached
    #[arg(long, value_name = "STATUS", value_enum, required_unless_present = "to_phase")]
    to: Option<Status>,
    /// The phase that would be reached, by `run update` or on the way to --to
    #[arg(long, value_name = "PHASE", requires = "run_id")]
    to_phase: Option<String>,
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(args: CheckArgs) -> Result<(), Stop> {
    let request = v1::CheckTransitionRequest {
        from: args.from.map(|status| v1::RunStatus::from(status).into()),
        to: args.to.map_or(v1::RunStatus::Unspecified, v1::RunStatus::from).into(),
        run_id: args.run_id.unwrap_or_default(),
        to_phase: args.to_phase.unwrap_or_default(),
    };
    let answer = args.caller.ask(&mut args.caller.client()?, &request).await?;
    let mut out = Out::new();
    match args.format.output {
        Output::Json => out.json(&answer)?,
        Output::Table => {
            let from = if answer.from == 0 { "no run".to_owned() } else { words::status(answer.from) };
            let status = if request.to == 0 { String::new() } else { words::status(request.to) };
            let to =
                [status, request.to_phase].into_iter().filter(|to| !to.is_empty()).collect::<Vec<_>>().join(", phase ");
            let to = if request.to == 0 { format!("phase {to}") } else { to };
            let answered = match answer.reason.as_str() {
                "" => format!("accepted: {}", words::disposition(answer.disposition)),
                reason => format!("refused: {reason}"),
            };
            let pairs = [
                ("from", from),
                ("to", to),
                ("transition", if answer.allowed { "allowed" } else { "not allowed" }.to_owned()),
                ("answer", answered),
            ];
            let allowed = (!answer.allowed_phases.is_empty()).then(|| ("phases", answer.allowed_phases.join(" ")));
            let pairs = pairs.into_iter().chain(allowed).map(|(name, value)| vec![name.to_owned(), value]);
            out.pairs(&pairs.collect::<Vec<_>>())?;
        }
    }
    out.flush()?;
    if answer.reason.is_empty() { Ok(()) } else { Err(Stop::Unsound) }
}
