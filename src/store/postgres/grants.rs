//! The privileges that the database's role must have on the ledger's tables. A check at the start names a missing
//! grant, before the first call that needs it fails.

use std::collections::BTreeMap;

use tokio_postgres::Client;

use super::errors;
use crate::store::OpenError;
use crate::store::finding::Fault;

/// A table that a later release makes is not there yet. Grants on columns suffice: an operator who gives them knows
/// which.
const MISSING: &str = "-- open.grants
select quote_ident(current_user) as role, n.privilege, string_agg(n.table, ', ' order by n.number) as tables
from unnest($1::text[], $2::text[]) with ordinality as n (\"table\", privilege, number)
where to_regclass(n.table) is not null
  and not case n.privilege when 'DELETE' then has_table_privilege(to_regclass(n.table), n.privilege)
                           else has_any_column_privilege(to_regclass(n.table), n.privilege) end
group by n.privilege
order by min(n.number)";

/// A ledger that the role cannot see, in a schema of its search path: without this check, another would be made
/// beside it.
const HIDDEN: &str = "-- open.hidden_schema
select quote_ident(n.nspname) as schema, quote_ident(current_user) as role
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relname = 'ledger_migrations' and to_regclass('ledger_migrations') is null
  and n.nspname in (select replace(trim(part, ' \"'), '$user', current_user)
                    from unnest(string_to_array(current_setting('search_path'), ',')) as part)
  and not has_schema_privilege(n.oid, 'USAGE')
limit 1";

/// A table, and privileges on it.
type Needs = &'static [(&'static str, &'static [&'static str])];

/// The privileges of a tool that reads past the servers.
pub(super) const READING: Needs = &[
    ("ledger", &["SELECT"]),
    ("ledger_migrations", &["SELECT"]),
    ("shards", &["SELECT"]),
    ("runs", &["SELECT"]),
    ("run_events", &["SELECT"]),
    ("active", &["SELECT"]),
    ("leases", &["SELECT"]),
    ("suspended", &["SELECT"]),
    ("namespaces", &["SELECT"]),
    ("lifecycles", &["SELECT"]),
    ("purged", &["SELECT"]),
    ("run_input", &["SELECT"]),
    ("run_results", &["SELECT"]),
    ("run_links", &["SELECT"]),
];

/// The privileges of a server. UPDATE is also needed to lock a row.
pub(super) const SERVING: Needs = &[
    ("ledger", &["SELECT", "UPDATE"]),
    ("ledger_migrations", &["SELECT"]),
    ("shards", &["SELECT", "UPDATE"]),
    ("runs", &["SELECT", "INSERT", "UPDATE"]),
    ("run_events", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("run_input", &["SELECT", "INSERT", "DELETE"]),
    ("run_results", &["SELECT", "INSERT", "DELETE"]),
    ("run_links", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("active", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("leases", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("uptime", &["SELECT", "UPDATE"]),
    ("max_running", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("suspended", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("claims", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("namespaces", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("lifecycles", &["SELECT", "INSERT", "DELETE"]),
    ("stored_bytes", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("purged", &["SELECT", "INSERT", "UPDATE"]),
    ("exported", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("retention_walks", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
];

/// Whether the session's role has all of these privileges.
pub(super) async fn check(client: &Client, location: &str, needs: Needs) -> Result<(), OpenError> {
    let opening = |error| errors::opening(location, error);
    let refused = |what: String, todo: String| OpenError::Unfit {
        location: location.to_owned(),
        fault: Fault::Privileges,
        what,
        todo,
    };
    if let Some(row) = client.query_opt(HIDDEN, &[]).await.map_err(opening)? {
        let (schema, role): (&str, &str) =
            (row.try_get("schema").map_err(opening)?, row.try_get("role").map_err(opening)?);
        let lacks = format!("the role {role} lacks privileges");
        return Err(refused(lacks, format!("GRANT USAGE ON SCHEMA {schema} TO {role}")));
    }
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
    Err(refused(format!("the role {role} lacks privileges"), grants.collect::<Vec<_>>().join("; ")))
}
