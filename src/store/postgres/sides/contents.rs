//! What stands beside runs, as a commit reads and writes it.

use tokio_postgres::Row;

use super::side::{Reading, Side, Writing, by_run};
use crate::domain::{ContentRow, ContentTable, SideWrites, Sides, Wanted};
use crate::store::StoreError;
use crate::store::postgres::parts::Parts;
use crate::store::postgres::rows::{Reader, bigint, shown};
use crate::store::rows::key;

pub(super) const SIDE: Side = Side {
    read: Some(Reading {
        lock: None,
        load: |wanted| (!wanted.contents.is_empty()).then(|| LOAD_LINKS.into()),
        keys: |wanted, sending| by_run(wanted.contents.iter(), sending),
        read,
    }),
    write: Some(write),
    guard: None,
};

/// The links of runs by their keys, read under the head: only its holder writes them.
const LOAD_LINKS: &str = "-- commit.load_links
select v.namespace, v.run_id, l.link_key
from unnest($2::text[], $3::text[]) as v (namespace, run_id)
cross join lateral (
    select link_key from run_links
    where shard = $1 and namespace = v.namespace and run_id = v.run_id and link_key is not null
    offset 0) as l";

/// The statement that looks for links, for a look at its plan.
#[must_use]
pub fn of_links() -> &'static str {
    LOAD_LINKS
}

/// The link of a row of [`LOAD_LINKS`].
fn read(row: &Row, _: &Wanted, sides: &mut Sides) -> Result<(), StoreError> {
    let key = key(row, "run_links", 0)?;
    let link: [u8; 32] = Reader { table: "run_links", row, key: &|| shown(&key) }.get("link_key")?;
    sides.contents.push((key, link.into()));
    Ok(())
}

/// Always arrays, and all tables at once, also where there are no rows for one: so there is one form of this part.
fn write<'a>(parts: &mut Parts<'a>, Writing { shard, .. }: &Writing<'_>, SideWrites { contents, .. }: &'a SideWrites) {
    let Some(rows) = contents else { return };
    let tables = parts.add("smallint[]", rows.iter().map(|row| row.table.code()).collect::<Vec<_>>());
    let namespaces = parts.add("text[]", rows.iter().map(|row| row.key.namespace.as_str()).collect::<Vec<_>>());
    let run_ids = parts.add("text[]", rows.iter().map(|row| row.key.run_id.as_str()).collect::<Vec<_>>());
    let revisions = parts.add("bigint[]", rows.iter().map(|row| bigint(row.revision)).collect::<Vec<_>>());
    let numbers = parts.add("bigint[]", rows.iter().map(|row| i64::from(row.number)).collect::<Vec<_>>());
    let link_key = |row: &'a ContentRow| row.link_key.as_ref().map(|key| key.as_bytes().as_slice());
    let link_keys = parts.add("bytea[]", rows.iter().map(link_key).collect::<Vec<_>>());
    let contents = parts.add("text[]", rows.iter().map(|row| row.content.as_str()).collect::<Vec<_>>());
    parts.tables.push(format!(
        "beside as materialized (
    select * from unnest({tables}, {namespaces}, {run_ids}, {revisions}, {numbers}, {link_keys}, {contents})
           as v (place, namespace, run_id, revision, number, link_key, content))"
    ));
    for table in ContentTable::ALL {
        let (more, of_v) = match table {
            ContentTable::Input | ContentTable::Result => ("", ""),
            ContentTable::Link => (", number, link_key", ", v.number, v.link_key"),
        };
        parts.writes.push(format!(
            "into_{name} as (
    insert into {name} (shard, namespace, run_id, revision, content{more})
    select {shard}, v.namespace, v.run_id, v.revision, v.content{of_v}
    from place, beside v where v.place = {code})",
            name = table.name(),
            code = table.code(),
        ));
    }
}
