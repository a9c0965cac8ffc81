//! Runs that are read together, with their leases.

use std::collections::BTreeMap;

use runledger::domain::{Progress, Renewal, RunKey};
use runledger::store::leases::KeptLease;
use runledger::store::{FoundRun, Store};
use serde_json::json;

use super::asking::{apply, home};
use super::fixture::Fixture;
use crate::support::commands::{Asking as _, claim, complete, deferred, key, leased, release, start};

/// The runs, as they are read one by one.
async fn alone(store: &dyn Store, keys: &[RunKey]) -> Vec<Option<(u64, Option<KeptLease>)>> {
    let mut alone = Vec::new();
    for key in keys {
        let lease = store.leases(std::slice::from_ref(key)).await.unwrap().remove(0);
        alone.push(store.run(key).await.unwrap().map(|run| (run.revision.get(), lease)));
    }
    alone
}

async fn together(store: &dyn Store, keys: &[RunKey]) -> Vec<Option<(u64, Option<KeptLease>)>> {
    let found = store.runs(keys, usize::MAX).await.unwrap();
    let read = found.into_iter().zip(keys).map(|(found, key)| match found {
        FoundRun::Run(read) => {
            assert_eq!(read.run.key(), *key);
            Some((read.run.revision.get(), read.lease))
        }
        FoundRun::Nothing => None,
        FoundRun::Left => panic!("there is no bound"),
    });
    read.collect()
}

pub(crate) async fn runs_are_read_with_the_leases_that_they_keep<F: Fixture>(fixture: F) {
    let (here, there) = (fixture.store(), fixture.replica().await);
    apply(here, start("plain")).await;
    apply(here, deferred("pending")).await;
    for id in ["held", "reported", "ended", "released"] {
        apply(here, leased(id)).await;
    }
    let reported = key("reported");
    let progress = Some(Progress { done: 3, total: 10, message: "half".to_owned() });
    let renewal = Renewal { epoch: 1.into(), agent_id: None, is_confined: false, progress };
    assert!(here.renew(home(here, &reported), &[(reported, renewal)]).await.unwrap()[0].is_some());
    apply(here, complete("ended").epoch(1)).await;
    apply(here, release("released").epoch(1)).await;
    for id in ["claimed", "ready"] {
        apply(here, deferred(id)).await;
        apply(here, claim(id)).await;
    }
    apply(here, release("ready").epoch(1).on(|terms| terms.not_begun = true)).await;

    let ids =
        ["held", "plain", "unknown", "pending", "reported", "held", "ended", "released", "claimed", "ready", "plain"];
    let keys: Vec<RunKey> = ids.into_iter().map(key).collect();
    let expected = alone(here, &keys).await;
    let kept: Vec<_> =
        ids.iter().zip(&expected).filter(|(_, read)| read.as_ref().is_some_and(|(_, l)| l.is_some())).collect();
    assert_eq!(
        kept.iter().map(|(id, _)| **id).collect::<Vec<_>>(),
        ["held", "reported", "held", "released", "claimed"]
    );
    // Once as a replica that knows nothing of them, and again as one that has read them.
    for store in [here, &*there, &*there] {
        assert_eq!(together(store, &keys).await, expected);
        for (key, expected) in keys.iter().zip(&expected) {
            assert_eq!(together(store, std::slice::from_ref(key)).await, std::slice::from_ref(expected));
        }
    }
    // What was known of them is not so any more.
    apply(&*there, complete("held").epoch(1)).await;
    apply(&*there, claim("ready")).await;
    for store in [here, &*there, here] {
        assert_eq!(together(store, &keys).await, alone(store, &keys).await);
    }
}

pub(crate) async fn runs_that_are_read_together_are_bounded_in_bytes<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let text = json!({"text": "x".repeat(20_000)});
    let ids: Vec<String> = (0..40).map(|n| format!("run-{n}")).collect();
    for (n, id) in ids.iter().enumerate() {
        let command = if n % 2 == 0 { start(id) } else { leased(id) };
        apply(store, command.metadata(&text)).await;
    }
    let mut left: Vec<RunKey> = ids.iter().map(String::as_str).chain(["unknown"]).map(key).collect();
    for (bytes_max, runs_max) in [(0, 1), (1, 1), (100_000, 6)] {
        let mut read = BTreeMap::new();
        let mut asked = left.clone();
        while !asked.is_empty() {
            let found = store.runs(&asked, bytes_max).await.unwrap();
            let before = read.len();
            let mut rest = Vec::new();
            for (key, found) in asked.into_iter().zip(found) {
                match found {
                    FoundRun::Run(run) => drop(read.insert(key, run)),
                    FoundRun::Nothing => assert_eq!(key.run_id, *"unknown"),
                    FoundRun::Left => rest.push(key),
                }
            }
            let more = read.len() - before;
            assert!(more <= runs_max && (more > 0 || rest.is_empty()), "{more} of {bytes_max} bytes");
            asked = rest;
        }
        assert_eq!(read.len(), 40);
        assert!(read.values().all(|read| read.lease.is_some() == read.run.supervision.lease.is_some()));
    }
    left.truncate(0);
    assert_eq!(store.runs(&left, 1).await.unwrap(), []);
}
