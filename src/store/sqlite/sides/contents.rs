//! What stands beside runs, as a commit reads and writes it.

use std::ops::ControlFlow;

use rusqlite::{Connection, params};

use super::side::{Loading, Side};
use crate::domain::{ContentRow, ContentTable, Hash, RunKey, Shard, SideWrites, Sides, Time};
use crate::store::StoreError;
use crate::store::sqlite::rows::{Reader, bigint, each, shown};
use crate::store::sqlite::writer::Writer;

const LOAD_LINKS: &str = "-- commit.load_links
select link_key from run_links
 where shard = ?1 and namespace = ?2 and run_id = ?3 and link_key is not null";

pub(super) const SIDE: Side = Side { load: Some(load), write: Some(write) };

fn load(Loading { transaction, shard, wanted, .. }: &Loading<'_>, sides: &mut Sides) -> Result<(), StoreError> {
    wanted.contents.iter().try_for_each(|key| load_links(transaction, *shard, key, &mut sides.contents))
}

fn write(writer: &Writer<'_>, sides: &SideWrites, _: Time) -> Result<(), StoreError> {
    sides.contents.iter().flatten().try_for_each(|row| insert(writer, row))
}

/// The links of a run by their keys.
fn load_links(
    connection: &Connection,
    shard: Shard,
    key: &RunKey,
    links: &mut Vec<(RunKey, Hash)>,
) -> Result<(), StoreError> {
    each(connection, LOAD_LINKS, (shard.0, &key.namespace.as_str(), &key.run_id.as_str()), |row| {
        let of_link = Reader { table: "run_links", row, key: &|| shown(key) };
        let link: [u8; 32] = of_link.get((0, "link_key"))?;
        links.push((key.clone(), link.into()));
        Ok(ControlFlow::Continue(()))
    })
}

fn insert(writer: &Writer<'_>, row: &ContentRow) -> Result<(), StoreError> {
    let ContentRow { table, key, revision, number, link_key, content } = row;
    let (shard, revision) = (writer.shard.0, bigint(*revision));
    match table {
        ContentTable::Input | ContentTable::Result => writer.one_row(
            table.name(),
            key,
            &format!(
                "-- commit.insert_content
                 insert into {} (shard, namespace, run_id, revision, content) values (?1, ?2, ?3, ?4, ?5)",
                table.name()
            ),
            params![shard, key.namespace.as_str(), key.run_id.as_str(), revision, content],
        ),
        ContentTable::Link => writer.one_row(
            table.name(),
            key,
            "-- commit.insert_link
             insert into run_links (shard, namespace, run_id, number, revision, link_key, content)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                shard,
                key.namespace.as_str(),
                key.run_id.as_str(),
                number,
                revision,
                link_key.as_ref().map(Hash::as_bytes),
                content
            ],
        ),
    }
}
