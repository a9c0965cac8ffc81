//! Each kind of statement, tried once when the store is opened: the server reads it, plans it and looks whether this
//! role may execute it, and executes nothing. So no lock is taken that a commit waits for, no row is read, and a
//! statement that can never succeed is known before the first call that needs it.

use std::fmt::Write as _;

use futures_util::future::try_join_all;
use tokio_postgres::error::DbError;
use tokio_postgres::{Client, Error};

use super::changes::of_a_namespace;
use super::commit::write::of_a_commit;
use super::grants::SERVING;
use super::namespaces::of_namespaces;
use super::query::{count as of_a_count, list as of_a_list, of_queues};
use super::read::of_held_runs;
use super::sessions::COMMIT_SETTINGS;
use super::sides::contents::of_links;
use super::sides::lifecycles::of_lifecycles;
use super::sides::max_running::of_max_running;
use super::upkeep::claims::of_claims;
use super::upkeep::leases::{of_leases, of_overdue};
use super::upkeep::{retention, stored_bytes};
use super::{commit, errors, lifecycles, namespaces, read, statistics};
use crate::domain::Decided;
use crate::store::finding::Fault;
use crate::store::query::{By, CountBy, Order, Reach};
use crate::store::{OpenError, StoreError};

const BEGIN: &str = "-- trial.begin
begin isolation level read committed";
const ROLLBACK: &str = "-- trial.rollback
rollback";

/// The statements of calls, and of those tasks that run by themselves.
fn statements(shard_count: u16) -> Vec<String> {
    let nothing = Decided::default();
    let mut all = of_a_commit(shard_count, &nothing);
    // One of each index and one of each table: the others differ in what a plan makes of them, and are planned alike.
    all.extend(By::ALL.map(|by| of_a_list(by, Order::NewestFirst, true, true, Reach::Short)));
    let counted = [By::Start, By::Active, By::Suspended];
    all.extend(counted.map(|by| of_a_count(by, false, true, CountBy::STATUS, Reach::Short)));
    all.extend([of_leases(), of_max_running(), of_claims(), of_namespaces()].concat());
    all.extend(of_queues().map(str::to_owned));
    all.extend([of_a_namespace(shard_count), of_overdue()]);
    all.extend([of_held_runs(), of_links(), of_lifecycles()].map(str::to_owned));
    let others: [&[&str]; 8] = [
        &commit::redact::TRIED,
        &commit::settle::TRIED,
        &lifecycles::TRIED,
        &namespaces::TRIED,
        &read::TRIED,
        &retention::TRIED,
        &statistics::TRIED,
        &stored_bytes::TRIED,
    ];
    all.extend(others.concat().into_iter().map(str::to_owned));
    all.extend(deletions());
    all
}

/// A deletion of no row of each table that servers delete from: what forbids one forbids it whatever it deletes.
fn deletions() -> impl Iterator<Item = String> {
    let deleted = SERVING.iter().filter(|(_, privileges)| privileges.contains(&"DELETE"));
    deleted.map(|(table, _)| format!("-- trial.delete\ndelete from {table} where false"))
}

/// A statement that is read and planned, under a name of its own, with nothing for each of its values.
fn planned(number: usize, statement: &str) -> String {
    let count = (1..100).rev().find(|n| statement.contains(&format!("${n}"))).unwrap_or(0);
    let mut values = String::new();
    if count > 0 {
        write!(values, "({})", vec!["null"; count].join(", ")).expect("a string takes all");
    }
    format!("prepare trial_{number} as {statement}; explain (costs off) execute trial_{number}{values}")
}

