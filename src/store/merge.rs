//! The order of a page of the log over all shards, and where the page ends.

use super::json::{self, EventColumns};
use super::{LoggedEvent, Page, Unreadable};
use crate::domain::{Position, Positions, Shard, Time};

/// The place of an event in the merged log.
pub(super) type Place = (Time, Shard, Position);

/// The events that one shard has after its position, in order.
#[derive(Debug)]
pub(super) struct Part<T> {
    pub(super) events: Vec<(Place, T)>,
    /// Whether the shard may have more.
    pub(super) cut: bool,
}

/// Merges the shards' parts, and tells whether the page is cut. A page ends where the first cut part ends: behind
/// that, an event of the cut shard may be missing in front of one that is here.
fn merged<T>(parts: Vec<Part<T>>) -> (Vec<(Place, T)>, bool) {
    let end = parts.iter().filter(|part| part.cut).filter_map(|part| part.events.last().map(|(place, _)| *place)).min();
    let mut events: Vec<(Place, T)> = parts.into_iter().flat_map(|part| part.events).collect();
    events.retain(|(place, _)| end.is_none_or(|end| *place <= end));
    events.sort_unstable_by_key(|(place, _)| *place);
    (events, end.is_some())
}

/// The page of one namespace's events that the shards' parts make, in a snapshot with these ends.
pub(super) fn page_of(as_of: Time, parts: Vec<Part<EventColumns>>, ends: Positions) -> Page {
    let page = page(as_of, parts);
    Page { ends: (!page.cut).then_some(ends), ..page }
}

/// The page that the shards' parts make, read at this time.
pub(super) fn page(as_of: Time, parts: Vec<Part<EventColumns>>) -> Page {
    let (events, cut) = merged(parts);
    let events = events.into_iter().map(|((at, shard, position), columns)| match json::try_event(columns) {
        Ok(event) => Ok(LoggedEvent { shard, position, event }),
        Err(unreadable) => {
            let (EventColumns { key, revision, .. }, error) = *unreadable;
            Err(Unreadable { shard, position, at, key, revision, error })
        }
    });
    Page { as_of, events: events.collect(), cut, ends: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(shard: u16, times: &[i64], cut: bool) -> Part<()> {
        let events = times.iter().zip(1..).map(|(at, position)| ((Time::from_micros(*at), Shard(shard), position), ()));
        Part { events: events.collect(), cut }
    }

    fn times(parts: Vec<Part<()>>) -> (Vec<i64>, bool) {
        let (events, cut) = merged(parts);
        (events.into_iter().map(|((at, ..), ())| at.micros()).collect(), cut)
    }

    #[test]
    fn a_page_ends_with_the_first_part_that_is_cut() {
        assert_eq!(times(vec![part(0, &[1, 4, 9], false), part(1, &[2, 3], false)]), (vec![1, 2, 3, 4, 9], false));
        assert_eq!(times(vec![part(0, &[1, 4, 9], false), part(1, &[2, 3], true)]), (vec![1, 2, 3], true));
        assert_eq!(times(vec![part(0, &[1, 4], true), part(1, &[2, 3], true)]), (vec![1, 2, 3], true));
        assert_eq!(times(vec![part(0, &[], false), part(1, &[], false)]), (vec![], false));
    }
}
