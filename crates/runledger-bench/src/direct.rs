//! The baseline: the same transitions, written to the same Postgres as a user without Runledger would write them.
//!
//! The baseline has one row a run and one row an event, with the checks that a careful user makes. The tables are in a
//! schema of their own, which is dropped and made again before the first round and dropped after the last.

mod callers;
pub mod pgbench;
mod sessions;
mod statements;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use runledger_postgres::{Connected, Connector};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use self::callers::SqlCaller;
use self::pgbench::Pgbench;
use self::sessions::Sessions;
use super::load::asked::Asked;
use super::load::phase::{Phase, Watched};
use super::load::tally::Sum;
use super::{BenchError, load::Workload};
use crate::dsn::Dsn;

/// Connections at most: more than this make a Postgres slower, so a user would pool them too.
const CONNECTIONS_MAX: usize = 64;

/// Time that a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Time that sessions may take to be gone once they were closed, and the interval between two looks.
const GONE_WAIT_MAX: Duration = Duration::from_secs(10);
const GONE_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The name of the sessions in `pg_stat_activity`.
const APPLICATION: &str = "runledger bench direct";

/// A way to write transitions without Runledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Baseline {
    /// A transaction with a statement for each step: five round trips a transition
    Chatty,
    /// One statement a transition, which checks, writes and commits by itself: one round trip
    OneStatement,
}

impl Baseline {
    fn name(self) -> &'static str {
        match self {
            Self::Chatty => "chatty",
            Self::OneStatement => "one-statement",
        }
    }

    fn of_pgbench(self) -> &'static str {
        match self {
            Self::Chatty => "pgbench-chatty",
            Self::OneStatement => "pgbench-one-statement",
        }
    }
}

/// The flags for the baselines to compare with.
#[derive(Args, Clone, Debug)]
pub struct Versus {
    /// Write the same transitions directly to Postgres as well, in rounds that alternate with Runledger's, and compare
    #[arg(
        long = "versus",
        id = "versus",
        value_name = "BASELINE",
        value_enum,
        value_delimiter = ',',
        help_heading = "Comparison"
    )]
    baselines: Vec<Baseline>,
    /// The Postgres that is written to directly, best the one that the servers use:
    /// postgres://USER:PASSWORD@HOST:PORT/DATABASE. The schema `runledger_bench` in it is dropped
    #[arg(
        long,
        env = "RUNLEDGER_BENCH_DATABASE",
        value_name = "DSN",
        hide_env_values = true,
        help_heading = "Comparison"
    )]
    database: Option<Dsn>,
    /// Let this pgbench of PostgreSQL 15 or later write the same as well, as a second opinion on this generator
    #[arg(long, value_name = "PATH", requires = "versus", conflicts_with = "rate", help_heading = "Comparison")]
    pgbench: Option<PathBuf>,
}

/// The writer of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Runledger,
    Direct(Baseline),
    Pgbench(Baseline),
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Runledger => "runledger",
            Self::Direct(baseline) => baseline.name(),
            Self::Pgbench(baseline) => baseline.of_pgbench(),
        }
    }
}

impl Versus {
    /// The writers of each round.
    pub(super) fn sides(&self) -> Vec<Side> {
        let with_pgbench = |side| self.pgbench.as_ref().map(|_path| side);
        let direct = self.baselines.iter().flat_map(|baseline| {
            [Some(Side::Direct(*baseline)), with_pgbench(Side::Pgbench(*baseline))].into_iter().flatten()
        });
        [Side::Runledger].into_iter().chain(direct).collect()
    }

    /// Connects and makes the tables; nothing, when there is nothing to compare with.
    pub(super) async fn prepare(&self, workload: Workload, asked: &Arc<Asked>) -> Result<Option<Direct>, BenchError> {
        let Some(connector) = self.connector(workload)? else { return Ok(None) };
        let mut drivers = JoinSet::new();
        let admin = connected(&connector, &mut drivers).await?;
        admin.batch_execute(statements::SCHEMA).await.map_err(failed("its schema cannot be made"))?;
        let metadata = asked.metadata_json();
        let runs: Arc<[String]> = (0..workload.runs().into()).map(|number| asked.run_id(number)).collect();
        for run_id in runs.iter().cloned().chain((1..=runs.len()).map(|number| format!("run-{number}"))) {
            let made = admin.execute(statements::PREPARED_RUN, &[&run_id, &metadata.as_deref()]).await;
            made.map_err(failed("a run cannot be written"))?;
        }
        let row = admin.query_one(statements::SETTINGS, &[]).await.map_err(failed("its settings cannot be read"))?;
        let durability: String = row.get(0);
        let pgbench =
            self.pgbench.clone().map(|path| Pgbench::new(path, workload, asked, runs.len(), connector.settings()));
        Ok(Some(Direct { connector, admin, drivers, workload, asked: asked.clone(), runs, pgbench, durability }))
    }

