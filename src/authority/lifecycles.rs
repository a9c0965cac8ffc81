//! The calls about lifecycles, and the lifecycles that are built in.

use std::collections::BTreeMap;

use super::{Authority, Call, unlisted};
use crate::declaration;
use crate::domain::{
    Ask, Command, LifecycleId, LifecycleName, LifecycleRecord, Namespace, Principal, PutLifecycle, PutOutcome, Refusal,
    Start,
};
use crate::store::{ChangeError, StoreError};
use crate::telemetry::chain;
use crate::wire::from_domain::{FromDomain as _, IntoMessage};
use crate::wire::problem::{self, Problem};
use crate::wire::{lifecycle, page_token};
use runledger_proto::v1;

impl Authority {
    /// Answers a `PutLifecycle`.
    ///
    /// # Errors
    ///
    /// The lifecycle was not put, or nobody knows.
    pub async fn put_lifecycle(
        &self,
        call: Call<v1::PutLifecycleRequest>,
    ) -> Result<v1::PutLifecycleResponse, Problem> {
        let put = lifecycle::put(call.message, &call.caller).map_err(problem::invalid)?;
        let notes = declaration::notes(&put.lifecycle);
        let outcome = self.put(&put).await?;
        let disposition = match &outcome {
            PutOutcome::Applied(_) => v1::Disposition::Applied,
            PutOutcome::Unchanged(_) => v1::Disposition::Unchanged,
        };
        // The put stands, whether its time can be read or not.
        let record = self.version(&put.namespace, &outcome.id().into()).await.ok().flatten();
        let LifecycleId { name, version } = outcome.id().clone();
        let known = record.as_ref().map(v1::Lifecycle::from_domain).unwrap_or_default();
        let lifecycle = Some(v1::Lifecycle { name, version, declaration: String::new(), ..known });
        Ok(v1::PutLifecycleResponse { lifecycle, disposition: disposition.into(), notes })
    }

    /// Answers a `GetLifecycle`.
    ///
    /// # Errors
    ///
    /// There is no such lifecycle, or it cannot be read.
    pub async fn get_lifecycle(
        &self,
        call: Call<v1::GetLifecycleRequest>,
    ) -> Result<v1::GetLifecycleResponse, Problem> {
        let name = lifecycle::get(&call.message).map_err(problem::invalid)?;
        let _turn = self.turns.short(call.key).await?;
        let lifecycle = match self.version(&call.caller.namespace, &name).await? {
            Some(record) => (&record).into_message(),
            None => built_in(&name).ok_or_else(|| problem::lifecycle_not_found(&name))?,
        };
        Ok(v1::GetLifecycleResponse { lifecycle: Some(lifecycle) })
    }

    /// Answers a `ListLifecycles`.
    ///
    /// # Errors
    ///
    /// The lifecycles cannot be read, or the page token is not one.
    pub async fn list_lifecycles(
        &self,
        call: Call<v1::ListLifecyclesRequest>,
    ) -> Result<v1::ListLifecyclesResponse, Problem> {
        let _turn = self.turns.short(call.key).await?;
        let (name, limit) = lifecycle::list(&call.message).map_err(problem::invalid)?;
        let (namespace, token) = (&call.caller.namespace, &call.message.page_token);
        let unlisted = |error: StoreError| unlisted("ListLifecycles", namespace, &error);
        let mut listed = if let Some(name) = &name {
            let below =
                page_token::version(token, &self.seals, namespace, name).map_err(problem::page_token_invalid)?;
            self.store.lifecycle_versions(namespace, name, below, limit + 1).await.map_err(unlisted)?
        } else {
            let after = page_token::lifecycle(token, &self.seals, namespace).map_err(problem::page_token_invalid)?;
            self.store.list_lifecycles(namespace, &after, limit + 1).await.map_err(unlisted)?
        };
        let has_more = listed.len() > limit;
        listed.truncate(limit);
        let next = |last: &LifecycleRecord| match &name {
            Some(name) => page_token::below_version(last.id.version, &self.seals, namespace, name),
            None => page_token::after_lifecycle(&last.id.name, &self.seals, namespace),
        };
        let next_page_token = listed.last().filter(|_| has_more).map(next).unwrap_or_default();
        Ok(v1::ListLifecyclesResponse {
            lifecycles: listed.iter().map(IntoMessage::into_message).collect(),
            next_page_token,
        })
    }

