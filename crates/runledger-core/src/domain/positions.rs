//! A place in the log of all shards.

use std::ops::Deref;

use super::{Position, Shard};

/// A position for each shard, from shard 0: how far each has come, or a reader in each. A partial order, because of two
/// readers each may be ahead in some shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions(Vec<Position>);

impl Positions {
    /// Before every event.
    #[must_use]
    pub fn start(shard_count: u16) -> Self {
        Self(vec![0; shard_count.into()])
    }

    /// The position in a shard; 0 for a shard that has none here.
    #[must_use]
    pub fn of(&self, shard: Shard) -> Position {
        self.0.get(usize::from(shard.0)).copied().unwrap_or(0)
    }

    /// Takes a shard to a position, ahead or back.
    pub fn set(&mut self, shard: Shard, position: Position) {
        match self.0.get_mut(usize::from(shard.0)) {
            Some(current) => *current = position,
            None => debug_assert!(false, "shard {} is not of this ledger", shard.0),
        }
    }

    /// Takes each shard to the later of two positions.
    pub fn advance(&mut self, to: &[Position]) {
        debug_assert_eq!(self.0.len(), to.len(), "positions of one ledger");
        for (position, to) in self.0.iter_mut().zip(to) {
            *position = (*position).max(*to);
        }
    }

    /// Whether every shard has come as far as `places`.
    #[must_use]
    pub fn reaches(&self, places: &[Position]) -> bool {
        places.iter().enumerate().all(|(shard, place)| self.0.get(shard).copied().unwrap_or(0) >= *place)
    }
}

impl Deref for Positions {
    type Target = [Position];

    fn deref(&self) -> &[Position] {
        &self.0
    }
}

impl From<Vec<Position>> for Positions {
    fn from(positions: Vec<Position>) -> Self {
        Self(positions)
    }
}

impl From<Positions> for Vec<Position> {
    fn from(positions: Positions) -> Self {
        positions.0
    }
}

impl FromIterator<Position> for Positions {
    fn from_iter<I: IntoIterator<Item = Position>>(positions: I) -> Self {
        Self(positions.into_iter().collect())
    }
}

impl<const SHARDS: usize> PartialEq<[Position; SHARDS]> for Positions {
    fn eq(&self, positions: &[Position; SHARDS]) -> bool {
        self.0 == positions
    }
}
