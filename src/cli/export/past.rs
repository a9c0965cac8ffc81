//! A ledger that was restored or failed over under an export that follows: what was written may be lost, and other
//! events stand at the same positions. The export goes back to the last place of each shard that is still the same,
//! and writes on from there: some events of both pasts come twice, and none is missing.

use std::collections::VecDeque;

use super::range;
use super::resume::Seen;
use super::{Ended, Export};
use crate::cli::exit::say;
use crate::domain::{LedgerEpoch, Position, Positions, Shard, Time};
use crate::store::LoggedEvent;
use crate::store::inspect::Past;

/// Places that are remembered of each shard. Above, every second is forgotten.
const MARKS_MAX: usize = 256;

/// The past that is followed, and places of each shard in it.
pub(super) struct Trail {
    past: Past,
    /// Whether this past was recognised by its timeline, before any server had raised the epoch for it.
    unraised: bool,
    marks: Vec<VecDeque<(Position, Time)>>,
}

impl Trail {
    /// Begins a trail. Must be called before anything is read.
    pub(super) fn begin(past: Past, shards: usize) -> Self {
        Self { past, unraised: false, marks: vec![VecDeque::new(); shards] }
    }

    /// The ledger's epoch of this past.
    pub(super) fn epoch(&self) -> LedgerEpoch {
        self.past.epoch
    }

    /// Remembers what was written of each shard.
    pub(super) fn pass(&mut self, events: &[LoggedEvent]) {
        for LoggedEvent { shard, position, event } in events {
            let marks = &mut self.marks[usize::from(shard.0)];
            marks.push_back((*position, event.at));
            if marks.len() > MARKS_MAX {
                let mut number = 0_usize;
                marks.retain(|_| {
                    number += 1;
                    number.is_multiple_of(2)
                });
            }
        }
    }
}

impl Export {
    /// The past that the store is of now.
    pub(super) async fn past(&self) -> Result<Past, Ended> {
        self.ask(|| self.inspect.past()).await
    }

    /// Fails where the store is of another past than the trail. An export that does not follow asks at its end, because
    /// it does not go back.
    pub(super) async fn is_of_one_past(&self, trail: &Trail) -> Result<(), Ended> {
        if self.past().await?.is_another(&trail.past) { Err(Ended::TwoPasts) } else { Ok(()) }
    }

    /// The positions to go on from when the store is of another past than before; none when it is not. The export asks
    /// after each read, before it writes anything of that read.
    pub(super) async fn goes_back(&mut self, trail: &mut Trail) -> Result<Option<Positions>, Ended> {
        let past = self.past().await?;
        if !past.is_another(&trail.past) {
            return Ok(None);
        }
        let same_timeline = past.timeline.is_some() && past.timeline == trail.past.timeline;
        let is_known = same_timeline && trail.unraised;
        trail.unraised = !same_timeline && past.epoch == trail.past.epoch;
        trail.past = past;
        if is_known {
            return Ok(None);
        }
        say("the ledger was restored or failed over: what was written may be lost, and the export goes back");
        self.seen = Seen::Nothing;
        let inspect = self.inspect.as_ref();
        let ends = self.ask(|| inspect.ends()).await?;
        let mut after = match self.since {
            Some(since) if !self.times_may_fall().await? => self.ask(|| range::before(inspect, &ends, since)).await?,
            Some(_) | None => Positions::start(inspect.ledger().shard_count),
        };
        for (shard, marks) in (0..).map(Shard).zip(&mut trail.marks) {
            while let Some((position, at)) = marks.back().copied() {
                if self.ask(|| inspect.time_of(shard, position)).await? == Some(at) {
                    after.set(shard, position);
                    break;
                }
                marks.pop_back();
            }
        }
        Ok(Some(after))
    }
}
