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
        statuses: _,
        labels: _,
        started_from: _,
        started_before: _,
        archived: _,
        or_ready: _,
    } = filter;
    let links = [task_thread_id, agent_id, workflow_id, audit_session_id].map(Option::as_deref);
    let [task_thread_id, agent_id, workflow_id, audit_session_id] = links;
    let [parent, continued] = [parent_run_id, continues_run_id].map(Option::as_deref);
    [task_thread_id, agent_id, workflow_id, audit_session_id, route.map(Route::name), parent, continued]
}

/// The wanted value of one text.
pub(super) fn text<'a>(filter: &'a Filter, column: &str) -> Option<&'a str> {
    TEXTS.iter().position(|text| *text == column).and_then(|place| texts(filter)[place])
}

/// The parameter that one text is compared with.
pub(in crate::store) fn parameter(column: &str) -> String {
    let place = TEXTS.iter().position(|text| *text == column).expect("each link is a text");
    format!("${}", place + 7)
}

/// The condition that a run matches, for Postgres; the columns that the index covers are not tested again.
pub(in crate::store) fn sql(by: By) -> String {
    let texts = TEXTS.iter().filter(|column| by.column() != Some(column));
    let texts = texts.map(|column| {
        let parameter = parameter(column);
        format!("({parameter}::text is null or {column} = {parameter})")
    });
    let conditions: Vec<String> =
        [STATUS.to_owned()].into_iter().chain(texts).chain([LABELS.to_owned(), ARCHIVED.to_owned()]).collect();
    format!("({}) is true", conditions.join("\n                and "))
}

/// Whether a run matches, from a row that begins with `status` and [`TESTED`].
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
    if filter.labels.is_empty() {
        return Ok(true);
    }
    let Some(labels) = run.get::<Option<&str>>((1 + TEXTS.len(), "labels"))? else { return Ok(false) };
    let found: BTreeMap<String, String> = serde_json::from_str(labels).map_err(|error| run.corrupt("labels", error))?;
    Ok(filter.labels.iter().all(|(key, value)| found.get(key) == Some(value)))
}
