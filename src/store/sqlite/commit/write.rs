//! The decided changes, as rows. A statement on runs or events changes exactly one row, or the transaction is given
//! up; so does one on a lease that is granted, or on the row of a run at rest.

use std::collections::HashSet;

use rusqlite::{Transaction, params};
use uuid::Uuid;

use crate::domain::ids::request_key;
use crate::domain::{Decided, NewEvent, Priority, Revision, Route, Run, RunKey, RunWrite, Shard, Stored, Time};
use crate::store::sqlite::rows::bigint;
use crate::store::sqlite::sides;
use crate::store::sqlite::writer::Writer;
use crate::store::{StoreError, json};

/// Writes the runs, the rows of those that are not terminal, and the events.
pub(in crate::store::sqlite) fn write(
    transaction: &Transaction<'_>,
    shard: Shard,
    commit_id: Uuid,
    decided: &Decided,
    steady: Time,
) -> Result<(), StoreError> {
    let writer = Writer { transaction, shard };
    let linked: HashSet<&RunKey> =
        decided.events.iter().filter(|event| sets_a_link(event)).map(|event| &event.event.key).collect();
    let archived = decided.events.iter().filter(|new| new.event.event_type.is_of_the_archive());
    let archived: HashSet<&RunKey> = archived.map(|new| &new.event.key).collect();
    for write in &decided.runs {
        let key = write.run.key();
        match &write.before {
            None => writer.insert_run(&key, &write.run)?,
            Some(before) => {
                writer.update_run(&key, write, before.revision, linked.contains(&key))?;
                if archived.contains(&key) {
                    writer.update_archived(&key, &write.run)?;
                }
            }
        }
        writer.keep_active(&key, &write.run, write.before.as_ref())?;
    }
    sides::write(&writer, &decided.sides, steady)?;
    let commit_id = commit_id.to_string();
    for event in &decided.events {
        writer.insert_event(event, &commit_id)?;
    }
    Ok(())
}

/// Whether the event sets a column that has an index.
fn sets_a_link(event: &NewEvent) -> bool {
    let changes = &event.event.changes;
    changes.agent_id.is_some() || changes.bindings.workflow_id.is_some() || changes.bindings.audit_session_id.is_some()
}

