//! Where a watch of many runs stands.

use crate::domain::Position;
use crate::store::query::Place;

/// A place in the log of all shards, and in the first view of a watch that had not shown all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The ledger's epoch when the watch that it comes from began: positions of another lead elsewhere.
    pub epoch: u64,
    /// For each shard the last position whose event was delivered, or need not be.
    pub positions: Vec<Position>,
    /// How far the first view had come; none when it is over.
    pub view: Option<View>,
}

/// The first view of a watch: runs as they were at the positions of its cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Which runs it shows.
    pub of: ViewOf,
    /// The last run that was shown; none at its beginning.
    pub shown: Option<Place>,
}

/// Which runs a first view shows, of those that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewOf {
    /// Those that are not terminal.
    Active,
    /// All.
    All,
}

/// Whether everything up to `places` has been delivered at `positions`. A vector of positions is a partial order.
pub(super) fn reaches(positions: &[Position], places: &[Position]) -> bool {
    places.iter().zip(positions).all(|(place, position)| position >= place)
}

/// Takes each shard to the later of two positions.
pub(super) fn advance(positions: &mut [Position], to: &[Position]) {
    for (position, to) in positions.iter_mut().zip(to) {
        *position = (*position).max(*to);
    }
}
