//! The calls that a client makes: for each request its RPC, its answer, and whether it changes a run.

use std::future::Future;
use std::ops::{Deref, DerefMut};

use runledger_proto::v1;
use runledger_proto::v1::identity_service_client::IdentityServiceClient;
use runledger_proto::v1::lifecycle_service_client::LifecycleServiceClient;
use runledger_proto::v1::namespace_service_client::NamespaceServiceClient;
use runledger_proto::v1::run_service_client::RunServiceClient;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// A connection, for the calls of each service: those of the run service directly.
#[derive(Clone, Debug)]
pub struct Wire {
    runs: Box<RunServiceClient<Channel>>,
    namespaces: Box<NamespaceServiceClient<Channel>>,
    lifecycles: Box<LifecycleServiceClient<Channel>>,
    identities: Box<IdentityServiceClient<Channel>>,
}

impl Wire {
    pub(crate) fn new(channel: Channel) -> Self {
        let runs = Box::new(RunServiceClient::new(channel.clone()));
        let namespaces = Box::new(NamespaceServiceClient::new(channel.clone()));
        let lifecycles = Box::new(LifecycleServiceClient::new(channel.clone()));
        Self { runs, namespaces, lifecycles, identities: Box::new(IdentityServiceClient::new(channel)) }
    }
}

impl Deref for Wire {
    type Target = RunServiceClient<Channel>;

    fn deref(&self) -> &RunServiceClient<Channel> {
        &self.runs
    }
}

impl DerefMut for Wire {
    fn deref_mut(&mut self) -> &mut RunServiceClient<Channel> {
        &mut self.runs
    }
}

/// A request that is answered once.
pub trait Call: Clone + Send + Sync {
    /// The message that answers the request.
    type Answer: Send;
    /// Whether the call may change a run or a namespace.
    const MUTATES: bool;

    /// Whether the call may be sent again without harm: it changes nothing, or its `request_id` makes the repetition
    /// the same call.
    fn is_repeatable(&self) -> bool;

    /// Sends the request.
    fn send(
        wire: &mut Wire,
        request: Request<Self>,
    ) -> impl Future<Output = Result<Response<Self::Answer>, Status>> + Send;
}

macro_rules! calls {
    ($($request:ident -> $answer:ident by $rpc:ident, mutates: $mutates:literal $(, by its $id:ident)?;)*) => {$(
        impl Call for v1::$request {
            type Answer = v1::$answer;
            const MUTATES: bool = $mutates;

            fn is_repeatable(&self) -> bool {
                true $(&& !self.$id.is_empty())?
            }

            async fn send(wire: &mut Wire, request: Request<Self>) -> Result<Response<v1::$answer>, Status> {
                wire.$rpc(request).await
            }
        }
    )*};
}

calls! {
    StartRunRequest -> StartRunResponse by start_run, mutates: true, by its request_id;
    UpdateRunRequest -> UpdateRunResponse by update_run, mutates: true, by its request_id;
    CompleteRunRequest -> CompleteRunResponse by complete_run, mutates: true, by its request_id;
    AbortRunRequest -> AbortRunResponse by abort_run, mutates: true, by its request_id;
    FailRunRequest -> FailRunResponse by fail_run, mutates: true, by its request_id;
    ClaimRunRequest -> ClaimRunResponse by claim_run, mutates: true, by its request_id;
    ClaimNextRunRequest -> ClaimNextRunResponse by claim_next_run, mutates: false, by its request_id;
    ReleaseRunRequest -> ReleaseRunResponse by release_run, mutates: true, by its request_id;
    HeartbeatRunRequest -> HeartbeatRunResponse by heartbeat_run, mutates: false;
    RequestAbortRequest -> RequestAbortResponse by request_abort, mutates: true, by its request_id;
    SuspendRunRequest -> SuspendRunResponse by suspend_run, mutates: true, by its request_id;
    ResumeRunRequest -> ResumeRunResponse by resume_run, mutates: true, by its request_id;
    ArchiveRunRequest -> ArchiveRunResponse by archive_run, mutates: true, by its request_id;
    RestoreRunRequest -> RestoreRunResponse by restore_run, mutates: true, by its request_id;
    RedactRunRequest -> RedactRunResponse by redact_run, mutates: true, by its request_id;
    CheckTransitionRequest -> CheckTransitionResponse by check_transition, mutates: false;
    GetRunRequest -> GetRunResponse by get_run, mutates: false;
    ListLinksRequest -> ListLinksResponse by list_links, mutates: false;
    ListRunEventsRequest -> ListRunEventsResponse by list_run_events, mutates: false;
    ListRunsRequest -> ListRunsResponse by list_runs, mutates: false;
    CountRunsRequest -> CountRunsResponse by count_runs, mutates: false;
    WaitRunRequest -> WaitRunResponse by wait_run, mutates: false;
}

macro_rules! calls_of {
    ($service:ident: $($request:ident -> $answer:ident by $rpc:ident, mutates: $mutates:literal;)*) => {$(
        impl Call for v1::$request {
            type Answer = v1::$answer;
            const MUTATES: bool = $mutates;

            fn is_repeatable(&self) -> bool {
                !$mutates
            }

            async fn send(wire: &mut Wire, request: Request<Self>) -> Result<Response<v1::$answer>, Status> {
                wire.$service.$rpc(request).await
            }
        }
    )*};
}

calls_of! {
    namespaces:
    CreateNamespaceRequest -> CreateNamespaceResponse by create_namespace, mutates: true;
    GetNamespaceRequest -> GetNamespaceResponse by get_namespace, mutates: false;
    ListNamespacesRequest -> ListNamespacesResponse by list_namespaces, mutates: false;
    UpdateNamespaceRequest -> UpdateNamespaceResponse by update_namespace, mutates: true;
    NoteExportedRequest -> NoteExportedResponse by note_exported, mutates: true;
    DeleteNamespaceRequest -> DeleteNamespaceResponse by delete_namespace, mutates: true;
}

calls_of! {
    lifecycles:
    PutLifecycleRequest -> PutLifecycleResponse by put_lifecycle, mutates: true;
    GetLifecycleRequest -> GetLifecycleResponse by get_lifecycle, mutates: false;
    ListLifecyclesRequest -> ListLifecyclesResponse by list_lifecycles, mutates: false;
}

calls_of! {
    identities:
    WhoAmIRequest -> WhoAmIResponse by who_am_i, mutates: false;
}
