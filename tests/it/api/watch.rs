//! `WatchRun`: what a watcher sees, from where, and across cuts.

use runledger_proto::v1::watch_run_response::Frame;
use runledger_proto::v1::{Run, RunStatus, UpdateRunRequest};
use serde_json::json;
use tonic::Code;

use super::caller::{Caller, abort, complete, deferred, fail, fresh, start, update};
use super::place::Place;
use super::refused::Refused;
use super::values::structure;

async fn step(caller: &Caller, run_id: &str, n: u64) -> Run {
    let metadata = structure(json!({ "step": n, format!("key-{}", n % 7): [n] }));
    let run = caller.apply(UpdateRunRequest { metadata, ..update(run_id) }).await;
    assert_eq!(run, caller.get(run_id).await);
    run
}

/// A run with so many events and its states: `states[r - 1]` is the one after revision r.
async fn lived(caller: &Caller, events: u64) -> Vec<Run> {
    let run_id = fresh("lived");
    let mut states = vec![caller.apply(deferred(&run_id)).await, caller.apply(start(&run_id)).await];
    for n in 3..events {
        states.push(step(caller, &run_id, n).await);
    }
    states.push(caller.apply(complete(&run_id)).await);
    states
}

pub(crate) async fn a_snapshot_comes_first_and_changes_follow(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let run_id = caller.apply(deferred(&fresh("live"))).await.run_id;
    let snapshot = caller.get(&run_id).await;
    let mut watches = [caller.watch(&run_id, None).await, other.watch(&run_id, None).await];
    for watch in &mut watches {
        assert_eq!(watch.snapshot().await, snapshot);
        assert_eq!(watch.caught_up().await, 1);
    }
    let mut states = vec![other.apply(start(&run_id)).await];
    for n in 0..6 {
        let writer = if n % 2 == 0 { &caller } else { &other };
        states.push(step(writer, &run_id, n).await);
        if n == 3 {
            for watch in &mut watches {
                for state in &states {
                    assert_eq!(watch.change().await.run.as_ref(), Some(state));
                }
            }
            states.clear();
        }
    }
    states.push(caller.apply(abort(&run_id)).await);
    let events = caller.events(&run_id).await;
    for watch in &mut watches {
        for state in &states {
            let change = watch.change().await;
            assert_eq!(change.run.as_ref(), Some(state));
            assert_eq!(change.event.unwrap(), events[usize::try_from(state.revision).unwrap() - 1]);
        }
        assert_eq!(watch.end().await, *states.last().unwrap());
    }
}

pub(crate) async fn a_change_at_another_server_arrives(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let run = caller.run_in(RunStatus::Running).await;
    let mut watch = other.watch(&run.run_id, Some(run.revision)).await;
    assert_eq!(watch.caught_up().await, run.revision);
    for n in 0..20 {
        let state = step(&caller, &run.run_id, n).await;
        assert_eq!(watch.change().await.run, Some(state), "before the next call is made");
    }
    let end = caller.apply(fail(&run.run_id)).await;
    assert_eq!(watch.change().await.run.as_ref(), Some(&end));
    assert_eq!(watch.end().await, end);
}

pub(crate) async fn a_watch_begins_after_any_revision(place: Place) {
    let caller = place.caller().await;
    let states = lived(&caller, 9).await;
    let run_id = &states[0].run_id;
    let last = states.last().unwrap();
    for after in 0..=9 {
        let mut watch = caller.watch(run_id, Some(after)).await;
        for state in &states[usize::try_from(after).unwrap()..] {
            let change = watch.change().await;
            assert_eq!((change.run.as_ref(), change.event.unwrap().revision), (Some(state), state.revision));
        }
        assert_eq!(watch.end().await, *last);
    }
    let mut watch = caller.watch(run_id, None).await;
    assert_eq!(watch.snapshot().await, *last);
    assert_eq!(watch.end().await, *last);
}

pub(crate) async fn a_history_of_several_pages_and_keyframes_arrives_whole(place: Place) {
    let caller = place.caller().await;
    let states = lived(&caller, 230).await;
    for after in [0, 31, 32, 33, 99, 100, 101, 229] {
        let mut watch = place.other().await.watch(&states[0].run_id, Some(after)).await;
        for state in &states[usize::try_from(after).unwrap()..] {
            assert_eq!(watch.change().await.run.as_ref(), Some(state));
        }
        assert_eq!(watch.end().await.revision, 230);
    }
}

pub(crate) async fn a_watch_ahead_of_the_run_is_refused(place: Place) {
    let caller = place.caller().await;
    let run = caller.run_in(RunStatus::Completed).await;
    for ahead in [run.revision + 1, u64::MAX] {
        let refused = Refused::from(caller.try_watch(&run.run_id, Some(ahead)).await.unwrap_err());
        let refused = refused.is(Code::OutOfRange, "REVISION_AHEAD");
        assert_eq!((&refused.info["after_revision"], &*refused.info["revision"]), (&ahead.to_string(), "2"));
    }
}

/// The revision that a frame is resumed from.
fn resume_at(frame: &Frame) -> u64 {
    match frame {
        Frame::Snapshot(snapshot) => snapshot.run.as_ref().unwrap().revision,
        Frame::Change(change) => change.event.as_ref().unwrap().revision,
        Frame::CaughtUp(caught_up) => caught_up.revision,
        Frame::Checkpoint(checkpoint) => checkpoint.revision,
        Frame::End(end) => end.run.as_ref().unwrap().revision,
        Frame::Progressed(_) => panic!("the run has no lease"),
    }
}

fn changes(frames: &[Frame]) -> Vec<&Frame> {
    frames.iter().filter(|frame| matches!(frame, Frame::Change(_))).collect()
}

/// The writer writes while one watch goes on uncut and another is cut after every few frames, in ever other strides,
/// and resumed at the other server.
pub(crate) async fn a_cut_watch_resumed_equals_an_uncut_one(place: Place) {
    let callers = [place.caller().await, place.other().await];
    let run_id = callers[0].apply(start(&fresh("cut"))).await.run_id;
    let mut uncut = callers[0].watch(&run_id, Some(0)).await;
    let writing = async {
        for n in 0..60 {
            step(&callers[0], &run_id, n).await;
        }
        callers[1].apply(complete(&run_id)).await
    };
    let cutting = async {
        let mut seen: Vec<Frame> = Vec::new();
        let mut after = 0;
        for turn in 0_usize.. {
            let mut watch = callers[turn % 2].watch(&run_id, Some(after)).await;
            let mut caught_up = 0;
            for _ in 0..[1, 4, 2, 7, 3][turn % 5] {
                let Some(frame) = watch.next().await else { return seen };
                caught_up += usize::from(matches!(frame, Frame::CaughtUp(_)));
                after = resume_at(&frame);
                seen.push(frame);
            }
            assert!(caught_up <= 1);
        }
        seen
    };
    let (whole, last, cut) = tokio::join!(uncut.rest(), writing, cutting);
    assert_eq!(whole.iter().filter(|frame| matches!(frame, Frame::CaughtUp(_))).count(), 1);
    let wanted: Vec<u64> = (1..=62).collect();
    assert_eq!(changes(&whole).into_iter().map(resume_at).collect::<Vec<_>>(), wanted);
    assert_eq!(changes(&cut), changes(&whole));
    for frames in [&whole, &cut] {
        assert!(matches!(frames.last(), Some(Frame::End(end)) if end.run.as_ref() == Some(&last)));
    }
}
