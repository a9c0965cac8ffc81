//! The runs that count towards the claims' limits on values of labels.
//!
//! Runs of one value live in any shard, so the value's own row is their mutex. The row is taken after the head, and
//! several in the order of their keys; a holder of one waits for nothing that comes before it, so no two commits wait
//! for each other. The runs that count are read in a later statement than the one that waited, as with the head; and
//! the clock after that, so that no claim is earlier than the end of the run that made room for it.

use std::collections::BTreeMap;

use tokio_postgres::Row;
use tokio_postgres::types::Json;

use super::side::{Reading, Sending, Side, Writing, by_run};
use crate::domain::{LabelValue, RunId, SideWrites, Sides, Status, Wanted};
use crate::store::StoreError;
use crate::store::postgres::parts::Parts;
use crate::store::postgres::parts::columns::{Argument, Columns};
use crate::store::postgres::read::rows;
use crate::store::postgres::rows::Reader;
use crate::store::postgres::sessions::Sessions;

macro_rules! is_active {
    () => {
        "exists (select from active a
                     where a.shard = h.value::smallint and a.namespace = m.namespace and a.run_id = h.key offset 0)"
    };
}

/// Whether a run of `m.runs` has not ended: the run counts, or will again when it is claimed.
pub(in crate::store::postgres) const IS_ACTIVE: &str = is_active!();

/// Whether a run of `m.runs` counts.
const COUNTS: &str = concat!(
    "(",
    is_active!(),
    "
             and not exists (select from suspended s
                             where s.shard = h.value::smallint and s.namespace = m.namespace and s.run_id = h.key
                               and not s.keep_slot offset 0))"
);

/// The values of the labels that claims limit, of runs that are pending or at rest.
fn asked() -> String {
    let waiting = Status::ALL.into_iter().filter(|status| status.awaits_claim());
    let waiting = waiting.map(|status| status.code().to_string()).collect::<Vec<_>>().join(", ");
    format!(
        "(
    select distinct v.namespace, v.label,
           (select r.labels ->> v.label from runs r
            where r.shard = $1 and r.namespace = v.namespace and r.run_id = v.run_id
              and (r.status in ({waiting})
                   or exists (select from suspended s
                              where s.shard = $1 and s.namespace = v.namespace and s.run_id = v.run_id offset 0)))
               as value
    from unnest($2::text[], $3::text[], $4::text[]) as v (namespace, run_id, label)
    offset 0) as asked
where value is not null"
    )
}

pub(super) const SIDE: Side = Side {
    read: Some(Reading {
        lock: Some(|| lock().into()),
        load: |wanted| (!wanted.max_running.is_empty()).then(|| load().into()),
        keys,
        read,
    }),
    write: Some(write),
    guard: None,
};

fn keys<'a>(wanted: &'a Wanted, sending: &Sending<'_>) -> Vec<Argument<'a>> {
    let mut keys = by_run(wanted.max_running.iter().map(|(key, _)| key), sending);
    keys.push(Box::new(wanted.max_running.iter().map(|(_, label)| label.as_str()).collect::<Vec<_>>()));
    keys
}

/// Takes the rows of the values, and makes those that are not there. The labels of a run that waits for a claim never
/// change, and under the head it is no other run.
fn lock() -> String {
    format!(
        "-- commit.lock_max_running
insert into max_running (namespace, label, value, runs, changed_at)
select namespace, label, value, '{{}}', clock_timestamp() + (select steady_ahead from uptime where singleton)
from {}
order by namespace collate \"C\", label collate \"C\", value collate \"C\"
on conflict (namespace, label, value) do update set changed_at = excluded.changed_at where false",
        asked()
    )
}

/// The runs that count, for each value.
fn load() -> String {
    format!(
        "-- commit.load_max_running
select m.namespace, m.label, m.value, array(select h.key from jsonb_each(m.runs) as h where {COUNTS}) as runs
from (select * from {}) as v
cross join lateral (
    select * from max_running
    where namespace = v.namespace and label = v.label and value = v.value offset 0) as m",
        asked()
    )
}

