//! Redactions: the events of a run that are in the log are written anew, under the head that the commit holds. What this
//! costs grows with the run's history, and commits of the shard wait for it.

use tokio::time::Instant;
use tokio_postgres::types::{Json, ToSql};

use super::{Failed, before};
use crate::domain::redaction::{NO_DIGEST, Rewriting, Rewritten};
use crate::domain::{Event, NewEvent, Redaction, RunKey};
use crate::store::json::Keyframe;
use crate::store::postgres::rows::{Reader, bigint};
use crate::store::postgres::sessions::Session;
use crate::store::redaction::not_all_rewritten;
use crate::store::rows::events;
use crate::store::scalars::shown;

/// Events that are read and written at once.
const PAGE_EVENTS: usize = 256;

const READ: &str = "-- redact.read
select revision, at, event::text as event, request_id, position
from run_events
where shard = $1 and namespace = $2 and run_id = $3 and revision > $4 and revision < $5
order by revision
limit $6";

/// The digest of a request that wrote what is taken out would tell of it.
const REWRITE: &str = "-- redact.rewrite
update run_events e
set event = coalesce(v.event, e.event), keyframe = coalesce(v.keyframe, e.keyframe),
    request_digest = case when v.event is null or e.request_digest is null then e.request_digest else $5 end
from unnest($2::bigint[], $3::jsonb[], $4::jsonb[]) as v (position, event, keyframe)
where e.shard = $1 and e.position = v.position";

const SAY_NOTHING: &str = "-- redact.progress
update leases set progress_message = '' where shard = $1 and namespace = $2 and run_id = $3 and progress_message <> ''";

/// Takes out of the log, and of the progress, what a redaction names, for each redaction among these events.
pub(super) async fn rewrite(
    session: &Session,
    deadline: Instant,
    shard: i16,
    decided: &[NewEvent],
) -> Result<(), Failed> {
    for NewEvent { event, .. } in decided {
        if let Some(redaction) = &event.changes.redaction {
            history(session, deadline, shard, event, redaction).await?;
            if redaction.is_of_progress() {
                let RunKey { namespace, run_id } = &event.key;
                before(deadline, session.execute(SAY_NOTHING, &[&shard, namespace, run_id]))
                    .await?
                    .map_err(Failed::finally)?;
            }
        }
    }
    Ok(())
}

async fn history(
    session: &Session,
    deadline: Instant,
    shard: i16,
    redacted: &Event,
    redaction: &Redaction,
) -> Result<(), Failed> {
    let key = &redacted.key;
    let (until, limit) = (bigint(redacted.revision), i64::try_from(PAGE_EVENTS).expect("some hundred"));
    let mut rewriting = Rewriting::of(redaction);
    let mut after = 0_i64;
    loop {
        let place: [&(dyn ToSql + Sync); 6] = [&shard, &key.namespace, &key.run_id, &after, &until, &limit];
        let page = before(deadline, session.query(READ, &place)).await?.map_err(Failed::finally)?;
        let mut rewritten: Vec<(i64, Rewritten)> = Vec::new();
        for row in &page {
            let event = events::event(row, key)?;
            after = bigint(event.revision);
            let position = Reader { table: "run_events", row, key: &|| shown(key) }.get("position")?;
            let next = rewriting.next(event);
            if next.event.is_some() || next.keyframe.is_some() {
                rewritten.push((position, next));
            }
        }
        write(session, deadline, shard, key, &rewritten).await?;
        if page.len() < PAGE_EVENTS {
            return Ok(());
        }
    }
}

async fn write(
    session: &Session,
    deadline: Instant,
    shard: i16,
    key: &RunKey,
    rewritten: &[(i64, Rewritten)],
) -> Result<(), Failed> {
    if rewritten.is_empty() {
        return Ok(());
    }
    let positions: Vec<i64> = rewritten.iter().map(|(position, _)| *position).collect();
    let events: Vec<Option<Json<&Event>>> =
        rewritten.iter().map(|(_, rewritten)| rewritten.event.as_ref().map(Json)).collect();
    let keyframes: Vec<Option<Json<Keyframe<'_>>>> = rewritten
        .iter()
        .map(|(_, rewritten)| rewritten.keyframe.as_deref().map(|run| Json(Keyframe::of(run))))
        .collect();
    let no_digest = NO_DIGEST.as_slice();
    let rows: [&(dyn ToSql + Sync); 5] = [&shard, &positions, &events, &keyframes, &no_digest];
    let changed = before(deadline, session.execute(REWRITE, &rows)).await?.map_err(Failed::finally)?;
    if usize::try_from(changed) == Ok(rewritten.len()) { Ok(()) } else { Err(not_all_rewritten(key).into()) }
}
