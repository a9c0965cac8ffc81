//! The servers that a measurement calls.

use std::time::Duration;

use clap::Args;
use tokio::time::Instant;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use super::BenchError;
use super::process::Meter;
use runledger_client::flags::{Access, SERVER_DEFAULT};
use runledger_client::{Caller, ServerAddress, Unusable};
use runledger_proto::v1::run_service_client::RunServiceClient;

pub(super) type Client = RunServiceClient<InterceptedService<Channel, Caller>>;

/// Streams that a connection is given: a server lets it have 1,024, and more streams wait for their turn.
const STREAMS_EACH: u32 = 1_000;

/// Time that a connection may take.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(30);

/// The servers of a plan and the way to them, for whoever has settings from elsewhere.
pub type Reach<'a> = (&'a mut Vec<ServerAddress>, &'a mut Access);

/// The servers that a measurement calls.
#[derive(Args, Clone, Debug)]
pub struct Servers {
    /// The server that is written to; of several with commas, the first [default: 127.0.0.1:50051]
    #[arg(long, env = "RUNLEDGER_SERVER", value_name = "HOST:PORT", value_delimiter = ',')]
    server: Vec<ServerAddress>,
    /// The server that is watched, another replica of the same ledger [default: the one that is written to]
    #[arg(long, value_name = "HOST:PORT")]
    watch_server: Option<ServerAddress>,
    /// Connections to each, which the calls share; more where watches or waits need them
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// The process of the server that is watched, when it runs on this Linux machine: adds what it takes
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    #[command(flatten)]
    access: Access,
}

/// Connections to one server.
#[derive(Clone, Debug)]
pub(super) struct Connections(Vec<Client>);

impl Connections {
    async fn open(server: &ServerAddress, access: &Access, count: u16) -> Result<Self, BenchError> {
        let unreachable = |failure| BenchError::Unreachable(Box::new(failure));
        let unusable = |error: Unusable| BenchError::Senseless(error.to_string());
        let builder = access.builder(std::slice::from_ref(server)).map_err(unusable)?;
        let client = builder.build().map_err(unusable)?;
        let mut clients = Vec::new();
        for _ in 0..count {
            let channel = client.channel(Instant::now() + CONNECT_WAIT_MAX).await.map_err(unreachable)?;
            clients.push(RunServiceClient::with_interceptor(channel, client.caller().clone()));
        }
        Ok(Self(clients))
    }

    /// The connection that this call uses.
    pub(super) fn of(&self, number: u64) -> Client {
        let count = self.0.len() as u64;
        self.0[usize::try_from(number % count).expect("less than a count")].clone()
    }
}

/// The servers that a load calls.
#[derive(Args, Clone, Debug)]
pub struct Replicas {
    /// The servers that are called, replicas of one ledger: callers are spread over them [default: 127.0.0.1:50051]
    #[arg(long = "server", env = "RUNLEDGER_SERVER", value_name = "HOST:PORT", value_delimiter = ',')]
    servers: Vec<ServerAddress>,
    /// Connections to each, which the calls share
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    #[command(flatten)]
    access: Access,
}

impl Replicas {
    /// The servers, and the way to them.
    pub(super) fn reach(&mut self) -> Reach<'_> {
        (&mut self.servers, &mut self.access)
    }

    fn servers(&self) -> Vec<ServerAddress> {
        if self.servers.is_empty() { vec![default()] } else { self.servers.clone() }
    }

    /// Connects to all replicas. Consecutive callers go to different replicas.
    pub(super) async fn connect(&self) -> Result<Connections, BenchError> {
        let mut replicas = Vec::new();
        for server in &self.servers() {
            replicas.push(Connections::open(server, &self.access, self.connections).await?.0.into_iter());
        }
        let mut clients = Vec::new();
        for _ in 0..self.connections {
            clients.extend(replicas.iter_mut().filter_map(Iterator::next));
        }
        Ok(Connections(clients))
    }

    /// The servers' names, for a report.
    pub(super) fn named(&self) -> String {
        let names: Vec<_> = self.servers().iter().map(ToString::to_string).collect();
        let many = if self.connections == 1 { "" } else { "s" };
        format!("{} connection{many} to {}", self.connections, names.join(" and to "))
    }
}

impl Servers {
    /// The servers, and the way to them.
    pub(super) fn reach(&mut self) -> Reach<'_> {
        (&mut self.server, &mut self.access)
    }

    /// Connects for writing and for watching.
    pub(super) async fn connect(&self) -> Result<(Connections, Connections), BenchError> {
        self.connect_for(0).await
    }

    /// The same, with as many connections for watching as so many streams need.
    pub(super) async fn connect_for(&self, streams: u32) -> Result<(Connections, Connections), BenchError> {
        let writer = Connections::open(&self.written(), &self.access, self.connections).await?;
        let needed = u16::try_from(streams.div_ceil(STREAMS_EACH)).unwrap_or(u16::MAX);
        Ok((writer, Connections::open(&self.watched(), &self.access, self.connections.max(needed)).await?))
    }

    /// The meter of the watched server's process, if the process was named.
    pub(super) fn meter(&self) -> Result<Meter, BenchError> {
        Meter::open(self.server_pid)
    }

    fn written(&self) -> ServerAddress {
        self.server.first().cloned().unwrap_or_else(default)
    }

    fn watched(&self) -> ServerAddress {
        self.watch_server.clone().unwrap_or_else(|| self.written())
    }

    /// The servers' names, for a report.
    pub(super) fn named(&self) -> String {
        match &self.watch_server {
            Some(watched) => format!("{} written to, {watched} watched", self.written()),
            None => self.written().to_string(),
        }
    }
}

fn default() -> ServerAddress {
    SERVER_DEFAULT.parse().expect("it is an address")
}
