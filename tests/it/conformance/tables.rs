//! The tables' contents, read past the store.

use std::sync::Arc;

use runledger::clock::draw_id;
use runledger::domain::ids::request_key;
use runledger::domain::limits::KEYFRAME_EVENTS;
use runledger::domain::{Filter, Route, Rules, Run, RunKey};
use runledger::store::query::Order;
use runledger::store::{CommitError, PAGE_BYTES_MAX, Store, StoreError, run_at};
use serde_json::{Value, json};

use super::asking::{apply, ask_all, beginning, home, neighbours, stored, words};
use super::fixture::OnDisk;
use super::lists::asked;
use super::sound::{Whole, pages, sound};
use crate::support::commands::{Asking as _, abort, complete, deferred, fail, key, start, update};

/// Runs in every status, with every column set and with none.
async fn all_kinds(store: &dyn Store) {
    for (n, end) in [complete("x"), abort("x"), fail("x")].into_iter().enumerate() {
        let id = format!("ended-{n}");
        apply(store, start(&id)).await;
        apply(store, runledger::domain::Command { key: key(&id), ..end }).await;
    }
    for n in 0..3 {
        apply(store, deferred(&format!("pending-{n}"))).await;
        apply(store, start(&format!("running-{n}")).metadata(&json!({"n": n, "text": "é\"\\"}))).await;
    }
    let full =
        start("full").owner("agent").workflow("workflow").label("k'", "v\"").label("é", "").metadata(&json!({"a": 1}));
    apply(
        store,
        full.changing(|changes| {
            changes.audit_session_id = Some("audit".into());
            changes.tab_group_id = Some("tabs".into());
            changes.route = Some(Route::Http);
        }),
    )
    .await;
    apply(store, deferred("moved")).await;
    ask_all(
        store,
        vec![start("moved"), update("moved").workflow("w"), update("moved").label("l", "1"), complete("moved")],
    )
    .await;
    apply(store, start("cleared").workflow("w").label("l", "1").metadata(&json!({"a": 1}))).await;
    apply(store, update("cleared").workflow("").without_label("l").metadata(&json!({"a": null}))).await;
}

fn parsed(cell: Option<&String>) -> Option<Value> {
    cell.map(|text| serde_json::from_str(text).unwrap())
}

/// The fields of a run that have no column of their own.
fn rest_of(run: &Run) -> Value {
    let Ok(Value::Object(mut rest)) = serde_json::to_value(run) else { panic!("a run is an object") };
    let kept = ["updatedAt", "runningAt", "completedAt", "failureReason", "reasonCode", "fallbackUsed", "tabGroupId"];
    rest.retain(|field, _| kept.contains(&field.as_str()));
    Value::Object(rest)
}

pub(crate) async fn the_columns_of_runs_are_the_run_and_each_of_its_fields_is_there_once<F: OnDisk>(fixture: F) {
    all_kinds(fixture.store()).await;
    let contents = sound(fixture.store()).await;
    let rows = fixture
        .sql(&format!(
            "select namespace, run_id, shard, revision, status, {}, task_thread_id, agent_id, workflow_id,
                    audit_session_id, route, labels, record, metadata from runs order by run_id",
            F::micros("started_at")
        ))
        .await;
    assert_eq!(rows.len(), contents.runs.len());
    for row in rows {
        let [namespace, run_id] = [0, 1].map(|column| row[column].clone().unwrap());
        let key = RunKey { namespace: namespace.into(), run_id: run_id.into() };
        let run: &Run = &contents.runs[&key];
        let plain = [
            Some(home(fixture.store(), &key).0.to_string()),
            Some(run.revision.to_string()),
            Some(run.status.code().to_string()),
            Some(run.started_at.micros().to_string()),
            Some(run.task_thread_id.clone()),
            run.agent_id.clone(),
            run.bindings.workflow_id.clone(),
            run.bindings.audit_session_id.clone(),
            run.bindings.route.map(|route| route.name().to_owned()),
        ];
        assert_eq!(row[2..11], plain, "{key:?}");
        let labels = (!run.labels.is_empty()).then(|| json!(run.labels));
        assert_eq!(parsed(row[11].as_ref()), labels, "labels of {key:?}");
        assert_eq!(parsed(row[12].as_ref()), Some(rest_of(run)), "record of {key:?}");
        let metadata = (!run.metadata.is_empty()).then(|| json!(run.metadata));
        assert_eq!(parsed(row[13].as_ref()), metadata, "metadata of {key:?}");
    }
}

