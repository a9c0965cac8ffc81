//! The leases of runs, as a commit reads and writes them. Renewals change them beside commits: see
//! [`upkeep`](crate::store::sqlite::upkeep::leases).

use rusqlite::{Connection, params};

use super::side::{Loading, Side};
use crate::domain::{HeldLease, Lease, RunKey, Shard, SideWrites, Sides, Time};
use crate::store::StoreError;
use crate::store::leases::{ACTS_AFTER_MS, KeptLease};
use crate::store::rows::sides;
use crate::store::sqlite::rows::{Reader, bigint, execute, first, shown};
use crate::store::sqlite::writer::Writer;
use crate::store::uptime::Seen;

const LEASE: &str = "-- leases.lease
select epoch, expires_at, progress_done, progress_total, progress_message, progress_at, ttl_ms, renewed
  from leases where shard = ?1 and namespace = ?2 and run_id = ?3";

/// A lease, and the columns of its row that only the authority looks at.
pub(in crate::store::sqlite) struct LeaseRow {
    pub(in crate::store::sqlite) lease: KeptLease,
    pub(in crate::store::sqlite) ttl_ms: u64,
    renewed: bool,
}

impl LeaseRow {
    pub(in crate::store::sqlite) fn held(&self) -> HeldLease {
        HeldLease { epoch: self.lease.epoch, expires_at: self.lease.expires_at, renewed: self.renewed }
    }
}

/// The time at which a lease is over: see [`leases`](crate::store::leases).
pub(in crate::store::sqlite) fn expiry(expires_at: Time, ttl_ms: u64, seen: &Seen) -> Time {
    seen.since(ttl_ms).map_or(expires_at, |since| expires_at.max(since.plus_ms(ttl_ms)))
}

/// The time from which deadlines of people are acted upon.
pub(in crate::store::sqlite) fn acts_from(seen: &Seen) -> Time {
    expiry(Time::from_micros(0), ACTS_AFTER_MS, seen)
}

/// The lease as it is kept, with the expiry that counts.
pub(in crate::store::sqlite) fn kept(
    connection: &Connection,
    shard: Shard,
    key: &RunKey,
    seen: &Seen,
) -> Result<Option<LeaseRow>, StoreError> {
    first(connection, LEASE, (shard.0, &key.namespace.as_str(), &key.run_id.as_str()), |row| {
        let mut lease = sides::lease(row, key)?;
        let row = Reader { table: "leases", row, key: &|| shown(key) };
        let ttl_ms = row.get((6, "ttl_ms"))?;
        lease.expires_at = expiry(lease.expires_at, ttl_ms, seen);
        Ok(LeaseRow { lease, ttl_ms, renewed: row.get((7, "renewed"))? })
    })
}

pub(super) const SIDE: Side = Side { load: Some(load), write: Some(write) };

/// The leases for a decision, under the head.
fn load(Loading { transaction, shard, wanted, uptime, .. }: &Loading<'_>, sides: &mut Sides) -> Result<(), StoreError> {
    for key in &wanted.leases {
        let lease = kept(transaction, *shard, key, &uptime.seen())?;
        sides.leases.extend(lease.map(|lease| (key.clone(), lease.held())));
    }
    Ok(())
}

fn write(writer: &Writer<'_>, sides: &SideWrites, now: Time) -> Result<(), StoreError> {
    sides.leases.iter().try_for_each(|(key, lease)| keep(writer, key, *lease, now))
}

/// Keeps one row for each run that has a lease and is not terminal. A lease that is granted anew keeps the progress;
/// a lease that is missing does not keep its run from ending.
fn keep(writer: &Writer<'_>, key: &RunKey, lease: Option<Lease>, now: Time) -> Result<(), StoreError> {
    let (shard, namespace, run_id) = (writer.shard.0, &key.namespace, &key.run_id);
    match lease {
        Some(Lease { epoch, ttl_ms, released, resting: _ }) => writer.one_row(
            "leases",
            key,
            "-- commit.grant_lease
             insert into leases (shard, namespace, run_id, epoch, ttl_ms, expires_at, released)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             on conflict (shard, namespace, run_id)
             do update set epoch = excluded.epoch, ttl_ms = excluded.ttl_ms, expires_at = excluded.expires_at,
                           released = excluded.released, renewed = 0",
            params![
                shard,
                namespace.as_str(),
                run_id.as_str(),
                bigint(epoch),
                bigint(ttl_ms),
                now.plus_ms(ttl_ms).micros(),
                released
            ],
        ),
        None => execute(
            writer.transaction,
            "-- commit.end_lease
             delete from leases where shard = ?1 and namespace = ?2 and run_id = ?3",
            params![shard, namespace.as_str(), run_id.as_str()],
        )
        .map(drop),
    }
}
