//! Which of the oldest runs is handed out, where other replicas hand out the same ones.
//!
//! All replicas know the same queue. Each of them that hands out the oldest run claims what another one is claiming, and
//! all but one are refused. So where claims are lost again and again, while other runs are in claimers' hands, a run is
//! drawn of so many of the oldest that few are met.
//!
//! Invariant: one of [`OLDEST_EVERY`] hand-outs is the oldest's, so those who wait before a run bound its wait.

use super::backlog::Outcome;

/// What a claim that was lost counts for, against one that was granted: up to one lost claim in nine is let pass.
const LOST: u32 = 8;

/// The count from which runs are drawn, and the highest: so many claims on, the oldest come first again where none is lost.
const SPREADS_FROM: u32 = 24;
const COUNT_MAX: u32 = 64;

/// The runs of which one is drawn, for each that is in a claimer's hand: another replica has about as many in its hands.
const FOR_EACH_IN_HAND: usize = 16;
const AMONG_MAX: usize = 512;

/// See the module.
const OLDEST_EVERY: u32 = 16;

/// See the module.
pub(super) struct Spread {
    /// The claims that were lost, less those that were granted since.
    lost: u32,
    handed_out: u32,
    draws: fastrand::Rng,
}

impl Spread {
    pub(super) fn new() -> Self {
        Self { lost: 0, handed_out: 0, draws: fastrand::Rng::new() }
    }

    /// The claim of a run that was handed out is decided.
    pub(super) fn decided(&mut self, outcome: Outcome) {
        self.lost = match outcome {
            Outcome::Claimed => self.lost.saturating_sub(1),
            Outcome::Lost => (self.lost + LOST).min(COUNT_MAX),
            Outcome::Waits => self.lost,
        };
    }

    pub(super) fn is_on(&self) -> bool {
        self.lost >= SPREADS_FROM
    }

    /// The number of the oldest runs of which the next one is drawn, while so many are in claimers' hands.
    pub(super) fn among(&mut self, in_hands: usize) -> usize {
        self.handed_out = self.handed_out.wrapping_add(1);
        if !self.is_on() || self.handed_out.is_multiple_of(OLDEST_EVERY) {
            return 1;
        }
        (in_hands * FOR_EACH_IN_HAND).clamp(1, AMONG_MAX)
    }

    /// Draws one of so many.
    pub(super) fn draw(&mut self, among: usize) -> usize {
        self.draws.usize(..among.max(1))
    }
}
