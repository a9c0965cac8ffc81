//! Whether the database is one that the ledger's statements work in: its encoding, and every part of the schema as the
//! migrations made it, with nothing beside that changes or refuses what is written. Of the catalogue alone: no table is
//! read or locked. What is wrong is said at the opening, by name, and not by the first call that meets it.

use std::collections::BTreeMap;

use tokio_postgres::{Client, Row};

use super::errors;
use super::grants::SERVING;
use super::rows::Reader;
use crate::store::StoreError;
use crate::store::finding::{Fault, Finding};
use crate::store::fitness::{Dialect, Part, faults};
use crate::store::migrations::POSTGRES;

/// The only encoding in which every text of a run has a place, and every bound of a list.
const ENCODING: &str = "UTF8";

const DATABASE: &str = "-- fitness.database
select pg_catalog.current_setting('server_encoding') as encoding, pg_catalog.current_database()::text as name";

/// Every part of the schema, and what others have hung on it: its kind, table, name, and what it is.
pub const SCHEMA: &str = "-- fitness.schema
with ours as materialized (
    select c.* from unnest($1::text[]) as t (name) join pg_catalog.pg_class c on c.oid = pg_catalog.to_regclass(t.name))
select 'table' as kind, relname::text as \"table\", relname::text as name,
       case relkind when 'r' then 'table' else 'relation of kind ' || relkind::text end
       || case relpersistence when 'p' then '' when 'u' then ', unlogged' else ', temporary' end
       || case when relnamespace = (select relnamespace from ours where relname = 'ledger') then ''
               else ', in the schema ' || relnamespace::regnamespace::text end as detail
from ours
union all
select 'column', o.relname, a.attname,
       format_type(a.atttypid, a.atttypmod)
       || coalesce((select ' collate ' || collname from pg_catalog.pg_collation
                    where oid = a.attcollation and collname <> 'default'), '')
       || case when a.attnotnull then ', not null' else '' end || case when a.atthasdef then ', with a default' else '' end
       || case when a.attgenerated <> '' then ', generated' else '' end
from ours o join pg_catalog.pg_attribute a on a.attrelid = o.oid
where a.attnum > 0 and not a.attisdropped
union all
select 'index', o.relname, n.relname,
       case when x.indisunique then 'unique, ' else '' end || 'of ' || x.columns
       || case when x.indpred is not null then ', partial' else '' end
       || case when x.indisvalid and x.indisready and x.indislive then '' else ', not valid' end
from ours o
join pg_catalog.pg_index i on i.indrelid = o.oid
join pg_catalog.pg_class n on n.oid = i.indexrelid
cross join lateral (
    select i.*, (select string_agg(replace(pg_get_indexdef(i.indexrelid, n, true), '\"', '')
                                   || case when i.indoption[n - 1] & 1 = 1 then ' desc' else '' end, ', ' order by n)
                 from generate_series(1, i.indnkeyatts) as n) as columns) as x
union all
select 'constraint', o.relname, c.conname,
       case c.contype when 'p' then 'primary key' when 'u' then 'unique' when 'c' then 'check' when 'x' then 'exclude'
                      else 'foreign key' end
from ours o join pg_catalog.pg_constraint c on c.conrelid = o.oid
where c.contype in ('p', 'u', 'c', 'x', 'f')
union all
select 'reference', o.relname, c.conname, c.conrelid::regclass::text
from ours o join pg_catalog.pg_constraint c on c.confrelid = o.oid and c.contype = 'f'
union all
select 'trigger', o.relname, t.tgname, ''
from ours o join pg_catalog.pg_trigger t on t.tgrelid = o.oid
where not t.tgisinternal and t.tgenabled <> 'D'
union all
select 'rule', o.relname, r.rulename, ''
from ours o join pg_catalog.pg_rewrite r on r.ev_class = o.oid
where r.rulename <> '_RETURN' and r.ev_enabled <> 'D'
union all
select 'row security', o.relname, o.relname, ''
from ours o where pg_catalog.row_security_active(o.oid)
union all
select 'child', o.relname, i.inhrelid::regclass::text, ''
from ours o join pg_catalog.pg_inherits i on i.inhparent = o.oid and o.relkind <> 'I'
union all
select 'publication', o.relname, p.pubname, ''
from ours o
join pg_catalog.pg_namespace s on s.oid = o.relnamespace
join pg_catalog.pg_publication_tables t on t.schemaname = s.nspname and t.tablename = o.relname
join pg_catalog.pg_publication p on p.pubname = t.pubname and (p.pubupdate or p.pubdelete)
left join pg_catalog.pg_publication_rel r on r.prpubid = p.oid and r.prrelid = o.oid
cross join lateral (
    select array_agg(k) as columns from pg_catalog.pg_index i, unnest(i.indkey::int2[]) as k
    where i.indrelid = o.oid and i.indisvalid
      and case o.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident end) as identity
