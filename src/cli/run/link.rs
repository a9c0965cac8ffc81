//! `runledger run link`: one link more of a run.

use std::str::FromStr;

use clap::Args;

use super::mutations::{Holder, Mutation};
use crate::cli::exit::Stop;
use runledger_proto::v1;

#[derive(Args, Debug)]
pub(super) struct LinkArgs {
    /// The run
    run_id: String,
    /// What the target is to the run, such as artifact, evidence or receipt
    rel: String,
    /// Where it is: a URL, a path, a key
    target: String,
    /// The SHA-256 of what is there, in hexadecimal
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// The media type of what is there
    #[arg(long, value_name = "TYPE")]
    media_type: Option<String>,
    /// What it is, for people
    #[arg(long, value_name = "TEXT")]
    summary: Option<String>,
    #[command(flatten)]
    holder: Holder,
    #[command(flatten)]
    mutation: Mutation,
}

/// A link that a call brings along: `REL=TARGET`. The target may hold more `=`.
#[derive(Clone, Debug)]
pub(super) struct Brought {
    rel: String,
    target: String,
}

impl FromStr for Brought {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((rel, target)) if !rel.is_empty() && !target.is_empty() => {
                Ok(Self { rel: rel.to_owned(), target: target.to_owned() })
            }
            Some(_) | None => Err("expected REL=TARGET, such as artifact=file:///srv/1.pdf"),
        }
    }
}

impl From<Brought> for v1::Link {
    fn from(Brought { rel, target }: Brought) -> Self {
        Self { rel, target, ..Self::default() }
    }
}

pub(super) async fn run(args: LinkArgs) -> Result<(), Stop> {
    let link = v1::Link {
        rel: args.rel,
        target: args.target,
        sha256: args.sha256.unwrap_or_default(),
        media_type: args.media_type.unwrap_or_default(),
        summary: args.summary.unwrap_or_default(),
        ..v1::Link::default()
    };
    let request = v1::UpdateRunRequest {
        run_id: args.run_id,
        links: vec![link],
        lease_epoch: args.holder.lease_epoch,
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
        ..v1::UpdateRunRequest::default()
    };
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)
}
