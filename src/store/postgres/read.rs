//! Reads of one run. Each is one statement, and so one snapshot.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::errors::{self, TimedOut};
use super::fence;
use super::rows::{At, Reader, bigint, shown, smallint};
use super::sessions::{Session, Sessions};
use crate::domain::{Event, Run, RunKey, Shard};
use crate::store::StoreError;
use crate::store::json::{self, EventColumns};

const READ_MAX: Duration = Duration::from_secs(12);

const RUN: &str = "-- read.run
select record::text as record, metadata::text as metadata
from runs
where shard = $1 and namespace = $2 and run_id = $3";

/// From the last keyframe at or before the revision, or from the first event.
const RUN_AT: &str = "-- read.run_at
select revision, at, event::text as event, request_id, keyframe::text as keyframe
from run_events
where shard = $1 and namespace = $2 and run_id = $3 and revision <= $4
  and revision >= coalesce((
    select k.revision
    from run_events k
    where k.shard = $1 and k.namespace = $2 and k.run_id = $3 and k.revision <= $4 and k.keyframe is not null
    order by k.revision desc
    limit 1), 1)
order by revision";

/// Bounded by stored bytes as well, without reading out what it then leaves.
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

/// Runs a read on a session and gives it back when it went well.
pub(super) async fn reading<T, F>(sessions: &Sessions, read: impl FnOnce(Session) -> F) -> Result<T, StoreError>
where
    F: Future<Output = (Session, Result<T, Error>)>,
{
    let answer = async {
        match read(sessions.read().await?).await {
            (session, Ok(answer)) => {
                session.give_back();
                Ok(answer)
            }
            (session, Err(error)) => {
                session.close();
                Err(errors::statement(error))
            }
        }
    };
    timeout(READ_MAX, answer).await.unwrap_or_else(|_| Err(TimedOut.into()))
}

pub(super) async fn run(sessions: &Sessions, shard: Shard, key: &RunKey) -> Result<Option<Run>, StoreError> {
    let rows = rows(sessions, RUN, &[&smallint(shard), &key.namespace, &key.run_id], usize::MAX).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let run = Reader { table: "runs", row };
    let record: &str = run.get("record", || shown(key))?;
    let metadata: Option<&str> = run.get("metadata", || shown(key))?;
    json::read_run(key, record, metadata).map(Some)
}

pub(super) async fn run_at(
    sessions: &Sessions,
    shard: Shard,
    key: &RunKey,
    revision: u64,
) -> Result<Option<Run>, StoreError> {
    let arguments: [&(dyn ToSql + Sync); 4] = [&smallint(shard), &key.namespace, &key.run_id, &bigint(revision)];
    let rows = rows(sessions, RUN_AT, &arguments, usize::MAX).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let keyframe: Option<&str> = Reader { table: "run_events", row }.get("keyframe", || shown(key))?;
    let keyframe = keyframe.map(|keyframe| json::read_keyframe(key, keyframe)).transpose()?;
    let events = rows.iter().map(|row| event(key, row)).collect::<Result<Vec<_>, _>>()?;
    let run = json::fold(keyframe, &events)?;
    Ok(run.filter(|run| run.revision == revision))
}

pub(super) async fn run_events(
    sessions: &Sessions,
    shard: Shard,
    key: &RunKey,
    after: u64,
    limit: usize,
    bytes_max: usize,
) -> Result<Vec<Event>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let bytes = i64::try_from(bytes_max).unwrap_or(i64::MAX);
    let arguments: [&(dyn ToSql + Sync); 6] =
        [&smallint(shard), &key.namespace, &key.run_id, &bigint(after), &limit, &bytes];
    let rows = rows(sessions, RUN_EVENTS, &arguments, bytes_max).await?;
    rows.iter().map(|row| event(key, row)).collect()
}

pub(super) async fn ping(sessions: &Sessions) -> Result<(), StoreError> {
    let rows = rows(sessions, PING, &[], usize::MAX).await?;
    rows.iter().try_for_each(fence::admits)
}

/// A statement's rows, until their `event`s are `bytes_max` long: text that is stored compressed is longer than the
/// statement can count.
async fn rows(
    sessions: &Sessions,
    statement: &'static str,
    arguments: &[&(dyn ToSql + Sync)],
    bytes_max: usize,
) -> Result<Vec<Row>, StoreError> {
    reading(sessions, |session| async move {
        let rows = async {
            let statement = session.prepare_cached(statement).await?;
            let mut stream = pin!(session.query_raw(&statement, arguments.iter().copied()).await?);
            let mut rows = Vec::new();
            let mut bytes = 0;
            while let Some(row) = stream.try_next().await? {
                bytes += row.try_get::<_, &str>("event").map_or(0, str::len);
                rows.push(row);
                if bytes >= bytes_max {
                    break;
                }
            }
            Ok(rows)
        };
        let rows = rows.await;
        (session, rows)
    })
    .await
}

/// One row of `run_events` as an event.
pub(super) fn event(key: &RunKey, row: &Row) -> Result<Event, StoreError> {
    let reader = Reader { table: "run_events", row };
    let At(at) = reader.get("at", || shown(key))?;
    json::read_event(EventColumns {
        key: key.clone(),
        revision: reader.unsigned("revision", || shown(key))?,
        at,
        event: reader.get("event", || shown(key))?,
        request_id: reader.get("request_id", || shown(key))?,
    })
}
