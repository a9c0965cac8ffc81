//! The statements that take a shard's head and read the rows that a commit is decided on. The statements that write
//! are made in [`write`](super::write).
//!
//! Plain statements with the shard as a constant and one array a column.
//!
//! Each row is looked up by index one by one: `offset 0` keeps the planner from making a join of it, and so from
//! walking all of a shard because it takes a table for small when it makes a plan that lasts.

use crate::store::dialect::run_columns;

pub(in crate::store::postgres) const BEGIN: &str = "-- commit.begin
begin isolation level read committed";

pub(in crate::store::postgres) const ROLLBACK: &str = "-- commit.rollback
rollback";

/// The driver reports success when COMMIT was answered with ROLLBACK. A statement in front of it in the same message
/// fails in a transaction that failed before, and keeps COMMIT from being reached. The time-out is not for COMMIT: one
/// that waits for a standby must not be cut short, because it then answers as if the standby had confirmed.
pub(in crate::store::postgres) const COMMIT: &str = "-- commit.commit
set local statement_timeout = 0; commit";

pub(in crate::store::postgres) const LOCK_HEAD: &str = "-- commit.lock_head
select shard from shards where shard = $1 for update";

pub(in crate::store::postgres) const LOAD_RUNS: &str = concat!(
    "-- commit.load_runs
select ",
    run_columns!(postgres),
    "
from unnest($2::text[], $3::text[]) as v (namespace, run_id)
cross join lateral (
    select * from runs where shard = $1 and namespace = v.namespace and run_id = v.run_id offset 0) as r"
);

/// Requests by key: other requests may share the key, and are told apart by their texts.
pub(in crate::store::postgres) const LOAD_REQUEST_IDS: &str = "-- commit.load_request_ids
select e.namespace, e.run_id, e.request_id, e.revision, e.request_digest
from unnest($2::bigint[]) as v (request_key)
cross join lateral (
    select * from run_events where shard = $1 and request_key = v.request_key offset 0) as e";
