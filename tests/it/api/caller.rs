//! Calls in one line, and their answers in one shape.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use prost::Message as _;
use runledger_proto::v1::run_command::Command;
use runledger_proto::v1::run_service_client::RunServiceClient;
use runledger_proto::v1::{
    self, AbortRunRequest, CheckTransitionRequest, CheckTransitionResponse, CompleteRunRequest, Disposition,
    FailRunRequest, GetRunRequest, ListRunEventsRequest, Run, RunCommand, RunEvent, RunStatus, RunView,
    StartRunRequest, UpdateRunRequest, WatchRunRequest,
};
use tokio::time::{Instant, sleep};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Status};

use super::refused::Refused;
use super::watching::Watch;
use crate::support::patient::{self, Patient};
use crate::support::server::{self, PATIENCE};

/// The task thread of every run that a test does not give another one.
pub(crate) const THREAD: &str = "thread";

/// A run id that no other test has.
pub(crate) fn fresh(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// One mutation.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Start(StartRunRequest),
    Update(UpdateRunRequest),
    Complete(CompleteRunRequest),
    Abort(AbortRunRequest),
    Fail(FailRunRequest),
}

pub(crate) fn start(run_id: &str) -> StartRunRequest {
    StartRunRequest { run_id: run_id.into(), task_thread_id: THREAD.into(), ..StartRunRequest::default() }
}

pub(crate) fn deferred(run_id: &str) -> StartRunRequest {
    StartRunRequest { deferred: true, ..start(run_id) }
}

pub(crate) fn update(run_id: &str) -> UpdateRunRequest {
    UpdateRunRequest { run_id: run_id.into(), ..UpdateRunRequest::default() }
}

pub(crate) fn complete(run_id: &str) -> CompleteRunRequest {
    CompleteRunRequest { run_id: run_id.into(), ..CompleteRunRequest::default() }
}

pub(crate) fn abort(run_id: &str) -> AbortRunRequest {
    AbortRunRequest { run_id: run_id.into(), ..AbortRunRequest::default() }
}

pub(crate) fn fail(run_id: &str) -> FailRunRequest {
    FailRunRequest { run_id: run_id.into(), failure_reason: "it broke".into(), ..FailRunRequest::default() }
}

impl From<StartRunRequest> for Ask {
    fn from(request: StartRunRequest) -> Self {
        Self::Start(request)
    }
}

impl From<UpdateRunRequest> for Ask {
    fn from(request: UpdateRunRequest) -> Self {
        Self::Update(request)
    }
}

impl From<CompleteRunRequest> for Ask {
    fn from(request: CompleteRunRequest) -> Self {
        Self::Complete(request)
    }
}

impl From<AbortRunRequest> for Ask {
    fn from(request: AbortRunRequest) -> Self {
        Self::Abort(request)
    }
}

impl From<FailRunRequest> for Ask {
    fn from(request: FailRunRequest) -> Self {
        Self::Fail(request)
    }
}

impl From<Ask> for RunCommand {
    fn from(ask: Ask) -> Self {
        let command = match ask {
            Ask::Start(request) => Command::Start(request),
            Ask::Update(request) => Command::Update(request),
            Ask::Complete(request) => Command::Complete(request),
            Ask::Abort(request) => Command::Abort(request),
            Ask::Fail(request) => Command::Fail(request),
        };
        Self { command: Some(command) }
    }
}

impl Ask {
    /// One of each kind, that a run in a fitting status accepts.
    pub(crate) fn each(run_id: &str) -> [Self; 6] {
        [
            start(run_id).into(),
            deferred(run_id).into(),
            update_something(run_id).into(),
            complete(run_id).into(),
            abort(run_id).into(),
            fail(run_id).into(),
        ]
    }

    pub(crate) fn request_id(mut self, id: &str) -> Self {
        let place = match &mut self {
            Self::Start(request) => &mut request.request_id,
            Self::Update(request) => &mut request.request_id,
            Self::Complete(request) => &mut request.request_id,
            Self::Abort(request) => &mut request.request_id,
            Self::Fail(request) => &mut request.request_id,
        };
        id.clone_into(place);
        self
    }

    pub(crate) fn run_id(mut self, id: &str) -> Self {
        let place = match &mut self {
            Self::Start(request) => &mut request.run_id,
            Self::Update(request) => &mut request.run_id,
            Self::Complete(request) => &mut request.run_id,
            Self::Abort(request) => &mut request.run_id,
            Self::Fail(request) => &mut request.run_id,
        };
        id.clone_into(place);
        self
    }

    pub(crate) fn expecting(mut self, revision: u64) -> Self {
        let place = match &mut self {
            Self::Start(request) => &mut request.expected_revision,
            Self::Update(request) => &mut request.expected_revision,
            Self::Complete(request) => &mut request.expected_revision,
            Self::Abort(request) => &mut request.expected_revision,
            Self::Fail(request) => &mut request.expected_revision,
        };
        *place = Some(revision);
        self
    }
}

