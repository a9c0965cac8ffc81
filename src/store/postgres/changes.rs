//! The log of all shards, in one statement: shard after shard in several would show effects before their causes.

use std::fmt::Write as _;
use std::pin::pin;

use futures_util::TryStreamExt as _;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::ends;
use super::read::{self, reading};
use super::rows::{Reader, bigint};
use super::sessions::{Session, Sessions};
use crate::domain::{Namespace, Positions, Shard, Time};
use crate::store::json::EventColumns;
use crate::store::merge::{self, ShardEvents};
use crate::store::rows::events;
use crate::store::{Page, StoreError};

/// The name is not qualified, as in a commit.
const NOW: &str = "-- changes.now
select clock_timestamp() as now";

/// The statements over all shards, made once: one range a shard with the shard as a constant.
pub(super) struct OverShards {
    shard_count: u16,
    ends: String,
    changes: String,
    /// The statement of one namespace's changes: its last rows are the ends of the shards, without an event.
    changes_of: String,
}

impl OverShards {
    pub(super) fn new(shard_count: u16) -> Self {
        let changes = format!("-- changes.changes{}", of_each_shard(shard_count, ""));
        let changes_of = format!(
            "-- changes.changes_of{}
union all
(select shard, position, null, null, null, null, null, null, null from ({}) as ends)",
            of_each_shard(shard_count, " and namespace = $4::text and namespace <> 'default'"),
            ends::ends(shard_count),
        );
        let ends = format!("-- changes.ends\n{}", ends::ends(shard_count));
        Self { shard_count, ends, changes, changes_of }
    }

    /// Each shard's last position, in one snapshot.
    pub(super) async fn ends(&self, sessions: &Sessions) -> Result<Positions, StoreError> {
        let rows = read::rows(sessions, &self.ends, &[]).await?;
        self.ends_of(&rows)
    }

    /// The statement of [`ends`](Self::ends), to be part of another.
    pub(super) fn ends_statement(&self) -> &str {
        &self.ends
    }

    /// The positions in the rows of [`ends_statement`](Self::ends_statement), shard by shard.
    pub(super) fn ends_of(&self, rows: &[Row]) -> Result<Positions, StoreError> {
        let mut ends = Positions::start(self.shard_count);
        for row in rows {
            let shard = self.shard(row)?;
            let last = Reader { table: "run_events", row, key: &|| format!("the last of shard {}", shard.0) };
            ends.set(shard, last.get("position")?);
        }
        Ok(ends)
    }

    /// One merged page of the events after `after`.
    pub(super) async fn page(
        &self,
        sessions: &Sessions,
        after: &Positions,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        let asked = &self.asked(after, limit, bytes_max);
        let (now, rows) = reading(sessions, |session| async move {
            let answer = read(&session, &self.changes, asked, None).await;
            (session, answer)
        })
        .await?;
        Ok(merge::page(as_of(&now)?, self.parts(&rows, asked)?))
    }

    /// One merged page of a namespace's events after `after`.
    pub(super) async fn page_of(
        &self,
        sessions: &Sessions,
        namespace: &Namespace,
        after: &Positions,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        let asked = &self.asked(after, limit, bytes_max);
        let (now, rows) = reading(sessions, |session| async move {
            let answer = read(&session, &self.changes_of, asked, Some(namespace.as_str())).await;
            (session, answer)
        })
        .await?;
        let (events, ends) = rows.split_at(rows.partition_point(|row| !is_end(row)));
        Ok(merge::page_of(as_of(&now)?, self.parts(events, asked)?, self.ends_of(ends)?))
    }

    /// The shards' parts, from the rows of a page.
    fn parts(&self, rows: &[Row], asked: &PageArguments) -> Result<Vec<ShardEvents<EventColumns>>, StoreError> {
        let parts = rows.chunk_by(|one, next| shard_of(one) == shard_of(next));
        parts.map(|rows| self.part(rows, asked.limit, asked.bytes_max)).collect()
    }

    /// One shard's events, by position.
    fn part(&self, rows: &[Row], limit: usize, bytes_max: usize) -> Result<ShardEvents<EventColumns>, StoreError> {
        let shard = rows.first().map_or(Ok(Shard(0)), |row| self.shard(row))?;
        let mut part = ShardEvents { shard, events: Vec::with_capacity(rows.len()), cut: rows.len() >= limit };
        let (mut text, mut stored) = (0, 0);
        for row in rows {
            let (position, columns) = events::logged(row, shard)?;
            text += columns.event.len();
            stored =
                Reader { table: "run_events", row, key: &|| format!("an event of shard {}", shard.0) }.get("stored")?;
            part.events.push((position, columns));
        }
        // The statement counts bytes as stored, the reader counts text: compressed or full of numbers, either is the
        // longer.
        part.cut |= text >= bytes_max || stored >= u64::try_from(bytes_max).unwrap_or(u64::MAX);
        Ok(part)
    }

