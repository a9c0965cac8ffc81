//! The digest of a command: by it a retry is told from another request under the same `request_id`. Frozen: digests are
//! compared with those in the ledger.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::Command;
use crate::domain::{Ask, Brought, Revision, Start, Terms};

/// The fields that a retry must repeat.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DigestedRequest<'a> {
    rpc: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deferred: bool,
    run_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_revision: Option<Revision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acting_agent: Option<&'a str>,
    #[serde(skip_serializing_if = "is_empty")]
    terms: Terms<'a>,
    changes: Brought<'a>,
}

impl Command {
    /// The digest of everything that a retry must repeat: the RPC's name and every set field in canonical JSON, with
    /// the acting agent, without the `request_id`.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let changes = self.ask.brought();
        digest(&DigestedRequest {
            rpc: self.ask.facts().rpc,
            deferred: matches!(self.ask, Ask::Start(Start { deferred: true, .. })),
            run_id: &self.key.run_id,
            expected_revision: self.expected_revision,
            acting_agent: self.principal.agent_id.as_deref(),
            terms: changes.terms,
            changes,
        })
    }
}

fn digest(asked: &DigestedRequest<'_>) -> [u8; 32] {
    Sha256::digest(serde_json::to_vec(asked).expect("strings and numbers serialize")).into()
}

