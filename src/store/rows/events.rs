//! Rows of `run_events`.

use super::{Columns, Reader, key};
use crate::domain::decide::AppliedRequest;
use crate::domain::{Event, Position, Run, RunKey, Shard};
use crate::store::StoreError;
use crate::store::json::{self, EventColumns};
use crate::store::scalars::shown;

/// The columns of an event, from `revision`, `at`, `event` and `request_id`.
pub(in crate::store) fn columns<R: Columns>(row: &R, key: RunKey) -> Result<EventColumns, StoreError> {
    let event = Reader { table: "run_events", row, key: &|| shown(&key) };
    Ok(EventColumns {
        revision: event.get((0, "revision"))?,
        at: event.get((1, "at"))?,
        event: event.get((2, "event"))?,
        request_id: event.get((3, "request_id"))?,
        key,
    })
}

/// An event of a run, from the same columns.
pub(in crate::store) fn event<R: Columns>(row: &R, key: &RunKey) -> Result<Event, StoreError> {
    json::read_event(columns(row, key.clone())?)
}

/// An event's position and columns, from the same columns and `position`, `namespace` and `run_id` after them.
pub(in crate::store) fn logged<R: Columns>(row: &R, shard: Shard) -> Result<(Position, EventColumns), StoreError> {
    let place = Reader { table: "run_events", row, key: &|| format!("an event of shard {}", shard.0) };
    Ok((place.get((4, "position"))?, columns(row, key(row, "run_events", 5)?)?))
}

/// Events of a run in their order, from such rows, and the run after the last of them. The first of them has, in
/// `keyframe`, the run as that event left it, unless it is the run's first.
pub(in crate::store) struct History<'a> {
    key: &'a RunKey,
    keyframe: Option<Run>,
    events: Vec<Event>,
}

impl<'a> History<'a> {
    pub(in crate::store) fn of(key: &'a RunKey) -> Self {
        Self { key, keyframe: None, events: Vec::new() }
    }

    pub(in crate::store) fn add<R: Columns>(&mut self, row: &R) -> Result<(), StoreError> {
        if self.events.is_empty() {
            let first = Reader { table: "run_events", row, key: &|| shown(self.key) };
            let document: Option<&str> = first.get((4, "keyframe"))?;
            self.keyframe = document.map(|document| json::read_keyframe(self.key, document)).transpose()?;
        }
        self.events.push(event(row, self.key)?);
        Ok(())
    }

    pub(in crate::store) fn run(self) -> Result<Option<Run>, StoreError> {
        json::fold(self.keyframe, &self.events)
    }
}

/// The result of a request that was applied, from `revision` and `request_digest`.
pub(in crate::store) fn applied<R: Columns>(row: &R, key: &RunKey) -> Result<AppliedRequest, StoreError> {
    let event = Reader { table: "run_events", row, key: &|| shown(key) };
    Ok(AppliedRequest { revision: event.get((0, "revision"))?, digest: event.get((1, "request_digest"))? })
}
