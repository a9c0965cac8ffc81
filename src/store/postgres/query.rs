//! Lists and counts of runs. Each is one statement, and so one snapshot.
//!
//! The innermost select walks the filter's index in the order of the list and stops at a constant. The conditions
//! that the index does not cover are tested outside of it, where a condition keeps no index from being used, so that
//! an absent field may be a null. Nothing sorts: each select keeps the order of the one inside it.

use std::collections::BTreeSet;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::read::{self, rows_until};
use super::rows::{At, Reader, run_size};
use super::sessions::Sessions;
use crate::domain::{Filter, Priority, Status};
use crate::store::dialect::run_columns;
use crate::store::query::filter::{self, STANDS, STATUS, TESTED};
use crate::store::query::page::Filling;
use crate::store::query::{By, CountBy, Order, Place, Range, Reach, ReadyOf, RunCounts, RunPage, RunQuery, Table};
use crate::store::rows::{key, runs};
use crate::store::scalars::shown;
use crate::store::{StoreError, json};

/// The statement of a page of a list. How far it reaches is a literal, by which the database plans it.
#[must_use]
pub fn list(by: By, order: Order, metadata: bool, stands: bool, reach: Reach) -> String {
    let max = reach.list_runs_max();
    let (index, direction, metadata) = (by.index(), order.sql(), if metadata { "metadata" } else { "null::jsonb" });
    // No index of a list leads to a tombstone.
    let more = format!(", revision, record, {metadata} as metadata, null::timestamptz as purged_at");
    let more = if stands { format!(", {STANDS}{more}") } else { more };
    // The parameters of the page come after those of the filter.
    let [stored_max, rows_max] = if stands { ["$22", "$23"] } else { ["$16", "$17"] };
    let entries = looked_at(by, order, max, &more, true);
    format!(
        "-- query.list.{index}.{direction}{standing}
select {},
       matches, n = {max} as last, stored
from (
    select *, sum(size) over (order by {in_order} rows unbounded preceding) as stored
    from (
        select *, case when matches then {size} end as size
        from (
            select *, {matches} as matches
            from {entries}) as tested
        where matches or n = {max}) as found) as r
where not matches or stored - size < {stored_max}::bigint
order by {in_order}
limit {rows_max}::bigint",
        run_columns!(postgres),
        standing = if stands { ".standing" } else { "" },
        in_order = order.of(""),
        matches = filter::sql(by, stands),
        size = run_size!(),
    )
}

/// The statement of a count. `of_active`: `active` has all columns that the filter tests. `stands`: the filter tests
/// where runs stand.
#[must_use]
pub fn count(by: By, of_active: bool, stands: bool, counted: CountBy, reach: Reach) -> String {
    let max = reach.count_runs_max();
    let (index, joined) = (by.index(), by != By::Active || !of_active);
    let is_refined = counted != CountBy::STATUS;
    let more = if stands || is_refined { format!(", {STANDS}") } else { String::new() };
    let entries = looked_at(by, Order::NewestFirst, max + 1, &more, joined);
    let matches = if joined { filter::sql(by, stands) } else { format!("({STATUS}) is true") };
    if is_refined {
        let named = [("phase", counted.phase), ("suspension_kind", counted.suspension)];
        let named = named.into_iter().filter(|(_, counts)| *counts);
        let by = named.fold(String::new(), |by, (name, _)| by + ", " + name);
        return format!(
            "-- query.count{names}.{index}
select status{by}, count(*) filter (where matches and n <= {max}) as matching, max(n) as looked_at
from (
    select status{by}, n, {matches} as matches
    from {entries}) as tested
group by status{by}",
            names = by.replace(", ", "_"),
        );
    }
    format!(
        "-- query.count.{index}
select status, count(*) filter (where matches and n <= {max}) as matching, max(n) as looked_at
from (
    select status, n, {matches} as matches
    from {entries}) as tested
group by status"
    )
}