pub(crate) async fn the_columns_of_events_are_what_was_decided<F: OnDisk>(fixture: F) {
    let store = fixture.store();
    let commands = [
        start("run-1").metadata(&json!({"a": [1, null]})).request("request-1"),
        update("run-1").workflow("w"),
        complete("run-1").by("agent").request("request-é"),
    ];
    let mut expected = Vec::new();
    for (command, revision) in commands.into_iter().zip(1..) {
        let (shard, commit_id) = (home(store, &command.key), draw_id());
        let decided =
            store.commit(shard, commit_id, Arc::from([Arc::new(command.clone())]), &Rules::shared()).await.unwrap();
        let new = &decided.events[0];
        let request = command.request.as_ref();
        let hex = |digest: [u8; 32]| digest.map(|byte| format!("{byte:02x}")).concat();
        expected.push(vec![
            Some(shard.0.to_string()),
            Some(new.position.to_string()),
            Some("default".to_owned()),
            Some("run-1".to_owned()),
            Some(format!("{revision}")),
            Some(new.event.at.micros().to_string()),
            Some(commit_id.to_string()),
            request.map(|request| request.id.clone()),
            request.map(|request| hex(request.digest)),
            request.map(|request| request_key(&command.key, &request.id).to_string()),
        ]);
        let event = fixture.sql(&format!("select event from run_events where revision = {revision}")).await;
        assert_eq!(parsed(event[0][0].as_ref()), Some(serde_json::to_value(&new.event).unwrap()));
    }
    let rows = fixture
        .sql(&format!(
            "select shard, position, namespace, run_id, revision, {}, commit_id, request_id, {}, request_key
               from run_events order by revision",
            F::micros("at"),
            F::hex("request_digest")
        ))
        .await;
    assert_eq!(rows, expected);
}

pub(crate) async fn keyframes_stand_at_every_32nd_revision_and_are_the_run<F: OnDisk>(fixture: F) {
    let store = fixture.store();
    apply(store, start("run-1").metadata(&json!({"kept": 0.1}))).await;
    for n in 0..69 {
        apply(store, update("run-1").metadata(&json!({"n": n}))).await;
    }
    let rows = fixture.sql("select revision, keyframe from run_events where run_id = 'run-1' order by revision").await;
    for (row, revision) in rows.iter().zip(1_u64..) {
        let state = run_at(store, &key("run-1"), revision.into()).await.unwrap().unwrap();
        let keyframe = revision
            .is_multiple_of(KEYFRAME_EVENTS)
            .then(|| json!({"run": serde_json::to_value(&state).unwrap(), "metadata": json!(state.metadata)}));
        assert_eq!(parsed(row[1].as_ref()), keyframe, "revision {revision}");
    }
    assert_eq!(rows.len(), 70);
}

pub(crate) async fn the_active_table_holds_the_runs_that_are_not_terminal<F: OnDisk>(fixture: F) {
    all_kinds(fixture.store()).await;
    // A run that begins and ends in one batch was never seen active.
    let id = &neighbours(fixture.store(), 1)[0];
    ask_all(fixture.store(), vec![deferred(id), start(id), complete(id)]).await;
    let contents = sound(fixture.store()).await;
    let mut expected: Vec<Vec<Option<String>>> = contents
        .runs
        .iter()
        .filter(|(_, run)| !run.status.is_terminal())
        .map(|(key, run)| {
            let shard = home(fixture.store(), key).0.to_string();
            let (started_at, status) = (run.started_at.micros().to_string(), run.status.code().to_string());
            [shard, key.namespace.to_string(), key.run_id.to_string(), started_at, status].map(Some).to_vec()
        })
        .collect();
    let micros = F::micros("started_at");
    let mut rows = fixture.sql(&format!("select shard, namespace, run_id, {micros}, status from active")).await;
    rows.sort();
    expected.sort();
    assert_eq!(rows, expected);
    assert_eq!(rows.len(), 8);
}

