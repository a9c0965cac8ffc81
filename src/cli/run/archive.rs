//! What is done with runs afterwards: `runledger run archive`, `restore` and `redact`.

use clap::Args;

use super::mutations::Mutation;
use crate::cli::exit::{Stop, say};
use runledger_proto::v1;

#[derive(Args, Debug)]
pub(super) struct ArchiveArgs {
    /// The run
    run_id: String,
    #[command(flatten)]
    mutation: Mutation,
}

#[derive(Args, Debug)]
pub(super) struct RedactArgs {
    /// The run
    run_id: String,
    /// What to take out, again and again: /metadata, a JSON pointer below it, /reason, /progress, /input,
    /// /result, /links or /links/REL
    #[arg(long = "path", value_name = "POINTER", required = true)]
    paths: Vec<String>,
    /// Reason, for people; without what is taken out
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    mutation: Mutation,
}

pub(super) async fn archive(args: ArchiveArgs) -> Result<(), Stop> {
    let request = v1::ArchiveRunRequest {
        run_id: args.run_id,
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
    };
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)
}

pub(super) async fn restore(args: ArchiveArgs) -> Result<(), Stop> {
    let request = v1::RestoreRunRequest {
        run_id: args.run_id,
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
    };
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)
}

pub(super) async fn redact(args: RedactArgs) -> Result<(), Stop> {
    let request = v1::RedactRunRequest {
        run_id: args.run_id,
        paths: args.paths,
        reason: args.reason.unwrap_or_default(),
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
    };
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)?;
    match answer.values_redacted {
        Some(0) => say(&format!(
            "0 values were taken out: nothing stands at {}, neither in the run nor in its history; look at the path again",
            request.paths.join(", ")
        )),
        Some(1) => say("1 value was taken out of the run and its history"),
        Some(values) => say(&format!("{values} values were taken out of the run and its history")),
        // An earlier call took out what it did, or the server does not tell.
        None => {}
    }
    Ok(())
}