fn is_empty(terms: &Terms<'_>) -> bool {
    *terms == Terms::default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::lifecycle::{LifecycleName, LimitThen};
    use crate::domain::{
        Agents, BindingsChange, Claim, Complete, Content, End, Ending, Labels, LabelsChange, Link, MaxRunning,
        Metadata, Origin, PositionAsk, Principal, Priority, RedactedPath, Redaction, Release, Request, RequestAbort,
        Resume, Route, RunKey, Suspend, SuspensionTerms, Update,
    };

    fn hex(digest: [u8; 32]) -> String {
        digest.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
    }

    fn metadata() -> Metadata {
        let metadata = json!({"b": [1, -2.5, 1e300, null, {"ü": "\u{1}\"/"}], "a": 0.1, "c": {"deleted": null}});
        Metadata::from(metadata.as_object().unwrap().clone())
    }

    #[allow(clippy::needless_update, reason = "a field that comes later has a digest of its own")]
    fn bindings() -> BindingsChange {
        BindingsChange {
            route: Some(Route::Mcp),
            fallback_used: true,
            tab_group_id: Some("tabs".into()),
            audit_session_id: Some("audit".into()),
            workflow_id: Some("workflow".into()),
            ..BindingsChange::default()
        }
    }

    fn why() -> Ending {
        Ending { failure_reason: Some("because".into()), reason_code: Some("TIMEOUT".into()) }
    }

    fn labels() -> Labels {
        [("z".into(), "1".into()), ("a".into(), "🦀".into())].into()
    }

    fn command(ask: Ask) -> Command {
        Command {
            key: RunKey { namespace: "default".into(), run_id: "run-1".into() },
            ask,
            expected_revision: Some(0.into()),
            request: Some(Request { id: "not part of it".into(), digest: [0; 32] }),
            principal: Principal::claimed("acting".into()),
            oversize: Vec::new(),
            prepared: crate::domain::Prepared::default(),
            trace: None,
            agents: Agents::All,
        }
    }

    fn content() -> Content {
        Content::from(&metadata())
    }

    fn link() -> Link {
        let (rel, target) = ("report".into(), "https://example.org/ü".into());
        Link { rel, target, sha256: None, media_type: Some("text/plain".into()), summary: None }
    }

    fn at(phase: &str) -> PositionAsk {
        PositionAsk { phase: Some(phase.into()), ..PositionAsk::default() }
    }

    fn terms() -> SuspensionTerms {
        let (reason, resume_hint) = (Some("why".into()), Some("how".into()));
        SuspensionTerms { reason, resume_hint, timeout_ms: Some(12_000), timeout_then: None }
    }

    fn labels_change() -> LabelsChange {
        LabelsChange { set: labels(), remove: ["old".into(), "gone".into()].into() }
    }

    /// Digests are compared with those in the ledger: if this fails after an upgrade of a dependency, retries of calls
    /// that were applied before it would be refused.
    #[test]
    fn a_digest_never_changes() {
        let (bindings, metadata, why, labels) = (bindings(), metadata(), why(), labels_change());
        let asked = DigestedRequest {
            rpc: "StartRun",
            deferred: true,
            run_id: "run-1",
            expected_revision: Some(0.into()),
            acting_agent: Some("acting"),
            terms: Terms::default(),
            changes: Brought {
                task_thread_id: Some("task"),
                agent_id: Some("agent"),
                bindings: Some(&bindings),
                why: Some(&why),
                labels: Some(&labels.set),
                labels_dropped: Some(&labels.remove),
                metadata: Some(&metadata),
                ..Brought::default()
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
                    bindings: bindings(),
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
                    bindings: bindings(),
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
            assert_eq!(hex(command(ask).digest()), digest);
        }
    }

    #[test]
    fn the_digest_of_what_came_with_phases_and_contents_never_changes() {
        let lease_epoch = Some(3.into());
        for (ask, digest) in [
            (
                Ask::Start(Start {
                    task_thread_id: "task".into(),
                    labels: labels(),
                    lease_ttl_ms: Some(4_000),
                    input: Some(content()),
                    origin: Origin { parent_run_id: Some("parent".into()), continues_run_id: Some("before".into()) },
                    position: PositionAsk {
                        lifecycle: LifecycleName::parse("loop@3"),
                        phase: Some("plan".into()),
                        iteration: None,
                        max_iterations: Some(7),
                        max_iterations_then: Some(LimitThen::Abort),
                    },
                    priority: Priority::of(5),
                    ..Start::default()
                }),
                "957bccd9198f02ed9aa02eaa73f724b01a1852272cf7f53a56301a6a35dd8a27",
            ),
            (
                Ask::Update(Update {
                    labels: LabelsChange { remove: ["old".into()].into(), ..LabelsChange::default() },
                    result: Some(content()),
                    added: vec![link()],
                    position: PositionAsk { iteration: Some(8), ..at("work") },
                    suspension: terms(),
                    priority: Priority::of(-6),
                    ..Update::default()
                }),
                "83455937374f86fde1a15ecac30a2eadadb116cf938044037019e5116957f723",
            ),
            (
                Ask::Complete(Complete {
                    result: Some(content()),
                    added: vec![link()],
                    position: at("done"),
                    ..Complete::default()
                }),
                "2a9a6c91f292ae513a1120736be42b662a202417d42e3d9910fdc1e0b8766e9e",
            ),
            (
                Ask::Fail(End { result: Some(content()), position: at("broken"), ..End::default() }),
                "1883e95f077c79a8fbe8f16d0fc6619182560a73b33f0989a9b179e66874562d",
            ),
            (
                Ask::Suspend(Suspend {
                    lease_epoch,
                    kind: "HELP".into(),
                    terms: terms(),
                    ready_timeout_ms: Some(10_000),
                    keep_slot: true,
                    position: at("asking"),
                }),
                "14106e35f4a1d05a5b48eb66cc73443b2953fd4d3da17554586e1f889f627255",
            ),
            (
                Ask::Suspend(Suspend { kind: "HELP".into(), ..Suspend::default() }),
                "e14b0b4a7f62f2cf9cdb1b1eb5aee6152621fc2e5ee8ddc6115c6cc2e1bbecc1",
            ),
            (
                Ask::Resume(Resume {
                    reason: Some("go on".into()),
                    position: PositionAsk { max_iterations: Some(9), ..at("work") },
                    lease_ttl_ms: Some(11_000),
                    max_running: Some(MaxRunning { label: "instance".into(), limit: 2 }),
                }),
                "7a59277c7ec5a7c1a617a7d124adce1b59c3912af848336d9806f6810c45d159",
            ),
            (Ask::Resume(Resume::default()), "e5041d20ee5bf83df105ef5ae3ea23812785cd7a6efef3aa78eb3af8b81fe499"),
        ] {
            assert_eq!(hex(command(ask).digest()), digest);
        }
    }
}
