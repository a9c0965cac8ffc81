//! The run service's calls.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use http::Extensions;
use prost::Message as _;
use tokio::time::Instant;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::lists::YieldEvery;
use super::transport::{Context, Peer};
use super::{Backend, BackendSlot, leases, lists, unlisted, unreadable, watch};
use crate::auth::{self, Caller};
use crate::domain::check::{Outcome, check_matrix, check_run};
use crate::domain::{Command, Refusal, RunKey, Violation};
use crate::engine::{Disposition, Failure};
use crate::feed::watch_runs::Begin;
use crate::feed::{Feed, Waited};
use crate::store::{PAGE_BYTES_MAX, StoreError};
use crate::wire::query::WAIT_MAX;
use crate::wire::request::{self, TransitionQuestion};
use crate::wire::served::run_service_server::RunService;
use crate::wire::{cursor, page_token, query, served, status};
use runledger_proto::v1;

/// Bytes of one answer at most: clients refuse 4 MiB, and a page that ends early loses nothing.
const ANSWER_BYTES_MAX: usize = 3 * 1024 * 1024;

/// What a wait leaves of the call's time for its answer at most.
const ANSWER_MARGIN_MAX: Duration = Duration::from_secs(1);

/// The run service.
pub(super) struct Runs {
    slot: BackendSlot,
}

/// What a call says besides its message.
struct Call<M> {
    caller: Caller,
    until: Until,
    peer: Option<Arc<Peer>>,
    message: M,
}

impl<M> Call<M> {
    /// What its watch reads from.
    fn feed(&self, backend: &Backend) -> Feed {
        match &self.peer {
            Some(peer) => backend.feed.of_reader(peer.clone()),
            None => backend.feed.clone(),
        }
    }
}

/// When a call is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    /// Its caller waits no longer.
    pub(super) deadline: Option<Instant>,
    /// Its connection is closed.
    pub(super) connection: Option<Instant>,
}

impl Until {
    /// Of a call, as the transport knows it.
    pub(super) fn of(extensions: &Extensions) -> Self {
        let context = extensions.get::<Context>();
        Self {
            deadline: context.and_then(|context| context.deadline),
            connection: context.map(|context| context.peer.streams_end_at()),
        }
    }
}

/// What every mutation answers.
struct Mutated {
    run: Option<v1::Run>,
    disposition: i32,
    current_revision: u64,
    abort_requested: bool,
}

impl Runs {
    pub(super) fn new(slot: BackendSlot) -> Self {
        Self { slot }
    }

    fn open<M>(&self, request: Request<M>) -> Result<(&Backend, Call<M>), Status> {
        let backend = self.slot.ready()?;
        let caller = auth::caller(request.metadata()).map_err(status::invalid)?;
        let until = Until::of(request.extensions());
        let peer = request.extensions().get::<Context>().map(|context| context.peer.clone());
        Ok((backend, Call { caller, until, peer, message: request.into_inner() }))
    }

    /// Commits the command that a request asks for. `names_run`: it named its run, so that a repetition meets the same.
    async fn mutate<M>(
        &self,
        request: Request<M>,
        names_run: bool,
        command: impl FnOnce(M, &Caller, Uuid) -> Result<Command, Vec<Violation>>,
    ) -> Result<Mutated, Status> {
        let (backend, call) = self.open(request)?;
        let command = command(call.message, &call.caller, backend.store.ledger().id).map_err(status::invalid)?;
        let retry_is_safe = command.request.is_some() || (names_run && command.is_idempotent());
        let answer = backend.engine.submit(command, call.until.deadline).await;
        let answer = answer.map_err(|failure| failed(failure, retry_is_safe))?;
        let disposition = match answer.disposition {
            Disposition::Applied => v1::Disposition::Applied,
            Disposition::Unchanged => v1::Disposition::Unchanged,
            Disposition::Replayed => v1::Disposition::Replayed,
            Disposition::RecordedLate => v1::Disposition::RecordedLate,
        };
        Ok(Mutated {
            abort_requested: answer.run.supervision.abort_request.is_some(),
            run: Some(answer.run.as_ref().into()),
            disposition: disposition.into(),
            current_revision: answer.current_revision,
        })
    }
}

/// Another replica may have seen sooner that the ledger lost a part of its past.
async fn knows(backend: &Backend, epoch: Option<u64>) -> Result<(), StoreError> {
    if epoch.is_some_and(|epoch| epoch > backend.store.ledger().epoch) {
        backend.store.look_at_past().await?;
    }
    Ok(())
}

