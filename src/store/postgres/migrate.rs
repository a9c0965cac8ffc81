//! The schema's steps: which of them were taken, and how the others are taken, one server at a time.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::{Client, Error};
use uuid::Uuid;

use super::defaults::put_right;
use super::errors::TimedOut;
use super::rows::Reader;
use super::{errors, grants};
use crate::clock::draw_id;
use crate::store::OpenOptions;
use crate::store::migrations::Migrated;
use crate::store::migrations::{MIN_RELEASE, Migration, POSTGRES, RELEASE, SEAL_KEY, admits, later};
use crate::store::plan::Plan;
use crate::store::{Ledger, OpenError, SealKey, StoreError};

/// The advisory lock that every process which changes the schema holds: "runledge" in ASCII.
pub(super) const LOCK: i64 = 0x7275_6e6c_6564_6765;

/// The number of shards of a new database when no number is asked for. With four, the same calls make smaller
/// commits: a third fewer transitions at 32 callers, on quick disks and on slow ones, and no more at 512. With one, a
/// commit never overlaps the next, which leaves cores unused.
const SHARDS: u16 = 2;

/// A migration that waits for a long transaction would make everybody wait, so it gives up and is tried again.
pub(super) const SETTINGS: &str = concat!(
    "-- migrate.session",
    put_right!(),
    ";
set lock_timeout = '20s';
set statement_timeout = 0;
set idle_in_transaction_session_timeout = '60s';
set default_transaction_isolation = 'read committed';
set default_transaction_read_only = off"
);

/// For a look that changes nothing, whatever its statements are.
const LOOK_ONLY: &str = "-- migrate.look_only
set default_transaction_read_only = on";

/// The time that a look may take: behind a migration it would wait for its end.
const LOOK_MAX: Duration = Duration::from_secs(5);

const LOCK_SCHEMA: &str = "-- migrate.lock
select pg_advisory_lock($1)";
const UNLOCK_SCHEMA: &str = "-- migrate.unlock
select pg_advisory_unlock($1)";

const EXISTS: &str = "-- migrate.exists
select to_regclass('ledger_migrations') is not null as found";
/// A ledger in a schema that the session does not look into, whoever may read it: the catalogue is everybody's. A
/// ledger in a schema of the search path is left out: it was made after [`EXISTS`] was asked.
const ELSEWHERE: &str = "-- migrate.elsewhere
select string_agg(quote_ident(n.nspname), ', ' order by n.nspname) as schemas, quote_ident(current_user) as role,
       current_setting('search_path') as search_path
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where c.relname = 'ledger_migrations' and c.relkind in ('r', 'p') and n.nspname <> all (current_schemas(true))
   and exists (select from pg_catalog.pg_class l where l.relnamespace = n.oid and l.relname = 'run_events')";
const MADE_IN: &str = "-- migrate.made_in
select quote_ident(current_schema()) as schema";
const LAST: &str = "-- migrate.last
select coalesce(max(number), 0)::bigint as number from ledger_migrations";
const LEDGER: &str = "-- migrate.ledger
select id, epoch, shard_count::bigint as shard_count, min_release from ledger";
const READ_SEAL_KEY: &str = "-- migrate.read_seal_key
select seal_key from ledger";

const CREATE: &str = "-- migrate.create
create table ledger_migrations (number integer primary key, name text not null, applied_at timestamptz not null)";
const APPLIED: &str = "-- migrate.applied
insert into ledger_migrations (number, name, applied_at) values ($1::bigint, $2, clock_timestamp())";
const INSERT_LEDGER: &str = "-- migrate.insert_ledger
insert into ledger (id, epoch, shard_count, schema_release, min_release, created_at)
values ($1, 0, $2::smallint, $3, $4, clock_timestamp())";
const INSERT_SHARDS: &str = "-- migrate.insert_shards
insert into shards (shard) select * from generate_series(0, $1::smallint - 1)";
/// Takes every head, and makes a new version of each: by that version, an optimistic commit that waited for its head
/// sees that another writer had it, though that one made no event, and writes nothing.
const TAKE_HEADS: &str = "-- migrate.take_heads
update shards set shard = shard";
const RELEASES: &str = "-- migrate.releases
select schema_release, min_release from ledger";
const RELEASED: &str = "-- migrate.released
update ledger set schema_release = $1, min_release = $2";

