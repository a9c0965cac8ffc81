//! What is taken out of a run and its history: `runledger run redact`.

use clap::Args;

use crate::cli::exit::{exit_codes, say};
use crate::cli::run::mutation::{Mutation, once};
use runledger_proto::v1;

pub(in crate::cli::run) const REDACT: &str = concat!(
    "Examples:\n  \
    runledger run redact try-1 --path /metadata/customer/email --reason \"not to be kept\"\n  \
    runledger run redact try-1 --path /reason --path /progress\n\n\
    What is taken out is gone for good: from the run, from every event, from every later export and watch. Copies that the \
    store itself has kept are another matter: see docs/redaction.md.\n",
    once!(),
    exit_codes!()
);

#[derive(Args, Debug)]
pub(in crate::cli::run) struct RedactArgs {
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

impl RedactArgs {
    pub(in crate::cli::run) fn request(self) -> (v1::RedactRunRequest, Mutation) {
        let request = v1::RedactRunRequest {
            run_id: self.run_id,
            paths: self.paths,
            reason: self.reason.unwrap_or_default(),
            ..v1::RedactRunRequest::default()
        };
        (request, self.mutation)
    }
}

/// Says how much was taken out.
pub(in crate::cli::run) fn tell((request, answer): &(v1::RedactRunRequest, v1::RedactRunResponse)) {
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
}
