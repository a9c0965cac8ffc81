//! The baseline as pgbench writes it: tells whether this generator is slower than Postgres' own.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{fs, io};

use runledger_postgres::{Identity, Roots, Settings};
use tokio::process::Command;
use tokio_postgres::config::Host;

use super::{APPLICATION, Baseline};
use crate::BenchError;
use crate::load::Workload;
use crate::load::asked::Asked;
use crate::load::phase::{Phase, Watched};

/// Threads that the connections are shared out to.
const THREADS: &str = "2";

/// A pgbench.
#[derive(Debug)]
pub(super) struct Pgbench {
    path: PathBuf,
    workload: Workload,
    /// Metadata as a literal of SQL.
    metadata: String,
    runs: usize,
    /// The variables that name the database. In the environment, other users do not see a password.
    environment: Vec<(&'static str, String)>,
}

impl Pgbench {
    pub(super) fn new(path: PathBuf, workload: Workload, asked: &Asked, runs: usize, settings: &Settings) -> Self {
        // No character in it must be escaped.
        let metadata = asked.metadata_json().map_or_else(|| "null".to_owned(), |metadata| format!("'{metadata}'"));
        Self { path, workload, metadata, runs, environment: environment(settings) }
    }

    /// Transitions a second; none when it was stopped before its end.
    pub(super) async fn run(
        &self,
        baseline: Baseline,
        connections: usize,
        phase: &Phase,
        watched: Watched<'_>,
    ) -> Result<Option<f64>, BenchError> {
        let script = Script::write(&self.script(baseline))?;
        let warm_up = phase.warm_up.as_secs();
        if warm_up > 0 {
            watched.progress.say(&format!("{}: warming up", watched.name));
            if self.once(&script, connections, phase.warm_up, watched).await?.is_none() {
                return Ok(None);
            }
        }
        watched.progress.say(&format!("{}: {} s", watched.name, phase.time.as_secs()));
        let told = self.once(&script, connections, phase.time, watched).await?;
        Ok(told.map(|scripts| scripts * self.transitions()))
    }

    /// Scripts a second.
    async fn once(
        &self,
        Script(script): &Script,
        connections: usize,
        time: Duration,
        watched: Watched<'_>,
    ) -> Result<Option<f64>, BenchError> {
        let mut command = Command::new(&self.path);
        command.args(["-n", "-M", "prepared", "-j", THREADS]).arg("-c").arg(connections.to_string());
        command.arg("-T").arg(time.as_secs().max(1).to_string()).arg("-f").arg(script);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).kill_on_drop(true);
        let failed = |source: io::Error| BenchError::Pgbench { what: self.path.display().to_string(), source };
        let output = tokio::select! {
            output = command.output() => output.map_err(failed)?,
            () = watched.stop.cancelled() => return Ok(None),
        };
        let said = String::from_utf8_lossy(&output.stdout);
        if let Some(scripts) = scripts_per_second(&said).filter(|_| output.status.success()) {
            return Ok(Some(scripts));
        }
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.lines().rfind(|line| !line.is_empty()).unwrap_or("it does not say how many scripts a second");
        Err(failed(io::Error::other(why.to_owned())))
    }

    /// Transitions of one script.
    fn transitions(&self) -> f64 {
        match self.workload {
            Workload::Lifecycle => 4.0,
            Workload::StartComplete => 2.0,
            Workload::HotRun { .. } | Workload::Read { .. } | Workload::Wait => 1.0,
        }
    }

    fn script(&self, baseline: Baseline) -> String {
        let runs = match self.workload {
            Workload::HotRun { .. } => self.runs,
            // Far more than are ever written: none comes twice.
            Workload::Lifecycle | Workload::StartComplete | Workload::Read { .. } | Workload::Wait => 1 << 53,
        };
        let mut script = format!("\\set r random(1, {runs})\n\\set t random(1, 100000)\n");
        let steps: &[Step] = match self.workload {
            Workload::Lifecycle => &[Step::Start, Step::Update, Step::Update, Step::Complete],
            Workload::StartComplete => &[Step::Start, Step::Complete],
            Workload::HotRun { .. } | Workload::Read { .. } | Workload::Wait => &[Step::Update],
        };
        for (number, step) in steps.iter().enumerate() {
            let statements = match baseline {
                Baseline::OneStatement => self.one_statement(*step),
                Baseline::Chatty => self.chatty(*step, number),
            };
            writeln!(script, "\\set s random(1, 9000000000000000)\n{statements}").expect("a text takes everything");
        }
        script
    }

