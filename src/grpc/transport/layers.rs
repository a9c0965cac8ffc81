//! What a call passes behind the listener, from its headers to its answer.
//!
//! Each layer is a value that knows what it needs and passes a call to what is behind it. The layers down to the limits of the
//! caller know a call by its headers alone and keep no task's memory for it, so that a flood can be refused: whom they
//! refuse, nothing behind them has seen, nothing was decoded, and nothing was written.

mod admitted;
mod answered;
mod caller_limits;
mod counted;
mod deadline;
mod gate;
mod measured;
mod passing;
mod received;
mod rules;
mod traced;
mod turn;

use std::sync::Arc;

use http::Request;
use tower::ServiceBuilder;

use self::answered::Answers;
use self::caller_limits::Limiting;
use self::counted::Counting;
use self::gate::Entrance;
use self::measured::Measuring;
pub(super) use self::passing::{Answering, Executing};
use self::passing::{ByFunction, Nothing, Passing};
use self::rules::Rules;
use super::peer::Peer;
use super::request::{Message, RequestBody};
use super::stall::StreamTasks;
use crate::auth::Gate;

/// The layers of one connection's calls, around the services that answer them.
pub(super) fn around<B: RequestBody>(
    services: impl Executing<Request<Message<B>>>,
    gate: Arc<Gate>,
    peer: &Arc<Peer>,
    streams: StreamTasks,
) -> impl Answering<Request<B>, B> {
    ServiceBuilder::new()
        .layer(Passing(Measuring))
        .layer(Passing(Counting(peer.clone())))
        .layer(Passing(Rules(peer.clone())))
        .layer(Passing(Entrance { gate, peer: peer.clone() }))
        .layer(Passing(Limiting(peer.clone())))
        .layer(Passing(Answers { peer: peer.clone(), streams }))
        .layer(Passing(ByFunction(Nothing, deadline::layer)))
        .layer(Passing(ByFunction(Nothing, traced::layer)))
        .layer(Passing(ByFunction(Nothing, admitted::layer)))
        .layer(Passing(ByFunction(peer.clone(), received::layer)))
        .layer(Passing(ByFunction(peer.clone(), turn::layer)))
        .service(services)
}

#[cfg(test)]
mod tests;
