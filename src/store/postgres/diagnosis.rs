//! What a database server's catalogue tells of a ledger's faults, before any of its tables is touched: a table that
//! somebody holds would keep the look waiting, and a ledger that cannot be opened is to be named all the same.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use super::admin_connection::Alone;
use super::blocked::{self, Purpose};
use super::errors::{self, TimedOut};
use super::rows::Reader;
use super::{dsn, elsewhere, fitness, grants};
use crate::store::finding::{Diagnosis, Fault, Finding};
use crate::store::{OpenError, StoreError};

/// The time that a server has for its first answer. Later ones are waited for longer: a server that is far away answers
/// late, and not never.
const FIRST_ANSWER_MAX: Duration = Duration::from_millis(2_500);

/// The time for which somebody may hold a table without being named.
const HELD_FOR: Duration = Duration::from_millis(500);

const SERVER: &str = "-- diagnosis.server
select pg_catalog.pg_is_in_recovery() as standby, pg_catalog.to_regclass('ledger') is not null as found";

pub(in crate::store) async fn diagnose(dsn: &str) -> Result<Diagnosis, OpenError> {
    let connector = dsn::connector(dsn)?;
    let location = dsn::redacted(dsn);
    let late = || OpenError::Unreachable { location: location.clone(), source: TimedOut.into() };
    let first = timeout(FIRST_ANSWER_MAX, Alone::bare(&connector, &location));
    drop(first.await.unwrap_or_else(|_elapsed| Err(late()))?);
    let alone = Alone::connect(&connector, &location).await?;
    look(&alone.client, &location, alone.pid).await
}

async fn look(client: &Client, location: &str, own: i32) -> Result<Diagnosis, OpenError> {
    let reading = |error: StoreError| errors::opening_with(location, error);
    let row = client.query_one(SERVER, &[]).await.map_err(|error| errors::opening(location, error))?;
    let server = Reader { table: "pg_settings", row: &row, key: &String::new };
    let (standby, is_there): (bool, bool) =
        (server.get("standby").map_err(reading)?, server.get("found").map_err(reading)?);
    let mut findings = Vec::new();
    let mut held = blocked::holders(client, Purpose::Writing, &[own]).await.map_err(reading)?;
    if !held.is_empty() {
        // Vacuum and migrations hold a table for a moment.
        sleep(HELD_FOR).await;
        held = blocked::holders(client, Purpose::Writing, &[own]).await.map_err(reading)?;
    }
    // Whoever holds rows keeps no reader waiting.
    let readers = blocked::holders(client, Purpose::Reading, &[own]).await.map_err(reading)?;
    let is_held = readers.iter().any(blocked::Holder::is_of_a_table);
    findings.extend(held.iter().map(|holder| {
        let (what, todo) = holder.told();
        Finding { name: Fault::TableHeld, what, todo }
    }));
    if standby {
        findings.push(Finding {
            name: Fault::Standby,
            what: "The server is a standby and only reads: no replica can serve on it".to_owned(),
            todo: "Name the primary, or several hosts and target_session_attrs=read-write".to_owned(),
        });
    }
    findings.extend(fitness::of_database(client).await.map_err(reading)?);
    findings.extend(others(client, location, is_there).await?);
    let mut is_open = is_there && !is_held;
    if let Err(error) = grants::check(client, location, grants::READING).await {
        is_open = false;
        findings.push(Finding::of(&error).ok_or(error)?);
    }
    if is_open {
        findings.extend(fitness::of_schema(client).await.map_err(reading)?);
    }
    for finding in &mut findings {
        finding.begin_with_capitals();
    }
    Ok(Diagnosis { findings, is_open: is_open || !is_there })
}

async fn others(client: &Client, location: &str, is_there: bool) -> Result<Option<Finding>, OpenError> {
    let ledgers = elsewhere::ledgers(client).await.map_err(|error| errors::opening(location, error))?;
    let others: Vec<_> = ledgers.iter().filter(|ledger| !ledger.is_reached).collect();
    let Some(first) = others.first() else { return Ok(None) };
    let named: Vec<_> = others.iter().map(|ledger| format!("{} (owned by {})", ledger.schema, ledger.owner)).collect();
    let named = named.join(", ");
    let reached = ledgers.iter().find(|ledger| ledger.is_reached);
    let what = match reached {
        Some(reached) => {
            format!("The database has another ledger beside the one in the schema {}: in {named}", reached.schema)
        }
        None if is_there => format!("The database has another ledger: in the schema {named}"),
        None => {
            format!("The search path of this role leads to no ledger, and the database has one in the schema {named}")
        }
    };
    let todo = format!(
        "Say which one is meant: ?options=-c%20search_path%3D{} in the connection string, or alter role ... set \
         search_path; and rename or drop the schema of the one that is not",
        first.schema
    );
    Ok(Some(Finding { name: Fault::OtherLedger, what, todo }))
}
