//! Whether a schema is the one that the migrations made, with nothing beside that changes or refuses what is written.
//! Pure: each store lists the parts that it finds, and those that it made.

use std::collections::{BTreeMap, BTreeSet};

use super::OpenError;
use super::finding::{Fault, Finding};

/// A part of a schema: its kind, its table and its name.
pub(super) type Part = (String, String, String);

/// The dialect in which remedies are said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Postgres,
    Sqlite,
}

/// Refuses a store with a fault.
pub(super) fn refuse(location: &str, faults: impl IntoIterator<Item = Finding>) -> Result<(), OpenError> {
    let mut faults = faults.into_iter();
    let Some(Finding { name: fault, what, todo }) = faults.next() else { return Ok(()) };
    let more = faults.count();
    let what = if more > 0 { format!("{what} (and {more} more, which `runledger doctor` names)") } else { what };
    Err(OpenError::Unfit { location: location.to_owned(), fault, what, todo })
}

/// How a schema differs from the one that was made, in so far as statements may fail of it, or write other things than
/// they say.
pub(super) fn faults(made: &BTreeMap<Part, String>, found: &BTreeMap<Part, String>, dialect: Dialect) -> Vec<Finding> {
    let missing_tables: BTreeSet<&str> = made
        .keys()
        .filter(|part| part.0 == "table" && !found.contains_key(*part))
        .map(|(_, table, _)| table.as_str())
        .collect();
    let lacks = made.iter().filter_map(|(part, wanted)| match found.get(part) {
        Some(detail) if detail == wanted => None,
        Some(detail) => Some(other(part, wanted, detail)),
        // A table that is gone is said once.
        None if part.0 != "table" && missing_tables.contains(part.1.as_str()) => None,
        None => Some(missing(part, wanted)),
    });
    let added = found.iter().filter(|(part, _)| !made.contains_key(*part));
    lacks.chain(added.filter_map(|(part, detail)| beside(part, detail, dialect))).collect()
}

const MAKE_IT_AGAIN: &str = "make it again as the migrations of this release do, or put a backup back that has it";

fn missing((kind, table, name): &Part, wanted: &str) -> Finding {
    let what = match kind.as_str() {
        "table" => format!("the table {name} is missing"),
        _ => format!("the {kind} {name} of the table {table} ({wanted}) is missing"),
    };
    Finding { name: Fault::Schema, what, todo: MAKE_IT_AGAIN.to_owned() }
}

fn other((kind, table, name): &Part, wanted: &str, detail: &str) -> Finding {
    let (what, todo) = match kind.as_str() {
        "table" if detail == "table, unlogged" => (
            format!("the table {name} is unlogged, so that a crash of the server empties it"),
            format!("alter table {name} set logged"),
        ),
        "table" => (format!("{name} is a {detail}, and not a {wanted}"), MAKE_IT_AGAIN.to_owned()),
        "index" if detail.ends_with(", not valid") => {
            (format!("the index {name} of the table {table} is not valid"), format!("reindex index {name}"))
        }
        _ => {
            (format!("the {kind} {name} of the table {table} is {detail}, and not {wanted}"), MAKE_IT_AGAIN.to_owned())
        }
    };
    Finding { name: Fault::Schema, what, todo }
}