/// Tries every statement, on a session that is closed after it.
pub(super) async fn each(client: &Client, location: &str, shard_count: u16) -> Result<(), OpenError> {
    let tried = async {
        client.batch_execute(COMMIT_SETTINGS).await?;
        client.batch_execute(BEGIN).await?;
        let all = statements(shard_count);
        let texts: Vec<String> = all.iter().enumerate().map(|(number, text)| planned(number, text)).collect();
        // Sent one behind the other, without a wait between them.
        try_join_all(texts.iter().zip(&all).map(|(text, statement)| async move {
            client.batch_execute(text).await.map_err(|error| Failed { name: name(statement), error })
        }))
        .await
        .map_err(Failure::Of)?;
        client.batch_execute(ROLLBACK).await?;
        Ok::<_, Failure>(())
    };
    match tried.await {
        Ok(()) => Ok(()),
        Err(Failure::Session(error)) => Err(errors::opening(location, error)),
        Err(Failure::Of(Failed { name, error })) => {
            // No row is read, so the details show none; and they alone may say what is wrong.
            let detail = error.as_db_error().and_then(DbError::detail).map(|detail| format!(" ({})", sentence(detail)));
            match errors::statement(error) {
                StoreError::Refused(source) => Err(OpenError::Unfit {
                    location: location.to_owned(),
                    fault: Fault::Schema,
                    what: format!("the database refuses the statement {name}: {source}{}", detail.unwrap_or_default()),
                    todo: "mend what it names: no call that needs the statement would succeed".to_owned(),
                }),
                error @ (StoreError::Unavailable(_) | StoreError::Lost(_) | StoreError::Corrupt { .. }) => {
                    Err(errors::opening_with(location, error))
                }
            }
        }
    }
}

enum Failure {
    Session(Error),
    Of(Failed),
}

struct Failed {
    name: String,
    error: Error,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Session(error)
    }
}

/// A sentence of the server's as a part of another one.
fn sentence(said: &str) -> &str {
    said.trim_end_matches('.')
}

/// The name that a statement begins with.
fn name(statement: &str) -> String {
    statement.lines().next().unwrap_or_default().trim_start_matches("-- ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_has_a_name_and_is_tried_with_as_many_values_as_it_takes() {
        let all = statements(2);
        assert!(all.len() > 40, "{}", all.len());
        for (number, statement) in all.iter().enumerate() {
            assert!(statement.starts_with("-- "), "{statement}");
            let text = planned(number, statement);
            let nulls = text.rsplit_once("execute trial_").unwrap().1.matches("null").count();
            assert!(nulls == 0 || statement.contains(&format!("${nulls}")), "{text}");
            assert!(!statement.contains(&format!("${}", nulls + 1)), "{text}");
        }
    }

    /// Statements of the source that are not tried, by the beginnings of their names: they touch no table, or only what
    /// every opening has touched by then; or they are of tools beside the servers; or they are tried in another form.
    const NOT_TRIED: &[&str] = &[
        "announce.",
        "blocked.",
        "changes.",
        "commit.begin",
        "commit.commit",
        "commit.load_",
        "commit.lock_",
        "commit.rollback",
        "commit.{name}",
        "commit.ends",
        "diagnosis.",
        "elsewhere.",
        "fitness.",
        "inspect.",
        "leases.",
        "lineage.",
        "max_running.",
        "migrate.",
        "open.",
        "pooler.",
        "probe.",
        "query.",
        "read.held_runs",
        "read.runs",
        "redact.rewrite_links",
        "redact.{name}",
        "retention.",
        "safety.",
        "session.",
        "trial.",
        "uptime.",
    ];

    #[test]
    fn no_statement_of_the_source_is_left_out_unseen() {
        let tried: Vec<String> = statements(2).iter().map(|statement| name(statement)).collect();
        let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/postgres")];
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                for line in text.lines() {
                    let Some((_, begun)) = line.split_once("\"-- ") else { continue };
                    let name = begun.split(['\\', '"', ' ']).next().unwrap_or_default();
                    if name.contains('.') {
                        seen += 1;
                        let known = tried.iter().any(|tried| tried == name)
                            || NOT_TRIED.iter().any(|begins| name.starts_with(begins));
                        assert!(known, "{name} of {} is neither tried nor said to be left out", path.display());
                    }
                }
            }
        }
        assert!(seen > 90, "{seen} were seen");
    }
}
