//! Redaction: what should never have been written is taken out of a run and of its whole history.
//!
//! An event REDACTED names the paths that were taken out, and nothing of what stood there. The fold takes them out of the
//! run; the store takes them out of every earlier event of the run, and folds the keyframes anew, in the same commit. Each
//! part takes out what stands in it.
//!
//! Invariant: the fold of the history that is left is the run. What is put in a value's place says nothing of the value, so
//! that taking out and folding may change their order.

use serde::{Deserialize, Serialize};

use super::texts;
use crate::domain::Link;

/// What stands in the place of a text or of a value that was taken out. It is no object, in which a later patch would leave
/// it.
pub const REDACTED: &str = "[redacted]";

/// What is taken out of a run, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Redaction {
    /// The places.
    pub paths: Vec<RedactedPath>,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A place in a run. Its text is a JSON pointer (RFC 6901): `/metadata` and below, `/reason`, `/progress`, `/input`,
/// `/result`, `/links` or `/links/` with a `rel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RedactedPath {
    /// A value of the metadata, by the keys that lead to it; without a key, all metadata: then there are none.
    Metadata(Vec<String>),
    /// Every reason in words: of the run's end, of a request to abort it, of a late report, of a suspension, with its hint,
    /// and of a resumption.
    Reason,
    /// The message of the work's progress, which no event has.
    Progress,
    /// The input, with its digest, which would tell of it.
    Input,
    /// Every result, with its digest, also that of a late report.
    Result,
    /// Where the links lead, and what is said of it: of those with this `rel`, or of all. Their number stays.
    Links(Option<String>),
}

impl RedactedPath {
    /// Whether a link is taken out.
    #[must_use]
    pub fn is_of_link(&self, link: &Link) -> bool {
        matches!(self, Self::Links(rel) if rel.as_ref().is_none_or(|rel| *rel == link.rel))
    }

    /// The place that a text names; none where it names none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/').map(unescaped);
        let (Some(""), Some(field)) = (parts.next()?.as_deref(), parts.next().flatten()) else { return None };
        let within: Option<Vec<String>> = parts.collect();
        match (field.as_str(), within?) {
            ("metadata", within) => Some(Self::Metadata(within)),
            ("reason", within) if within.is_empty() => Some(Self::Reason),
            ("progress", within) if within.is_empty() => Some(Self::Progress),
            ("input", within) if within.is_empty() => Some(Self::Input),
            ("result", within) if within.is_empty() => Some(Self::Result),
            ("links", within) if within.is_empty() => Some(Self::Links(None)),
            ("links", mut within) if within.len() == 1 && Link::is_rel(&within[0]) => Some(Self::Links(within.pop())),
            _ => None,
        }
    }
}

fn unescaped(part: &str) -> Option<String> {
    let rest = part.replace("~0", "").replace("~1", "");
    (!rest.contains('~')).then(|| part.replace("~1", "/").replace("~0", "~"))
}

impl TryFrom<String> for RedactedPath {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("no path of a redaction")
    }
}

impl From<RedactedPath> for String {
    fn from(path: RedactedPath) -> Self {
        match path {
            RedactedPath::Metadata(within) => within.iter().fold("/metadata".to_owned(), |path, key| {
                format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
            }),
            RedactedPath::Reason => "/reason".to_owned(),
            RedactedPath::Progress => "/progress".to_owned(),
            RedactedPath::Input => "/input".to_owned(),
            RedactedPath::Result => "/result".to_owned(),
            RedactedPath::Links(None) => "/links".to_owned(),
            RedactedPath::Links(Some(rel)) => format!("/links/{rel}"),
        }
    }
}

impl Redaction {
    /// Whether the progress of the work is taken out, which is kept beside the events.
    #[must_use]
    pub fn is_of_progress(&self) -> bool {
        self.paths.contains(&RedactedPath::Progress)
    }

    /// Whether links are taken out.
    #[must_use]
    pub fn is_of_links(&self) -> bool {
        self.paths.iter().any(|path| matches!(path, RedactedPath::Links(_)))
    }

    /// About how many bytes it takes in memory.
    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { paths, reason } = self;
        let within = |path: &RedactedPath| match path {
            RedactedPath::Metadata(keys) => keys.iter().map(|key| size_of::<String>() + key.len()).sum(),
            RedactedPath::Links(rel) => rel.as_ref().map_or(0, String::len),
            RedactedPath::Reason | RedactedPath::Progress | RedactedPath::Input | RedactedPath::Result => 0,
        };
        let paths: usize = paths.iter().map(|path| size_of::<RedactedPath>() + within(path)).sum();
        size_of::<Self>() + paths + texts::weight([reason])
    }

    /// A link as the redaction leaves it; none where it leaves it as it is.
    #[must_use]
    pub fn of_link(&self, link: &Link) -> Option<Link> {
        let left = Link {
            rel: link.rel.clone(),
            target: REDACTED.to_owned(),
            sha256: None,
            media_type: None,
            summary: link.summary.as_ref().map(|_| REDACTED.to_owned()),
        };
        (left != *link && self.paths.iter().any(|path| path.is_of_link(link))).then_some(left)
    }

    /// Takes a reason out, and tells of how many values that is: what was taken out before is none.
    pub(super) fn of_reason(&self, reason: &mut Option<String>) -> u64 {
        // An empty text clears the field, and is left to do so.
        reason.as_mut().filter(|reason| !reason.is_empty()).map_or(0, |reason| self.of_said_reason(reason))
    }

    /// The same, of a reason that is always said.
    pub(super) fn of_said_reason(&self, reason: &mut String) -> u64 {
        if reason == REDACTED || !self.paths.contains(&RedactedPath::Reason) {
            return 0;
        }
        REDACTED.clone_into(reason);
        1
    }

    /// Takes a result out.
    pub(super) fn take_result<T>(&self, result: &mut Option<T>) {
        result.take_if(|_| self.paths.contains(&RedactedPath::Result));
    }

    /// Takes the reason out of an earlier redaction.
    pub(in crate::domain) fn take_out(&mut self, redaction: &Self) -> u64 {
        let Self { paths: _, reason } = self;
        redaction.of_reason(reason)
    }
}
