//! Reads of one run. Each is one statement, and so one snapshot. Runs that are read together are in [`several`].

mod several;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

pub use self::several::of_held_runs;
pub(super) use self::several::runs;
use super::errors::{self, TimedOut};
use super::min_release;
use super::rows::{Reader, bigint, shown, smallint};
use super::sessions::{Session, Sessions};
use crate::domain::{ContentRow, Event, Positions, Revision, Run, RunKey, Shard};
use crate::store::StoreError;
use crate::store::contents::{self, BESIDE, Beside};
use crate::store::dialect::run_columns;
use crate::store::rows::{events, runs};

const READ_MAX: Duration = Duration::from_secs(12);

const RUN: &str = concat!(
    "-- read.run
select ",
    run_columns!(postgres),
    "
from runs as r
where r.shard = $1 and r.namespace = $2 and r.run_id = $3"
);

/// The events from the keyframe at or before the revision, or from the first event: `number` tells whose event it is.
/// The limit limits nothing: the planner takes an array that it does not know for ten rows and a limit that it does
/// not know for a tenth, and for one row the whole key is the cheapest way.
const RUNS_AT: &str = "-- read.runs_at
select v.number, e.revision, e.at, e.event::text as event, e.request_id,
       case when e.revision <= v.first then e.keyframe::text end as keyframe
from (select * from unnest($2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[]) limit cardinality($2))
     as v (number, namespace, run_id, first, revision)
join run_events e on e.shard = $1 and e.namespace = v.namespace and e.run_id = v.run_id
  and e.revision >= v.first and e.revision <= v.revision
order by v.number, e.revision";

/// Each revision is found by the run's key: the sum keeps the planner from walking the shard's log.
const REVISIONS_AS_OF: &str = "-- read.revisions_as_of
select v.number, coalesce((
    select e.revision
    from run_events e
    where e.shard = $1 and e.namespace = v.namespace and e.run_id = v.run_id and e.position + 0 <= $2
    order by e.revision desc
    limit 1), 0) as revision
from unnest($3::bigint[], $4::text[], $5::text[]) as v (number, namespace, run_id)";

/// Bounded by stored bytes as well, without reading out the rows that it then leaves.
const RUN_EVENTS: &str = "-- read.run_events
select revision, at, event::text as event, request_id
from (
    select *, sum(pg_column_size(event)) over (order by revision rows unbounded preceding) as stored
    from (
        select revision, at, event, request_id
        from run_events
        where shard = $1 and namespace = $2 and run_id = $3 and revision > $4
        order by revision
        limit $5) as page) as counted
where stored - pg_column_size(event) < $6
order by revision";

const PING: &str = "-- read.ping
select min_release from ledger where singleton";

/// What is tried of these when the store is opened.
pub(super) const TRIED: [&str; 5] = [RUN, RUNS_AT, REVISIONS_AS_OF, RUN_EVENTS, PING];

/// Runs a read on a session and gives it back when it went well. After an error that spares the session, it is
/// [lent on](super::sessions::Sessions::read) when it is idle: the read may have sent further statements.
pub(super) async fn reading<T, F>(sessions: &Sessions, read: impl FnOnce(Session) -> F) -> Result<T, StoreError>
where
    F: Future<Output = (Session, Result<T, Error>)>,
{
    let answer = async {
        match read(sessions.read().await?).await {
            (session, Ok(answer)) => {
                session.put_back();
                Ok(answer)
            }
            (session, Err(error)) => {
                if errors::spares_session(&error) {
                    drop(session);
                } else {
                    session.close();
                }
                Err(errors::statement(error))
            }
        }
    };
    timeout(READ_MAX, answer).await.unwrap_or_else(|_| Err(TimedOut.into()))
}

pub(super) async fn run(sessions: &Sessions, shard: Shard, key: &RunKey) -> Result<Option<Run>, StoreError> {
    let rows = rows(sessions, RUN, &[&smallint(shard), &key.namespace.as_str(), &key.run_id.as_str()]).await?;
    rows.first().map(runs::run).transpose()
}

pub(super) async fn beside(
    sessions: &Sessions,
    shard: Shard,
    key: &RunKey,
    asked: &Beside,
) -> Result<Vec<ContentRow>, StoreError> {
    let [own, late] = asked.results.map(|revision| revision.map_or(0, bigint));
    let (input, links) = (i64::from(asked.input), i16::try_from(asked.links).unwrap_or(i16::MAX));
    let arguments: [&(dyn ToSql + Sync); 7] =
        [&smallint(shard), &key.namespace.as_str(), &key.run_id.as_str(), &input, &own, &late, &links];
    rows(sessions, BESIDE, &arguments).await?.iter().map(contents::row).collect()
}

