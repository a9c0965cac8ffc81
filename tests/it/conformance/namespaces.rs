//! Namespaces: made, changed and deleted, and the wall that a commit keeps.

use futures_util::future::{join, join_all};
use runledger::domain::ids::shard_of;
use runledger::domain::{
    Command, Namespace, NamespaceAsk, NamespaceCommand, NamespaceDecision, NamespaceRecord, NamespaceRefusal,
    NamespaceSettings, Positions, Quotas, Revision, RunKey, Shard,
};
use runledger::store::{ChangeError, LoggedEvent, PAGE_BYTES_MAX, Store};

use super::asking::{apply, ask, beginning, word};
use super::fixture::Fixture;
use super::sound::sound;
use crate::support::commands::{Asking as _, abort, complete, deferred, start, update};

fn asked(name: &str, ask: NamespaceAsk) -> NamespaceCommand {
    NamespaceCommand { name: name.into(), ask, expected_revision: None }
}

fn settings(max_active_runs: Option<u64>) -> NamespaceSettings {
    NamespaceSettings {
        description: "for a team".to_owned(),
        quotas: Quotas { max_active_runs, ..Quotas::default() },
        ..NamespaceSettings::default()
    }
}

/// Another quota of active runs.
fn active_runs(max: Option<u64>) -> NamespaceAsk {
    NamespaceAsk::Update { description: None, max_active_runs: Some(max), max_stored_bytes: None, retention: None }
}

/// Another quota of stored bytes.
fn stored_bytes(max: Option<u64>) -> NamespaceAsk {
    NamespaceAsk::Update { description: None, max_active_runs: None, max_stored_bytes: Some(max), retention: None }
}

pub(crate) async fn change(
    store: &dyn Store,
    name: &str,
    ask: NamespaceAsk,
) -> Result<NamespaceDecision, NamespaceRefusal> {
    match store.change_namespace(&asked(name, ask)).await {
        Ok(decided) => Ok(decided),
        Err(ChangeError::Refused(refusal)) => Err(refusal),
        Err(error) => panic!("{error:?}"),
    }
}

/// Makes a namespace.
pub(crate) async fn make(store: &dyn Store, name: &str, max_active_runs: Option<u64>) -> NamespaceRecord {
    match change(store, name, NamespaceAsk::Create(settings(max_active_runs))).await {
        Ok(NamespaceDecision::Create(record)) => record,
        other => panic!("not made: {other:?}"),
    }
}

