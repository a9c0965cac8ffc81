//! A connection of a pool, with the statements that it keeps prepared.
//!
//! The writes of a commit and the filter of a list make the text of the statement: there are thousands of forms, and
//! the server holds a plan for each that is prepared. So a connection keeps those that it used last. A statement that
//! is kept costs a look at a map and no round trip; one that is not costs a round trip and a plan. The driver closes
//! an evicted statement on the server, and no caller waits for that.

use std::collections::HashMap;
use std::ops::Deref;
use std::pin::Pin;

use deadpool::managed::{self, Metrics, RecycleResult};
use deadpool_postgres::{ClientWrapper, Connect, Manager, ManagerConfig, RecyclingMethod};
use parking_lot::Mutex;
use runledger_postgres::{Connected, Connector};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Error, Statement};

use crate::telemetry::chain;

/// Statements that a connection keeps at most. Each takes about 0.25 MB of the server's memory, and all the loads of
/// `runledger bench` one after the other use 41.
const PREPARED_MAX: usize = 128;

/// Statements whose preparation somebody gave up, at most: the server has them, and nobody can close them.
const UNFINISHED_MAX: usize = 16;

/// Makes the connections of a pool.
pub(super) struct Connections {
    manager: Manager,
    connector: Connector,
}

impl Connections {
    pub(super) fn by(connector: Connector) -> Self {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let config = connector.config().clone();
        Self { manager: Manager::from_connect(config, Dial(connector.clone()), recycling), connector }
    }
}

/// Connects by our connector, where the pool's own way would read the roots and keys once for all.
struct Dial(Connector);

type Dialled<'a> = Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + 'a>>;

impl Connect for Dial {
    fn connect(&self, _config: &Config) -> Dialled<'_> {
        Box::pin(async move {
            let Connected { client, connection, .. } = self.0.connect().await?;
            #[expect(clippy::disallowed_methods, reason = "the pool aborts the task when it drops the connection")]
            let driver = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::warn!(error = chain(&error), "a session with Postgres was lost");
                }
            });
            Ok((client, driver))
        })
    }
}

impl managed::Manager for Connections {
    type Type = Connection;
    type Error = Error;

    async fn create(&self) -> Result<Connection, Error> {
        let (client, connector) = (self.manager.create().await?, self.connector.clone());
        Ok(Connection { client, connector, statements: Mutex::default() })
    }

    async fn recycle(&self, connection: &mut Connection, metrics: &Metrics) -> RecycleResult<Error> {
        self.manager.recycle(&mut connection.client, metrics).await
    }

    fn detach(&self, connection: &mut Connection) {
        self.manager.detach(&mut connection.client);
    }
}

/// See the module.
pub(in crate::store::postgres) struct Connection {
    client: ClientWrapper,
    connector: Connector,
    statements: Mutex<Statements>,
}

#[derive(Default)]
struct Statements {
    kept: HashMap<Box<str>, CachedStatement>,
    /// The number of times that a statement was asked for.
    uses: u64,
    /// Statements that are being prepared, or were when their caller gave up.
    unfinished: usize,
}

struct CachedStatement {
    statement: Statement,
    /// The value of [`Statements::uses`] when the statement was asked for last.
    used: u64,
}

impl Connection {
    /// The statement of a text, prepared now unless it is kept.
    pub(in crate::store::postgres) async fn prepare_cached(&self, text: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.lock().find(text) {
            return Ok(statement);
        }
        self.statements.lock().unfinished += 1;
        let prepared = self.client.prepare(text).await;
        let mut statements = self.statements.lock();
        statements.unfinished -= 1;
        let statement = prepared?;
        statements.keep(text, statement.clone());
        Ok(statement)
    }

    /// Asks the server to end what the session executes.
    pub(super) async fn cancel(&self) -> Result<(), Error> {
        self.connector.cancel(self.client.cancel_token()).await
    }

    /// Whether there are too many statements on the server that nobody can close.
    pub(super) fn is_littered(&self) -> bool {
        self.statements.lock().unfinished >= UNFINISHED_MAX
    }
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Statements {
    fn find(&mut self, text: &str) -> Option<Statement> {
        self.uses += 1;
        let kept = self.kept.get_mut(text)?;
        kept.used = self.uses;
        Some(kept.statement.clone())
    }

    /// Keeps a statement. The search for the one to evict looks at all of them: beside a round trip, that is nothing.
    fn keep(&mut self, text: &str, statement: Statement) {
        if self.kept.len() >= PREPARED_MAX && !self.kept.contains_key(text) {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(text, _)| text.clone());
            oldest.and_then(|oldest| self.kept.remove(&oldest));
        }
        self.kept.insert(text.into(), CachedStatement { statement, used: self.uses });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio_postgres::SimpleQueryMessage;

    use super::*;
    use crate::store::postgres::sessions::Sessions;
    use crate::tasks::Supervisor;

    fn sessions() -> Sessions {
        #[expect(clippy::disallowed_methods, reason = "`make test` says where its Postgres is in the environment")]
        let dsn = std::env::var("RUNLEDGER_TEST_POSTGRES").expect("`make test` runs a Postgres for this");
        Sessions::new(&crate::store::postgres::dsn::connector(&dsn).unwrap(), 3, &Supervisor::new(), None, || {})
    }

    /// The first column of a statement that is not prepared for it.
    async fn column(connection: &Connection, statement: &str) -> Vec<String> {
        let answer = connection.simple_query(statement).await.unwrap();
        let first = |message: &SimpleQueryMessage| {
            if let SimpleQueryMessage::Row(row) = message { row.get(0).map(str::to_owned) } else { None }
        };
        answer.iter().filter_map(first).collect()
    }

    #[tokio::test]
    async fn a_session_keeps_the_statements_that_it_used_last_and_the_server_no_others() {
        let sessions = sessions();
        let session = sessions.commit().await.unwrap();
        let of_hot = "select name from pg_prepared_statements where statement like '%hot%' order by statement";
        let mut hot = Vec::new();
        for rare in 0..3 * PREPARED_MAX {
            for number in 0..8 {
                session.prepare_cached(&format!("select {number} as hot")).await.unwrap();
            }
            session.prepare_cached(&format!("select {rare} as rare")).await.unwrap();
            let prepared = column(&session, "select name from pg_prepared_statements").await;
            assert_eq!(prepared.len(), (8 + rare + 1).min(PREPARED_MAX));
            let names = column(&session, of_hot).await;
            assert!(hot.is_empty() || hot == names, "each was prepared once: {hot:?}, and then {names:?}");
            hot = names;
        }
        assert_eq!(hot.len(), 8);
        session.put_back();
    }

    #[tokio::test]
    async fn a_session_on_which_too_many_statements_were_abandoned_is_closed() {
        let sessions = sessions();
        let mut pids = Vec::new();
        for _ in 0..=UNFINISHED_MAX {
            let session = sessions.read().await.unwrap();
            pids.extend(column(&session, "select pg_backend_pid()").await);
            assert!(session.prepare_cached("select 'abandoned'").now_or_never().is_none());
        }
        pids.dedup();
        assert_eq!(pids.len(), 2, "the first is lent again and again, and then another: {pids:?}");
    }
}