/// Reads a row of [`load`].
fn read(row: &Row, _: &Wanted, sides: &mut Sides) -> Result<(), StoreError> {
    let limit = Reader { table: "max_running", row, key: &|| "a value of a label".to_owned() };
    let value =
        LabelValue { namespace: limit.get("namespace")?, label: limit.get("label")?, value: limit.get("value")? };
    let runs: Vec<&str> = row.try_get("runs").map_err(|error| limit.corrupt("runs", error))?;
    sides.max_running.push((value, runs.into_iter().map(RunId::from).collect()));
    Ok(())
}

/// The statements that look for what counts, for a look at their plans.
#[must_use]
pub fn of_max_running() -> Vec<String> {
    vec![lock(), load(), counting()]
}

fn counting() -> String {
    format!(
        "-- max_running.running
select v.number, h.key
from unnest($1::text[], $2::text[], $3::text[]) with ordinality as v (namespace, label, value, number)
cross join lateral (
    select * from max_running
    where namespace = v.namespace and label = v.label and value = v.value offset 0) as m
cross join lateral jsonb_each(m.runs) as h
where {COUNTS}
order by v.number, h.key collate \"C\""
    )
}

pub(in crate::store::postgres) async fn running(
    sessions: &Sessions,
    values: &[LabelValue],
) -> Result<Vec<Vec<RunId>>, StoreError> {
    let namespaces: Vec<&str> = values.iter().map(|value| value.namespace.as_str()).collect();
    let labels: Vec<&str> = values.iter().map(|value| value.label.as_str()).collect();
    let texts: Vec<&str> = values.iter().map(|value| value.value.as_str()).collect();
    let statement = counting();
    let mut running: Vec<Vec<RunId>> = vec![Vec::new(); values.len()];
    for row in &rows(sessions, &statement, &[&namespaces, &labels, &texts]).await? {
        let limit = Reader { table: "max_running", row, key: &|| "a value of a label".to_owned() };
        let number: u64 = limit.get("number")?;
        if let Some(runs) = number.checked_sub(1).and_then(|index| running.get_mut(usize::try_from(index).ok()?)) {
            runs.push(limit.get("key")?);
        }
    }
    Ok(running)
}

/// Adds runs to the rows of their values, and drops runs that have ended. The rows are updated where they are,
/// since this transaction holds them.
fn write<'a>(
    parts: &mut Parts<'a>,
    &Writing { home, steady, .. }: &Writing<'_>,
    SideWrites { max_running: counted, .. }: &'a SideWrites,
) {
    if counted.is_empty() {
        return;
    }
    let values = || counted.iter().map(|(value, _)| value);
    let runs = |run_ids: &'a [RunId]| {
        Json(run_ids.iter().map(|run_id| (run_id.as_str(), home)).collect::<BTreeMap<&str, i16>>())
    };
    let mut columns = Columns::of(counted.len());
    columns.add("namespace", "text", values().map(|value| value.namespace.as_str()));
    columns.add("label", "text", values().map(|value| value.label.as_str()));
    columns.add("value", "text", values().map(|value| value.value.as_str()));
    columns.add("runs", "jsonb", counted.iter().map(|(_, run_ids)| runs(run_ids)));
    let rows = parts.table("claimed", columns);
    let now = parts.steady_now(steady);
    parts.writes.push(format!(
        "counted as (
    update max_running m
    set changed_at = {now},
        runs = e.runs || coalesce((select jsonb_object_agg(h.key, h.value) from jsonb_each(m.runs) as h
                                   where {IS_ACTIVE}), '{{}}')
    from place, (select v.runs, (select m.ctid from max_running m
                                 where m.namespace = v.namespace and m.label = v.label and m.value = v.value) as at
                 from claimed v offset 0) as e
    where m.ctid = e.at
    returning 1)"
    ));
    parts.count("counted", &rows);
}
