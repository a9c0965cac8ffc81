//! Redactions: the events of a run that are in the log are written anew, under the head that the commit holds. What this
//! costs grows with the run's history, and commits of the shard wait for it.

use tokio::time::Instant;
use tokio_postgres::types::{Json, ToSql};

use super::failed::Failed;
use super::load::retriable;
use super::path::before;
use crate::domain::rewriting::{NO_DIGEST, Rewriting, Rewritten};
use crate::domain::{ContentTable, Event, NewEvent, RedactedPath, Redaction, Revision, Run, RunKey};
use crate::store::PAGE_BYTES_MAX;
use crate::store::json::{Keyframe, read_keyframe};
use crate::store::postgres::rows::{Reader, bigint};
use crate::store::postgres::sessions::Session;
use crate::store::redaction::{self, PAGE_EVENTS_MAX, not_all_rewritten};
use crate::store::rows::events;
use crate::store::scalars::shown;

/// A page of a run's events; bounded by stored bytes as well.
const READ: &str = "-- redact.read
select revision, at, event::text as event, request_id, position
from (
    select *, sum(pg_column_size(event)) over (order by revision rows unbounded preceding) as stored
    from (
        select revision, at, event, request_id, position
        from run_events
        where shard = $1 and namespace = $2 and run_id = $3 and revision > $4 and revision < $5
        order by revision
        limit $6) as page) as counted
where stored - pg_column_size(event) < $7
order by revision";

const KEYFRAME: &str = "-- redact.keyframe
select keyframe::text as keyframe from run_events
where shard = $1 and namespace = $2 and run_id = $3 and revision = $4";

/// What the events take less by now is taken from what was measured of them.
const REWRITE: &str = "-- redact.rewrite
with v as materialized (
    select * from unnest($2::bigint[], $3::jsonb[], $4::jsonb[]) as v (position, event, keyframe)),
old as materialized (
    select e.position, pg_column_size(e.event) + coalesce(pg_column_size(e.keyframe), 0) as bytes
    from run_events e join v on e.shard = $1 and e.position = v.position),
changed as (
    update run_events e
    set event = coalesce(v.event, e.event), keyframe = coalesce(v.keyframe, e.keyframe)
    from v
    where e.shard = $1 and e.position = v.position
    returning e.position, pg_column_size(e.event) + coalesce(pg_column_size(e.keyframe), 0) as bytes),
measured as (
    update stored_bytes b
    set bytes = greatest(0, b.bytes - (
        select coalesce(sum(old.bytes - changed.bytes), 0)
        from old join changed on changed.position = old.position where old.position <= b.position))
    where b.namespace = $5 and b.shard = $1)
select count(*) as changed from changed";

/// The digest of a request that wrote what is taken out would tell of it, also where its event did not keep it.
const FORGET: &str = "-- redact.forget
update run_events set request_digest = $5
where shard = $1 and namespace = $2 and run_id = $3 and revision < $4 and request_digest <> $5";

/// The last revision of a run that was measured: of a run's events, later ones have later positions. It is looked for
/// once, so that no plan of it reads more than the history once.
const MEASURED: &str = "(
        select coalesce(max(e.revision), 0) from run_events e
        where e.shard = $1 and e.namespace = $2 and e.run_id = $3 and e.position <= b.position)";

/// Inputs and results are taken out whole.
fn take_out(table: ContentTable) -> String {
    format!(
        "-- redact.{name}
with gone as (
    delete from {name} where shard = $1 and namespace = $2 and run_id = $3 and revision < $4
    returning revision, octet_length(content) as bytes),
measured as (
    update stored_bytes b
    set bytes = greatest(0, b.bytes - (
        select coalesce(sum(g.bytes), 0) from gone g where g.revision <= {MEASURED}))
    where b.namespace = $2 and b.shard = $1)
select count(*) as gone from gone",
        name = table.name()
    )
}

const LINKS: &str = "-- redact.links
select number, content from run_links
where shard = $1 and namespace = $2 and run_id = $3 and revision < $4
order by number";

