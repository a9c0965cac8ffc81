//! Lists and counts: what the store finds is what the filter means.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_map, btree_set};
use proptest::option::of;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::domain::{Command, Filter, Metadata, Route, Run, RunId, Shard, Status, Time};
use runledger::store::query::{CountBy, Order, Place, Reach, RunCounts, RunPage, RunQuery};
use runledger::store::{PAGE_BYTES_MAX, Store};
use serde_json::json;

use super::asking::{apply, ask_all, home, stored};
use super::fixture::Fixture;
use super::namespaces::make;
use super::values::HOSTILE;
use crate::support::commands::{Asking as _, abort, archive, complete, deferred, fail, key, restore, start, update};
use crate::support::random::source;

const ORDERS: [Order; 2] = [Order::NewestFirst, Order::OldestFirst];

pub(super) fn asked(filter: &Filter, order: Order) -> RunQuery {
    RunQuery {
        namespace: DEFAULT_NAMESPACE.into(),
        filter: filter.clone(),
        order,
        after: None,
        limit: 1_000,
        bytes_max: PAGE_BYTES_MAX,
        metadata: true,
        reach: Reach::Long,
    }
}

/// All pages of a list, one after the other.
async fn pages(store: &dyn Store, mut query: RunQuery) -> Vec<RunPage> {
    let mut pages = Vec::new();
    loop {
        let page = store.list(&query).await.unwrap();
        assert!(page.runs.len() <= query.limit);
        query.after.clone_from(&page.next);
        pages.push(page);
        if query.after.is_none() {
            return pages;
        }
    }
}

async fn listed(store: &dyn Store, query: RunQuery) -> Vec<Run> {
    pages(store, query).await.into_iter().flat_map(|page| page.runs).collect()
}

fn in_order(order: Order, mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_by_key(Place::of);
    match order {
        Order::OldestFirst => {}
        Order::NewestFirst => runs.reverse(),
    }
    runs
}

fn ids(runs: &[Run]) -> Vec<&str> {
    runs.iter().map(|run| run.run_id.as_str()).collect()
}

fn link() -> impl Strategy<Value = Option<String>> {
    of(prop_oneof![Just("link-1".to_owned()), Just("link-2".to_owned()), Just("é 'x'".to_owned())])
}

fn parent() -> impl Strategy<Value = Option<RunId>> {
    of(prop_oneof![Just(RunId::from("run-1")), Just(RunId::from("run-2"))])
}

fn route() -> impl Strategy<Value = Option<Route>> {
    of(prop_oneof![Just(Route::Mcp), Just(Route::Cli), Just(Route::Http)])
}

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(prop_oneof![Just("a".to_owned()), Just("b\"".to_owned())], "[x-y]?", 0..3)
}

/// Commands that bring a run to some state, in two steps that need not be one batch.
fn made() -> impl Strategy<Value = (Vec<Command>, Vec<Command>)> {
    let links = ("thread-[1-3]", link(), link(), link(), route(), labels(), parent(), parent());
    ("[a-z0-9.~]{6}", 0..8_u8, links).prop_map(
        |(id, end, (thread, agent, workflow, audit, route, labels, parent, continued))| {
            let linked = |command: Command| {
                command.thread(&thread).metadata(&json!({"of": id})).changing(|changes| {
                    changes.agent_id.clone_from(&agent);
                    changes.audit_session_id.clone_from(&audit);
                    changes.route = route;
                    changes.labels = labels.clone();
                    changes.parent_run_id.clone_from(&parent);
                    changes.continues_run_id.clone_from(&continued);
                    changes.phase = (end % 3 > 0).then(|| format!("phase-{}", end % 3));
                })
            };
            let rest = match end {
                0 => return (vec![linked(deferred(&id))], vec![]),
                1 => vec![],
                2 => vec![complete(&id)],
                3 => vec![fail(&id)],
                4 => vec![complete(&id), archive(&id)],
                5 => vec![abort(&id), archive(&id), restore(&id), archive(&id)],
                6 => vec![update(&id).workflow("").label("a", "x"), abort(&id)],
                _ => vec![update(&id).workflow(workflow.as_deref().unwrap_or("link-2"))],
            };
            let begun = linked(start(&id)).changing(|changes| changes.workflow_id = workflow);
            (vec![begun], rest)
        },
    )
}

