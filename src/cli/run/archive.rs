//! What is done with runs afterwards: `runledger run archive`, `restore` and `redact`.

use clap::Args;
use serde_json::Value;

use super::mutations::Mutation;
use crate::cli::ending::{Stop, say};
use runledger_proto::{Struct, json, v1};

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
    let run = answer.run.unwrap_or_default();
    for path in request.paths.iter().filter(|path| is_nowhere(path, run.metadata.as_ref())) {
        say(&format!("the run has nothing at {path}: if its history had, that is gone; else look at the path again"));
    }
    Ok(())
}

/// Whether a path leads to no value of the metadata after a redaction, which leaves a mark in the place of each.
fn is_nowhere(path: &str, metadata: Option<&Struct>) -> bool {
    let Some(within) = path.strip_prefix("/metadata/") else { return false };
    let metadata = Value::Object(metadata.map(json::map).unwrap_or_default());
    metadata.pointer(&format!("/{within}")).is_none()
}

#[cfg(test)]
mod tests {
    use runledger_proto::json::structure;

    use super::*;

    #[test]
    fn a_path_that_leads_nowhere_is_found() {
        let metadata = serde_json::json!({"a": {"b": "[redacted]"}, "l": [{"c/d": 1}], "n": null});
        let metadata = structure(metadata.as_object().unwrap());
        for (path, is_nowhere_there) in [
            ("/metadata/a/b", false),
            ("/metadata/a/typo", true),
            ("/metadata/l/0/c~1d", false),
            ("/metadata/l/1", true),
            ("/metadata/n", false),
            ("/metadata", false),
            ("/reason", false),
        ] {
            assert_eq!(is_nowhere(path, Some(&metadata)), is_nowhere_there, "{path}");
        }
        assert!(is_nowhere("/metadata/a", None));
    }
}
