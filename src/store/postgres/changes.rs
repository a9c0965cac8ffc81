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
use crate::domain::{Positions, Shard};
use crate::store::json::EventColumns;
use crate::store::merge::{self, Part};
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
}

impl OverShards {
    pub(super) fn new(shard_count: u16) -> Self {
        let mut changes = "-- changes.changes".to_owned();
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
        where shard = {shard}::smallint and position > ($1::bigint[])[{index}]
        order by position
        limit $2::bigint) as page) as counted
where stored - pg_column_size(event) < $3::bigint
order by position)"
            )
            .expect("a string takes all");
        }
        let ends = format!("-- changes.ends\n{}", ends::ends(shard_count));
        Self { shard_count, ends, changes }
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
        let limit = limit.max(1);
        let bytes_max = (bytes_max / usize::from(self.shard_count.max(1))).max(1);
        let after: Vec<i64> = (0..self.shard_count).map(|shard| bigint(after.of(Shard(shard)))).collect();
        let (now, rows) = reading(sessions, |session| async move {
            let answer = self.read(&session, &after, limit, bytes_max).await;
            (session, answer)
        })
        .await?;
        let as_of = Reader { table: "clock_timestamp()", row: &now, key: &String::new }.get("now")?;
        let parts = rows.chunk_by(|one, next| shard_of(one) == shard_of(next));
        let parts = parts.map(|rows| self.part(rows, limit, bytes_max)).collect::<Result<_, StoreError>>()?;
        drop(rows);
        Ok(merge::page(as_of, parts))
    }

    /// Reads the clock before the events: every event of the page was there no earlier than `as_of` says.
    async fn read(
        &self,
        session: &Session,
        after: &Vec<i64>,
        limit: usize,
        bytes_max: usize,
    ) -> Result<(Row, Vec<Row>), Error> {
        let now = session.prepare_cached(NOW).await?;
        let changes = session.prepare_cached(&self.changes).await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let bytes = i64::try_from(bytes_max).unwrap_or(i64::MAX);
        let arguments: [&(dyn ToSql + Sync); 3] = [after, &limit, &bytes];
        let rows = async {
            let mut stream = pin!(session.query_raw(&changes, arguments).await?);
            let mut rows: Vec<Row> = Vec::new();
            let (mut shard, mut bytes) = (None, 0);
            while let Some(row) = stream.try_next().await? {
                if shard != shard_of(&row) {
                    (shard, bytes) = (shard_of(&row), 0);
                }
                // Past a shard's share, its rows are dropped as they come: they are not held in memory.
                if bytes < bytes_max {
                    bytes += event_bytes(&row);
                    rows.push(row);
                }
            }
            Ok::<_, Error>(rows)
        };
        let (now, rows) = tokio::join!(biased; session.query_one(&now, &[]), rows);
        Ok((now?, rows?))
    }

    /// One shard's events, by position.
    fn part(&self, rows: &[Row], limit: usize, bytes_max: usize) -> Result<Part<EventColumns>, StoreError> {
        let mut part = Part { events: Vec::with_capacity(rows.len()), cut: rows.len() >= limit };
        let (mut text, mut stored) = (0, 0);
        for row in rows {
            let shard = self.shard(row)?;
            let (position, columns) = events::logged(row, shard)?;
            text += columns.event.len();
            stored =
                Reader { table: "run_events", row, key: &|| format!("an event of shard {}", shard.0) }.get("stored")?;
            part.events.push(((columns.at, shard, position), columns));
        }
        // The statement counts bytes as stored, the reader counts text: compressed or full of numbers, either is the
        // longer.
        part.cut |= text >= bytes_max || stored >= u64::try_from(bytes_max).unwrap_or(u64::MAX);
        Ok(part)
    }

    fn shard(&self, row: &Row) -> Result<Shard, StoreError> {
        let reader = Reader { table: "run_events", row, key: &|| "a row without its shard".to_owned() };
        let shard = reader.get("shard")?;
        if shard < self.shard_count { Ok(Shard(shard)) } else { Err(reader.corrupt("shard", "there is no such shard")) }
    }
}

fn shard_of(row: &Row) -> Option<i64> {
    row.try_get("shard").ok()
}

fn event_bytes(row: &Row) -> usize {
    row.try_get::<_, &str>("event").map_or(0, str::len)
}
