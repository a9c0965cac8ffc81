//! Numbers that look random and are the same each time, and ids that never are.

use std::ops::Range;

use uuid::Uuid;

/// An id that no other measurement has.
#[expect(clippy::disallowed_methods, reason = "the one place of this crate that draws ids")]
pub(crate) fn draw_id() -> Uuid {
    Uuid::now_v7()
}

/// `SplitMix64`.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another one, of its own for each number.
    pub(super) fn branch(&self, number: u64) -> Self {
        let mut branch = Self(self.0 ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Self(branch.draw())
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.draw() % (range.end - range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_and_its_branches_draw_others() {
        let drawn = |mut random: Random| -> Vec<u64> { (0..8).map(|_| random.draw()).collect() };
        let seeded = Random::new(7);
        assert_eq!(drawn(seeded.clone()), drawn(Random::new(7)));
        assert_ne!(drawn(seeded.branch(0)), drawn(seeded.branch(1)));
        assert_eq!(drawn(seeded.branch(1)), drawn(Random::new(7).branch(1)));
        assert!((0..1_000).map(|_| Random::new(7).within(3..5)).all(|number| (3..5).contains(&number)));
    }
}
