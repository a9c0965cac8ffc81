//! The answers of the replicas that the doctor was told of.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::problems::{WAITED_MS_MAX, seconds};
use crate::cli::connect::Selected;
use crate::cli::exit::Stop;
use crate::cli::table::shown;
use crate::cli::time::time;
use crate::domain::{Namespace, Time};
use crate::memory::{SCARCE_PERCENT, TIGHT_PERCENT};
use crate::store::Ledger;
use crate::store::finding::{Fault, Finding as Problem};
use crate::wire::cursor;
use crate::wire::seal::Seals;
use runledger_client::{Client, Failure, News, RunsWatch, ServerAddress, follow};
use runledger_proto::v1;
use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::watch_runs_response::{CaughtUp, Checkpoint, Frame};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Replica {
    pub(super) server: String,
    /// The reason why the replica did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) silent: Option<String>,
    /// Whether the reason is one of its caller: it may be in good health.
    #[serde(skip)]
    refuses: bool,
    pub(super) release: String,
    pub(super) started_at: Option<Time>,
    /// Without any password; empty while it is not open.
    pub(super) store: String,
    /// Whether the replica serves the ledger that the doctor reads; none where its store did not answer.
    pub(super) same_ledger: Option<bool>,
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
    pub(super) resident_bytes: u64,
    pub(super) memory_limit_bytes: u64,
    /// What takes the memory, the largest part first.
    pub(super) memory: Vec<MemoryPart>,
    /// The time when the replica last read the log to its end.
    pub(super) log_read_at: Option<Time>,
    /// What its health services say; none of one that did not say.
    pub(super) health: Health,
    /// The reason why it does not serve, and for how long it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_serving_because: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_serving_ms: Option<i64>,
    /// The time since a commit of the replica last wrote.
    pub(super) since_last_commit_ms: Option<i64>,
    /// The steps of clocks that it has noticed, the last one first.
    pub(super) clock_steps: Vec<ShownClockStep>,
    /// By how much the clock of its machine is ahead of the store's.
    pub(super) machine_clock_ahead_micros: Option<i64>,
}

/// A clock that was set.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownClockStep {
    pub(super) clock: String,
    pub(super) by_micros: Option<i64>,
    pub(super) ago_ms: Option<i64>,
}

impl ShownClockStep {
    fn of(v1::ClockStep { clock, by, ago }: v1::ClockStep) -> Self {
        Self { clock, by_micros: by.map(micros), ago_ms: milliseconds(ago) }
    }
}

/// What a replica's health services say: whether it serves, and whether it may be sent calls.
#[derive(Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Health {
    pub(super) serving: Option<bool>,
    pub(super) ready: Option<bool>,
}

/// A shard's commands without an answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queue {
    pub(super) shard: u32,
    pub(super) commands: u64,
    pub(super) oldest_ms: Option<i64>,
}

/// A part of a replica that takes memory.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MemoryPart {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// The bytes that the part takes at most; none where the number of connections or calls bounds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_max: Option<u64>,
}

impl MemoryPart {
    fn of(v1::MemoryPart { name, bytes, bytes_max }: v1::MemoryPart) -> Self {
        Self { name, bytes, bytes_max: Some(bytes_max).filter(|bytes| *bytes > 0) }
    }
}

/// The answer of a replica.
pub(super) struct ReplicaAnswer {
    said: v1::GetReplicaResponse,
    health: Health,
    /// The cursor at which a watch begins now, if the replica gave one in time.
    cursor: Option<String>,
}

/// Asks each replica, all at once: one that is silent keeps nobody waiting for the others.
pub(super) async fn ask<'a>(
    servers: &'a [ServerAddress],
    selected: &Selected,
    wait_max: Duration,
) -> Result<Vec<(&'a ServerAddress, Result<ReplicaAnswer, Failure>)>, Stop> {
    let until = Instant::now() + wait_max;
    let clients = servers.iter().map(|server| Ok((server, selected.client_of(server)?)));
    let clients = clients.collect::<Result<Vec<_>, Stop>>()?;
    let asks = clients.into_iter().map(|(server, client)| async move { (server, asked(client, until).await) });
    Ok(join_all(asks).await)
}

