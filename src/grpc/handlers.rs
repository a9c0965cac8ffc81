//! The services whose calls the authority answers. The build makes a handler for each of their methods: the call is opened,
//! its namespace is found to be there if it is one on runs or lifecycles, and the authority's function of the method's name
//! answers it.

use std::sync::Arc;

use http::Extensions;
use tonic::{Request, Response, Status};

use super::shared;
use super::transport::{Context, Peer};
use crate::authority::{Authority, AuthoritySlot, Call, Until};
use crate::wire::served;
use runledger_proto::v1;

/// The services of runs, lifecycles and namespaces.
pub(super) struct Handlers {
    slot: AuthoritySlot,
}

/// A call, the authority that is to answer it, and the connection that it came on.
type Opened<'a, M> = (&'a Authority, Call<M>, Arc<Peer>);

impl Handlers {
    pub(super) fn new(slot: AuthoritySlot) -> Self {
        Self { slot }
    }

    /// The call, as its request and its headers have it.
    fn open<M>(&self, request: Request<M>) -> Result<Opened<'_, M>, Status> {
        let authority = self.slot.ready()?;
        let (call, peer) = call(request);
        Ok((authority, call, peer))
    }
}

include!(concat!(env!("OUT_DIR"), "/handlers.rs"));

/// A call as its request and its headers have it, and the connection that it came on.
pub(super) fn call<M>(request: Request<M>) -> (Call<M>, Arc<Peer>) {
    let until = until(request.extensions());
    let context = request.extensions().get::<Context>().expect("the transport has put it there");
    let (caller, peer) = (context.admitted.caller.clone(), context.peer.clone());
    let (key, trace) = (peer.key(&caller), context.trace);
    (Call { caller, key, until, trace, message: request.into_inner() }, peer)
}

/// The end of a call, as the transport knows it.
pub(super) fn until(extensions: &Extensions) -> Until {
    let Some(Context { deadline, peer, admitted, .. }) = extensions.get::<Context>() else { return Until::never() };
    Until {
        deadline: *deadline,
        connection: Some(peer.end_of_streams()),
        credential: admitted.ends_at,
        session: admitted.session.clone(),
    }
}