    /// Says what does not go together before anything is done.
    pub(super) fn check(&self, workload: Workload) -> Result<(), BenchError> {
        self.connector(workload).map(drop)
    }

    fn connector(&self, workload: Workload) -> Result<Option<Connector>, BenchError> {
        if self.baselines.is_empty() {
            return Ok(None);
        }
        match workload {
            Workload::Lifecycle | Workload::StartComplete | Workload::HotRun { .. } => {}
            Workload::Read { .. } | Workload::Wait => {
                let name = workload.name();
                return Err(BenchError::Senseless(format!(
                    "--versus: there is no baseline for {name}; lifecycle, start-complete and hot-run have one"
                )));
            }
        }
        let Some(database) = &self.database else {
            let wanted = "--versus: --database is to say which Postgres is written to directly".to_owned();
            return Err(BenchError::Senseless(wanted));
        };
        let settings = database.settings();
        let mut settings = settings.map_err(|why| BenchError::Senseless(format!("--database: {why}")))?;
        settings.config.application_name(APPLICATION);
        if settings.config.get_connect_timeout().is_none() {
            settings.config.connect_timeout(CONNECT_MAX);
        }
        Ok(Some(Connector::new(settings)))
    }
}

/// A Postgres that is written to directly.
#[derive(Debug)]
pub(super) struct Direct {
    connector: Connector,
    admin: Client,
    /// Drives `admin`.
    drivers: JoinSet<()>,
    workload: Workload,
    asked: Arc<Asked>,
    runs: Arc<[String]>,
    pgbench: Option<Pgbench>,
    /// The database's settings that decide whether a commit is durable.
    pub(super) durability: String,
}

impl Direct {
    /// Runs one phase, with connections of its own: while Runledger has its turn, there are none.
    pub(super) async fn phase(
        &self,
        baseline: Baseline,
        phase: &Phase,
        watched: Watched<'_>,
    ) -> Result<(Sum, Duration), BenchError> {
        let sessions = Sessions::open(&self.connector, phase.callers.min(CONNECTIONS_MAX), baseline).await?;
        let metadata = self.asked.metadata_json();
        let caller = |number| {
            let draws = self.asked.draws(number);
            SqlCaller::new(self.workload, metadata.clone(), draws, self.runs.clone(), sessions.lender())
        };
        let measured = phase.run(caller, watched).await?;
        sessions.close().await;
        self.others_gone().await?;
        Ok(measured)
    }

    /// Runs one phase of pgbench, and gives its transitions a second; none when it was stopped.
    pub(super) async fn pgbench(
        &self,
        baseline: Baseline,
        phase: &Phase,
        watched: Watched<'_>,
    ) -> Result<Option<f64>, BenchError> {
        let pgbench = self.pgbench.as_ref().expect("it has a side only when it is there");
        let told = pgbench.run(baseline, phase.callers.min(CONNECTIONS_MAX), phase, watched).await?;
        self.others_gone().await?;
        Ok(told)
    }

    /// Removes what was made.
    pub(super) async fn end(mut self) -> Result<(), BenchError> {
        self.admin.batch_execute(statements::DROP).await.map_err(failed("its schema cannot be dropped"))?;
        drop(self.admin);
        while self.drivers.join_next().await.is_some() {}
        Ok(())
    }

    /// Sessions end a while after they were closed. Until then they count among those that Postgres allows.
    async fn others_gone(&self) -> Result<(), BenchError> {
        let deadline = Instant::now() + GONE_WAIT_MAX;
        loop {
            let row = self.admin.query_one(statements::OTHERS, &[&APPLICATION]).await;
            let others: i64 = row.map_err(failed("its sessions cannot be counted"))?.get(0);
            if others == 0 || Instant::now() >= deadline {
                return Ok(());
            }
            sleep(GONE_LOOK_INTERVAL).await;
        }
    }
}

async fn connected(connector: &Connector, drivers: &mut JoinSet<()>) -> Result<Client, BenchError> {
    let connected = connector.connect().await;
    let connected = connected.map_err(|source| BenchError::DatabaseUnreachable { source: source.into() })?;
    let Connected { client, connection, .. } = connected;
    drivers.spawn(async move {
        // A caller that waits for an answer is told why there is none.
        let _ended = connection.await;
    });
    Ok(client)
}

fn failed(what: &'static str) -> impl Fn(tokio_postgres::Error) -> BenchError {
    move |source| BenchError::Database { what, source: source.into() }
}
