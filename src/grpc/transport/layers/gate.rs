//! Lets in the calls whose credential is good for their method. Whom it refuses, nothing behind it has seen, and nothing
//! was written.

use std::sync::Arc;

use http::{HeaderMap, Request, Response};
use runledger_proto::methods::Kind;
use tokio::time::timeout_at;
use tonic::Status;
use tonic::body::Body;

use super::super::answer::AnswerBody;
use super::super::begun::Begun;
use super::super::call::{Call, Deadlines, Entered};
use super::super::method::Method;
use super::super::peer::Peer;
use super::super::request::RequestBody;
use super::passing::{Answering, Pass};
use crate::auth::Gate;
use crate::auth::gate::{Certificate, Denied, GatedCall, Looked};
use crate::wire::problem;

/// The gate, as the calls of one connection come to it.
#[derive(Clone)]
pub(super) struct Entrance {
    pub(super) gate: Arc<Gate>,
    pub(super) peer: Arc<Peer>,
}

impl<B: RequestBody, N: Answering<Entered<B>, B>> Pass<Call<B>, N> for Entrance {
    type Answer = Response<AnswerBody>;
    type Future = Begun<B>;

    fn pass(&self, call: Call<B>, next: &mut N) -> Begun<B> {
        match self.gate.look(self.asked(call.method, call.request.headers())) {
            Looked::Admitted(admitted) => next.call(Entered { call, admitted: Arc::new(*admitted) }),
            Looked::Denied(denied) => {
                let refused = self.denied(denied, call.method);
                call.refused(refused)
            }
            Looked::Unproven => Begun::Proving(Box::pin(prove(self.clone(), call, next.clone()))),
        }
    }
}

/// Waits until a call's signed token is verified.
async fn prove<B, N: Answering<Entered<B>, B>>(
    entrance: Entrance,
    Call { request, method, deadlines, open }: Call<B>,
    mut next: N,
) -> Begun<B> {
    let (head, body) = request.into_parts();
    let proving = entrance.gate.prove(entrance.asked(method, &head.headers), entrance.peer.connection_key());
    let proved = match deadlines {
        None => Ok(proving.await),
        Some(Deadlines { around, .. }) => timeout_at(around, proving).await,
    };
    let call = Call { request: Request::from_parts(head, body), method, deadlines, open };
    match proved {
        Ok(Ok(admitted)) => next.call(Entered { call, admitted: Arc::new(admitted) }),
        Ok(Err(denied)) => call.refused(entrance.denied(denied, method)),
        Err(_elapsed) => call.refused(Status::from(problem::deadline()).into_http()),
    }
}

impl Entrance {
    fn asked<'a>(&'a self, method: Method, headers: &'a HeaderMap) -> GatedCall<'a> {
        let shown = self.peer.certificate();
        let certificate = shown.map(|shown| Certificate { name: &shown.name, issuer: &shown.issuer });
        GatedCall {
            access: method.access,
            headers,
            certificate,
            lasts: matches!(method.kind, Kind::Wait | Kind::Watch),
        }
    }

    /// The answer to a call that does not pass.
    fn denied(&self, denied: Denied, method: Method) -> Response<Body> {
        let is_denied = !matches!(denied, Denied::Headers(_) | Denied::Busy);
        let refused = Status::from(problem::denied(denied));
        if is_denied {
            self.peer.tell_denied(method.named.1, refused.message());
        }
        refused.into_http()
    }
}
