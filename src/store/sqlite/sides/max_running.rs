//! The runs that count towards the claims' limits on values of labels. The one writer is their mutex.

use std::collections::BTreeSet;

use rusqlite::Connection;

use super::side::{Loading, Side};
use crate::domain::{LabelValue, RunId, RunKey, SideWrites, Sides, Time};
use crate::store::StoreError;
use crate::store::sqlite::rows::{Reader, all, execute};
use crate::store::sqlite::writer::Writer;

pub(in crate::store::sqlite) const RUNNING: &str = "-- max_running.running
         select h.key from max_running as m, json_each(m.runs) as h
          where m.namespace = ?1 and m.label = ?2 and m.value = ?3
            and exists (select 1 from active as a
                         where a.shard = h.value and a.namespace = m.namespace and a.run_id = h.key)
            and not exists (select 1 from suspended as s
                             where s.shard = h.value and s.namespace = m.namespace and s.run_id = h.key
                               and not s.keep_slot)
          order by h.key";

pub(in crate::store::sqlite) const COUNT: &str = "-- commit.count_running
         insert into max_running (namespace, label, value, runs, changed_at) values (?1, ?2, ?3, ?4, ?5)
         on conflict (namespace, label, value) do update set
                changed_at = excluded.changed_at,
                runs = json_patch(excluded.runs, (
                    select json_group_object(h.key, h.value) from json_each(max_running.runs) as h
                     where exists (select 1 from active as a
                                    where a.shard = h.value and a.namespace = max_running.namespace
                                      and a.run_id = h.key)))";

/// The runs that count.
pub(in crate::store::sqlite) fn running(connection: &Connection, value: &LabelValue) -> Result<Vec<RunId>, StoreError> {
    all(connection, RUNNING, (&value.namespace.as_str(), &value.label, &value.value), |row| {
        Reader { table: "max_running", row, key: &|| "a value of a label".to_owned() }.get((0, "runs"))
    })
}

pub(super) const SIDE: Side = Side { load: Some(load), write: Some(write) };

fn load(Loading { transaction, wanted, runs, .. }: &Loading<'_>, sides: &mut Sides) -> Result<(), StoreError> {
    let value_of = |(key, label): &(RunKey, String)| LabelValue::new(runs.iter().find(|run| run.key() == *key)?, label);
    for value in wanted.max_running.iter().filter_map(value_of).collect::<BTreeSet<LabelValue>>() {
        let counted = running(transaction, &value)?;
        sides.max_running.push((value, counted));
    }
    Ok(())
}

fn write(writer: &Writer<'_>, sides: &SideWrites, now: Time) -> Result<(), StoreError> {
    sides.max_running.iter().try_for_each(|(value, run_ids)| count(writer, value, run_ids, now))
}

/// Adds a shard's runs to a value, and drops runs that have ended.
fn count(writer: &Writer<'_>, value: &LabelValue, run_ids: &[RunId], now: Time) -> Result<(), StoreError> {
    let Writer { transaction, shard } = writer;
    let runs: serde_json::Map<String, serde_json::Value> =
        run_ids.iter().map(|run_id| (run_id.to_string(), shard.0.into())).collect();
    let runs = serde_json::Value::Object(runs).to_string();
    execute(transaction, COUNT, (&value.namespace.as_str(), &value.label, &value.value, runs, now.micros())).map(drop)
}
