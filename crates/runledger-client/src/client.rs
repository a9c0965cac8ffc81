//! Calls to a server, over a connection that is made anew after each cut.

use std::time::Duration;

use runledger_proto::v1::replica_service_client::ReplicaServiceClient;
use runledger_proto::{headers, v1};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::metadata::{AsciiMetadataValue, BinaryMetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};

use crate::backoff::Backoff;
use crate::calls::{Call, Wire};
use crate::failure::{Failure, Kind};
use crate::follow::Watch;

/// Interval at which a silent connection is asked whether it is still there, and the time that it has for its answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Time that a watch may take to connect and to be accepted.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(10);

/// Time that a connection to one of several servers may take, before the next server is tried.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(3);

/// Calls a ledger's servers, one at a time: the first, until it does not serve; then the next. Connects at its first
/// call, and anew after each cut.
#[derive(Clone, Debug)]
pub struct Client {
    servers: Vec<Server>,
    /// The index of the server that is called.
    current: usize,
    agent: Option<Agent>,
    wire: Option<Wire>,
}

#[derive(Clone, Debug)]
struct Server {
    address: String,
    endpoint: Endpoint,
}

/// The acting agent, in the header that its name fits.
#[derive(Clone, Debug)]
enum Agent {
    Visible(AsciiMetadataValue),
    Any(BinaryMetadataValue),
}

impl Client {
    /// A client of servers (`HOST:PORT`, or several with commas between them: replicas of one ledger) that acts for
    /// an agent, or for nobody.
    ///
    /// # Errors
    ///
    /// The text is not a server's address.
    pub fn new(servers: &str, agent_id: Option<&str>) -> Result<Self, Failure> {
        let servers = servers.split(',').map(|address| {
            let endpoint = Endpoint::from_shared(format!("http://{address}"))
                .map_err(|error| Failure::unreachable(address, &error))?
                .tcp_nodelay(true)
                .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
                .keep_alive_timeout(KEEPALIVE_WAIT_MAX);
            Ok(Server { address: address.to_owned(), endpoint })
        });
        let agent = agent_id.map(|id| match AsciiMetadataValue::try_from(id) {
            Ok(value) if id.bytes().all(|byte| byte.is_ascii_graphic()) => Agent::Visible(value),
            Ok(_) | Err(_) => Agent::Any(BinaryMetadataValue::from_bytes(id.as_bytes())),
        });
        Ok(Self { servers: servers.collect::<Result<_, Failure>>()?, current: 0, agent, wire: None })
    }

