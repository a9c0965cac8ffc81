//! The namespaces that a process knows: what is looked up, and how often.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use runledger::clock::SystemClock;
use runledger::domain::{Namespace, NamespaceAsk, NamespaceCommand, NamespaceSettings};
use runledger::namespaces::{FRESH, Registry};
use runledger::store::sqlite::SqliteStore;
use runledger::store::{Namespaces as _, OpenOptions};
use tokio::time::{advance, pause, timeout};

use crate::support::wrapped::Wrapped;

async fn known() -> (Arc<Wrapped>, Registry) {
    let store = SqliteStore::in_memory(&OpenOptions::default(), Arc::new(SystemClock)).await.unwrap();
    let store = Arc::new(Wrapped::around(Arc::new(store)));
    (store.clone(), Registry::new(store))
}

async fn change(store: &Wrapped, name: &str, ask: NamespaceAsk) {
    let command = NamespaceCommand { name: name.into(), ask, expected_revision: None };
    store.change_namespace(&command).await.unwrap();
}

fn look_ups(store: &Wrapped) -> u64 {
    store.look_ups.load(Ordering::Relaxed)
}

#[tokio::test]
async fn the_default_namespace_costs_no_statement() {
    let (store, registry) = known().await;
    assert!(registry.has(&"default".into()).await.unwrap());
    assert_eq!(look_ups(&store), 0);
}

#[tokio::test]
async fn a_namespace_is_there_from_its_creation_on() {
    let (store, registry) = known().await;
    let name = Namespace::from("team-a");
    for expected in 1..=3 {
        assert!(!registry.has(&name).await.unwrap());
        assert_eq!(look_ups(&store), expected, "no answer that there is none is kept");
    }
    change(&store, "team-a", NamespaceAsk::Create(NamespaceSettings::default())).await;
    for _ in 0..3 {
        assert!(registry.has(&name).await.unwrap());
        assert_eq!(look_ups(&store), 4);
    }
}

#[tokio::test]
async fn a_namespace_that_was_deleted_is_gone_within_ten_seconds() {
    let (store, registry) = known().await;
    let name = Namespace::from("team-a");
    change(&store, "team-a", NamespaceAsk::Create(NamespaceSettings::default())).await;
    assert!(registry.has(&name).await.unwrap());
    change(&store, "team-a", NamespaceAsk::Delete).await;
    pause();
    // The deletion took some of the time.
    advance(FRESH / 2).await;
    assert!(registry.has(&name).await.unwrap());
    advance(FRESH / 2).await;
    assert!(!registry.has(&name).await.unwrap());
}

#[tokio::test]
async fn who_asks_while_a_look_up_is_on_its_way_shares_the_next() {
    let (store, registry) = known().await;
    store.run_gate.forget_permits(usize::MAX);
    let names: Vec<Namespace> = (0..50).map(|n| format!("nobody-{n}").into()).collect();
    let asked = join_all(names.iter().map(|name| registry.has(name)));
    let opened = async {
        while look_ups(&store) == 0 {
            tokio::task::yield_now().await;
        }
        store.run_gate.add_permits(1);
        while look_ups(&store) == 1 {
            tokio::task::yield_now().await;
        }
        store.run_gate.add_permits(1);
    };
    let (answers, ()) = timeout(Duration::from_secs(30), async { tokio::join!(asked, opened) }).await.unwrap();
    assert!(answers.into_iter().all(|answer| !answer.unwrap()));
    assert_eq!(look_ups(&store), 2, "one for the first, and one for all others");
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_its_look_up_to_the_next() {
    let (store, registry) = known().await;
    store.run_gate.forget_permits(usize::MAX);
    let name = Namespace::from("nobody");
    let gone = async {
        let mut asked = Box::pin(registry.has(&name));
        while look_ups(&store) == 0 {
            let _pending = futures_util::poll!(asked.as_mut());
            tokio::task::yield_now().await;
        }
    };
    let stays = async {
        while look_ups(&store) == 0 {
            tokio::task::yield_now().await;
        }
        registry.has(&name).await
    };
    let opens = async {
        while look_ups(&store) < 2 {
            tokio::task::yield_now().await;
        }
        store.run_gate.add_permits(1);
    };
    let all = async { tokio::join!(gone, stays, opens) };
    let ((), answer, ()) = timeout(Duration::from_secs(30), all).await.unwrap();
    assert!(!answer.unwrap());
}

#[tokio::test]
async fn a_store_that_fails_is_no_answer() {
    let (store, registry) = known().await;
    store.blind.store(true, Ordering::Relaxed);
    assert!(registry.has(&"team-a".into()).await.is_err());
    assert!(registry.has(&"default".into()).await.unwrap());
}
