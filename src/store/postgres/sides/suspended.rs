//! Writes the table `suspended`: a row for each run that is suspended or ready. What a suspension says, and its
//! deadline, is written with its run: see `commit::write::runs`.

use super::side::{Side, Writing};
use crate::domain::{Rest, RunKey, SideWrites};
use crate::store::postgres::parts::Parts;
use crate::store::postgres::parts::columns::Columns;
use crate::store::postgres::rows::At;

pub(super) const SIDE: Side = Side { read: None, write: Some(write), guard: None };

/// Only a holder of the head writes these rows.
fn write<'a>(
    parts: &mut Parts<'a>,
    Writing { shard, .. }: &Writing<'_>,
    SideWrites { suspended: writes, .. }: &'a SideWrites,
) {
    let begun: Vec<(&RunKey, &Rest)> = writes.iter().filter_map(|(key, rest)| Some((key, rest.as_ref()?))).collect();
    let ended: Vec<&RunKey> = writes.iter().filter(|(_, rest)| rest.is_none()).map(|(key, _)| key).collect();
    if !begun.is_empty() {
        let mut columns = Columns::of_keys(begun.iter().map(|(key, _)| *key));
        columns.add("started_at", "timestamptz", begun.iter().map(|(_, rest)| At(rest.started_at)));
        columns.add("kind", "text", begun.iter().map(|(_, rest)| rest.kind.as_deref()));
        columns.add("ready", "bool", begun.iter().map(|(_, rest)| rest.ready));
        columns.add("keep_slot", "bool", begun.iter().map(|(_, rest)| rest.keep_slot));
        columns.add("priority", "smallint", begun.iter().map(|(_, rest)| rest.priority.get()));
        parts.table("at_rest", columns);
        parts.writes.push(format!(
            "rested as (
    insert into suspended (shard, namespace, run_id, started_at, kind, ready, keep_slot, priority)
    select {shard}, v.namespace, v.run_id, v.started_at, v.kind, v.ready, v.keep_slot, v.priority
    from place, at_rest v
    on conflict (shard, namespace, run_id)
    do update set kind = excluded.kind, ready = excluded.ready, keep_slot = excluded.keep_slot)"
        ));
    }
    if !ended.is_empty() {
        let rows = parts.table("taken", Columns::of_keys(ended.iter().copied()));
        parts.writes.push(format!(
            "resumed as (
    delete from suspended s
    using place, (select (select s.ctid from suspended s
                          where s.shard = {shard} and s.namespace = v.namespace and s.run_id = v.run_id) as at
                  from taken v offset 0) as e
    where s.ctid = e.at
    returning 1)"
        ));
        parts.count("resumed", &rows);
    }
}