/// The runs that an index leads to, numbered, as many as one call looks at. Of active runs, `runs` is read only for
/// those that have the status, and for the last, whose number tells that it is the last.
fn looked_at(by: By, order: Order, max: usize, more: &str, joined: bool) -> String {
    let (table, columns) = match by.table() {
        Table::Active => {
            let queued = if by == By::Unprioritised { ", priority as queued_priority" } else { "" };
            ("active", format!("shard, namespace, run_id, started_at, status{queued}"))
        }
        Table::Suspended => ("suspended", "shard, namespace, run_id, started_at".to_owned()),
        Table::Runs => ("runs", format!("namespace, run_id, started_at, status, {TESTED}{more}")),
    };
    let numbered = format!(
        "(
    select *, row_number() over (order by {in_order}) as n
    from (
        select {columns}
        from {table}
        where {range}
        order by {in_order}
        limit {max}) as entries)",
        in_order = order.of(""),
        range = by.range("", " and started_at > '-infinity'"),
    );
    match by.table() {
        // Not inside: a condition there that few rows seem to meet would have the planner sort them.
        Table::Active if joined && by == By::Unprioritised => format!(
            "(
    select a.namespace, a.run_id, a.started_at, a.status, a.queued_priority, {TESTED}{more}, n
    from {numbered} as a
    join runs as r on r.shard = a.shard and r.namespace = a.namespace and r.run_id = a.run_id
    where a.status = any($6) and a.queued_priority is null or n = {max}) as looked_at"
        ),
        Table::Active if joined => format!(
            "(
    select a.namespace, a.run_id, a.started_at, a.status, {TESTED}{more}, n
    from {numbered} as a
    join runs as r on r.shard = a.shard and r.namespace = a.namespace and r.run_id = a.run_id
    where a.status = any($6) or n = {max}) as looked_at"
        ),
        Table::Suspended => format!(
            "(
    select s.namespace, s.run_id, s.started_at, r.status, {TESTED}{more}, n
    from {numbered} as s
    join runs as r on r.shard = s.shard and r.namespace = s.namespace and r.run_id = s.run_id) as looked_at"
        ),
        Table::Active | Table::Runs => format!("{numbered} as looked_at"),
    }
}

