//! The uptime of all servers, in SQL. The clock is the database's.
//!
//! The row of `uptime` is the time in which servers were alive without a gap, from `up_since` to `alive_at`. Each
//! server knows its own such time, from `begun` to now, and the interruptions in it. Where the two overlap, so that
//! another server was there when this one began, the authority has been up since `up_since`, and else since `begun`.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{ReplicaUptime, Sent};
use crate::domain::Time;
use crate::store::StoreError;
use crate::store::leases::ACTS_AFTER_MS;
use crate::store::postgres::read;
use crate::store::postgres::rows::At;
use crate::store::postgres::sessions::Sessions;
use crate::store::postgres::writing::writing;

/// The time that a server which finds no other's stamp waits for one before it says that there was a gap.
const GAP_WAIT_MS: u32 = 2_000;

/// Whether the row of `uptime` overlaps with a time that began at this parameter. A row from the future is of a clock
/// that was set back.
fn overlaps(begun: usize, now: &str) -> String {
    format!("(${begun} <= u.alive_at and u.alive_at <= {now} + interval '1 s')")
}

/// The clock, and since when the authority has been up, as a server knows whose [`Sent`] is in the parameters from
/// this number on. A database that was restarted was away, even where no server noticed. `held_up_ms` is four times
/// as long as the statement was on its way, or as the clock is off: for leases with no longer ttl, that is an
/// interruption that goes on.
pub(in crate::store::postgres) fn up(first: usize) -> String {
    format!(
        "up as materialized (
    select u.now,
           greatest(case when {overlaps} then u.up_since else ${begun} end,
                    case when pg_postmaster_start_time() <= u.now then pg_postmaster_start_time() end) as since,
           4000 * abs(extract(epoch from u.now - ${first}::timestamptz)) as held_up_ms,
           ${below}::bigint[] as below, ${ends}::timestamptz[] as ends
    from (select clock_timestamp() as now, alive_at, up_since from uptime where singleton offset 0) as u)",
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
with clock as materialized (select clock_timestamp() as now),
stamped as (
    update uptime u
    set alive_at = clock.now, up_since = case when {overlaps} then u.up_since else $1 end
    from clock
    where u.singleton and abs(extract(epoch from clock.now - $2::timestamptz)) * 1000 < {GAP_WAIT_MS}
      and (u.alive_at < clock.now - interval '500 ms' or u.alive_at > clock.now or not {overlaps})
      and ({overlaps} or u.alive_at > clock.now or $1 <= clock.now - interval '{GAP_WAIT_MS} ms'))
select now from clock",
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
    uptime.making(stamp, |rows| rows.first().and_then(told)).await.map(drop)
}

/// The clock in a row.
pub(in crate::store::postgres) fn told(row: &Row) -> Option<Time> {
    row.try_get("now").ok().map(|At(now)| now)
}

/// The clock, for a server that starts.
pub(in crate::store::postgres) async fn clock(sessions: &Sessions) -> Result<Time, StoreError> {
    let rows = writing(sessions, "-- uptime.clock\nselect clock_timestamp() as now", &[]).await?;
    rows.first().and_then(told).ok_or_else(|| {
        let source = "it was not told".into();
        StoreError::Corrupt { table: "clock_timestamp()", column: "now", key: String::new(), source }
    })
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
