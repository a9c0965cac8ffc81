//! An honest client beside an attack: what its calls take, and whether all are answered.

use std::net::SocketAddr;
use std::time::Duration;

use runledger_proto::v1::{GetRunRequest, StartRunRequest, UpdateRunRequest};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::process::server::{Client, hasty};

/// One call in this time: a client that does its work and no more.
const EVERY: Duration = Duration::from_millis(5);

/// The answers and errors that an honest client met.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met {
    pub(crate) calls_ms: Vec<f64>,
    pub(crate) failed: Vec<String>,
}

impl Met {
    /// The time that a part of the calls took at most, in ms.
    pub(crate) fn quantile_ms(&self, part: f64) -> f64 {
        quantile_ms(self.calls_ms.clone(), part)
    }
}

/// The time that a part of some calls took at most.
pub(crate) fn quantile_ms(mut took_ms: Vec<f64>, part: f64) -> f64 {
    took_ms.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the index of a vector"
    )]
    let index = (took_ms.len() as f64 * part) as usize;
    took_ms.get(index.min(took_ms.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Calls for a time: updates and reads of a run of its own, in turn. Runs on a thread of its own, so that an attacker
/// in this process is not what it waits for.
pub(crate) async fn calls(address: SocketAddr, time: Duration) -> Met {
    calls_by(move || hasty(address), time).await
}

/// The same, by a client that is made there.
pub(crate) async fn calls_by(client: impl FnOnce() -> Client + Send + 'static, time: Duration) -> Met {
    let (told, met) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _waited_for = told.send(runtime.block_on(async { calls_here(client(), time).await }));
    });
    met.await.unwrap()
}

async fn calls_here(mut client: Client, time: Duration) -> Met {
    let mut met = Met::default();
    let started =
        client.start_run(StartRunRequest { task_thread_id: "honest".to_owned(), ..StartRunRequest::default() });
    let run_id = match started.await {
        Ok(started) => started.into_inner().run.unwrap().run_id,
        Err(status) => {
            met.failed.push(format!("{status:?}"));
            return met;
        }
    };
    let mut turns = interval(EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let begun = Instant::now();
    for turn in 0_u64.. {
        let due = turns.tick().await;
        if begun.elapsed() > time {
            break;
        }
        let called = Instant::now().max(due);
        let answered = if turn.is_multiple_of(2) {
            let labels = [("turn".to_owned(), turn.to_string())].into();
            let asked = UpdateRunRequest { run_id: run_id.clone(), labels, ..UpdateRunRequest::default() };
            client.update_run(asked).await.map(drop)
        } else {
            client.get_run(GetRunRequest { run_id: run_id.clone(), ..GetRunRequest::default() }).await.map(drop)
        };
        match answered {
            Ok(()) => met.calls_ms.push(called.elapsed().as_secs_f64() * 1_000.0),
            Err(status) => met.failed.push(format!("{status:?}")),
        }
    }
    met
}
