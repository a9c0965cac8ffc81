//! Whether a commit of unknown outcome was applied.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::Error;

use super::super::errors::{self, TimedOut};
use super::super::rows::{Reader, bigint, smallint};
use super::super::sessions::{Session, Sessions};
use super::hints::Hints;
use super::statements::{BEGIN, LOCK_HEAD, ROLLBACK};
use super::write::DECIDED_BEFORE_MAX_MS;
use crate::domain::Time;
use crate::store::{StoreError, Unsettled};

const SETTLE_MAX: Duration = Duration::from_secs(10);

/// Under the head, the first event of an applied commit is at the expected position, or after events that others
/// wrote meanwhile. The limit is for the planner: there are only a few rows to look at, at the log's end.
const COMMITTED: &str = "-- settle.committed
select exists (select from run_events where shard = $1 and position >= $2 and commit_id = $3 order by position limit 1)
           as applied,
       clock_timestamp() as now";

/// What is tried of these when the store is opened.
pub(in crate::store::postgres) const TRIED: [&str; 1] = [COMMITTED];

/// Waits for the shard's head, and so for the end of the old transaction, before it looks: an earlier look would find
/// nothing while that transaction is still on its way to commit. An optimistic commit may not even have reached the
/// database yet: settling waits until the commit is too old to write anything.
pub(in crate::store::postgres) async fn settle(
    sessions: &Sessions,
    hints: &Hints,
    unsettled: &Unsettled,
) -> Result<bool, StoreError> {
    let until_sure = async {
        loop {
            let session = sessions.commit().await?;
            match look(&session, unsettled).await? {
                Ok(Seen { applied, now }) => {
                    session.put_back();
                    let sent = hints.sent(unsettled.commit_id);
                    if let (false, Some(left)) = (applied, sent.and_then(|sent| left_until_void(sent, now))) {
                        sleep(left).await;
                        continue;
                    }
                    hints.is_settled(unsettled.commit_id);
                    return Ok(applied);
                }
                Err(error) => {
                    if errors::spares_session(&error) {
                        session.roll_back(ROLLBACK).await;
                    }
                    if !errors::is_lock_timeout(&error) {
                        return Err(errors::statement(error));
                    }
                }
            }
        }
    };
    timeout(SETTLE_MAX, until_sure).await.unwrap_or_else(|_| Err(TimedOut.into()))
}

/// The time for which a commit that was decided then can still be applied; none when it cannot.
fn left_until_void(decided_at: Time, now: Time) -> Option<Duration> {
    let void_at = decided_at.micros() + i64::from(DECIDED_BEFORE_MAX_MS) * 1_000;
    let left = u64::try_from(void_at - now.micros()).ok()?;
    Some(Duration::from_micros(left + 1))
}

/// The facts that a look under the head shows.
struct Seen {
    applied: bool,
    now: Time,
}

async fn look(session: &Session, unsettled: &Unsettled) -> Result<Result<Seen, Error>, StoreError> {
    let shard = smallint(unsettled.shard);
    let position = bigint(unsettled.first_position);
    let answer = async {
        let lock_head = session.prepare_cached(LOCK_HEAD).await?;
        let committed = session.prepare_cached(COMMITTED).await?;
        session.batch_execute(BEGIN).await?;
        let head = session.query_opt(&lock_head, &[&shard]).await?;
        // A statement of its own, begun after the wait: its snapshot sees how the old transaction ended.
        let seen = session.query_one(&committed, &[&shard, &position, &unsettled.commit_id]).await?;
        session.batch_execute(ROLLBACK).await?;
        Ok((head, seen))
    };
    let (head, row) = match answer.await {
        Ok(answer) => answer,
        Err(error) => return Ok(Err(error)),
    };
    if head.is_none() {
        let source = "the head is missing".into();
        return Err(StoreError::Corrupt { table: "shards", column: "shard", key: shard.to_string(), source });
    }
    let seen = Reader { table: "run_events", row: &row, key: &|| format!("position {position} of shard {shard}") };
    Ok(Ok(Seen { applied: seen.get("applied")?, now: seen.get("now")? }))
}
