//! The uptime of all servers, in SQL. The clock is the database's.
//!
//! The row of `uptime` is the time in which servers were alive without a gap, from `up_since` to `alive_at`. Each
//! server knows its own such time, from `begun` to now, and the interruptions in it. Where the two overlap, so that
//! another server was there when this one began, the authority has been up since `up_since`, and else since `begun`.

use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{DatabaseClocks, Opening, ReplicaUptime, Sent};
use crate::domain::Time;
use crate::store::StoreError;
use crate::store::leases::ACTS_AFTER_MS;
use crate::store::postgres::autocommit_writes::writing;
use crate::store::postgres::parts::columns::Argument;
use crate::store::postgres::parts::near;
use crate::store::postgres::read;
use crate::store::postgres::rows::Reader;
use crate::store::postgres::sessions::Sessions;
use crate::store::uptime::GAP;

/// The column in microseconds.
fn ahead_micros(column: &str) -> String {
    format!("(extract(epoch from {column}) * 1000000)::bigint")
}

/// Keeps by how much the steady clock is ahead of a clock that was set, unless another server has.
const KEEP: &str = "-- uptime.keep_steady
update uptime set steady_ahead = $2::bigint * interval '1 microsecond'
where singleton and steady_ahead = $1::bigint * interval '1 microsecond'";

/// The time that a server which finds no other's stamp waits for one before it says that there was a gap.
const GAP_WAIT_MS: u32 = 2_000;

/// Whether the row of `uptime` overlaps with a time that began at this parameter. A row from the future is of a clock
/// that was set back.
fn overlaps(begun: usize, now: &str) -> String {
    format!("(${begun} <= u.alive_at and u.alive_at <= {now} + interval '1 s')")
}

/// The steady clock, by how much it is `ahead` of the database's, and since when the authority has been up, as a server
/// knows whose [`Sent`] is in the parameters from this number on. A database that was restarted was away, even where no
/// server noticed. `held_up_ms` is four times as long as the statement was on its way, or as the clock was set and nobody
/// has noticed yet: for leases with no longer ttl, that is an interruption that goes on. Until it is noticed, `now` is not
/// far from where the server takes the steady clock to be.
pub(in crate::store::postgres) fn up(first: usize) -> String {
    format!(
        "up as materialized (
    select u.now, u.ahead,
           greatest(case when {overlaps} then u.up_since else ${begun} end,
                    case when pg_postmaster_start_time() + u.ahead <= u.now
                         then pg_postmaster_start_time() + u.ahead end) as since,
           4000 * abs(extract(epoch from u.told - ${first}::timestamptz)) as held_up_ms,
           ${below}::bigint[] as below, ${ends}::timestamptz[] as ends
    from (select u.*, {now} as now
          from (select clock_timestamp() + steady_ahead as told, steady_ahead as ahead, alive_at, up_since
                from uptime where singleton offset 0) as u) as u)",
        now = near("u.told", &format!("${first}::timestamptz")),
        overlaps = overlaps(first + 1, "u.now"),
        begun = first + 1,
        below = first + 2,
        ends = first + 3,
    )
}

/// The parameters of [`up`], in their order.
pub(in crate::store::postgres) fn parameters(sent: &Sent) -> [&(dyn ToSql + Sync); 4] {
    [&sent.expected, &sent.begun, &sent.below, &sent.ends]
}

/// The same, to be kept.
pub(in crate::store::postgres) fn arguments(sent: Sent) -> [Argument<'static>; 4] {
    let Sent { expected, begun, below, ends } = sent;
    [Box::new(expected), Box::new(begun), Box::new(below), Box::new(ends)]
}

