//! Lists and counts of runs. Each is one statement, and so one snapshot.
//!
//! A statement only walks the filter's index, in the order of the list. What the index does not know of the filter is
//! held against each row here, where the walk ends as soon as a page is full or has looked at its limit.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row, ToSql};

use super::errors;
use super::rows::{Cell, run_columns, run_columns_of, shown};
use crate::domain::{Filter, Route, RunId, RunKey, Status, Time};
use crate::store::json::{self, RunColumns};
use crate::store::query::{By, COUNT_RUNS_MAX, LIST_RUNS_MAX, Order, Place, Range, RunCounts, RunPage, RunQuery};
use crate::store::{StoreError, columns};

/// The columns that a filter is held against, and the id for an error to name.
const TESTED: &str =
    "r.status, r.task_thread_id, r.agent_id, r.workflow_id, r.audit_session_id, r.route, r.labels, r.run_id";
/// Where they stand in a row.
const STATUS: usize = 0;
const LINKS: [(usize, &str); 4] = [(1, "task_thread_id"), (2, "agent_id"), (3, "workflow_id"), (4, "audit_session_id")];
const ROUTE: usize = 5;
const LABELS: usize = 6;
const RUN_ID: usize = 7;
/// Where the columns of a list stand behind them.
const STARTED_AT: usize = 8;
const ROWID: usize = 9;

/// The walk along an index, with these columns of its runs. `indexed by` makes it an error, and never a scan, when
/// SQLite would rather go another way; a cross join keeps its order.
pub(super) fn walk(by: By, order: Order, columns: &str) -> String {
    let (index, direction) = (by.index(), order.sql());
    let known = by.column().map_or_else(String::new, |column| format!(" and r.{column} = ?6"));
    let (place, tables) = match by {
        By::Active => (
            "a",
            format!(
                "active as a indexed by {index}
           cross join runs as r on r.shard = a.shard and r.namespace = a.namespace and r.run_id = a.run_id"
            ),
        ),
        By::TaskThread | By::AuditSession | By::Agent | By::Workflow | By::Start => {
            ("r", format!("runs as r indexed by {index}"))
        }
    };
    format!(
        "-- query.{index}.{direction}
         select {columns}
           from {tables}
          where {place}.namespace = ?1{known}
            and ({place}.started_at, {place}.run_id) > (?2, ?3) and ({place}.started_at, {place}.run_id) < (?4, ?5)
          order by {place}.started_at {direction}, {place}.run_id {direction}"
    )
}

/// The columns of a list. Not the record, nor the metadata: SQLite would read them of every run that is looked at.
pub(super) fn listed() -> String {
    format!("{TESTED}, r.started_at, r.rowid")
}

/// A run that matches, with its metadata where that is asked for.
fn fetch(
    connection: &Connection,
    rowid: i64,
    cell: Cell<'_>,
    metadata: bool,
) -> Result<RunColumns<String>, StoreError> {
    let statement = if metadata {
        concat!("-- query.fetch_whole\nselect ", run_columns!(), " from runs as r where r.rowid = ?1")
    } else {
        concat!(
            "-- query.fetch_basic\nselect ",
            run_columns!(),
            " from (select namespace, run_id, revision, status, started_at, task_thread_id, agent_id, workflow_id,
                     audit_session_id, route, labels, record, null as metadata from runs where rowid = ?1) as r"
        )
    };
    let mut statement = connection.prepare_cached(statement).map_err(errors::statement)?;
    let mut rows = statement.query([rowid]).map_err(errors::statement)?;
    let Some(row) = rows.next().map_err(errors::statement)? else {
        return Err(cell.corrupt("record", "the row is missing"));
    };
    run_columns_of(row)
}

