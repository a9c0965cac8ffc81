//! What the database's role must be allowed to do with the ledger's tables. It is asked at the start, so that a grant that
//! is missing is named then and not by the first call that needs it.

use std::collections::BTreeMap;

use tokio_postgres::Client;

use super::errors;
use crate::store::OpenError;

/// A table that a later release makes is not there yet.
const MISSING: &str = "-- open.grants
select quote_ident(current_user) as role, n.privilege, string_agg(n.table, ', ' order by n.number) as tables
from unnest($1::text[], $2::text[]) with ordinality as n (\"table\", privilege, number)
where to_regclass(n.table) is not null and not has_table_privilege(to_regclass(n.table), n.privilege)
group by n.privilege
order by min(n.number)";

/// A table, and privileges on it.
type Needs = &'static [(&'static str, &'static [&'static str])];

/// Of who reads past the servers.
pub(super) const READING: Needs = &[
    ("ledger", &["SELECT"]),
    ("ledger_migrations", &["SELECT"]),
    ("shards", &["SELECT"]),
    ("runs", &["SELECT"]),
    ("run_events", &["SELECT"]),
    ("active", &["SELECT"]),
    ("leases", &["SELECT"]),
    ("uptime", &["SELECT"]),
    ("max_running", &["SELECT"]),
    ("suspended", &["SELECT"]),
    ("claims", &["SELECT"]),
];

/// Of a server. UPDATE is also what a row is locked by.
pub(super) const SERVING: Needs = &[
    ("ledger", &["SELECT", "UPDATE"]),
    ("ledger_migrations", &["SELECT"]),
    ("shards", &["SELECT", "UPDATE"]),
    ("runs", &["SELECT", "INSERT", "UPDATE"]),
    ("run_events", &["SELECT", "INSERT"]),
    ("active", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("leases", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("uptime", &["SELECT", "UPDATE"]),
    ("max_running", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("suspended", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("claims", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
];

/// Whether the session's role may do all of it.
pub(super) async fn check(client: &Client, location: &str, needs: Needs) -> Result<(), OpenError> {
    let opening = |error| errors::opening(location, error);
    let pairs =
        needs.iter().flat_map(|(table, privileges)| privileges.iter().map(move |privilege| (*table, *privilege)));
    let (tables, privileges): (Vec<_>, Vec<_>) = pairs.unzip();
    let rows = client.query(MISSING, &[&tables, &privileges]).await.map_err(opening)?;
    let mut missing = BTreeMap::<String, Vec<String>>::new();
    let mut role = String::new();
    for row in rows {
        role = row.try_get("role").map_err(opening)?;
        let tables = row.try_get("tables").map_err(opening)?;
        missing.entry(tables).or_default().push(row.try_get("privilege").map_err(opening)?);
    }
    if missing.is_empty() {
        return Ok(());
    }
    let grants =
        missing.iter().map(|(tables, privileges)| format!("GRANT {} ON {tables} TO {role}", privileges.join(", ")));
    let source = format!("the role {role} lacks privileges: {}", grants.collect::<Vec<_>>().join("; "));
    Err(OpenError::Failed { location: location.to_owned(), source: source.into() })
}
