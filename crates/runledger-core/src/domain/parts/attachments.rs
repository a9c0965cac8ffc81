//! What belongs to a run and stands beside it: its input, its result, its links. The run has the digests and the number; the
//! things themselves stand in [tables of their own](crate::domain::sides::contents).

use serde::{Deserialize, Serialize};

use super::redaction::{RedactedPath, Redaction};
use crate::domain::content::ContentDigest;
use crate::domain::form::form;
use crate::domain::happened::Happened;
use crate::domain::{Link, Revision};

/// What a run has of its attachments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachments {
    /// What the run was given; never changes.
    pub input: Option<ContentDigest>,
    /// What came of the run, so far.
    pub result: Option<ResultDigest>,
    /// The number of links.
    pub links: u32,
}

form!(Attachments { input: "input", result: "result", links: "links" });

/// A result as the run has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResultDigest {
    /// Its digest.
    pub content: ContentDigest,
    /// The revision that set it.
    pub revision: Revision,
}

/// The change of a run's attachments by an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachmentsChange {
    /// Set at creation.
    pub input: Option<ContentDigest>,
    /// The new result. That of a late report stands in the report.
    pub result: Option<ContentDigest>,
    /// The links that were added; of a late report, its own.
    pub links: Vec<Link>,
}

form!(AttachmentsChange { input: "input", result: "result", links: "links" });

impl Attachments {
    pub(in crate::domain) fn fold(&mut self, change: &AttachmentsChange, Happened { revision, .. }: Happened<'_>) {
        let AttachmentsChange { input, result, links } = change;
        self.input = input.or(self.input);
        self.result = result.map(|content| ResultDigest { content, revision }).or(self.result);
        self.links += u32::try_from(links.len()).unwrap_or(u32::MAX);
    }

    pub(in crate::domain) fn take_out(&mut self, redaction: &Redaction) {
        let Self { input, result, links: _ } = self;
        input.take_if(|_| redaction.paths.contains(&RedactedPath::Input));
        redaction.take_result(result);
    }
}

impl AttachmentsChange {
    /// Whether it says that something stands beside the run.
    pub(in crate::domain) fn is_empty(&self) -> bool {
        let Self { input, result, links } = self;
        input.is_none() && result.is_none() && links.is_empty()
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { input: _, result: _, links } = self;
        links.iter().map(Link::weight).sum()
    }

    pub(in crate::domain) fn take_out(&mut self, redaction: &Redaction) {
        let Self { input, result, links } = self;
        input.take_if(|_| redaction.paths.contains(&RedactedPath::Input));
        redaction.take_result(result);
        for link in links {
            if let Some(left) = redaction.of_link(link) {
                *link = left;
            }
        }
    }
}
