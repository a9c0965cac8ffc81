//! The index of the lanes.

use super::super::Limits;
use super::super::room::{AllRoom, CountedRoom};
use super::*;
use crate::domain::Time;
use crate::store::query::Place;

fn place(at: i64) -> ClaimPlace {
    ClaimPlace::at(Priority::NONE, Place { started_at: Time::from_micros(at), run_id: format!("run-{at}").into() })
}

#[test]
fn the_oldest_of_the_lanes_that_will_do_is_taken() {
    let all_room = AllRoom::new(&Limits::default());
    let counted = Counted::new(1, CountedRoom::new(&all_room));
    let mut lanes = Lanes::new(counted, News::default(), Room::new(&all_room));
    let named = |agent_id| Taker { agent_id, agents: &Agents::All };
    let lane = |value: &str, owner: Option<&str>| Lane {
        value: Some(value.into()),
        owner: owner.map(Into::into),
        ..Lane::default()
    };
    for (at, value, owner) in [(3, "a", None), (1, "a", None), (2, "b", None), (4, "c", None), (0, "d", Some("x"))] {
        lanes.insert(place(at), WaitingRun { lane: lane(value, owner), revision: Revision::FIRST });
    }
    assert_eq!((lanes.oldest(named(None)), lanes.oldest(named(Some("x")))), (Some(&place(0)), Some(&place(0))));
    lanes.count(&"a".into(), &"runs".into());
    assert_eq!(lanes.oldest(named(Some("y"))), Some(&place(2)), "a is full, and d is the owner's");
    assert_eq!(lanes.take(&place(2)).map(|run| run.lane), Some(lane("b", None)));
    assert_eq!(lanes.full(), ["a".into()]);
    lanes.count(&"e".into(), &"runs".into());
    lanes.remove(&place(3));
    let taken = std::iter::from_fn(|| lanes.oldest(named(Some("y"))).cloned().inspect(|place| drop(lanes.take(place))));
    assert_eq!(taken.map(|place| place.within.started_at.micros()).collect::<Vec<_>>(), [1, 4]);
    assert_eq!((lanes.runs.len(), lanes.take(&place(0)).map(|run| run.lane)), (1, Some(lane("d", Some("x")))));
    assert!(lanes.runs.is_empty() && lanes.waiting.is_empty() && lanes.index.is_empty());
}
