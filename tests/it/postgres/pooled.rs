//! PgBouncer before Postgres: it serves as well as the server where it lends whole sessions, and is refused where not.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use runledger_proto::v1::{CompleteRunRequest, StartRunRequest, WatchRunRequest};
use tempfile::TempDir;

use crate::inspect::broken::finds;
use crate::process::server::{Process, SOON, Server};
use crate::support::postgres::{Cluster, as_server, port, variable};

/// PgBouncer before a cluster, killed with this value.
struct Pooler {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Pooler {
    fn start(cluster: &Cluster, mode: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = port();
        let settings = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=runledger\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = 60\nunix_socket_dir =\n\
             ignore_startup_parameters = extra_float_digits\n",
            cluster.port()
        );
        std::fs::write(&settings, text).unwrap();
        open_to_all(folder.path(), 0o755);
        open_to_all(&settings, 0o644);
        let mut child = as_server(&pgbouncer()).arg(&settings).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = String::new();
        let is_up = log.by_ref().any(|line| {
            said = format!("{said}{line}\n");
            line.contains("process up")
        });
        assert!(is_up, "PgBouncer did not start:\n{said}");
        std::thread::spawn(move || log.for_each(drop));
        Self { child, port, _folder: folder }
    }

    fn dsn(&self) -> String {
        format!("postgres://runledger@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// The program, which Debian keeps off the PATH of users.
fn pgbouncer() -> PathBuf {
    let path = variable("PATH").unwrap_or_default() + ":/usr/sbin";
    let mut found = path.split(':').map(|folder| Path::new(folder).join("pgbouncer"));
    found.find(|program| program.exists()).expect("run `make test`: it installs PgBouncer")
}

fn open_to_all(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_pooler_that_lends_whole_sessions_serves_as_well_as_the_server() {
    let cluster = Cluster::start(&[]);
    let pooler = Pooler::start(&cluster, "session");
    let server = Server::start_with(&["--store", &pooler.dsn()]).await;
    server.is_ready().await;
    // Another replica tells by the store's own notifications.
    let other = Server::start_with(&["--store", &pooler.dsn()]).await;
    other.is_ready().await;
    let run = StartRunRequest { run_id: "run".into(), task_thread_id: "thread".into(), ..Default::default() };
    server.client().start_run(run).await.unwrap();
    let watch = WatchRunRequest { run_id: "run".into(), ..Default::default() };
    let mut frames = other.client().watch_run(watch).await.unwrap().into_inner();
    frames.message().await.unwrap().unwrap();
    let complete = CompleteRunRequest { run_id: "run".into(), ..Default::default() };
    server.client().complete_run(complete).await.unwrap();
    let mut last = async || while frames.message().await.unwrap().is_some() {};
    tokio::time::timeout(SOON, last()).await.expect("the watch of a run that has ended ends");
}

#[tokio::test]
async fn a_pooler_that_lends_sessions_for_a_transaction_or_a_statement_is_refused() {
    let cluster = Cluster::start(&[]);
    for mode in ["transaction", "statement"] {
        let pooler = Pooler::start(&cluster, mode);
        for command in ["serve", "migrate"] {
            let listen: &[&str] = if command == "serve" { &["--listen", "127.0.0.1:0"] } else { &[] };
            let mut refused = Process::spawn(&[&[command, "--store", &pooler.dsn()], listen].concat());
            let (code, said) = refused.exited(SOON).await;
            assert!(code == 1 && said.contains("pool_mode = session"), "{command}, {mode}: {code}: {said}");
        }
        finds(&pooler.dsn(), &[], "server").await;
    }
}
