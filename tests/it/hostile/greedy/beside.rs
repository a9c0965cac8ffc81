//! The honest caller beside a greedy one: a call of each kind in turn, on a connection and a thread of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use runledger_proto::v1::{GetRunRequest, ListRunsRequest, RunFilter, StartRunRequest, UpdateRunRequest};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::kinds::claim;
use crate::process::server::hasty;

/// The time from one call to the next.
const EVERY: Duration = Duration::from_millis(8);

/// What the calls took, in ms, by their kind; and why some failed.
pub(super) type Met = BTreeMap<&'static str, (Vec<f64>, Vec<String>)>;

/// Calls of each kind for a time.
pub(super) async fn honest(address: SocketAddr, time: Duration) -> Met {
    let (told, met) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _waited_for = told.send(runtime.block_on(honest_here(address, time)));
    });
    met.await.unwrap()
}

async fn honest_here(address: SocketAddr, time: Duration) -> Met {
    let mut client = hasty(address);
    let started = client
        .start_run(StartRunRequest { task_thread_id: "honest".to_owned(), ..StartRunRequest::default() })
        .await
        .unwrap();
    let run_id = started.into_inner().run.unwrap().run_id;
    let mut met = Met::new();
    let (mut turns, until) = (interval(EVERY), Instant::now() + time);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for turn in 0_u64.. {
        turns.tick().await;
        if Instant::now() > until {
            return met;
        }
        let begun = Instant::now();
        let (kind, answer) = match turn % 4 {
            0 => {
                let labels = [("turn".to_owned(), turn.to_string())].into();
                let asked = UpdateRunRequest { run_id: run_id.clone(), labels, ..UpdateRunRequest::default() };
                ("update", client.update_run(asked).await.map(drop))
            }
            1 => {
                let asked = GetRunRequest { run_id: run_id.clone(), ..GetRunRequest::default() };
                ("get", client.get_run(asked).await.map(drop))
            }
            2 => {
                let filter = Some(RunFilter { task_thread_id: "honest".to_owned(), ..RunFilter::default() });
                let asked = ListRunsRequest { filter, page_size: 20, ..ListRunsRequest::default() };
                ("list", client.list_runs(asked).await.map(drop))
            }
            _ => ("claim", client.claim_next_run(claim("honest", Duration::ZERO)).await.map(drop)),
        };
        let (calls_ms, failed) = met.entry(kind).or_default();
        match answer {
            Ok(()) => calls_ms.push(begun.elapsed().as_secs_f64() * 1_000.0),
            Err(status) => failed.push(status.to_string()),
        }
    }
    met
}
