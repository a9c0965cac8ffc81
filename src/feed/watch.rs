//! What a session that watches many runs has all along.

use std::sync::Arc;

use bytes::Bytes;

use super::cursor::{Cursor, View};
use super::fold::Cache;
use super::{Feed, Generation};
use crate::domain::{Filter, LedgerEpoch, Namespace, Positions};

/// A session's watch.
pub(super) struct Watch<'a> {
    pub(super) feed: &'a Feed,
    /// What the watch shares with others.
    pub(super) generation: Generation,
    /// See [`Feed::folded`].
    pub(super) folded: Arc<Cache>,
    /// The ledger's epoch when the watch began.
    pub(super) epoch: LedgerEpoch,
    pub(super) namespace: Namespace,
    pub(super) filter: Arc<Filter>,
}

impl Watch<'_> {
    pub(super) fn cursor(&self, positions: &Positions, view: Option<View>) -> Bytes {
        self.feed.encode.cursor(&self.namespace, &Cursor { epoch: self.epoch, positions: positions.clone(), view })
    }
}