    /// Puts the lifecycle that a refused start names and its namespace lacks, where it is built in, and tells whether
    /// the start may be tried again.
    ///
    /// # Errors
    ///
    /// The lifecycle was not put, or nobody knows.
    pub(super) async fn puts_built_in(&self, command: &Command, refusal: &Refusal) -> Result<bool, Problem> {
        let Refusal::LifecycleNotFound { lifecycle, .. } = refusal else { return Ok(false) };
        self.put_as_built_in(&command.key.namespace, &lifecycle.name).await
    }

    /// Puts the lifecycle that is built in, that a command starts with, and that its namespace lacks: before the command is
    /// queued, for one that would be sent again would go behind the commands on its run that follow it. `looked_at` has
    /// what came of those that other commands of the same call start with.
    ///
    /// # Errors
    ///
    /// It was not put, or nobody knows.
    pub(super) async fn put_before(
        &self,
        command: &Command,
        looked_at: &mut BTreeMap<String, Result<(), Problem>>,
    ) -> Result<(), Problem> {
        let Some(LifecycleName { name, .. }) = built_in_of(command) else { return Ok(()) };
        if let Some(put) = looked_at.get(name) {
            return put.clone();
        }
        let (namespace, newest) = (&command.key.namespace, LifecycleName { name: name.clone(), version: None });
        let put = match self.version(namespace, &newest).await {
            Ok(None) => self.put_as_built_in(namespace, name).await.map(drop),
            Ok(Some(_)) => Ok(()),
            Err(problem) => Err(problem),
        };
        looked_at.insert(name.clone(), put.clone());
        put
    }

    /// Puts a lifecycle as it is built in; false where none of that name is.
    async fn put_as_built_in(&self, namespace: &Namespace, name: &str) -> Result<bool, Problem> {
        let Some(source) = declaration::built_in(name) else { return Ok(false) };
        let declared = declaration::read(source).expect("a test reads each one that is built in");
        let fields = declared.not_enforced();
        if !fields.is_empty() {
            // As GetLifecycle shows it: it is built in, and not put.
            let lifecycle = LifecycleId { name: name.to_owned(), version: 0 };
            return Err(problem::refusal(&Refusal::LifecycleUnsupported { lifecycle, fields }));
        }
        self.put(&PutLifecycle {
            namespace: namespace.clone(),
            lifecycle: declared,
            source: source.to_owned(),
            by: Principal::authority(),
            only_new: true,
        })
        .await?;
        Ok(true)
    }

    async fn version(&self, namespace: &Namespace, name: &LifecycleName) -> Result<Option<LifecycleRecord>, Problem> {
        let record = self.store.lifecycle(namespace, name).await;
        record.map_err(|error| unlisted("GetLifecycle", namespace, &error))
    }

    async fn put(&self, put: &PutLifecycle) -> Result<PutOutcome, Problem> {
        let namespace = &put.namespace;
        match self.store.put_lifecycle(put).await {
            Ok(outcome) => {
                if let PutOutcome::Applied(LifecycleId { name, version }) = &outcome {
                    let subject = put.by.identity.as_ref().map(|proven| &*proven.subject);
                    let namespace = namespace.as_str();
                    tracing::info!(namespace, subject, lifecycle = name, version, "a lifecycle was put");
                }
                Ok(outcome)
            }
            Err(ChangeError::Refused(refusal)) => Err(problem::put_refusal(namespace, refusal)),
            Err(ChangeError::NotApplied(error)) => Err(unlisted("PutLifecycle", namespace, &error)),
            Err(ChangeError::Unknown(error)) => {
                let namespace = namespace.as_str();
                tracing::warn!(namespace, error = chain(&error), "a lifecycle's put was not confirmed");
                Err(problem::outcome_unknown(true))
            }
        }
    }
}

/// A lifecycle that is built in, and that a start would put as its first version.
fn built_in(name: &LifecycleName) -> Option<v1::Lifecycle> {
    let declaration = declaration::built_in(&name.name).filter(|_| name.version.is_none())?.to_owned();
    let (name, version) = (name.name.clone(), 0);
    Some(v1::Lifecycle { name, version, declaration, created_at: None, created_by: None })
}

/// The lifecycle that is built in with which a command starts a run: its newest version, or its first.
pub(super) fn built_in_of(command: &Command) -> Option<&LifecycleName> {
    let Ask::Start(Start { position, .. }) = &command.ask else { return None };
    let asked = position.lifecycle.as_ref()?;
    let is_first = asked.version.is_none_or(|version| version == 1);
    (is_first && declaration::built_in(&asked.name).is_some()).then_some(asked)
}
