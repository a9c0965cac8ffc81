//! Commits in one flush: decided on what a replica remembers, which may be wrong.

use std::sync::Arc;

use futures_util::future::join;
use runledger::clock::draw_id;
use runledger::domain::{Disposition, NamespaceAsk, Refusal, Renewal, Rules, Status, Verdict};
use runledger::store::{CommitError, Commits as _, Store, Upkeep as _};

use super::{holding_the_head, open, waiting};
use crate::conformance::asking::{apply, ask, home, neighbours, word, words};
use crate::conformance::namespaces::{change, make, within};
use crate::conformance::sound::sound;
use crate::support::commands::{Asking as _, claim, complete, deferred, key, leased, release, start, update};
use crate::support::postgres::{Cluster, Database, direct};

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
        Err(Refusal::RunNotRunning { run }) => assert_eq!((run.status, run.revision), (Status::Completed, 22.into())),
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
            Ok(Verdict::Done(Disposition::Unchanged, run)) => assert_eq!(run.revision, 1),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sound(&here).await.log.len(), 20);
}

/// The tables into which the head or a lock of their own lets one writer at a time.
const ONE_WRITER: [&str; 13] = [
    "active",
    "claims",
    "leases",
    "ledger",
    "ledger_migrations",
    "lifecycles",
    "namespaces",
    "run_events",
    "runs",
    "shards",
    "suspended",
    "{name}",
    "{}",
];

/// Two that make one row at once: one waits for the other, and fails by the table's key unless the statement says what to
/// do then, or whoever made it tries again.
#[test]
fn every_statement_that_makes_rows_says_what_happens_where_another_makes_them_at_once() {
    let mut found = std::collections::BTreeSet::new();
    for (path, text) in crate::layering::files_of("src/store/postgres") {
        for (at, _) in text.match_indices("insert into ") {
            let rest = &text[at + "insert into ".len()..];
            let table = rest.split(|c: char| c.is_whitespace() || c == '(').next().unwrap();
            let statement = rest.split("insert into ").next().unwrap();
            if !statement.contains("on conflict") {
                assert!(ONE_WRITER.contains(&table), "{path:?}: an insert into {table} without `on conflict`");
                found.insert(table.to_owned());
            }
        }
    }
    assert!(found.len() > 6, "the statements are found: {found:?}");
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
                assert_eq!((revision, current_revision), (made, made));
            }
            other => panic!("{other:?}"),
        }
        // This store has the run's present state in its hints, and only the log knows of the request.
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
    let (answer, ()) =
        join(store.commit(shard, draw_id(), Arc::from([Arc::new(complete("run-1"))]), &Rules::shared()), end_it).await;
    let Err(CommitError::Unknown { unsettled, .. }) = answer else { panic!("{answer:?}") };
    holder.batch_execute("commit").await.unwrap();
    assert!(!store.settle(&unsettled).await.unwrap());
    assert_eq!(sound(&store).await.log.len(), 2);
    assert_eq!(apply(&store, complete("run-1")).await.revision, 3);
}

#[tokio::test]
async fn a_run_in_a_namespace_is_created_in_one_flush_while_what_is_remembered_of_it_holds() {
    let database = Database::fresh().await;
    let (here, there) = join(open(&database.dsn()), open(&database.dsn())).await;
    make(&here, "team-a", None).await;
    let session = direct(&database.dsn()).await;
    let sent = "select count(*) from pg_stat_activity
                where datname = current_database() and query like '-- commit.at_once%'";
    let mut seen = 0;
    for n in 0..8 {
        apply(&here, within("team-a", start(&format!("run-{n}")))).await;
        // A session may have been used for something else right after its commit.
        seen += session.query_one(sent, &[]).await.unwrap().get::<_, i64>(0);
    }
    assert!(seen > 0, "commits are in one flush");
    let quota = NamespaceAsk::Update {
        description: None,
        max_active_runs: Some(Some(9)),
        max_stored_bytes: None,
        retention: None,
    };
    change(&there, "team-a", quota).await.unwrap();
    let answers =
        [ask(&here, within("team-a", start("last"))).await, ask(&here, within("team-a", start("more"))).await];
    assert_eq!(words(&answers), ["applied", "QUOTA_EXCEEDED"]);

    make(&here, "team-b", None).await;
    // The refusal was decided on the namespace as it is there, which is remembered.
    assert_eq!(word(&ask(&here, within("team-b", start("run").revision(7))).await), "REVISION_MISMATCH");
    change(&there, "team-b", NamespaceAsk::Delete).await.unwrap();
    assert_eq!(word(&ask(&here, within("team-b", start("run"))).await), "NAMESPACE_NOT_FOUND");
    sound(&here).await;
}