/// The time since which the authority has been up, for leases with a ttl. Of the interruptions that count for it, the
/// shortest ended last.
macro_rules! up_since {
    ($ttl_ms:literal) => {
        concat!(
            "case when ",
            $ttl_ms,
            " <= up.held_up_ms then up.now
               else least(up.now, greatest(up.since, up.ends[width_bucket(",
            $ttl_ms,
            ", up.below) + 1])) end"
        )
    };
}

/// The time from which deadlines of people are acted upon: see [`ACTS_AFTER_MS`].
pub(in crate::store::postgres) const ACTS_FROM: &str =
    concat!("60000 * interval '1 ms'\n        + ", up_since!("60000::bigint"));

const _: () = assert!(ACTS_AFTER_MS == 60_000, "the text above says it too");

/// The time at which a lease is over: see [`leases`](crate::store::leases).
pub(in crate::store::postgres) const EXPIRY: &str =
    concat!("greatest(l.expires_at, l.ttl_ms * interval '1 ms'\n        + ", up_since!("l.ttl_ms"), ")");

/// At most one replica's stamp within half a second: a stamp that another wrote a moment ago is as good. The row is
/// tested as it is when it is locked: another's stamp that came first may be what this server overlaps with. A stamp
/// that was held up on its way is not written: its server may have stood still meanwhile.
fn stamp() -> String {
    format!(
        "-- uptime.stamp
with clock as materialized (
    select u.*, {now} as now
    from (select clock_timestamp() as clock, clock_timestamp() + steady_ahead as told, steady_ahead, alive_at
          from uptime where singleton offset 0) as u),
stamped as (
    update uptime u
    set alive_at = clock.now, up_since = case when {overlaps} then u.up_since else $1 end
    from clock
    where u.singleton and abs(extract(epoch from clock.told - $2::timestamptz)) * 1000 < {GAP_WAIT_MS}
      and (u.alive_at < clock.now - interval '500 ms' or u.alive_at > clock.now or not {overlaps})
      and ({overlaps} or u.alive_at > clock.now or $1 <= clock.now - interval '{GAP_WAIT_MS} ms'))
select clock as now, {ahead} as steady_ahead, alive_at from clock",
        now = near("u.told", "$2::timestamptz"),
        ahead = ahead_micros("steady_ahead"),
        overlaps = overlaps(1, "clock.now")
    )
}

/// Notes that this server is alive, and learns the database's clock.
pub(in crate::store::postgres) async fn stay_alive(
    sessions: &Sessions,
    uptime: &ReplicaUptime,
) -> Result<(), StoreError> {
    let sent = uptime.sent();
    let statement = stamp();
    let arguments: [&(dyn ToSql + Sync); 2] = [&sent.begun, &sent.expected];
    let stamp = writing(sessions, &statement, &arguments);
    uptime.making(stamp, |rows| rows.first().and_then(|row| told(row).ok())).await?;
    if let Some((from, to)) = uptime.to_keep() {
        // Of servers that notice the same at once, the first keeps it; the others hear of that with their next stamps.
        writing(sessions, KEEP, &[&from, &to]).await?;
    }
    Ok(())
}

/// The clocks in a row.
fn told(row: &Row) -> Result<DatabaseClocks, StoreError> {
    let row = Reader { table: "uptime", row, key: &|| "the only row".to_owned() };
    Ok(DatabaseClocks { clock: row.get("now")?, ahead: row.get("steady_ahead")?, alive_at: row.get("alive_at")? })
}

/// The time in which each server that serves has stamped, or noted that the database's clock was set.
const OTHERS_WAIT: Duration = Duration::from_millis(GAP_WAIT_MS as u64 + 200);

/// What a server that starts is to know of the clocks. Where the last stamp seems to be of long ago, either nobody served
/// meanwhile, or the database's clock was set a moment ago: that shows when others stamp.
pub(in crate::store::postgres) async fn opening(sessions: &Sessions) -> Result<Opening, StoreError> {
    let (told, since) = clock(sessions).await?;
    if Opening::behind(told) <= GAP {
        return Ok(Opening { told, since, beside_others: false });
    }
    sleep(OTHERS_WAIT).await;
    let (later, since) = clock(sessions).await?;
    let beside_others = later.alive_at != told.alive_at && Opening::behind(later) > GAP;
    Ok(Opening { told: later, since, beside_others })
}

/// The clocks, and the time from which on the ledger has had the steady one.
async fn clock(sessions: &Sessions) -> Result<(DatabaseClocks, Time), StoreError> {
    let statement = format!(
        "-- uptime.clock
select clock_timestamp() as now, {ahead} as steady_ahead, alive_at, steady_since from uptime where singleton",
        ahead = ahead_micros("steady_ahead")
    );
    let rows = writing(sessions, &statement, &[]).await?;
    let row = rows.first().ok_or_else(|| {
        let (key, source) = ("the only row".to_owned(), "it is missing".into());
        StoreError::Corrupt { table: "uptime", column: "singleton", key, source }
    })?;
    let since = Reader { table: "uptime", row, key: &|| "the only row".to_owned() }.get("steady_since")?;
    Ok((told(row)?, since))
}

/// A statement's rows, which rest on [`up`]: its parameters come last, and are as of the moment in which it is sent.
pub(in crate::store::postgres) async fn read_in_uptime(
    sessions: &Sessions,
    uptime: &ReplicaUptime,
    statement: &str,
    arguments: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, StoreError> {
    read::reading(sessions, |session| async move {
        let rows = async {
            let statement = session.prepare_cached(statement).await?;
            let sent = uptime.sent();
            let arguments: Vec<_> = arguments.iter().copied().chain(parameters(&sent)).collect();
            session.query(&statement, &arguments).await
        };
        let rows = rows.await;
        (session, rows)
    })
    .await
}