    /// The servers, as they were given.
    #[must_use]
    pub fn servers(&self) -> String {
        self.servers.iter().map(|server| server.address.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Makes a call and waits for the answer until the deadline.
    ///
    /// A mutation whose outcome stayed open is sent again, the same, until the outcome is known: it must have a
    /// `request_id`, so that it cannot apply twice. A call that a server did not serve is made at the others, each
    /// once. No other call is made again.
    ///
    /// # Errors
    ///
    /// There is no answer. Where an earlier attempt may have been applied, the failure of that attempt is given, even
    /// when a later one failed too.
    pub async fn ask<C: Call>(&mut self, call: &C, deadline: Instant) -> Result<C::Answer, Failure> {
        let mut open = None;
        let mut backoff = Backoff::default();
        let mut others = self.servers.len() - 1;
        loop {
            match self.once(call, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(failure) if C::MUTATES && failure.is_open() => open = Some(failure),
                Err(failure) if failure.kind == Kind::Unreachable && others > 0 && Instant::now() < deadline => {
                    others -= 1;
                    continue;
                }
                Err(failure) if open.is_none() || failure.kind == Kind::Refused => return Err(failure),
                Err(_also_failed) => {}
            }
            let wait = backoff.next_wait();
            match open.take() {
                Some(failure) if Instant::now() + wait >= deadline => return Err(failure),
                failure => open = failure,
            }
            others = self.servers.len() - 1;
            sleep(wait).await;
        }
    }

    /// The state of the server's process.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub async fn replica(&self, deadline: Instant) -> Result<v1::GetReplicaResponse, Failure> {
        let channel = self.connected(deadline).await?;
        let mut replica = ReplicaServiceClient::new(channel);
        match timeout_at(deadline, replica.get_replica(v1::GetReplicaRequest {})).await {
            Ok(answer) => answer.map(tonic::Response::into_inner).map_err(|status| Failure::from(&status)),
            Err(_elapsed) => Err(Failure::late()),
        }
    }

    async fn once<C: Call>(&mut self, call: &C, deadline: Instant) -> Result<C::Answer, Failure> {
        let mut request = self.request(call.clone());
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        let wire = self.wire(deadline).await?;
        let answer = match timeout_at(deadline, C::send(wire, request)).await {
            Ok(answer) => answer.map_err(|status| Failure::from(&status)),
            Err(_elapsed) => Err(Failure::late()),
        };
        self.settled(answer).map(tonic::Response::into_inner)
    }

    /// Opens a stream of frames, at the first server that serves it.
    pub(crate) async fn open<W: Watch>(&mut self, watch: &W) -> Result<Streaming<W::Frame>, Failure> {
        let mut others = self.servers.len() - 1;
        loop {
            match self.open_once(watch).await {
                Err(failure) if failure.kind == Kind::Unreachable && others > 0 => others -= 1,
                opened => return opened,
            }
        }
    }

    async fn open_once<W: Watch>(&mut self, watch: &W) -> Result<Streaming<W::Frame>, Failure> {
        let deadline = Instant::now() + OPEN_WAIT_MAX;
        // The call has no deadline: a deadline would end the stream.
        let request = self.request(watch.resume());
        let wire = self.wire(deadline).await?;
        let frames = match timeout_at(deadline, W::open(wire, request)).await {
            Ok(frames) => frames.map_err(|status| Failure::from(&status)),
            Err(_elapsed) => Err(Failure::late()),
        };
        self.settled(frames).map(tonic::Response::into_inner)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        match &self.agent {
            Some(Agent::Visible(id)) => drop(request.metadata_mut().insert(headers::AGENT_ID, id.clone())),
            Some(Agent::Any(id)) => drop(request.metadata_mut().insert_bin(headers::AGENT_ID_BIN, id.clone())),
            None => {}
        }
        request
    }

    /// The connection, made before a call and not by the call: so a server that is not there is told from a call that
    /// was cut.
    async fn wire(&mut self, deadline: Instant) -> Result<&mut Wire, Failure> {
        let wire = match self.wire.take() {
            Some(wire) => wire,
            None => match self.connected(deadline).await {
                Ok(channel) => Wire::new(channel),
                Err(failure) => {
                    self.disconnect();
                    return Err(failure);
                }
            },
        };
        Ok(self.wire.insert(wire))
    }

    async fn connected(&self, deadline: Instant) -> Result<Channel, Failure> {
        let Server { address, endpoint } = &self.servers[self.current];
        let several = self.servers.len() > 1;
        let deadline = if several { deadline.min(Instant::now() + CONNECT_WAIT_MAX) } else { deadline };
        match timeout_at(deadline, endpoint.connect()).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(error)) => Err(Failure::unreachable(address, &error)),
            Err(elapsed) => Err(Failure::unreachable(address, &elapsed)),
        }
    }

    /// Drops the connection. The next call makes a new one, to the next server.
    pub(crate) fn disconnect(&mut self) {
        self.wire = None;
        self.current = (self.current + 1) % self.servers.len();
    }

    /// Passes the answer on, and drops a connection on which a call was lost.
    fn settled<T>(&mut self, answer: Result<T, Failure>) -> Result<T, Failure> {
        if answer.as_ref().is_err_and(|failure| failure.kind != Kind::Refused) {
            self.disconnect();
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_goes_into_the_header_that_its_name_fits() {
        for (id, visible) in [("agent-7/x", true), ("agent 7", false), ("agént", false), ("a\n", false)] {
            let client = Client::new("127.0.0.1:1", Some(id)).unwrap();
            let request = client.request(());
            let metadata = request.metadata();
            assert_eq!(metadata.get(headers::AGENT_ID).is_some(), visible, "{id:?}");
            let any = metadata.get_bin(headers::AGENT_ID_BIN).map(|value| value.to_bytes().unwrap());
            assert_eq!(any.as_deref(), Some(id.as_bytes()).filter(|_| !visible));
        }
    }
}
