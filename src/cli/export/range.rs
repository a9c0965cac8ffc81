//! The part of the log to export: from times to positions. In a shard times never fall as long as the store's clock was never
//! set, so that a few reads find a time's position. Where it was, no position divides the times, and the whole log is read.

use super::PAGE_EVENTS_MAX;
use crate::domain::{Position, Positions, Shard, Time};
use crate::store::inspect::Inspect;
use crate::store::{LoggedEvent, PAGE_BYTES_MAX, StoreError};

/// A part of the log, by each shard's positions.
#[derive(Debug)]
pub(super) struct Range {
    /// The last position of each shard before the range.
    pub(super) after: Positions,
    /// The last position of each shard in the range.
    pub(super) end: Positions,
    /// The log's ends when the range was made.
    pub(super) ends: Positions,
}

impl Range {
    pub(super) fn has(&self, logged: &LoggedEvent) -> bool {
        logged.position <= self.end.of(logged.shard)
    }

    /// The number of events after these positions, to the range's end.
    pub(super) fn left(&self, after: &Positions) -> u64 {
        self.end.iter().zip(after.iter()).map(|(end, after)| end.saturating_sub(*after)).sum()
    }
}

/// The store's clock.
pub(super) async fn now(inspect: &dyn Inspect) -> Result<Time, StoreError> {
    let ends = inspect.ends().await?;
    Ok(inspect.changes(&ends, 1, PAGE_BYTES_MAX).await?.as_of)
}

/// The next time after one.
pub(super) fn just_after(time: Time) -> Time {
    Time::from_micros(time.micros().saturating_add(1))
}

/// Each shard's last position whose event happened before a time, up to its end.
pub(super) async fn before(inspect: &dyn Inspect, ends: &Positions, time: Time) -> Result<Positions, StoreError> {
    let mut places = Vec::with_capacity(ends.len());
    for (shard, end) in (0..).zip(ends.iter()) {
        places.push(before_in(inspect, Shard(shard), *end, time).await?);
    }
    Ok(places.into())
}

/// A shard's last position whose event happened before a time, up to its end.
pub(super) async fn before_in(
    inspect: &dyn Inspect,
    shard: Shard,
    end: Position,
    time: Time,
) -> Result<Position, StoreError> {
    // Everything up to `low` is earlier, everything above `high` is not.
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match inspect.time_of(shard, middle).await? {
            Some(at) if at < time => low = middle,
            // Nothing that is there from here on is earlier.
            Some(_) | None => high = middle - 1,
        }
    }
    Ok(low)
}

/// Each shard's last position whose event happened before a time, up to its end, where the times of a shard may fall: the log
/// is read through.
pub(super) async fn last_before(inspect: &dyn Inspect, ends: &Positions, time: Time) -> Result<Positions, StoreError> {
    let start = Positions::start(inspect.ledger().shard_count);
    let (mut after, mut last) = (start.clone(), start);
    loop {
        let events = inspect.changes(&after, PAGE_EVENTS_MAX, PAGE_BYTES_MAX).await?.whole()?;
        let mut is_over = true;
        for LoggedEvent { shard, position, event } in events {
            after.set(shard, position);
            if position <= ends.of(shard) {
                is_over = false;
                if event.at < time {
                    last.set(shard, position);
                }
            }
        }
        if is_over {
            return Ok(last);
        }
    }
}
