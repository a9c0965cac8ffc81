//! The answers that many callers get alike, which are encoded once: frames of watches, and the end of a wait.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tonic::Status;

use super::transport::Peer;
use super::watch::{of_many, of_one};
use crate::authority::{Authority, Call};
use crate::fairness::CallerKey;
use crate::feed::{Feed, Waited};
use crate::wire::served;
use runledger_proto::v1;

/// The frames of a watch.
pub(super) type Frames<F> = Pin<Box<dyn Stream<Item = Result<F, Status>> + Send>>;

pub(super) async fn watch_run(
    authority: &Authority,
    call: Call<v1::WatchRunRequest>,
    peer: Arc<Peer>,
) -> Result<Frames<served::WatchRunResponse>, Status> {
    let (epoch, frames) = authority.watch_run(feed_of(authority, call.key, peer), call).await?;
    Ok(Box::pin(frames.map(move |frame| Ok(of_one(frame?, epoch)))))
}

pub(super) async fn watch_runs(
    authority: &Authority,
    call: Call<v1::WatchRunsRequest>,
    peer: Arc<Peer>,
) -> Result<Frames<served::WatchRunsResponse>, Status> {
    let frames = authority.watch_runs(feed_of(authority, call.key, peer), call).await?;
    Ok(Box::pin(frames.map(|frame| Ok(of_many(frame?)))))
}

/// No function of its own that waits: it would keep the call a second time for as long as the caller waits.
pub(super) fn wait_run(
    authority: &Authority,
    call: Call<v1::WaitRunRequest>,
) -> impl Future<Output = Result<served::WaitRunResponse, Status>> + Send {
    authority.wait_run(call).map(|waited| {
        let Waited { run, timed_out } = waited?;
        Ok(served::WaitRunResponse { run, timed_out })
    })
}

/// The feed that a watch of a caller on a connection reads from.
fn feed_of(authority: &Authority, caller: CallerKey, peer: Arc<Peer>) -> Feed {
    authority.feed.of_caller(caller).of_reader(peer)
}
