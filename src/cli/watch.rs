//! `runledger watch`, and how a watch is printed line by line.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tokio::task::consume_budget;
use tokio::time::timeout;

use super::connect::Watched;
use super::exit::{Stop, exit_codes, say};
use super::filter::Filter;
use super::output::{Out, Output, terminal};
use super::table::{Column, Table};
use super::view::{self, Happening};
use super::words::Times;
use super::{live, screen};
use crate::clock::{Clock as _, SystemClock};
use crate::text::limit;
use runledger_client::Failure;
use runledger_client::{News, RunsWatch, follow};
use runledger_proto::json::Named;
use runledger_proto::v1::watch_runs_request::Initial as WireInitial;
use runledger_proto::v1::watch_runs_response::Frame;
use runledger_proto::v1::{WatchRunsRequest, WatchRunsResponse};

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger watch --for 1h\n  \
    runledger watch --status failed --initial all --for 10m\n  \
    runledger watch --label team=search --output json --for 10m > changes.jsonl\n\n\
    On a terminal it is a live table of the runs that changed last, with counts of what this watch has shown; elsewhere one line of JSON \
    for each frame (--output says otherwise). Goes on by itself where it was cut, so nothing is missing and nothing \
    comes twice: for ever, unless --for or --no-reconnect ends it. A run that leaves the filter is shown once more. \
    When the ledger was restored or failed over, or runs were purged before they were shown, it says so and begins \
    again by itself. \
    To go on later, pass the cursor of the last line to --cursor; one that the server does not take any more ends the \
    watch with 1. A server that is not there at first ends it with 3 at once. --for ends it with 0; with 4 where the \
    server has not answered, or was lost and is not back.\n",
    exit_codes!("; 130 after Ctrl-C, and 128 and its number after another signal")
);

/// The runs that a watch shows before it shows changes.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Initial {
    /// The matching runs that have not ended
    Active,
    /// All matching runs
    All,
    /// Changes from now on
    None,
}

#[derive(Args, Debug)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    filter: Filter,
    /// Runs to show first
    #[arg(long, value_name = "RUNS", value_enum, default_value = "active")]
    initial: Initial,
    /// Go on behind this cursor of an earlier watch
    #[arg(long, value_name = "CURSOR", conflicts_with = "initial")]
    cursor: Option<String>,
    /// End after this time: seconds, or such as 90s or 8h. With 0, or with 4 where the server has not answered, or was
    /// lost and is not back
    #[arg(long = "for", value_name = "DURATION", value_parser = limit)]
    time: Option<Duration>,
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
    let server = client.servers();
    let initial = match args.initial {
        Initial::Active => WireInitial::Active,
        Initial::All => WireInitial::All,
        Initial::None => WireInitial::None,
    };
    let request = WatchRunsRequest {
        filter: Some(args.filter.message()?),
        initial: initial.into(),
        cursor: args.cursor.unwrap_or_default(),
    };
    let there = Arc::new(AtomicBool::new(false));
    let news = follow(client, RunsWatch::new(request), !args.no_reconnect).inspect({
        let there = there.clone();
        move |news| {
            let answers = matches!(news, Ok(News::Frame(_) | News::Found | News::Restored | News::Expired));
            there.store(answers, Ordering::Relaxed);
        }
    });
    let named = server.clone();
    let watched = Box::pin(async {
        if terminal().is_some() && args.output != Some(Output::Json) {
            Box::pin(screen::show(news, live::Board::new(server))).await
        } else {
            Box::pin(printed(news, args.output, (view::FRAMES, view::frame_row), happening)).await
        }
    });
    match args.time {
        None => watched.await,
        Some(time) => match timeout(time, watched).await {
            Ok(watched) => watched,
            Err(_elapsed) if there.load(Ordering::Relaxed) => Ok(()),
            Err(_elapsed) => Err(Stop::TimedOut(format!("the time is over, and {named} is not there"))),
        },
    }
}

/// The part of a frame of all runs' watch that is shown.
pub(super) fn happening(frame: &WatchRunsResponse) -> Option<Happening<'_>> {
    match frame.frame.as_ref()? {
        Frame::Snapshot(snapshot) => snapshot.run.as_ref().map(Happening::Snapshot),
        Frame::Change(change) => Some(Happening::Change(change.event.as_ref()?, change.run.as_ref()?)),
        Frame::CaughtUp(_) | Frame::Checkpoint(_) => None,
    }
}

/// The state of the connection, as the user was last told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    There,
    /// A server sends its watchers away now and then, who come back at once: that is nothing to be told.
    SentAway,
    Lost,
}

impl Link {
    /// An outage is said once, however often it is tried to end it.
    fn lost(self, failure: &Failure) -> Self {
        if self == Self::There && failure.reason.as_deref() == Some("DRAINING") {
            return Self::SentAway;
        }
        if self != Self::Lost {
            say(&format!("{failure} (trying again)"));
        }
        Self::Lost
    }
}

/// The function that turns a frame into a row.
type Row = fn(&Happening<'_>, Times) -> Vec<String>;

/// Prints a watch to its end: every frame as JSON, or a row for everything that happened. Without an `output` that
/// depends on whether somebody is looking.
pub(super) async fn printed<F: Named>(
    news: impl Stream<Item = Result<News<F>, Failure>>,
    output: Option<Output>,
    (columns, row): (&'static [Column], Row),
    happening: impl for<'a> Fn(&'a F) -> Option<Happening<'a>>,
) -> Result<(), Stop> {
    let mut out = Out::patient();
    let by_default = if out.width.is_some() { Output::Table } else { Output::Json };
    let mut table = Table::new(columns, out.width);
    let mut first = true;
    let mut link = Link::There;
    let mut news = pin!(news);
    loop {
        // Written out whenever there is nothing more to write for now.
        let next = if let Some(next) = news.next().now_or_never() {
            next
        } else {
            out.written().await?;
            news.next().await
        };
        if out.is_full() {
            out.written().await?;
        }
        // A stream that always has more does not keep `--for` from its turn.
        consume_budget().await;
        match next {
            Some(Ok(News::Frame(frame))) => match output.unwrap_or(by_default) {
                Output::Json => out.json(&frame)?,
                Output::Table => {
                    if let Some(happening) = happening(&frame) {
                        let times = out.width.map_or(Times::Whole, |_terminal| Times::Clock(SystemClock.now()));
                        out.rows(&mut table, &[row(&happening, times)], first)?;
                        first = false;
                    }
                }
            },
            Some(Ok(News::Lost(failure))) => link = link.lost(&failure),
            Some(Ok(News::Found)) => {
                if link == Link::Lost {
                    say("the server is back");
                }
                link = Link::There;
            }
            Some(Ok(News::Restored)) => {
                link = Link::There;
                say("the ledger was restored or failed over: what was shown may be lost, and the watch begins again");
            }
            Some(Ok(News::Expired)) => {
                link = Link::There;
                say("runs were purged before they were shown, and the watch begins again");
            }
            Some(Err(failure)) => {
                out.written().await?;
                return Err(failure.into());
            }
            None => return Ok(out.written().await?),
        }
    }
}
