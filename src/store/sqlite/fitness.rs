//! Whether the file is one that the ledger's statements work in: its encoding, and every part of the schema as the
//! migrations make it, with nothing beside that changes or refuses what is written.

use std::collections::BTreeMap;

use rusqlite::Connection;

use crate::store::finding::{Fault, Finding};
use crate::store::fitness::{Dialect, Part, faults};
use crate::store::migrations::SQLITE;

/// The parts of the tables of the ledger. Others' tables, and views, are their maker's own.
const TABLES: &str = "-- fitness.tables
select name, name, type || case when strict then ', strict' else '' end || case when wr then ', without rowid' else '' end
from pragma_table_list where schema = 'main' and type <> 'view' and name not like 'sqlite\\_%' escape '\\'";

const COLUMNS: &str = "-- fitness.columns
select c.name, lower(c.type) || case when c.\"notnull\" then ', not null' else '' end
       || case when c.dflt_value is null then '' else ', with a default' end
       || case when c.hidden > 1 then ', generated' else '' end
from pragma_table_xinfo(?1) as c";

const INDEXES: &str = "-- fitness.indexes
select i.name, case when i.\"unique\" then 'unique, ' else '' end || 'of '
       || (select group_concat(coalesce(x.name, 'an expression') || case when x.\"desc\" then ' desc' else '' end
                               || case when x.coll = 'BINARY' then '' else ' collate ' || x.coll end, ', ')
           from pragma_index_xinfo(i.name) as x where x.key)
       || case when i.partial then ', partial' else '' end
from pragma_index_list(?1) as i";

const TRIGGERS: &str = "-- fitness.triggers
select name, '' from sqlite_schema where type = 'trigger' and lower(tbl_name) = lower(?1)";

/// The faults of a file that is at this release's last migration.
pub(super) fn of_schema(connection: &Connection) -> rusqlite::Result<Vec<Finding>> {
    let made = Connection::open_in_memory()?;
    SQLITE.iter().try_for_each(|step| made.execute_batch(step.sql))?;
    let tables = tables(&made)?;
    let made = parts(&made, &tables)?;
    Ok(faults(&made, &parts(connection, &tables)?, Dialect::Sqlite))
}

/// The fault of a file whose texts are not in UTF-8: they compare otherwise, so that lists and pages leave runs out.
pub(super) fn of_file(connection: &Connection) -> rusqlite::Result<Option<Finding>> {
    let encoding: String = connection.query_row("-- fitness.encoding\npragma encoding", [], |row| row.get(0))?;
    Ok((encoding != "UTF-8").then(|| Finding {
        name: Fault::Encoding,
        what: format!("the file is in the encoding {encoding}, and a ledger needs UTF-8"),
        todo: "make a file in it from this one (sqlite3 OLD .dump | sqlite3 NEW), while no server runs".to_owned(),
    }))
}

fn tables(connection: &Connection) -> rusqlite::Result<Vec<(String, String, String)>> {
    let mut statement = connection.prepare(TABLES)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

fn parts(connection: &Connection, of: &[(String, String, String)]) -> rusqlite::Result<BTreeMap<Part, String>> {
    let is_ours = |name: &str| of.iter().any(|(ours, ..)| ours == name);
    let mut parts = BTreeMap::new();
    for (table, _, detail) in tables(connection)?.into_iter().filter(|(table, ..)| is_ours(table)) {
        for (kind, list) in [("column", COLUMNS), ("index", INDEXES), ("trigger", TRIGGERS)] {
            let mut statement = connection.prepare_cached(list)?;
            let rows = statement.query_map([&table], |row| Ok((row.get(0)?, row.get(1)?)))?;
            for row in rows {
                let (name, detail): (String, String) = row?;
                parts.insert((kind.to_owned(), table.clone(), name), detail);
            }
        }
        parts.insert(("table".to_owned(), table.clone(), table), detail);
    }
    Ok(parts)
}