pub(super) async fn of_one_name_that_many_make_at_once_one_is_made_and_the_others_find_it<F: Fixture>(fixture: F) {
    let stores = [fixture.replica().await, fixture.replica().await];
    let create = |description: &str| {
        NamespaceAsk::Create(NamespaceSettings { description: description.to_owned(), ..NamespaceSettings::default() })
    };
    for number in 0..12 {
        let name = format!("team-{number}");
        let asks = (0..6).map(|nth| {
            let said = if nth < 4 { "of one" } else { "of another" };
            change(&*stores[nth % 2], &name, create(said))
        });
        let (mut made, mut unchanged, mut exists) = (0, 0, 0);
        for answer in join_all(asks).await {
            match answer {
                Ok(NamespaceDecision::Create(_)) => made += 1,
                Ok(NamespaceDecision::Unchanged(_)) => unchanged += 1,
                Err(NamespaceRefusal::Exists) => exists += 1,
                other => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(made, 1, "{name}");
        assert!([(3, 2), (1, 4)].contains(&(unchanged, exists)), "{name}: {unchanged} unchanged, {exists} refused");
    }
}

async fn found(store: &dyn Store, name: &str) -> Option<NamespaceRecord> {
    store.namespaces(&[Namespace::from(name)]).await.unwrap().pop()
}

/// The command, in a namespace.
pub(crate) fn within(name: &str, mut command: Command) -> Command {
    command.key.namespace = name.into();
    command
}

/// The id of a run that lives in a shard.
fn one_in_shard(store: &dyn Store, name: &str, shard: Shard) -> String {
    let ledger = store.ledger();
    let lives_there = |id: &String| {
        shard_of(ledger.id, ledger.shard_count, &RunKey { namespace: name.into(), run_id: id.as_str().into() }) == shard
    };
    (0..1_000).map(|n| format!("run-{n}")).find(lives_there).expect("each shard has some")
}

pub(crate) async fn a_namespace_is_made_changed_listed_and_deleted<F: Fixture>(fixture: F) {
    let (store, replica) = (fixture.store(), fixture.replica().await);
    assert_eq!(found(store, "team-a").await, None);
    let made = make(store, "team-a", None).await;
    assert_eq!((made.revision, made.created_at), (Revision::FIRST, made.updated_at));
    assert_eq!(found(&*replica, "team-a").await, Some(made.clone()));
    let again = NamespaceAsk::Create(settings(None));
    assert_eq!(change(&*replica, "team-a", again).await, Ok(NamespaceDecision::Unchanged(made.clone())));
    let other = NamespaceAsk::Create(settings(Some(1)));
    assert_eq!(change(&*replica, "team-a", other).await, Err(NamespaceRefusal::Exists));

    let quota = active_runs(Some(3));
    let Ok(NamespaceDecision::Update(updated)) = change(store, "team-a", quota.clone()).await else { panic!() };
    assert_eq!((updated.revision.get(), &updated.settings), (2, &settings(Some(3))));
    assert_eq!(found(&*replica, "team-a").await, Some(updated.clone()));
    assert_eq!(change(store, "team-b", quota).await, Err(NamespaceRefusal::NotFound));

    make(store, "team-0", None).await;
    let names = |records: Vec<NamespaceRecord>| -> Vec<String> {
        records.into_iter().map(|record| record.name.to_string()).collect()
    };
    assert_eq!(names(store.list_namespaces("", "", 9).await.unwrap()), ["default", "team-0", "team-a"]);
    assert_eq!(names(store.list_namespaces("", "default", 1).await.unwrap()), ["team-0"]);
    for (prefix, after, listed) in [
        ("team-", "", &["team-0", "team-a"][..]),
        ("team-", "team-0", &["team-a"]),
        ("team-a", "", &["team-a"]),
        ("team-a", "team-a", &[]),
        ("tea", "z", &[]),
        ("team-b", "", &[]),
    ] {
        assert_eq!(names(store.list_namespaces(prefix, after, 9).await.unwrap()), listed, "{prefix} after {after}");
    }

    assert_eq!(change(store, "team-a", NamespaceAsk::Delete).await, Ok(NamespaceDecision::Delete));
    assert_eq!(found(&*replica, "team-a").await, None);
    assert_eq!(change(store, "team-a", NamespaceAsk::Delete).await, Err(NamespaceRefusal::NotFound));
    assert_eq!(change(store, "default", NamespaceAsk::Delete).await, Err(NamespaceRefusal::NotEmpty));
}

pub(crate) async fn a_run_is_created_only_in_a_namespace_that_is_there<F: Fixture>(fixture: F) {
    let (store, replica) = (fixture.store(), fixture.replica().await);
    for command in [start("run-1"), deferred("run-1"), start("run-1").request("r"), start("run-1").revision(7)] {
        let refused = ask(store, within("team-a", command)).await;
        assert_eq!(word(&refused), "NAMESPACE_NOT_FOUND");
    }
    for command in [update("run-1"), complete("run-1"), abort("run-1")] {
        assert_eq!(word(&ask(store, within("team-a", command)).await), "RUN_NOT_FOUND");
    }
    make(store, "team-a", None).await;
    // Two replicas and several calls: commits that are decided on hints are among them.
    for n in 0..12 {
        for (store, id) in [(store, format!("here-{n}")), (&*replica, format!("there-{n}"))] {
            apply(store, within("team-a", start(&id).request("r"))).await;
            assert_eq!(word(&ask(store, within("team-b", start(&id))).await), "NAMESPACE_NOT_FOUND");
            apply(store, within("team-a", complete(&id))).await;
        }
    }
    assert_eq!(word(&ask(store, within("team-a", start("here-0").request("r"))).await), "replayed");
    assert_eq!(sound(store).await.runs.len(), 24);
}

pub(crate) async fn a_namespace_with_a_run_is_not_deleted<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for shard in 0..store.ledger().shard_count {
        let name = format!("team-{shard}");
        let id = one_in_shard(store, &name, Shard(shard));
        let started = within(&name, start(&id));
        make(store, &name, None).await;
        assert_eq!(change(store, &name, NamespaceAsk::Delete).await, Ok(NamespaceDecision::Delete));
        assert_eq!(word(&ask(store, started.clone()).await), "NAMESPACE_NOT_FOUND", "no hint of before counts");
        make(store, &name, None).await;
        apply(store, started).await;
        assert_eq!(change(store, &name, NamespaceAsk::Delete).await, Err(NamespaceRefusal::NotEmpty));
        apply(store, within(&name, complete(&id))).await;
        assert_eq!(change(store, &name, NamespaceAsk::Delete).await, Err(NamespaceRefusal::NotEmpty));
    }
}

/// A start and a deletion at the same moment: either the run is there, and its namespace, or neither is.
pub(crate) async fn of_a_start_and_a_deletion_the_first_wins<F: Fixture>(fixture: F) {
    let (store, replica) = (fixture.store(), fixture.replica().await);
    let (mut started, mut deleted) = (0, 0);
    for round in 0..40 {
        let name = format!("team-{round}");
        make(store, &name, None).await;
        // This replica has hints of the shards' ends and of the namespace: it may decide on them.
        apply(store, start(&format!("warm-{round}"))).await;
        let hinted = ask(store, within(&name, start("run").revision(7))).await;
        assert_eq!(word(&hinted), "REVISION_MISMATCH");
        let run = within(&name, start("run"));
        let key = run.key.clone();
        let (answer, decided) = if round % 2 == 0 {
            join(ask(store, run), change(&*replica, &name, NamespaceAsk::Delete)).await
        } else {
            let (decided, answer) = join(change(&*replica, &name, NamespaceAsk::Delete), ask(store, run)).await;
            (answer, decided)
        };
        let (run, namespace) = (store.run(&key).await.unwrap(), found(store, &name).await);
        match (word(&answer), decided) {
            ("applied", Err(NamespaceRefusal::NotEmpty)) => {
                started += 1;
                assert!(run.is_some() && namespace.is_some(), "round {round}");
            }
            ("NAMESPACE_NOT_FOUND", Ok(NamespaceDecision::Delete)) => {
                deleted += 1;
                assert!(run.is_none() && namespace.is_none(), "round {round}");
            }
            both => panic!("round {round}: {both:?}"),
        }
    }
    assert_eq!(started + deleted, 40);
    sound(store).await;
}

pub(crate) async fn a_quota_of_active_runs_is_exact_on_every_replica<F: Fixture>(fixture: F) {
    let (store, replica) = (fixture.store(), fixture.replica().await);
    let stores = [store, &*replica];
    make(store, "team-a", None).await;
    apply(store, within("team-a", start("before"))).await;
    let quota = active_runs(Some(5));
    change(store, "team-a", quota).await.unwrap();
    let starts = (0..16).map(|n| ask(stores[n % 2], within("team-a", deferred(&format!("run-{n}")))));
    let answers = join_all(starts).await;
    let (applied, refused): (Vec<_>, Vec<_>) = answers.iter().map(word).partition(|word| *word == "applied");
    assert_eq!((applied.len(), refused.len()), (4, 12), "{refused:?}");
    assert!(refused.iter().all(|word| *word == "QUOTA_EXCEEDED"), "{refused:?}");
    // A run that is there may be started again, and one that ends makes room for one.
    assert_eq!(word(&ask(store, within("team-a", start("before"))).await), "unchanged");
    apply(store, within("team-a", complete("before"))).await;
    let next = ["next-1", "next-2"].map(|id| ask(&*replica, within("team-a", start(id))));
    let mut words: Vec<_> = join_all(next).await.iter().map(word).collect();
    words.sort_unstable();
    assert_eq!(words, ["QUOTA_EXCEEDED", "applied"]);
    // Others are not in its way, and without the quota there is room again.
    apply(store, start("elsewhere")).await;
    let none = active_runs(None);
    change(store, "team-a", none).await.unwrap();
    apply(&*replica, within("team-a", start("next-3"))).await;
    sound(store).await;
}

async fn measure(store: &dyn Store) {
    while store.measure().await.unwrap() {}
}

pub(crate) async fn a_quota_of_stored_bytes_is_held_against_what_was_measured<F: Fixture>(fixture: F) {
    let (store, replica) = (fixture.store(), fixture.replica().await);
    make(store, "team-a", None).await;
    for n in 0..20 {
        apply(store, within("team-a", start(&format!("run-{n}")))).await;
        apply(store, start(&format!("run-{n}"))).await;
    }
    measure(store).await;
    assert_eq!(found(store, "team-a").await.unwrap().stored_bytes, None, "nobody asked for it");
    change(store, "team-a", stored_bytes(Some(1 << 30))).await.unwrap();
    assert_eq!(found(store, "team-a").await.unwrap().stored_bytes, Some(0), "it is to be measured");
    measure(&*replica).await;
    let measured = found(store, "team-a").await.unwrap().stored_bytes.unwrap();
    assert!((20 * 50..20 * 5_000).contains(&measured), "{measured} bytes of 20 events");
    // Two that measure at once count nothing twice.
    apply(store, within("team-a", update("run-0").label("a", "b"))).await;
    join(measure(store), measure(&*replica)).await;
    let grown = found(&*replica, "team-a").await.unwrap().stored_bytes.unwrap();
    assert!((measured + 50..measured + 5_000).contains(&grown), "{measured} and then {grown}");

    change(store, "team-a", stored_bytes(Some(grown))).await.unwrap();
    for (store, id) in [(store, "new-1"), (&*replica, "new-2")] {
        assert_eq!(word(&ask(store, within("team-a", start(id))).await), "QUOTA_EXCEEDED");
        apply(store, start(id)).await;
    }
    // What is there goes on to its end.
    assert_eq!(word(&ask(store, within("team-a", start("run-0"))).await), "unchanged");
    apply(store, within("team-a", update("run-1").label("a", "b"))).await;
    apply(&*replica, within("team-a", complete("run-1"))).await;
    change(store, "team-a", stored_bytes(None)).await.unwrap();
    apply(&*replica, within("team-a", start("new-1"))).await;
    sound(store).await;
}

/// Every page of a namespace's events, as a watch reads them.
async fn pages_of(store: &dyn Store, name: &str, limit: usize) -> (Vec<LoggedEvent>, Positions, usize) {
    let (mut after, mut events, mut pages) = (beginning(store), Vec::new(), 0);
    loop {
        let page = store.changes_of(&name.into(), &after, limit, PAGE_BYTES_MAX).await.unwrap();
        pages += 1;
        let (cut, ends) = (page.cut, page.ends.clone());
        assert_eq!(cut, ends.is_none(), "a page that is not cut says up to where it goes");
        for logged in page.whole().unwrap() {
            assert!(logged.position > after.of(logged.shard), "nothing is repeated");
            after.set(logged.shard, logged.position);
            events.push(logged);
        }
        if let Some(ends) = ends {
            after.advance(&ends);
            return (events, after, pages);
        }
    }
}

pub(crate) async fn a_page_of_one_namespace_is_the_log_without_the_others<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for name in ["small", "large"] {
        make(store, name, None).await;
    }
    for n in 0..60 {
        let id = format!("run-{n}");
        apply(store, within("large", start(&id))).await;
        apply(store, start(&id)).await;
        if n % 10 == 3 {
            apply(store, within("small", start(&id))).await;
        }
        apply(store, within("large", complete(&id))).await;
    }
    let log = sound(store).await.log;
    for (name, count) in [("small", 6), ("large", 120), ("nobody", 0)] {
        let own: Vec<LoggedEvent> = log.iter().filter(|logged| logged.event.key.namespace == name).cloned().collect();
        assert_eq!(own.len(), count);
        for limit in [1, 3, 1000] {
            let (events, end, pages) = pages_of(store, name, limit).await;
            assert_eq!(events, own, "{name}, {limit} events a page");
            assert_eq!(end, store.ends().await.unwrap(), "{name}: it has seen the whole log");
            assert!(pages <= 2 + count, "{name}: {pages} pages for {count} events");
        }
    }
}
