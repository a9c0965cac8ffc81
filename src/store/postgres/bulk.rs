//! Loads runs by COPY: the decided runs and events as two streams of rows, under the shard's head.

mod copy;

use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::SinkExt as _;
use runledger_postgres::Connector;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use self::copy::Copy;
use super::alone::Alone;
use super::commit::statements::{COMMIT, ROLLBACK};
use super::ends::{self, Ends};
use super::rows::{Reader, bigint, smallint};
use super::sessions::{Session, Sessions};
use super::{dsn, errors, migrate, safety};
use crate::domain::ids::request_key;
use crate::domain::{ContentRow, ContentTable, Decided, NewEvent, Route, Run, Shard};
use crate::store::bulk::{self, Bulk, End, LAST_RUN_ID, Load, LoadError, NAMESPACE, Room};
use crate::store::{Description, Ledger, OpenError, OpenOptions, StoreError, json};
use crate::supervise::Supervisor;

/// A load's COPY takes longer than a commit's statements, and its rows are made between two of them.
const BEGIN: &str = "-- bulk.begin
begin isolation level read committed;
set local idle_in_transaction_session_timeout = '10s';
set local statement_timeout = '60s'";

const LOCK_HEAD: &str = "-- bulk.lock_head
select shard from shards where shard = $1 for update";

const COPY_RUNS: &str = "-- bulk.copy_runs
copy runs (shard, namespace, run_id, revision, status, started_at, task_thread_id, agent_id, workflow_id,
           audit_session_id, route, labels, record, metadata, parent_run_id, continues_run_id)
    from stdin (format binary)";

const COPY_EVENTS: &str = "-- bulk.copy_events
copy run_events (shard, position, namespace, run_id, revision, at, event, commit_id, request_id, request_digest,
                 request_key, keyframe) from stdin (format binary)";

/// What stands beside runs.
const COPY_CONTENTS: [(ContentTable, &str); 3] = [
    (
        ContentTable::Input,
        "-- bulk.copy_input
copy run_input (shard, namespace, run_id, revision, content) from stdin (format binary)",
    ),
    (
        ContentTable::Result,
        "-- bulk.copy_results
copy run_results (shard, namespace, run_id, revision, content) from stdin (format binary)",
    ),
    (
        ContentTable::Link,
        "-- bulk.copy_links
copy run_links (shard, namespace, run_id, revision, content, number, link_key) from stdin (format binary)",
    ),
];

/// The place of the data, for roles that may see it, and whether the server is on this machine.
const ROOM: &str = "-- bulk.room
select case when pg_has_role('pg_read_all_settings', 'usage') then current_setting('data_directory') end as directory,
       pg_size_bytes(current_setting('max_wal_size')) as log_bytes_max, host(inet_server_addr()) as address";

/// Freezes the rows as well: later, the automatic cleaning would do it, in the middle of somebody's measurement.
const VACUUM: [&str; 5] = [
    "-- bulk.vacuum_runs
vacuum (freeze, analyze) runs",
    "-- bulk.vacuum_run_events
vacuum (freeze, analyze) run_events",
    "-- bulk.vacuum_run_input
vacuum (freeze, analyze) run_input",
    "-- bulk.vacuum_run_results
vacuum (freeze, analyze) run_results",
    "-- bulk.vacuum_run_links
vacuum (freeze, analyze) run_links",
];

/// The sizes as measured with `runledger bench fill` on PostgreSQL 15.
const BYTES_PER_RUN: u64 = 3_400;
const LOG_BYTES_PER_RUN: u64 = 3_500;

/// Tries for a head that somebody else holds, each as long as a session waits for a lock.
const ATTEMPTS_MAX: usize = 5;

/// A database that is loaded.
pub struct PostgresBulk {
    ledger: Ledger,
    description: Description,
    sessions: Sessions,
    connector: Connector,
    /// The statement that reads each shard's end.
    ends: String,
}

