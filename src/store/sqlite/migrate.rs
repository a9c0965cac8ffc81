//! Brings the schema up to this release: each migration in one transaction, in an empty database all of them.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::errors;
use crate::clock::{self, Clock};
use crate::store::OpenError;
use crate::store::OpenOptions;
use crate::store::migrations::Migrated;
use crate::store::migrations::{MIN_RELEASE, Migration, RELEASE, SEAL_KEY, SQLITE, STEADY, admits, later};
use crate::store::plan::Plan;

/// Refuses a database of a newer release, or of another program, before anything in it is touched.
pub(super) fn admit(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let failed = |error| errors::open(path, error);
    if has_table(connection, "ledger").map_err(failed)? {
        let min_release: Option<String> = connection
            .query_row("-- open.min_release\nselect min_release from ledger", [], |row| row.get(0))
            .optional()
            .map_err(failed)?;
        return min_release.as_deref().map_or(Ok(()), admits);
    }
    let tables: i64 = connection
        .query_row("-- open.tables\nselect count(*) from sqlite_schema", [], |row| row.get(0))
        .map_err(failed)?;
    if tables == 0 { Ok(()) } else { Err(errors::foreign(path, "a database of another program")) }
}

/// Refuses a database that this release cannot read: of a newer release, of another program, or not migrated.
pub(super) fn reads(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    admit(connection, path)?;
    let found = applied(connection).map_err(|error| errors::reading(path, error))?;
    let needed = SQLITE.last().map_or(0, |step| step.number);
    if found < needed { Err(OpenError::NeedsMigration { found, needed }) } else { Ok(()) }
}

