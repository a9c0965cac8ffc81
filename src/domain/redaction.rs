//! Redaction: what should never have been written is taken out of a run and of its whole history.
//!
//! An event REDACTED names the paths that were taken out, and nothing of what stood there. The fold takes them out of the
//! run; the store takes them out of every earlier event of the run, and folds the keyframes anew, in the same commit.
//!
//! Invariant: the fold of the history that is left is the run. What is put in a value's place says nothing of the value, so
//! that taking out and folding may change their order.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Changes, ContentTable, Event, Link, Metadata, Refinements, Resumption, Revision, Run, Suspension, evolve};

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

    /// The table of contents that the path takes rows out of, whole.
    #[must_use]
    pub fn table(&self) -> Option<ContentTable> {
        match self {
            Self::Input => Some(ContentTable::Input),
            Self::Result => Some(ContentTable::Result),
            Self::Metadata(_) | Self::Reason | Self::Progress | Self::Links(_) => None,
        }
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
    pub(super) fn weight(&self) -> usize {
        let within = |path: &RedactedPath| match path {
            RedactedPath::Metadata(keys) => keys.iter().map(|key| size_of::<String>() + key.len()).sum(),
            RedactedPath::Links(rel) => rel.as_ref().map_or(0, String::len),
            RedactedPath::Reason | RedactedPath::Progress | RedactedPath::Input | RedactedPath::Result => 0,
        };
        let paths: usize = self.paths.iter().map(|path| size_of::<RedactedPath>() + within(path)).sum();
        size_of::<Self>() + paths + self.reason.as_ref().map_or(0, String::len)
    }

    /// Whether anything stands at the paths in what an event says.
    #[must_use]
    pub fn takes_out_of(&self, event: &Event) -> bool {
        let mut left = event.changes.clone();
        self.of_changes(&mut left);
        left != event.changes
    }

    /// Takes the paths out of a run. The result is the same whether they were taken out of the run's events before.
    pub(super) fn of_run(&self, run: &mut Run) {
        self.of_metadata(&mut run.metadata);
        if self.paths.contains(&RedactedPath::Reason) {
            text(&mut run.ending.failure_reason);
            if let Some(request) = &mut run.supervision.abort_request {
                text(&mut request.reason);
            }
            if let Some(report) = &mut run.supervision.late_report {
                text(&mut report.failure_reason);
            }
        }
        let takes = (self.paths.contains(&RedactedPath::Input), self.paths.contains(&RedactedPath::Result));
        if let Some(mut all) = run.refinements.take() {
            for suspension in [&mut all.suspension, &mut all.resumed_from].into_iter().flatten() {
                self.of_suspension(suspension);
            }
            all.input = all.input.filter(|_| !takes.0);
            all.result = all.result.filter(|_| !takes.1);
            Refinements::keep(&mut run.refinements, all);
        }
        if let Some(report) = &mut run.supervision.late_report {
            report.result = report.result.filter(|_| !takes.1);
        }
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

    /// Takes the paths out of what an event changed, and tells how many values of the metadata and reasons these were:
    /// links and contents are counted where they stand.
    fn of_changes(&self, changes: &mut Changes) -> u64 {
        let mut values = self.of_metadata(&mut changes.metadata);
        if let Some(report) = &mut changes.supervision.late_report {
            values += self.of_metadata(&mut report.metadata);
        }
        if self.paths.contains(&RedactedPath::Reason) {
            values += text(&mut changes.ending.failure_reason);
            if let Some(report) = &mut changes.supervision.late_report {
                values += text(&mut report.failure_reason);
            }
            if let Some(request) = &mut changes.supervision.abort_request {
                values += text(&mut request.reason);
            }
            if let Some(redaction) = &mut changes.redaction {
                values += text(&mut redaction.reason);
            }
        }
        let takes = (self.paths.contains(&RedactedPath::Input), self.paths.contains(&RedactedPath::Result));
        if let Some(report) = &mut changes.supervision.late_report {
            report.result = report.result.filter(|_| !takes.1);
        }
        if let Some(mut change) = changes.refinements.take() {
            if let Some(suspension) = &mut change.suspension {
                values += self.of_suspension(suspension);
            }
            if let Some(resumption) = &mut change.resumption {
                values += self.of_resumption(resumption);
            }
            change.input = change.input.filter(|_| !takes.0);
            change.result = change.result.filter(|_| !takes.1);
            for link in &mut change.links {
                if let Some(left) = self.of_link(link) {
                    *link = left;
                }
            }
            changes.refinements = change.boxed();
        }
        values
    }

    fn of_suspension(&self, suspension: &mut Suspension) -> u64 {
        let mut values = 0;
        if self.paths.contains(&RedactedPath::Reason) {
            values += u64::from(suspension.reason != REDACTED) + text(&mut suspension.resume_hint);
            REDACTED.clone_into(&mut suspension.reason);
        }
        values + suspension.resumption.as_mut().map_or(0, |resumption| self.of_resumption(resumption))
    }

    fn of_resumption(&self, resumption: &mut Resumption) -> u64 {
        if self.paths.contains(&RedactedPath::Reason) { text(&mut resumption.reason) } else { 0 }
    }

    /// Takes the paths out of metadata, or of a patch of them, and tells how many values these were. Most patches have none
    /// of the paths, and are not copied.
    fn of_metadata(&self, metadata: &mut Metadata) -> u64 {
        let within = self.paths.iter().filter_map(|path| match path {
            RedactedPath::Metadata(within) => Some(within.as_slice()),
            RedactedPath::Reason
            | RedactedPath::Progress
            | RedactedPath::Input
            | RedactedPath::Result
            | RedactedPath::Links(_) => None,
        });
        let there: Vec<&[String]> = within.filter(|within| has(metadata.as_map(), within)).collect();
        if there.is_empty() {
            return 0;
        }
        if there.iter().any(|within| within.is_empty()) {
            return std::mem::take(metadata).as_map().len() as u64;
        }
        let mut map = metadata.as_map().clone();
        let values = there.into_iter().map(|within| take_out(&mut map, within)).sum();
        *metadata = map.into();
        values
    }
}

/// Puts the mark in the place of a text, and tells of how many: what was taken out before is none.
fn text(text: &mut Option<String>) -> u64 {
    // An empty text clears the field, and is left to do so.
    let Some(text) = text.as_mut().filter(|text| !text.is_empty() && *text != REDACTED) else { return 0 };
    REDACTED.clone_into(text);
    1
}

/// Whether there is something to take out. A null is left: in a patch it deletes.
fn has(map: &Map<String, Value>, within: &[String]) -> bool {
    let [first, rest @ ..] = within else { return !map.is_empty() };
    let mut place = map.get(first);
    for key in rest {
        place = match place {
            Some(Value::Object(map)) => map.get(key),
            Some(Value::Array(values)) => index(key).and_then(|index| values.get(index)),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => None,
        };
    }
    place.is_some_and(|value| !value.is_null())
}

/// Puts the mark in the place of a value, and tells of how many. Another path of the redaction may have taken out what leads
/// there, and an earlier one the value.
fn take_out(map: &mut Map<String, Value>, within: &[String]) -> u64 {
    let [first, rest @ ..] = within else { return 0 };
    let mut place = map.get_mut(first);
    for key in rest {
        place = match place {
            Some(Value::Object(map)) => map.get_mut(key),
            Some(Value::Array(values)) => index(key).and_then(|index| values.get_mut(index)),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => None,
        };
    }
    let Some(value) = place.filter(|value| value.as_str() != Some(REDACTED)) else { return 0 };
    *value = Value::String(REDACTED.to_owned());
    1
}

fn index(key: &str) -> Option<usize> {
    let is_plain = key == "0" || !key.starts_with('0') && key.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { key.parse().ok() } else { None }
}

/// The digest of no request: it stands in the place of that of a request whose content was taken out, which would tell of
/// it. A retry of the request is another one for the authority.
pub const NO_DIGEST: [u8; 32] = [0; 32];

/// A run's history, from its first event on, as a redaction leaves it.
#[derive(Debug)]
pub struct Rewriting<'a> {
    redaction: &'a Redaction,
    run: Option<Run>,
    has_changed: bool,
}

