//! What a call passes behind the listener, from its headers to its answer.
//!
//! Each layer is a function of what it knows, of a call, and of what is behind it. The layers down to the limits of the
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
use self::gate::Entrance;
pub(super) use self::passing::{Answering, Executing};
use self::passing::{Nothing, passing};
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
        .layer(passing(Nothing, measured::layer))
        .layer(passing(peer.clone(), counted::layer))
        .layer(passing(peer.clone(), rules::layer))
        .layer(passing(Entrance { gate, peer: peer.clone() }, gate::layer))
        .layer(passing(peer.clone(), caller_limits::layer))
        .layer(passing(Answers { peer: peer.clone(), streams }, answered::layer))
        .layer(passing(Nothing, deadline::layer))
        .layer(passing(Nothing, traced::layer))
        .layer(passing(Nothing, admitted::layer))
        .layer(passing(peer.clone(), received::layer))
        .layer(passing(peer.clone(), turn::layer))
        .service(services)
}

#[cfg(test)]
mod tests;
