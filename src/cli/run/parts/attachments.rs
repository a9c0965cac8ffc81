//! What stands beside a run: what it was given, what came of it, and its links. `runledger run link` adds one.

use std::str::FromStr;

use clap::Args;

use super::lease::Holder;
use super::row::Row;
use crate::cli::exit::{Stop, exit_codes};
use crate::cli::fields::{self, JsonSource};
use crate::cli::run::mutation::{Mutation, once};
use runledger_proto::{Struct, v1};

pub(in crate::cli::run) const LINK: &str = concat!(
    "Example:\n  \
    runledger run link try-1 artifact s3://bucket/report.pdf --media-type application/pdf\n\n\
    A link with the same REL and TARGET once more changes nothing. At most 64 a run.\n",
    once!(),
    exit_codes!()
);

#[derive(Args, Debug)]
pub(in crate::cli::run) struct LinkArgs {
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

/// The flag by which a call says what came of the run.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct Outcome {
    /// What came of the run, replacing what was there: kept beside the run
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    result: Option<JsonSource>,
}

impl Outcome {
    pub(in crate::cli::run) fn read(&self) -> Result<Option<Struct>, Stop> {
        fields::json("--result", self.result.as_ref())
    }
}

/// A link that a call brings along: `REL=TARGET`. The target may hold more `=`.
#[derive(Clone, Debug)]
pub(in crate::cli::run) struct Brought {
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

impl LinkArgs {
    pub(in crate::cli::run) fn request(self) -> (v1::UpdateRunRequest, Mutation) {
        let link = v1::Link {
            rel: self.rel,
            target: self.target,
            sha256: self.sha256.unwrap_or_default(),
            media_type: self.media_type.unwrap_or_default(),
            summary: self.summary.unwrap_or_default(),
            ..v1::Link::default()
        };
        let request = v1::UpdateRunRequest {
            run_id: self.run_id,
            links: vec![link],
            lease_epoch: self.holder.lease_epoch,
            ..v1::UpdateRunRequest::default()
        };
        (request, self.mutation)
    }
}

pub(super) const ROWS: &[Row] = &[
    Row::said("input", &[], |run| run.input.as_ref().map(content).unwrap_or_default()),
    Row::said("result", &[], |run| run.result.as_ref().map(content).unwrap_or_default()),
    Row::said("links", &["link_count"], |run| match run.link_count {
        0 => String::new(),
        links => links.to_string(),
    }),
];

/// What stands beside a run, such as `83 bytes, sha256 44136f...`.
fn content(content: &v1::Content) -> String {
    format!("{} bytes, sha256 {}", content.bytes, content.sha256)
}