/// What is to be written of an event that is in the log already.
#[derive(Debug)]
pub struct Rewritten {
    /// The event, where it is another one now.
    pub event: Option<Event>,
    /// The run right after it, where the event has a keyframe, and that is another one now.
    pub keyframe: Option<Arc<Run>>,
    /// The number of values of the metadata, and of reasons, that were taken out of the event.
    pub values: u64,
}

impl<'a> Rewriting<'a> {
    /// The history of a run, before its first event.
    #[must_use]
    pub fn of(redaction: &'a Redaction) -> Self {
        Self { redaction, run: None, has_changed: false }
    }

    /// The history of a run after one of its events, up to which nothing stands at the redaction's paths.
    #[must_use]
    pub fn after(redaction: &'a Redaction, run: Run) -> Self {
        Self { run: Some(run), ..Self::of(redaction) }
    }

    /// The next event, as it is in the log.
    pub fn next(&mut self, event: &Event) -> Rewritten {
        let mut left = event.clone();
        let values = self.redaction.of_changes(&mut left.changes);
        let revision: Revision = left.revision;
        let is_another = left != *event;
        self.has_changed |= is_another;
        let run = evolve::evolve(self.run.take(), &left);
        let keyframe = (self.has_changed && revision.has_keyframe()).then(|| Arc::new(run.clone()));
        self.run = Some(run);
        Rewritten { event: is_another.then_some(left), keyframe, values }
    }
}