/// How long a call that was asked to wait does: answered before it is over, it says more than that time is over.
pub(super) fn wait_max(backend: &Backend, asked: Duration, until: Until) -> Duration {
    let end = until.deadline.into_iter().chain(until.connection).min();
    let left = end.map_or(WAIT_MAX, |end| {
        let left = end.saturating_duration_since(Instant::now());
        left.saturating_sub((left / 10).min(ANSWER_MARGIN_MAX))
    });
    asked.min(backend.wait_max).min(left)
}

/// Why a command has no answer. `retry_is_safe`: see [`status::outcome_unknown`].
pub(super) fn failed(failure: Failure, retry_is_safe: bool) -> Status {
    match failure {
        Failure::Refused(refusal) => status::refusal(&refusal),
        Failure::Overloaded => status::overloaded(),
        Failure::Draining => status::draining(),
        Failure::StoreUnavailable => status::store_unavailable(),
        Failure::StoreRefused => status::store_refused(),
        Failure::StoreCorrupt => status::store_corrupt(),
        Failure::Deadline => status::deadline(),
        Failure::OutcomeUnknown => status::outcome_unknown(retry_is_safe),
    }
}

fn run_not_found(key: RunKey) -> Status {
    status::refusal(&Refusal::RunNotFound { key })
}

#[tonic::async_trait]
impl RunService for Runs {
    async fn start_run(&self, request: Request<v1::StartRunRequest>) -> Result<Response<v1::StartRunResponse>, Status> {
        let names_run = !request.get_ref().run_id.is_empty();
        let Mutated { run, disposition, current_revision, .. } =
            self.mutate(request, names_run, request::start_run).await?;
        Ok(Response::new(v1::StartRunResponse { run, disposition, current_revision }))
    }

    async fn update_run(
        &self,
        request: Request<v1::UpdateRunRequest>,
    ) -> Result<Response<v1::UpdateRunResponse>, Status> {
        let mut renewal = None;
        let command = |message, caller: &_, _| {
            renewal = request::update_renewal(&message, caller);
            request::update_run(message, caller)
        };
        let Mutated { run, disposition, current_revision, abort_requested } =
            self.mutate(request, true, command).await?;
        if let Some((key, renewal)) = renewal {
            // The update was made: its answer waits for no renewal, and no deadline may pass in between.
            self.slot.ready()?.renewals.renew_soon(key, renewal);
        }
        Ok(Response::new(v1::UpdateRunResponse { run, disposition, current_revision, abort_requested }))
    }

    async fn complete_run(
        &self,
        request: Request<v1::CompleteRunRequest>,
    ) -> Result<Response<v1::CompleteRunResponse>, Status> {
        let command = |message, caller: &_, _| request::complete_run(message, caller);
        let Mutated { run, disposition, current_revision, abort_requested } =
            self.mutate(request, true, command).await?;
        Ok(Response::new(v1::CompleteRunResponse { run, disposition, current_revision, abort_requested }))
    }

    async fn abort_run(&self, request: Request<v1::AbortRunRequest>) -> Result<Response<v1::AbortRunResponse>, Status> {
        let command = |message, caller: &_, _| request::abort_run(message, caller);
        let Mutated { run, disposition, current_revision, .. } = self.mutate(request, true, command).await?;
        Ok(Response::new(v1::AbortRunResponse { run, disposition, current_revision }))
    }

    async fn fail_run(&self, request: Request<v1::FailRunRequest>) -> Result<Response<v1::FailRunResponse>, Status> {
        let command = |message, caller: &_, _| request::fail_run(message, caller);
        let Mutated { run, disposition, current_revision, abort_requested } =
            self.mutate(request, true, command).await?;
        Ok(Response::new(v1::FailRunResponse { run, disposition, current_revision, abort_requested }))
    }

    async fn claim_run(&self, request: Request<v1::ClaimRunRequest>) -> Result<Response<v1::ClaimRunResponse>, Status> {
        let command = |message, caller: &_, _| request::claim_run(message, caller);
        let Mutated { run, disposition, current_revision, .. } = self.mutate(request, true, command).await?;
        Ok(Response::new(v1::ClaimRunResponse { run, disposition, current_revision }))
    }

    async fn claim_next_run(
        &self,
        request: Request<v1::ClaimNextRunRequest>,
    ) -> Result<Response<v1::ClaimNextRunResponse>, Status> {
        let (backend, call) = self.open(request)?;
        leases::claim_next(backend, call.caller, call.until, call.message).await.map(Response::new)
    }

