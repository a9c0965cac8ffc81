//! The client's side of the wire: it makes calls, asks again where that is safe, and says what came of them.
//!
//! Nothing here prints or decides how the process ends.

mod calls;
pub mod failure;
pub mod follow;
pub mod json;

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tonic::metadata::{AsciiMetadataValue, BinaryMetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};

pub use self::calls::Call;
use self::calls::Wire;
pub use self::failure::{Failure, Kind};
use self::follow::Watch;
use crate::auth::{AGENT_ID_BIN_HEADER, AGENT_ID_HEADER};
use crate::domain::Time;
use crate::proto::v1;
use crate::proto::v1::replica_service_client::ReplicaServiceClient;

/// How often a silent connection is asked whether it is still there, and how long it may take to say so.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a watch may take to connect and to be accepted.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(10);

/// Calls one server. Connects at its first call, and anew after each cut.
#[derive(Clone, Debug)]
pub struct Client {
    server: String,
    endpoint: Endpoint,
    agent: Option<Agent>,
    wire: Option<Wire>,
}

/// The acting agent, in the header that its name fits.
#[derive(Clone, Debug)]
enum Agent {
    Visible(AsciiMetadataValue),
    Any(BinaryMetadataValue),
}

impl Client {
    /// A client of a server (HOST:PORT) that acts for an agent, or for nobody.
    ///
    /// # Errors
    ///
    /// What no server can be called.
    pub fn new(server: &str, agent_id: Option<&str>) -> Result<Self, Failure> {
        let endpoint = Endpoint::from_shared(format!("http://{server}"))
            .map_err(|error| Failure::unreachable(server, &error))?
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_WAIT_MAX);
        let agent = agent_id.map(|id| match AsciiMetadataValue::try_from(id) {
            Ok(value) if id.bytes().all(|byte| byte.is_ascii_graphic()) => Agent::Visible(value),
            Ok(_) | Err(_) => Agent::Any(BinaryMetadataValue::from_bytes(id.as_bytes())),
        });
        Ok(Self { server: server.to_owned(), endpoint, agent, wire: None })
    }

    /// The server that it calls.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Makes a call and waits for the answer until the deadline.
    ///
    /// A mutation whose outcome stayed open is sent again, the same, until it is known: it must have a `request_id`, so
    /// that it cannot apply twice. Nothing else is tried again.
    ///
    /// # Errors
    ///
    /// Why there is no answer. That a call may have been applied is not forgotten because a later attempt failed too.
    pub async fn ask<C: Call>(&mut self, call: &C, deadline: Instant) -> Result<C::Answer, Failure> {
        let mut open = None;
        let mut backoff = Backoff::default();
        loop {
            match self.once(call, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(failure) if C::MUTATES && failure.is_open() => open = Some(failure),
                Err(failure) if open.is_none() || failure.kind == Kind::Refused => return Err(failure),
                Err(_also_failed) => {}
            }
            let wait = backoff.next_wait();
            match open.take() {
                Some(failure) if Instant::now() + wait >= deadline => return Err(failure),
                failure => open = failure,
            }
            sleep(wait).await;
        }
    }

    /// What the server's process is doing.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn replica(&self, deadline: Instant) -> Result<v1::GetReplicaResponse, Failure> {
        let channel = self.connected(deadline).await?;
        let mut replica = ReplicaServiceClient::new(channel);
        match timeout_at(deadline, replica.get_replica(v1::GetReplicaRequest {})).await {
            Ok(answer) => answer.map(tonic::Response::into_inner).map_err(|status| Failure::of(&status)),
            Err(_elapsed) => Err(Failure::late()),
        }
    }

    async fn once<C: Call>(&mut self, call: &C, deadline: Instant) -> Result<C::Answer, Failure> {
        let mut request = self.request(call.clone());
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        let wire = self.wire(deadline).await?;
        let answer = match timeout_at(deadline, C::send(wire, request)).await {
            Ok(answer) => answer.map_err(|status| Failure::of(&status)),
            Err(_elapsed) => Err(Failure::late()),
        };
        self.settled(answer).map(tonic::Response::into_inner)
    }

    /// Opens a stream of frames.
    async fn open<W: Watch>(&mut self, watch: &W) -> Result<Streaming<W::Frame>, Failure> {
        let deadline = Instant::now() + OPEN_WAIT_MAX;
        // Without a deadline of its own: it would end the stream.
        let request = self.request(watch.resume());
        let wire = self.wire(deadline).await?;
        let frames = match timeout_at(deadline, W::open(wire, request)).await {
            Ok(frames) => frames.map_err(|status| Failure::of(&status)),
            Err(_elapsed) => Err(Failure::late()),
        };
        self.settled(frames).map(tonic::Response::into_inner)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        match &self.agent {
            Some(Agent::Visible(id)) => drop(request.metadata_mut().insert(AGENT_ID_HEADER, id.clone())),
            Some(Agent::Any(id)) => drop(request.metadata_mut().insert_bin(AGENT_ID_BIN_HEADER, id.clone())),
            None => {}
        }
        request
    }

    /// The connection. Made before a call, not by it: so a server that is not there is told from a call that was cut.
    async fn wire(&mut self, deadline: Instant) -> Result<&mut Wire, Failure> {
        let wire = match self.wire.take() {
            Some(wire) => wire,
            None => Wire::new(self.connected(deadline).await?),
        };
        Ok(self.wire.insert(wire))
    }

    async fn connected(&self, deadline: Instant) -> Result<Channel, Failure> {
        match timeout_at(deadline, self.endpoint.connect()).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(error)) => Err(Failure::unreachable(&self.server, &error)),
            Err(elapsed) => Err(Failure::unreachable(&self.server, &elapsed)),
        }
    }

    /// A connection on which a call was lost is not used again.
    fn settled<T>(&mut self, answer: Result<T, Failure>) -> Result<T, Failure> {
        if answer.as_ref().is_err_and(|failure| failure.kind != Kind::Refused) {
            self.wire = None;
        }
        answer
    }
}

