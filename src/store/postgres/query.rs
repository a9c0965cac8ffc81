//! Lists and counts of runs. Each is one statement, and so one snapshot.
//!
//! The innermost select walks the filter's index in the order of the list and stops at a constant. What the index does
//! not know of the filter is tested outside of it, where a condition keeps no index from being used, so that an absent
//! field may be a null. Nothing sorts: each select keeps the order of the one inside it.

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::TryStreamExt as _;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::read::reading;
use super::rows::{At, Reader, run, run_bytes, run_columns, run_size, shown};
use super::sessions::{Session, Sessions};
use crate::domain::{Filter, Route, Time};
use crate::store::query::{By, COUNT_RUNS_MAX, LIST_RUNS_MAX, Order, Place, Range, RunCounts, RunPage, RunQuery};
use crate::store::{StoreError, columns, json};

/// What a filter may ask of a run beside its place, each with its parameter.
const STATUS: &str = "($6::smallint[] is null or status = any($6))";
const TEXTS: [(&str, &str); 5] = [
    ("task_thread_id", "$7"),
    ("agent_id", "$8"),
    ("workflow_id", "$9"),
    ("audit_session_id", "$10"),
    ("route", "$11"),
];
const TESTED: &str = "task_thread_id, agent_id, workflow_id, audit_session_id, route, labels";
/// In a select of its own, so that the text is parsed once and not for each run.
const LABELS: &str = "($12::text is null or labels @> (select $12::text::jsonb))";

/// The statement of a page of a list.
#[must_use]
pub fn list(by: By, order: Order, metadata: bool) -> String {
    let (index, direction, metadata) = (by.index(), order.sql(), if metadata { "metadata" } else { "null::jsonb" });
    let entries = looked_at(by, direction, LIST_RUNS_MAX, &format!(", revision, record, {metadata} as metadata"), true);
    let matches = matches(by);
    format!(
        "-- query.list.{index}.{direction}
select {},
       matches, n = {LIST_RUNS_MAX} as last, stored
from (
    select *, sum(size) over (order by started_at {direction}, run_id {direction} rows unbounded preceding) as stored
    from (
        select *, case when matches then {size} end as size
        from (
            select *, {matches} as matches
            from {entries}) as tested
        where matches or n = {LIST_RUNS_MAX}) as found) as r
where not matches or stored - size < $13::bigint
order by started_at {direction}, run_id {direction}
limit $14::bigint",
        run_columns!(),
        size = run_size!(),
    )
}

/// The statement of a count. `of_active`: all that the filter asks for stands in `active`.
#[must_use]
pub fn count(by: By, of_active: bool) -> String {
    let (index, joined) = (by.index(), by != By::Active || !of_active);
    let entries = looked_at(by, Order::NewestFirst.sql(), COUNT_RUNS_MAX + 1, "", joined);
    let matches = if joined { matches(by) } else { format!("({STATUS}) is true") };
    format!(
        "-- query.count.{index}
select status, count(*) filter (where matches and n <= {COUNT_RUNS_MAX}) as matching, max(n) as looked_at
from (
    select status, n, {matches} as matches
    from {entries}) as tested
group by status"
    )
}

/// The runs that an index leads to, numbered, as many as one call looks at. Of active runs, `runs` is asked only about
/// those that have the status, and about the last, whose number says that it is the last.
fn looked_at(by: By, direction: &str, max: usize, more: &str, joined: bool) -> String {
    let (table, columns) = match by {
        By::Active => ("active", "shard, namespace, run_id, started_at, status".to_owned()),
        By::TaskThread | By::AuditSession | By::Agent | By::Workflow | By::Start => {
            ("runs", format!("namespace, run_id, started_at, status, {TESTED}{more}"))
        }
    };
    // Without a link, what the index's own condition says of all rows.
    let known = by.column().map_or_else(
        || " and started_at > '-infinity'".to_owned(),
        |column| {
            let parameter = TEXTS.iter().find(|(name, _)| *name == column).expect("each link is a text").1;
            format!(" and {column} = {parameter}")
        },
    );
    let numbered = format!(
        "(
    select *, row_number() over (order by started_at {direction}, run_id {direction}) as n
    from (
        select {columns}
        from {table}
        where namespace = $1{known}
          and (started_at, run_id) > ($2, $3) and (started_at, run_id) < ($4, $5)
        order by started_at {direction}, run_id {direction}
        limit {max}) as entries)"
    );
    match by {
        By::Active if joined => format!(
            "(
    select a.namespace, a.run_id, a.started_at, a.status, {TESTED}{more}, n
    from {numbered} as a
    join runs as r on r.shard = a.shard and r.namespace = a.namespace and r.run_id = a.run_id
    where a.status = any($6) or n = {max}) as looked_at"
        ),
        By::Active | By::TaskThread | By::AuditSession | By::Agent | By::Workflow | By::Start => {
            format!("{numbered} as looked_at")
        }
    }
}

