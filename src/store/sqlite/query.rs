//! Lists and counts of runs. Each is one statement, and so one snapshot.
//!
//! A statement only walks the filter's index, in the order of the list. The conditions that the index does not cover
//! are tested on each row here, where the walk ends as soon as a page is full or has looked at its limit.

use std::ops::ControlFlow;

use rusqlite::{Connection, Row, ToSql};

use super::rows::{Reader, Yielding, all, each, first, shown};
use crate::domain::{Filter, Priority, RunKey, Status};
use crate::store::StoreError;
use crate::store::dialect::run_columns;
use crate::store::json::{self, RunColumns};
use crate::store::query::filter::{self, TESTED};
use crate::store::query::page::Filling;
use crate::store::query::{By, CountBy, Order, Place, Range, Reach, ReadyOf, RunCounts, RunPage, RunQuery, Table};
use crate::store::rows::runs;

/// The places of the columns of a list behind those that a filter tests.
const PHASE: usize = 10;
const SUSPENSION_KIND: usize = 12;
const RUN_ID: usize = 15;
const STARTED_AT: usize = 16;
const ROWID: usize = 17;

const FETCH: &str =
    concat!("-- query.fetch_whole\nselect ", run_columns!(sqlite), " from runs as r where r.rowid = ?1");
const FETCH_BASIC: &str =
    concat!("-- query.fetch_basic\nselect ", run_columns!(sqlite basic), " from runs as r where r.rowid = ?1");

/// The runs that are ready, oldest first, of those whose claim was not begun or of the others: a filter is tested
/// elsewhere.
const READY: &str = concat!(
    "-- query.suspended_by_claim\nselect ",
    run_columns!(sqlite basic),
    " from (select shard, namespace, run_id, started_at from suspended indexed by suspended_by_claim
             where namespace = ?1 and ready and (kind is null) = ?5 and priority = ?6 and (started_at, run_id) > (?2, ?3)
             order by started_at, run_id limit ?4) as s
      cross join runs as r on r.shard = s.shard and r.namespace = s.namespace and r.run_id = s.run_id
     order by s.started_at, s.run_id"
);

/// The walk along an index, with these columns of its runs. `indexed by` makes it an error, and never a scan, when
/// SQLite would choose another plan; a cross join keeps its order.
pub(super) fn walk(by: By, order: Order, columns: &str) -> String {
    let (index, direction) = (by.index(), order.sql());
    let (place, tables, every) = match by.table() {
        Table::Active => (
            "a.",
            format!(
                "active as a indexed by {index}
           cross join runs as r on r.shard = a.shard and r.namespace = a.namespace and r.run_id = a.run_id"
            ),
            if by == By::Unprioritised { " and a.priority is null" } else { "" },
        ),
        Table::Suspended => (
            "s.",
            format!(
                "suspended as s indexed by {index}
           cross join runs as r on r.shard = s.shard and r.namespace = s.namespace and r.run_id = s.run_id"
            ),
            "",
        ),
        Table::Runs => ("r.", format!("runs as r indexed by {index}"), " and r.purged_at is null"),
    };
    format!(
        "-- query.{index}.{direction}
         select {columns}
           from {tables}
          where {}{every}
          order by {}",
        by.range(place, ""),
        order.of(place),
    )
}

/// The columns that a filter tests, and the id for an error to name. Where runs stand is in their records, which are
/// read only where somebody asks for it.
pub(super) fn tested(stands: bool) -> String {
    let stands = if stands {
        "json_extract(r.record, '$.refinements.phase'), json_extract(r.record, '$.refinements.lifecycle'),
         json_extract(r.record, '$.refinements.suspension.kind'), json_extract(r.record, '$.supervision.ready') is not null,
         json_extract(r.record, '$.refinements.priority')"
    } else {
        "null, null, null, null, null"
    };
    format!("r.status, {TESTED}, {stands}, r.run_id")
}

/// The columns of a list, without the record and the metadata: SQLite would read them of every run that is looked at.
pub(super) fn listed(stands: bool) -> String {
    format!("{}, r.started_at, r.rowid", tested(stands))
}