struct FoundSchema {
    at: u32,
    shard_count: u16,
    min_release: String,
    /// None where the schema is of before the ledger had a key.
    ledger: Option<Ledger>,
}

/// Brings the schema as far as `options` permit, and gives the ledger's identity.
pub(super) async fn prepare(
    client: &mut Client,
    location: &str,
    options: &OpenOptions,
) -> Result<(Ledger, Migrated), OpenError> {
    let opening = |error| errors::opening(location, error);
    grants::check(client, location, grants::SERVING).await?;
    if let Some((ledger, at)) = usable(client, location, options).await? {
        return Ok((ledger, Migrated { applied: Vec::new(), at, is_new: false }));
    }
    // The last holder of the lock may have taken all steps: everything is looked at again under it.
    client.query_one(LOCK_SCHEMA, &[&LOCK]).await.map_err(opening)?;
    let taken = match usable(client, location, options).await? {
        Some(_) => Vec::new(),
        None => take_steps(client, location, options).await.map_err(opening)?,
    };
    client.query_one(UNLOCK_SCHEMA, &[&LOCK]).await.map_err(opening)?;
    match find(client, location).await? {
        Some(FoundSchema { at, ledger: Some(ledger), .. }) => {
            Ok((ledger, Migrated { is_new: taken.len() == POSTGRES.len(), applied: taken, at }))
        }
        Some(_) | None => Err(missing(location)),
    }
}

/// The steps that [`prepare`] would take. Nothing is written or locked.
pub(super) async fn plan(client: &Client, location: &str, options: &OpenOptions) -> Result<Plan, OpenError> {
    let look = async {
        client.batch_execute(LOOK_ONLY).await.map_err(|error| errors::opening(location, error))?;
        grants::check(client, location, grants::READING).await?;
        find(client, location).await
    };
    let late = || OpenError::Unreachable { location: location.to_owned(), source: TimedOut.into() };
    let Some(found) = timeout(LOOK_MAX, look).await.unwrap_or_else(|_elapsed| Err(late()))? else {
        is_nowhere(client, location, options).await?;
        return Ok(Plan::of_nothing(POSTGRES));
    };
    options.admit(found.shard_count, location)?;
    Ok(Plan::of(found.at, found.min_release, POSTGRES))
}

/// The ledger and its last migration, for a tool that only reads. An empty database has no migration.
pub(super) async fn reads(client: &Client, location: &str) -> Result<(Ledger, u32), OpenError> {
    let needed = newest();
    grants::check(client, location, grants::READING).await?;
    match find(client, location).await? {
        Some(FoundSchema { at, ledger: Some(ledger), .. }) if at >= needed => Ok((ledger, at)),
        Some(found) => Err(OpenError::NeedsMigration { found: found.at, needed }),
        None => {
            is_nowhere(client, location, &OpenOptions::default()).await?;
            Err(OpenError::NeedsMigration { found: 0, needed })
        }
    }
}

/// Refuses a database that has a ledger where the session does not look: another one beside it, empty, would be taken
/// for the one that is meant.
async fn is_nowhere(client: &Client, location: &str, options: &OpenOptions) -> Result<(), OpenError> {
    if options.new_ledger {
        return Ok(());
    }
    let opening = |error| errors::opening(location, error);
    let row = client.query_one(ELSEWHERE, &[]).await.map_err(opening)?;
    let Some(schemas) = row.try_get::<_, Option<String>>("schemas").map_err(opening)? else { return Ok(()) };
    let role = row.try_get("role").map_err(opening)?;
    Err(OpenError::Elsewhere { schemas, role, search_path: row.try_get("search_path").map_err(opening)? })
}

/// The ledger and its last migration when no step is to be taken; none when steps may and must be taken.
async fn usable(client: &Client, location: &str, options: &OpenOptions) -> Result<Option<(Ledger, u32)>, OpenError> {
    let needed = newest();
    let found = find(client, location).await?;
    if let Some(found) = &found {
        options.admit(found.shard_count, location)?;
    }
    match found {
        None => is_nowhere(client, location, options).await.map(|()| None),
        Some(FoundSchema { at, ledger: Some(ledger), .. }) if at >= needed => Ok(Some((ledger, at))),
        Some(_) if options.migrate => Ok(None),
        Some(found) => Err(OpenError::NeedsMigration { found: found.at, needed }),
    }
}

