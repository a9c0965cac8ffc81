//! The lifecycle service's calls: a call's headers and deadline, then the authority.

use tonic::{Request, Response, Status};

use super::runs::call;
use crate::authority::{Authority, AuthoritySlot, Call};
use crate::wire::served::lifecycle_service_server::LifecycleService;
use runledger_proto::v1;

/// The lifecycle service.
pub(super) struct Lifecycles {
    slot: AuthoritySlot,
}

impl Lifecycles {
    pub(super) fn new(slot: AuthoritySlot) -> Self {
        Self { slot }
    }

    /// The call, once its namespace is found to be there.
    async fn open<M>(&self, request: Request<M>) -> Result<(&Authority, Call<M>), Status> {
        let authority = self.slot.ready()?;
        let (call, _) = call(request);
        authority.enter(&call.caller).await?;
        Ok((authority, call))
    }
}

#[tonic::async_trait]
impl LifecycleService for Lifecycles {
    async fn put_lifecycle(
        &self,
        request: Request<v1::PutLifecycleRequest>,
    ) -> Result<Response<v1::PutLifecycleResponse>, Status> {
        let (authority, call) = self.open(request).await?;
        Ok(Response::new(authority.put_lifecycle(call).await?))
    }

    async fn get_lifecycle(
        &self,
        request: Request<v1::GetLifecycleRequest>,
    ) -> Result<Response<v1::GetLifecycleResponse>, Status> {
        let (authority, call) = self.open(request).await?;
        Ok(Response::new(authority.get_lifecycle(call).await?))
    }

    async fn list_lifecycles(
        &self,
        request: Request<v1::ListLifecyclesRequest>,
    ) -> Result<Response<v1::ListLifecyclesResponse>, Status> {
        let (authority, call) = self.open(request).await?;
        Ok(Response::new(authority.list_lifecycles(call).await?))
    }
}
