//! The servers that a measurement calls.

use clap::Args;
use tonic::transport::{Channel, Endpoint};

use super::BenchError;
use super::process::Meter;
use runledger_client::HostPort;
use runledger_proto::v1::run_service_client::RunServiceClient;

pub(super) type Client = RunServiceClient<Channel>;

/// Streams that a connection is given: a server lets it have 1,024, and more streams wait for their turn.
const STREAMS_EACH: u32 = 1_000;

/// The servers that a measurement calls.
#[derive(Args, Clone, Debug)]
pub struct Servers {
    /// The server that is written to
    #[arg(long, env = "RUNLEDGER_SERVER", value_name = "HOST:PORT", default_value = "127.0.0.1:50051")]
    server: HostPort,
    /// The server that is watched, another replica of the same ledger [default: the one that is written to]
    #[arg(long, value_name = "HOST:PORT")]
    watch_server: Option<HostPort>,
    /// Connections to each, which the calls share; more where watches or waits need them
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// The process of the server that is watched, when it runs on this Linux machine: adds what it takes
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
}

/// Connections to one server.
#[derive(Clone, Debug)]
pub(super) struct Connections(Vec<Client>);

impl Connections {
    async fn open(server: &HostPort, count: u16) -> Result<Self, BenchError> {
        let unreachable = |source| BenchError::Unreachable { server: server.to_string(), source };
        let endpoint = Endpoint::from_shared(format!("http://{server}")).map_err(unreachable)?.tcp_nodelay(true);
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(RunServiceClient::new(endpoint.connect().await.map_err(unreachable)?));
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
    /// The servers that are called, replicas of one ledger: callers are spread over them
    #[arg(
        long = "server",
        env = "RUNLEDGER_SERVER",
        value_name = "HOST:PORT",
        value_delimiter = ',',
        default_value = "127.0.0.1:50051"
    )]
    servers: Vec<HostPort>,
    /// Connections to each, which the calls share
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
}

impl Replicas {
    /// Connects to all replicas. Consecutive callers go to different replicas.
    pub(super) async fn connect(&self) -> Result<Connections, BenchError> {
        let mut replicas = Vec::new();
        for server in &self.servers {
            replicas.push(Connections::open(server, self.connections).await?.0.into_iter());
        }
        let mut clients = Vec::new();
        for _ in 0..self.connections {
            clients.extend(replicas.iter_mut().filter_map(Iterator::next));
        }
        Ok(Connections(clients))
    }

    /// The servers' names, for a report.
    pub(super) fn named(&self) -> String {
        let names: Vec<&str> = self.servers.iter().map(HostPort::as_str).collect();
        let many = if self.connections == 1 { "" } else { "s" };
        format!("{} connection{many} to {}", self.connections, names.join(" and to "))
    }
}

impl Servers {
    /// Connects for writing and for watching.
    pub(super) async fn connect(&self) -> Result<(Connections, Connections), BenchError> {
        self.connect_for(0).await
    }

    /// The same, with as many connections for watching as so many streams need.
    pub(super) async fn connect_for(&self, streams: u32) -> Result<(Connections, Connections), BenchError> {
        let writer = Connections::open(&self.server, self.connections).await?;
        let needed = u16::try_from(streams.div_ceil(STREAMS_EACH)).unwrap_or(u16::MAX);
        Ok((writer, Connections::open(self.watched(), self.connections.max(needed)).await?))
    }

    /// The meter of the watched server's process, if the process was named.
    pub(super) fn meter(&self) -> Result<Meter, BenchError> {
        Meter::open(self.server_pid)
    }

    fn watched(&self) -> &HostPort {
        self.watch_server.as_ref().unwrap_or(&self.server)
    }

    /// The servers' names, for a report.
    pub(super) fn named(&self) -> String {
        match &self.watch_server {
            Some(watched) => format!("{} written to, {watched} watched", self.server),
            None => self.server.to_string(),
        }
    }
}
