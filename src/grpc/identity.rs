//! The identity service: who a caller is. It needs neither the authority nor the store.

use tonic::{Request, Response, Status};

use super::handlers::call;
use crate::wire::identity;
use crate::wire::served::identity_service_server::IdentityService;
use runledger_proto::v1;

/// The identity service.
pub(super) struct Identities;

#[tonic::async_trait]
impl IdentityService for Identities {
    async fn who_am_i(&self, request: Request<v1::WhoAmIRequest>) -> Result<Response<v1::WhoAmIResponse>, Status> {
        Ok(Response::new(identity::who_am_i(&call(request).0.caller)))
    }
}