/// Reads with one statement for each shard that has some of the runs.
pub(super) async fn runs_at(
    sessions: &Sessions,
    wanted: &[(RunKey, Revision)],
    shard_of: impl Fn(&RunKey) -> Shard,
) -> Result<Vec<Option<Run>>, StoreError> {
    let mut runs = vec![None; wanted.len()];
    for (shard, numbers) in by_shard(wanted.iter().map(|(key, _)| shard_of(key))) {
        let of = |number: &i64| &wanted[index(*number)];
        let (namespaces, run_ids) = columns(numbers.iter().map(|number| &of(number).0));
        let firsts: Vec<i64> = numbers.iter().map(|number| bigint(of(number).1.first_to_fold())).collect();
        let revisions: Vec<i64> = numbers.iter().map(|number| bigint(of(number).1)).collect();
        let arguments: [&(dyn ToSql + Sync); 6] =
            [&smallint(shard), &numbers, &namespaces, &run_ids, &firsts, &revisions];
        let rows = rows(sessions, RUNS_AT, &arguments).await?;
        for rows in rows.chunk_by(|one, next| number_of(one) == number_of(next)) {
            let Some(number) = rows.first().and_then(number_of) else { continue };
            let (key, revision) = of(&number);
            let mut history = events::History::of(key);
            rows.iter().try_for_each(|row| history.add(row))?;
            runs[index(number)] = history.run()?.filter(|run| run.revision == *revision);
        }
    }
    Ok(runs)
}

/// Reads with one statement for each shard that has some of the runs.
pub(super) async fn revisions_as_of(
    sessions: &Sessions,
    keys: &[RunKey],
    ends: &Positions,
    shard_of: impl Fn(&RunKey) -> Shard,
) -> Result<Vec<Revision>, StoreError> {
    let mut revisions = vec![Revision::NONE; keys.len()];
    for (shard, numbers) in by_shard(keys.iter().map(shard_of)) {
        let end = bigint(ends.of(shard));
        let (namespaces, run_ids) = columns(numbers.iter().map(|number| &keys[index(*number)]));
        let arguments: [&(dyn ToSql + Sync); 5] = [&smallint(shard), &end, &numbers, &namespaces, &run_ids];
        for row in &rows(sessions, REVISIONS_AS_OF, &arguments).await? {
            let Some(number) = number_of(row) else { continue };
            let event = Reader { table: "run_events", row, key: &|| shown(&keys[index(number)]) };
            revisions[index(number)] = event.get("revision")?;
        }
    }
    Ok(revisions)
}

/// The numbers of the keys, which stand in the order of their shards here, by shard.
pub(super) fn by_shard(shards: impl Iterator<Item = Shard>) -> BTreeMap<Shard, Vec<i64>> {
    let mut numbers: BTreeMap<Shard, Vec<i64>> = BTreeMap::new();
    for (number, shard) in (0..).zip(shards) {
        numbers.entry(shard).or_default().push(number);
    }
    numbers
}

pub(super) fn columns<'a>(keys: impl Iterator<Item = &'a RunKey>) -> (Vec<&'a str>, Vec<&'a str>) {
    keys.map(|key| (key.namespace.as_str(), key.run_id.as_str())).unzip()
}

pub(super) fn index(number: i64) -> usize {
    usize::try_from(number).expect("a number that was sent")
}

pub(super) fn number_of(row: &Row) -> Option<i64> {
    row.try_get("number").ok()
}

pub(super) async fn run_events(
    sessions: &Sessions,
    shard: Shard,
    key: &RunKey,
    after: Revision,
    limit: usize,
    bytes_max: usize,
) -> Result<Vec<Event>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let bytes = i64::try_from(bytes_max).unwrap_or(i64::MAX);
    let arguments: [&(dyn ToSql + Sync); 6] =
        [&smallint(shard), &key.namespace.as_str(), &key.run_id.as_str(), &bigint(after), &limit, &bytes];
    let weight = |row: &Row| row.try_get::<_, &str>("event").map_or(0, str::len);
    let rows = rows_until(sessions, RUN_EVENTS, &arguments, weight, bytes_max).await?;
    rows.iter().map(|row| events::event(row, key)).collect()
}

pub(super) async fn ping(sessions: &Sessions) -> Result<(), StoreError> {
    let rows = rows(sessions, PING, &[]).await?;
    rows.iter().try_for_each(|row| min_release::admits(row).map(|_| ()))
}

/// A statement's rows.
pub(super) async fn rows(
    sessions: &Sessions,
    statement: &str,
    arguments: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, StoreError> {
    rows_until(sessions, statement, arguments, |_| 0, usize::MAX).await
}

/// A statement's rows, until they are so long: text that is stored compressed is longer than the statement can count.
pub(super) fn rows_until<'a>(
    sessions: &'a Sessions,
    statement: &'a str,
    arguments: &'a [&'a (dyn ToSql + Sync)],
    weight: fn(&Row) -> usize,
    bytes_max: usize,
) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send + 'a {
    reading(sessions, move |mut session| async move {
        let mut unread = false;
        let rows = async {
            let statement = session.prepare_cached(statement).await?;
            let mut stream = pin!(session.query_raw(&statement, arguments.iter().copied()).await?);
            let (mut rows, mut bytes) = (Vec::new(), 0);
            while let Some(row) = stream.try_next().await? {
                bytes += weight(&row);
                rows.push(row);
                if bytes >= bytes_max {
                    unread = true;
                    break;
                }
            }
            Ok(rows)
        };
        let rows = rows.await;
        if unread {
            session.leave_unread();
        }
        (session, rows)
    })
}
