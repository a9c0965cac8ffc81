//! The digest of a command: by it a retry is told from another request under the same `request_id`. Frozen: digests are
//! compared with those in the ledger.

use std::borrow::Cow;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::Command;
use crate::domain::lifecycle::{LifecycleName, LimitThen};
use crate::domain::{
    Ask, Brought, Claim, Complete, Content, ContentDigest, End, Ending, LabelsChange, LeaseEpoch, Link, LinksChange,
    MaxRunning, Metadata, Priority, Redaction, Release, RequestAbort, Resume, Revision, Start, Suspend,
    SuspensionTerms, Update,
};

/// The fields that a retry must repeat.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    rpc: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deferred: bool,
    run_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_revision: Option<Revision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acting_agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Terms::is_empty")]
    terms: Terms<'a>,
    changes: Changes<'a>,
}

/// The fields of a command about leases and time.
#[derive(Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Terms<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_epoch: Option<LeaseEpoch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_running: Option<&'a MaxRunning>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    not_begun: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    keep_slot: bool,
}

impl Terms<'_> {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The fields that a command asks to set.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Changes<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    task_thread_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<&'a str>,
    #[serde(flatten)]
    links: Option<&'a LinksChange>,
    #[serde(flatten)]
    ending: Option<Cow<'a, Ending>>,
    #[serde(flatten)]
    labels: Option<Cow<'a, LabelsChange>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redaction: Option<&'a Redaction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<ContentDigest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<ContentDigest>,
    #[serde(skip_serializing_if = "<[Link]>::is_empty")]
    added_links: &'a [Link],
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continues_run_id: Option<&'a str>,
    /// As it was sent, so that a retry means the same whatever was put meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    lifecycle: Option<&'a LifecycleName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iteration: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_iterations: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_iterations_then: Option<LimitThen>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<Priority>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suspension: Option<&'a SuspensionTerms>,
}

impl Command {
    /// The digest of everything that a retry must repeat: the RPC's name and every set field in canonical JSON, with
    /// the acting agent, without the `request_id`.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let (terms, changes) = said(&self.ask);
        digest(&Asked {
            rpc: self.ask.facts().rpc,
            deferred: matches!(self.ask, Ask::Start(Start { deferred: true, .. })),
            run_id: &self.key.run_id,
            expected_revision: self.expected_revision,
            acting_agent: self.principal.agent_id.as_deref(),
            terms,
            changes,
        })
    }
}

fn digest(asked: &Asked<'_>) -> [u8; 32] {
    Sha256::digest(serde_json::to_vec(asked).expect("strings and numbers serialize")).into()
}