/// A replica's state and health, which wait for nothing, and a cursor, for which the replica waits for its store.
async fn asked(client: Client, until: Instant) -> Result<ReplicaAnswer, Failure> {
    let said = client.replica(until).await?;
    let (serving, ready) = tokio::join!(client.health("", until), client.health("readiness", until));
    let serves = |health: Result<runledger_client::Health, Failure>| match health {
        Ok(runledger_client::Health::Serving) => Some(true),
        Ok(runledger_client::Health::NotServing) => Some(false),
        Ok(runledger_client::Health::Unknown) | Err(_) => None,
    };
    let health = Health { serving: serves(serving), ready: serves(ready) };
    // Of a replica that does not serve, none is to be had: nobody waits for it until the time is over.
    let is_well = !said.store.is_empty() && health.serving != Some(false);
    let cursor = if is_well { first_cursor(client, until).await } else { None };
    Ok(ReplicaAnswer { said, health, cursor })
}

/// The cursor at which a watch begins now: only the ledger that gave it out knows it.
async fn first_cursor(client: Client, until: Instant) -> Option<String> {
    let request = v1::WatchRunsRequest {
        filter: Some(v1::RunFilter::default()),
        initial: Initial::None.into(),
        ..v1::WatchRunsRequest::default()
    };
    let mut news = pin!(follow(client, RunsWatch::new(request), false));
    let Ok(News::Frame(first)) = timeout_at(until, news.next()).await.ok()?? else { return None };
    match first.frame? {
        Frame::CaughtUp(CaughtUp { cursor }) | Frame::Checkpoint(Checkpoint { cursor, .. }) => Some(cursor),
        Frame::Snapshot(_) | Frame::Change(_) => None,
    }
}

impl Replica {
    /// `ledger`: the one that the doctor reads, if it can.
    pub(super) fn of(
        server: &ServerAddress,
        answer: Result<ReplicaAnswer, Failure>,
        ledger: Option<Ledger>,
        namespace: &Namespace,
    ) -> Self {
        let (answer, silent, refuses) = match answer {
            Ok(answer) => (answer, None, false),
            Err(failure) => {
                let refuses = failure.is_unauthenticated() || failure.is_denied();
                let nothing = ReplicaAnswer { said: <_>::default(), health: Health::default(), cursor: None };
                (nothing, Some(shown(&failure.to_string()).into_owned()), refuses)
            }
        };
        let ReplicaAnswer { said, health, cursor } = answer;
        // Only the ledger that gave a cursor out knows it.
        let same_ledger =
            ledger.zip(cursor).map(|(ledger, cursor)| cursor::epoch(&cursor, &Seals::new(ledger), namespace).is_some());
        let because = shown(&said.not_serving_because).into_owned();
        let queues = said.queues.into_iter().map(|queue| Queue {
            shard: queue.shard,
            commands: queue.commands,
            oldest_ms: milliseconds(queue.oldest),
        });
        Self {
            server: server.to_string(),
            silent,
            refuses,
            release: said.release,
            started_at: time(said.started_at.as_ref()),
            store: said.store,
            same_ledger,
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
            resident_bytes: said.resident_bytes,
            memory_limit_bytes: said.memory_limit_bytes,
            memory: said.memory.into_iter().map(MemoryPart::of).collect(),
            log_read_at: time(said.log_read_at.as_ref()),
            health,
            not_serving_because: Some(because).filter(|because| !because.is_empty()),
            not_serving_ms: milliseconds(said.not_serving_for),
            since_last_commit_ms: milliseconds(said.since_last_commit),
            clock_steps: said.clock_steps.into_iter().map(ShownClockStep::of).collect(),
            machine_clock_ahead_micros: said.machine_clock_ahead.map(micros),
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
            if self.refuses {
                return Some(Problem {
                    name: Fault::ReplicaRefuses,
                    what: format!("{server} does not tell this caller how it is: {}", why.trim_end_matches('.')),
                    todo: "Give a --token-file or a certificate that has the role operator or admin in namespaces = \
                           [\"*\"]"
                        .to_owned(),
                });
            }
            return Some(Problem {
                name: Fault::ReplicaSilent,
                what: if why.starts_with(server) { why.clone() } else { format!("{server} does not answer: {why}") },
                todo: "Look at its log, and whether it runs at all".to_owned(),
            });
        }
        if self.store.is_empty() {
            return Some(Problem {
                name: Fault::ReplicaOpening,
                what: format!("{server} has not opened its store yet"),
                todo: "Its log says what it waits for".to_owned(),
            });
        }
        if self.same_ledger == Some(false) {
            return Some(Problem {
                name: Fault::ReplicaOfAnotherLedger,
                what: format!("{server} serves another ledger than the one that is looked at here"),
                todo: "Give --store as that server has it, or the --server of a replica of this ledger".to_owned(),
            });
        }
        if self.health.serving == Some(false) || self.not_serving_because.is_some() {
            return Some(self.does_not_serve());
        }
        if self.memory_limit_bytes > 0 && self.resident_bytes * 100 >= self.memory_limit_bytes * TIGHT_PERCENT {
            let is_scarce = self.resident_bytes * 100 >= self.memory_limit_bytes * SCARCE_PERCENT;
            let refused = if is_scarce {
                "new watches and writes are refused"
            } else {
                "new watches are refused, and writes next"
            };
            return Some(Problem {
                name: Fault::ReplicaMemory,
                what: format!("{server} has little memory left: {refused}"),
                todo: "See below which part takes it, and give the process more, or some of its callers to another one"
                    .to_owned(),
            });
        }
        let Some((shard, waited)) = self.oldest().filter(|(_, waited)| *waited > WAITED_MS_MAX) else {
            return self.clock_is_apart();
        };
        Some(Problem {
            name: Fault::CommandWaits,
            what: format!("A command for shard {shard} has waited at {server} for {}", seconds(waited)),
            todo: "Look at who holds the head of that shard; if nobody does, the store is slow or away".to_owned(),
        })
    }

