//! What stands beside runs, as a commit reads and writes it.

use tokio_postgres::Row;

use crate::domain::{ContentRow, ContentTable, Hash, RunKey};
use crate::store::StoreError;
use crate::store::postgres::parts::Parts;
use crate::store::postgres::rows::{Reader, bigint, shown};
use crate::store::rows::key;

/// The links of runs by their keys, read under the head: only its holder writes them.
pub(in crate::store::postgres) const LOAD_LINKS: &str = "-- commit.load_links
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
pub(in crate::store::postgres) fn link(row: &Row) -> Result<(RunKey, Hash), StoreError> {
    let key = key(row, "run_links", 0)?;
    let link: [u8; 32] = Reader { table: "run_links", row, key: &|| shown(&key) }.get("link_key")?;
    Ok((key, link.into()))
}

impl<'a> Parts<'a> {
    /// Always arrays, and all tables at once, also where there are no rows for one: so there is one form of this part.
    pub(in crate::store::postgres) fn write_contents(&mut self, shard: &str, rows: &'a [ContentRow]) {
        let tables = self.add("smallint[]", rows.iter().map(|row| row.table.code()).collect::<Vec<_>>());
        let namespaces = self.add("text[]", rows.iter().map(|row| row.key.namespace.as_str()).collect::<Vec<_>>());
        let run_ids = self.add("text[]", rows.iter().map(|row| row.key.run_id.as_str()).collect::<Vec<_>>());
        let revisions = self.add("bigint[]", rows.iter().map(|row| bigint(row.revision)).collect::<Vec<_>>());
        let numbers = self.add("bigint[]", rows.iter().map(|row| i64::from(row.number)).collect::<Vec<_>>());
        let link_key = |row: &'a ContentRow| row.link_key.as_ref().map(|key| key.as_bytes().as_slice());
        let link_keys = self.add("bytea[]", rows.iter().map(link_key).collect::<Vec<_>>());
        let contents = self.add("text[]", rows.iter().map(|row| row.content.as_str()).collect::<Vec<_>>());
        self.tables.push(format!(
            "beside as materialized (
    select * from unnest({tables}, {namespaces}, {run_ids}, {revisions}, {numbers}, {link_keys}, {contents})
           as v (place, namespace, run_id, revision, number, link_key, content))"
        ));
        for table in ContentTable::ALL {
            let (more, of_v) = match table {
                ContentTable::Input | ContentTable::Result => ("", ""),
                ContentTable::Link => (", number, link_key", ", v.number, v.link_key"),
            };
            self.writes.push(format!(
                "into_{name} as (
    insert into {name} (shard, namespace, run_id, revision, content{more})
    select {shard}, v.namespace, v.run_id, v.revision, v.content{of_v}
    from place, beside v where v.place = {code})",
                name = table.name(),
                code = table.code(),
            ));
        }
    }
}
