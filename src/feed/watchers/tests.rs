//! The index against a plain test of every filter.

use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::super::fold::Folded;
use super::*;
use crate::domain::evolve::evolve;
use crate::domain::{Changes, Event, EventType, LabelsChange, LinksChange, Principal, Revision, RunKey, Status, Time};

const NAMESPACES: [&str; 2] = ["default", "another"];

fn text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[ab]")
}

fn filter() -> impl Strategy<Value = Filter> {
    let texts = (text(), text(), text(), text());
    (texts, btree_map("[kl]", "[ab]", 0..3), proptest::option::weighted(0.3, 0..2_usize)).prop_map(
        |((task_thread_id, agent_id, workflow_id, audit_session_id), labels, status)| Filter {
            task_thread_id,
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
    let texts = ("[ab]", text(), text(), text());
    (texts, btree_map("[kl]", "[ab]", 0..3), any::<bool>()).prop_map(|((thread, agent, workflow, audit), set, runs)| {
        let changes = Changes {
            task_thread_id: Some(thread),
            agent_id: agent,
            labels: LabelsChange { set, ..LabelsChange::default() },
            links: LinksChange { workflow_id: workflow, audit_session_id: audit, ..LinksChange::default() },
            ..Changes::default()
        };
        let status = if runs { Status::Running } else { Status::Pending };
        Arc::new(evolve(
            None,
            &Event {
                key: RunKey { namespace: NAMESPACES[0].into(), run_id: "run-1".into() },
                revision: 1.into(),
                at: Time::from_micros(0),
                request_id: None,
                event_type: EventType::Created,
                from: None,
                to: status,
                principal: Principal::anonymous(),
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
        held: false,
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
        prop_assert!(watchers.groups.is_empty() && watchers.by_value.is_empty() && watchers.others.is_empty());
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
            request_id: None,
            event_type: EventType::Created,
            from: None,
            to: Status::Running,
            principal: Principal::anonymous(),
            changes: Changes {
                task_thread_id: Some("t".to_owned()),
                links: LinksChange { workflow_id: Some("w".to_owned()), ..LinksChange::default() },
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