where o.relreplident <> 'f'
  and (identity.columns is null or not identity.columns <@ r.prattrs::int2[]
       or r.prqual is not null and exists (
           select from pg_catalog.pg_depend d
           where d.classid = 'pg_catalog.pg_publication_rel'::regclass and d.objid = r.oid
             and d.refobjid = o.oid and d.refobjsubid > 0 and d.refobjsubid <> all (identity.columns)
           -- A column of the list stands there once, one of the filter once, and one of both twice.
           group by d.refobjsubid
           having count(*) > 1 or coalesce(d.refobjsubid <> all (r.prattrs::int2[]), true)))
order by 1, 2, 3";

/// What the statement [`SCHEMA`] finds in a database that this release's migrations have made; a test holds it against one.
pub const MADE: &str = include_str!("../../../migrations/postgres/schema.txt");

/// The faults of the database itself, for which no ledger can be made in it.
pub(super) async fn of_database(client: &Client) -> Result<Option<Finding>, StoreError> {
    let row = client.query_one(DATABASE, &[]).await.map_err(errors::statement)?;
    let database = Reader { table: "pg_database", row: &row, key: &String::new };
    let (encoding, name): (String, String) = (database.get("encoding")?, database.get("name")?);
    Ok((encoding != ENCODING).then(|| Finding {
        name: Fault::Encoding,
        what: format!("the database {name} is in the encoding {encoding}, and a ledger needs {ENCODING}"),
        todo: format!(
            "make a database in it (createdb -E {ENCODING} -T template0 NAME), and put a dump of this one there if it \
             has a ledger"
        ),
    }))
}

const IS_THERE: &str = "-- fitness.is_there
select pg_catalog.to_regclass('ledger_migrations') is not null";

const AT: &str = "-- fitness.at
select max(number)::bigint from ledger_migrations";

/// The faults of the schema, where it is at this release's last migration. Nothing is said of a later one, nor of one
/// that is to be migrated.
pub(super) async fn of_schema(client: &Client) -> Result<Vec<Finding>, StoreError> {
    let is_there: bool =
        client.query_one(IS_THERE, &[]).await.and_then(|row| row.try_get(0)).map_err(errors::statement)?;
    if !is_there {
        return Ok(Vec::new());
    }
    let at: Option<i64> = client.query_one(AT, &[]).await.and_then(|row| row.try_get(0)).map_err(errors::statement)?;
    if at != POSTGRES.last().map(|step| i64::from(step.number)) {
        return Ok(Vec::new());
    }
    let tables: Vec<&str> = SERVING.iter().map(|(table, _)| *table).collect();
    let rows = client.query(SCHEMA, &[&tables]).await.map_err(errors::statement)?;
    let found = rows.iter().map(part).collect::<Result<BTreeMap<_, _>, _>>()?;
    Ok(faults(&made(), &found, Dialect::Postgres))
}

fn part(row: &Row) -> Result<(Part, String), StoreError> {
    let part = Reader { table: "pg_class", row, key: &String::new };
    Ok(((part.get("kind")?, part.get("table")?, part.get("name")?), part.get("detail")?))
}

fn made() -> BTreeMap<Part, String> {
    let part = |line: &str| {
        let mut words = line.split('\t').map(str::to_owned);
        let mut next = || words.next().unwrap_or_default();
        ((next(), next(), next()), next())
    };
    MADE.lines().map(part).collect()
}