impl Writer<'_> {
    fn insert_run(&self, key: &RunKey, run: &Run) -> Result<(), StoreError> {
        self.one_row(
            "runs",
            key,
            "-- commit.insert_run
             insert into runs (shard, namespace, run_id, revision, status, started_at, task_thread_id, agent_id,
                               workflow_id, audit_session_id, route, labels, record, metadata, archived_at,
                               parent_run_id, continues_run_id)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            params![
                self.shard.0,
                key.namespace.as_str(),
                key.run_id.as_str(),
                bigint(run.revision),
                run.status.code(),
                run.started_at.micros(),
                run.task_thread_id,
                run.agent_id,
                run.bindings.workflow_id,
                run.bindings.audit_session_id,
                run.bindings.route.map(Route::name),
                json::labels(&run.labels),
                json::record(run),
                json::metadata(run),
                run.archived_at.map(Time::micros),
                run.refinements.as_ref().and_then(|refinements| refinements.origin.parent_run_id.as_deref()),
                run.refinements.as_ref().and_then(|refinements| refinements.origin.continues_run_id.as_deref()),
            ],
        )
    }

    /// Sets the columns that transitions change. SQLite rewrites the index entry of every column that a statement
    /// names, changed or not, so links have a statement of their own; and so has metadata, which may be large.
    fn update_run(&self, key: &RunKey, write: &RunWrite, before: Revision, links: bool) -> Result<(), StoreError> {
        let run = &write.run;
        let (shard, namespace, run_id) = (self.shard.0, &key.namespace, &key.run_id);
        self.one_row(
            "runs",
            key,
            "-- commit.update_run
             update runs set revision = ?5, status = ?6, route = ?7, labels = ?8, record = ?9
              where shard = ?1 and namespace = ?2 and run_id = ?3 and revision = ?4",
            params![
                shard,
                namespace.as_str(),
                run_id.as_str(),
                bigint(before),
                bigint(run.revision),
                run.status.code(),
                run.bindings.route.map(Route::name),
                json::labels(&run.labels),
                json::record(run),
            ],
        )?;
        if links {
            self.one_row(
                "runs",
                key,
                "-- commit.update_links
                 update runs set agent_id = ?4, workflow_id = ?5, audit_session_id = ?6
                  where shard = ?1 and namespace = ?2 and run_id = ?3",
                params![
                    shard,
                    namespace.as_str(),
                    run_id.as_str(),
                    run.agent_id,
                    run.bindings.workflow_id,
                    run.bindings.audit_session_id
                ],
            )?;
        }
        if write.metadata_changed {
            self.one_row(
                "runs",
                key,
                "-- commit.update_metadata
                 update runs set metadata = ?4 where shard = ?1 and namespace = ?2 and run_id = ?3",
                params![shard, namespace.as_str(), run_id.as_str(), json::metadata(run)],
            )?;
        }
        Ok(())
    }

    fn update_archived(&self, key: &RunKey, run: &Run) -> Result<(), StoreError> {
        self.one_row(
            "runs",
            key,
            "-- commit.update_archived
             update runs set archived_at = ?4 where shard = ?1 and namespace = ?2 and run_id = ?3",
            params![self.shard.0, key.namespace.as_str(), key.run_id.as_str(), run.archived_at.map(Time::micros)],
        )
    }

    /// Keeps one row for each run that is not terminal.
    fn keep_active(&self, key: &RunKey, run: &Run, before: Option<&Stored>) -> Result<(), StoreError> {
        let was_active = before.is_some_and(|before| !before.status.is_terminal());
        let (due_at, priority) = (run.due_at().map(Time::micros), run.queued_priority().map(Priority::get));
        let (shard, namespace, run_id) = (self.shard.0, &key.namespace, &key.run_id);
        match (was_active, !run.status.is_terminal()) {
            (false, false) => Ok(()),
            (true, true)
                if before.is_some_and(|before| {
                    let now = (run.status, run.due_at(), run.queued_priority());
                    (before.status, before.due_at, before.priority) == now
                }) =>
            {
                Ok(())
            }
            (false, true) => self.one_row(
                "active",
                key,
                "-- commit.insert_active
                 insert into active (shard, namespace, run_id, started_at, status, due_at, priority)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    shard,
                    namespace.as_str(),
                    run_id.as_str(),
                    run.started_at.micros(),
                    run.status.code(),
                    due_at,
                    priority
                ],
            ),
            (true, true) => self.one_row(
                "active",
                key,
                "-- commit.update_active
                 update active set status = ?4, due_at = ?5, priority = ?6
                  where shard = ?1 and namespace = ?2 and run_id = ?3",
                params![shard, namespace.as_str(), run_id.as_str(), run.status.code(), due_at, priority],
            ),
            (true, false) => self.one_row(
                "active",
                key,
                "-- commit.delete_active
                 delete from active where shard = ?1 and namespace = ?2 and run_id = ?3",
                params![shard, namespace.as_str(), run_id.as_str()],
            ),
        }
    }

    fn insert_event(&self, new: &NewEvent, commit_id: &str) -> Result<(), StoreError> {
        let NewEvent { position, event, request, keyframe } = new;
        self.one_row(
            "run_events",
            &event.key,
            "-- commit.insert_event
             insert into run_events (shard, position, namespace, run_id, revision, at, event, commit_id, request_id,
                                     request_digest, request_key, keyframe)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            params![
                self.shard.0,
                bigint(*position),
                event.key.namespace.as_str(),
                event.key.run_id.as_str(),
                bigint(event.revision),
                event.at.micros(),
                json::event(event),
                commit_id,
                request.as_ref().map(|request| &request.id),
                request.as_ref().map(|request| request.digest),
                request.as_ref().map(|request| request_key(&event.key, &request.id)),
                keyframe.as_ref().map(|run| json::keyframe(run)),
            ],
        )
    }
}
