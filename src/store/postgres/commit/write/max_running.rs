//! The part of a commit that writes the runs that count towards the claims' limits.

use std::collections::BTreeMap;

use tokio_postgres::types::Json;

use super::columns::Columns;
use super::parts::Parts;
use crate::domain::{LabelValue, RunId};
use crate::store::postgres::sides::max_running::IS_ACTIVE;

impl<'a> Parts<'a> {
    /// Adds runs to the rows of their values, and drops runs that have ended. The rows are updated where they are,
    /// since this transaction holds them.
    pub(super) fn write_max_running(&mut self, shard: i16, counted: &'a [(LabelValue, Vec<RunId>)]) {
        if counted.is_empty() {
            return;
        }
        let values = || counted.iter().map(|(value, _)| value);
        let runs = |run_ids: &'a [RunId]| {
            Json(run_ids.iter().map(|run_id| (run_id.as_str(), shard)).collect::<BTreeMap<&str, i16>>())
        };
        let mut columns = Columns::of(counted.len());
        columns.add("namespace", "text", values().map(|value| value.namespace.as_str()));
        columns.add("label", "text", values().map(|value| value.label.as_str()));
        columns.add("value", "text", values().map(|value| value.value.as_str()));
        columns.add("runs", "jsonb", counted.iter().map(|(_, run_ids)| runs(run_ids)));
        let rows = self.table("claimed", columns);
        self.writes.push(format!(
            "counted as (
    update max_running m
    set changed_at = place.now,
        runs = e.runs || coalesce((select jsonb_object_agg(h.key, h.value) from jsonb_each(m.runs) as h
                                   where {IS_ACTIVE}), '{{}}')
    from place, (select v.runs, (select m.ctid from max_running m
                                 where m.namespace = v.namespace and m.label = v.label and m.value = v.value) as at
                 from claimed v offset 0) as e
    where m.ctid = e.at
    returning 1)"
        ));
        self.count("counted", &rows);
    }
}