fn filters(times: Vec<Time>) -> impl Strategy<Value = Filter> {
    let time = move || of(proptest::sample::select(times.clone()));
    let status = proptest::sample::select(Status::ALL.to_vec());
    let links = (of("thread-[1-3]"), link(), link(), link());
    let statuses = prop_oneof![
        2 => Just(BTreeSet::new()),
        1 => Just([Status::Pending, Status::Running].into()),
        2 => btree_set(status, 1..4),
    ];
    let few_labels = prop_oneof![2 => Just(BTreeMap::new()), 1 => labels()];
    let parents = (parent(), parent());
    (links, statuses, route(), few_labels, (time(), time()), parents, any::<u16>()).prop_map(
        |((task_thread_id, agent_id, workflow_id, audit_session_id), statuses, route, labels, times, parents, keep)| {
            let ((from, before), (parent, continued)) = (times, parents);
            // Each field alone is there as well as many together.
            let kept = |n: u16| keep & (1 << n) != 0;
            Filter {
                or: None,
                priority: None,
                suspended: (kept(11) && kept(13)).then(|| kept(12)),
                ready: (kept(12) && kept(14)).then(|| kept(13)),
                suspension_kind: (kept(12) && kept(13) && kept(15)).then(|| "HELP".to_owned()),
                task_thread_id: task_thread_id.filter(|_| kept(0)),
                statuses,
                agent_id: agent_id.filter(|_| kept(1)),
                workflow_id: workflow_id.filter(|_| kept(2)),
                audit_session_id: audit_session_id.filter(|_| kept(3)),
                route: route.filter(|_| kept(4)),
                labels,
                started_from: from.filter(|_| kept(5)),
                started_before: before.filter(|_| kept(6)),
                archived: kept(7).then(|| kept(8)),
                parent_run_id: parent.filter(|_| kept(9)),
                continues_run_id: continued.filter(|_| kept(10)),
                phase: kept(11).then(|| format!("phase-{}", u8::from(kept(12)) + 1)),
                lifecycle: (kept(13) && kept(14) && kept(15)).then(|| "none".to_owned()),
            }
        },
    )
}

/// Runs of every kind; those of one batch were started at the same time.
async fn various(store: &dyn Store, runner: &mut TestRunner, count: usize) -> Vec<Run> {
    let made: Vec<_> = (0..count).map(|_| made().new_tree(runner).unwrap().current()).collect();
    let mut runs = BTreeSet::new();
    for some in made.chunks(20) {
        let mut shards: BTreeMap<Shard, (Vec<Command>, Vec<Command>)> = BTreeMap::new();
        for (first, then) in some {
            let shard = shards.entry(home(store, &first[0].key)).or_default();
            shard.0.extend(first.iter().cloned());
            shard.1.extend(then.iter().cloned());
            runs.insert(first[0].key.clone());
        }
        for (first, then) in shards.into_values() {
            ask_all(store, first).await;
            if !then.is_empty() {
                ask_all(store, then).await;
            }
        }
    }
    let mut all = Vec::new();
    for key in runs {
        all.push(stored(store, &key).await);
    }
    all
}