/// A walk in order: the visitor is told whether a run matches, and says when the walk ends.
fn follow(
    connection: &Connection,
    statement: &str,
    namespace: &str,
    filter: &Filter,
    range: &Range,
    mut visit: impl FnMut(&Reader<'_, '_, Row<'_>>, bool) -> Result<ControlFlow<()>, StoreError>,
) -> Result<(), StoreError> {
    let Range { after, before } = range;
    let (after_at, before_at) = (after.started_at.micros(), before.started_at.micros());
    let (after_id, before_id) = (after.run_id.as_str(), before.run_id.as_str());
    let by = By::new(filter);
    let known = by.value(filter);
    let priority = filter.priority.filter(|_| by == By::Priority).map(Priority::get);
    let mut values: Vec<&dyn ToSql> = vec![&namespace, &after_at, &after_id, &before_at, &before_id];
    values.extend(known.iter().map(|value| value as &dyn ToSql));
    values.extend(priority.iter().map(|priority| priority as &dyn ToSql));
    let mut yielding = Yielding::begin();
    each(connection, statement, values.as_slice(), |row| {
        yielding.row();
        let run = Reader { table: "runs", row, key: &|| named(row, namespace) };
        let matches = filter::matches(&run, filter)?;
        visit(&run, matches)
    })
}

/// A page of a list. The walk has ended, and its snapshot is released, before a document is parsed.
pub(super) fn list(connection: &Connection, query: &RunQuery) -> Result<RunPage, StoreError> {
    let RunQuery { namespace, filter, order, limit, bytes_max, metadata, reach, .. } = query;
    let statement = walk(By::new(filter), *order, &listed(filter::is_of_standing(filter)));
    let mut page: Filling<RunColumns<String>> = Filling::new(*limit, *bytes_max);
    let mut looked_at = 0;
    follow(connection, &statement, namespace, filter, &Range::of_page(query), |run, matches| {
        looked_at += 1;
        let is_last = looked_at == reach.list_runs_max();
        if !matches && !is_last {
            return Ok(ControlFlow::Continue(()));
        }
        let place = Place { started_at: run.get((STARTED_AT, "started_at"))?, run_id: run.get((RUN_ID, "run_id"))? };
        // The walk has not ended: its snapshot is still held.
        let fetch = || {
            let statement = if *metadata { FETCH } else { FETCH_BASIC };
            let rowid: i64 = run.get((ROWID, "rowid"))?;
            let found = first(connection, statement, [rowid], |row| Ok(runs::columns(row)?.into_owned()))?;
            let columns = found.ok_or_else(|| run.corrupt("record", "the row is missing"))?;
            let bytes = columns.text_bytes();
            Ok::<_, StoreError>((columns, bytes))
        };
        page.look(place, is_last, matches.then_some(fetch))
    })?;
    let runs = page.runs.into_iter().map(json::read_run).collect::<Result<_, _>>()?;
    Ok(RunPage { runs, next: page.next })
}

/// The runs that are ready.
pub(super) fn ready(
    connection: &Connection,
    namespace: &str,
    of: ReadyOf,
    after: Option<Place>,
    limit: usize,
) -> Result<RunPage, StoreError> {
    let after = after.unwrap_or_else(Place::start);
    let rows_max = i64::try_from(limit).unwrap_or(i64::MAX);
    let runs = all(
        connection,
        READY,
        (namespace, after.started_at.micros(), &after.run_id.as_str(), rows_max, of.not_begun, of.priority.get()),
        |row| runs::run(row),
    )?;
    Ok(RunPage::new(runs, limit))
}

/// The highest priority of a run that waits for a claim, below one, and other than that of runs without one. Each part
/// is one step in an index.
const NEXT_PRIORITY: &str = "-- query.next_priority
select max(priority) from (
    select max(priority) as priority from active indexed by active_by_priority
     where namespace = ?1 and priority < ?2 and priority > 0
    union all
    select max(priority) from active indexed by active_by_priority
     where namespace = ?1 and priority < min(?2, 0)
    union all
    select max(priority) from suspended indexed by suspended_by_claim
     where namespace = ?1 and ready and (kind is null) = 1 and priority < ?2 and priority > 0
    union all
    select max(priority) from suspended indexed by suspended_by_claim
     where namespace = ?1 and ready and (kind is null) = 1 and priority < min(?2, 0)
    union all
    select max(priority) from suspended indexed by suspended_by_claim
     where namespace = ?1 and ready and (kind is null) = 0 and priority < ?2 and priority > 0
    union all
    select max(priority) from suspended indexed by suspended_by_claim
     where namespace = ?1 and ready and (kind is null) = 0 and priority < min(?2, 0))";

/// See [`NEXT_PRIORITY`].
pub(super) fn next_priority(
    connection: &Connection,
    namespace: &str,
    below: i16,
) -> Result<Option<Priority>, StoreError> {
    let found: Option<Option<i16>> = first(connection, NEXT_PRIORITY, (namespace, below), |row| {
        Reader { table: "active", row, key: &|| "a priority".to_owned() }.get((0, "priority"))
    })?;
    Ok(found.flatten().and_then(|found| Priority::of(found.into())))
}

/// The numbers of runs that match, of as many as a count looks at.
pub(super) fn count(
    connection: &Connection,
    namespace: &str,
    filter: &Filter,
    before: Option<Place>,
    (counted, reach): (CountBy, Reach),
) -> Result<RunCounts, StoreError> {
    let is_refined = counted != CountBy::STATUS;
    let statement = walk(By::new(filter), Order::NewestFirst, &tested(is_refined || filter::is_of_standing(filter)));
    let mut counts = RunCounts::default();
    let mut looked_at = 0;
    follow(connection, &statement, namespace, filter, &Range::of_count(filter, before), |run, matches| {
        if looked_at == reach.count_runs_max() {
            counts.truncated = true;
            return Ok(ControlFlow::Break(()));
        }
        looked_at += 1;
        if matches {
            *counts.counts.entry(run.get::<Status>((0, "status"))?).or_insert(0) += 1;
            if counted.phase {
                let phase: Option<&str> = run.get((PHASE, "phase"))?;
                *counts.phases.entry(phase.unwrap_or_default().to_owned()).or_insert(0) += 1;
            }
            if counted.suspension
                && let Some(kind) = run.get::<Option<&str>>((SUSPENSION_KIND, "suspension_kind"))?
            {
                *counts.suspensions.entry(kind.to_owned()).or_insert(0) += 1;
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(counts)
}

/// A run's key as errors show it.
fn named(row: &Row<'_>, namespace: &str) -> String {
    let run_id: String = row.get(RUN_ID).unwrap_or_else(|_| "a run without an id".to_owned());
    shown(&RunKey { namespace: namespace.into(), run_id: run_id.into() })
}

#[cfg(test)]
mod tests;