/// The arguments that the statements take for a filter: `$1` to `$15`, and six more where it tests where runs stand.
struct Arguments<'a> {
    namespace: &'a str,
    after: (At, &'a str),
    before: (At, &'a str),
    statuses: Option<Vec<i16>>,
    texts: [Option<&'a str>; 7],
    labels: Option<String>,
    archived: Option<bool>,
    stands: Option<[Option<&'a str>; 3]>,
    rests: [Option<bool>; 2],
    priority: Option<i16>,
}

impl<'a> Arguments<'a> {
    fn new(namespace: &'a str, filter: &'a Filter, range: &'a Range) -> Self {
        let Range { after, before } = range;
        Self {
            namespace,
            after: (At(after.started_at), &after.run_id),
            before: (At(before.started_at), &before.run_id),
            statuses: (!filter.statuses.is_empty()).then(|| filter.statuses.iter().map(|s| s.code()).collect()),
            texts: filter::texts(filter),
            labels: json::labels(&filter.labels),
            archived: filter.archived,
            stands: filter::is_of_standing(filter)
                .then(|| [&filter.phase, &filter.lifecycle, &filter.suspension_kind].map(Option::as_deref)),
            rests: [filter.suspended, filter.ready],
            priority: filter.priority.map(Priority::get),
        }
    }

    fn all(&self) -> Vec<&(dyn ToSql + Sync)> {
        let Self { namespace, after, before, statuses, texts, labels, archived, stands, rests, priority } = self;
        let mut all: Vec<&(dyn ToSql + Sync)> = vec![namespace, &after.0, &after.1, &before.0, &before.1, statuses];
        all.extend(texts.iter().map(|text| text as &(dyn ToSql + Sync)));
        all.push(labels);
        all.push(archived);
        if let Some(stands) = stands {
            all.extend(stands.iter().map(|text| text as &(dyn ToSql + Sync)));
            all.extend(rests.iter().map(|rest| rest as &(dyn ToSql + Sync)));
            all.push(priority);
        }
        all
    }
}

/// A page of a list. The rows are read until they are `bytes_max` long: text that is stored compressed is longer than
/// the statement can count, and numbers are as long as they are stored.
pub(super) async fn list_runs(sessions: &Sessions, query: &RunQuery) -> Result<RunPage, StoreError> {
    let RunQuery { namespace, filter, order, limit, bytes_max, metadata, reach, .. } = query;
    let statement = list(By::new(filter), *order, *metadata, filter::is_of_standing(filter), *reach);
    let range = Range::of_page(query);
    let arguments = Arguments::new(namespace, filter, &range);
    // One row more than is shown tells whether there are more.
    let limit_and_one = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX).max(2);
    let stored_max = i64::try_from(*bytes_max).unwrap_or(i64::MAX).max(1);
    let mut all = arguments.all();
    all.extend([&stored_max as &(dyn ToSql + Sync), &limit_and_one]);
    let rows = rows_until(sessions, &statement, &all, Row::raw_size_bytes, *bytes_max).await?;
    let mut page = Filling::new(*limit, *bytes_max);
    for row in &rows {
        let key = key(row, "runs", 0)?;
        let run = Reader { table: "runs", row, key: &|| shown(&key) };
        let place = Place { started_at: run.get("started_at")?, run_id: key.run_id.clone() };
        let is_last = run.get("last")? || run.get::<Option<i64>>("stored")?.is_some_and(|stored| stored >= stored_max);
        let matches: bool = run.get("matches")?;
        let matching = matches.then_some(|| Ok::<_, StoreError>((runs::run(row)?, row.raw_size_bytes())));
        if page.look(place, is_last, matching)?.is_break() {
            break;
        }
    }
    Ok(RunPage { runs: page.runs, next: page.next })
}

/// The runs that are ready, oldest first, of those whose claim was not begun or of the others: a filter is tested
/// elsewhere.
const READY: &str = concat!(
    "-- query.suspended_by_claim
select ",
    run_columns!(postgres basic),
    "
from (
    select shard, namespace, run_id, started_at
    from suspended
    where namespace = $1 and ready and (kind is null) = $5 and priority = $6 and (started_at, run_id) > ($2, $3)
    order by started_at, run_id
    limit $4::bigint) as s
cross join lateral (
    select * from runs where shard = s.shard and namespace = s.namespace and run_id = s.run_id offset 0) as r
order by s.started_at, s.run_id"
);

pub(super) async fn ready_runs(
    sessions: &Sessions,
    namespace: &str,
    of: ReadyOf,
    after: Option<&Place>,
    limit: usize,
) -> Result<RunPage, StoreError> {
    let after = after.cloned().unwrap_or_else(Place::start);
    let rows_max = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = read::rows(
        sessions,
        READY,
        &[&namespace, &At(after.started_at), &after.run_id.as_str(), &rows_max, &of.not_begun, &of.priority.get()],
    )
    .await?;
    Ok(RunPage::new(rows.iter().map(runs::run).collect::<Result<_, _>>()?, limit))
}

/// The highest priority of a run that waits for a claim, below one, and other than that of runs without one. Each part
/// is one step in an index: of those that are ready, `(kind is null)` is compared with a value, since PostgreSQL would not
/// find `kind is not null` in the index.
const NEXT_PRIORITY: &str = "-- query.next_priority
select max(next.priority) as priority
from (values (0::smallint, $2::smallint), ((-101)::smallint, least($2, 0::smallint))) as part (above, below)
cross join lateral (
    select greatest(
        (select priority from active
         where namespace = $1 and priority < part.below and priority > part.above and priority is not null
         order by priority desc limit 1),
        (select max(first.priority) from (values (true), (false)) as rest (not_begun)
         cross join lateral (
            select priority from suspended
            where namespace = $1 and ready and (kind is null) = rest.not_begun
              and priority < part.below and priority > part.above
            order by priority desc limit 1) as first)) as priority) as next";

/// The statements by which queues of claims find runs that wait, for a look at their plans.
#[must_use]
pub fn of_queues() -> [&'static str; 2] {
    [READY, NEXT_PRIORITY]
}

pub(super) async fn next_priority(
    sessions: &Sessions,
    namespace: &str,
    below: i16,
) -> Result<Option<Priority>, StoreError> {
    let rows = read::rows(sessions, NEXT_PRIORITY, &[&namespace, &below]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let found: Option<i16> = Reader { table: "active", row, key: &|| "a priority".to_owned() }.get("priority")?;
    Ok(found.and_then(|found| Priority::of(found.into())))
}

pub(super) async fn count_runs(
    sessions: &Sessions,
    namespace: &str,
    filter: &Filter,
    before: Option<&Place>,
    (counted, reach): (CountBy, Reach),
) -> Result<RunCounts, StoreError> {
    let by = By::new(filter);
    // No active run is archived.
    let archived = filter.archived.filter(|archived| *archived);
    let beside_active =
        Filter { statuses: BTreeSet::new(), started_from: None, started_before: None, archived, ..filter.clone() };
    let of_active = by == By::Active && beside_active == Filter::default() && counted == CountBy::STATUS;
    let statement = count(by, of_active, filter::is_of_standing(filter), counted, reach);
    let range = Range::of_count(filter, before.cloned());
    let arguments = Arguments::new(namespace, filter, &range);
    let mut all = arguments.all();
    if of_active {
        all.truncate(6);
    }
    let rows = read::rows(sessions, &statement, &all).await?;
    let mut counts = RunCounts::default();
    for row in &rows {
        let run = Reader { table: "runs", row, key: &|| format!("a run of {namespace}") };
        let (status, matching): (Status, u64) = (run.get("status")?, run.get("matching")?);
        if matching > 0 {
            *counts.counts.entry(status).or_default() += matching;
            if counted.phase {
                let phase: Option<&str> = run.get("phase")?;
                *counts.phases.entry(phase.unwrap_or_default().to_owned()).or_default() += matching;
            }
            if counted.suspension
                && let Some(kind) = run.get::<Option<&str>>("suspension_kind")?
            {
                *counts.suspensions.entry(kind.to_owned()).or_default() += matching;
            }
        }
        counts.truncated |= run.get::<u64>("looked_at")? > reach.count_runs_max() as u64;
    }
    Ok(counts)
}