/// The steps that [`migrate`] would take. Nothing is written.
pub(super) fn plan(connection: &Connection, path: &Path, options: &OpenOptions) -> Result<Plan, OpenError> {
    let failed = |error| errors::open(path, error);
    admit(connection, path)?;
    let at = applied(connection).map_err(failed)?;
    if at == 0 {
        return Ok(Plan::of_nothing(SQLITE));
    }
    let ledger = "-- migrate.plan\nselect min_release, shard_count from ledger";
    let (min_release, shard_count) =
        connection.query_row(ledger, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
    options.admit(shard_count, &format!("sqlite:{}", path.display()))?;
    Ok(Plan::of(at, min_release, SQLITE))
}

/// Applies the migrations that are missing. A database with later migrations than this release knows is left as it is.
pub(super) fn migrate(
    connection: &mut Connection,
    path: &Path,
    options: &OpenOptions,
    clock: &dyn Clock,
) -> Result<Migrated, OpenError> {
    let failed = |error| errors::open(path, error);
    let found = applied(connection).map_err(failed)?;
    let steps = &SQLITE[SQLITE.iter().take_while(|step| step.number <= found).count()..];
    if found == 0 {
        create(connection, options.shards.unwrap_or(1), clock).map_err(failed)?;
    } else {
        steps.iter().try_for_each(|step| take(connection, step, clock)).map_err(failed)?;
    }
    let at = steps.last().map_or(found, |step| step.number);
    Ok(Migrated { applied: steps.iter().map(|step| step.name.to_owned()).collect(), at, is_new: found == 0 })
}

fn applied(connection: &Connection) -> rusqlite::Result<u32> {
    if has_table(connection, "ledger_migrations")? {
        connection.query_row("-- migrate.applied\nselect coalesce(max(number), 0) from ledger_migrations", [], |row| {
            row.get(0)
        })
    } else {
        Ok(0)
    }
}

/// An empty database gets all steps and its identity in one transaction, so that there is no half of one.
fn create(connection: &mut Connection, shard_count: u16, clock: &dyn Clock) -> rusqlite::Result<()> {
    let now = clock.now().micros();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(
        "-- migrate.table
         create table ledger_migrations (
             number integer primary key,
             name text not null,
             applied_at integer not null
         ) strict",
    )?;
    SQLITE.iter().try_for_each(|step| apply(&transaction, step, now))?;
    create_ledger(&transaction, shard_count, now)?;
    transaction.commit()
}

/// A later step is one transaction.
fn take(connection: &mut Connection, step: &Migration, clock: &dyn Clock) -> rusqlite::Result<()> {
    let now = clock.now().micros();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    apply(&transaction, step, now)?;
    if step.number == SEAL_KEY {
        transaction.execute("-- migrate.seal_key\nupdate ledger set seal_key = ?1", [clock::draw_key()])?;
    }
    release(&transaction)?;
    transaction.commit()
}

fn apply(transaction: &Transaction<'_>, step: &Migration, now: i64) -> rusqlite::Result<()> {
    transaction.execute_batch(step.sql)?;
    if step.number == STEADY {
        steady(transaction, now)?;
    }
    transaction.execute(
        "-- migrate.record\ninsert into ledger_migrations (number, name, applied_at) values (?1, ?2, ?3)",
        params![step.number, step.name, now],
    )?;
    Ok(())
}

/// The ledger has its steady clock from now on. A run whose newest event has not happened yet was written while the clock was
/// ahead: what is left of its time begins now. So it is with what was renewed or remembered then. Later events will bear
/// earlier times than such an event, as where a step of the clock is noticed: therefore `steady_ahead` is not 0.
fn steady(transaction: &Transaction<'_>, now: i64) -> rusqlite::Result<()> {
    let updated_at = "cast(unixepoch(substr(r.record ->> 'updatedAt', 1, 19)) as integer) * 1000000
                      + cast(substr(r.record ->> 'updatedAt', 21, 6) as integer)";
    let statements = [
        "-- migrate.steady_since\nupdate uptime set alive_at = ?1, steady_since = ?1".to_owned(),
        "-- migrate.steady_ahead
         update uptime set steady_ahead = 1
          where exists (select 1 from shards as s
                         where (select e.at from run_events as e where e.shard = s.shard
                                 order by e.position desc limit 1) > ?1 + 1000000)"
            .to_owned(),
        format!(
            "-- migrate.steady_due
             update active set due_at = ?1 + due_at - w.updated_at
               from (select r.shard, r.namespace, r.run_id, {updated_at} as updated_at from active as a
                       join runs as r on r.shard = a.shard and r.namespace = a.namespace and r.run_id = a.run_id
                      where a.due_at > ?1 + 1000000) as w
              where w.updated_at > ?1 + 1000000
                and active.shard = w.shard and active.namespace = w.namespace and active.run_id = w.run_id"
        ),
        "-- migrate.steady_leases
         update leases set expires_at = ?1 + ttl_ms * 1000 where expires_at > ?1 + ttl_ms * 1000"
            .to_owned(),
        "-- migrate.steady_claims\nupdate claims set claimed_at = ?1 where claimed_at > ?1".to_owned(),
        "-- migrate.steady_max_running\nupdate max_running set changed_at = ?1 where changed_at > ?1".to_owned(),
    ];
    statements.iter().try_for_each(|statement| transaction.execute(statement, [now]).map(drop))
}

/// States the release that migrated the schema last, and the oldest that can work with it.
fn release(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let (schema_release, min_release): (String, String) =
        transaction.query_row("-- migrate.releases\nselect schema_release, min_release from ledger", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    transaction.execute(
        "-- migrate.released\nupdate ledger set schema_release = ?1, min_release = ?2",
        [later(&schema_release, RELEASE), later(&min_release, MIN_RELEASE)],
    )?;
    Ok(())
}

fn create_ledger(transaction: &Transaction<'_>, shard_count: u16, now: i64) -> rusqlite::Result<()> {
    transaction.execute(
        "-- migrate.ledger
         insert into ledger (singleton, id, epoch, shard_count, schema_release, min_release, created_at, seal_key)
         values (1, ?1, 0, ?2, ?3, ?4, ?5, ?6)",
        params![clock::draw_id().to_string(), shard_count, RELEASE, MIN_RELEASE, now, clock::draw_key()],
    )?;
    for shard in 0..shard_count {
        transaction.execute("-- migrate.shard\ninsert into shards (shard) values (?1)", [shard])?;
    }
    Ok(())
}

fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection.query_row(
        "-- open.has_table\nselect exists (select 1 from sqlite_schema where type = 'table' and name = ?1)",
        [name],
        |row| row.get(0),
    )
}
