//! The part of a commit that writes the rows of runs that are ready.

use crate::domain::{RunKey, Time};
use crate::store::postgres::parts::Parts;
use crate::store::postgres::parts::columns::Columns;
use crate::store::postgres::rows::At;

impl<'a> Parts<'a> {
    /// Only a holder of the head writes these rows.
    pub(in crate::store::postgres) fn write_ready(&mut self, shard: &str, writes: &'a [(RunKey, Option<Time>)]) {
        let ready: Vec<(&RunKey, Time)> = writes.iter().filter_map(|(key, at)| Some((key, (*at)?))).collect();
        let taken: Vec<&RunKey> = writes.iter().filter(|(_, at)| at.is_none()).map(|(key, _)| key).collect();
        if !ready.is_empty() {
            let mut columns = Columns::of_keys(ready.iter().map(|(key, _)| *key));
            columns.add("started_at", "timestamptz", ready.iter().map(|(_, started_at)| At(*started_at)));
            self.table("given_back", columns);
            self.writes.push(format!(
                "rested as (
    insert into suspended (shard, namespace, run_id, started_at, ready)
    select {shard}, v.namespace, v.run_id, v.started_at, true
    from place, given_back v)"
            ));
        }
        if !taken.is_empty() {
            let rows = self.table("taken", Columns::of_keys(taken.iter().copied()));
            self.writes.push(format!(
                "resumed as (
    delete from suspended s
    using place, (select (select s.ctid from suspended s
                          where s.shard = {shard} and s.namespace = v.namespace and s.run_id = v.run_id) as at
                  from taken v offset 0) as e
    where s.ctid = e.at
    returning 1)"
            ));
            self.count("resumed", &rows);
        }
    }
}
