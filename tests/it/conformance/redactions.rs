//! Redactions whose history somebody has looked through before the commit.

use std::sync::Arc;

use runledger::clock::draw_id;
use runledger::domain::{Ask, Command, LedgerEpoch, Link, RedactedPath, Redaction, Revision, Rules, Verdict};
use runledger::store::{Store, run_at};
use serde_json::json;

use super::asking::{apply, home};
use super::fixture::Fixture;
use super::sound::sound;
use crate::support::commands::{Asking as _, Operation, command, fail, key, start, update};
use crate::support::lifecycles::Standing as _;

const SECRET: &str = "hunter2";

/// The events of the runs, of which two have a keyframe.
const EVENTS: u64 = 70;

/// A run with a secret in the event of one revision.
async fn spoilt(store: &dyn Store, run_id: &str, spoilt: u64) {
    apply(store, start(run_id)).await;
    for revision in 2..=EVENTS {
        let patch = if revision == spoilt { json!({"deep": {"secret": SECRET}}) } else { json!({"n": revision}) };
        apply(store, update(run_id).metadata(&patch)).await;
    }
}

fn redaction(run_id: &str, looked: Option<(LedgerEpoch, u64)>) -> Command {
    let paths = vec![RedactedPath::parse("/metadata/deep/secret").unwrap()];
    let mut command = command(run_id, Operation::Redact);
    command.ask = Ask::Redact(Redaction { paths, reason: None });
    if let Some((epoch, revision)) = looked {
        command.looked_through(epoch, revision.into());
    }
    command
}

/// The revisions after which the run shows the secret, or whose event does.
async fn shown(store: &dyn Store, run_id: &str) -> Vec<u64> {
    let mut shown = Vec::new();
    for event in store.run_events(&key(run_id), Revision::NONE, 1_000, usize::MAX).await.unwrap() {
        let run = run_at(store, &key(run_id), event.revision).await.unwrap().unwrap();
        if format!("{event:?} {run:?}").contains(SECRET) {
            shown.push(event.revision.get());
        }
    }
    shown
}

pub(crate) async fn a_history_is_rewritten_from_where_the_first_of_it_was_found<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let epoch = store.ledger().epoch;
    for (run_id, at) in [("early", 2), ("on-a-keyframe", 32), ("after-it", 33), ("late", EVENTS)] {
        spoilt(store, run_id, at).await;
        assert_eq!(shown(store, run_id).await, (at..=EVENTS).collect::<Vec<_>>());
        apply(store, redaction(run_id, Some((epoch, at - 1)))).await;
        assert_eq!(shown(store, run_id).await, [0; 0], "{run_id}");
    }
    sound(store).await;
}

/// It says that nothing is there where something is: what comes before is not read.
pub(crate) async fn a_history_that_was_looked_through_is_not_read_again<F: Fixture>(fixture: F) {
    let store = fixture.store();
    spoilt(store, "run", 2).await;
    apply(store, redaction("run", Some((store.ledger().epoch, EVENTS)))).await;
    assert_eq!(shown(store, "run").await.first(), Some(&2));
    apply(store, redaction("run", None)).await;
    assert_eq!(shown(store, "run").await, [0; 0]);
}

pub(crate) async fn a_look_at_another_past_is_not_believed<F: Fixture>(fixture: F) {
    let store = fixture.store();
    spoilt(store, "run", 2).await;
    let another = LedgerEpoch::from(store.ledger().epoch.get() + 1);
    apply(store, redaction("run", Some((another, EVENTS)))).await;
    assert_eq!(shown(store, "run").await, [0; 0]);
    sound(store).await;
}

/// Of the history and of what stands beside the run. What was taken out before, and what never stood there, does not count.
pub(crate) async fn a_redaction_tells_how_many_values_it_took_out<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let link = |rel: &str| Link {
        rel: rel.into(),
        target: format!("file:///{rel}"),
        sha256: None,
        media_type: None,
        summary: None,
    };
    apply(store, start("run").metadata(&json!({"a": 1, "b": {"c": 2}})).input(&json!({"in": 1}))).await;
    apply(store, update("run").metadata(&json!({"b": {"c": 3}})).result(&json!({"out": 1}))).await;
    let linked = [link("artifact"), link("artifact-2"), link("log")];
    let mut again = update("run").result(&json!({"out": 2}));
    let Ask::Update(asked) = &mut again.ask else { unreachable!() };
    asked.added.extend(linked);
    apply(store, again).await;
    apply(store, fail("run").changing(|fields| fields.failure_reason = Some("secret".into()))).await;
    for (paths, values) in [
        (&["/metadata/b/typo"][..], 0),
        (&["/metadata/b/c", "/metadata/b/c"], 2),
        (&["/metadata/b/c"], 0),
        (&["/links/artefact"], 0),
        (&["/links/artifact"], 1),
        (&["/links"], 2),
        (&["/links"], 0),
        (&["/input", "/result", "/reason", "/progress"], 4),
        (&["/input", "/result", "/reason", "/progress"], 0),
        (&["/metadata"], 3),
        (&["/metadata"], 0),
    ] {
        let mut asked = redaction("run", None);
        let paths = paths.iter().map(|path| RedactedPath::parse(path).unwrap()).collect();
        asked.ask = Ask::Redact(Redaction { paths, reason: None });
        let shown = format!("{:?}", asked.ask);
        let batch = Arc::from([Arc::new(asked)]);
        let decided = store.commit(home(store, &key("run")), draw_id(), batch, &Rules::shared()).await.unwrap();
        assert_eq!(decided.values_redacted, Some(values), "{shown}");
        let verdict = decided.into_verdicts().remove(0);
        assert!(matches!(verdict, Ok(Verdict::Redacted { values: told, .. }) if told == values), "{verdict:?}");
    }
    sound(store).await;
}