pub(crate) async fn a_list_and_a_count_are_of_the_runs_that_match<F: Fixture>(fixture: F) {
    let mut runner = source();
    let store = fixture.store();
    let all = various(store, &mut runner, 300).await;
    // Runs of another namespace belong to no list here.
    make(store, "other", None).await;
    apply(store, Command { key: runledger::domain::RunKey { namespace: "other".into(), ..key("run-1") }, ..start("") })
        .await;
    let times: Vec<Time> = all.iter().map(|run| run.started_at).collect();
    let mut sizes = BTreeSet::new();
    for n in 0..250 {
        let filter =
            if n == 0 { Filter::default() } else { filters(times.clone()).new_tree(&mut runner).unwrap().current() };
        let matching: Vec<Run> = all.iter().filter(|run| filter.matches(run)).cloned().collect();
        sizes.insert(matching.len());
        let mut counts = RunCounts::default();
        for run in &matching {
            *counts.counts.entry(run.status).or_default() += 1;
        }
        assert_eq!(
            store.count(&DEFAULT_NAMESPACE.into(), &filter, None, CountBy::STATUS, Reach::Long).await.unwrap(),
            counts,
            "{filter:?}"
        );
        for order in ORDERS {
            let expected = in_order(order, matching.clone());
            let limit = [1_000, 1, 7, matching.len().max(1)][n % 4];
            let query = RunQuery { limit, ..asked(&filter, order) };
            let found = pages(store, query.clone()).await;
            assert_eq!(found.len(), matching.len().div_ceil(limit).max(1), "the last page says that it is the last");
            let found: Vec<Run> = found.into_iter().flat_map(|page| page.runs).collect();
            assert_eq!(ids(&found), ids(&expected), "{filter:?} {order:?}");
            assert_eq!(found, expected);
            let basic = listed(store, RunQuery { metadata: false, ..query }).await;
            let without = |run| Run { metadata: Metadata::default(), ..run };
            assert_eq!(basic, expected.into_iter().map(without).collect::<Vec<_>>());
        }
    }
    assert!(sizes.len() > 20, "the filters meant many different things: {sizes:?}");
    assert_eq!(
        store.count(&"nobody's".into(), &Filter::default(), None, CountBy::STATUS, Reach::Long).await.unwrap(),
        RunCounts::default()
    );
}

pub(crate) async fn a_page_goes_on_after_any_place<F: Fixture>(fixture: F) {
    let mut runner = source();
    let all = various(fixture.store(), &mut runner, 40).await;
    let active = Filter { statuses: [Status::Pending, Status::Running].into(), ..Filter::default() };
    for filter in [Filter::default(), active] {
        for order in ORDERS {
            let expected = in_order(order, all.iter().filter(|run| filter.matches(run)).cloned().collect());
            let places = all.iter().flat_map(|run| {
                // Whether the run there matches, or there is none at all.
                let Place { started_at, run_id } = Place::of(run);
                [run_id.clone(), format!("{run_id}~").into(), "".into()].map(|run_id| Place { started_at, run_id })
            });
            for after in places {
                let rest = expected.iter().filter(|run| match order {
                    Order::NewestFirst => Place::of(run) < after,
                    Order::OldestFirst => Place::of(run) > after,
                });
                let rest: Vec<Run> = rest.cloned().collect();
                let query = RunQuery { after: Some(after), ..asked(&filter, order) };
                assert_eq!(ids(&listed(fixture.store(), query).await), ids(&rest));
            }
        }
    }
}

pub(crate) async fn pages_neither_skip_nor_repeat_while_runs_start_and_end<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let replica = fixture.replica().await;
    let mut before = BTreeSet::new();
    for n in 0..60 {
        before.insert(apply(store, start(&format!("old-{n}"))).await.run_id);
    }
    let writing = async {
        for n in 0..60 {
            apply(store, start(&format!("new-{n}"))).await;
            apply(store, complete(&format!("old-{n}"))).await;
            apply(store, update(&format!("new-{n}")).workflow("w")).await;
        }
    };
    let reading = async {
        for order in [Order::NewestFirst, Order::OldestFirst, Order::NewestFirst] {
            for limit in [1, 4, 25] {
                let runs = listed(&*replica, RunQuery { limit, ..asked(&Filter::default(), order) }).await;
                assert_eq!(ids(&runs), ids(&in_order(order, runs.clone())));
                let shown: BTreeSet<RunId> = runs.iter().map(|run| run.run_id.clone()).collect();
                assert_eq!(shown.len(), runs.len(), "nothing is repeated");
                assert!(shown.is_superset(&before), "nothing is skipped");
            }
        }
    };
    futures_util::future::join(writing, reading).await;
}