/// What somebody else made, where statements may fail of it, or do other things than they say. A column that may be
/// left out, and an index that refuses nothing, are their maker's own.
fn beside((kind, table, name): &Part, detail: &str, dialect: Dialect) -> Option<Finding> {
    let (what, todo) = match kind.as_str() {
        "column" if detail.contains("not null") && !detail.contains("with a default") => (
            format!("the table {table} has a column {name} that is none of its own, and may not be left out"),
            match dialect {
                Dialect::Postgres => format!("alter table {table} alter column \"{name}\" drop not null"),
                Dialect::Sqlite => format!("alter table {table} drop column \"{name}\""),
            },
        ),
        "index" if detail.starts_with("unique, ") => (
            format!("the table {table} has a unique index {name} that is none of its own, and refuses rows"),
            format!("drop index {name}"),
        ),
        "constraint" => (
            format!("the table {table} has a constraint {name} ({detail}) that is none of its own, and refuses rows"),
            format!("alter table {table} drop constraint \"{name}\""),
        ),
        "reference" => (
            format!("the table {detail} has a foreign key {name} to {table}, which keeps rows from being deleted"),
            format!("alter table {detail} drop constraint \"{name}\""),
        ),
        "trigger" => (
            format!("the table {table} has a trigger {name}, which may change or refuse what is written"),
            match dialect {
                Dialect::Postgres => format!("drop trigger \"{name}\" on {table}"),
                Dialect::Sqlite => format!("drop trigger \"{name}\""),
            },
        ),
        "rule" => (
            format!("the table {table} has a rule {name}, which makes other statements of those that are sent"),
            format!("drop rule \"{name}\" on {table}"),
        ),
        "row security" => (
            format!("the table {table} has row security, which hides rows from this role"),
            format!("alter table {table} disable row level security, or give the role BYPASSRLS"),
        ),
        "child" => (
            format!("the table {name} inherits from {table}, so that its rows are taken for the ledger's"),
            format!("alter table {name} no inherit {table}"),
        ),
        "publication" => (
            format!(
                "the publication {name} has the table {table} without what tells its rows apart, so that every update and \
                 deletion there is refused"
            ),
            format!("alter table {table} replica identity default, without a list of columns or a filter in {name}"),
        ),
        _ => return None,
    };
    Some(Finding { name: Fault::Schema, what, todo })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: &str, table: &str, name: &str) -> Part {
        (kind.to_owned(), table.to_owned(), name.to_owned())
    }

    fn made() -> BTreeMap<Part, String> {
        let column = |name| (part("column", "runs", name), "text, not null".to_owned());
        BTreeMap::from([
            (part("table", "runs", "runs"), "table".to_owned()),
            column("run_id"),
            column("namespace"),
            (part("index", "runs", "runs_pkey"), "unique, of namespace, run_id".to_owned()),
        ])
    }

    fn found(mut change: impl FnMut(&mut BTreeMap<Part, String>)) -> Vec<String> {
        let made = made();
        let mut found = made.clone();
        change(&mut found);
        faults(&made, &found, Dialect::Postgres).into_iter().map(|fault| fault.what).collect()
    }

    #[test]
    fn every_part_that_is_missing_or_different_is_a_fault_by_its_name() {
        assert_eq!(found(|_| {}), Vec::<String>::new());
        for each in made().keys() {
            let gone = found(|found| {
                found.remove(each);
            });
            assert_eq!(gone.len(), 1, "{each:?}: {gone:?}");
            assert!(gone[0].contains(&each.2) && gone[0].ends_with("is missing"), "{gone:?}");
            let other = found(|found| {
                found.insert(each.clone(), "something else".to_owned());
            });
            assert_eq!(other.len(), 1, "{each:?}: {other:?}");
        }
    }

    #[test]
    fn a_table_that_is_gone_is_said_once() {
        let gone = found(|found| found.retain(|part, _| part.1 != "runs"));
        assert_eq!(gone, ["the table runs is missing"]);
    }

    #[test]
    fn what_somebody_made_beside_is_a_fault_only_where_statements_may_fail_of_it() {
        for (kind, detail, is_fault) in [
            ("column", "text", false),
            ("column", "text, not null, with a default", false),
            ("column", "text, not null", true),
            ("index", "of started_at", false),
            ("index", "unique, of started_at", true),
            ("constraint", "check", true),
            ("reference", "orders", true),
            ("trigger", "", true),
            ("rule", "", true),
            ("row security", "", true),
            ("child", "", true),
            ("publication", "", true),
        ] {
            let seen = found(|found| {
                found.insert(part(kind, "runs", "theirs"), detail.to_owned());
            });
            assert_eq!(!seen.is_empty(), is_fault, "{kind}: {detail}: {seen:?}");
        }
    }
}
