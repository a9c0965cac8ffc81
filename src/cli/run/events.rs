//! `runledger run events`.

use clap::Args;

use crate::cli::connect::Caller;
use crate::cli::exit::{Stop, exit_codes, say};
use crate::cli::fields::at_least_one;
use crate::cli::output::{Format, Out, Output};
use crate::cli::table::Table;
use crate::cli::view;
use crate::cli::words::Times;
use crate::clock::{Clock as _, SystemClock};
use runledger_proto::v1;

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger run events try-1\n  \
    runledger run events try-1 --all --output json\n\n",
    exit_codes!()
);

/// The most that a page holds.
pub(super) const PAGE_MAX: u64 = 1_000;

#[derive(Args, Debug)]
pub(super) struct EventsArgs {
    /// The run
    run_id: String,
    /// Number of events at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one)]
    limit: u64,
    /// All events
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(args: EventsArgs) -> Result<(), Stop> {
    let mut client = args.caller.client()?;
    let mut out = Out::new();
    let (times, columns) = match out.width {
        Some(_terminal) => (Times::Ages(SystemClock.now()), view::EVENTS_BY_AGE),
        None => (Times::Whole, view::EVENTS),
    };
    let mut table = Table::new(columns, out.width);
    let mut left = if args.all { u64::MAX } else { args.limit };
    let mut request = v1::ListRunEventsRequest { run_id: args.run_id.clone(), ..v1::ListRunEventsRequest::default() };
    let mut first = true;
    loop {
        request.page_size = page_size(left);
        let page = args.caller.ask(&mut client, &request).await?;
        left = left.saturating_sub(page.events.len() as u64);
        match args.format.output {
            Output::Json => page.events.iter().try_for_each(|event| out.json(event))?,
            Output::Table => {
                let rows: Vec<_> = page.events.iter().map(|event| view::event_row(event, times)).collect();
                out.rows(&mut table, &rows, first)?;
            }
        }
        out.flush()?;
        first = false;
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            return Ok(());
        }
        if left == 0 {
            say("there are more events: --all shows them");
            return Ok(());
        }
    }
}

/// As much as is wanted, and as a page holds.
pub(super) fn page_size(left: u64) -> i32 {
    i32::try_from(left.min(PAGE_MAX)).expect("a page is small")
}
