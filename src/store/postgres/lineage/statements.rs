//! What is asked of a server, and written to the ledger's row.

use std::sync::Once;

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Error;

use super::verdict::{Identity, Look};
use crate::store::StoreError;
use crate::store::inspect::Past;
use crate::store::postgres::errors;
use crate::store::postgres::rows::Reader;
use crate::store::postgres::statements::ROLLBACK;
use crate::telemetry::chain;

/// The server's identity as far as this role is told it, the whole first. A managed database may refuse some of it.
const IDENTITIES: [(&str, &str); 3] =
    [(SYSTEM_IDENTIFIER, TIMELINE), ("null::text", TIMELINE), ("null::text", "null::bigint")];
const SYSTEM_IDENTIFIER: &str = "(select system_identifier::text from pg_control_system())";
const TIMELINE: &str = "case when not pg_is_in_recovery()
            then ('x' || lpad(left(pg_walfile_name(pg_current_wal_lsn()), 8), 16, '0'))::bit(64)::bigint end";

/// The statements that look, with each of these identities.
pub(super) fn looks(heads: &str) -> [String; 3] {
    IDENTITIES.map(|(system, timeline)| {
        format!(
            "-- lineage.look
select l.epoch, l.system_identifier as noted_system, l.timeline as noted_timeline, s.system, s.timeline, s.standby,
       h.shard, h.position
from ledger l
cross join (select {system} as system, {timeline} as timeline, pg_is_in_recovery() as standby offset 0) as s
cross join ({heads}) as h
where l.singleton"
        )
    })
}

/// The past that a session shows, for who only reads.
pub(in crate::store::postgres) async fn past(client: &ClientWrapper) -> Result<Result<Past, StoreError>, Error> {
    let of =
        |timeline: &str| format!("-- lineage.past\nselect epoch, {timeline} as timeline from ledger where singleton");
    let row = match client.query_opt(&of(TIMELINE), &[]).await {
        Err(error) if is_refused(&error) => client.query_opt(&of("null::bigint"), &[]).await?,
        row => row?,
    };
    let Some(row) = row else { return Ok(Err(missing())) };
    let ledger = Reader { table: "ledger", row: &row };
    let one = || "the only row".to_owned();
    let timeline = ledger.get("timeline", one);
    Ok(ledger.unsigned("epoch", one).and_then(|epoch| Ok(Past { epoch, timeline: timeline? })))
}

pub(super) fn missing() -> StoreError {
    let (key, source) = ("the only row".to_owned(), "it is missing".into());
    StoreError::Corrupt { table: "ledger", column: "singleton", key, source }
}

/// This role may not see it, or this database does not have it.
pub(super) fn is_refused(error: &Error) -> bool {
    error.as_db_error().is_some_and(|error| match error.code().code() {
        "42501" | "42883" | "55000" => true,
        // The same code says that a statement was prepared for a table that has changed since.
        "0A000" => error.routine() != Some("RevalidateCachedQuery"),
        _ => false,
    })
}

/// Raises the epoch, unless another has by now: the row is looked at again in any case.
pub(super) async fn raise(client: &ClientWrapper, look: &Look, epoch: u64) -> Result<(), StoreError> {
    let update = format!(
        "-- lineage.raise
begin read write;
update ledger set epoch = {epoch}, system_identifier = coalesce({system}, system_identifier),
                  timeline = coalesce({timeline}, timeline)
where singleton and epoch = {from};
commit",
        from = look.epoch,
        system = text(look.server.system.as_deref()),
        timeline = number(look.server.timeline),
    );
    client.batch_execute(&update).await.map_err(errors::statement)
}

/// Each session finds the same; an operator needs to read it once.
static UNNAMED: Once = Once::new();

/// Notes the server in the ledger's row, as far as none is noted. Nothing depends on it yet.
pub(super) async fn name(client: &ClientWrapper, server: &Identity) -> Result<(), StoreError> {
    let update = format!(
        "-- lineage.name
begin read write;
update ledger set system_identifier = coalesce(system_identifier, {system}), timeline = coalesce(timeline, {timeline})
where singleton;
commit",
        system = text(server.system.as_deref()),
        timeline = number(server.timeline),
    );
    match client.batch_execute(&update).await {
        Ok(()) => Ok(()),
        // A role that may not: the server stays unnamed, and a change of it unseen.
        Err(error) if error.as_db_error().is_some() && !error.is_closed() => {
            UNNAMED.call_once(|| {
                let error = errors::statement(error);
                let todo = "grant update on the table `ledger`: until then a failover that loses calls may go unseen";
                tracing::warn!(error = chain(&error), todo, "the ledger's server cannot be noted");
            });
            client.batch_execute(ROLLBACK).await.map_err(errors::statement)
        }
        Err(error) => Err(errors::statement(error)),
    }
}

/// As SQL: an identifier has digits only.
fn text(identifier: Option<&str>) -> String {
    let digits = |identifier: &str| identifier.chars().filter(char::is_ascii_digit).collect::<String>();
    identifier.map_or_else(|| "null::text".to_owned(), |identifier| format!("'{}'", digits(identifier)))
}

fn number(number: Option<i64>) -> String {
    number.map_or_else(|| "null::bigint".to_owned(), |number| number.to_string())
}
