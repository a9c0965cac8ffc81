//! The index against a plain test of every filter.

use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::super::fold::Folded;
use super::*;
use crate::domain::evolve::evolve;
use crate::domain::{
    BindingsChange, Changes, Event, EventType, LabelsChange, Principal, Revision, RunKey, Status, Time,
};

const NAMESPACES: [&str; 2] = ["default", "another"];

fn text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[ab]")
}

fn route() -> impl Strategy<Value = Option<Route>> {
    proptest::option::weighted(0.3, prop_oneof![Just(Route::Mcp), Just(Route::Cli)])
}

fn filter() -> impl Strategy<Value = Filter> {
    let texts = (text(), text(), text(), text(), route());
    (texts, btree_map("[kl]", "[ab]", 0..3), proptest::option::weighted(0.3, 0..2_usize)).prop_map(
        |((task_thread_id, agent_id, workflow_id, audit_session_id, route), labels, status)| Filter {
            task_thread_id,
            route,
            agent_id,
            workflow_id,
            audit_session_id,
            labels,
            statuses: status.map(|status| [Status::Pending, Status::Running][status]).into_iter().collect(),
            ..Filter::default()
        },
    )
}

fn run() -> impl Strategy<Value = Arc<Run>> {
    let texts = ("[ab]", text(), text(), text(), route());
    (texts, btree_map("[kl]", "[ab]", 0..3), any::<bool>()).prop_map(|(texts, set, runs)| {
        let (thread, agent, workflow, audit, route) = texts;
        let changes = Changes {
            task_thread_id: Some(thread),
            agent_id: agent,
            labels: LabelsChange { set, ..LabelsChange::default() },
            bindings: BindingsChange {
                route,
                workflow_id: workflow,
                audit_session_id: audit,
                ..BindingsChange::default()
            },
            ..Changes::default()
        };
        let status = if runs { Status::Running } else { Status::Pending };
        Arc::new(evolve(
            None,
            &Event {
                key: RunKey { namespace: NAMESPACES[0].into(), run_id: "run-1".into() },
                revision: 1.into(),
                at: Time::from_micros(0),
                steady_ahead_micros: 0,
                request_id: None,
                event_type: EventType::Created,
                from: None,
                to: status,
                principal: Principal::anonymous(),
                trace: None,
                changes,
            },
        ))
    })
}

fn change(namespace: &str, before: Option<Arc<Run>>, after: Arc<Run>) -> Change {
    Change {
        key: RunKey { namespace: namespace.into(), run_id: "run-1".into() },
        revision: Revision::from(1),
        status: after.status,
        at: Time::from_micros(0),
        held: false,
        waits: false,
        event: Bytes::new(),
        run: Bytes::new(),
        filtered: Folded { before, after },
    }
}

fn told(watchers: &Watchers) -> HashSet<u64> {
    watchers.by_id.iter().filter(|(_, watcher)| watcher.pending == 7).map(|(id, _)| *id).collect()
}

proptest! {
    #[test]
    fn whom_the_index_tells_is_whose_filter_shows_the_change(
        sessions in vec((0..2_usize, filter()), 0..12),
        (before, after) in (proptest::option::of(run()), run()),
        left in vec(any::<bool>(), 12),
        namespace in 0..2_usize,
    ) {
        let mut watchers = Watchers::default();
        for (id, (namespace, filter)) in (0..).zip(&sessions) {
            watchers.admit(id, NAMESPACES[*namespace].into(), Arc::new(filter.clone()), LedgerEpoch::FIRST);
            watchers.has_looked(id, 1);
        }
        for (id, left) in (0..sessions.len() as u64).zip(&left) {
            if *left {
                watchers.dismiss(id);
            }
        }
        let change = change(NAMESPACES[namespace], before, after);
        watchers.tell(&change, 7);
        let shown: HashSet<u64> = watchers
            .by_id
            .iter()
            .filter(|(_, watcher)| watcher.shows(&change).is_some())
            .map(|(id, _)| *id)
            .collect();
        prop_assert_eq!(told(&watchers), shown);
        for id in 0..sessions.len() as u64 {
            watchers.dismiss(id);
        }
        prop_assert!(watchers.groups.is_empty() && watchers.by_value.is_empty() && watchers.numbers.is_empty());
        prop_assert_eq!(watchers.bytes(), 0);
    }
}

#[test]
fn sessions_with_equal_filters_are_one_group_and_are_told_together_once_they_wait() {
    let mut watchers = Watchers::default();
    let filter = || Arc::new(Filter { workflow_id: Some("w".to_owned()), ..Filter::default() });
    for id in 0..5_000 {
        watchers.admit(id, NAMESPACES[0].into(), filter(), LedgerEpoch::FIRST);
    }
    assert_eq!((watchers.len(), watchers.groups.len()), (5_000, 1));
    let run = evolve(
        None,
        &Event {
            key: RunKey { namespace: NAMESPACES[0].into(), run_id: "run-1".into() },
            revision: 1.into(),
            at: Time::from_micros(0),
            steady_ahead_micros: 0,
            request_id: None,
            event_type: EventType::Created,
            from: None,
            to: Status::Running,
            principal: Principal::anonymous(),
            trace: None,
            changes: Changes {
                task_thread_id: Some("t".to_owned()),
                bindings: BindingsChange { workflow_id: Some("w".to_owned()), ..BindingsChange::default() },
                ..Changes::default()
            },
        },
    );
    let change = change(NAMESPACES[0], None, Arc::new(run));
    watchers.tell(&change, 7);
    assert!(told(&watchers).is_empty(), "any entry may be for them already");
    (0..4_999).for_each(|id| watchers.has_looked(id, 1));
    watchers.tell(&change, 7);
    assert_eq!(told(&watchers).len(), 4_999);
    watchers.tell(&change, 8);
    assert_eq!(told(&watchers).len(), 4_999, "the oldest entry is what they look at first");
}

#[test]
fn filters_that_share_a_value_are_found_by_one_that_they_do_not_share() {
    let of = |labels: [(&str, String); 2]| labels.map(|(key, value)| (key.to_owned(), value)).into();
    let shared: [&dyn Fn(u64) -> Filter; 4] = [
        &|n| Filter { labels: of([("env", "prod".to_owned()), ("job", n.to_string())]), ..Filter::default() },
        &|n| Filter { labels: of([("a", n.to_string()), ("z", "z".to_owned())]), ..Filter::default() },
        &|n| {
            let labels = [("job".to_owned(), n.to_string())].into();
            Filter { agent_id: Some("agent".to_owned()), labels, ..Filter::default() }
        },
        &|n| {
            let (thread, workflow) = (Some("thread".to_owned()), Some(n.to_string()));
            Filter { task_thread_id: thread, workflow_id: workflow, ..Filter::default() }
        },
    ];
    for filter in shared {
        let mut watchers = Watchers::default();
        for id in 0..5_000 {
            watchers.admit(id, NAMESPACES[0].into(), Arc::new(filter(id)), LedgerEpoch::FIRST);
        }
        let most = watchers.by_value.values().map(HashSet::len).max();
        assert!(most <= Some(2), "an event is tested on {most:?} groups for one value");
    }
    let mut watchers = Watchers::default();
    for (id, namespace) in (0..).zip(NAMESPACES) {
        watchers.admit(id, namespace.into(), Arc::default(), LedgerEpoch::FIRST);
    }
    assert!(watchers.by_value.values().all(|groups| groups.len() == 1), "a namespace's events are for its own watches");
}
