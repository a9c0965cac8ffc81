//! Requests about lifecycles, and lifecycles as answers.

use runledger_proto::v1;

use super::query::page_size;
use super::scalars::timestamp;
use super::validate::Violations;
use crate::auth::Caller;
use crate::declaration;
use crate::domain::lifecycle::NAME_RULE;
use crate::domain::limits::LIFECYCLE_BYTES_MAX;
use crate::domain::{LifecycleName, LifecycleRecord, PutLifecycle, Violation};
use crate::wire::from_domain::{FromDomain, IntoMessage as _};

/// The lifecycles of a page when the request does not say how many.
const PAGE_SIZE_DEFAULT: usize = 50;

/// The put of a `PutLifecycle`.
///
/// # Errors
///
/// Every violation: each fault of the declaration with its place.
pub fn put(request: v1::PutLifecycleRequest, caller: &Caller) -> Result<PutLifecycle, Vec<Violation>> {
    let source = request.declaration;
    let mut violations = Violations::default();
    if source.is_empty() {
        violations.push("declaration", "is required: YAML or JSON");
    }
    violations.text("declaration", &source, LIFECYCLE_BYTES_MAX);
    violations.settle(())?;
    let lifecycle = declaration::read(&source).map_err(|findings| {
        findings
            .into_iter()
            .map(|finding| {
                let path = if finding.path.is_empty() { String::new() } else { format!(".{}", finding.path) };
                Violation::new(format!("declaration{path}"), format!("{}: {}", finding.at, finding.message))
            })
            .collect::<Vec<_>>()
    })?;
    let by = caller.principal.clone();
    Ok(PutLifecycle { namespace: caller.namespace.clone(), lifecycle, source, by, only_new: false })
}

/// The lifecycle of a `GetLifecycle`.
///
/// # Errors
///
/// The violation.
pub fn get(request: &v1::GetLifecycleRequest) -> Result<LifecycleName, Vec<Violation>> {
    let mut violations = Violations::default();
    let name = violations.lifecycle("lifecycle", &request.lifecycle);
    if request.lifecycle.is_empty() {
        violations.push("lifecycle", format!("is required: a name, which {NAME_RULE}"));
    }
    // Where there is none, there is a violation, and this one is not used.
    violations.settle(name.unwrap_or_else(|| LifecycleName { name: String::new(), version: None }))
}

/// The name whose versions are listed, and the number of lifecycles on a page.
///
/// # Errors
///
/// Every violation.
pub fn list(request: &v1::ListLifecyclesRequest) -> Result<(Option<String>, usize), Vec<Violation>> {
    let mut violations = Violations::default();
    let name = violations.phase("name", request.name.clone());
    let size = page_size(request.page_size, PAGE_SIZE_DEFAULT, &mut violations);
    violations.settle((name, size))
}

impl FromDomain<&LifecycleRecord> for v1::Lifecycle {
    fn from_domain(record: &LifecycleRecord) -> Self {
        Self {
            name: record.id.name.clone(),
            version: record.id.version,
            declaration: record.source.clone(),
            created_at: Some(timestamp(record.at)),
            created_by: Some((&record.by).into_message()),
        }
    }
}
