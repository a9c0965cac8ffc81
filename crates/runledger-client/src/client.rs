//! Calls to a server, over a connection that is made anew after each cut.

use std::time::Duration;

use runledger_proto::methods::Unary;
use runledger_proto::v1;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::backoff::Backoff;
use crate::builder::{Builder, Unusable};
use crate::caller::Caller;
use crate::calls::{self, Wire};
use crate::connector::{Beginnings, Route};
use crate::failure::{Failure, Kind};
use crate::follow::Watch;
use crate::server_address::ServerAddress;

/// Time that a watch may take to connect and to be accepted, where nothing else is said.
pub(crate) const OPEN_WAIT_MAX: Duration = Duration::from_secs(10);

/// Time that a connection to one of several servers may take, before the next server is tried.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(3);

/// Times that one call is made again because its connection ended in an orderly way as the call was sent.
const RACES_MAX: u32 = 5;

/// Calls a ledger's servers, one at a time: the first, until it does not serve; then the next. Connects at its first
/// call, and anew after each cut.
///
/// A server with which there is a [`Fault`](crate::Fault), such as a certificate of an unknown CA, fails the call at
/// once: somebody may sit in its place, and going on at another server would hide that. Nothing was sent to it, and the
/// next call goes to the next server.
#[derive(Clone, Debug)]
pub struct Client {
    routes: Vec<Route>,
    /// The index of the server that is called.
    current: usize,
    caller: Caller,
    open_wait_max: Duration,
    /// Whether a server has accepted this client's calls before.
    was_accepted: bool,
    wire: Option<(Wire, Beginnings)>,
}

impl Client {
    /// A client of servers (`HOST:PORT`, or several with commas between them: replicas of one ledger) that acts for
    /// an agent, or for nobody. [`Client::builder`] makes one with TLS, a token or a namespace.
    ///
    /// # Errors
    ///
    /// The text is not a server's address.
    pub fn new(servers: &str, agent_id: Option<&str>) -> Result<Self, Failure> {
        let addresses = ServerAddress::several(servers);
        let addresses = addresses.map_err(|expected| Unusable::Address { text: servers.to_owned(), expected })?;
        let builder = Self::builder(addresses);
        Ok(match agent_id {
            Some(id) => builder.agent_id(id),
            None => builder,
        }
        .build()?)
    }

    /// A client of servers, replicas of one ledger, whose other settings follow.
    #[must_use]
    pub fn builder(servers: impl IntoIterator<Item = ServerAddress>) -> Builder {
        Builder::new(servers.into_iter().collect())
    }

    pub(crate) fn of(routes: Vec<Route>, caller: Caller, open_wait_max: Duration) -> Self {
        Self { routes, current: 0, caller, open_wait_max, was_accepted: false, wire: None }
    }

