//! The calls about namespaces, and the wall: whether a call's namespace is there.

use std::collections::BTreeSet;

use super::{Authority, Call, unlisted};
use crate::auth::{Access, Caller};
use crate::domain::{
    Namespace, NamespaceAsk, NamespaceCommand, NamespaceDecision, NamespaceRecord, Pattern, Violation,
};
use crate::feed::cursor::Cursor;
use crate::store::{ChangeError, StoreError};
use crate::telemetry::chain;
use crate::wire::cursor::{self, CursorInvalid};
use crate::wire::from_domain::{FromDomain as _, IntoMessage as _};
use crate::wire::problem::{self, Problem};
use crate::wire::{namespace, page_token};
use runledger_proto::v1;

/// Whether the caller may have the namespace that its request names. The answer is the same where there is none.
fn permit(caller: &Caller, access: Access, namespace: &str) -> Result<(), Problem> {
    caller.rights.allow(access, namespace).map_err(problem::lacking)
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

    /// Answers a `NoteExported`.
    ///
    /// # Errors
    ///
    /// There is no such namespace, the cursor leads nowhere there, or nothing was noted.
    pub async fn note_exported(
        &self,
        call: Call<v1::NoteExportedRequest>,
    ) -> Result<v1::NoteExportedResponse, Problem> {
        let name = namespace::name(&call.message.name).map_err(problem::invalid)?;
        permit(&call.caller, Access::Export, &name)?;
        let failed = |error| unlisted("NoteExported", &name, &error);
        if !self.namespaces.has(&name).await.map_err(failed)? {
            return Err(problem::namespace_not_found(&name));
        }
        self.knows(cursor::epoch(&call.message.cursor, &self.seals, &name)).await.map_err(failed)?;
        let cursor = cursor::decode(&call.message.cursor, &self.seals, self.store.ledger(), &name);
        let Cursor { positions, view, .. } = cursor.map_err(problem::cursor_invalid)?;
        let ends = self.store.ends().await.map_err(failed)?;
        if view.is_some() || !ends.reaches(&positions) {
            return Err(problem::cursor_invalid(CursorInvalid));
        }
        self.store.note_exported(&name, &positions).await.map_err(failed)?;
        Ok(v1::NoteExportedResponse {})
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
        permit(&call.caller, Access::Know, &name)?;
        let found = self.store.namespaces(std::slice::from_ref(&name)).await;
        let found = found.map_err(|error| unlisted("GetNamespace", &name, &error))?;
        let record = found.first().ok_or_else(|| problem::namespace_not_found(&name))?;
        Ok(v1::GetNamespaceResponse { namespace: Some(record.into_message()) })
    }

    /// Answers a `ListNamespaces`, with those that the caller may know.
    ///
    /// # Errors
    ///
    /// The namespaces cannot be read.
    pub async fn list_namespaces(
        &self,
        call: Call<v1::ListNamespacesRequest>,
    ) -> Result<v1::ListNamespacesResponse, Problem> {
        let _turn = self.turns.short(call.key).await?;
        let limit = namespace::list(&call.message).map_err(problem::invalid)?;
        let after =
            page_token::namespace(&call.message.page_token, &self.seals).map_err(problem::page_token_invalid)?;
        let known = self.known(&call.caller, &after, limit + 1).await;
        let mut known = known.map_err(|error| unlisted("ListNamespaces", &call.caller.namespace, &error))?;
        let has_more = known.len() > limit;
        known.truncate(limit);
        let last = known.last().filter(|_| has_more);
        let next_page_token =
            last.map(|record| page_token::after_namespace(&record.name, &self.seals)).unwrap_or_default();
        Ok(v1::ListNamespacesResponse {
            namespaces: known.iter().map(v1::Namespace::from_domain).collect(),
            next_page_token,
        })
    }

    /// The first namespaces after a name that a caller may know, by name. Others are not read: neither the answer nor
    /// its time tells of them.
    async fn known(&self, caller: &Caller, after: &str, limit: usize) -> Result<Vec<NamespaceRecord>, StoreError> {
        let (mut known, mut named, mut prefixes) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for pattern in caller.rights.namespaces(Access::Know) {
            match pattern {
                Pattern::Exact(name) => drop(named.insert(Namespace::from(name.as_str()))),
                Pattern::Prefix(prefix) => drop(prefixes.insert(prefix)),
                Pattern::Any => drop(prefixes.insert(String::new())),
            }
        }
        for prefix in prefixes {
            known.extend(self.store.list_namespaces(&prefix, after, limit).await?);
        }
        let named: Vec<Namespace> = named.into_iter().filter(|name| name.as_str() > after).collect();
        if !named.is_empty() {
            known.extend(self.store.namespaces(&named).await?);
        }
        known.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        known.dedup_by(|a, b| a.name == b.name);
        Ok(known)
    }

    async fn change(
        &self,
        caller: &Caller,
        command: Result<NamespaceCommand, Vec<Violation>>,
    ) -> Result<(Option<v1::Namespace>, v1::Disposition), Problem> {
        let command = command.map_err(problem::invalid)?;
        let name = &command.name;
        match &command.ask {
            // The gate asked for what these take: the right to govern.
            NamespaceAsk::Create(_) | NamespaceAsk::Delete => {}
            NamespaceAsk::Update { max_active_runs, max_stored_bytes, .. } => {
                permit(caller, Access::Settle, name)?;
                // Whoever is bounded by a quota does not lift it.
                if max_active_runs.is_some() || max_stored_bytes.is_some() {
                    caller.rights.allow_everywhere(Access::Govern).map_err(problem::lacking)?;
                }
            }
        }
        match self.store.change_namespace(&command).await {
            Ok(NamespaceDecision::Create(record) | NamespaceDecision::Update(record)) => {
                let subject = caller.principal.identity.as_ref().map(|proven| &*proven.subject);
                let (namespace, settings) = (name.as_str(), &record.settings);
                tracing::info!(namespace, subject, retention = ?settings.retention, quotas = ?settings.quotas, "a namespace was set");
                Ok((Some((&record).into_message()), v1::Disposition::Applied))
            }
            Ok(NamespaceDecision::Unchanged(record)) => {
                Ok((Some((&record).into_message()), v1::Disposition::Unchanged))
            }
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