    /// A pgbench reads a statement from one line, or up to its semicolon.
    fn one_statement(&self, step: Step) -> String {
        let metadata = &self.metadata;
        match step {
            Step::Start => format!(
                "with i as (insert into druns (run_id, task_thread_id, status, revision, metadata) \
                 values ('run-' || (:r)::text, 'thread-' || (:t)::text, 'RUNNING', 1, {metadata}) \
                 on conflict do nothing returning run_id) insert into devents (run_id, revision, event) \
                 select run_id, 1, '{{\"type\": \"started\", \"agent\": \"agent-1\"}}' from i;"
            ),
            Step::Update => "with u as (update druns set revision = revision + 1, \
                 metadata = coalesce(metadata, '{}') || jsonb_build_object('step', (:s)::text) \
                 where run_id = 'run-' || (:r)::text and status = 'RUNNING' returning run_id, revision) \
                 insert into devents (run_id, revision, event) \
                 select run_id, revision, jsonb_build_object('type', 'updated', 'step', (:s)::text) from u;"
                .to_owned(),
            Step::Complete => "with u as (update druns set status = 'COMPLETED', revision = revision + 1, \
                 completed_at = now() where run_id = 'run-' || (:r)::text and status = 'RUNNING' \
                 returning run_id, revision) insert into devents (run_id, revision, event) \
                 select run_id, revision, '{\"type\": \"completed\"}' from u;"
                .to_owned(),
        }
    }

    /// The same round trips as a program makes that reads the revision first.
    fn chatty(&self, step: Step, number: usize) -> String {
        let metadata = &self.metadata;
        let look = "begin;\nselect status, revision from druns where run_id = 'run-' || (:r)::text for update \\gset\n";
        let never = "begin;\nselect status, revision from druns where run_id = 'run-' || (:r)::text for update;\n";
        let of_the_run = "where run_id = 'run-' || (:r)::text;\n";
        let event = "insert into devents (run_id, revision, event) values ('run-' || (:r)::text,";
        match step {
            Step::Start => format!(
                "{never}insert into druns (run_id, task_thread_id, status, revision, metadata) \
                 values ('run-' || (:r)::text, 'thread-' || (:t)::text, 'RUNNING', 1, {metadata});\n\
                 {event} 1, '{{\"type\": \"started\", \"agent\": \"agent-1\"}}');\ncommit;"
            ),
            Step::Update => format!(
                "{look}update druns set revision = (:revision)::int + 1, \
                 metadata = coalesce(metadata, '{{}}') || jsonb_build_object('step', (:s)::text) {of_the_run}\
                 {event} (:revision)::int + 1, jsonb_build_object('type', 'updated', 'step', (:s)::text));\ncommit;"
            ),
            Step::Complete => format!(
                "{look}update druns set status = 'COMPLETED', revision = {number} + 1, completed_at = now() \
                 {of_the_run}{event} {number} + 1, '{{\"type\": \"completed\"}}');\ncommit;"
            ),
        }
    }
}

/// A transition of a script.
#[derive(Clone, Copy, Debug)]
enum Step {
    Start,
    Update,
    Complete,
}

/// A script in a file, removed with this value.
#[derive(Debug)]
struct Script(PathBuf);

impl Script {
    fn write(text: &str) -> Result<Self, BenchError> {
        let path = std::env::temp_dir().join(format!("{}.sql", crate::random::draw_id().simple()));
        let failed = |source| BenchError::Pgbench { what: path.display().to_string(), source };
        // Other users can write to the folder: a file or a link that somebody put there is not written through.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        Ok(Self(path))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _gone = fs::remove_file(Path::new(&self.0));
    }
}

fn environment(Settings { config, mode, roots, revoked, identity }: &Settings) -> Vec<(&'static str, String)> {
    let settings = config;
    let path = |path: &Path| path.display().to_string();
    let host = settings.get_hosts().first().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let text = |text: Option<&str>| text.map(str::to_owned);
    let named = [
        ("PGHOST", host),
        ("PGPORT", settings.get_ports().first().map(u16::to_string)),
        ("PGUSER", text(settings.get_user())),
        ("PGPASSWORD", settings.get_password().map(|password| String::from_utf8_lossy(password).into_owned())),
        ("PGDATABASE", text(settings.get_dbname())),
        ("PGHOSTADDR", settings.get_hostaddrs().first().map(ToString::to_string)),
        ("PGSSLMODE", text(Some(mode.name()))),
        (
            "PGSSLROOTCERT",
            roots.as_ref().map(|roots| match roots {
                Roots::File(file) => path(file),
                Roots::System => "system".to_owned(),
            }),
        ),
        ("PGSSLCRL", revoked.as_deref().map(path)),
        ("PGSSLCERT", identity.as_ref().map(|Identity { certificate, .. }| path(certificate))),
        ("PGSSLKEY", identity.as_ref().map(|Identity { key, .. }| path(key))),
        ("PGAPPNAME", text(Some(APPLICATION))),
        ("PGOPTIONS", text(Some("-c search_path=runledger_bench"))),
        ("LC_ALL", text(Some("C"))),
    ];
    named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The rate in pgbench's output: `tps = 1234.5 (without initial connection time)`. The line is missing when the time
/// was over before pgbench's connections had done anything.
fn scripts_per_second(said: &str) -> Option<f64> {
    if said.lines().any(|line| line == "number of transactions actually processed: 0") {
        return Some(0.0);
    }
    let line = said.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_a_second_are_read_and_nothing_else_is() {
        let said = "number of transactions actually processed: 9\ntps = 123.25 (without initial connection time)\n";
        assert_eq!(scripts_per_second(said), Some(123.25));
        assert_eq!(scripts_per_second("number of transactions actually processed: 0\n"), Some(0.0));
        assert_eq!(scripts_per_second("tps ="), None);
    }
}