pub(crate) async fn a_run_that_leaves_the_filter_between_pages_moves_no_other<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let running = Filter { statuses: [Status::Running].into(), ..Filter::default() };
    for order in ORDERS {
        let mut runs = Vec::new();
        for n in 0..9 {
            runs.push(apply(store, start(&format!("{order:?}-{n}"))).await);
        }
        let runs = in_order(order, runs);
        let query = RunQuery { limit: 2, ..asked(&running, order) };
        let first = store.list(&query).await.unwrap();
        assert_eq!(first.runs, runs[..2]);
        // The run that the page ended at leaves, and one that was not shown yet.
        for gone in [1, 3] {
            apply(store, complete(&runs[gone].run_id)).await;
        }
        let rest = listed(store, RunQuery { after: first.next, ..query }).await;
        let stay = [2, 4, 5, 6, 7, 8].map(|n: usize| &*runs[n].run_id);
        assert_eq!(ids(&rest), stay);
        for run_id in [&*runs[0].run_id].into_iter().chain(stay) {
            apply(store, complete(run_id)).await;
        }
        assert_eq!(listed(store, asked(&running, order)).await, []);
    }
}

pub(crate) async fn what_was_acknowledged_is_listed_on_every_replica<F: Fixture>(fixture: F) {
    let replica = fixture.replica().await;
    for n in 0..30 {
        let id = format!("run-{n}");
        let started = apply(fixture.store(), start(&id).thread(&id)).await;
        let thread = Filter { task_thread_id: Some(id.clone()), ..Filter::default() };
        let running = Filter { statuses: [Status::Running].into(), ..thread.clone() };
        assert_eq!(listed(&*replica, asked(&running, Order::NewestFirst)).await, [started]);
        let ended = apply(&*replica, complete(&id)).await;
        assert_eq!(listed(fixture.store(), asked(&running, Order::NewestFirst)).await, []);
        assert_eq!(listed(fixture.store(), asked(&thread, Order::OldestFirst)).await, [ended]);
        let counted = fixture
            .store()
            .count(&DEFAULT_NAMESPACE.into(), &thread, None, CountBy::STATUS, Reach::Long)
            .await
            .unwrap();
        assert_eq!(counted, RunCounts { counts: [(Status::Completed, 1)].into(), ..RunCounts::default() });
    }
}

pub(crate) async fn a_hostile_string_finds_its_own_runs_only<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for (n, text) in HOSTILE.into_iter().enumerate() {
        let linked = start(&format!("run-{n}")).thread(text).owner(text).workflow(text).label(text, text);
        apply(store, linked.changing(|changes| changes.audit_session_id = Some(text.to_owned()))).await;
    }
    for (n, text) in HOSTILE.into_iter().enumerate() {
        let text = || Some(text.to_owned());
        let labels: BTreeMap<_, _> = text().into_iter().map(|text| (text.clone(), text)).collect();
        let statuses: BTreeSet<_> = [Status::Running].into();
        for filter in [
            Filter { task_thread_id: text(), ..Filter::default() },
            Filter { agent_id: text(), ..Filter::default() },
            Filter { workflow_id: text(), ..Filter::default() },
            Filter { audit_session_id: text(), ..Filter::default() },
            Filter { labels: labels.clone(), ..Filter::default() },
            Filter { agent_id: text(), workflow_id: text(), statuses: statuses.clone(), ..Filter::default() },
            Filter { labels: labels.clone(), statuses, audit_session_id: text(), ..Filter::default() },
        ] {
            let found = listed(store, asked(&filter, Order::NewestFirst)).await;
            assert_eq!(ids(&found), [format!("run-{n}")], "{filter:?}");
            assert_eq!(
                store
                    .count(&DEFAULT_NAMESPACE.into(), &filter, None, CountBy::STATUS, Reach::Long)
                    .await
                    .unwrap()
                    .counts,
                [(Status::Running, 1)].into()
            );
        }
        let other = Filter { labels: labels.into_iter().map(|(k, v)| (k, v + " ")).collect(), ..Filter::default() };
        assert_eq!(listed(store, asked(&other, Order::NewestFirst)).await, []);
    }
}

