//! `runledger run heartbeat`.

use clap::Args;

use super::parts::ending::abort_request;
use crate::cli::connect::Caller;
use crate::cli::exit::{Stop, exit_codes};
use crate::cli::output::{Format, Out, Output};
use crate::cli::words::at;
use crate::text::{MaybeEmpty, count};
use runledger_proto::v1;

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger run heartbeat run-3 --lease-epoch 1\n  \
    runledger run heartbeat run-3 --lease-epoch 1 --done 3 --total 10 --message fetching\n\n",
    exit_codes!()
);

#[derive(Args, Debug)]
pub(super) struct HeartbeatArgs {
    /// The run
    run_id: String,
    /// The epoch of the lease that you hold
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    lease_epoch: u64,
    /// Amount of work that is done
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    done: Option<u64>,
    /// Amount of all the work
    #[arg(long, value_name = "N", requires = "done", value_parser = count::<u64>)]
    total: Option<u64>,
    /// Text on the work in hand; empty for none
    #[arg(long, value_name = "TEXT", requires = "done")]
    message: Option<MaybeEmpty>,
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(args: HeartbeatArgs) -> Result<(), Stop> {
    let progress = args.done.map(|done| v1::Progress {
        done,
        total: args.total.unwrap_or_default(),
        message: args.message.unwrap_or_default().0,
        at: None,
    });
    let request = v1::HeartbeatRunRequest { run_id: args.run_id, lease_epoch: args.lease_epoch, progress };
    let answer = args.caller.ask(&mut args.caller.client()?, &request).await?;
    let mut out = Out::new();
    match args.format.output {
        Output::Json => out.json(&answer)?,
        Output::Table => {
            let pairs = [
                ("revision", answer.revision.to_string()),
                ("expires at", at(answer.expires_at.as_ref())),
                ("abort request", answer.abort_request.as_ref().map(abort_request).unwrap_or_default()),
            ];
            let set = pairs.into_iter().filter(|(_, value)| !value.is_empty());
            out.pairs(&set.map(|(name, value)| vec![name.to_owned(), value]).collect::<Vec<_>>())?;
        }
    }
    Ok(out.flush()?)
}