    /// The servers, as they were given.
    #[must_use]
    pub fn servers(&self) -> String {
        self.routes.iter().map(|route| route.address.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Who calls: an interceptor for calls by a generated client over [`Client::channel`].
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// A connection of its own to the server that would be called next, for calls by a generated client.
    ///
    /// # Errors
    ///
    /// There is no connection.
    pub async fn channel(&self, deadline: Instant) -> Result<Channel, Failure> {
        Ok(self.connected(deadline).await?.0)
    }

    /// Whether a refusal stands, however often the call is made: all do but that of a token which a server accepted
    /// before, and in whose file a new one may come.
    pub(crate) fn is_refused_for_good(&self, failure: &Failure) -> bool {
        let may_change = || self.caller.token.as_ref().is_some_and(|token| token.file().is_some());
        failure.kind == Kind::Refused && !(failure.is_unauthenticated() && self.was_accepted && may_change())
    }

    /// Makes a call and waits for the answer until the deadline.
    ///
    /// A call whose outcome stayed open is sent again, the same, until the outcome is known, if it has a
    /// `request_id`, so that it cannot apply twice. A call that a server did not serve is made at the others, each
    /// once. A call that is [safe to repeat](Unary::is_repeatable) is made again when its connection ended in an orderly
    /// way just then. A call whose token was not accepted is made again once, where the token's file has another token
    /// by now. No other call is made again.
    ///
    /// # Errors
    ///
    /// There is no answer. Where an earlier attempt may have been applied, the failure of that attempt is given, even
    /// when a later one failed too.
    pub async fn ask<C: Unary>(&mut self, call: &C, deadline: Instant) -> Result<C::Answer, Failure> {
        self.asked(call, deadline, call.has_request_id()).await
    }

    /// Makes a call as [`Client::ask`] does, but for the repetition of a call whose outcome stayed open: that is left to
    /// a caller who has a pace of its own, or something to tell in between.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub async fn attempt<C: Unary>(&mut self, call: &C, deadline: Instant) -> Result<C::Answer, Failure> {
        self.asked(call, deadline, false).await
    }

    async fn asked<C: Unary>(&mut self, call: &C, deadline: Instant, until_known: bool) -> Result<C::Answer, Failure> {
        let mut open = None;
        let mut backoff = Backoff::default();
        let mut others = self.routes.len() - 1;
        let mut races = 0;
        let is_repeatable = call.is_repeatable();
        loop {
            match self.once(call, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(failure)
                    if failure.met_goaway && is_repeatable && races < RACES_MAX && Instant::now() < deadline =>
                {
                    races += 1;
                    continue;
                }
                Err(failure) if until_known && failure.is_open() => open = Some(failure),
                Err(failure) if failure.lets_others_serve() && others > 0 && Instant::now() < deadline => {
                    others -= 1;
                    continue;
                }
                Err(mut failure) if open.is_none() || failure.kind == Kind::Refused => {
                    failure.is_after_open = open.is_some();
                    return Err(failure);
                }
                Err(_also_failed) => {}
            }
            let wait = backoff.next_wait();
            match open.take() {
                Some(failure) if Instant::now() + wait >= deadline => return Err(failure),
                failure => open = failure,
            }
            others = self.routes.len() - 1;
            sleep(wait).await;
        }
    }

    /// The state of the server's process.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub async fn replica(&self, deadline: Instant) -> Result<v1::GetReplicaResponse, Failure> {
        let (channel, beginnings) = self.connected(deadline).await?;
        let (request, _sent) = self.request(v1::GetReplicaRequest {});
        let answer = replied(deadline, calls::ask(&mut Grpc::new(channel), request)).await;
        answer.map(Response::into_inner).map_err(|failure| self.explained(failure, &beginnings))
    }

    async fn once<C: Unary>(&mut self, call: &C, deadline: Instant) -> Result<C::Answer, Failure> {
        let mut again = true;
        loop {
            let (mut request, sent) = self.request(call.clone());
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
            let (wire, _) = self.wire(deadline).await?;
            let answer = replied(deadline, Box::pin(calls::ask(wire, request))).await;
            match self.settled(answer) {
                Err(failure) if again && self.has_another_token(&failure, sent.as_ref()) => again = false,
                answer => return answer.map(Response::into_inner),
            }
        }
    }

    /// Opens a stream of frames, at the first server that serves it.
    pub(crate) async fn open<W: Watch>(&mut self, watch: &W) -> Result<Streaming<W::Frame>, Failure> {
        let mut others = self.routes.len() - 1;
        let mut races = 0;
        loop {
            match self.open_once(watch).await {
                Err(failure) if failure.met_goaway && races < RACES_MAX => races += 1,
                Err(failure) if failure.lets_others_serve() && others > 0 => others -= 1,
                opened => return opened,
            }
        }
    }

