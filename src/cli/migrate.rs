//! `runledger migrate`.

use std::sync::Arc;

use anyhow::Context as _;

use super::ending::Stop;
use super::output::tell;
use crate::clock::SystemClock;
use crate::config::StoreConfig;
use crate::store;

pub(super) const HELP: &str = "Example:\n  \
    runledger migrate --store postgres://app:secret@db/runs\n\n\
    Exit codes: 0 when the schema is this release's; 1 when it could not be migrated, or the output \
    cannot be written; 2 usage.";

pub(super) async fn run(config: &StoreConfig) -> Result<(), Stop> {
    let location = config.location().map_err(Stop::Usage)?;
    let options = config.options(true, true);
    let migrated = store::open::migrate(&location, &options, Arc::new(SystemClock))
        .await
        .context("the migration did not come to its end")?;
    for name in &migrated.applied {
        tell(&format!("applied {name}\n"))?;
    }
    Ok(tell(&format!("{location} is at migration {}\n", migrated.at))?)
}
