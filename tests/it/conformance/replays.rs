//! A retry is recognised by its `request_id`, for as long as the run's events are kept.

use runledger::domain::{Refusal, Run, Verdict};
use runledger::store::{Store, run_at};

use super::asking::{apply, ask, ask_all, neighbours, stored, word, words};
use super::fixture::Fixture;
use super::sound::sound;
use crate::support::commands::{Asking as _, abort, complete, key, start, update};

/// The revision that a retry was told, with the run as it was then.
async fn replayed(store: &dyn Store, command: runledger::domain::Command, current: u64) -> Run {
    let key = command.key.clone();
    match ask(store, command).await {
        Ok(Verdict::Replayed { revision, current_revision }) => {
            assert_eq!(current_revision, current);
            run_at(store, &key, revision).await.unwrap().expect("the event was applied")
        }
        other => panic!("not replayed: {other:?}"),
    }
}

pub(crate) async fn a_retry_in_the_same_batch_is_replayed<F: Fixture>(fixture: F) {
    let begin = || start("run-1").request("request-1");
    let change = || update("run-1").workflow("w").request("request-2");
    let answers = ask_all(fixture.store(), vec![begin(), begin(), change(), begin(), change()]).await;
    assert_eq!(words(&answers), ["applied", "replayed", "applied", "replayed", "replayed"]);
    assert_eq!(answers[1], Ok(Verdict::Replayed { revision: 1.into(), current_revision: 1.into() }));
    assert_eq!(answers[3], Ok(Verdict::Replayed { revision: 1.into(), current_revision: 2.into() }));
    assert_eq!(sound(fixture.store()).await.log.len(), 2);
}

pub(crate) async fn a_retry_after_later_calls_is_replayed_as_then<F: Fixture>(fixture: F) {
    let begin = || start("run-1").workflow("first").request("request-1");
    let then = apply(fixture.store(), begin()).await;
    for n in 0..40 {
        apply(fixture.store(), update("run-1").workflow(&format!("later-{n}"))).await;
    }
    assert_eq!(replayed(fixture.store(), begin(), 41).await, then);
    assert_eq!(sound(fixture.store()).await.log.len(), 41);
}

pub(crate) async fn a_retry_after_the_run_ended_is_replayed<F: Fixture>(fixture: F) {
    apply(fixture.store(), start("run-1")).await;
    let change = || update("run-1").workflow("w").request("request-1");
    let then = apply(fixture.store(), change()).await;
    let end = || abort("run-1").reason("enough").request("request-2");
    let ended = apply(fixture.store(), end()).await;
    assert_eq!(replayed(fixture.store(), change(), 3).await, then);
    assert_eq!(replayed(fixture.store(), end(), 3).await, ended);
    assert_eq!(sound(fixture.store()).await.runs[&key("run-1")], ended);
}

pub(crate) async fn a_retry_after_reopening_is_replayed<F: Fixture>(mut fixture: F) {
    let begin = || start("run-1").request("request-1");
    let then = apply(fixture.store(), begin()).await;
    apply(fixture.store(), complete("run-1")).await;
    fixture.reopen().await;
    assert_eq!(replayed(fixture.store(), begin(), 2).await, then);
}

pub(crate) async fn a_retry_with_its_old_expected_revision_is_replayed<F: Fixture>(fixture: F) {
    let begin = || start("run-1").revision(0).request("request-1");
    let change = || update("run-1").workflow("w").revision(1).request("request-2");
    let first = apply(fixture.store(), begin()).await;
    let second = apply(fixture.store(), change()).await;
    apply(fixture.store(), complete("run-1")).await;
    assert_eq!(replayed(fixture.store(), begin(), 3).await, first);
    assert_eq!(replayed(fixture.store(), change(), 3).await, second);
}

pub(crate) async fn a_retry_at_another_replica_is_replayed<F: Fixture>(fixture: F) {
    let replica = fixture.replica().await;
    let begin = || start("run-1").request("request-1");
    let then = apply(fixture.store(), begin()).await;
    assert_eq!(replayed(&*replica, begin(), 1).await, then);
    let change = || update("run-1").workflow("w").request("request-2");
    let changed = apply(&*replica, change()).await;
    assert_eq!(replayed(fixture.store(), change(), 2).await, changed);
    assert_eq!(sound(fixture.store()).await.log.len(), 2);
}

pub(crate) async fn the_same_request_id_with_another_digest_is_refused<F: Fixture>(fixture: F) {
    let before = apply(fixture.store(), start("run-1").request("request-1")).await;
    for other in [
        start("run-1").workflow("w").request("request-1"),
        update("run-1").workflow("w").request("request-1"),
        start("run-1").by("agent").request("request-1"),
        complete("run-1").request("request-1"),
    ] {
        let said = Refusal::RequestIdReused { key: key("run-1"), request_id: "request-1".into() };
        assert_eq!(ask(fixture.store(), other).await, Err(said));
    }
    assert_eq!(stored(fixture.store(), &key("run-1")).await, before);
}

pub(crate) async fn an_unchanged_call_is_not_remembered<F: Fixture>(fixture: F) {
    apply(fixture.store(), start("run-1")).await;
    let same = || start("run-1").request("request-1");
    assert_eq!(words(&ask_all(fixture.store(), vec![same(), same()]).await), ["unchanged", "unchanged"]);
    assert_eq!(word(&ask(fixture.store(), update("run-1").workflow("w").request("request-1")).await), "applied");
    assert_eq!(word(&ask(fixture.store(), same()).await), "REQUEST_ID_REUSED");
}

pub(crate) async fn a_refused_call_is_not_remembered<F: Fixture>(fixture: F) {
    let end = || complete("run-1").request("request-1");
    assert_eq!(words(&ask_all(fixture.store(), vec![end(), end()]).await), ["RUN_NOT_FOUND", "RUN_NOT_FOUND"]);
    apply(fixture.store(), start("run-1")).await;
    assert_eq!(words(&ask_all(fixture.store(), vec![end(), end()]).await), ["applied", "replayed"]);
}

pub(crate) async fn a_request_id_belongs_to_one_run<F: Fixture>(fixture: F) {
    let ids = neighbours(fixture.store(), 2);
    let begin = |id: &String| start(id).request("request-1");
    assert_eq!(words(&ask_all(fixture.store(), ids.iter().map(begin).collect()).await), ["applied", "applied"]);
    assert_eq!(words(&ask_all(fixture.store(), ids.iter().map(begin).collect()).await), ["replayed", "replayed"]);
}