/// A link that was taken out is no other's like any more.
fn rewrite_links() -> String {
    format!(
        "-- redact.rewrite_links
with v as materialized (
    select * from unnest($4::bigint[], $5::text[]) as v (number, content)),
old as materialized (
    select l.revision, octet_length(l.content) - octet_length(v.content) as bytes
    from run_links l join v on l.shard = $1 and l.namespace = $2 and l.run_id = $3 and l.number = v.number),
changed as (
    update run_links l set content = v.content, link_key = null
    from v where l.shard = $1 and l.namespace = $2 and l.run_id = $3 and l.number = v.number)
update stored_bytes b
set bytes = greatest(0, b.bytes - (
    select coalesce(sum(o.bytes), 0) from old o where o.revision <= {MEASURED}))
where b.namespace = $2 and b.shard = $1"
    )
}

const SAY_NOTHING: &str = "-- redact.progress
update leases set progress_message = '' where shard = $1 and namespace = $2 and run_id = $3 and progress_message <> ''";

/// What is tried of these when the store is opened.
pub(in crate::store::postgres) const TRIED: [&str; 6] = [READ, KEYFRAME, REWRITE, FORGET, LINKS, SAY_NOTHING];

/// Takes out of the log, and of the progress, what a redaction names, for each redaction among these events. Up to a
/// revision somebody has looked through the history, and found nothing to take out. Tells how many values it took out; none
/// where no redaction is among the events.
pub(super) async fn rewrite(
    session: &Session,
    deadline: Instant,
    shard: i16,
    decided: &[NewEvent],
    nothing_up_to: Revision,
) -> Result<Option<u64>, Failed> {
    let mut redacted = None;
    for NewEvent { event, .. } in decided {
        if let Some(redaction) = &event.changes.redaction {
            let mut values = history(session, deadline, shard, (event, redaction), nothing_up_to).await?;
            let RunKey { namespace, run_id } = &event.key;
            let no_digest = NO_DIGEST.as_slice();
            let requests: [&(dyn ToSql + Sync); 5] =
                [&shard, &namespace.as_str(), &run_id.as_str(), &bigint(event.revision), &no_digest];
            execute(session, deadline, FORGET, &requests).await?;
            let place: [&(dyn ToSql + Sync); 4] =
                [&shard, &namespace.as_str(), &run_id.as_str(), &bigint(event.revision)];
            for table in redaction.paths.iter().filter_map(RedactedPath::table) {
                let gone = before(deadline, session.query(&take_out(table), &place)).await?.map_err(retriable)?;
                let row = gone.first();
                let gone = row.map(|row| Reader { table: table.name(), row, key: &|| shown(&event.key) }.get("gone"));
                values += gone.transpose()?.unwrap_or(0);
            }
            values += links(session, deadline, shard, event, redaction).await?;
            if redaction.is_of_progress() {
                values +=
                    execute(session, deadline, SAY_NOTHING, &[&shard, &namespace.as_str(), &run_id.as_str()]).await?;
            }
            redacted = Some(redacted.unwrap_or(0) + values);
        }
    }
    Ok(redacted)
}

async fn execute(
    session: &Session,
    deadline: Instant,
    statement: &str,
    arguments: &[&(dyn ToSql + Sync)],
) -> Result<u64, Failed> {
    before(deadline, session.execute(statement, arguments)).await?.map_err(retriable)
}