/// A walk in order: the visitor says when it ends.
fn follow(
    connection: &Connection,
    statement: &str,
    namespace: &str,
    filter: &Filter,
    range: &Range,
    mut visit: impl FnMut(&Row<'_>) -> Result<Step, StoreError>,
) -> Result<(), StoreError> {
    let Range { after, before } = range;
    let (after_at, before_at) = (after.started_at.micros(), before.started_at.micros());
    let mut values: Vec<&dyn ToSql> = vec![&namespace, &after_at, &after.run_id, &before_at, &before.run_id];
    let known = By::of(filter).value(filter);
    values.extend(known.iter().map(|value| value as &dyn ToSql));
    let mut statement = connection.prepare_cached(statement).map_err(errors::statement)?;
    let mut rows = statement.query(values.as_slice()).map_err(errors::statement)?;
    while let Some(row) = rows.next().map_err(errors::statement)? {
        match visit(row)? {
            Step::On => {}
            Step::End => break,
        }
    }
    Ok(())
}

/// What a visitor of a walk wants.
enum Step {
    On,
    End,
}

/// A page of a list. The walk has ended, and its snapshot is let go, before a document is parsed.
pub(super) fn list(connection: &Connection, query: &RunQuery) -> Result<RunPage, StoreError> {
    let RunQuery { namespace, filter, order, limit, bytes_max, metadata, .. } = query;
    let statement = walk(By::of(filter), *order, &listed());
    let mut found: Vec<(Place, RunColumns<String>)> = Vec::new();
    let (mut looked_at, mut bytes) = (0, 0);
    let mut next = None;
    follow(connection, &statement, namespace, filter, &Range::of_page(query), |row| {
        let cell = Cell { table: "runs", key: &|| named(row, namespace) };
        let here = Place {
            started_at: Time::from_micros(cell.get(row, STARTED_AT, "started_at")?),
            run_id: cell.get(row, RUN_ID, "run_id")?,
        };
        looked_at += 1;
        let mut full = looked_at == LIST_RUNS_MAX;
        if matches(row, cell, filter)? {
            if found.len() >= (*limit).max(1) {
                next = found.last().map(|(place, ..)| place.clone());
                return Ok(Step::End);
            }
            // The walk has not ended: this is its snapshot.
            let columns = fetch(connection, cell.get(row, ROWID, "rowid")?, cell, *metadata)?;
            bytes += columns.text_bytes();
            full |= bytes >= *bytes_max;
            found.push((here.clone(), columns));
        }
        if full {
            next = Some(here);
            return Ok(Step::End);
        }
        Ok(Step::On)
    })?;
    let runs = found.into_iter().map(|(_, columns)| json::read_run(columns));
    Ok(RunPage { runs: runs.collect::<Result<_, _>>()?, next })
}

/// The runs that are ready, oldest first: few at any time, so they are held against a filter elsewhere.
pub(super) fn ready(
    connection: &Connection,
    namespace: &str,
    after: Option<Place>,
    limit: usize,
) -> Result<RunPage, StoreError> {
    let after = after.unwrap_or(Place { started_at: Time::from_micros(i64::MIN), run_id: RunId::default() });
    let statement = concat!(
        "-- query.suspended_by_start\nselect ",
        run_columns!(),
        " from (select shard, namespace, run_id, started_at from suspended indexed by suspended_by_start
                 where namespace = ?1 and ready and (started_at, run_id) > (?2, ?3)
                 order by started_at, run_id limit ?4) as s
          cross join (select shard, namespace, run_id, revision, status, started_at, task_thread_id, agent_id,
                             workflow_id, audit_session_id, route, labels, record, null as metadata from runs) as r
            on r.shard = s.shard and r.namespace = s.namespace and r.run_id = s.run_id
         order by s.started_at, s.run_id"
    );
    let rows_max = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(statement).map_err(errors::statement)?;
    let mut rows =
        statement.query((namespace, after.started_at.micros(), &after.run_id, rows_max)).map_err(errors::statement)?;
    let mut runs = Vec::new();
    while let Some(row) = rows.next().map_err(errors::statement)? {
        runs.push(json::read_run(run_columns_of(row)?)?);
    }
    let next = runs.last().filter(|_| runs.len() >= limit).map(Place::of);
    Ok(RunPage { runs, next })
}

/// How many match, of as many as a count looks at.
pub(super) fn count(
    connection: &Connection,
    namespace: &str,
    filter: &Filter,
    before: Option<Place>,
) -> Result<RunCounts, StoreError> {
    let statement = walk(By::of(filter), Order::NewestFirst, TESTED);
    let mut counts = RunCounts::default();
    let mut looked_at = 0;
    follow(connection, &statement, namespace, filter, &Range::of_count(filter, before), |row| {
        if looked_at == COUNT_RUNS_MAX {
            counts.truncated = true;
            return Ok(Step::End);
        }
        looked_at += 1;
        let cell = Cell { table: "runs", key: &|| named(row, namespace) };
        if matches(row, cell, filter)? {
            *counts.counts.entry(status(row, cell)?).or_insert(0) += 1;
        }
        Ok(Step::On)
    })?;
    Ok(counts)
}

/// Whether a run is meant: [`Filter::matches`] on the run's columns. The place was the walk's concern.
fn matches(row: &Row<'_>, cell: Cell<'_>, filter: &Filter) -> Result<bool, StoreError> {
    let Filter { task_thread_id, statuses, agent_id, workflow_id, audit_session_id, route, labels, .. } = filter;
    if !statuses.is_empty() && !statuses.contains(&status(row, cell)?) {
        return Ok(false);
    }
    for ((index, column), wanted) in LINKS.into_iter().zip([task_thread_id, agent_id, workflow_id, audit_session_id]) {
        if wanted.is_some() && text(row, cell, index, column)? != wanted.as_deref() {
            return Ok(false);
        }
    }
    if route.is_some() && text(row, cell, ROUTE, "route")? != route.map(Route::name) {
        return Ok(false);
    }
    if labels.is_empty() {
        return Ok(true);
    }
    let Some(json) = text(row, cell, LABELS, "labels")? else { return Ok(false) };
    let found: BTreeMap<String, String> = serde_json::from_str(json).map_err(|error| cell.corrupt("labels", error))?;
    Ok(labels.iter().all(|(key, value)| found.get(key) == Some(value)))
}

/// A run's key as errors show it.
fn named(row: &Row<'_>, namespace: &str) -> String {
    let run_id = row.get(RUN_ID).unwrap_or_else(|_| "a run without an id".into());
    shown(&RunKey { namespace: namespace.into(), run_id })
}

fn status(row: &Row<'_>, cell: Cell<'_>) -> Result<Status, StoreError> {
    let code = cell.get(row, STATUS, "status")?;
    columns::status(code).ok_or_else(|| cell.corrupt("status", format!("no status is {code}")))
}

/// A text where it lies: most rows of a long walk are not copied.
fn text<'a>(
    row: &'a Row<'_>,
    cell: Cell<'_>,
    index: usize,
    column: &'static str,
) -> Result<Option<&'a str>, StoreError> {
    let value = row.get_ref(index).map_err(|error| cell.corrupt(column, error))?;
    value.as_str_or_null().map_err(|error| cell.corrupt(column, error))
}

#[cfg(test)]
mod tests;