    async fn release_run(
        &self,
        request: Request<v1::ReleaseRunRequest>,
    ) -> Result<Response<v1::ReleaseRunResponse>, Status> {
        let command = |message, caller: &_, _| request::release_run(message, caller);
        let Mutated { run, disposition, current_revision, .. } = self.mutate(request, true, command).await?;
        Ok(Response::new(v1::ReleaseRunResponse { run, disposition, current_revision }))
    }

    async fn request_abort(
        &self,
        request: Request<v1::RequestAbortRequest>,
    ) -> Result<Response<v1::RequestAbortResponse>, Status> {
        let command = |message, caller: &_, _| request::request_abort(message, caller);
        let Mutated { run, disposition, current_revision, .. } = self.mutate(request, true, command).await?;
        Ok(Response::new(v1::RequestAbortResponse { run, disposition, current_revision }))
    }

    async fn heartbeat_run(
        &self,
        request: Request<v1::HeartbeatRunRequest>,
    ) -> Result<Response<v1::HeartbeatRunResponse>, Status> {
        let (backend, call) = self.open(request)?;
        let (key, renewal) = request::heartbeat_run(call.message, &call.caller).map_err(status::invalid)?;
        leases::heartbeat(backend, key, renewal, call.until.deadline).await.map(Response::new)
    }

    async fn get_run(&self, request: Request<v1::GetRunRequest>) -> Result<Response<v1::GetRunResponse>, Status> {
        let (backend, call) = self.open(request)?;
        let (key, queue_label) = query::get_run(call.message, &call.caller).map_err(status::invalid)?;
        match backend.reads.run(&key).await {
            Ok(Some(run)) => {
                let queue = match queue_label {
                    Some(label) => leases::place(backend, &key, &run, &label).await?,
                    None => None,
                };
                let run = Some(leases::shown(backend, &key, &run).await?);
                Ok(Response::new(v1::GetRunResponse { run, queue }))
            }
            Ok(None) => Err(run_not_found(key)),
            Err(error) => Err(unreadable("GetRun", &key, &error)),
        }
    }

    async fn check_transition(
        &self,
        request: Request<v1::CheckTransitionRequest>,
    ) -> Result<Response<v1::CheckTransitionResponse>, Status> {
        let (backend, call) = self.open(request)?;
        let question = request::check_transition(call.message, &call.caller).map_err(status::invalid)?;
        let check = match question {
            TransitionQuestion::Matrix { from, to } => check_matrix(from, to),
            TransitionQuestion::Run { key, to } => {
                let run = backend.reads.run(&key).await.map_err(|error| unreadable("CheckTransition", &key, &error))?;
                check_run(&key, run.as_ref(), to, call.caller.principal)
            }
        };
        let (disposition, reason) = match &check.outcome {
            Ok(Outcome::Applied) => (v1::Disposition::Applied, ""),
            Ok(Outcome::Unchanged) => (v1::Disposition::Unchanged, ""),
            Ok(Outcome::RecordedLate) => (v1::Disposition::RecordedLate, ""),
            Err(refusal) => (v1::Disposition::Unspecified, refusal.reason()),
        };
        Ok(Response::new(v1::CheckTransitionResponse {
            allowed: check.allowed,
            disposition: disposition.into(),
            reason: reason.to_owned(),
            from: check.from.map_or(v1::RunStatus::Unspecified, v1::RunStatus::from).into(),
        }))
    }

    async fn list_run_events(
        &self,
        request: Request<v1::ListRunEventsRequest>,
    ) -> Result<Response<v1::ListRunEventsResponse>, Status> {
        let (backend, call) = self.open(request)?;
        let (key, page_size) = query::list_run_events(&call.message, &call.caller).map_err(status::invalid)?;
        let ledger = backend.store.ledger();
        let after = match call.message.page_token.as_str() {
            "" => 0,
            token => page_token::revision(token, ledger, &key).map_err(status::page_token_invalid)?,
        };
        let unreadable = |error| unreadable("ListRunEvents", &key, &error);
        // The run first: one that is there has its first event, whatever is committed in between.
        let Some(run) = backend.reads.run(&key).await.map_err(unreadable)? else { return Err(run_not_found(key)) };
        let _turn = lists::turn_of_events(&backend.turns).await?;
        let read = backend.store.run_events(&key, after, page_size, PAGE_BYTES_MAX).await.map_err(unreadable)?;
        if after > 0 && backend.store.ledger().epoch != ledger.epoch {
            // What the caller has may be of another past than this page.
            return Err(status::page_token_invalid(page_token::PageTokenInvalid));
        }
        let (mut bytes, mut yielding) = (0, YieldEvery::default());
        let mut events: Vec<v1::RunEvent> = Vec::with_capacity(read.len());
        for event in &read {
            let event: v1::RunEvent = event.into();
            let encoded = event.encoded_len();
            yielding.made(encoded).await;
            bytes += encoded;
            if bytes > ANSWER_BYTES_MAX && !events.is_empty() {
                break;
            }
            events.push(event);
        }
        let next_page_token = match events.last() {
            Some(last) if last.revision < run.revision => page_token::after_revision(last.revision, ledger, &key),
            Some(_) | None => String::new(),
        };
        Ok(Response::new(v1::ListRunEventsResponse { events, next_page_token }))
    }