/// How long to wait before the next attempt.
#[derive(Debug, Default)]
struct Backoff {
    attempts: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(5);

    fn next_wait(&mut self) -> Duration {
        let wait = Self::FIRST.saturating_mul(1 << self.attempts.min(10)).min(Self::MAX);
        self.attempts += 1;
        wait
    }
}

/// A time of the wire; none when it was not sent.
#[must_use]
pub fn time(timestamp: Option<&prost_types::Timestamp>) -> Option<Time> {
    let timestamp = timestamp?;
    Some(Time::from_micros(
        timestamp.seconds.saturating_mul(1_000_000).saturating_add(i64::from(timestamp.nanos) / 1_000),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_between_attempts_grow_and_stay_bounded() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..100).map(|_| backoff.next_wait()).collect();
        assert_eq!(waits[..3], [100, 200, 400].map(Duration::from_millis));
        assert!(waits.is_sorted() && waits[99] == Backoff::MAX);
    }

    #[test]
    fn a_time_of_the_wire_is_the_domains() {
        let timestamp = prost_types::Timestamp { seconds: -1, nanos: 999_999_000 };
        assert_eq!(time(Some(&timestamp)), Some(Time::from_micros(-1)));
        assert_eq!(time(None), None);
    }

    #[test]
    fn an_agent_goes_into_the_header_that_its_name_fits() {
        for (id, visible) in [("agent-7/x", true), ("agent 7", false), ("agént", false), ("a\n", false)] {
            let client = Client::new("127.0.0.1:1", Some(id)).unwrap();
            let request = client.request(());
            let metadata = request.metadata();
            assert_eq!(metadata.get(AGENT_ID_HEADER).is_some(), visible, "{id:?}");
            let caller = crate::auth::caller(metadata).unwrap();
            assert_eq!(caller.principal.agent_id.as_deref(), Some(id));
        }
    }
}
