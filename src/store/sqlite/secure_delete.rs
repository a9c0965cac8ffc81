//! The cleaner: after a redaction, it takes away what old pages of the file, and the write-ahead log, still show of what
//! was taken out; and after a purge, what the log still shows of it.
//!
//! Deleted text is overwritten (`secure_delete`), but a page that was split keeps the bytes that have moved. So the file is
//! written anew, where it is small enough for that; and the log is written into it and cut. What is owed stands in the
//! ledger's row, from the redaction's own transaction on: a process that is killed leaves it to the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Asks the cleaner of a file.
#[derive(Debug, Default)]
pub(super) struct CleanerCalls {
    something: Notify,
    /// The log has what was purged. That is owed for no longer than the log lasts, which the next open cuts as well.
    purged: AtomicBool,
}

impl CleanerCalls {
    /// A redaction was committed.
    pub(super) fn redacted(&self) {
        self.something.notify_one();
    }

    /// A purge was committed.
    pub(super) fn purged(&self) {
        self.purged.store(true, Ordering::Relaxed);
        self.something.notify_one();
    }
}

/// Cleans the file whenever it is asked to, and once at the start. A try that fails is made again.
pub(super) async fn run(connections: Arc<Connections>, asked: Arc<CleanerCalls>, stop: CancellationToken) {
    let work = async {
        loop {
            let purged = asked.purged.swap(false, Ordering::Relaxed);
            match clean(&connections, purged).await {
                Ok(true) => {
                    asked.something.notified().await;
                    sleep(GATHERS).await;
                    continue;
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(
                    error = chain(&error),
                    "what was redacted or purged is in old pages still: trying again"
                ),
            }
            asked.purged.fetch_or(purged, Ordering::Relaxed);
            sleep(PAUSE).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = stop.cancelled() => {}
    }
}

/// Cleans the file where that is owed, and cuts the log also where a purge asks for it. False where a reader kept the log
/// from being cut.
async fn clean(connections: &Arc<Connections>, purged: bool) -> Result<bool, StoreError> {
    let owed = connections.write(rewrite).await??;
    if !owed && !purged {
        return Ok(true);
    }
    if !connections.cut_log().await? {
        return Ok(false);
    }
    if owed {
        // The note of it shows nothing.
        let done = |connection: &mut Connection| {
            execute(connection, "-- cleaner.done\nupdate ledger set cleaning_owed = 0", ())
        };
        connections.write(done).await??;
    }
    Ok(true)
}

/// Writes the file anew where a cleaning is owed, and tells whether it is.
fn rewrite(connection: &mut Connection) -> Result<bool, StoreError> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let owed =
        connection.query_row("-- cleaner.owed\nselect cleaning_owed from ledger", [], |row| row.get::<_, i64>(0));
    if owed.map_err(errors::statement)? == 0 {
        return Ok(false);
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
    Ok(true)
}
