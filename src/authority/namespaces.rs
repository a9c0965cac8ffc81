//! The calls about namespaces, and the wall: whether a call's namespace is there.

use super::{Authority, Call, unlisted};
use crate::auth::Caller;
use crate::domain::{NamespaceCommand, NamespaceDecision, NamespaceRecord, Violation};
use crate::store::ChangeError;
use crate::telemetry::chain;
use crate::wire::namespace;
use crate::wire::problem::{self, Problem};
use runledger_proto::v1;

/// What a call wants of the namespace that its request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    /// To read it.
    Know,
    /// To make, change or delete it.
    Govern,
}

/// Whether the caller may have it: without identity, everybody may. The one place where the calls of this service ask.
#[expect(clippy::unnecessary_wraps, reason = "whoever proves callers refuses some of them here")]
fn permit(_caller: &Caller, _wants: Wants, _namespace: &str) -> Result<(), Problem> {
    Ok(())
}

impl Authority {
    /// Whether a call's namespace is there: asked once for every call on runs, before its request is looked at.
    ///
    /// # Errors
    ///
    /// It is not, or nobody knows.
    pub async fn enter(&self, caller: &Caller) -> Result<(), Problem> {
        let namespace = &caller.namespace;
        match self.namespaces.has(namespace).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(problem::namespace_not_found(namespace)),
            Err(error) => Err(unlisted("a call's namespace", namespace, &error)),
        }
    }

    /// Answers a `CreateNamespace`.
    ///
    /// # Errors
    ///
    /// The namespace was not made, or nobody knows.
    pub async fn create_namespace(
        &self,
        call: Call<v1::CreateNamespaceRequest>,
    ) -> Result<v1::CreateNamespaceResponse, Problem> {
        let (namespace, disposition) = self.change(&call.caller, namespace::create(call.message)).await?;
        Ok(v1::CreateNamespaceResponse { namespace, disposition: disposition.into() })
    }

    /// Answers an `UpdateNamespace`.
    ///
    /// # Errors
    ///
    /// The namespace was not changed, or nobody knows.
    pub async fn update_namespace(
        &self,
        call: Call<v1::UpdateNamespaceRequest>,
    ) -> Result<v1::UpdateNamespaceResponse, Problem> {
        let (namespace, disposition) = self.change(&call.caller, namespace::update(call.message)).await?;
        Ok(v1::UpdateNamespaceResponse { namespace, disposition: disposition.into() })
    }

    /// Answers a `DeleteNamespace`.
    ///
    /// # Errors
    ///
    /// The namespace was not deleted, or nobody knows.
    pub async fn delete_namespace(
        &self,
        call: Call<v1::DeleteNamespaceRequest>,
    ) -> Result<v1::DeleteNamespaceResponse, Problem> {
        self.change(&call.caller, namespace::delete(&call.message)).await?;
        Ok(v1::DeleteNamespaceResponse {})
    }

    /// Answers a `GetNamespace`.
    ///
    /// # Errors
    ///
    /// There is no such namespace, or it cannot be read.
    pub async fn get_namespace(
        &self,
        call: Call<v1::GetNamespaceRequest>,
    ) -> Result<v1::GetNamespaceResponse, Problem> {
        let name = namespace::name(&call.message.name).map_err(problem::invalid)?;
        permit(&call.caller, Wants::Know, &name)?;
        let found = self.store.namespaces(std::slice::from_ref(&name)).await;
        let found = found.map_err(|error| unlisted("GetNamespace", &name, &error))?;
        let record = found.first().ok_or_else(|| problem::namespace_not_found(&name))?;
        Ok(v1::GetNamespaceResponse { namespace: Some(record.into()) })
    }

    /// Answers a `ListNamespaces`. A namespace that the caller may not know is left out, so a page may be short, or
    /// empty, although another one follows.
    ///
    /// # Errors
    ///
    /// The namespaces cannot be read.
    pub async fn list_namespaces(
        &self,
        call: Call<v1::ListNamespacesRequest>,
    ) -> Result<v1::ListNamespacesResponse, Problem> {
        let limit = namespace::list(&call.message).map_err(problem::invalid)?;
        let after = namespace::after(&call.message.page_token).map_err(problem::page_token_invalid)?;
        // One more than wanted tells whether there are more.
        let found = self.store.list_namespaces(after, limit + 1).await;
        let mut found = found.map_err(|error| unlisted("ListNamespaces", &call.caller.namespace, &error))?;
        let has_more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().filter(|_| has_more);
        let next_page_token = last.map(|record| record.name.to_string()).unwrap_or_default();
        let may_know = |record: &&NamespaceRecord| permit(&call.caller, Wants::Know, &record.name).is_ok();
        let namespaces = found.iter().filter(may_know).map(v1::Namespace::from).collect();
        Ok(v1::ListNamespacesResponse { namespaces, next_page_token })
    }

    async fn change(
        &self,
        caller: &Caller,
        command: Result<NamespaceCommand, Vec<Violation>>,
    ) -> Result<(Option<v1::Namespace>, v1::Disposition), Problem> {
        let command = command.map_err(problem::invalid)?;
        let name = &command.name;
        permit(caller, Wants::Govern, name)?;
        match self.store.change_namespace(&command).await {
            Ok(NamespaceDecision::Create(record) | NamespaceDecision::Update(record)) => {
                Ok((Some((&record).into()), v1::Disposition::Applied))
            }
            Ok(NamespaceDecision::Unchanged(record)) => Ok((Some((&record).into()), v1::Disposition::Unchanged)),
            Ok(NamespaceDecision::Delete) => {
                self.namespaces.forget(name);
                Ok((None, v1::Disposition::Applied))
            }
            Err(ChangeError::Refused(refusal)) => Err(problem::namespace_refusal(name, &refusal)),
            Err(ChangeError::NotApplied(error)) => Err(unlisted("a change of a namespace", name, &error)),
            Err(ChangeError::Unknown(error)) => {
                let namespace = name.as_str();
                tracing::warn!(namespace, error = chain(&error), "a change of a namespace was not confirmed");
                Err(problem::outcome_unknown(true))
            }
        }
    }
}
