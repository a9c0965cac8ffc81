//! An access file, a server that has it, and callers with and without credentials.

use std::path::PathBuf;

use prost_reflect::{DescriptorPool, MethodDescriptor};
use runledger::auth::token::TokenHash;
use runledger_proto::FILE_DESCRIPTOR_SET;
use runledger_proto::v1::run_service_client::RunServiceClient;
use tempfile::TempDir;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::process::server::Server;

/// A server with an access file that a test may change.
pub(super) struct Place {
    pub(super) server: Server,
    pub(super) path: PathBuf,
    _directory: TempDir,
}

/// An entry of the access file, for a token of this text.
pub(super) fn entry(token: &str, grants: &str) -> String {
    let hash = TokenHash::new(token.as_bytes());
    format!("[[token]]\nname = \"{token}\"\nsha256 = \"{hash}\"\ngrants = [{grants}]\n")
}

pub(super) fn grant(namespace: &str, role: &str, agents: &str) -> String {
    format!("{{ namespaces = [\"{namespace}\"], roles = [\"{role}\"], agents = [{agents}] }}")
}

impl Place {
    pub(super) async fn start(access: &str) -> Self {
        Self::start_with(access, &[]).await
    }

    pub(super) async fn start_with(access: &str, args: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.toml");
        std::fs::write(&path, access).unwrap();
        let file = path.to_str().unwrap();
        let own = ["--store", "memory", "--access-file", file, "--reload-interval", "100ms"];
        let server = Server::start_with(&[&own, args].concat()).await;
        server.is_ready().await;
        Self { server, path, _directory: directory }
    }

    pub(super) fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.server.address)).unwrap().connect_lazy()
    }

    pub(super) fn client(&self, caller: Caller) -> Client {
        RunServiceClient::with_interceptor(self.channel(), caller)
    }

    /// Replaces the access file as a whole.
    pub(super) fn rewrite(&self, access: &str) {
        let new = self.path.with_extension("new");
        std::fs::write(&new, access).unwrap();
        std::fs::rename(new, &self.path).unwrap();
    }
}

pub(super) type Client = RunServiceClient<InterceptedService<Channel, Caller>>;

/// What a caller sends along.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    pub(super) token: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) namespace: Option<String>,
}

impl Caller {
    pub(super) fn of(token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..Self::default() }
    }

    pub(super) fn acting(self, agent: &str) -> Self {
        Self { agent: Some(agent.to_owned()), ..self }
    }

    pub(super) fn within(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }
}

impl tonic::service::Interceptor for Caller {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let mut insert = |name: &'static str, value: Option<String>| {
            if let Some(value) = value {
                request.metadata_mut().insert(name, MetadataValue::try_from(value).unwrap());
            }
        };
        insert("authorization", self.token.as_ref().map(|token| format!("Bearer {token}")));
        insert("runledger-agent-id", self.agent.clone());
        insert("runledger-namespace", self.namespace.clone());
        Ok(request)
    }
}

/// Every method of the protocol.
pub(super) fn methods() -> Vec<MethodDescriptor> {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()).collect()
}

/// Calls a method with an empty request; the answer's first sign is enough.
pub(super) async fn call(channel: &Channel, method: &MethodDescriptor, caller: Caller) -> Result<(), Status> {
    let path = PathAndQuery::try_from(format!("/{}/{}", method.parent_service().full_name(), method.name())).unwrap();
    let mut client = tonic::client::Grpc::new(InterceptedService::new(channel.clone(), caller));
    client.ready().await.unwrap();
    let codec = ProstCodec::<(), ()>::default();
    if method.is_server_streaming() {
        client.server_streaming(Request::new(()), path, codec).await.map(drop)
    } else {
        client.unary(Request::new(()), path, codec).await.map(drop)
    }
}

/// The reason in a refusal's details.
pub(super) fn reason(status: &Status) -> String {
    use tonic_types::StatusExt as _;
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}
