//! The cleaner: after a redaction, it takes away what old pages of the file, and the write-ahead log, still show of what
//! was taken out.
//!
//! Deleted text is overwritten (`secure_delete`), but a page that was split keeps the bytes that have moved. So the file is
//! written anew, where it is small enough for that; and the log is written into it and cut. What is owed stands in the
//! ledger's row, from the redaction's own transaction on: a process that is killed leaves it to the next one.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, Transaction};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::connections::Connections;
use super::errors;
use super::rows::execute;
use crate::store::StoreError;
use crate::telemetry::chain;

/// The size of a file up to which it is written anew: nobody writes meanwhile, and the copy is in memory.
const REWRITTEN_BYTES_MAX: i64 = 64 * 1024 * 1024;

/// The time after a redaction in which more of them may come: the file is written anew once for all.
const GATHERS: Duration = Duration::from_secs(1);

/// The pause after a try that somebody's long read kept from its end.
const PAUSE: Duration = Duration::from_secs(5);

/// Notes that a cleaning is owed.
pub(super) fn owe(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    execute(transaction, "-- cleaner.owe\nupdate ledger set cleaning_owed = 1", ()).map(drop)
}

/// Cleans the file whenever it is asked to, and once at the start. A try that fails is made again.
pub(super) async fn run(connections: Arc<Connections>, asked: Arc<Notify>, stop: CancellationToken) {
    let work = async {
        loop {
            match connections.write(clean).await.and_then(|cleaned| cleaned) {
                Ok(true) => asked.notified().await,
                Ok(false) => {
                    sleep(PAUSE).await;
                    continue;
                }
                Err(error) => {
                    tracing::warn!(
                        error = chain(&error),
                        "what a redaction took out is in old pages still: trying again"
                    );
                    sleep(PAUSE).await;
                    continue;
                }
            }
            sleep(GATHERS).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = stop.cancelled() => {}
    }
}

/// Cleans the file where that is owed. False where a reader kept the log from being cut.
fn clean(connection: &mut Connection) -> Result<bool, StoreError> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let owed =
        connection.query_row("-- cleaner.owed\nselect cleaning_owed from ledger", [], |row| row.get::<_, i64>(0));
    if owed.map_err(errors::statement)? == 0 {
        return Ok(true);
    }
    let pages = number("page_count").and_then(|pages| Ok(pages.saturating_mul(number("page_size")?)));
    let bytes = pages.map_err(errors::statement)?;
    if bytes <= REWRITTEN_BYTES_MAX {
        connection.execute_batch("-- cleaner.rewrite\nvacuum").map_err(errors::statement)?;
    } else {
        tracing::warn!(
            bytes,
            "the file is too large to be written anew beside calls: old pages may still show what a redaction took out; \
             `vacuum` takes it away, while no server runs"
        );
    }
    if !is_cut(connection)? {
        return Ok(false);
    }
    execute(connection, "-- cleaner.done\nupdate ledger set cleaning_owed = 0", ())?;
    // The note of it shows nothing.
    Ok(true)
}

/// Writes the log into the file and cuts it. False where somebody reads; nobody waits for the reader.
fn is_cut(connection: &Connection) -> Result<bool, StoreError> {
    let wait = connection.query_row("pragma busy_timeout = 0", [], |row| row.get::<_, i64>(0));
    let busy = connection.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, i64>(0));
    connection.busy_timeout(super::open::BUSY_WAIT).map_err(errors::statement)?;
    wait.and(busy).map(|busy| busy == 0).map_err(errors::statement)
}
