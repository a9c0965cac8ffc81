//! Commits in one flush: decided on what a replica remembers, which may be wrong.

use std::sync::Arc;

use futures_util::future::join;
use runledger::clock::draw_id;
use runledger::domain::{Refusal, Status, Verdict};
use runledger::store::{CommitError, Store};

use super::{holding_the_head, open, waiting};
use crate::conformance::asking::{apply, ask, home, neighbours};
use crate::conformance::sound::sound;
use crate::support::commands::{Asking as _, complete, deferred, key, start, update};
use crate::support::postgres::{Database, direct};

#[tokio::test]
async fn what_another_replica_did_meanwhile_is_met_and_not_overwritten() {
    let database = Database::fresh().await;
    let (here, there) = join(open(&database.dsn()), open(&database.dsn())).await;
    apply(&here, start("run-1")).await;
    // Each has the run in mind as it left it, and the other has changed it since.
    for step in 0..10 {
        for (store, label) in [(&here, "here"), (&there, "there")] {
            let updated = apply(store, update("run-1").label(label, &step.to_string())).await;
            assert_eq!(updated.labels[label], step.to_string());
        }
    }
    assert_eq!(apply(&here, complete("run-1")).await.revision, 22);
    match ask(&there, update("run-1").label("late", "1")).await {
        Err(Refusal::RunNotRunning { run }) => assert_eq!((run.status, run.revision), (Status::Completed, 22)),
        other => panic!("{other:?}"),
    }
    assert_eq!(sound(&here).await.log.len(), 22);
}

#[tokio::test]
async fn a_run_that_another_replica_created_is_not_created_again() {
    let database = Database::fresh().await;
    let (here, there) = join(open(&database.dsn()), open(&database.dsn())).await;
    let ids = neighbours(&here, 20);
    for id in &ids {
        apply(&here, start(id)).await;
        match ask(&there, start(id)).await {
            Ok(Verdict::Unchanged(run)) => assert_eq!(run.revision, 1),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sound(&here).await.log.len(), 20);
}

#[tokio::test]
async fn a_request_that_another_replica_applied_is_replayed() {
    let database = Database::fresh().await;
    let (here, there) = join(open(&database.dsn()), open(&database.dsn())).await;
    apply(&here, start("run-1")).await;
    for step in 0..8 {
        let asked = || update("run-1").label("step", &step.to_string()).request(&format!("request-{step}"));
        let made = apply(&here, asked()).await.revision;
        match ask(&there, asked()).await {
            Ok(Verdict::Replayed { revision, current_revision }) => {
                assert_eq!((revision, current_revision), (made, made))
            }
            other => panic!("{other:?}"),
        }
        // This one has the run in mind as it is, and only the log knows of the request.
        apply(&there, update("run-1").label("there", &step.to_string())).await;
        match ask(&there, asked()).await {
            Ok(Verdict::Replayed { revision, .. }) => assert_eq!(revision, made),
            other => panic!("{other:?}"),
        }
    }
    sound(&here).await;
}

#[tokio::test]
async fn replicas_that_write_to_one_shard_at_once_leave_a_dense_log() {
    let database = Database::fresh().await;
    let (here, there) = join(open(&database.dsn()), open(&database.dsn())).await;
    let ids = neighbours(&here, 8);
    let writes = |store: Arc<dyn Store>, mine: Vec<String>, shared: String| async move {
        for step in 0..40 {
            for id in &mine {
                apply(&*store, update(id).label("step", &step.to_string())).await;
            }
            apply(&*store, update(&shared).label(&mine[0], &step.to_string())).await;
        }
        for id in mine {
            apply(&*store, complete(&id)).await;
        }
    };
    for id in &ids[..7] {
        apply(&here, start(id)).await;
    }
    apply(&there, deferred(&ids[7])).await;
    apply(&here, start(&ids[7])).await;
    let (here, there): (Arc<dyn Store>, Arc<dyn Store>) = (Arc::new(here), Arc::new(there));
    let (one, other) = (ids[..3].to_vec(), ids[3..6].to_vec());
    join(writes(here.clone(), one, ids[6].clone()), writes(there, other, ids[6].clone())).await;
    let log = sound(&*here).await.log;
    assert_eq!(log.len(), 7 + 2 + 2 * (40 * 4 + 3));
}

#[tokio::test]
async fn a_session_that_is_ended_in_it_leaves_an_outcome_that_is_settled() {
    let database = Database::fresh().await;
    let store = open(&database.dsn()).await;
    apply(&store, start("run-1")).await;
    apply(&store, update("run-1").label("k", "v")).await;
    let shard = home(&store, &key("run-1"));
    let holder = holding_the_head(&database.dsn(), shard).await;
    let watch = direct(&database.dsn()).await;
    let end_it = async {
        let pid = waiting(&watch).await;
        watch.query_one("select pg_terminate_backend($1)", &[&pid]).await.unwrap();
    };
    let (answer, ()) = join(store.commit(shard, draw_id(), Arc::from([Arc::new(complete("run-1"))])), end_it).await;
    let Err(CommitError::Unknown { unsettled, .. }) = answer else { panic!("{answer:?}") };
    holder.batch_execute("commit").await.unwrap();
    assert!(!store.settle(&unsettled).await.unwrap());
    assert_eq!(sound(&store).await.log.len(), 2);
    assert_eq!(apply(&store, complete("run-1")).await.revision, 3);
}
