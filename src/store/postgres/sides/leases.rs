//! The leases of runs, as a commit reads and writes them. Renewals change them beside commits: see
//! [`upkeep`](crate::store::postgres::upkeep::leases).

use std::collections::BTreeSet;

use tokio_postgres::Row;

use super::side::{Reading, Sending, Side, Writing, by_run};
use crate::domain::{HeldLease, Lease, RunKey, SideWrites, Sides, Wanted};
use crate::store::StoreError;
use crate::store::postgres::parts::Parts;
use crate::store::postgres::parts::columns::{Argument, Columns};
use crate::store::postgres::rows::{Reader, bigint, shown};
use crate::store::postgres::uptime::statements::{ACTS_FROM, EXPIRY, arguments, up};
use crate::store::rows::key;

pub(super) const SIDE: Side = Side {
    read: Some(Reading {
        lock: None,
        load: |wanted| (!wanted.leases.is_empty()).then(|| load(wanted.acts_from).into()),
        keys,
        read,
    }),
    write: Some(write),
    guard: None,
};

/// The leases for a decision, read under the head. The rows are locked, so that a renewal which got in first is waited
/// for and seen, and a later one finds the decision of this commit. In the order of their keys, as renewals are. A
/// `sweep` is also told from when on deadlines of people are acted upon, in a row that is no lease's.
pub(in crate::store::postgres) fn load(sweep: bool) -> String {
    let leases = format!(
        "select l.namespace, l.run_id, l.epoch, l.renewed, {EXPIRY} as expires_at
from up, (select * from unnest($2::text[], $3::text[]) as k (namespace, run_id)
          order by k.namespace collate \"C\", k.run_id collate \"C\") as v
join leases l on l.shard = $1 and l.namespace = any($2) and l.run_id = any($3)
  and l.namespace = v.namespace and l.run_id = v.run_id
for no key update of l"
    );
    let up = up(4);
    if sweep {
        format!(
            "-- commit.load_leases
with {up},
held as materialized (
{leases})
select held.*, null::timestamptz as acts_from from held
union all
select null, null, null, null, null, {ACTS_FROM} from up"
        )
    } else {
        format!("-- commit.load_leases\nwith {up}\n{leases}")
    }
}

fn keys<'a>(wanted: &'a Wanted, sending: &Sending<'_>) -> Vec<Argument<'a>> {
    let mut keys = by_run(wanted.leases.iter(), sending);
    keys.extend(arguments(sending.uptime.sent()));
    keys
}

/// Puts a row of [`load`] where it belongs.
fn read(row: &Row, wanted: &Wanted, sides: &mut Sides) -> Result<(), StoreError> {
    let of_sweep = Reader { table: "uptime", row, key: &|| "the uptime".to_owned() };
    let acts_from = if wanted.acts_from { of_sweep.get("acts_from")? } else { None };
    if acts_from.is_some() {
        sides.acts_from = acts_from;
        return Ok(());
    }
    let key = key(row, "leases", 0)?;
    let lease = Reader { table: "leases", row, key: &|| shown(&key) };
    let (epoch, expires_at, renewed) = (lease.get("epoch")?, lease.get("expires_at")?, lease.get("renewed")?);
    sides.leases.push((key, HeldLease { epoch, expires_at, renewed }));
    Ok(())
}

/// Rows of leases are found by their keys, not by a version that was read: their holders renew them without the
/// head. The rows come in the order of their keys, as in renewals: two that lock rows in different orders would
/// wait for each other.
fn write<'a>(
    parts: &mut Parts<'a>,
    Writing { shard, steady, .. }: &Writing<'_>,
    SideWrites { leases, .. }: &'a SideWrites,
) {
    let granted: Vec<(&RunKey, Lease)> = leases.iter().filter_map(|(key, lease)| Some((key, (*lease)?))).collect();
    let gone: Vec<&RunKey> = leases.iter().filter(|(_, lease)| lease.is_none()).map(|(key, _)| key).collect();
    if !granted.is_empty() {
        let mut columns = Columns::of_keys(granted.iter().map(|(key, _)| *key));
        columns.add("epoch", "bigint", granted.iter().map(|(_, lease)| bigint(lease.epoch)));
        columns.add("released", "bool", granted.iter().map(|(_, lease)| lease.released));
        columns.add("ttl_ms", "bigint", granted.iter().map(|(_, lease)| bigint(lease.ttl_ms)));
        parts.table("leased", columns);
        let now = parts.steady_now(*steady);
        parts.writes.push(format!(
            "granted as (
    insert into leases (shard, namespace, run_id, epoch, ttl_ms, released, expires_at)
    select {shard}, v.namespace, v.run_id, v.epoch, v.ttl_ms, v.released, {now} + v.ttl_ms * interval '1 ms'
    from place, leased v
    on conflict (shard, namespace, run_id)
    do update set epoch = excluded.epoch, ttl_ms = excluded.ttl_ms, released = excluded.released,
                  expires_at = excluded.expires_at, renewed = false)"
        ));
    }
    if !gone.is_empty() {
        // By arrays: the planner uses the whole key once a shard has more than a few leases. The last condition
        // tells namespaces apart.
        let namespaces: BTreeSet<&str> = gone.iter().map(|key| key.namespace.as_str()).collect();
        let run_ids: Vec<&str> = gone.iter().map(|key| key.run_id.as_str()).collect();
        let keys: Vec<String> = gone.iter().map(|key| format!("{}/{}", key.namespace, key.run_id)).collect();
        let namespaces = parts.add("text[]", namespaces.into_iter().collect::<Vec<_>>());
        let (run_ids, keys) = (parts.add("text[]", run_ids), parts.add("text[]", keys));
        parts.writes.push(format!(
            "freed as (
    delete from leases l using place
    where l.shard = {shard} and l.namespace = any({namespaces}) and l.run_id = any({run_ids})
      and l.namespace || '/' || l.run_id = any({keys}))"
        ));
    }
}
