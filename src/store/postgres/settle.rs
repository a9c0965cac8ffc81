//! Whether a commit of unknown outcome was applied.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Error;

use super::errors::{self, TimedOut};
use super::rows::{Reader, bigint, smallint};
use super::sessions::{Session, Sessions};
use super::statements::{BEGIN, LOCK_HEAD, ROLLBACK};
use crate::store::{StoreError, Unsettled};

const SETTLE_MAX: Duration = Duration::from_secs(10);

const COMMIT_AT: &str = "-- settle.commit_at
select commit_id from run_events where shard = $1 and position = $2";

/// Waits for the shard's head, and so for the end of the old transaction, before it looks: to look at once would find
/// nothing while that is still on its way to commit.
pub(super) async fn settle(sessions: &Sessions, unsettled: &Unsettled) -> Result<bool, StoreError> {
    let until_free = async {
        loop {
            let session = sessions.commit().await?;
            match look(&session, unsettled).await? {
                Ok(applied) => {
                    session.give_back();
                    return Ok(applied);
                }
                Err(error) if errors::is_lock_timeout(&error) => {}
                Err(error) => return Err(errors::statement(error)),
            }
        }
    };
    timeout(SETTLE_MAX, until_free).await.unwrap_or_else(|_| Err(TimedOut.into()))
}

async fn look(session: &Session, unsettled: &Unsettled) -> Result<Result<bool, Error>, StoreError> {
    let shard = smallint(unsettled.shard);
    let position = bigint(unsettled.first_position);
    let answer = async {
        let lock_head = session.prepare_cached(LOCK_HEAD).await?;
        let commit_at = session.prepare_cached(COMMIT_AT).await?;
        session.batch_execute(BEGIN).await?;
        let head = session.query_opt(&lock_head, &[&shard]).await?;
        // A statement of its own, begun after the wait: its snapshot sees how the old transaction ended.
        let event = session.query_opt(&commit_at, &[&shard, &position]).await?;
        session.batch_execute(ROLLBACK).await?;
        Ok((head, event))
    };
    let (head, event) = match answer.await {
        Ok(answer) => answer,
        Err(error) => return Ok(Err(error)),
    };
    let place = || format!("position {position} of shard {shard}");
    if head.is_none() {
        let source = "the head is missing".into();
        return Err(StoreError::Corrupt { table: "shards", column: "shard", key: shard.to_string(), source });
    }
    let Some(row) = &event else { return Ok(Ok(false)) };
    let commit_id: uuid::Uuid = Reader { table: "run_events", row }.get("commit_id", place)?;
    Ok(Ok(commit_id == unsettled.commit_id))
}
