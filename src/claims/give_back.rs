//! Unreceived claims: their runs are made ready for the next claimer.
//!
//! The caller was gone when the answer was due: a worker that was told to stop, a connection that broke, a deadline
//! that passed. The engine notices it, or, for a claimer's own request, the call that repeats it. Without this task,
//! the run would be RUNNING without a worker until its ttl is over, and then end as ORPHANED.
//!
//! The task gives the claim back by a command. A run that had waited for the claim is *ready* then: it stays RUNNING,
//! and the next claim takes it. A run that was taken over is released, and one with a request to abort it is aborted.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::domain::{Agents, Ask, Command, Disposition, GiveBack, Principal, Refusal, Release, RunKey};
use crate::engine::{Engine, Failure, Unreceived};

/// Claims that are given back at once at most.
const AT_ONCE: usize = 64;

/// The pause before a store that did not answer is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Gives claims back until the engine is closed and none is under way any more. Then no command is left to be
/// committed.
pub(super) async fn run(engine: Arc<Engine>, unreceived: mpsc::Receiver<Unreceived>, stop: CancellationToken) {
    let claims = stream::unfold(unreceived, |mut unreceived| async {
        let claim = unreceived.recv().await?;
        Some((claim, unreceived))
    });
    claims.for_each_concurrent(AT_ONCE, |claim| give_back(&engine, claim, &stop)).await;
    engine.end();
}

/// Tries for as long as the lease lasts: after that, the sweeper ends the run. At the stop, it tries once.
async fn give_back(engine: &Engine, claim: Unreceived, stop: &CancellationToken) {
    let Unreceived { key, lease, request, replays, revision } = claim;
    let RunKey { namespace, run_id } = key.clone();
    let mut command = Command {
        key,
        ask: Ask::GiveBack(GiveBack { lease_epoch: lease.epoch, request, replays }),
        expected_revision: None,
        request: None,
        principal: Principal::authority(),
        oversize: Vec::new(),
        prepared: crate::domain::Prepared::default(),
        trace: None,
        agents: Agents::All,
    };
    let until = Instant::now() + Duration::from_millis(lease.ttl_ms);
    while Instant::now() < until {
        match engine.submit_at_last(command.clone(), Some(until)).await {
            Ok(answer) => {
                if answer.disposition == Disposition::Applied {
                    tracing::debug!(
                        namespace = namespace.as_str(),
                        run_id = run_id.as_str(),
                        epoch = lease.epoch.get(),
                        "nobody received a claim: it is given back"
                    );
                }
                return;
            }
            // The holder before this claim has begun the run: a caller that means this run may take it over. If the run
            // was written to since, its caller did receive the claim.
            Err(Failure::Refused(refusal)) if matches!(*refusal, Refusal::RunBegun { .. }) && revision.is_some() => {
                command.ask = Ask::Release(Release { lease_epoch: Some(lease.epoch), not_begun: false });
                command.expected_revision = revision;
            }
            // Another claim has followed or the run has ended; or the engine is closed; or the service's log says why
            // the store refused.
            Err(Failure::Refused(_) | Failure::Draining | Failure::StoreRefused | Failure::StoreCorrupt) => return,
            // A release that was applied all the same is refused the next time.
            Err(
                Failure::Overloaded { .. } | Failure::StoreUnavailable | Failure::Deadline | Failure::OutcomeUnknown,
            ) => {
                tokio::select! {
                    () = sleep(AGAIN_AFTER) => {}
                    () = stop.cancelled() => break,
                }
            }
        }
    }
    let (namespace, run_id, epoch) = (namespace.as_str(), run_id.as_str(), lease.epoch.get());
    tracing::warn!(namespace, run_id, epoch, "a claim that nobody received could not be given back");
}
