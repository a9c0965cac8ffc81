//! The order of a page of the log over all shards, and where the page ends.

use super::json::{self, EventColumns};
use super::{LoggedEvent, Page, Unreadable};
use crate::domain::{Position, Positions, Shard, Time};

/// The place of an event in the merged log: by the steady clock, so that calls come in their order also where the store's
/// clock was set back between them.
type Place = (Time, Shard, Position);

/// The events that one shard has after its position, in order.
#[derive(Debug)]
pub(super) struct ShardEvents<T> {
    pub(super) shard: Shard,
    pub(super) events: Vec<(Position, T)>,
    /// Whether the shard may have more.
    pub(super) cut: bool,
}

/// Merges the shards' parts, and tells whether the page is cut. A page ends where the first cut part ends: behind
/// that, an event of the cut shard may be missing in front of one that is here.
///
/// The events of a shard stay in their order, whatever times they bear.
fn merged<T>(parts: Vec<ShardEvents<T>>, happened: impl Fn(&T) -> Time) -> (Vec<(Place, T)>, bool) {
    let (mut end, mut events): (Option<Place>, Vec<(Place, T)>) = (None, Vec::new());
    for ShardEvents { shard, events: of_shard, cut } in parts {
        let mut newest = Time::from_micros(i64::MIN);
        for (position, event) in of_shard {
            newest = newest.max(happened(&event));
            events.push(((newest, shard, position), event));
        }
        if let Some((place, _)) = events.last().filter(|((_, of, _), _)| cut && *of == shard) {
            end = Some(end.map_or(*place, |end| end.min(*place)));
        }
    }
    events.retain(|(place, _)| end.is_none_or(|end| *place <= end));
    events.sort_unstable_by_key(|(place, _)| *place);
    (events, end.is_some())
}

/// The page of one namespace's events that the shards' parts make, in a snapshot with these ends.
pub(super) fn page_of(as_of: Time, parts: Vec<ShardEvents<EventColumns>>, ends: Positions) -> Page {
    let page = page(as_of, parts);
    Page { ends: (!page.cut).then_some(ends), ..page }
}

/// The page that the shards' parts make, read at this time.
pub(super) fn page(as_of: Time, parts: Vec<ShardEvents<EventColumns>>) -> Page {
    let read = |ShardEvents { shard, events, cut }: ShardEvents<EventColumns>| {
        let events = events.into_iter().map(|(position, columns)| {
            let event = json::try_event(columns).map(|event| LoggedEvent { shard, position, event });
            let event = event.map_err(|unreadable| {
                let (EventColumns { key, revision, at, .. }, error) = *unreadable;
                Unreadable { shard, position, at, key, revision, error }
            });
            (position, event)
        });
        ShardEvents { shard, events: events.collect(), cut }
    };
    let (events, cut) = merged(parts.into_iter().map(read).collect(), |event| match event {
        Ok(LoggedEvent { event, .. }) => event.at.plus_micros(event.steady_ahead_micros),
        Err(unreadable) => unreadable.at,
    });
    let events = events.into_iter().map(|(_, event)| event);
    Page { as_of, events: events.collect(), cut, ends: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(shard: u16, times: &[i64], cut: bool) -> ShardEvents<i64> {
        let events = times.iter().zip(1..).map(|(at, position)| (position, *at));
        ShardEvents { shard: Shard(shard), events: events.collect(), cut }
    }

    fn times(parts: Vec<ShardEvents<i64>>) -> (Vec<i64>, bool) {
        let (events, cut) = merged(parts, |at| Time::from_micros(*at));
        (events.into_iter().map(|(_, at)| at).collect(), cut)
    }

    #[test]
    fn events_of_a_shard_stay_in_their_order_and_none_is_passed_over() {
        let (wrong, right) = (part(0, &[1, 900, 2, 3], true), part(1, &[2, 4, 5], false));
        assert_eq!(times(vec![wrong, right]), (vec![1, 2, 4, 5, 900, 2, 3], true));
        let (wrong, right) = (part(0, &[1, 900, 2, 3], false), part(1, &[2, 4, 5], true));
        assert_eq!(
            times(vec![wrong, right]),
            (vec![1, 2, 4, 5], true),
            "what is left out comes with the next page, whole"
        );
    }

    #[test]
    fn a_page_ends_with_the_first_part_that_is_cut() {
        assert_eq!(times(vec![part(0, &[1, 4, 9], false), part(1, &[2, 3], false)]), (vec![1, 2, 3, 4, 9], false));
        assert_eq!(times(vec![part(0, &[1, 4, 9], false), part(1, &[2, 3], true)]), (vec![1, 2, 3], true));
        assert_eq!(times(vec![part(0, &[1, 4], true), part(1, &[2, 3], true)]), (vec![1, 2, 3], true));
        assert_eq!(times(vec![part(0, &[], false), part(1, &[], false)]), (vec![], false));
    }
}