    async fn open_once<W: Watch>(&mut self, watch: &W) -> Result<Streaming<W::Frame>, Failure> {
        let deadline = Instant::now() + self.open_wait_max;
        let mut again = true;
        loop {
            // The call has no deadline: a deadline would end the stream.
            let (request, sent) = self.request(watch.resume());
            let (wire, _) = self.wire(deadline).await?;
            let frames = replied(deadline, Box::pin(calls::open(wire, request))).await;
            match self.settled(frames) {
                Err(failure) if again && self.has_another_token(&failure, sent.as_ref()) => again = false,
                frames => return frames.map(Response::into_inner),
            }
        }
    }

    fn request<T>(&self, message: T) -> (Request<T>, Option<AsciiMetadataValue>) {
        let mut request = Request::new(message);
        let sent = self.caller.sign(request.metadata_mut());
        (request, sent)
    }

    /// Whether a call was refused because of a token in whose place there is another one by now.
    fn has_another_token(&self, failure: &Failure, sent: Option<&AsciiMetadataValue>) -> bool {
        failure.is_unauthenticated()
            && self.caller.token.as_ref().zip(sent).is_some_and(|(token, sent)| token.has_changed(sent))
    }

    /// The connection, made before a call and not by the call: so a server that is not there is told from a call that
    /// was cut.
    async fn wire(&mut self, deadline: Instant) -> Result<&mut (Wire, Beginnings), Failure> {
        let wire = match self.wire.take() {
            Some(wire) => wire,
            None => match self.connected(deadline).await {
                Ok((channel, beginnings)) => (Grpc::new(channel), beginnings),
                Err(failure) => {
                    self.disconnect();
                    return Err(failure);
                }
            },
        };
        Ok(self.wire.insert(wire))
    }

    pub(crate) async fn connected(&self, deadline: Instant) -> Result<(Channel, Beginnings), Failure> {
        let route = &self.routes[self.current];
        let several = self.routes.len() > 1;
        let deadline = if several { deadline.min(Instant::now() + CONNECT_WAIT_MAX) } else { deadline };
        let beginnings = Beginnings::new();
        match timeout_at(deadline, Box::pin(route.connect(&beginnings))).await {
            Ok(Ok(channel)) => Ok((channel, beginnings)),
            Ok(Err(error)) => Err(match beginnings.fault() {
                Some(fault) => Failure::at_fault(&route.address, fault),
                None => Failure::unreachable(&route.address, &*error),
            }),
            Err(elapsed) => Err(Failure::unreachable(&route.address, &elapsed)),
        }
    }

    /// Drops the connection. The next call makes a new one, to the next server.
    pub(crate) fn disconnect(&mut self) {
        self.wire = None;
        self.current = (self.current + 1) % self.routes.len();
    }

    /// Passes the answer on, and drops a connection on which a call was lost.
    fn settled<T>(&mut self, answer: Result<T, Failure>) -> Result<T, Failure> {
        let answer = match (answer, &self.wire) {
            (Err(failure), Some((_, beginnings))) => Err(self.explained(failure, beginnings)),
            (answer, _) => answer,
        };
        match &answer {
            Ok(_) => self.was_accepted = true,
            Err(failure) if failure.kind != Kind::Refused => self.disconnect(),
            Err(_refused) => {}
        }
        answer
    }

    /// The failure with what this client knows of its cause.
    pub(crate) fn explained(&self, failure: Failure, beginnings: &Beginnings) -> Failure {
        match beginnings.fault() {
            Some(fault) if failure.is_of_the_way() => Failure::at_fault(&self.routes[self.current].address, fault),
            _ if failure.is_of_certificate() => failure,
            _ if failure.is_unauthenticated() => failure.because(&self.caller.refused_credential()),
            _ => failure,
        }
    }
}

/// The answer of a call, until the deadline.
async fn replied<T>(
    deadline: Instant,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Response<T>, Failure> {
    match timeout_at(deadline, call).await {
        Ok(answer) => answer.map_err(|status| Failure::from(&status)),
        Err(_elapsed) => Err(Failure::late()),
    }
}
