//! The schema that every ledger is held against when it is opened.

use std::collections::BTreeSet;

use runledger::store::postgres::{SCHEMA_FOUND, SCHEMA_MADE};

use super::open;
use crate::support::postgres::{Database, direct};

/// A migration that changes the schema changes the list of its parts: what this prints is what it is to be.
#[tokio::test]
async fn the_list_of_the_parts_of_the_schema_is_what_the_migrations_make() {
    let database = Database::fresh().await;
    open(&database.dsn()).await;
    let client = direct(&database.dsn()).await;
    let tables = "select tablename::text from pg_tables where schemaname = 'public' order by 1";
    let tables: Vec<String> = client.query(tables, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let rows = client.query(SCHEMA_FOUND, &[&tables]).await.unwrap();
    let found: BTreeSet<String> = rows
        .iter()
        .map(|row| ["kind", "table", "name", "detail"].map(|column| row.get::<_, String>(column)).join("\t"))
        .collect();
    let made: BTreeSet<String> = SCHEMA_MADE.lines().map(str::to_owned).collect();
    let text: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, made, "migrations/postgres/schema.txt is to be:\n{}", text.join("\n"));
}