pub(crate) async fn a_run_that_the_database_refuses_is_surely_not_applied<F: OnDisk>(fixture: F) {
    let store = fixture.store();
    let ids = neighbours(store, 3);
    let (kept, poison, innocent) = (&ids[0], &ids[1], &ids[2]);
    let before = apply(store, start(kept)).await;
    fixture.sql(&F::refuse(poison)).await;
    let commands = [update(kept).workflow("w").request("r"), start(poison), start(innocent)];
    let batch: Arc<[_]> = commands.into_iter().map(Arc::new).collect();
    for _attempt in 0..3 {
        match store.commit(home(store, &key(kept)), draw_id(), batch.clone(), &Rules::shared()).await {
            Err(CommitError::NotApplied(StoreError::Refused(_))) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stored(store, &key(kept)).await, before);
    assert_eq!(store.run(&key(innocent)).await.unwrap(), None);
    assert_eq!(sound(store).await.log.len(), 1);
    // Without it, the others go through.
    let others = vec![update(kept).workflow("w").request("r"), start(innocent)];
    assert_eq!(words(&ask_all(store, others).await), ["applied", "applied"]);
    sound(store).await;
}

pub(crate) async fn a_run_that_cannot_be_read_is_corrupt_by_name<F: OnDisk>(fixture: F) {
    let store = fixture.store();
    apply(store, start("run-1")).await;
    apply(store, start("run-2")).await;
    fixture.sql("update runs set record = '{\"not\": \"a run\"}' where run_id = 'run-1'").await;
    match store.run(&key("run-1")).await {
        Err(StoreError::Corrupt { table: "runs", column: "record", key, .. }) => {
            assert!(key.contains("run-1"), "{key}");
        }
        other => panic!("{other:?}"),
    }
    match store.list(&asked(&Filter::default(), Order::NewestFirst)).await {
        Err(StoreError::Corrupt { table: "runs", column: "record", key, .. }) => {
            assert!(key.contains("run-1"), "{key}");
        }
        other => panic!("{other:?}"),
    }
    // A replica that has to read it to decide.
    let replica = fixture.replica().await;
    let batch: Arc<[_]> = Arc::from([Arc::new(complete("run-1"))]);
    match replica.commit(home(store, &key("run-1")), draw_id(), batch, &Rules::shared()).await {
        Err(CommitError::NotApplied(StoreError::Corrupt { .. })) => {}
        other => panic!("{other:?}"),
    }
    // The shard is free, and the neighbours live.
    apply(store, complete("run-2")).await;
    assert_eq!(store.run_events(&key("run-1"), 0.into(), 10, PAGE_BYTES_MAX).await.unwrap().len(), 1);
}

/// Retention removes whole runs, and leaves each shard its newest event.
pub(crate) async fn a_shard_goes_on_behind_its_newest_event_when_older_ones_are_gone<F: OnDisk>(mut fixture: F) {
    let ids = neighbours(fixture.store(), 3);
    for id in &ids[..2] {
        ask_all(fixture.store(), vec![start(id), complete(id)]).await;
    }
    let before = fixture.store().ends().await.unwrap();
    for table in ["run_events", "runs"] {
        fixture.sql(&format!("delete from {table} where run_id = '{}'", ids[0])).await;
    }
    // After this, no process remembers the shard's end.
    fixture.reopen().await;
    let store = fixture.store();
    assert_eq!(store.ends().await.unwrap(), before);
    let started = apply(store, start(&ids[2])).await;
    let page = Whole::of(store.changes(&before, 10, PAGE_BYTES_MAX).await.unwrap());
    let shard = home(store, &key(&ids[2]));
    let next = (shard, before[usize::from(shard.0)] + 1, started.key());
    let shown: Vec<_> = page.events.iter().map(|read| (read.shard, read.position, read.event.key.clone())).collect();
    assert_eq!(shown, [next]);
}

pub(crate) async fn an_event_that_cannot_be_read_stands_in_its_place_and_costs_no_other<F: OnDisk>(fixture: F) {
    let store = fixture.store();
    for run in ["run-1", "run-2", "run-3"] {
        apply(store, start(run)).await;
        apply(store, update(run).workflow("w")).await;
    }
    let whole = pages(store, 1000).await;
    fixture.sql("update run_events set event = '[]' where run_id = 'run-2' and revision = 2").await;
    for limit in [1, 1000] {
        let (mut after, mut read) = (beginning(store), Vec::new());
        loop {
            let page = store.changes(&after, limit, PAGE_BYTES_MAX).await.unwrap();
            page.places().for_each(|(shard, position)| after.set(shard, position));
            read.extend(page.events);
            if !page.cut {
                break;
            }
        }
        assert_eq!(read.len(), whole.len());
        for (read, wanted) in read.iter().zip(&whole) {
            let event = &wanted.event;
            match read {
                Ok(logged) => assert_eq!(logged, wanted),
                Err(unreadable) => {
                    assert_eq!(
                        (&unreadable.key, unreadable.revision, unreadable.at),
                        (&key("run-2"), 2.into(), event.at)
                    );
                    assert_eq!((unreadable.shard, unreadable.position), (wanted.shard, wanted.position));
                    assert_eq!((&event.key, event.revision), (&key("run-2"), 2.into()));
                    let named = "run_events.event of default/run-2 cannot be read";
                    assert_eq!(unreadable.error.to_string(), named);
                }
            }
        }
        assert_eq!(read.iter().filter(|event| event.is_err()).count(), 1);
    }
}