/// An update that changes something once.
pub(crate) fn update_something(run_id: &str) -> UpdateRunRequest {
    UpdateRunRequest { workflow_id: Some("another workflow".into()), ..update(run_id) }
}

/// The answer of a mutation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Done {
    pub(crate) run: Run,
    pub(crate) disposition: Disposition,
    pub(crate) current_revision: u64,
}

macro_rules! done {
    ($answer:expr) => {{
        let answer = $answer?.into_inner();
        let (disposition, current_revision) = (answer.disposition(), answer.current_revision);
        Ok(Done { run: answer.run.expect("a mutation answers with the run"), disposition, current_revision })
    }};
}

/// A command's result as the answer of its own call: with the run, or with the error's status.
#[expect(clippy::disallowed_methods, reason = "the server has made the error, and no status of it")]
pub(crate) fn done(result: v1::CommandResult) -> Result<Done, Status> {
    if let Some(error) = result.error {
        assert_eq!((result.disposition, result.revision), (0, 0), "nothing was done");
        let details = error.encode_to_vec().into();
        return Err(Status::with_details(error.code.into(), error.message, details));
    }
    let (disposition, current_revision) = (result.disposition(), result.current_revision);
    let run = result.run.clone().expect("the run was asked for");
    let lease_epoch = run.lease.as_ref().map_or(0, |lease| lease.epoch);
    assert_eq!((result.run_id.as_str(), result.revision), (run.run_id.as_str(), run.revision));
    assert_eq!((result.status, result.lease_epoch), (run.status, lease_epoch));
    assert_eq!(result.abort_requested, run.abort_request.is_some());
    Ok(Done { run, disposition, current_revision })
}

/// A client that calls a server.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) grpc: RunServiceClient<Patient>,
    metadata: MetadataMap,
    /// Whether each change is sent as a command.
    by_commands: bool,
}

impl Caller {
    pub(crate) async fn at(address: &str) -> Self {
        Self::on(Patient::new(server::channel(address).await))
    }

    pub(crate) fn on(channel: Patient) -> Self {
        Self { grpc: RunServiceClient::new(channel), metadata: MetadataMap::new(), by_commands: false }
    }

    /// The same caller, which sends each change as a command.
    pub(crate) fn by_commands(self) -> Self {
        Self { by_commands: true, ..self }
    }

    /// The same caller, naming an acting agent.
    pub(crate) fn agent(&self, agent_id: &str) -> Self {
        self.header("runledger-agent-id", agent_id.as_bytes())
    }

    pub(crate) fn header(&self, name: &'static str, value: &[u8]) -> Self {
        let mut caller = self.clone();
        caller.metadata.append(name, MetadataValue::try_from(value).unwrap());
        caller
    }

    pub(crate) fn binary_header(&self, name: &'static str, value: &[u8]) -> Self {
        let mut caller = self.clone();
        caller.metadata.append_bin(name, MetadataValue::from_bytes(value));
        caller
    }

    pub(crate) fn request<M>(&self, message: M) -> Request<M> {
        Request::from_parts(self.metadata.clone(), tonic::Extensions::default(), message)
    }

    pub(crate) async fn call(&self, ask: impl Into<Ask>) -> Result<Done, Status> {
        let mut grpc = self.grpc.clone();
        let ask = ask.into();
        if self.by_commands {
            let results = self.apply_commands([ask], Some(RunView::Full)).await?.results;
            return done(results.into_iter().next().expect("a result for each command"));
        }
        match ask {
            Ask::Start(message) => done!(grpc.start_run(self.request(message)).await),
            Ask::Update(message) => done!(grpc.update_run(self.request(message)).await),
            Ask::Complete(message) => done!(grpc.complete_run(self.request(message)).await),
            Ask::Abort(message) => done!(grpc.abort_run(self.request(message)).await),
            Ask::Fail(message) => done!(grpc.fail_run(self.request(message)).await),
        }
    }

    /// One call for many changes. Those that a busy server did not write are sent again, in their order.
    pub(crate) async fn apply_commands(
        &self,
        asks: impl IntoIterator<Item = impl Into<RunCommand>>,
        view: Option<RunView>,
    ) -> Result<v1::ApplyCommandsResponse, Status> {
        let commands: Vec<RunCommand> = asks.into_iter().map(Into::into).collect();
        let view = view.map(Into::into);
        let begun = Instant::now();
        let apply = async |commands: Vec<RunCommand>| {
            let asked = self.request(v1::ApplyCommandsRequest { commands, view });
            self.grpc.clone().apply_commands(asked).await.map(tonic::Response::into_inner)
        };
        let mut answer = apply(commands.clone()).await?;
        loop {
            let is_for_now = |result: &v1::CommandResult| result.error.as_ref().is_some_and(patient::is_for_now);
            let results = answer.results.iter_mut().zip(&commands).filter(|(result, _)| is_for_now(result));
            let (again, sent): (Vec<_>, Vec<_>) = results.map(|(result, command)| (result, command.clone())).unzip();
            if again.is_empty() || begun.elapsed() > PATIENCE {
                return Ok(answer);
            }
            sleep(Duration::from_millis(100)).await;
            for (result, new) in again.into_iter().zip(apply(sent).await?.results) {
                *result = new;
            }
        }
    }

