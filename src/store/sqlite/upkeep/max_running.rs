//! The rows of `max_running` beside commits: forgotten where no run is left.
//!
//! There may be a row for each of very many values, and the store has one writer. So the rows are looked at on a
//! connection that reads, a page at a time, and the writer deletes those that were found.

use std::ops::ControlFlow;

use rusqlite::Connection;

use crate::domain::{LabelValue, Namespace, Time};
use crate::store::StoreError;
use crate::store::sqlite::rows::{Reader, Yielding, each, execute};
use crate::store::sqlite::{errors, writer};

/// The shortest time for which a value is kept whose runs have all ended, in milliseconds.
const KEEP_MS: i64 = 60_000;

/// Rows that are looked at at once, and so those that the writer deletes at once at most.
const PAGE_ROWS: usize = 256;

/// Whether the runs of a value have all ended, a while after the last one was counted. The nested form keeps SQLite from
/// walking `active` for each value.
macro_rules! is_over {
    () => {
        "m.changed_at < ?1 and not exists (
                 select 1 from json_each(m.runs) as h
                  where exists (select 1 from active as a
                                 where a.shard = h.value and a.namespace = m.namespace and a.run_id = h.key))"
    };
}

const PAGE: &str = concat!(
    "-- max_running.page
     select m.namespace, m.label, m.value, ",
    is_over!(),
    "
       from max_running as m
      where (m.namespace, m.label, m.value) > (?2, ?3, ?4)
      order by m.namespace, m.label, m.value limit ?5"
);

const FORGET: &str = concat!(
    "-- max_running.forget
     delete from max_running as m where m.namespace = ?2 and m.label = ?3 and m.value = ?4 and ",
    is_over!()
);

/// A page of the rows.
#[derive(Default)]
pub(in crate::store::sqlite) struct Page {
    /// The values whose runs have all ended.
    pub(in crate::store::sqlite) over: Vec<LabelValue>,
    /// The place to go on from; none at the end.
    pub(in crate::store::sqlite) next: Option<LabelValue>,
}

/// The rows after a value.
pub(in crate::store::sqlite) fn page(
    connection: &Connection,
    after: Option<&LabelValue>,
    now: Time,
) -> Result<Page, StoreError> {
    let place = after.map_or(("", "", ""), |after| (&*after.namespace, after.label.as_str(), after.value.as_str()));
    let rows_max = i64::try_from(PAGE_ROWS).unwrap_or(i64::MAX);
    let (mut page, mut rows, mut yielding) = (Page::default(), 0, Yielding::begin());
    let values = (until(now), place.0, place.1, place.2, rows_max);
    each(connection, PAGE, values, |row| {
        yielding.row();
        rows += 1;
        let row = Reader { table: "max_running", row, key: &|| "a value of a label".to_owned() };
        let namespace: Namespace = row.get((0, "namespace"))?;
        let value = LabelValue { namespace, label: row.get((1, "label"))?, value: row.get((2, "value"))? };
        if row.get((3, "is_over"))? {
            page.over.push(value.clone());
        }
        page.next = Some(value);
        Ok(ControlFlow::Continue(()))
    })?;
    page.next.take_if(|_| rows < PAGE_ROWS);
    Ok(page)
}

/// Forgets values, unless runs count towards them by now.
pub(in crate::store::sqlite) fn forget(
    connection: &mut Connection,
    values: &[LabelValue],
    now: Time,
) -> Result<(), StoreError> {
    let until = until(now);
    let transaction = writer::begin(connection)?;
    for LabelValue { namespace, label, value } in values {
        execute(&transaction, FORGET, (until, namespace.as_str(), label, value))?;
    }
    transaction.commit().map_err(errors::statement)
}

fn until(now: Time) -> i64 {
    now.micros() - KEEP_MS * 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock as _, SystemClock};
    use crate::store::migrations::SQLITE;
    use crate::store::sqlite::sides::max_running::{COUNT, RUNNING};

    fn filled(values: usize) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        for migration in SQLITE {
            connection.execute_batch(migration.sql).unwrap();
        }
        connection
            .execute(
                "with recursive n (i) as (select 1 union all select i + 1 from n where i < ?1)
                 insert into max_running
                 select 'default', 'label', printf('%06d', i), json_object('run-' || i, 0), 0 from n",
                [i64::try_from(values).unwrap()],
            )
            .unwrap();
        connection
            .execute_batch(
                "insert into active (shard, namespace, run_id, started_at, status)
                 values (0, 'default', 'run-7', 1, 2), (0, 'default', 'run-500', 1, 2)",
            )
            .unwrap();
        connection
    }

    #[test]
    fn all_values_without_a_run_are_forgotten_a_page_at_a_time() {
        let mut connection = filled(2 * PAGE_ROWS);
        let (mut after, mut pages) = (None, 0);
        loop {
            let Page { over, next } = page(&connection, after.as_ref(), SystemClock.now()).unwrap();
            forget(&mut connection, &over, SystemClock.now()).unwrap();
            pages += 1;
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(pages, 3, "two that are full, and one that finds the end");
        let kept = "select group_concat(value order by value) from max_running";
        assert_eq!(connection.query_row(kept, [], |row| row.get::<_, String>(0)).unwrap(), "000007,000500");
    }

    #[test]
    fn a_run_that_counts_is_found_by_its_key() {
        let connection = filled(1);
        for statement in [PAGE, FORGET, RUNNING, COUNT] {
            let mut plan = connection.prepare(&format!("explain query plan {statement}")).unwrap();
            let none = vec![rusqlite::types::Null; plan.parameter_count()];
            let steps = plan.query_map(rusqlite::params_from_iter(none), |row| row.get::<_, String>("detail")).unwrap();
            let plan: Vec<String> = steps.map(Result::unwrap).collect();
            let key = "USING PRIMARY KEY (shard=? AND namespace=? AND run_id=?)";
            assert!(plan.iter().any(|step| step.starts_with("SEARCH a ") && step.ends_with(key)), "{plan:?}");
        }
    }
}
