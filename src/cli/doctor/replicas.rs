//! The answers of the replicas that the doctor was told of.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::problems::{Problem, WAITED_MS_MAX, seconds};
use crate::cli::table::shown;
use crate::cli::time::time;
use crate::domain::Time;
use runledger_client::HostPort;
use runledger_client::{Client, Failure};
use runledger_proto::v1;

/// Time that a replica has for its answer. The answer waits for nothing.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(3);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Replica {
    pub(super) server: String,
    /// The reason why the replica did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) silent: Option<String>,
    pub(super) release: String,
    pub(super) started_at: Option<Time>,
    /// Without any password; empty while it is not open.
    pub(super) store: String,
    pub(super) queues: Vec<Queue>,
    pub(super) watched_runs: u64,
    pub(super) watches_of_one_run: u64,
    pub(super) watches_of_many_runs: u64,
    pub(super) recent_changes_bytes: u64,
    pub(super) connections: u64,
    pub(super) calls: u64,
    pub(super) refused_calls: u64,
    pub(super) request_bytes: u64,
    pub(super) unsent_bytes: u64,
    /// The time when the replica last read the log to its end.
    pub(super) log_read_at: Option<Time>,
}

/// A shard's commands without an answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queue {
    pub(super) shard: u32,
    pub(super) commands: u64,
    pub(super) oldest_ms: Option<i64>,
}

/// Asks each replica.
pub(super) async fn ask(servers: &[HostPort]) -> Vec<Replica> {
    let mut replicas = Vec::new();
    for server in servers {
        let answer = asked(server).await;
        replicas.push(Replica::of(server, answer));
    }
    replicas
}

async fn asked(server: &HostPort) -> Result<v1::GetReplicaResponse, Failure> {
    Client::new(server.as_str(), None)?.replica(Instant::now() + ANSWER_WAIT_MAX).await
}

impl Replica {
    fn of(server: &HostPort, answer: Result<v1::GetReplicaResponse, Failure>) -> Self {
        let (said, silent) = match answer {
            Ok(said) => (said, None),
            Err(failure) => (v1::GetReplicaResponse::default(), Some(shown(&failure.to_string()).into_owned())),
        };
        let queues = said.queues.into_iter().map(|queue| {
            let oldest = queue.oldest.and_then(|oldest| Duration::try_from(oldest).ok());
            let oldest_ms = oldest.map(|oldest| i64::try_from(oldest.as_millis()).unwrap_or(i64::MAX));
            Queue { shard: queue.shard, commands: queue.commands, oldest_ms }
        });
        Self {
            server: server.to_string(),
            silent,
            release: said.release,
            started_at: time(said.started_at.as_ref()),
            store: said.store,
            queues: queues.collect(),
            watched_runs: said.watched_runs,
            watches_of_one_run: said.watches_of_one_run,
            watches_of_many_runs: said.watches_of_many_runs,
            recent_changes_bytes: said.recent_changes_bytes,
            connections: said.connections,
            calls: said.calls,
            refused_calls: said.refused_calls,
            request_bytes: said.request_bytes,
            unsent_bytes: said.unsent_bytes,
            log_read_at: time(said.log_read_at.as_ref()),
        }
    }

    /// The shard of the command that has waited longest, and its wait in milliseconds.
    pub(super) fn oldest(&self) -> Option<(u32, i64)> {
        let waiting = self.queues.iter().filter_map(|queue| Some((queue.shard, queue.oldest_ms?)));
        waiting.max_by_key(|(_, oldest_ms)| *oldest_ms)
    }

    pub(super) fn problem(&self) -> Option<Problem> {
        let Self { server, .. } = self;
        if let Some(why) = &self.silent {
            return Some(Problem {
                what: if why.starts_with(server) { why.clone() } else { format!("{server} does not answer: {why}") },
                todo: "Look at its log, and whether it runs at all".to_owned(),
            });
        }
        if self.store.is_empty() {
            return Some(Problem {
                what: format!("{server} has not opened its store yet"),
                todo: "Its log says what it waits for".to_owned(),
            });
        }
        let (shard, waited) = self.oldest().filter(|(_, waited)| *waited > WAITED_MS_MAX)?;
        Some(Problem {
            what: format!("A command for shard {shard} has waited at {server} for {}", seconds(waited)),
            todo: "Look at who holds the head of that shard; if nobody does, the store is slow or away".to_owned(),
        })
    }
}
