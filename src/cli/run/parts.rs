//! What a run is made of, as the command line takes and shows it. A file for each concept, of the same name as in `domain`
//! and `wire`: its flags, how they are put into requests, the calls that are about it, and its rows. What is one flag and
//! one plain row has no file.

pub(super) mod archive;
pub(super) mod attachments;
pub(super) mod attempts;
pub(super) mod bindings;
pub(super) mod deadlines;
pub(super) mod ending;
pub(super) mod labels;
pub(super) mod lease;
pub(super) mod origin;
pub(super) mod position;
pub(super) mod redaction;
pub(super) mod rest;
mod row;

use std::collections::BTreeMap;

use self::row::Row;
use crate::cli::time::time;
use crate::cli::words::{amount, at, status};
use runledger_proto::fields::{Shown, shown};
use runledger_proto::{json, v1};

/// The rows of a run, in their order.
const ROWS: [&[Row]; 13] = [
    &[Row::said("run id", &[], |run| run.run_id.clone()), Row::said("status", &["outcome"], |run| status(run.status))],
    position::ROWS,
    &[Row::said("revision", &[], |run| run.revision.to_string()), Row::plain("task thread")],
    bindings::ROWS,
    origin::ROWS,
    attachments::ROWS,
    &[
        Row::plain("started at"),
        Row::plain("running at"),
        Row::plain("updated at"),
        Row::plain("completed at"),
        Row::plain("archived at"),
    ],
    ending::ROWS,
    attempts::ROWS,
    lease::ROWS,
    rest::ROWS,
    &[
        Row::plain("priority"),
        Row::said("progress", &[], |run| run.progress.as_ref().map(progress).unwrap_or_default()),
    ],
    deadlines::ROWS,
];
/// The rows that come last of all.
const LAST: [Row; 3] = [
    labels::ROW,
    Row::said("metadata", &[], |run| run.metadata.as_ref().map(json::object).unwrap_or_default()),
    Row::plain("namespace"),
];

/// All fields of a run that are set. Those that no row names come behind the others, as they are.
pub(super) fn rows(run: &v1::Run) -> Vec<Vec<String>> {
    let as_it_is = |(field, shown): (String, Shown)| {
        let text = match shown {
            Shown::Text(text) => text,
            Shown::At(timestamp) => at(Some(&timestamp)),
        };
        (name(&field), text)
    };
    let mut fields: BTreeMap<_, _> = shown(run).into_iter().map(as_it_is).collect();
    let mut rows = Vec::new();
    for row in ROWS.into_iter().flatten().chain(&LAST) {
        let plain = fields.remove(row.name);
        let text = row.text.map_or(plain, |text| Some(text(run))).unwrap_or_default();
        rows.push((row.name.to_owned(), text));
        for field in row.others {
            fields.remove(&name(field));
        }
    }
    let set = rows.into_iter().chain(fields).filter(|(_, text)| !text.is_empty());
    set.map(|(name, text)| vec![name, text]).collect()
}

/// Such as `parent run` for `parent_run_id`.
fn name(field: &str) -> String {
    let name = field.replace('_', " ");
    name.strip_suffix(" id").filter(|_| field != "run_id").map_or(name.clone(), str::to_owned)
}

/// Such as `3 of 10, fetching, at 2026-11-22T10:00:00.000000Z`.
fn progress(progress: &v1::Progress) -> String {
    let at = time(progress.at.as_ref()).map(|at| format!(", at {at}")).unwrap_or_default();
    format!("{}{at}", amount(progress))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_a_field_as_it_is_has_the_name_of_one() {
        let names: Vec<_> = runledger_proto::fields::names::<v1::Run>().iter().map(|field| name(field)).collect();
        for row in ROWS.into_iter().flatten().chain(&LAST) {
            assert!(row.text.is_some() || names.iter().any(|name| name == row.name), "{}", row.name);
            assert!(row.others.iter().all(|other| names.contains(&name(other))), "{}", row.name);
        }
    }

    #[test]
    fn a_run_is_shown_in_the_order_of_its_rows_without_what_is_not_set() {
        let run = v1::Run {
            run_id: "a".into(),
            started_at: Some(runledger_proto::Timestamp { seconds: 1, nanos: 0 }),
            parent_run_id: "b".into(),
            route: v1::Route::Mcp.into(),
            fallback_used: true,
            iteration: 2,
            status: v1::RunStatus::Running.into(),
            ..v1::Run::default()
        };
        let shown: Vec<_> = rows(&run).iter().map(|row| row.join("=")).collect();
        let wanted = [
            "run id=a",
            "status=running",
            "iteration=2",
            "revision=0",
            "route=mcp",
            "fallback used=yes",
            "parent run=b",
            "started at=1970-01-01T00:00:01.000000Z",
        ];
        assert_eq!(shown, wanted);
    }
}