pub(crate) async fn a_page_of_runs_is_bounded_in_bytes<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for n in 0..40_u8 {
        let text = char::from(b'a' + n % 26).to_string().repeat(60_000);
        apply(store, start(&format!("run-{n:02}")).metadata(&json!({"text": text, "n": n}))).await;
    }
    for order in ORDERS {
        for limit in [2, 1_000] {
            let found = pages(store, RunQuery { limit, ..asked(&Filter::default(), order) }).await;
            let whole: usize = found.iter().map(|page| page.runs.len()).sum();
            assert_eq!(whole, 40);
            for page in &found {
                let bytes: usize = page.runs.iter().map(|run| json!(run.metadata).to_string().len()).sum();
                assert!(bytes < PAGE_BYTES_MAX + 130_000, "a page of {bytes} bytes");
            }
            let expected = if limit == 2 { 20..=20 } else { 3..=5 };
            assert!(expected.contains(&found.len()), "{} pages of about a MiB hold 2.4 MB", found.len());
        }
        // Without the metadata that makes them large, they are one page.
        let basic = store.list(&RunQuery { metadata: false, ..asked(&Filter::default(), order) }).await.unwrap();
        assert_eq!((basic.runs.len(), basic.next), (40, None));
        // A page shows one run of any weight.
        let tiny = pages(store, RunQuery { bytes_max: 1, ..asked(&Filter::default(), order) }).await;
        assert!(tiny.iter().take(40).all(|page| page.runs.len() == 1));
    }
}

pub(crate) async fn a_page_that_looks_at_ten_thousand_runs_in_vain_ends_there<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let mut shards: BTreeMap<Shard, Vec<Command>> = BTreeMap::new();
    apply(store, start("first").label("wanted", "yes")).await;
    for n in 0..10_300 {
        let run = start(&format!("run-{n}")).owner("agent");
        shards.entry(home(store, &run.key)).or_default().push(run);
    }
    for commands in shards.into_values() {
        for batch in commands.chunks(500) {
            ask_all(store, batch.to_vec()).await;
        }
    }
    apply(store, start("last").label("wanted", "yes")).await;
    let wanted = Filter { labels: [("wanted".to_owned(), "yes".to_owned())].into(), ..Filter::default() };
    let active = Filter { statuses: [Status::Running].into(), ..wanted.clone() };
    for filter in [wanted, active] {
        for (order, found) in [(Order::NewestFirst, ["last", "first"]), (Order::OldestFirst, ["first", "last"])] {
            let query = RunQuery { limit: 2, ..asked(&filter, order) };
            let pages = pages(store, query).await;
            assert_eq!(pages.iter().map(|page| ids(&page.runs)).collect::<Vec<_>>(), [[found[0]], [found[1]]]);
        }
        let none = Filter { agent_id: Some("agent".into()), ..filter };
        let page = store.list(&asked(&none, Order::NewestFirst)).await.unwrap();
        assert!(page.runs.is_empty() && page.next.is_some());
        assert_eq!(listed(store, asked(&none, Order::OldestFirst)).await, []);
        assert_eq!(
            store.count(&DEFAULT_NAMESPACE.into(), &none, None, CountBy::STATUS, Reach::Long).await.unwrap(),
            RunCounts::default()
        );
    }
}
