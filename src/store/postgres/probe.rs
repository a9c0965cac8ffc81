//! A write without meaning, made as a commit is made: it tells whether commits would succeed.

use super::commit::statements::{COMMIT, ROLLBACK};
use super::errors;
use super::min_release;
use super::sessions::Sessions;
use crate::domain::Shard;
use crate::store::StoreError;

/// Takes the shard's head, as a commit does; adds an event that needs new pages, which a full disk has not, and takes
/// it back; and commits, which is flushed and waits for the standbys that a commit waits for. The event's place is
/// before the log's first, and nobody else can see it. `gen_random_uuid`: a text that does not compress.
fn statement(shard: Shard) -> String {
    let shard = shard.0;
    format!(
        "-- probe.write
begin isolation level read committed;
select shard from shards where shard = {shard} for update;
savepoint probe;
insert into run_events (shard, position, namespace, run_id, revision, at, event, commit_id)
select {shard}, 0, '', '', 0, clock_timestamp(), to_jsonb(string_agg(gen_random_uuid()::text, '')), gen_random_uuid()
from generate_series(1, 1024);
rollback to savepoint probe;
{COMMIT}"
    )
}

/// Writes once. Where this fails, its transaction is still open.
pub(super) async fn write(sessions: &Sessions, shard: Shard) -> Result<(), StoreError> {
    let session = sessions.commit().await?;
    let ledger = session.query_one("-- probe.min_release\nselect min_release from ledger where singleton", &[]);
    min_release::admits(&ledger.await.map_err(errors::statement)?)?;
    match session.batch_execute(&statement(shard)).await {
        Ok(()) => {
            session.put_back();
            Ok(())
        }
        Err(error) => {
            if errors::spares_session(&error) {
                session.roll_back(ROLLBACK).await;
            }
            Err(errors::statement(error))
        }
    }
}
