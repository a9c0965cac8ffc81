//! The namespace service's calls: a call's headers and deadline, then the authority.

use tonic::{Request, Response, Status};

use super::runs::call;
use crate::authority::AuthoritySlot;
use crate::wire::served::namespace_service_server::NamespaceService;
use runledger_proto::v1;

/// The namespace service.
pub(super) struct Namespaces {
    slot: AuthoritySlot,
}

impl Namespaces {
    pub(super) fn new(slot: AuthoritySlot) -> Self {
        Self { slot }
    }
}

#[tonic::async_trait]
impl NamespaceService for Namespaces {
    async fn create_namespace(
        &self,
        request: Request<v1::CreateNamespaceRequest>,
    ) -> Result<Response<v1::CreateNamespaceResponse>, Status> {
        let authority = self.slot.ready()?;
        Ok(Response::new(authority.create_namespace(call(request).0).await?))
    }

    async fn get_namespace(
        &self,
        request: Request<v1::GetNamespaceRequest>,
    ) -> Result<Response<v1::GetNamespaceResponse>, Status> {
        let authority = self.slot.ready()?;
        Ok(Response::new(authority.get_namespace(call(request).0).await?))
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesResponse>, Status> {
        let authority = self.slot.ready()?;
        Ok(Response::new(authority.list_namespaces(call(request).0).await?))
    }

    async fn update_namespace(
        &self,
        request: Request<v1::UpdateNamespaceRequest>,
    ) -> Result<Response<v1::UpdateNamespaceResponse>, Status> {
        let authority = self.slot.ready()?;
        Ok(Response::new(authority.update_namespace(call(request).0).await?))
    }

    async fn note_exported(
        &self,
        request: Request<v1::NoteExportedRequest>,
    ) -> Result<Response<v1::NoteExportedResponse>, Status> {
        let authority = self.slot.ready()?;
        Ok(Response::new(authority.note_exported(call(request).0).await?))
    }

    async fn delete_namespace(
        &self,
        request: Request<v1::DeleteNamespaceRequest>,
    ) -> Result<Response<v1::DeleteNamespaceResponse>, Status> {
        let authority = self.slot.ready()?;
        Ok(Response::new(authority.delete_namespace(call(request).0).await?))
    }
}
