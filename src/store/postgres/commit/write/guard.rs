//! The guard of an optimistic commit: all conditions that must still hold under the head.

use super::events::key_of;
use crate::domain::NewEvent;
use crate::domain::steady::PRESENT_MICROS;
use crate::store::postgres::parts::{Parts, key};

/// The age that an optimistic commit may have when it is executed. An older one writes nothing, so that after this
/// time a commit that was sent and lost cannot be applied.
pub(in crate::store::postgres) const DECIDED_BEFORE_MAX_MS: u32 = 1_000;

/// See [`PRESENT_MICROS`]: a newest event that is further ahead lifts no time.
const PRESENT_MS: i64 = PRESENT_MICROS / 1_000;

/// The time by which this process's estimate of the store's clock may be ahead of that clock.
const AHEAD_MAX_MS: u32 = 5;

impl<'a> Parts<'a> {
    /// `new` and `old`: whether there are such runs.
    pub(super) fn guard(
        &mut self,
        shard: &str,
        at: &str,
        min_release: &'a str,
        new: bool,
        old: bool,
        events: &[NewEvent],
    ) -> String {
        let min_release = self.add("text", min_release);
        let mut guard = format!(
            "version = (select ctid from shards where shard = {shard})
      and {at} > now - interval '{DECIDED_BEFORE_MAX_MS} ms' and {at} <= now + interval '{AHEAD_MAX_MS} ms'
      and (select min_release from ledger where singleton) = {min_release}
      and not exists (select from ends where at <= (select now from clock) + interval '{PRESENT_MS} ms'
                        and (at > {at} or (at = {at} and shard <> {shard})))"
        );
        if new {
            let there = format!(
                "\n      and not exists (select from new v where (select r.revision from runs r where {}) is not null)",
                key("r", shard),
            );
            guard.push_str(&there);
        }
        if old {
            guard += "\n      and not exists (select from old where place_in_runs is null)";
        }
        let keys: Vec<i64> = events.iter().filter_map(key_of).collect();
        if !keys.is_empty() {
            let keys = self.add("bigint[]", keys);
            let applied = format!(
                "\n      and not exists (
        select from unnest({keys}) as v (request_key)
        where exists (select from run_events e
                      where e.shard = {shard} and e.request_key = v.request_key offset 0))"
            );
            guard.push_str(&applied);
        }
        guard
    }
}
