//! The claims of claimers' own requests: see [`Claimed`].
//!
//! A request's row is its mutex. The row is taken after the head and after the rows of
//! [`max_running`](super::max_running), several in the order of their keys, and read in a later statement than the
//! one that waited. So of two attempts on two replicas, whatever runs they mean to take, one claims, and the other
//! finds that claim.

use super::side::{Reading, Sending, Side, Writing};
use crate::domain::{ClaimKey, Claimed, SideWrites, Wanted};
use crate::store::postgres::parts::Parts;
use crate::store::postgres::parts::columns::{Argument, Columns};
use crate::store::postgres::rows::bigint;
use crate::store::rows::sides::claim;

pub(super) const SIDE: Side = Side {
    read: Some(Reading {
        lock: Some(|| LOCK.into()),
        load: |wanted| (!wanted.claims.is_empty()).then(|| LOAD.into()),
        keys,
        read: |row, _, sides| {
            sides.claims.push(claim(row)?);
            Ok(())
        },
    }),
    write: Some(write),
    guard: None,
};

fn keys<'a>(wanted: &'a Wanted, _: &Sending<'_>) -> Vec<Argument<'a>> {
    let key = |(namespace, id): &'a ClaimKey| (namespace.as_str(), id.as_str());
    let (namespaces, ids): (Vec<&str>, Vec<&str>) = wanted.claims.iter().map(key).unzip();
    vec![Box::new(namespaces), Box::new(ids)]
}

/// Takes the rows of the requests, and makes those that are not there.
pub(in crate::store::postgres) const LOCK: &str = "-- commit.lock_claims
insert into claims (namespace, request_id, claimed_at)
select namespace, request_id, clock_timestamp() + (select steady_ahead from uptime where singleton)
from unnest($1::text[], $2::text[]) as v (namespace, request_id)
order by namespace collate \"C\", request_id collate \"C\"
on conflict (namespace, request_id) do update set claimed_at = excluded.claimed_at where false";

/// The requests that were answered with a claim before.
pub(in crate::store::postgres) const LOAD: &str = "-- commit.load_claims
select c.namespace, c.request_id, c.request_digest, c.run_id, c.epoch, c.replays
from unnest($1::text[], $2::text[]) as v (namespace, request_id)
cross join lateral (
    select * from claims where namespace = v.namespace and request_id = v.request_id offset 0) as c
where c.run_id is not null";

/// `is_held`: this transaction holds the rows, and they are updated where they are. `claimed_at` has an index: if
/// it changed, the row could not be updated in its place.
fn write<'a>(
    parts: &mut Parts<'a>,
    &Writing { is_held, steady, .. }: &Writing<'_>,
    SideWrites { claims, .. }: &'a SideWrites,
) {
    let made: Vec<(&ClaimKey, &Claimed)> =
        claims.iter().filter_map(|(key, claimed)| Some((key, claimed.as_ref()?))).collect();
    let given_back: Vec<&ClaimKey> =
        claims.iter().filter(|(_, claimed)| claimed.is_none()).map(|(key, _)| key).collect();
    if !made.is_empty() {
        let mut columns = Columns::of(made.len());
        columns.add("namespace", "text", made.iter().map(|((namespace, _), _)| namespace.as_str()));
        columns.add("request_id", "text", made.iter().map(|((_, id), _)| id.as_str()));
        columns.add("digest", "bytea", made.iter().map(|(_, claimed)| claimed.digest.as_slice()));
        columns.add("run_id", "text", made.iter().map(|(_, claimed)| claimed.key.run_id.as_str()));
        columns.add("epoch", "bigint", made.iter().map(|(_, claimed)| bigint(claimed.epoch)));
        let rows = parts.table("requested", columns);
        let now = parts.steady_now(steady);
        // In one flush the row is not held: where another attempt was quicker, the table's key makes this insert
        // fail.
        parts.writes.push(if is_held {
            format!(
                "remembered as (
    update claims c
    set request_digest = e.digest, run_id = e.run_id, epoch = e.epoch, replays = 0,
        claimed_at = case when c.claimed_at < {now} - interval '1 minute' then {now} else c.claimed_at end
    from place, (select v.*, {PLACE} as at from requested v offset 0) as e
    where c.ctid = e.at
    returning 1)"
            )
        } else {
            format!(
                "remembered as (
    insert into claims (namespace, request_id, request_digest, run_id, epoch, claimed_at)
    select v.namespace, v.request_id, v.digest, v.run_id, v.epoch, {now}
    from place, requested v)"
            )
        });
        if is_held {
            parts.count("remembered", &rows);
        }
    }
    if !given_back.is_empty() {
        let mut columns = Columns::of(given_back.len());
        columns.add("namespace", "text", given_back.iter().map(|(namespace, _)| namespace.as_str()));
        columns.add("request_id", "text", given_back.iter().map(|(_, id)| id.as_str()));
        parts.table("taken_back", columns);
        parts.writes.push(format!(
            "unclaimed as (
    delete from claims c
    using place, (select {PLACE} as at from taken_back v offset 0) as e
    where c.ctid = e.at)"
        ));
    }
}

/// The place of a request's row.
const PLACE: &str = "(select c.ctid from claims c where c.namespace = v.namespace and c.request_id = v.request_id)";
