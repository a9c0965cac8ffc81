//! `runledger migrate`.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;

use super::ending::{ended, usage};
use crate::clock::SystemClock;
use crate::config::StoreConfig;
use crate::store;
use crate::store::open::Location;

pub(super) const HELP: &str = "Example:\n  \
    runledger migrate --store postgres://app:secret@db/runs\n\n\
    Exit codes: 0 when the schema is this release's; 1 when it could not be migrated; 2 usage.";

pub(super) async fn run(config: &StoreConfig) -> ExitCode {
    match config.location() {
        Ok(location) => ended(migrate(config, &location).await),
        Err(sentence) => usage(&sentence),
    }
}

async fn migrate(config: &StoreConfig, location: &Location) -> anyhow::Result<()> {
    let options = config.options(true, true);
    let migrated = store::open::migrate(location, &options, Arc::new(SystemClock))
        .await
        .with_context(|| format!("{location} was not migrated"))?;
    for name in &migrated.applied {
        println!("applied {name}");
    }
    println!("{location} is at migration {}", migrated.at);
    Ok(())
}