    fn clock_is_apart(&self) -> Option<Problem> {
        let ahead = self.machine_clock_ahead_micros.filter(|ahead| ahead.abs() >= MACHINE_APART_MICROS)?;
        let by = seconds(ahead.saturating_abs() / 1_000);
        let way = if ahead < 0 { "behind" } else { "ahead of" };
        Some(Problem {
            name: Fault::MachineClock,
            what: format!("The clock of the machine of {} is {by} {way} the store's", self.server),
            todo: "Set it right, let it be kept so, and restart that server: credentials end by the time that it began with".to_owned(),
        })
    }

    fn does_not_serve(&self) -> Problem {
        let Self { server, not_serving_because, not_serving_ms, since_last_commit_ms, .. } = self;
        let lasts = not_serving_ms.map(|ms| format!(" for {}", seconds(ms))).unwrap_or_default();
        let because = not_serving_because.as_ref().map(|because| format!(": {because}")).unwrap_or_default();
        let last = since_last_commit_ms.map_or_else(
            || "no commit has worked since it began".to_owned(),
            |ms| format!("the last commit that worked was {} ago", seconds(ms)),
        );
        Problem {
            name: Fault::NotServing,
            what: format!("{server} says that it has not been serving{lasts}{because}; {last}"),
            todo: "Mend what it says of its store: it tries a write each second, and serves again by itself".to_owned(),
        }
    }
}

/// What a machine's clock may differ by from the store's: the leeway that credentials have.
const MACHINE_APART_MICROS: i64 = 30_000_000;

/// A span of a message, back in time where it is negative.
fn micros(span: runledger_proto::Duration) -> i64 {
    span.seconds.saturating_mul(1_000_000).saturating_add(i64::from(span.nanos / 1_000))
}

/// A duration of a message, where it is one.
fn milliseconds<D>(duration: Option<D>) -> Option<i64>
where
    Duration: TryFrom<D>,
{
    let duration = Duration::try_from(duration?).ok()?;
    Some(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}
