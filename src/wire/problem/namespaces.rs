//! Refusals that concern namespaces.

use runledger_proto::v1;
use tonic_types::pb::ResourceInfo;

use super::{Code, Problem};
use crate::domain::NamespaceRefusal;
use crate::domain::limits::NAMESPACES_MAX;

/// A namespace that does not exist.
#[must_use]
pub fn not_found(namespace: &str) -> Problem {
    let message = format!("Namespace {namespace} does not exist: name another one, or have an admin make it.");
    Problem::new(Code::NotFound, "NAMESPACE_NOT_FOUND", message).info("namespace", namespace).detail(
        "google.rpc.ResourceInfo",
        &ResourceInfo {
            resource_type: "runledger.v1.Namespace".to_owned(),
            resource_name: namespace.to_owned(),
            owner: String::new(),
            description: String::new(),
        },
    )
}

/// A namespace that was not changed.
#[must_use]
pub fn namespace_refusal(namespace: &str, refusal: &NamespaceRefusal) -> Problem {
    match refusal {
        NamespaceRefusal::NotFound => not_found(namespace),
        NamespaceRefusal::Exists => {
            let message = format!("Namespace {namespace} exists, with other settings: read it, or update it.");
            Problem::new(Code::AlreadyExists, "NAMESPACE_EXISTS", message).info("namespace", namespace)
        }
        NamespaceRefusal::NotEmpty => {
            let message = format!("Namespace {namespace} has or had runs, whose ids stay taken: it cannot be deleted.");
            Problem::new(Code::FailedPrecondition, "NAMESPACE_NOT_EMPTY", message).info("namespace", namespace)
        }
        NamespaceRefusal::RevisionMismatch { expected, actual } => {
            let message =
                format!("Namespace {namespace} is at revision {actual}, not {expected}: read it and decide again.");
            Problem::new(Code::Aborted, "REVISION_MISMATCH", message)
                .info("namespace", namespace)
                .info("expected_revision", &expected.to_string())
                .info("actual_revision", &actual.to_string())
                .detail(
                    "runledger.v1.RevisionMismatchError",
                    &v1::RevisionMismatchError {
                        expected_revision: (*expected).into(),
                        actual_revision: (*actual).into(),
                        run: None,
                    },
                )
        }
        NamespaceRefusal::TooMany => quota_exceeded(namespace, "namespaces", NAMESPACES_MAX, NAMESPACES_MAX),
    }
}

pub(super) fn quota_exceeded(namespace: &str, quota: &str, limit: u64, used: u64) -> Problem {
    let message = format!("The quota {quota} of {limit} is used up, and namespace {namespace} was to have one more.");
    Problem::new(Code::ResourceExhausted, "QUOTA_EXCEEDED", message)
        .info("namespace", namespace)
        .info("quota", quota)
        .info("limit", &limit.to_string())
        .info("used", &used.to_string())
        .detail(
            "runledger.v1.QuotaExceededError",
            &v1::QuotaExceededError { namespace: namespace.to_owned(), quota: quota.to_owned(), limit, used },
        )
}