impl PostgresBulk {
    /// Opens the database that the connection string names, and creates the ledger in an empty one. Half of the
    /// connections load.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub async fn open(dsn: &str, options: &OpenOptions) -> Result<Self, OpenError> {
        let connector = dsn::connector(dsn)?;
        let location = dsn::redacted(dsn);
        let mut alone = Alone::connect(&connector, &location).await?;
        safety::writable(&alone.client, &location).await?;
        let options = OpenOptions { allow_unsafe: true, ..*options };
        let not_durable = safety::not_durable(&alone.client, &location, &options).await?;
        let (ledger, _) = migrate::prepare(&mut alone.client, &location, &options).await?;
        let description = alone.describe(dsn, not_durable);
        let sessions = Sessions::new(&connector, options.connections, &Supervisor::new(), None, || {});
        safety::isolated(&sessions, &location).await?;
        Ok(Self { ledger, description, sessions, connector, ends: ends::statement(ledger.shard_count) })
    }

    /// Takes the head and reads the shard's end. Every early return closes the session, and with it the transaction.
    async fn attempt(&self, shard: Shard, load: &Load) -> Result<Attempt, LoadError> {
        let session = self.sessions.commit().await?;
        session.batch_execute(BEGIN).await.map_err(errors::statement)?;
        match session.query_opt(LOCK_HEAD, &[&smallint(shard)]).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                let source = "the head is missing".into();
                let key = shard.0.to_string();
                return Err(StoreError::Corrupt { table: "shards", column: "shard", key, source }.into());
            }
            Err(error) if errors::asks_for_retry(&error) => return Ok(Attempt::Again(errors::statement(error))),
            Err(error) => return Err(errors::statement(error).into()),
        }
        let end = self.ends(&session, shard).await?;
        if last_run_id(&session, shard, &load.prefix).await? != load.after {
            session.batch_execute(ROLLBACK).await.map_err(errors::statement)?;
            session.put_back();
            return Err(LoadError::Taken { prefix: load.prefix.clone() });
        }
        Ok(Attempt::Begun(Box::new((session, end))))
    }

    async fn ends(&self, session: &Session, shard: Shard) -> Result<End, StoreError> {
        let ends = session.query(&self.ends, &[]).await.map_err(errors::statement)?;
        let Ends { last, elsewhere, now, .. } = Ends::read(&ends, smallint(shard))?;
        Ok(End { last, elsewhere, now })
    }
}

enum Attempt {
    /// The transaction holds the head.
    Begun(Box<(Session, End)>),
    /// Somebody else held the head for too long.
    Again(StoreError),
}

#[async_trait]
impl Bulk for PostgresBulk {
    fn ledger(&self) -> Ledger {
        self.ledger
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }

    fn loads_max(&self) -> usize {
        self.sessions.commits_max()
    }

    async fn room(&self) -> Result<Room, StoreError> {
        let session = self.sessions.read().await?;
        let row = session.query_one(ROOM, &[]).await.map_err(errors::statement)?;
        session.put_back();
        let place = Reader { table: "pg_settings", row: &row, key: &String::new };
        let directory: Option<String> = place.get("directory")?;
        let address: Option<String> = place.get("address")?;
        // Without an address, the server was reached by a socket of this machine.
        let here = address.is_none_or(|address| address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()));
        Ok(Room {
            bytes_per_run: BYTES_PER_RUN,
            log_bytes_per_run: LOG_BYTES_PER_RUN,
            log_bytes_max: place.get("log_bytes_max")?,
            free: directory.filter(|_| here).and_then(|directory| bulk::free_at(PathBuf::from(directory))),
        })
    }

    async fn last_run_id(&self, shard: Shard, prefix: &str) -> Result<Option<String>, StoreError> {
        let session = self.sessions.read().await?;
        let found = last_run_id(&session, shard, prefix).await?;
        session.put_back();
        Ok(found)
    }

    async fn load(&self, shard: Shard, commit_id: Uuid, load: Load) -> Result<u64, LoadError> {
        let mut attempt = 1;
        let (session, end) = loop {
            match self.attempt(shard, &load).await? {
                Attempt::Begun(begun) => break *begun,
                Attempt::Again(_) if attempt < ATTEMPTS_MAX => attempt += 1,
                Attempt::Again(error) => return Err(error.into()),
            }
        };
        let encode = move || Rows::of(shard, commit_id, &bulk::decided(load.histories, &end)?);
        let rows = tokio::task::spawn_blocking(encode).await.map_err(bulk::broken)??;
        let events = rows.events_count;
        let written = async {
            copy(&session, COPY_RUNS, rows.runs).await?;
            copy(&session, COPY_EVENTS, rows.events).await?;
            for ((_, statement), rows) in COPY_CONTENTS.into_iter().zip(rows.contents) {
                copy(&session, statement, rows).await?;
            }
            session.batch_execute(COMMIT).await
        };
        written.await.map_err(errors::statement)?;
        session.put_back();
        Ok(events)
    }

    async fn vacuum(&self) -> Result<(), StoreError> {
        let alone = Alone::connect(&self.connector, &self.description.location).await.map_err(bulk::broken)?;
        for statement in VACUUM {
            alone.client.batch_execute(statement).await.map_err(errors::statement)?;
        }
        Ok(())
    }

    async fn close(&self) {
        self.sessions.close();
    }
}