#[tokio::test]
async fn a_database_that_was_put_back_is_not_written_to_from_memory() {
    let mut cluster = Cluster::start(&[]);
    let store = open(&cluster.dsn()).await;
    apply(&store, start("run-1")).await;
    apply(&store, update("run-1").label("kept", "no")).await;
    // The last commit is gone, as after a failover to a standby that had not heard of it, and another was made instead.
    let shard = home(&store, &key("run-1")).0;
    let direct_to_it = direct(&cluster.dsn()).await;
    direct_to_it
        .batch_execute(&format!("delete from run_events where shard = {shard} and revision = 2"))
        .await
        .unwrap();
    direct_to_it
        .batch_execute(
            "update runs set revision = 1, labels = null,
                             record = record || jsonb_build_object('updatedAt', record->'runningAt')",
        )
        .await
        .unwrap();
    cluster.kill();
    cluster.restart();
    let other = open(&cluster.dsn()).await;
    apply(&other, update("run-1").label("other", "yes")).await;
    let mut answer = commit_again(&store).await;
    for _ in 0..20 {
        if answer.is_some() {
            break;
        }
        answer = commit_again(&store).await;
    }
    let labels = answer.expect("the store is back");
    assert_eq!(labels.keys().collect::<Vec<_>>(), ["mine", "other"], "decided on what the database has");
    sound(&store).await;
}

/// The labels after an update, once the store has let go of its dead sessions.
async fn commit_again(store: &dyn Store) -> Option<std::collections::BTreeMap<String, String>> {
    let batch = Arc::from([Arc::new(update("run-1").label("mine", "yes"))]);
    let mut decided = store.commit(home(store, &key("run-1")), draw_id(), batch, &Rules::shared()).await.ok()?;
    match decided.verdicts.remove(0) {
        Ok(Verdict::Done(Disposition::Applied, run)) => Some(run.labels.clone()),
        other => panic!("{other:?}"),
    }
}

/// Leases are granted, renewed past this replica and ended while everything else is decided on what it remembers.
#[tokio::test]
async fn leases_begin_and_end_with_their_runs_whatever_is_remembered() {
    let database = Database::fresh().await;
    let (here, there) = join(open(&database.dsn()), open(&database.dsn())).await;
    let ids = neighbours(&here, 12);
    let kept = async |id: &String| here.leases(&[key(id)]).await.unwrap().remove(0).map(|kept| kept.epoch);
    let renew = async |store: &dyn Store, id: &String, epoch: u64| {
        let renewal = Renewal { epoch: epoch.into(), agent_id: None, is_confined: false, progress: None };
        store.renew(home(store, &key(id)), &[(key(id), renewal)]).await.unwrap().remove(0).is_some()
    };
    for id in &ids {
        apply(&here, leased(id)).await;
        assert!(renew(&there, id, 1).await);
        apply(&here, update(id).label("step", "1").epoch(1)).await;
        assert_eq!(kept(id).await, Some(1.into()));
    }
    // The other replica hands the lease of some over: this one has the run in mind as it was.
    for id in &ids[..6] {
        apply(&there, release(id).epoch(1)).await;
        apply(&there, claim(id)).await;
        assert_eq!(ask(&here, complete(id).epoch(1)).await.unwrap_err().reason(), "LEASE_LOST");
        assert!(!renew(&here, id, 1).await && renew(&here, id, 3).await);
        apply(&here, complete(id).epoch(3)).await;
    }
    for id in &ids[6..] {
        apply(&here, complete(id).epoch(1)).await;
    }
    for id in &ids {
        assert!(kept(id).await.is_none() && !renew(&there, id, 1).await && !renew(&there, id, 3).await);
    }
    sound(&here).await;
}
