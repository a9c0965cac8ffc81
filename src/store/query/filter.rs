//! The conditions of a filter beside the place, by the columns of `runs`: for both databases.
//!
//! The index of a walk does not cover all of them. Postgres tests the others inside the statement, with the conditions
//! of [`sql`], and SQLite's walk tests them on each row with [`matches`]. Both must agree with [`Filter::matches`].

use std::collections::BTreeMap;

use super::By;
use crate::domain::{Filter, Route, Status, Time};
use crate::store::StoreError;
use crate::store::rows::{Columns, Reader};

/// The columns that are texts. On Postgres, they are the parameters from `$7` on.
const TEXTS: [&str; 7] =
    ["task_thread_id", "agent_id", "workflow_id", "audit_session_id", "route", "parent_run_id", "continues_run_id"];

/// All columns that are tested, beside `status`.
pub(in crate::store) const TESTED: &str = "task_thread_id, agent_id, workflow_id, audit_session_id, route, parent_run_id, continues_run_id, labels, archived_at";

/// On Postgres, the conditions on the columns that are no texts.
pub(in crate::store) const STATUS: &str = "($6::smallint[] is null or status = any($6))";
/// The condition on labels, in a select of its own, so that the text is parsed once and not for each run.
const LABELS: &str = "($14::text is null or labels @> (select $14::text::jsonb))";

/// The condition on archiving.
const ARCHIVED: &str = "($15::boolean is null or (archived_at is not null) = $15)";

/// Where a run stands within its status: on Postgres, the columns of its record that a filter may test, and the
/// conditions on them. No other statement reads them.
pub(in crate::store) const STANDS: &str =
    "record->'refinements'->>'phase' as phase, split_part(record->'refinements'->>'lifecycle', '@', 1) as lifecycle,
                record->'refinements'->'suspension'->>'kind' as suspension_kind,
                record->'supervision'->'ready' is not null as is_ready,
                coalesce((record->'refinements'->>'priority')::smallint, 0) as priority";
const STANDING: [&str; 6] = [
    "($16::text is null or phase = $16)",
    "($17::text is null or lifecycle = $17)",
    "($18::text is null or suspension_kind = $18)",
    "($19::boolean is null or (suspension_kind is not null) = $19)",
    "($20::boolean is null or is_ready = $20)",
    "($21::smallint is null or priority = $21)",
];

/// Whether a filter tests where a run stands.
pub(in crate::store) fn is_of_standing(filter: &Filter) -> bool {
    filter.phase.is_some() || filter.lifecycle.is_some() || is_of_rest(filter) || is_of_priority(filter)
}

/// Whether the priority is tested on the run: of the active runs that have none, their row says it.
fn is_of_priority(filter: &Filter) -> bool {
    filter.priority.is_some() && By::new(filter) != By::Unprioritised
}

/// Whether a filter tests what a run waits for.
fn is_of_rest(filter: &Filter) -> bool {
    filter.suspended.is_some() || filter.ready.is_some() || filter.suspension_kind.is_some()
}

/// The wanted values of the texts, in their order.
pub(in crate::store) fn texts(filter: &Filter) -> [Option<&str>; TEXTS.len()] {
    // Every field is named, so that a new one stops the build.
    let Filter {
        task_thread_id,
        agent_id,
        workflow_id,
        audit_session_id,
        route,
        parent_run_id,
        continues_run_id,
        phase: _,
        lifecycle: _,
        statuses: _,
        labels: _,
        started_from: _,
        started_before: _,
        archived: _,
        suspended: _,
        ready: _,
        suspension_kind: _,
        priority: _,
        or: _,
    } = filter;
    let links = [task_thread_id, agent_id, workflow_id, audit_session_id].map(Option::as_deref);
    let [task_thread_id, agent_id, workflow_id, audit_session_id] = links;
    let [parent, continued] = [parent_run_id, continues_run_id].map(Option::as_deref);
    [task_thread_id, agent_id, workflow_id, audit_session_id, route.map(Route::name), parent, continued]
}