async fn last_run_id(session: &Session, shard: Shard, prefix: &str) -> Result<Option<String>, StoreError> {
    let past = bulk::past(prefix);
    let found = async {
        let statement = session.prepare_cached(LAST_RUN_ID).await?;
        session.query_opt(&statement, &[&smallint(shard), &NAMESPACE, &prefix, &past]).await
    };
    let found: Option<Row> = found.await.map_err(errors::statement)?;
    found.map(|row| Reader { table: "runs", row: &row, key: &|| prefix.to_owned() }.get("run_id")).transpose()
}

async fn copy(session: &Session, statement: &str, rows: Copy) -> Result<(), Error> {
    let mut sink = pin!(session.copy_in::<_, Bytes>(statement).await?);
    for chunk in rows.finish() {
        sink.feed(chunk).await?;
    }
    sink.finish().await.map(|_| ())
}

/// The bytes that a run and an event take on the way, about, so that the buffers need not grow often.
const RUN_BYTES: usize = 800;
const EVENT_BYTES: usize = 400;

/// The decided runs and events, as rows.
struct Rows {
    runs: Copy,
    events: Copy,
    contents: Vec<Copy>,
    events_count: u64,
}

impl Rows {
    fn of(shard: Shard, commit_id: Uuid, decided: &Decided) -> Result<Self, StoreError> {
        let shard = smallint(shard);
        let mut runs = Copy::with_capacity(decided.runs.len() * RUN_BYTES);
        for write in &decided.runs {
            run(&mut runs, shard, &write.run);
        }
        let mut events = Copy::with_capacity(decided.events.len() * EVENT_BYTES);
        for new in &decided.events {
            event(&mut events, shard, commit_id, new);
        }
        let all = decided.sides.contents.as_deref().unwrap_or_default();
        let contents = COPY_CONTENTS.map(|(table, _)| contents_of(table, shard, all)).into();
        Ok(Self { runs, events, contents, events_count: u64::try_from(decided.events.len()).map_err(bulk::broken)? })
    }
}

/// The columns of [`COPY_RUNS`].
fn run(rows: &mut Copy, shard: i16, run: &Run) {
    rows.row(16).smallint(shard).text(&run.namespace).text(&run.run_id).bigint(bigint(run.revision));
    rows.smallint(run.status.code()).timestamptz(run.started_at).text(&run.task_thread_id);
    rows.text_or_null(run.agent_id.as_deref()).text_or_null(run.links.workflow_id.as_deref());
    rows.text_or_null(run.links.audit_session_id.as_deref()).text_or_null(run.links.route.map(Route::name));
    rows.jsonb_or_null(json::labels(&run.labels).as_deref()).jsonb(&json::record(run));
    rows.jsonb_or_null(json::metadata(run).as_deref());
    let refinements = run.refinements.as_deref();
    rows.text_or_null(refinements.and_then(|refinements| refinements.parent_run_id.as_deref()));
    rows.text_or_null(refinements.and_then(|refinements| refinements.continues_run_id.as_deref()));
}

/// The rows of one table of [`COPY_CONTENTS`].
fn contents_of(table: ContentTable, shard: i16, all: &[ContentRow]) -> Copy {
    let mut rows = Copy::with_capacity(0);
    for row in all.iter().filter(|row| row.table == table) {
        rows.row(if table == ContentTable::Link { 7 } else { 5 });
        rows.smallint(shard).text(&row.key.namespace).text(&row.key.run_id).bigint(bigint(row.revision));
        rows.text(&row.content);
        if table == ContentTable::Link {
            rows.smallint(i16::try_from(row.number).unwrap_or(i16::MAX));
            rows.bytes_or_null(row.link_key.as_ref().map(|key| key.as_bytes().as_slice()));
        }
    }
    rows
}

/// The columns of [`COPY_EVENTS`].
fn event(rows: &mut Copy, shard: i16, commit_id: Uuid, new: &NewEvent) {
    let NewEvent { position, event, request, keyframe } = new;
    rows.row(12).smallint(shard).bigint(bigint(*position)).text(&event.key.namespace).text(&event.key.run_id);
    rows.bigint(bigint(event.revision)).timestamptz(event.at).jsonb(&json::event(event)).uuid(commit_id);
    rows.text_or_null(request.as_ref().map(|request| request.id.as_str()));
    rows.bytes_or_null(request.as_ref().map(|request| request.digest.as_slice()));
    rows.bigint_or_null(request.as_ref().map(|request| request_key(&event.key, &request.id)));
    rows.jsonb_or_null(keyframe.as_deref().map(json::keyframe).as_deref());
}
