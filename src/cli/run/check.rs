//! `runledger run check`.

use clap::Args;

use crate::cli::connect::Caller;
use crate::cli::ending::Stop;
use crate::cli::fields::Status;
use crate::cli::output::{Format, Out, Output};
use crate::cli::view;
use runledger_proto::v1;

#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// The run whose status would be left
    #[arg(required_unless_present = "from")]
    run_id: Option<String>,
    /// The status that would be left, of no run in particular
    #[arg(long, value_name = "STATUS", value_enum, conflicts_with = "run_id")]
    from: Option<Status>,
    /// The status that would be reached
    #[arg(long, value_name = "STATUS", value_enum)]
    to: Status,
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(args: CheckArgs) -> Result<(), Stop> {
    let request = v1::CheckTransitionRequest {
        from: args.from.map(|status| v1::RunStatus::from(status).into()),
        to: v1::RunStatus::from(args.to).into(),
        run_id: args.run_id.unwrap_or_default(),
    };
    let answer = args.caller.ask(&mut args.caller.client()?, &request).await?;
    let mut out = Out::new();
    match args.format.output {
        Output::Json => out.json(&answer)?,
        Output::Table => {
            let known = |number, word: fn(i32) -> String| if number == 0 { String::new() } else { word(number) };
            let pairs = [
                ("allowed", if answer.allowed { "yes" } else { "no" }.to_owned()),
                ("from", known(answer.from, view::status)),
                ("disposition", known(answer.disposition, view::disposition)),
                ("reason", answer.reason.clone()),
            ];
            let set = pairs.into_iter().filter(|(_, value)| !value.is_empty());
            out.pairs(&set.map(|(name, value)| vec![name.to_owned(), value]).collect::<Vec<_>>())?;
        }
    }
    out.flush()?;
    if answer.reason.is_empty() { Ok(()) } else { Err(Stop::Unsound) }
}
