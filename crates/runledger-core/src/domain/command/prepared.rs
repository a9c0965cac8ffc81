//! What was done for a command before it was queued, so that its commit need not do it: a commit holds up its shard's
//! others. It decides nothing. Where it is not of what the commit finds, the commit does it itself.

use std::sync::Arc;

use super::Command;
use crate::domain::{Content, LedgerEpoch, LifecyclePin, Metadata, Revision, Violation};

/// Keys above which values are masked before the command is queued.
const KEYS_MIN: usize = 256;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prepared {
    /// The command's values, as a lifecycle masks them.
    pub(in crate::domain) masked: Option<Arc<Masked>>,
    /// Nothing stands at a redaction's paths in the run's history up to this revision, as of this epoch.
    looked: Option<(LedgerEpoch, Revision)>,
}

/// A command's values as a version of a lifecycle masks them.
#[derive(Debug, PartialEq)]
pub(in crate::domain) struct Masked {
    pub(in crate::domain) pin: LifecyclePin,
    /// The command; none: there was nothing to mask.
    pub(in crate::domain) command: Option<Command>,
    /// What is kept and is above its limits.
    pub(in crate::domain) oversize: Vec<Violation>,
}

impl Command {
    /// Whether the command brings so many keys that they are to be masked before it is queued.
    #[must_use]
    pub fn brings_many_keys(&self) -> bool {
        // A content is a text, which has a colon behind each key.
        let colons = |content: &Content| content.text().bytes().filter(|byte| *byte == b':').count();
        let brought = self.ask.brought();
        let contents: usize = [brought.input, brought.result].into_iter().flatten().map(colons).sum();
        brought.metadata.map_or(0, Metadata::keys) + contents > KEYS_MIN
    }

    /// Somebody looked through the run's history up to this revision, in this epoch, and found nothing at the paths of the
    /// redaction.
    pub fn looked_through(&mut self, epoch: LedgerEpoch, revision: Revision) {
        self.prepared.looked = Some((epoch, revision));
    }
}

impl Prepared {
    /// The values as this version masks them, where they were masked by it.
    pub(in crate::domain) fn masked_by(&self, pin: &LifecyclePin) -> Option<&Masked> {
        self.masked.as_deref().filter(|masked| masked.pin == *pin)
    }

    /// The revision up to which nothing stands at the redaction's paths.
    pub(in crate::domain) fn nothing_up_to(&self, epoch: LedgerEpoch) -> Revision {
        self.looked.filter(|(of, _)| *of == epoch).map_or(Revision::NONE, |(_, revision)| revision)
    }

    /// About how many bytes it takes in memory.
    pub(super) fn weight(&self) -> usize {
        let masked = self.masked.as_ref().and_then(|masked| masked.command.as_ref());
        masked.map_or(0, Command::weight)
    }
}
