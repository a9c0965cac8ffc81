use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::{Call, Observed};
use crate::clock::SystemClock;
use crate::domain::{
    Agents, Ask, Command, Filter, LabelValue, Lifecycle, LifecycleKey, LifecycleName, NamespaceAsk, NamespaceCommand,
    Positions, Principal, Priority, PutLifecycle, Renewal, Rules, RunKey, Shard, Start, Status,
};
use crate::store::contents::Beside;
use crate::store::leases::OverduePlace;
use crate::store::open::{self, Location};
use crate::store::query::{CountBy, Order, Reach, ReadyOf, RunQuery};
use crate::store::retention::{Purges as _, Walk, Walked};
use crate::store::{
    Commits as _, FoundRun, Lifecycles as _, Namespaces as _, OfLedger as _, OpenOptions, RunLog as _, Runs as _,
    Store as _, Unsettled, Upkeep as _, run_at,
};
use crate::tasks::Supervisor;

fn of(key: RunKey, ask: Ask, principal: Principal) -> Command {
    Command {
        key,
        ask,
        expected_revision: None,
        request: None,
        principal,
        agents: Agents::All,
        oversize: Vec::new(),
        prepared: crate::domain::Prepared::default(),
        trace: None,
    }
}

#[tokio::test]
async fn each_method_that_asks_the_database_is_counted_under_its_own_name() {
    let (options, supervisor) = (OpenOptions::default(), Supervisor::new());
    let inner = open::open(&Location::Memory, &options, Arc::new(SystemClock), &supervisor).await.unwrap();
    let store = Observed::around(inner);
    let counted = |expected: &[Call]| {
        for call in Call::ALL {
            let times = u64::from(expected.contains(&call));
            assert_eq!(store.calls().of(call), times, "{}", call.name());
        }
    };
    let _ledger = (store.ledger(), store.describe(), store.commits_max());
    store.tick();
    store.announce_commit();
    counted(&[]);

    let key = RunKey { namespace: "default".into(), run_id: "observed".into() };
    let ask = Ask::Start(Start { task_thread_id: "thread".to_owned(), ..Start::default() });
    let principal = Principal::anonymous();
    let command = of(key.clone(), ask, principal);
    let commit_id = Uuid::from_u128(1);
    let decided = store.commit(Shard(0), commit_id, [Arc::new(command)].into(), &Rules::shared()).await.unwrap();
    let unsettled = Unsettled { shard: Shard(0), commit_id, first_position: 1, decided };
    assert!(store.settle(&unsettled).await.unwrap());
    store.probe_write(Shard(0)).await.unwrap();
    counted(&[Call::Commit, Call::Settle, Call::ProbeWrite]);

    assert_eq!(store.ends().await.unwrap(), [1]);
    assert_eq!(store.changes(&Positions::start(1), 9, 999).await.unwrap().events.len(), 1);
    assert_eq!(store.run_events(&key, 0.into(), 9, 999).await.unwrap().len(), 1);
    assert_eq!(store.revisions_as_of(std::slice::from_ref(&key), &vec![1].into()).await.unwrap(), [1]);
    assert_eq!(store.forgotten(&key.namespace).await.unwrap(), [0]);
    assert!(store.run(&key).await.unwrap().is_some());
    assert!(matches!(store.runs(std::slice::from_ref(&key), 9).await.unwrap()[..], [FoundRun::Run(_)]));
    assert!(store.runs_at(&[(key.clone(), 1.into())]).await.unwrap()[0].is_some());
    let (filter, order) = (Filter::default(), Order::NewestFirst);
    let namespace = key.namespace.clone();
    let query = RunQuery {
        namespace,
        filter,
        order,
        after: None,
        limit: 9,
        bytes_max: 999,
        metadata: false,
        reach: Reach::Long,
    };
    assert_eq!(store.list(&query).await.unwrap().runs.len(), 1);
    store.count(&key.namespace, &query.filter, None, CountBy::STATUS, Reach::Long).await.unwrap();
    assert!(store.beside(&key, &Beside::default()).await.unwrap().is_empty());
    assert_eq!(store.next_priority(&key.namespace, 101).await.unwrap(), None);
    store.ready(&key.namespace, ReadyOf { not_begun: true, priority: Priority::NONE }, None, 9).await.unwrap();
    let value = LabelValue { namespace: key.namespace.clone(), label: "k".to_owned(), value: "v".to_owned() };
    store.running(&[value]).await.unwrap();
    assert_eq!(store.walked_all(&key.namespace).await.unwrap().0, Walked::default());
    let renewal = Renewal { epoch: 1.into(), agent_id: None, is_confined: false, progress: None };
    assert_eq!(store.renew(Shard(0), &[(key.clone(), renewal)]).await.unwrap(), [None]);
    assert_eq!(store.leases(std::slice::from_ref(&key)).await.unwrap(), [None]);
    assert!(store.overdue(Shard(0), &OverduePlace::default(), 9).await.unwrap().runs.is_empty());
    assert_eq!(store.changes_of(&key.namespace, &Positions::start(1), 9, 999).await.unwrap().events.len(), 1);
    assert_eq!(store.namespaces(std::slice::from_ref(&key.namespace)).await.unwrap().len(), 1);
    assert_eq!(store.list_namespaces("", "", 9).await.unwrap().len(), 1);
    let ask =
        NamespaceAsk::Update { description: None, max_active_runs: None, max_stored_bytes: None, retention: None };
    let change = NamespaceCommand { name: key.namespace.clone(), ask, expected_revision: None };
    store.change_namespace(&change).await.unwrap();
    let lifecycle = Lifecycle { name: "task".to_owned(), ..Lifecycle::default() };
    let (source, by) = (String::new(), Principal::anonymous());
    let put = PutLifecycle { namespace: key.namespace.clone(), lifecycle, source, by, only_new: false };
    store.put_lifecycle(&put).await.unwrap();
    let name = LifecycleName { name: "task".to_owned(), version: None };
    assert!(store.lifecycle(&key.namespace, &name).await.unwrap().is_some());
    assert!(store.declared(&LifecycleKey::Named(key.namespace.clone(), name)).await.unwrap().is_some());
    assert_eq!(store.list_lifecycles(&key.namespace, "", 9).await.unwrap().len(), 1);
    assert_eq!(store.lifecycle_versions(&key.namespace, "task", 2, 9).await.unwrap().len(), 1);
    let requests = ["request".to_owned()];
    assert_eq!(store.claimed(&key.namespace, &requests).await.unwrap(), [None]);
    assert_eq!(store.replay_claims(&key.namespace, &requests).await.unwrap(), [None]);
    store.stay_alive().await.unwrap();
    assert!(!store.measure().await.unwrap());
    assert_eq!(store.retentions().await.unwrap(), []);
    let walk = Walk { namespace: key.namespace.clone(), keep_ms: 1, statuses: vec![Status::Completed] };
    store.note_exported(&key.namespace, &Positions::start(1)).await.unwrap();
    assert_eq!(store.exported(&key.namespace).await.unwrap(), Positions::start(1));
    assert_eq!(store.walked(Shard(0), &walk).await.unwrap(), 0);
    let due = store.due(Shard(0), &walk, 0, 9).await.unwrap();
    assert_eq!(store.purge(Shard(0), &walk, &due).await.unwrap(), None, "nobody wants it");
    store.tidy().await.unwrap();
    store.look_at_past().await.unwrap();
    assert!(store.statistics().await.unwrap().bytes > 0);
    store.ping().await.unwrap();
    counted(&Call::ALL);

    run_at(&store, &key, 1.into()).await.unwrap();
    assert_eq!(store.calls().of(Call::RunsAt), 2, "one run is read as several are");
    let names: BTreeSet<&str> = Call::ALL.iter().map(|call| call.name()).collect();
    assert_eq!(names.len(), Call::ALL.len());
}
