//! `runledger run list` and `runledger run count`.

use clap::Args;

use super::events::page_size;
use crate::cli::connect::Caller;
use crate::cli::exit::{Stop, exit_codes, say};
use crate::cli::fields::at_least_one;
use crate::cli::filter::Filter;
use crate::cli::output::{Format, Out, Output, RunFormat, RunOutput};
use crate::cli::table::Table;
use crate::cli::view;
use crate::cli::words::{Times, status};
use crate::clock::{Clock as _, SystemClock};
use runledger_proto::v1;

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

#[derive(Args, Debug)]
pub(super) struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    /// Number of runs at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = at_least_one)]
    limit: u64,
    /// All runs
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// With their metadata; needs --output json
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: RunFormat,
}

#[derive(Args, Debug)]
pub(super) struct CountArgs {
    #[command(flatten)]
    filter: Filter,
    /// Count the suspended ones by what they wait for as well
    #[arg(long)]
    by_suspension: bool,
    /// Count them by phase as well
    #[arg(long)]
    by_phase: bool,
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(args: ListArgs) -> Result<(), Stop> {
    if args.full && args.format.output() != RunOutput::As(Output::Json) {
        return Err(Stop::Usage("--full shows the metadata of runs in JSON only: add --output json".to_owned()));
    }
    let mut client = args.caller.client()?;
    let mut out = Out::new();
    let mut table = Table::new(view::RUNS, out.width);
    let times = out.width.map_or(Times::Whole, |_terminal| Times::Ages(SystemClock.now()));
    let view = if args.full { v1::RunView::Full } else { v1::RunView::Basic };
    let mut left = if args.all { u64::MAX } else { args.limit };
    let mut request = v1::ListRunsRequest {
        filter: Some(args.filter.message()?),
        view: view.into(),
        ..v1::ListRunsRequest::default()
    };
    let mut first = true;
    loop {
        request.page_size = page_size(left);
        let page = args.caller.ask(&mut client, &request).await?;
        left = left.saturating_sub(page.runs.len() as u64);
        match args.format.output() {
            RunOutput::Ids => page.runs.iter().try_for_each(|run| out.line(&run.run_id))?,
            RunOutput::As(Output::Json) => page.runs.iter().try_for_each(|run| out.json(run))?,
            RunOutput::As(Output::Table) => {
                let rows: Vec<_> = page.runs.iter().map(|run| view::run_row(run, times)).collect();
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
            say("there are more runs: --all shows them");
            return Ok(());
        }
    }
}

pub(super) async fn count(args: CountArgs) -> Result<(), Stop> {
    let mut client = args.caller.client()?;
    let (by_phase, by_suspension) = (args.by_phase, args.by_suspension);
    let request = v1::CountRunsRequest { filter: Some(args.filter.message()?), by_phase, by_suspension };
    let answer = args.caller.ask(&mut client, &request).await?;
    let mut out = Out::new();
    match args.format.output {
        Output::Json => out.json(&answer)?,
        Output::Table => {
            let counts = answer.counts.iter().map(|counted| (status(counted.status), counted.count));
            let total = answer.counts.iter().map(|counted| counted.count).sum();
            let of_phase = |phase: &str| match phase {
                "" => "without a phase".to_owned(),
                phase => format!("phase {phase}"),
            };
            let phases = answer.phases.iter().map(|counted| (of_phase(&counted.phase), counted.count));
            let others = (answer.other_phases > 0).then(|| ("other phases".to_owned(), answer.other_phases));
            let kinds = answer.suspensions.iter().map(|it| (format!("suspended {}", it.kind), it.count));
            let rest =
                (answer.other_suspensions > 0).then(|| ("suspended otherwise".to_owned(), answer.other_suspensions));
            let rows = counts.chain([("total".to_owned(), total)]).chain(phases).chain(others).chain(kinds).chain(rest);
            out.pairs(&rows.map(|(name, count)| vec![name, count.to_string()]).collect::<Vec<_>>())?;
        }
    }
    out.flush()?;
    if answer.truncated {
        say("there are more runs: the counts are of the newest ones");
    }
    Ok(())
}