    type WatchRunStream = Pin<Box<dyn Stream<Item = Result<served::WatchRunResponse, Status>> + Send>>;

    async fn watch_run(&self, request: Request<v1::WatchRunRequest>) -> Result<Response<Self::WatchRunStream>, Status> {
        let (backend, call) = self.open(request)?;
        let feed = call.feed(backend);
        let key = request::run_key(call.message.run_id, &call.caller).map_err(status::invalid)?;
        let after = call.message.after_revision;
        let cut = move |error, key: &_| watch::cut("WatchRun", &error, key, after);
        let of_epoch = call.message.ledger_epoch;
        knows(backend, of_epoch).await.map_err(|error| unreadable("WatchRun", &key, &error))?;
        let begun = feed.watch_run(key.clone(), after, of_epoch).await;
        let (epoch, frames) = begun.map_err(|error| cut(error, &key))?;
        let frames = watch::with_progress(backend.progress.clone(), key.clone(), epoch, frames);
        let frames = frames.map(move |frame| frame.map_err(|error| cut(error, &key)));
        Ok(Response::new(Box::pin(watch::until(call.until, frames))))
    }

    type WatchRunsStream = Pin<Box<dyn Stream<Item = Result<served::WatchRunsResponse, Status>> + Send>>;

    async fn watch_runs(
        &self,
        request: Request<v1::WatchRunsRequest>,
    ) -> Result<Response<Self::WatchRunsStream>, Status> {
        let (backend, call) = self.open(request)?;
        let feed = call.feed(backend);
        let namespace = call.caller.namespace;
        let cursor = call.message.cursor.clone();
        let (filter, view) = query::watch_runs(call.message).map_err(status::invalid)?;
        let begin = match cursor.as_str() {
            "" => Begin::Now(view),
            cursor => {
                knows(backend, cursor::epoch(cursor, backend.store.ledger(), &namespace))
                    .await
                    .map_err(|error| unlisted("WatchRuns", &namespace, &error))?;
                let cursor = cursor::decode(cursor, backend.store.ledger(), &namespace);
                Begin::After(cursor.map_err(status::cursor_invalid)?)
            }
        };
        let frames = feed.watch_runs(namespace.clone(), filter, begin).await;
        let frames = frames.map_err(|error| watch::cut_many(&namespace, &error))?;
        let frames =
            frames.map(move |frame| frame.map(watch::of_many).map_err(|error| watch::cut_many(&namespace, &error)));
        Ok(Response::new(Box::pin(watch::until(call.until, frames))))
    }

    async fn wait_run(
        &self,
        request: Request<v1::WaitRunRequest>,
    ) -> Result<Response<served::WaitRunResponse>, Status> {
        let (backend, call) = self.open(request)?;
        let (key, timeout) = query::wait_run(call.message, &call.caller).map_err(status::invalid)?;
        let wait_max = wait_max(backend, timeout, call.until);
        let waited = backend.feed.wait_run(&key, wait_max).await;
        let Waited { run, timed_out } = waited.map_err(|error| watch::cut("WaitRun", &error, &key, None))?;
        Ok(Response::new(served::WaitRunResponse { run, timed_out }))
    }

    async fn list_runs(&self, request: Request<v1::ListRunsRequest>) -> Result<Response<v1::ListRunsResponse>, Status> {
        let (backend, call) = self.open(request)?;
        lists::list(backend, &call.caller, call.message, ANSWER_BYTES_MAX).await.map(Response::new)
    }

    async fn count_runs(
        &self,
        request: Request<v1::CountRunsRequest>,
    ) -> Result<Response<v1::CountRunsResponse>, Status> {
        let (backend, call) = self.open(request)?;
        lists::count(backend, &call.caller, call.message).await.map(Response::new)
    }
}
