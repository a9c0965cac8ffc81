//! `runledger run watch`.

use clap::Args;

use crate::cli::connect::Watched;
use crate::cli::exit::{Stop, exit_codes};
use crate::cli::output::Output;
use crate::cli::view::{self, Happening};
use crate::cli::watch::printed;
use crate::text::count;
use runledger_client::{RunWatch, follow};
use runledger_proto::v1::watch_run_response::Frame;
use runledger_proto::v1::{WatchRunRequest, WatchRunResponse};

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger run watch try-1\n  \
    runledger run watch try-1 --after-revision 0 --output json\n\n\
    Begins with the run as it is, or with the event after --after-revision. Goes on by itself where it was cut, so \
    nothing is missing and nothing comes twice. Ctrl-C ends it with 130.\n",
    exit_codes!()
);

#[derive(Args, Debug)]
pub(super) struct WatchArgs {
    /// The run
    run_id: String,
    /// Begin with the event after this revision; 0 is the whole history
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    after_revision: Option<u64>,
    /// The `ledgerEpoch` of the frame that named the revision, 0 where it named none: a ledger that was restored or
    /// failed over since is told of
    #[arg(long, value_name = "EPOCH", requires = "after_revision", value_parser = count::<u64>)]
    ledger_epoch: Option<u64>,
    /// End with 4 when the stream is cut
    #[arg(long)]
    no_reconnect: bool,
    /// Form of the output [default: table on a terminal, else json]
    #[arg(long, short, value_name = "FORMAT", value_enum)]
    output: Option<Output>,
    #[command(flatten)]
    watched: Watched,
}

pub(super) async fn run(args: WatchArgs) -> Result<(), Stop> {
    let client = args.watched.client()?;
    let WatchArgs { run_id, after_revision, ledger_epoch, .. } = args;
    let request = WatchRunRequest { run_id, after_revision, ledger_epoch };
    let news = follow(client, RunWatch::new(request), !args.no_reconnect);
    Box::pin(printed(news, args.output, (view::EVENTS, view::happening_row), happening)).await
}

fn happening(frame: &WatchRunResponse) -> Option<Happening<'_>> {
    match frame.frame.as_ref()? {
        Frame::Snapshot(snapshot) => snapshot.run.as_ref().map(Happening::Snapshot),
        Frame::Change(change) => Some(Happening::Change(change.event.as_ref()?, change.run.as_ref()?)),
        Frame::Progressed(progressed) => progressed.progress.as_ref().map(Happening::Progress),
        Frame::CaughtUp(_) | Frame::Checkpoint(_) | Frame::End(_) => None,
    }
}
