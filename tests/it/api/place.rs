//! The servers that a test of the API calls: one on SQLite, one on Postgres, or two on one Postgres database; and one on
//! SQLite whose callers send each change as the one command of an `ApplyCommands`.

use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::caller::Caller;
use crate::support::patient::Patient;
use crate::support::postgres::Database;
use crate::support::server::{self, Server};

/// The kind of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Commands,
    Postgres,
    Replicas,
}

/// Servers that the tests of one process share. A test keeps to runs of its own, so they do not meet.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    addresses: Vec<String>,
}

impl Place {
    pub(crate) async fn of(kind: Kind) -> Self {
        static SQLITE: OnceCell<Kept> = OnceCell::const_new();
        static POSTGRES: OnceCell<Kept> = OnceCell::const_new();
        let kept = match kind {
            Kind::Sqlite | Kind::Commands => SQLITE.get_or_init(|| Kept::start(Kind::Sqlite)).await,
            Kind::Postgres | Kind::Replicas => POSTGRES.get_or_init(|| Kept::start(Kind::Replicas)).await,
        };
        let mut addresses: Vec<String> = kept.own.servers.iter().map(|server| server.address().to_owned()).collect();
        if kind == Kind::Postgres {
            addresses.truncate(1);
        }
        Self { kind, addresses }
    }

    /// A caller on a connection of its own to the first server.
    pub(crate) async fn caller(&self) -> Caller {
        self.sending(Caller::at(&self.addresses[0]).await)
    }

    fn sending(&self, caller: Caller) -> Caller {
        if self.kind == Kind::Commands { caller.by_commands() } else { caller }
    }

    /// A caller to the other server; where there is one server only, on another connection to it.
    pub(crate) async fn other(&self) -> Caller {
        self.sending(Caller::at(&self.addresses[self.addresses.len() - 1]).await)
    }

    pub(crate) async fn channel(&self) -> Patient {
        Patient::new(server::channel(&self.addresses[0]).await)
    }

    /// A connection to each of the two servers; where there is one server only, two to it.
    pub(crate) async fn channels(&self) -> [Patient; 2] {
        let other = &self.addresses[self.addresses.len() - 1];
        [Patient::new(server::channel(&self.addresses[0]).await), Patient::new(server::channel(other).await)]
    }

    pub(crate) fn address(&self) -> &str {
        &self.addresses[0]
    }
}

/// Servers of one test's own, for a test that ends them or counts what they do.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) servers: Vec<Server>,
    store: String,
    pub(crate) database: Option<Database>,
    directory: Option<TempDir>,
}

impl Own {
    pub(crate) async fn start(kind: Kind) -> Self {
        let mut own = match kind {
            Kind::Sqlite | Kind::Commands => {
                let directory = tempfile::tempdir().unwrap();
                let store = format!("sqlite:{}/ledger.db", directory.path().display());
                Self { servers: Vec::new(), store, database: None, directory: Some(directory) }
            }
            Kind::Postgres | Kind::Replicas => {
                let database = Database::fresh().await;
                Self { servers: Vec::new(), store: database.dsn(), database: Some(database), directory: None }
            }
        };
        for _ in 0..if kind == Kind::Replicas { 2 } else { 1 } {
            own.servers.push(Server::start(&own.store).await);
        }
        own
    }

    pub(crate) async fn caller(&self) -> Caller {
        Caller::at(self.servers[0].address()).await
    }

    pub(crate) async fn other(&self) -> Caller {
        Caller::at(self.servers[self.servers.len() - 1].address()).await
    }

    /// Kills every server, as by a crash, and starts as many on what they left.
    pub(crate) async fn crash_and_restart(&mut self) {
        let count = self.servers.len();
        self.servers.drain(..).for_each(Server::kill);
        for _ in 0..count {
            self.servers.push(Server::start(&self.store).await);
        }
    }
}

/// Servers that last as long as the test process. No code runs when that ends, so another process has to end them: a
/// shell that waits for the end of a pipe.
#[derive(Debug)]
struct Kept {
    own: Own,
    _guards: Vec<Child>,
}

impl Kept {
    async fn start(kind: Kind) -> Self {
        let own = Own::start(kind).await;
        let directory = own.directory.as_ref().map(|directory| directory.path().to_owned()).unwrap_or_default();
        let guard = |server: &Server| {
            let mut shell = Command::new("sh");
            shell.args(["-c", r#"read -r _; kill -9 "$0"; [ -z "$1" ] || rm -rf "$1""#, &server.pid().to_string()]);
            shell.arg(&directory).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            // The shell has a group of its own: a Ctrl-C that ends the tests must leave it to do its work.
            std::os::unix::process::CommandExt::process_group(&mut shell, 0);
            shell.spawn().unwrap()
        };
        let guards = own.servers.iter().map(guard).collect();
        Self { own, _guards: guards }
    }
}