/// The parameter that the priority of an index is compared with.
pub(in crate::store) const PRIORITY: &str = "$21";

/// The wanted value of one text.
pub(super) fn text<'a>(filter: &'a Filter, column: &str) -> Option<&'a str> {
    TEXTS.iter().position(|text| *text == column).and_then(|place| texts(filter)[place])
}

/// The parameter that the column of an index is compared with.
pub(in crate::store) fn parameter(column: &str) -> String {
    if column == "priority" {
        return PRIORITY.to_owned();
    }
    let place = TEXTS.iter().position(|text| *text == column).expect("each link is a text");
    format!("${}", place + 7)
}

/// The condition that a run matches, for Postgres; the columns that the index covers are not tested again.
pub(in crate::store) fn sql(by: By, stands: bool) -> String {
    let texts = TEXTS.iter().filter(|column| by.column() != Some(column));
    let texts = texts.map(|column| {
        let parameter = parameter(column);
        format!("({parameter}::text is null or {column} = {parameter})")
    });
    let conditions: Vec<String> = [STATUS.to_owned()]
        .into_iter()
        .chain(texts)
        .chain([LABELS.to_owned(), ARCHIVED.to_owned()])
        .chain(STANDING.iter().filter(|_| stands).map(|condition| (*condition).to_owned()))
        .chain((by == By::Unprioritised).then(|| "queued_priority is null".to_owned()))
        .collect();
    format!("({}) is true", conditions.join("\n                and "))
}

/// Whether a run matches, from a row that begins with `status` and [`TESTED`], then its phase, its lifecycle, the kind of
/// its suspension, and whether it is ready, which are null where the filter tests none of them.
pub(in crate::store) fn matches<R: Columns>(run: &Reader<'_, '_, R>, filter: &Filter) -> Result<bool, StoreError> {
    if !filter.statuses.is_empty() && !filter.statuses.contains(&run.get::<Status>((0, "status"))?) {
        return Ok(false);
    }
    for (place, (column, wanted)) in (1..).zip(TEXTS.into_iter().zip(texts(filter))) {
        if wanted.is_some() && run.get::<Option<&str>>((place, column))? != wanted {
            return Ok(false);
        }
    }
    if let Some(archived) = filter.archived
        && run.get::<Option<Time>>((2 + TEXTS.len(), "archived_at"))?.is_some() != archived
    {
        return Ok(false);
    }
    let standing = [("phase", &filter.phase), ("lifecycle", &filter.lifecycle)];
    for (place, (column, wanted)) in (3 + TEXTS.len()..).zip(standing) {
        if let Some(wanted) = wanted {
            let found = run.get::<Option<&str>>((place, column))?;
            let name = found.map(|found| found.split_once('@').map_or(found, |(name, _)| name));
            if name != Some(wanted.as_str()) {
                return Ok(false);
            }
        }
    }
    if is_of_rest(filter) {
        let kind = run.get::<Option<&str>>((5 + TEXTS.len(), "suspension_kind"))?;
        let is_ready = run.get::<Option<bool>>((6 + TEXTS.len(), "is_ready"))?.unwrap_or_default();
        let is_kind = filter.suspension_kind.is_none() || filter.suspension_kind.as_deref() == kind;
        if !is_kind
            || filter.suspended.is_some_and(|suspended| suspended != kind.is_some())
            || filter.ready.is_some_and(|ready| ready != is_ready)
        {
            return Ok(false);
        }
    }
    if is_of_priority(filter) {
        let found = run.get::<Option<i16>>((7 + TEXTS.len(), "priority"))?.unwrap_or_default();
        if filter.priority.is_some_and(|priority| priority.get() != found) {
            return Ok(false);
        }
    }
    if filter.labels.is_empty() {
        return Ok(true);
    }
    let Some(labels) = run.get::<Option<&str>>((1 + TEXTS.len(), "labels"))? else { return Ok(false) };
    let found: BTreeMap<String, String> = serde_json::from_str(labels).map_err(|error| run.corrupt("labels", error))?;
    Ok(filter.labels.iter().all(|(key, value)| found.get(key) == Some(value)))
}
