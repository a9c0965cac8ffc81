//! A run's history, as a redaction leaves it.

use std::sync::Arc;

use super::evolve::evolve;
use super::{ContentTable, Event, RedactedPath, Redaction, Revision, Run};

impl RedactedPath {
    /// The table of contents that the path takes rows out of, whole.
    #[must_use]
    pub fn table(&self) -> Option<ContentTable> {
        match self {
            Self::Input => Some(ContentTable::Input),
            Self::Result => Some(ContentTable::Result),
            Self::Metadata(_) | Self::Reason | Self::Progress | Self::Links(_) => None,
        }
    }
}

impl Redaction {
    /// Whether anything stands at the paths in what an event says.
    #[must_use]
    pub fn takes_out_of(&self, event: &Event) -> bool {
        let mut left = event.changes.clone();
        left.take_out(self);
        left != event.changes
    }
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
    pub fn new(redaction: &'a Redaction) -> Self {
        Self { redaction, run: None, has_changed: false }
    }

    /// The history of a run after one of its events, up to which nothing stands at the redaction's paths.
    #[must_use]
    pub fn after(redaction: &'a Redaction, run: Run) -> Self {
        Self { run: Some(run), ..Self::new(redaction) }
    }

    /// The next event, as it is in the log.
    pub fn next(&mut self, event: &Event) -> Rewritten {
        let mut left = event.clone();
        let values = left.changes.take_out(self.redaction);
        let revision: Revision = left.revision;
        let is_another = left != *event;
        self.has_changed |= is_another;
        let run = evolve(self.run.take(), &left);
        let keyframe = (self.has_changed && revision.has_keyframe()).then(|| Arc::new(run.clone()));
        self.run = Some(run);
        Rewritten { event: is_another.then_some(left), keyframe, values }
    }
}