async fn links(
    session: &Session,
    deadline: Instant,
    shard: i16,
    redacted: &Event,
    redaction: &Redaction,
) -> Result<u64, Failed> {
    if !redaction.is_of_links() {
        return Ok(0);
    }
    let RunKey { namespace, run_id } = &redacted.key;
    let until = bigint(redacted.revision);
    let place: [&(dyn ToSql + Sync); 4] = [&shard, &namespace.as_str(), &run_id.as_str(), &until];
    let rows = before(deadline, session.query(LINKS, &place)).await?.map_err(retriable)?;
    let (mut numbers, mut contents): (Vec<i64>, Vec<String>) = (Vec::new(), Vec::new());
    for row in &rows {
        let link = Reader { table: "run_links", row, key: &|| shown(&redacted.key) };
        if let Some(left) = redaction::left_of_link(redaction, link.get("content")?, &redacted.key)? {
            numbers.push(link.get("number")?);
            contents.push(left);
        }
    }
    if numbers.is_empty() {
        return Ok(0);
    }
    execute(session, deadline, &rewrite_links(), &[&shard, &namespace.as_str(), &run_id.as_str(), &numbers, &contents])
        .await?;
    Ok(numbers.len() as u64)
}

/// The run as the last keyframe up to a revision has it; none where there is none.
async fn keyframe(
    session: &Session,
    deadline: Instant,
    shard: i16,
    key: &RunKey,
    revision: Revision,
) -> Result<Option<Run>, Failed> {
    let revision = revision.first_to_fold();
    if !revision.has_keyframe() {
        return Ok(None);
    }
    let place: [&(dyn ToSql + Sync); 4] = [&shard, &key.namespace.as_str(), &key.run_id.as_str(), &bigint(revision)];
    let rows = before(deadline, session.query(KEYFRAME, &place)).await?.map_err(retriable)?;
    let text = rows.first().map(|row| Reader { table: "run_events", row, key: &|| shown(key) }.get("keyframe"));
    Ok(text.transpose()?.map(|text| read_keyframe(key, text)).transpose()?)
}

async fn history(
    session: &Session,
    deadline: Instant,
    shard: i16,
    (redacted, redaction): (&Event, &Redaction),
    nothing_up_to: Revision,
) -> Result<u64, Failed> {
    // Where nothing came since the look, there is nothing to be read.
    if nothing_up_to.next() == redacted.revision {
        return Ok(0);
    }
    let key = &redacted.key;
    let until = bigint(redacted.revision);
    let events_max = i64::try_from(PAGE_EVENTS_MAX).expect("some hundred");
    let bytes_max = i64::try_from(PAGE_BYTES_MAX).expect("some megabytes");
    let (mut after, mut values) = (0_i64, 0);
    let mut rewriting = match keyframe(session, deadline, shard, key, nothing_up_to).await? {
        Some(run) => {
            after = bigint(run.revision);
            Rewriting::after(redaction, run)
        }
        None => Rewriting::new(redaction),
    };
    loop {
        let place: [&(dyn ToSql + Sync); 7] =
            [&shard, &key.namespace.as_str(), &key.run_id.as_str(), &after, &until, &events_max, &bytes_max];
        let page = before(deadline, session.query(READ, &place)).await?.map_err(retriable)?;
        if page.is_empty() {
            return Ok(values);
        }
        let mut rewritten: Vec<(i64, Rewritten)> = Vec::new();
        for row in &page {
            let event = events::event(row, key)?;
            after = bigint(event.revision);
            let position = Reader { table: "run_events", row, key: &|| shown(key) }.get("position")?;
            let next = rewriting.next(&event);
            values += next.values;
            if next.event.is_some() || next.keyframe.is_some() {
                rewritten.push((position, next));
            }
        }
        write(session, deadline, shard, key, &rewritten).await?;
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
        .map(|(_, rewritten)| rewritten.keyframe.as_deref().map(|run| Json(Keyframe::new(run))))
        .collect();
    let rows: [&(dyn ToSql + Sync); 5] = [&shard, &positions, &events, &keyframes, &key.namespace.as_str()];
    let changed = before(deadline, session.query(REWRITE, &rows)).await?.map_err(retriable)?;
    let changed = changed.first().map(|row| Reader { table: "run_events", row, key: &|| shown(key) }.get("changed"));
    if changed.transpose()? == Some(rewritten.len() as u64) { Ok(()) } else { Err(not_all_rewritten(key).into()) }
}
