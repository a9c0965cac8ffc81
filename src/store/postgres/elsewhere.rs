//! Ledgers of the same database in other schemas than the one that this role's statements reach. Of the catalogue
//! alone: no table is read, so a ledger that somebody holds, or that this role may not read, is found as well.

use tokio_postgres::{Client, Error, Row};

/// Schemas that have a table `ledger` beside its `ledger_migrations`. The one that statements reach is marked: it is
/// where the search path finds `ledger`, as far as the role may use the schemas on it.
const LEDGERS: &str = "-- elsewhere.ledgers
select n.nspname as schema, pg_catalog.pg_get_userbyid(c.relowner) as owner,
       c.oid is not distinct from pg_catalog.to_regclass('ledger')::oid as is_reached
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relname = 'ledger' and c.relkind in ('r', 'p')
  and exists (select from pg_catalog.pg_class m
              where m.relnamespace = c.relnamespace and m.relname = 'ledger_migrations' and m.relkind in ('r', 'p'))
order by not c.oid is not distinct from pg_catalog.to_regclass('ledger')::oid, n.nspname";

/// A ledger of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LedgerSchema {
    pub(super) schema: String,
    /// The role that owns its table `ledger`.
    pub(super) owner: String,
    /// Whether this session's statements reach it.
    pub(super) is_reached: bool,
}

/// All ledgers of the session's database, the one that its statements reach first.
pub(super) async fn ledgers(client: &Client) -> Result<Vec<LedgerSchema>, Error> {
    client.query(LEDGERS, &[]).await?.iter().map(ledger).collect()
}

fn ledger(row: &Row) -> Result<LedgerSchema, Error> {
    Ok(LedgerSchema {
        schema: row.try_get("schema")?,
        owner: row.try_get("owner")?,
        is_reached: row.try_get("is_reached")?,
    })
}