    /// The arguments of a page.
    fn asked(&self, after: &Positions, limit: usize, bytes_max: usize) -> PageArguments {
        let bytes_max = (bytes_max / usize::from(self.shard_count.max(1))).max(1);
        PageArguments {
            after: (0..self.shard_count).map(|shard| bigint(after.of(Shard(shard)))).collect(),
            limit: limit.max(1),
            bytes_max,
        }
    }

    fn shard(&self, row: &Row) -> Result<Shard, StoreError> {
        let reader = Reader { table: "run_events", row, key: &|| "a row without its shard".to_owned() };
        let shard = reader.get("shard")?;
        if shard < self.shard_count { Ok(Shard(shard)) } else { Err(reader.corrupt("shard", "there is no such shard")) }
    }
}

/// The statement that reads the history of one namespace, for a look at its plan.
#[must_use]
pub fn of_a_namespace(shard_count: u16) -> String {
    OverShards::new(shard_count).changes_of
}

/// The arguments of a page: `bytes_max` is for one shard.
struct PageArguments {
    after: Vec<i64>,
    limit: usize,
    bytes_max: usize,
}

/// The events of each shard, in one statement, that meet one more condition.
fn of_each_shard(shard_count: u16, condition: &str) -> String {
    let mut changes = String::new();
    for shard in 0..shard_count {
        let union = if shard == 0 { "" } else { "\nunion all" };
        let index = u32::from(shard) + 1;
        write!(
            changes,
            "{union}
(select {shard}::bigint as shard, position, namespace, run_id, revision, at, event::text as event, request_id, stored
from (
    select *, sum(pg_column_size(event)) over (order by position rows unbounded preceding) as stored
    from (
        select position, namespace, run_id, revision, at, event, request_id
        from run_events
        where shard = {shard}::smallint and position > ($1::bigint[])[{index}]{condition}
        order by position
        limit $2::bigint) as page) as counted
where stored - pg_column_size(event) < $3::bigint
order by position)"
        )
        .expect("a string takes all");
    }
    changes
}

/// Reads the clock before the events: every event of the page was there no earlier than `as_of` says.
async fn read(
    session: &Session,
    statement: &str,
    asked: &PageArguments,
    namespace: Option<&str>,
) -> Result<(Row, Vec<Row>), Error> {
    let now = session.prepare_cached(NOW).await?;
    let changes = session.prepare_cached(statement).await?;
    let limit = i64::try_from(asked.limit).unwrap_or(i64::MAX);
    let bytes_max = i64::try_from(asked.bytes_max).unwrap_or(i64::MAX);
    let mut arguments: Vec<&(dyn ToSql + Sync)> = vec![&asked.after, &limit, &bytes_max];
    if let Some(namespace) = &namespace {
        arguments.push(namespace);
    }
    let rows = async {
        let mut stream = pin!(session.query_raw(&changes, arguments).await?);
        let mut rows: Vec<Row> = Vec::new();
        let (mut shard, mut bytes) = (None, 0);
        while let Some(row) = stream.try_next().await? {
            if shard != shard_of(&row) {
                (shard, bytes) = (shard_of(&row), 0);
            }
            // Past a shard's share, its rows are dropped as they come: they are not held in memory.
            if bytes < asked.bytes_max || is_end(&row) {
                bytes += event_bytes(&row);
                rows.push(row);
            }
        }
        Ok::<_, Error>(rows)
    };
    let (now, rows) = tokio::join!(biased; session.query_one(&now, &[]), rows);
    Ok((now?, rows?))
}

fn as_of(now: &Row) -> Result<Time, StoreError> {
    Reader { table: "clock_timestamp()", row: now, key: &String::new }.get("now")
}

/// Whether a row is a shard's end, and no event.
fn is_end(row: &Row) -> bool {
    row.try_get::<_, Option<&str>>("event").is_ok_and(|event| event.is_none())
}

fn shard_of(row: &Row) -> Option<i64> {
    row.try_get("shard").ok()
}

fn event_bytes(row: &Row) -> usize {
    row.try_get::<_, Option<&str>>("event").ok().flatten().map_or(0, str::len)
}