/// The schema's state; none in an empty database.
async fn find(client: &Client, location: &str) -> Result<Option<FoundSchema>, OpenError> {
    let opening = |error| errors::opening(location, error);
    let reading = |error: StoreError| errors::opening_with(location, error);
    let exists = client.query_one(EXISTS, &[]).await.map_err(opening)?;
    if !exists.try_get::<_, bool>("found").map_err(opening)? {
        return Ok(None);
    }
    let last = client.query_one(LAST, &[]).await.map_err(opening)?;
    let last = Reader { table: "ledger_migrations", row: &last, key: &|| "the last".to_owned() };
    let at = last.get("number").map_err(reading)?;
    let row = client.query_opt(LEDGER, &[]).await.map_err(opening)?.ok_or_else(|| missing(location))?;
    let ledger = Reader { table: "ledger", row: &row, key: &|| "the only row".to_owned() };
    let min_release: String = ledger.get("min_release").map_err(reading)?;
    admits(&min_release)?;
    let shard_count = ledger.get("shard_count").map_err(reading)?;
    if at < SEAL_KEY {
        return Ok(Some(FoundSchema { at, shard_count, min_release, ledger: None }));
    }
    let key = client.query_one(READ_SEAL_KEY, &[]).await.map_err(opening)?;
    let key = Reader { table: "ledger", row: &key, key: &|| "the only row".to_owned() };
    let ledger = Ledger {
        id: row.try_get("id").map_err(|error| reading(ledger.corrupt("id", error)))?,
        epoch: ledger.get("epoch").map_err(reading)?,
        shard_count,
        seal_key: SealKey::new(key.get("seal_key").map_err(reading)?),
    };
    Ok(Some(FoundSchema { at, shard_count, min_release, ledger: Some(ledger) }))
}

fn missing(location: &str) -> OpenError {
    OpenError::Failed { location: location.to_owned(), source: "the database has no ledger row".into() }
}

/// An empty database gets all steps and its identity in one transaction, so that there is no half of one; a later step
/// is one transaction.
async fn take_steps(client: &mut Client, location: &str, options: &OpenOptions) -> Result<Vec<String>, Error> {
    let empty = !client.query_one(EXISTS, &[]).await?.try_get::<_, bool>("found")?;
    if empty {
        create(client, draw_id(), options.shards.unwrap_or(SHARDS)).await?;
        let row = client.query_one(MADE_IN, &[]).await?;
        tracing::info!(store = location, schema = row.try_get::<_, &str>("schema")?, "a new ledger was created");
        return Ok(names(POSTGRES));
    }
    let last: i64 = client.query_one(LAST, &[]).await?.try_get("number")?;
    let steps = &POSTGRES[POSTGRES.iter().take_while(|step| i64::from(step.number) <= last).count()..];
    for step in steps {
        let transaction = client.transaction().await?;
        let row = transaction.query_one(RELEASES, &[]).await?;
        let (schema_release, min_release): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
        let raised = later(min_release, MIN_RELEASE);
        if raised != min_release {
            // Shuts out older replicas that are running: each reads `min_release` under a head.
            transaction.execute(TAKE_HEADS, &[]).await?;
        }
        transaction.batch_execute(step.sql).await?;
        transaction.execute(APPLIED, &[&i64::from(step.number), &step.name]).await?;
        transaction.execute(RELEASED, &[&later(schema_release, RELEASE), &raised]).await?;
        transaction.commit().await?;
    }
    Ok(names(steps))
}

async fn create(client: &mut Client, id: Uuid, shard_count: u16) -> Result<(), Error> {
    let shard_count = i16::try_from(shard_count).unwrap_or(i16::MAX);
    let transaction = client.transaction().await?;
    transaction.batch_execute(CREATE).await?;
    for step in POSTGRES {
        transaction.batch_execute(step.sql).await?;
        transaction.execute(APPLIED, &[&i64::from(step.number), &step.name]).await?;
    }
    transaction.execute(INSERT_LEDGER, &[&id, &shard_count, &RELEASE, &MIN_RELEASE]).await?;
    transaction.execute(INSERT_SHARDS, &[&shard_count]).await?;
    transaction.commit().await
}

fn names(steps: &[Migration]) -> Vec<String> {
    steps.iter().map(|step| step.name.to_owned()).collect()
}

fn newest() -> u32 {
    POSTGRES.last().map_or(0, |step| step.number)
}