    /// A call that must succeed.
    pub(crate) async fn must(&self, ask: impl Into<Ask>) -> Done {
        let ask = ask.into();
        self.call(ask.clone()).await.unwrap_or_else(|status| panic!("{ask:?}: {:?}", Refused::from(status)))
    }

    /// A call that must make its event.
    pub(crate) async fn apply(&self, ask: impl Into<Ask>) -> Run {
        let done = self.must(ask).await;
        assert_eq!(done.disposition, Disposition::Applied);
        assert_eq!(done.current_revision, done.run.revision);
        done.run
    }

    /// A call that must be a permitted no-op.
    pub(crate) async fn unchanged(&self, ask: impl Into<Ask>) -> Run {
        let done = self.must(ask).await;
        assert_eq!(done.disposition, Disposition::Unchanged);
        assert_eq!(done.current_revision, done.run.revision);
        done.run
    }

    /// A call that must be refused.
    pub(crate) async fn refused(&self, ask: impl Into<Ask>) -> Refused {
        let ask = ask.into();
        match self.call(ask.clone()).await {
            Ok(done) => panic!("{ask:?} was not refused: {done:?}"),
            Err(status) => status.into(),
        }
    }

    pub(crate) async fn get(&self, run_id: &str) -> Run {
        self.try_get(run_id).await.unwrap()
    }

    pub(crate) async fn try_get(&self, run_id: &str) -> Result<Run, Status> {
        let answer = self
            .grpc
            .clone()
            .get_run(self.request(GetRunRequest { run_id: run_id.into(), ..GetRunRequest::default() }))
            .await?;
        Ok(answer.into_inner().run.expect("GetRun answers with the run"))
    }

    pub(crate) async fn check(&self, asked: CheckTransitionRequest) -> Result<CheckTransitionResponse, Status> {
        Ok(self.grpc.clone().check_transition(self.request(asked)).await?.into_inner())
    }

    pub(crate) async fn page(
        &self,
        run_id: &str,
        page_size: i32,
        page_token: &str,
    ) -> Result<v1::ListRunEventsResponse, Status> {
        let asked = ListRunEventsRequest { run_id: run_id.into(), page_size, page_token: page_token.into() };
        let answer = self.grpc.clone().list_run_events(self.request(asked)).await?.into_inner();
        assert!(answer.encoded_len() <= 3 * 1024 * 1024 + 64, "{} bytes", answer.encoded_len());
        Ok(answer)
    }

    /// The whole history, over all pages.
    pub(crate) async fn events(&self, run_id: &str) -> Vec<RunEvent> {
        let mut events = Vec::new();
        let mut token = String::new();
        loop {
            let page = self.page(run_id, 1000, &token).await.unwrap();
            events.extend(page.events);
            token = page.next_page_token;
            if token.is_empty() {
                assert!(events.iter().map(|event| event.revision).eq(1..=events.len() as u64), "revisions are dense");
                return events;
            }
        }
    }

    pub(crate) async fn watch(&self, run_id: &str, after_revision: Option<u64>) -> Watch {
        self.try_watch(run_id, after_revision).await.unwrap()
    }

    pub(crate) async fn try_watch(&self, run_id: &str, after_revision: Option<u64>) -> Result<Watch, Status> {
        let asked = self.request(WatchRunRequest { run_id: run_id.into(), after_revision, ledger_epoch: None });
        Ok(Watch::of(self.grpc.clone().watch_run(asked).await?.into_inner()))
    }

    /// Brings a fresh run to a status.
    pub(crate) async fn run_in(&self, status: RunStatus) -> Run {
        let run_id = fresh("run");
        match status {
            RunStatus::Unspecified => panic!("a run has a status"),
            RunStatus::Pending => return self.apply(deferred(&run_id)).await,
            RunStatus::Running | RunStatus::Completed | RunStatus::Aborted | RunStatus::Failed => {}
        }
        let running = self.apply(start(&run_id)).await;
        match status {
            RunStatus::Completed => self.apply(complete(&run_id)).await,
            RunStatus::Aborted => {
                let asked = AbortRunRequest { failure_reason: "enough".into(), ..abort(&run_id) };
                self.apply(AbortRunRequest { reason_code: "USER_CANCELLED".into(), ..asked }).await
            }
            RunStatus::Failed => self.apply(fail(&run_id)).await,
            RunStatus::Running | RunStatus::Pending | RunStatus::Unspecified => running,
        }
    }
}

/// Every status that a run can have.
pub(crate) const STATUSES: [RunStatus; 5] =
    [RunStatus::Pending, RunStatus::Running, RunStatus::Completed, RunStatus::Aborted, RunStatus::Failed];

/// As messages name it.
pub(crate) fn name(status: RunStatus) -> String {
    status.as_str_name().trim_start_matches("RUN_STATUS_").to_lowercase()
}