fn said(ask: &Ask) -> (Terms<'_>, Changes<'_>) {
    let holder = |lease_epoch| Terms { lease_epoch, ..Terms::default() };
    let Brought { metadata, input, result, added: added_links, phase, .. } = ask.brought();
    let (input, result) = (input.map(Content::digest), result.map(Content::digest));
    match ask {
        Ask::Start(start) => {
            let Start {
                deferred: _,
                task_thread_id,
                agent_id,
                links,
                labels,
                metadata: _,
                lease_ttl_ms,
                start_timeout_ms,
                run_timeout_ms,
                input: _,
                parent_run_id,
                continues_run_id,
                lifecycle,
                phase: _,
                max_iterations,
                max_iterations_then,
                priority,
            } = start;
            let (lease_ttl_ms, start_timeout_ms, run_timeout_ms) = (*lease_ttl_ms, *start_timeout_ms, *run_timeout_ms);
            let labels = LabelsChange { set: labels.clone(), ..LabelsChange::default() };
            let changes = Changes {
                task_thread_id: Some(task_thread_id),
                agent_id: agent_id.as_deref(),
                links: Some(links),
                labels: Some(Cow::Owned(labels)),
                metadata,
                input,
                parent_run_id: parent_run_id.as_deref(),
                continues_run_id: continues_run_id.as_deref(),
                lifecycle: lifecycle.as_ref(),
                phase,
                max_iterations: *max_iterations,
                max_iterations_then: *max_iterations_then,
                priority: *priority,
                ..Changes::default()
            };
            (Terms { lease_ttl_ms, start_timeout_ms, run_timeout_ms, ..Terms::default() }, changes)
        }
        Ask::Update(update) => {
            let Update { lease_epoch, links, labels, iteration, suspension, priority, .. } = update;
            let (links, labels, iteration) = (Some(links), Some(Cow::Borrowed(labels)), *iteration);
            let written = Changes { links, labels, metadata, result, added_links, ..Changes::default() };
            let suspension = Some(suspension).filter(|terms| !terms.is_empty());
            (holder(*lease_epoch), Changes { phase, iteration, suspension, priority: *priority, ..written })
        }
        Ask::Suspend(Suspend { lease_epoch, kind, terms, ready_timeout_ms, keep_slot, phase: _ }) => {
            let (kind, suspension) = (Some(kind.as_str()), Some(terms));
            let terms = Terms { ready_timeout_ms: *ready_timeout_ms, keep_slot: *keep_slot, ..holder(*lease_epoch) };
            (terms, Changes { phase, kind, suspension, ..Changes::default() })
        }
        Ask::Resume(Resume { reason, phase: _, lease_ttl_ms, max_running, max_iterations }) => {
            let (lease_ttl_ms, max_running) = (*lease_ttl_ms, max_running.as_ref());
            let why = Ending { failure_reason: reason.clone(), reason_code: None };
            let changes = Changes { ending: Some(Cow::Owned(why)), phase, ..Changes::default() };
            let terms = Terms { lease_ttl_ms, max_running, ..Terms::default() };
            (terms, Changes { max_iterations: *max_iterations, ..changes })
        }
        Ask::Complete(Complete { lease_epoch, metadata: _, result: _, added: _, phase: _ }) => {
            (holder(*lease_epoch), Changes { metadata, result, added_links, phase, ..Changes::default() })
        }
        Ask::Abort(End { lease_epoch, why, result: _, phase: _ })
        | Ask::Fail(End { lease_epoch, why, result: _, phase: _ }) => {
            (holder(*lease_epoch), Changes { ending: Some(Cow::Borrowed(why)), result, phase, ..Changes::default() })
        }
        // A claim of `ClaimNextRun` has no digest of its own: its claimer's request has.
        Ask::Claim(Claim { expected_epoch, lease_ttl_ms, max_running, only: _, request: _ }) => {
            let terms = Terms {
                lease_epoch: *expected_epoch,
                lease_ttl_ms: Some(*lease_ttl_ms),
                max_running: max_running.as_ref(),
                ..Terms::default()
            };
            (terms, Changes::default())
        }
        Ask::Release(Release { lease_epoch, not_begun }) => {
            (Terms { not_begun: *not_begun, ..holder(*lease_epoch) }, Changes::default())
        }
        Ask::RequestAbort(RequestAbort { reason, grace_ms }) => {
            let why = Ending { failure_reason: reason.clone(), reason_code: None };
            let terms = Terms { grace_ms: *grace_ms, ..Terms::default() };
            (terms, Changes { ending: Some(Cow::Owned(why)), ..Changes::default() })
        }
        Ask::Redact(redaction) => (Terms::default(), Changes { redaction: Some(redaction), ..Changes::default() }),
        // Nothing but the run is asked for; or no caller retries the ask under a `request_id`.
        Ask::Archive | Ask::Restore | Ask::GiveBack(_) | Ask::Sweep => (Terms::default(), Changes::default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::{Agents, Labels, Principal, RedactedPath, Request, Route, RunKey};

    fn hex(digest: [u8; 32]) -> String {
        digest.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
    }

    fn metadata() -> Metadata {
        let metadata = json!({"b": [1, -2.5, 1e300, null, {"ü": "\u{1}\"/"}], "a": 0.1, "c": {"deleted": null}});
        Metadata::from(metadata.as_object().unwrap().clone())
    }

    #[allow(clippy::needless_update, reason = "a field that comes later has a digest of its own")]
    fn links() -> LinksChange {
        LinksChange {
            route: Some(Route::Mcp),
            fallback_used: true,
            tab_group_id: Some("tabs".into()),
            audit_session_id: Some("audit".into()),
            workflow_id: Some("workflow".into()),
            ..LinksChange::default()
        }
    }

    fn why() -> Ending {
        Ending { failure_reason: Some("because".into()), reason_code: Some("TIMEOUT".into()) }
    }

    fn labels() -> Labels {
        [("z".into(), "1".into()), ("a".into(), "🦀".into())].into()
    }

    fn labels_change() -> LabelsChange {
        LabelsChange { set: labels(), remove: ["old".into(), "gone".into()].into() }
    }

    /// Digests are compared with those in the ledger: if this fails after an upgrade of a dependency, retries of calls
    /// that were applied before it would be refused.
    #[test]
    fn a_digest_never_changes() {
        let (links, metadata) = (links(), metadata());
        let asked = Asked {
            rpc: "StartRun",
            deferred: true,
            run_id: "run-1",
            expected_revision: Some(0.into()),
            acting_agent: Some("acting"),
            terms: Terms::default(),
            changes: Changes {
                task_thread_id: Some("task"),
                agent_id: Some("agent"),
                links: Some(&links),
                ending: Some(Cow::Owned(why())),
                labels: Some(Cow::Owned(labels_change())),
                metadata: Some(&metadata),
                ..Changes::default()
            },
        };
        assert_eq!(hex(digest(&asked)), "69a4c9ba91f59c1bfbd9b3ecee9465241926e61bdbab3f2c299aaf214d10a52f");
    }

    #[test]
    fn each_calls_digest_never_changes() {
        let lease_epoch = Some(3.into());
        for (ask, digest) in [
            (
                Ask::Start(Start {
                    deferred: true,
                    task_thread_id: "task".into(),
                    agent_id: Some("agent".into()),
                    links: links(),
                    labels: labels(),
                    metadata: metadata(),
                    lease_ttl_ms: None,
                    start_timeout_ms: Some(5_000),
                    run_timeout_ms: Some(6_000),
                    ..Start::default()
                }),
                "8c2b18a285b47be48d5d5caa1a596315b513672782bbcb01c88050902054de81",
            ),
            (
                Ask::Update(Update {
                    lease_epoch,
                    links: links(),
                    labels: labels_change(),
                    metadata: metadata(),
                    ..Update::default()
                }),
                "f4019fe70eb4ef4f1ff7d4d2e8f4d2bb26696cba28f0764ad2f14eb89171a75c",
            ),
            (
                Ask::Complete(Complete { lease_epoch, metadata: metadata(), ..Complete::default() }),
                "900ff00a20fb7acb985499acf3dd01b880ee7c4cd32061d8810758293af83c99",
            ),
            (
                Ask::Abort(End { lease_epoch: None, why: why(), ..End::default() }),
                "35a587a6d2db6589c8fefae9e26939f102703372932a78cbc25c4cff09db7f8a",
            ),
            (
                Ask::Fail(End { lease_epoch, why: why(), ..End::default() }),
                "ee71c10726381ffa395d85f706b4b36be0909e9d9fe433eaad0caaea3c3b9fa8",
            ),
            (
                Ask::Claim(Claim {
                    expected_epoch: lease_epoch,
                    lease_ttl_ms: 30_000,
                    max_running: Some(MaxRunning { label: "instance".into(), limit: 2 }),
                    only: None,
                    request: None,
                }),
                "42449b6a488bd667ad3c4c8457ea099d68486d6f71d365db7d7951f66c67b17d",
            ),
            (
                Ask::Release(Release { lease_epoch, not_begun: true }),
                "4fb11a993729d61b03a084c6c595e630b99365d8bb86f4c7e0b057d850c1c7e9",
            ),
            (
                Ask::RequestAbort(RequestAbort { reason: Some("enough".into()), grace_ms: Some(9_000) }),
                "5902f5dcbc4f969f0f9f88e65a4043ce8effca596e86f63aacb91b641ef005f9",
            ),
            (Ask::Archive, "ece24d692a77901d98f3886b6fcc7089fe516f7b0996bf21e7ce18eb3cbac100"),
            (Ask::Restore, "54b4fd416a9dfabeeb8a7638e37a5d0f5c25b31ec40dadd162a1ef040859164e"),
            (
                Ask::Redact(Redaction {
                    paths: ["/metadata/a~1b/0", "/reason", "/progress"]
                        .map(|path| RedactedPath::parse(path).unwrap())
                        .into(),
                    reason: Some("a password".into()),
                }),
                "1fd1e90e98fd435464d0d61bbdf37678355be3f8d01ea25053ae9c614794b591",
            ),
        ] {
            let command = Command {
                key: RunKey { namespace: "default".into(), run_id: "run-1".into() },
                ask,
                expected_revision: Some(0.into()),
                request: Some(Request { id: "not part of it".into(), digest: [0; 32] }),
                principal: Principal::claimed("acting".into()),
                oversize: Vec::new(),
                prepared: crate::domain::Prepared::default(),
                trace: None,
                agents: Agents::All,
            };
            assert_eq!(hex(command.digest()), digest, "{}", command.ask.facts().rpc);
        }
    }
}
