//! What was decided, as the columns of the writing statements. A statement without rows is not sent.

use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::rows::{At, bigint};
use super::statements::Statements;
use crate::domain::ids::request_key;
use crate::domain::{Decided, NewEvent, Run, RunWrite};
use crate::store::json;

type Column = Box<dyn ToSql + Send + Sync>;

/// A statement with its arguments.
pub(super) struct Write {
    pub(super) statement: Statement,
    arguments: Vec<Column>,
}

impl Write {
    /// The arguments as the driver takes them.
    pub(super) fn arguments(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.arguments.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect()
    }
}

/// The writes of a commit, in the order in which they are sent.
pub(super) fn writes(shard: i16, commit_id: Uuid, decided: &Decided, prepared: &Statements) -> Vec<Write> {
    let (new, old): (Vec<&RunWrite>, Vec<&RunWrite>) = decided.runs.iter().partition(|write| write.before.is_none());
    let (rewritten, updated): (Vec<&RunWrite>, Vec<&RunWrite>) = old.iter().partition(|write| write.metadata_changed);
    let alive = |write: &&&RunWrite| !write.run.status.is_terminal();
    let was_alive = |write: &&&RunWrite| write.before.is_some_and(|before| !before.status.is_terminal());
    let born: Vec<&RunWrite> = new.iter().filter(alive).copied().collect();
    let ended: Vec<&RunWrite> = old.iter().filter(was_alive).filter(|write| !alive(write)).copied().collect();
    let moved: Vec<&RunWrite> = old
        .iter()
        .filter(was_alive)
        .filter(alive)
        .filter(|write| write.before.is_some_and(|before| before.status != write.run.status))
        .copied()
        .collect();

    let mut writes = Vec::new();
    let mut add = |statement: &Statement, rows: usize, columns: Vec<Column>| {
        if rows > 0 {
            let mut arguments: Vec<Column> = vec![Box::new(shard)];
            arguments.extend(columns);
            writes.push(Write { statement: statement.clone(), arguments });
        }
    };
    add(&prepared.insert_runs, new.len(), inserted(&new));
    add(&prepared.update_runs, updated.len(), changed(&updated));
    let mut with_metadata = changed(&rewritten);
    with_metadata.push(column(&rewritten, json::metadata));
    add(&prepared.update_runs_and_metadata, rewritten.len(), with_metadata);
    add(&prepared.insert_events, decided.events.len(), events(commit_id, &decided.events));
    let mut born_columns = keys(&born);
    born_columns.push(column(&born, |run| At(run.started_at)));
    born_columns.push(column(&born, |run| run.status.code()));
    add(&prepared.insert_active, born.len(), born_columns);
    let mut moved_columns = keys(&moved);
    moved_columns.push(column(&moved, |run| run.status.code()));
    add(&prepared.update_active, moved.len(), moved_columns);
    add(&prepared.delete_active, ended.len(), keys(&ended));
    writes
}

fn column<T>(writes: &[&RunWrite], value: impl Fn(&Run) -> T) -> Column
where
    T: ToSql + std::fmt::Debug + Send + Sync + 'static,
{
    Box::new(writes.iter().map(|write| value(&write.run)).collect::<Vec<T>>())
}

fn keys(writes: &[&RunWrite]) -> Vec<Column> {
    vec![column(writes, |run| run.namespace.clone()), column(writes, |run| run.run_id.clone())]
}

fn inserted(writes: &[&RunWrite]) -> Vec<Column> {
    let mut columns = keys(writes);
    columns.push(column(writes, |run| bigint(run.revision)));
    columns.push(column(writes, |run| run.status.code()));
    columns.push(column(writes, |run| At(run.started_at)));
    columns.push(column(writes, |run| run.task_thread_id.clone()));
    columns.extend(changeable(writes));
    columns.push(column(writes, json::metadata));
    columns
}

fn changed(writes: &[&RunWrite]) -> Vec<Column> {
    let before = |write: &&RunWrite| write.before.map_or(0, |before| bigint(before.revision));
    let mut columns = keys(writes);
    columns.push(Box::new(writes.iter().map(before).collect::<Vec<i64>>()));
    columns.push(column(writes, |run| bigint(run.revision)));
    columns.push(column(writes, |run| run.status.code()));
    columns.extend(changeable(writes));
    columns
}

/// The columns that an insert and an update set alike.
fn changeable(writes: &[&RunWrite]) -> Vec<Column> {
    vec![
        column(writes, |run| run.agent_id.clone()),
        column(writes, |run| run.workflow_id.clone()),
        column(writes, |run| run.audit_session_id.clone()),
        column(writes, |run| run.route.map(crate::domain::Route::name)),
        column(writes, |run| json::labels(&run.labels)),
        column(writes, json::record),
    ]
}

fn events(commit_id: Uuid, events: &[NewEvent]) -> Vec<Column> {
    fn column<T>(events: &[NewEvent], value: impl Fn(&NewEvent) -> T) -> Column
    where
        T: ToSql + std::fmt::Debug + Send + Sync + 'static,
    {
        Box::new(events.iter().map(value).collect::<Vec<T>>())
    }
    vec![
        Box::new(commit_id),
        column(events, |new| bigint(new.position)),
        column(events, |new| new.event.key.namespace.clone()),
        column(events, |new| new.event.key.run_id.clone()),
        column(events, |new| bigint(new.event.revision)),
        column(events, |new| At(new.event.at)),
        column(events, |new| json::event(&new.event)),
        column(events, |new| new.request.as_ref().map(|request| request.id.clone())),
        column(events, |new| new.request.as_ref().map(|request| request.digest.to_vec())),
        column(events, |new| new.request.as_ref().map(|request| request_key(&new.event.key, &request.id))),
        column(events, |new| new.keyframe.as_deref().map(json::keyframe)),
    ]
}
