//! The run service's calls: a call's headers and deadline, then the authority.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _};
use http::Extensions;
use tonic::{Request, Response, Status};

use super::transport::{Context, Peer};
use super::watch::{of_many, of_one};
use crate::authority::{Authority, AuthoritySlot, Call, Until};
use crate::feed::{Feed, Waited};
use crate::share::CallerKey;
use crate::wire::served;
use crate::wire::served::run_service_server::RunService;
use runledger_proto::v1;

/// The run service.
pub(super) struct Runs {
    slot: AuthoritySlot,
}

/// The end of a call, as the transport knows it.
pub(super) fn until(extensions: &Extensions) -> Until {
    let Some(Context { deadline, peer, admitted, .. }) = extensions.get::<Context>() else { return Until::never() };
    Until {
        deadline: *deadline,
        connection: Some(peer.end_of_streams()),
        credential: admitted.ends_at,
        session: admitted.session.clone(),
    }
}

/// The feed that a watch of a caller on a connection reads from.
fn feed_of(authority: &Authority, caller: CallerKey, peer: Arc<Peer>) -> Feed {
    authority.feed.of_caller(caller).of_reader(peer)
}

/// A call, the authority that is to answer it, and the connection that it came on.
type Opened<'a, M> = (&'a Authority, Call<M>, Arc<Peer>);

impl Runs {
    pub(super) fn new(slot: AuthoritySlot) -> Self {
        Self { slot }
    }

    /// The call, once its namespace is found to be there: the one way to all calls on runs.
    async fn open<M>(&self, request: Request<M>) -> Result<Opened<'_, M>, Status> {
        let authority = self.slot.ready()?;
        let (call, peer) = call(request);
        authority.enter(&call.caller).await?;
        Ok((authority, call, peer))
    }
}

/// A call as its request and its headers have it, and the connection that it came on.
pub(super) fn call<M>(request: Request<M>) -> (Call<M>, Arc<Peer>) {
    let until = until(request.extensions());
    let context = request.extensions().get::<Context>().expect("the transport has put it there");
    let (caller, peer) = (context.admitted.caller.clone(), context.peer.clone());
    let (key, trace) = (peer.key(&caller), context.trace);
    (Call { caller, key, until, trace, message: request.into_inner() }, peer)
}

#[tonic::async_trait]
impl RunService for Runs {
    async fn start_run(&self, request: Request<v1::StartRunRequest>) -> Result<Response<v1::StartRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.start_run(call).await?))
    }

    async fn update_run(
        &self,
        request: Request<v1::UpdateRunRequest>,
    ) -> Result<Response<v1::UpdateRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.update_run(call).await?))
    }

    async fn complete_run(
        &self,
        request: Request<v1::CompleteRunRequest>,
    ) -> Result<Response<v1::CompleteRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.complete_run(call).await?))
    }

    async fn abort_run(&self, request: Request<v1::AbortRunRequest>) -> Result<Response<v1::AbortRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.abort_run(call).await?))
    }

    async fn fail_run(&self, request: Request<v1::FailRunRequest>) -> Result<Response<v1::FailRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.fail_run(call).await?))
    }

    async fn claim_run(&self, request: Request<v1::ClaimRunRequest>) -> Result<Response<v1::ClaimRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.claim_run(call).await?))
    }

    async fn claim_next_run(
        &self,
        request: Request<v1::ClaimNextRunRequest>,
    ) -> Result<Response<v1::ClaimNextRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.claim_next_run(call).await?))
    }

    async fn release_run(
        &self,
        request: Request<v1::ReleaseRunRequest>,
    ) -> Result<Response<v1::ReleaseRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.release_run(call).await?))
    }

    async fn request_abort(
        &self,
        request: Request<v1::RequestAbortRequest>,
    ) -> Result<Response<v1::RequestAbortResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.request_abort(call).await?))
    }

    async fn suspend_run(
        &self,
        request: Request<v1::SuspendRunRequest>,
    ) -> Result<Response<v1::SuspendRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.suspend_run(call).await?))
    }

    async fn resume_run(
        &self,
        request: Request<v1::ResumeRunRequest>,
    ) -> Result<Response<v1::ResumeRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.resume_run(call).await?))
    }

    async fn archive_run(
        &self,
        request: Request<v1::ArchiveRunRequest>,
    ) -> Result<Response<v1::ArchiveRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.archive_run(call).await?))
    }

    async fn restore_run(
        &self,
        request: Request<v1::RestoreRunRequest>,
    ) -> Result<Response<v1::RestoreRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.restore_run(call).await?))
    }

    async fn redact_run(
        &self,
        request: Request<v1::RedactRunRequest>,
    ) -> Result<Response<v1::RedactRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.redact_run(call).await?))
    }

    async fn heartbeat_run(
        &self,
        request: Request<v1::HeartbeatRunRequest>,
    ) -> Result<Response<v1::HeartbeatRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.heartbeat_run(call).await?))
    }

    async fn get_run(&self, request: Request<v1::GetRunRequest>) -> Result<Response<v1::GetRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.get_run(call).await?))
    }

    async fn check_transition(
        &self,
        request: Request<v1::CheckTransitionRequest>,
    ) -> Result<Response<v1::CheckTransitionResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.check_transition(call).await?))
    }

    async fn list_links(
        &self,
        request: Request<v1::ListLinksRequest>,
    ) -> Result<Response<v1::ListLinksResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.list_links(call).await?))
    }

    async fn list_run_events(
        &self,
        request: Request<v1::ListRunEventsRequest>,
    ) -> Result<Response<v1::ListRunEventsResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.list_run_events(call).await?))
    }

    async fn list_runs(&self, request: Request<v1::ListRunsRequest>) -> Result<Response<v1::ListRunsResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.list_runs(call).await?))
    }

    async fn count_runs(
        &self,
        request: Request<v1::CountRunsRequest>,
    ) -> Result<Response<v1::CountRunsResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        Ok(Response::new(authority.count_runs(call).await?))
    }

    type WatchRunStream = Pin<Box<dyn Stream<Item = Result<served::WatchRunResponse, Status>> + Send>>;

    async fn watch_run(&self, request: Request<v1::WatchRunRequest>) -> Result<Response<Self::WatchRunStream>, Status> {
        let (authority, call, peer) = self.open(request).await?;
        let (epoch, frames) = authority.watch_run(feed_of(authority, call.key, peer), call).await?;
        let frames = frames.map(move |frame| Ok(of_one(frame?, epoch)));
        Ok(Response::new(Box::pin(frames)))
    }

    type WatchRunsStream = Pin<Box<dyn Stream<Item = Result<served::WatchRunsResponse, Status>> + Send>>;

    async fn watch_runs(
        &self,
        request: Request<v1::WatchRunsRequest>,
    ) -> Result<Response<Self::WatchRunsStream>, Status> {
        let (authority, call, peer) = self.open(request).await?;
        let frames = authority.watch_runs(feed_of(authority, call.key, peer), call).await?;
        Ok(Response::new(Box::pin(frames.map(|frame| Ok(of_many(frame?))))))
    }

    async fn wait_run(
        &self,
        request: Request<v1::WaitRunRequest>,
    ) -> Result<Response<served::WaitRunResponse>, Status> {
        let (authority, call, _) = self.open(request).await?;
        let Waited { run, timed_out } = authority.wait_run(call).await?;
        Ok(Response::new(served::WaitRunResponse { run, timed_out }))
    }
}
