//! A call, at each step from its headers to its execution. A step's type says what is known by then, so that no layer can
//! stand before the one that it builds on.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use runledger_proto::methods::Kind;
use tokio::time::Instant;

use super::begun::Begun;
use super::measured::Measured;
use super::method::Method;
use super::peer::{Open, Peer, Refused};
use super::request::Message;
use crate::auth::gate::Admitted;
use crate::domain::TraceContext;
use crate::telemetry::traces::CallTrace;

/// A call whose headers have come.
#[derive(Debug)]
pub(super) struct Arrived<B = Incoming> {
    pub(super) request: Request<B>,
    pub(super) method: Method,
    pub(super) at: Instant,
    pub(super) measured: Measured,
}

/// A call that was counted. Whether there is room for it is told after the rules: whoever breaks them learns of that.
#[derive(Debug)]
pub(super) struct Counted<B = Incoming> {
    pub(super) call: Arrived<B>,
    pub(super) open: Result<Open, Refused>,
}

/// The times by which a call is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// For the handler, which knows whether anything was written.
    pub(super) handler: Instant,
    /// For the code around the handler, a little later.
    pub(super) around: Instant,
}

/// A call that keeps the rules of its protocol, and for which there is room.
#[derive(Debug)]
pub(super) struct Call<B = Incoming> {
    pub(super) request: Request<B>,
    pub(super) method: Method,
    pub(super) deadlines: Option<Deadlines>,
    pub(super) open: Open,
}

impl<B> Call<B> {
    /// Ends the call by a refusal.
    pub(super) fn refused(self, answer: Response<tonic::body::Body>) -> Begun<B> {
        Begun::refused(answer, self.open.over(), self.request.into_body())
    }
}

/// A call that the gate has let in.
#[derive(Debug)]
pub(super) struct Entered<B = Incoming> {
    pub(super) call: Call<B>,
    pub(super) admitted: Arc<Admitted>,
}

/// A call that is to be executed.
#[derive(Debug)]
pub(super) struct Execution<B = Incoming> {
    pub(super) request: Request<B>,
    pub(super) kind: Kind,
    pub(super) deadlines: Option<Deadlines>,
    pub(super) admitted: Arc<Admitted>,
    pub(super) trace: Option<Box<CallTrace>>,
}

/// A call whose request has come.
#[derive(Debug)]
pub(super) struct Received<B = Incoming> {
    pub(super) request: Request<Message<B>>,
    pub(super) kind: Kind,
}

/// The value that a handler finds among its request's extensions.
#[derive(Clone, Debug)]
pub(in crate::grpc) struct Context {
    /// The time at which the caller stops waiting, a little early: the answer has to travel.
    pub(in crate::grpc) deadline: Option<Instant>,
    /// The connection.
    pub(in crate::grpc) peer: Arc<Peer>,
    /// The caller, as the gate let it in.
    pub(in crate::grpc) admitted: Arc<Admitted>,
    /// The call's place in a trace.
    pub(in crate::grpc) trace: Option<TraceContext>,
}
