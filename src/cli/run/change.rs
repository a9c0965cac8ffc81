//! Changes of runs: each is sent, and its answer shown.

use super::mutation::Mutation;
use super::parts::rows;
use crate::cli::exit::Stop;
use crate::cli::output::{Out, Output, RunFormat, RunOutput};
use crate::cli::words;
use crate::clock;
use runledger_proto::json::Named;
use runledger_proto::methods::RunMutation;
use runledger_proto::v1;

/// Makes a call that changes a run, and shows its answer. The request is but for what the flags of every mutation say.
pub(super) async fn change<R: RunMutation>((mut request, mutation): (R, Mutation)) -> Result<(R, R::Answer), Stop> {
    let request_id = mutation.request_id.unwrap_or_else(|| format!("cli-{}", clock::draw_id()));
    request.set_terms(request_id, mutation.expected_revision);
    let answer = mutation.caller.ask(&mut mutation.caller.client()?, &request).await?;
    let (run, disposition) = R::outcome(&answer);
    show(&mutation.format, &answer, run, disposition)?;
    Ok((request, answer))
}

/// Shows an answer with a run.
pub(super) fn show<A: Named>(
    format: &RunFormat,
    answer: &A,
    run: Option<&v1::Run>,
    disposition: i32,
) -> Result<(), Stop> {
    show_all(format, answer, run, disposition)
}

/// Shows an answer with any number of runs.
pub(super) fn show_all<'a, A: Named>(
    format: &RunFormat,
    answer: &A,
    runs: impl IntoIterator<Item = &'a v1::Run>,
    disposition: i32,
) -> Result<(), Stop> {
    let mut out = Out::new();
    match format.output() {
        RunOutput::Ids => runs.into_iter().try_for_each(|run| out.line(&run.run_id))?,
        RunOutput::As(Output::Json) => out.json(answer)?,
        RunOutput::As(Output::Table) => {
            let disposition = vec!["disposition".to_owned(), words::disposition(disposition)];
            out.pairs(&std::iter::once(disposition).chain(runs.into_iter().flat_map(rows)).collect::<Vec<_>>())?;
        }
    }
    Ok(out.flush()?)
}
