//! Statements that write and are transactions of their own.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::errors::{self, TimedOut};
use super::sessions::Sessions;
use crate::store::StoreError;

/// A renewal that waits for longer is for a lease whose row a commit holds, or for a store that does not answer.
const WRITE_MAX: Duration = Duration::from_secs(8);

const ATTEMPTS_MAX: usize = 3;

/// A statement's rows, on a session that may write. The database detects two statements that lock in different
/// orders, and the one that it aborted is made again.
pub(super) async fn writing(
    sessions: &Sessions,
    statement: &str,
    arguments: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, StoreError> {
    let rows = async {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let session = sessions.commit().await?;
            let rows = async {
                let statement = session.prepare_cached(statement).await?;
                session.query(&statement, arguments).await
            };
            match rows.await {
                Ok(rows) => {
                    session.put_back();
                    return Ok(rows);
                }
                Err(error) => {
                    if errors::spares_session(&error) {
                        // A closed session costs more than itself: the hints on the shards go with it.
                        session.put_back();
                    }
                    if !errors::asks_for_retry(&error) || attempts == ATTEMPTS_MAX {
                        return Err(errors::statement(error));
                    }
                }
            }
        }
    };
    timeout(WRITE_MAX, rows).await.unwrap_or_else(|_| Err(TimedOut.into()))
}
