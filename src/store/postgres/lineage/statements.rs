//! The statements that ask a server for its identity, and write it to the ledger's row.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::verdict::{Identity, Look};
use crate::domain::LedgerEpoch;
use crate::store::inspect::Past;
use crate::store::postgres::errors;
use crate::store::postgres::rows::Reader;
use crate::store::postgres::sessions::Connection;
use crate::store::{EPOCH_SECONDS, EPOCH_ZERO, StoreError};

/// The server's identity as far as this role may read it, the whole first. A managed database may refuse some of it.
const IDENTITIES: [(&str, &str); 4] = [
    (SYSTEM_IDENTIFIER, TIMELINE),
    ("null::text", TIMELINE),
    (SYSTEM_IDENTIFIER, "null::bigint"),
    ("null::text", "null::bigint"),
];
const SYSTEM_IDENTIFIER: &str = "(select system_identifier::text from pg_control_system())";
const TIMELINE: &str = "case when not pg_is_in_recovery()
            then ('x' || lpad(left(pg_walfile_name(pg_current_wal_lsn()), 8), 16, '0'))::bit(64)::bigint end";

/// The table's identity. Physical standbys have the same. A database or table that is made anew from a dump has
/// another.
const TABLE: &str = "(select oid::text from pg_database where datname = current_database())
            || '/' || (select 'ledger'::regclass::oid::text)";

/// The statements that look, with each of these identities.
pub(super) fn looks(ends: &str) -> [String; 4] {
    IDENTITIES.map(|(system, timeline)| {
        format!(
            "-- lineage.look
select l.epoch, l.system_identifier as noted_system, l.timeline as noted_timeline, l.table_oid as noted_table,
       s.system, s.timeline, s.table_oid, s.standby, h.shard, h.position
from ledger l
cross join (select {system} as system, {timeline} as timeline, {TABLE} as table_oid, pg_is_in_recovery() as standby
            offset 0) as s
cross join ({ends}) as h
where l.singleton"
        )
    })
}

/// The past that a session shows, for a tool that only reads.
pub(in crate::store::postgres) async fn past(client: &Connection) -> Result<Result<Past, StoreError>, Error> {
    let of =
        |timeline: &str| format!("-- lineage.past\nselect epoch, {timeline} as timeline from ledger where singleton");
    let row = match client.query_opt(&of(TIMELINE), &[]).await {
        Err(error) if is_refused(&error) => client.query_opt(&of("null::bigint"), &[]).await?,
        row => row?,
    };
    let Some(row) = row else { return Ok(Err(missing())) };
    let ledger = Reader { table: "ledger", row: &row, key: &|| "the only row".to_owned() };
    let past = || Ok(Past { epoch: ledger.get("epoch")?, timeline: ledger.get("timeline")? });
    Ok(past())
}

pub(super) fn missing() -> StoreError {
    let (key, source) = ("the only row".to_owned(), "it is missing".into());
    StoreError::Corrupt { table: "ledger", column: "singleton", key, source }
}

/// Whether this role may not read the identity, or this database does not have it.
pub(super) fn is_refused(error: &Error) -> bool {
    error.as_db_error().is_some_and(|error| match error.code().code() {
        "42501" | "42883" | "55000" => true,
        // The same code is answered for a statement that was prepared for a table that has changed since.
        "0A000" => error.routine() != Some("RevalidateCachedQuery"),
        _ => false,
    })
}

/// Raises the epoch above another, unless somebody else has raised it by now: the row is read again in any case. The
/// seconds since 2026 make it an epoch that no lost past had, which may have been raised as often as this one. It is committed
/// when the seconds that it stands for are over: nobody has it before, so that a ledger which is restored after somebody had
/// it, and raised again, gets a later one.
pub(super) async fn raise(client: &Connection, look: &Look, above: LedgerEpoch) -> Result<(), StoreError> {
    let update = format!(
        "-- lineage.raise
begin read write;
update ledger set epoch = greatest({above} + 1,
                                   floor((extract(epoch from clock_timestamp()) - {EPOCH_ZERO}) / {EPOCH_SECONDS})),
                  system_identifier = coalesce({system}, system_identifier),
                  timeline = coalesce({timeline}, timeline), table_oid = coalesce({table}, table_oid)
where singleton and epoch = {from};
select pg_sleep(greatest(0, least({EPOCH_SECONDS}, {EPOCH_ZERO} + (epoch + 1) * {EPOCH_SECONDS}
                                                   - extract(epoch from clock_timestamp()))))
from ledger where singleton;
commit",
        from = look.epoch,
        system = text(look.server.system.as_deref()),
        timeline = number(look.server.timeline),
        table = text(look.server.table.as_deref()),
    );
    client.batch_execute(&update).await.map_err(not_written)
}

fn not_written(error: Error) -> StoreError {
    if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        let sentence = "this role may not update the table `ledger`, where a failover is noted: grant it";
        return StoreError::Unavailable(sentence.into());
    }
    errors::statement(error)
}

/// Notes the server in the ledger's row, as far as none is noted. A role that may not do this could not raise the
/// epoch either: an operator should learn that now and not after a failover.
pub(super) async fn name(client: &Connection, server: &Identity) -> Result<(), StoreError> {
    let update = format!(
        "-- lineage.name
begin read write;
update ledger set system_identifier = coalesce(system_identifier, {system}), timeline = coalesce(timeline, {timeline}),
                  table_oid = coalesce(table_oid, {table})
where singleton;
commit",
        system = text(server.system.as_deref()),
        timeline = number(server.timeline),
        table = text(server.table.as_deref()),
    );
    client.batch_execute(&update).await.map_err(not_written)
}

/// An identifier as SQL: digits only, or two numbers with a slash.
fn text(identifier: Option<&str>) -> String {
    let plain = |identifier: &str| identifier.chars().filter(|c| c.is_ascii_digit() || *c == '/').collect::<String>();
    identifier.map_or_else(|| "null::text".to_owned(), |identifier| format!("'{}'", plain(identifier)))
}

fn number(number: Option<i64>) -> String {
    number.map_or_else(|| "null::bigint".to_owned(), |number| number.to_string())
}
