//! The connections that the baseline's callers share, each with its statements prepared, and the transitions over one.

use std::sync::Arc;

use parking_lot::Mutex;
use runledger_postgres::Connector;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::statements::{self, chatty, one};
use super::{Baseline, connected, failed};
use crate::BenchError;

const LOST: &str = "a transition cannot be written";

/// The connections of one phase.
#[derive(Debug)]
pub(super) struct Sessions {
    lender: Arc<Lender>,
    drivers: JoinSet<()>,
}

/// Lends a connection for a transition, to whoever waits longest.
#[derive(Debug)]
pub(super) struct Lender {
    free: Mutex<Vec<Session>>,
    turns: Semaphore,
}

/// A connection. Lent to one caller at a time.
#[derive(Debug)]
pub(super) struct Session {
    client: Client,
    statements: Statements,
}

#[derive(Debug)]
enum Statements {
    OneStatement { start: Statement, update: Statement, complete: Statement },
    Chatty(Box<Chatty>),
}

#[derive(Debug)]
struct Chatty {
    begin: Statement,
    commit: Statement,
    look: Statement,
    insert: Statement,
    update: Statement,
    complete: Statement,
    event: Statement,
}

/// The values that a transition writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Write<'a> {
    Start { task_thread_id: &'a str, metadata: Option<&'a str> },
    Update { step: &'a str },
    Complete,
}

impl Sessions {
    pub(super) async fn open(connector: &Connector, count: usize, baseline: Baseline) -> Result<Self, BenchError> {
        let mut drivers = JoinSet::new();
        let mut free = Vec::new();
        for _ in 0..count {
            let client = connected(connector, &mut drivers).await?;
            client.batch_execute(statements::SEARCH_PATH).await.map_err(failed("a session cannot be prepared"))?;
            let statements = Statements::prepare(&client, baseline).await;
            let statements = statements.map_err(failed("a statement cannot be prepared"))?;
            free.push(Session { client, statements });
        }
        let lender = Lender { free: Mutex::new(free), turns: Semaphore::new(count) };
        Ok(Self { lender: Arc::new(lender), drivers })
    }

    pub(super) fn lender(&self) -> Arc<Lender> {
        self.lender.clone()
    }

    /// Closes the sessions, once no caller has one. Returns when Postgres was told.
    pub(super) async fn close(mut self) {
        drop(self.lender);
        while self.drivers.join_next().await.is_some() {}
    }
}

impl Lender {
    /// Writes a transition over the next free connection: the wait for it is a part of its time.
    pub(super) async fn write(&self, run_id: &str, write: Write<'_>) -> Result<(), BenchError> {
        let (session, turn) = self.lend().await;
        session.write(run_id, write).await?;
        self.free.lock().push(session);
        drop(turn);
        Ok(())
    }

    async fn lend(&self) -> (Session, SemaphorePermit<'_>) {
        let turn = self.turns.acquire().await.expect("it is never closed");
        (self.free.lock().pop().expect("as many as there are turns"), turn)
    }
}

impl Statements {
    async fn prepare(client: &Client, baseline: Baseline) -> Result<Self, tokio_postgres::Error> {
        Ok(match baseline {
            Baseline::OneStatement => Self::OneStatement {
                start: client.prepare(one::START).await?,
                update: client.prepare(one::UPDATE).await?,
                complete: client.prepare(one::COMPLETE).await?,
            },
            Baseline::Chatty => Self::Chatty(Box::new(Chatty {
                begin: client.prepare(chatty::BEGIN).await?,
                commit: client.prepare(chatty::COMMIT).await?,
                look: client.prepare(chatty::LOOK).await?,
                insert: client.prepare(chatty::INSERT).await?,
                update: client.prepare(chatty::UPDATE).await?,
                complete: client.prepare(chatty::COMPLETE).await?,
                event: client.prepare(chatty::EVENT).await?,
            })),
        })
    }
}

impl Session {
    async fn write(&self, run_id: &str, write: Write<'_>) -> Result<(), BenchError> {
        let written = match &self.statements {
            Statements::OneStatement { start, update, complete } => match write {
                Write::Start { task_thread_id, metadata } => {
                    self.one(start, &[&run_id, &task_thread_id, &metadata]).await?
                }
                Write::Update { step } => self.one(update, &[&run_id, &step]).await?,
                Write::Complete => self.one(complete, &[&run_id]).await?,
            },
            Statements::Chatty(statements) => self.chatty(statements, run_id, write).await?,
        };
        if written { Ok(()) } else { Err(BenchError::NotWritten) }
    }

    /// Whether it wrote one row.
    async fn one(&self, statement: &Statement, parameters: &[&(dyn ToSql + Sync)]) -> Result<bool, BenchError> {
        Ok(self.client.execute(statement, parameters).await.map_err(failed(LOST))? == 1)
    }

    async fn chatty(&self, statements: &Chatty, run_id: &str, write: Write<'_>) -> Result<bool, BenchError> {
        let Chatty { begin, commit, look, insert, update, complete, event } = statements;
        self.client.execute(begin, &[]).await.map_err(failed(LOST))?;
        let found = self.client.query_opt(look, &[&run_id]).await.map_err(failed(LOST))?;
        let found = found.map(|row| (row.get::<_, &str>(0) == "RUNNING", row.get::<_, i32>(1)));
        let (revision, text, written) = match (write, found) {
            (Write::Start { task_thread_id, metadata }, None) => {
                let written = self.one(insert, &[&run_id, &task_thread_id, &metadata]).await?;
                (1, r#"{"type": "started", "agent": "agent-1"}"#.to_owned(), written)
            }
            (Write::Update { step }, Some((true, before))) => {
                let written = self.one(update, &[&run_id, &(before + 1), &step]).await?;
                (before + 1, format!(r#"{{"type": "updated", "step": "{step}"}}"#), written)
            }
            (Write::Complete, Some((true, before))) => {
                let written = self.one(complete, &[&run_id, &(before + 1)]).await?;
                (before + 1, r#"{"type": "completed"}"#.to_owned(), written)
            }
            (Write::Start { .. } | Write::Update { .. } | Write::Complete, _) => return Ok(false),
        };
        let logged = self.one(event, &[&run_id, &revision, &text]).await?;
        self.client.execute(commit, &[]).await.map_err(failed(LOST))?;
        Ok(written && logged)
    }
}