/// Whether a run is meant; what the index knows is not asked again.
fn matches(by: By) -> String {
    let texts = TEXTS.iter().filter(|(column, _)| by.column() != Some(column));
    let texts = texts.map(|(column, parameter)| format!("({parameter}::text is null or {column} = {parameter})"));
    let conditions: Vec<String> = [STATUS.to_owned()].into_iter().chain(texts).chain([LABELS.to_owned()]).collect();
    format!("({}) is true", conditions.join("\n                and "))
}

/// What the statements take for a filter: `$1` to `$12`.
struct Arguments<'a> {
    namespace: &'a str,
    after: (At, &'a str),
    before: (At, &'a str),
    statuses: Option<Vec<i16>>,
    filter: &'a Filter,
    route: Option<&'static str>,
    labels: Option<String>,
}

impl<'a> Arguments<'a> {
    fn of(namespace: &'a str, filter: &'a Filter, range: &'a Range) -> Self {
        let Range { after, before } = range;
        Self {
            namespace,
            after: (At(after.started_at), &after.run_id),
            before: (At(before.started_at), &before.run_id),
            statuses: (!filter.statuses.is_empty()).then(|| filter.statuses.iter().map(|s| s.code()).collect()),
            filter,
            route: filter.route.map(Route::name),
            labels: json::labels(&filter.labels),
        }
    }

    fn all(&self) -> Vec<&(dyn ToSql + Sync)> {
        let Filter { task_thread_id, agent_id, workflow_id, audit_session_id, .. } = self.filter;
        vec![
            &self.namespace,
            &self.after.0,
            &self.after.1,
            &self.before.0,
            &self.before.1,
            &self.statuses,
            task_thread_id,
            agent_id,
            workflow_id,
            audit_session_id,
            &self.route,
            &self.labels,
        ]
    }
}

pub(super) async fn list_runs(sessions: &Sessions, query: &RunQuery) -> Result<RunPage, StoreError> {
    let statement = list(By::of(&query.filter), query.order, query.metadata);
    let range = Range::of_page(query);
    let arguments = Arguments::of(&query.namespace, &query.filter, &range);
    let limit = query.limit.max(1);
    // One more than is shown tells whether there are more.
    let limit_and_one = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let bytes = i64::try_from(query.bytes_max).unwrap_or(i64::MAX).max(1);
    let mut all = arguments.all();
    all.extend([&bytes as &(dyn ToSql + Sync), &limit_and_one]);
    let rows = reading(sessions, |session| async move {
        let rows = rows(&session, &statement, &all, query.bytes_max).await;
        (session, rows)
    })
    .await?;
    page(&rows, limit, query.bytes_max)
}

/// A page's rows, until their text is `bytes_max` long: text that is stored compressed is longer than the statement can
/// count.
async fn rows(
    session: &Session,
    statement: &str,
    arguments: &[&(dyn ToSql + Sync)],
    bytes_max: usize,
) -> Result<Vec<Row>, Error> {
    let statement = session.prepare_cached(statement).await?;
    let mut stream = pin!(session.query_raw(&statement, arguments.iter().copied()).await?);
    let mut rows = Vec::new();
    let mut bytes = 0;
    while let Some(row) = stream.try_next().await? {
        bytes += run_bytes(&row);
        rows.push(row);
        if bytes >= bytes_max {
            break;
        }
    }
    Ok(rows)
}

fn page(rows: &[Row], limit: usize, bytes_max: usize) -> Result<RunPage, StoreError> {
    let stored_max = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let mut page = RunPage::default();
    let mut bytes = 0;
    let mut shown_last = None;
    for row in rows {
        let reader = Reader { table: "runs", row };
        let key = reader.key()?;
        let here = || shown(&key);
        let At(started_at) = reader.get("started_at", here)?;
        let place = Place { started_at, run_id: key.run_id.clone() };
        let last: bool = reader.get("last", here)?;
        if reader.get("matches", here)? {
            if page.runs.len() == limit {
                page.next = shown_last;
                break;
            }
            page.runs.push(run(row)?);
            bytes += run_bytes(row);
            // Either may be the longer: text is, where it is stored compressed, and numbers are as they are stored.
            if last || bytes >= bytes_max || reader.unsigned("stored", here)? >= stored_max {
                page.next = Some(place);
                break;
            }
            shown_last = Some(place);
        } else if last {
            page.next = Some(place);
        }
    }
    Ok(page)
}

/// The runs that are ready, oldest first: few at any time, so they are held against a filter elsewhere.
const READY: &str = concat!(
    "-- query.suspended_by_start
select ",
    run_columns!(),
    "
from (
    select shard, namespace, run_id, started_at
    from suspended
    where namespace = $1 and ready and (started_at, run_id) > ($2, $3)
    order by started_at, run_id
    limit $4::bigint) as s
cross join lateral (
    select namespace, run_id, revision, status, started_at, task_thread_id, agent_id, workflow_id, audit_session_id,
           route, labels, record, null::jsonb as metadata
    from runs where shard = s.shard and namespace = s.namespace and run_id = s.run_id offset 0) as r
order by s.started_at, s.run_id"
);

pub(super) async fn ready_runs(
    sessions: &Sessions,
    namespace: &str,
    after: Option<&Place>,
    limit: usize,
) -> Result<RunPage, StoreError> {
    let (started_at, run_id) =
        after.map_or((At(Time::from_micros(i64::MIN)), ""), |place| (At(place.started_at), place.run_id.as_str()));
    let rows_max = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = reading(sessions, |session| async move {
        let rows = async {
            let statement = session.prepare_cached(READY).await?;
            session.query(&statement, &[&namespace, &started_at, &run_id, &rows_max]).await
        };
        let rows = rows.await;
        (session, rows)
    });
    let runs = rows.await?.iter().map(run).collect::<Result<Vec<_>, _>>()?;
    let next = runs.last().filter(|_| runs.len() >= limit).map(Place::of);
    Ok(RunPage { runs, next })
}

pub(super) async fn count_runs(
    sessions: &Sessions,
    namespace: &str,
    filter: &Filter,
    before: Option<&Place>,
) -> Result<RunCounts, StoreError> {
    let by = By::of(filter);
    let beside_active =
        Filter { statuses: BTreeSet::new(), started_from: None, started_before: None, ..filter.clone() };
    let of_active = by == By::Active && beside_active == Filter::default();
    let statement = count(by, of_active);
    let range = Range::of_count(filter, before.cloned());
    let arguments = Arguments::of(namespace, filter, &range);
    let mut all = arguments.all();
    if of_active {
        all.truncate(6);
    }
    let rows = reading(sessions, |session| async move {
        let rows = async {
            let statement = session.prepare_cached(&statement).await?;
            session.query(&statement, &all).await
        };
        let rows = rows.await;
        (session, rows)
    })
    .await?;
    let mut counts = RunCounts::default();
    for row in &rows {
        let reader = Reader { table: "runs", row };
        let here = || format!("a run of {namespace}");
        let code: i16 = reader.get("status", here)?;
        let status = columns::status(code)
            .ok_or_else(|| reader.corrupt("status", here(), format!("no status is {code}").into()))?;
        let matching = reader.unsigned("matching", here)?;
        if matching > 0 {
            counts.counts.insert(status, matching);
        }
        counts.truncated |= reader.unsigned("looked_at", here)? > COUNT_RUNS_MAX as u64;
    }
    Ok(counts)
}
