//! `runledger migrate`.

use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;

use super::exit::Stop;
use super::output::tell;
use crate::clock::SystemClock;
use crate::config::StoreConfig;
use crate::store;
use crate::store::migrations::MIN_RELEASE;
use crate::store::open::Location;
use crate::store::plan::{Plan, noticed};

pub(super) const HELP: &str = "Examples:\n  \
    runledger migrate --store postgres://app:secret@db/runs\n  \
    runledger migrate --dry-run --store postgres://app:secret@db/runs   what would it do?\n\n\
    Exit codes: 0 when the schema is this release's, or was looked at (--dry-run, whether or not anything is to be \
    done); 1 when it could not be migrated or looked at, or the output cannot be written; 2 usage.";

#[derive(Args, Debug)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    store: StoreConfig,

    /// Change nothing, and tell which migrations would be applied and which binaries would be refused from then on.
    /// Servers may serve meanwhile, and a role that only reads will do
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(args: &MigrateArgs) -> Result<(), Stop> {
    let location = args.store.location().map_err(Stop::Usage)?;
    let options = args.store.options(true, true);
    if args.dry_run {
        let plan = store::open::plan(&location, &options).await.context("the database could not be looked at")?;
        return Ok(tell(&told(&plan, &location))?);
    }
    let migrated = store::open::migrate(&location, &options, Arc::new(SystemClock))
        .await
        .context("the migration did not come to its end")?;
    if migrated.is_new {
        tell(&format!("{location} had no ledger: a new one was made\n"))?;
    }
    for name in &migrated.applied {
        tell(&format!("applied {name}\n"))?;
    }
    Ok(tell(&format!("{location} is at migration {}\n", migrated.at))?)
}

/// The lines about a plan.
fn told(plan: &Plan, location: &Location) -> String {
    let Some(min_release) = &plan.min_release else {
        let last = plan.steps.last().map_or(0, |step| step.number);
        return format!(
            "{location} has no ledger\nwould make one at migration {last}, for Runledger {MIN_RELEASE} or later\n"
        );
    };
    let is_shared = matches!(location, Location::Postgres(_));
    let mut lines = vec![format!("{location} is at migration {}, for Runledger {min_release} or later", plan.at)];
    for step in plan.steps {
        let noticed = noticed(step).filter(|_| is_shared).map(|what| format!(": {what}")).unwrap_or_default();
        lines.push(format!("would apply {} {}{noticed}", step.number, step.name));
    }
    lines.push(match plan.raises_to() {
        Some(raised) => {
            let meanwhile = if is_shared { "; those that serve now stop writing" } else { "" };
            format!(
                "would raise min_release from {min_release} to {raised}: binaries older than {raised} are refused from \
                 then on{meanwhile}"
            )
        }
        None if plan.steps.is_empty() => "nothing to apply".to_owned(),
        None => format!("would leave min_release at {min_release}: binaries that work on it now go on working"),
    });
    lines.join("\n") + "\n"
}
