//! Whether the server keeps the commits that it acknowledges, and is one that this store may write to.

use tokio_postgres::Client;

use super::commit::statements::{BEGIN, ROLLBACK};
use super::errors;
use super::rows::Reader;
use super::sessions::Sessions;
use crate::store::OpenOptions;
use crate::store::finding::Fault;
use crate::store::{OpenError, StoreError};

const SERVER_VERSION_MIN: i32 = 150_000;

const SETTINGS: &str = "-- safety.settings
select current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('server_version_num')::int as version_number, current_setting('server_version') as version,
       pg_is_in_recovery() as standby";

const ISOLATION: &str = "-- safety.isolation
select current_setting('transaction_isolation') as isolation";

/// Refuses a server that is too old or a standby.
pub(super) async fn writable(client: &Client, location: &str) -> Result<(), OpenError> {
    let row = client.query_one(SETTINGS, &[]).await.map_err(|error| errors::opening(location, error))?;
    let setting = Reader { table: "pg_settings", row: &row, key: &String::new };
    let opening = |error| errors::opening_with(location, error);
    let number: i32 = setting.get("version_number").map_err(opening)?;
    if number < SERVER_VERSION_MIN {
        let version: String = setting.get("version").map_err(opening)?;
        let what = format!("the server is PostgreSQL {version}; Runledger needs 15 or later");
        let todo = "upgrade it, or name another".to_owned();
        return Err(OpenError::Unfit { location: location.to_owned(), fault: Fault::Server, what, todo });
    }
    if setting.get("standby").map_err(opening)? {
        let source = "the server is a standby and only reads; the primary is needed".into();
        return Err(OpenError::Unreachable { location: location.to_owned(), source });
    }
    Ok(())
}

/// The reason why a crash of the server may lose an acknowledged commit, with the remedy; none when no crash may.
pub(super) async fn not_durable(
    client: &Client,
    location: &str,
    options: &OpenOptions,
) -> Result<Option<String>, OpenError> {
    let row = client.query_one(SETTINGS, &[]).await.map_err(|error| errors::opening(location, error))?;
    let setting = Reader { table: "pg_settings", row: &row, key: &String::new };
    let mut faults = Vec::new();
    for (name, todo) in [
        ("fsync", "set it on in postgresql.conf"),
        ("full_page_writes", "set it on in postgresql.conf"),
        ("synchronous_commit", "set it on for the server, the database and the role"),
    ] {
        let value: &str = setting.get(name).map_err(|error| errors::opening_with(location, error))?;
        if value == "off" {
            faults.push(format!("{name} is off ({todo})"));
        }
    }
    if faults.is_empty() {
        return Ok(None);
    }
    let faults = faults.join(", ");
    if options.allow_unsafe { Ok(Some(faults)) } else { Err(OpenError::Unsafe(faults)) }
}

/// Refuses a pooler or proxy before the server that changes the isolation that a commit asks for.
pub(super) async fn isolated(sessions: &Sessions, location: &str) -> Result<(), OpenError> {
    let isolation = async {
        let session = sessions.commit().await?;
        session.batch_execute(BEGIN).await.map_err(errors::statement)?;
        let row = session.query_one(ISOLATION, &[]).await.map_err(errors::statement)?;
        session.batch_execute(ROLLBACK).await.map_err(errors::statement)?;
        session.put_back();
        Reader { table: "pg_settings", row: &row, key: &String::new }.get::<String>("isolation")
    };
    let isolation = isolation.await.map_err(|error: StoreError| errors::opening_with(location, error))?;
    if isolation == "read committed" {
        return Ok(());
    }
    let what = format!("a transaction that asks for READ COMMITTED gets {isolation}");
    let todo = "have what stands before the server leave that to its clients, or connect past it".to_owned();
    Err(OpenError::Unfit { location: location.to_owned(), fault: Fault::Server, what, todo })
}
