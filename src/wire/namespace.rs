//! Requests about namespaces as commands, and namespaces as answers.

use runledger_proto::v1;

use super::query::page_size;
use super::scalars::{duration, timestamp};
use super::validate::Violations;
use crate::domain::ids::DEFAULT_NAMESPACE;
use crate::domain::limits::{MAX_ACTIVE_RUNS_MAX, MAX_STORED_BYTES_MAX, NAMESPACE_DESCRIPTION_BYTES_MAX};
use crate::domain::namespace::{NAME_RULE, is_name};
use crate::domain::retention::{KEEP_MS_MAX, KEEP_MS_MIN};
use crate::domain::{
    Namespace, NamespaceAsk, NamespaceCommand, NamespaceRecord, NamespaceSettings, Quotas, Retention, Revision,
    Violation,
};
use crate::wire::from_domain::FromDomain;

/// The namespaces of a page when the request does not say how many.
const PAGE_SIZE_DEFAULT: usize = 50;

/// The namespace that a request names.
///
/// # Errors
///
/// The violation.
pub fn name(name: &str) -> Result<Namespace, Vec<Violation>> {
    let mut violations = Violations::default();
    let name = violations.namespace(name);
    violations.settle(name)
}

/// The command of a `CreateNamespace`.
///
/// # Errors
///
/// Every violation.
pub fn create(request: v1::CreateNamespaceRequest) -> Result<NamespaceCommand, Vec<Violation>> {
    let mut violations = Violations::default();
    let name = violations.namespace(&request.name);
    violations.text("description", &request.description, NAMESPACE_DESCRIPTION_BYTES_MAX);
    let v1::NamespaceQuotas { max_active_runs, max_stored_bytes } = request.quotas.unwrap_or_default();
    let quotas = Quotas {
        max_active_runs: violations.quota("quotas.max_active_runs", max_active_runs, MAX_ACTIVE_RUNS_MAX, &name),
        max_stored_bytes: violations.quota("quotas.max_stored_bytes", max_stored_bytes, MAX_STORED_BYTES_MAX, &name),
    };
    let retention = request.retention.map(|asked| violations.retention(asked)).unwrap_or_default();
    let settings = NamespaceSettings { description: request.description, quotas, retention };
    violations.settle(NamespaceCommand { name, ask: NamespaceAsk::Create(settings), expected_revision: None })
}

/// The command of an `UpdateNamespace`.
///
/// # Errors
///
/// Every violation.
pub fn update(request: v1::UpdateNamespaceRequest) -> Result<NamespaceCommand, Vec<Violation>> {
    let mut violations = Violations::default();
    let name = violations.namespace(&request.name);
    if let Some(description) = &request.description {
        violations.text("description", description, NAMESPACE_DESCRIPTION_BYTES_MAX);
    }
    let mut quota = |field, max: Option<u64>, most| max.map(|max| violations.quota(field, max, most, &name));
    let max_active_runs = quota("max_active_runs", request.max_active_runs, MAX_ACTIVE_RUNS_MAX);
    let max_stored_bytes = quota("max_stored_bytes", request.max_stored_bytes, MAX_STORED_BYTES_MAX);
    let retention = request.retention.map(|asked| violations.retention(asked));
    let ask = NamespaceAsk::Update { description: request.description, max_active_runs, max_stored_bytes, retention };
    violations.settle(NamespaceCommand { name, ask, expected_revision: request.expected_revision.map(Revision::from) })
}

/// The command of a `DeleteNamespace`.
///
/// # Errors
///
/// Every violation.
pub fn delete(request: &v1::DeleteNamespaceRequest) -> Result<NamespaceCommand, Vec<Violation>> {
    let mut violations = Violations::default();
    let name = violations.namespace(&request.name);
    if name == DEFAULT_NAMESPACE {
        violations.push("name", format!("`{DEFAULT_NAMESPACE}` always exists: it cannot be deleted"));
    }
    let expected_revision = request.expected_revision.map(Revision::from);
    violations.settle(NamespaceCommand { name, ask: NamespaceAsk::Delete, expected_revision })
}

/// The number of namespaces on a page.
///
/// # Errors
///
/// The violation.
pub fn list(request: &v1::ListNamespacesRequest) -> Result<usize, Vec<Violation>> {
    let mut violations = Violations::default();
    let size = page_size(request.page_size, PAGE_SIZE_DEFAULT, &mut violations);
    violations.settle(size)
}

impl FromDomain<&NamespaceRecord> for v1::Namespace {
    fn from_domain(record: &NamespaceRecord) -> Self {
        Self {
            name: record.name.to_string(),
            description: record.settings.description.clone(),
            quotas: Some(v1::NamespaceQuotas {
                max_active_runs: record.settings.quotas.max_active_runs.unwrap_or_default(),
                max_stored_bytes: record.settings.quotas.max_stored_bytes.unwrap_or_default(),
            }),
            stored_bytes: record.stored_bytes.unwrap_or_default(),
            retention: shown(&record.settings.retention),
            revision: record.revision.into(),
            created_at: Some(timestamp(record.created_at)),
            updated_at: Some(timestamp(record.updated_at)),
        }
    }
}

fn shown(retention: &Retention) -> Option<v1::NamespaceRetention> {
    let Retention { completed_ms, aborted_ms, failed_ms, until_exported } = *retention;
    (*retention != Retention::default()).then(|| v1::NamespaceRetention {
        completed: completed_ms.map(duration),
        aborted: aborted_ms.map(duration),
        failed: failed_ms.map(duration),
        until_exported,
    })
}

impl Violations {
    fn retention(&mut self, asked: v1::NamespaceRetention) -> Retention {
        let mut keep_ms =
            |field: &str, asked| self.duration_ms(field, asked, KEEP_MS_MIN..=KEEP_MS_MAX, "1 minute to 100 years");
        Retention {
            completed_ms: keep_ms("retention.completed", asked.completed),
            aborted_ms: keep_ms("retention.aborted", asked.aborted),
            failed_ms: keep_ms("retention.failed", asked.failed),
            until_exported: asked.until_exported,
        }
    }

    fn namespace(&mut self, name: &str) -> Namespace {
        if !is_name(name) {
            self.push("name", NAME_RULE);
        }
        name.into()
    }

    /// A quota; 0 is none.
    fn quota(&mut self, field: &str, max: u64, most: u64, name: &Namespace) -> Option<u64> {
        if max > most {
            self.push(field, format!("must be at most {most}, or 0 for none"));
        }
        if max > 0 && *name == DEFAULT_NAMESPACE {
            self.push(field, format!("`{DEFAULT_NAMESPACE}` has no quotas: no commit reads its settings"));
        }
        Some(max).filter(|max| *max > 0)
    }
}
