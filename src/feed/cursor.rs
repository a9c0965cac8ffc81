//! Cursors: places of watches of many runs.

use crate::domain::{LedgerEpoch, Positions};
use crate::store::query::Place;
use crate::store::retention::Walked;

/// A place in the log of all shards, and in the first view of a watch that has not shown all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The ledger's epoch when the cursor's watch began: positions of another epoch name other events.
    pub epoch: LedgerEpoch,
    /// For each shard the last position whose event was delivered, or need not be.
    pub positions: Positions,
    /// The place in the first view; none when the view is over.
    pub view: Option<View>,
}

/// The first view of a watch: runs as they were at the positions of its cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The kind of runs that the view shows.
    pub of: ViewOf,
    /// The last run that was shown; none at the view's beginning.
    pub shown: Option<Place>,
    /// How far purges had come when the place was read, for a view of all runs: a run that was to be shown and was purged
    /// later ends the view.
    pub walked: Walked,
}

/// The kind of runs that a first view shows, of those that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewOf {
    /// Runs that are not terminal.
    Active,
    /// All runs.
    All,
}
