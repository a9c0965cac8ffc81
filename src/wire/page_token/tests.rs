use proptest::prelude::*;

use super::*;
use crate::domain::Status;
use crate::store::Ledger;

const LEDGER: Uuid = Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
const OF: Ledger = Ledger { id: LEDGER, epoch: LedgerEpoch::FIRST, shard_count: 1 };
/// Tokens that were given out stay good: these never change.
const EVENTS_VECTOR: &str = "AfntplJPe9IyAAAAAAAAAGQ";
const RUNS_VECTOR: &str = "ATQyXLF-2xLSAAZEWUFkIkBydW4";

fn key(namespace: &str, run_id: &str) -> RunKey {
    RunKey { namespace: namespace.into(), run_id: run_id.into() }
}

fn here(run_id: &str) -> Place {
    Place { started_at: Time::from_micros(1_764_000_000_123_456), run_id: run_id.into() }
}

/// Filters of which no two mean the same.
fn filters() -> Vec<Filter> {
    let text = |text: &str| Some(text.to_owned());
    let time = |micros| Some(Time::from_micros(micros));
    let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    vec![
        Filter::default(),
        Filter { task_thread_id: text("x"), ..Filter::default() },
        Filter { agent_id: text("x"), ..Filter::default() },
        Filter { workflow_id: text("x"), ..Filter::default() },
        Filter { audit_session_id: text("x"), ..Filter::default() },
        Filter { audit_session_id: text("xx"), ..Filter::default() },
        Filter { agent_id: text("x"), workflow_id: text("x"), ..Filter::default() },
        Filter { statuses: [Status::Pending].into(), ..Filter::default() },
        Filter { statuses: [Status::Pending, Status::Running].into(), ..Filter::default() },
        Filter { statuses: Status::ALL.into(), ..Filter::default() },
        Filter { route: Some(Route::Mcp), ..Filter::default() },
        Filter { route: Some(Route::Cli), ..Filter::default() },
        Filter { started_from: time(0), ..Filter::default() },
        Filter { started_before: time(0), ..Filter::default() },
        Filter { started_before: time(1), ..Filter::default() },
        Filter { labels: labels(&[("a", "b")]), ..Filter::default() },
        Filter { labels: labels(&[("a", "")]), ..Filter::default() },
        Filter { labels: labels(&[("ab", "")]), ..Filter::default() },
        Filter { labels: labels(&[("a", "b"), ("c", "d")]), ..Filter::default() },
    ]
}

#[test]
fn a_token_leads_back_to_where_the_page_ended() {
    let run = key("default", "run");
    for revision_at in [0, 1, 100, u64::MAX].map(Revision::from) {
        assert_eq!(revision(&after_revision(revision_at, OF, &run), OF, &run), Ok(revision_at));
    }
    assert_eq!(after_revision(100.into(), OF, &run), EVENTS_VECTOR);
    for filter in filters() {
        for micros in [i64::MIN, -1, 0, 1_764_000_000_123_456, i64::MAX] {
            for run_id in ["r", "run-1", &"~".repeat(RUN_ID_BYTES_MAX)] {
                let place_at = Place { started_at: Time::from_micros(micros), run_id: run_id.into() };
                let token = after_place(&place_at, LEDGER, "default", &filter);
                assert!(token.len() <= PAGE_TOKEN_BYTES_MAX);
                assert_eq!(place(&token, LEDGER, "default", &filter), Ok(place_at));
            }
        }
    }
    assert_eq!(after_place(&here("run"), LEDGER, "default", filters().last().unwrap()), RUNS_VECTOR);
}

#[test]
fn a_token_of_another_ledger_namespace_or_run_is_noise() {
    let token = after_revision(7.into(), OF, &key("default", "run"));
    assert_eq!(revision(&token, Ledger { id: Uuid::nil(), ..OF }, &key("default", "run")), Err(PageTokenInvalid));
    assert_eq!(revision(&token, Ledger { epoch: 1.into(), ..OF }, &key("default", "run")), Err(PageTokenInvalid));
    assert_eq!(revision(&token, OF, &key("other", "run")), Err(PageTokenInvalid));
    assert_eq!(revision(&token, OF, &key("default", "run2")), Err(PageTokenInvalid));
    assert_eq!(place(&token, LEDGER, "default", &Filter::default()), Err(PageTokenInvalid));
}

#[test]
fn a_token_of_another_filter_is_noise() {
    let filters = filters();
    for (given, filter) in filters.iter().enumerate() {
        let token = after_place(&here("run"), LEDGER, "default", filter);
        assert_eq!(place(&token, Uuid::nil(), "default", filter), Err(PageTokenInvalid));
        assert_eq!(place(&token, LEDGER, "other", filter), Err(PageTokenInvalid));
        assert_eq!(revision(&token, OF, &key("default", "run")), Err(PageTokenInvalid));
        for (asked, other) in filters.iter().enumerate() {
            assert_eq!(place(&token, LEDGER, "default", other).is_ok(), asked == given, "{filter:?} and {other:?}");
        }
    }
}

#[test]
fn a_token_changed_anywhere_is_noise() {
    let (run, filter) = (key("default", "run"), Filter::default());
    let taken = |token: &str| revision(token, OF, &run).is_ok() || place(token, LEDGER, "default", &filter).is_ok();
    for token in [after_revision(7.into(), OF, &run), after_place(&here("run-1"), LEDGER, "default", &filter)] {
        assert!(taken(&token));
        for at in 0..token.len() {
            for replacement in ["A", "B", "_", "=", "é", "\0", ""] {
                let mut changed = token.clone();
                changed.replace_range(at..=at, replacement);
                assert!(changed == token || !taken(&changed), "{changed}");
            }
        }
        let longer = [format!("{token}="), format!("{token}A"), format!("{token}AA"), format!("{token}AAAA")];
        for noise in ["", "A", "==", " ", &token[1..], &"A".repeat(9999)].into_iter().chain(longer.iter().map(|t| &**t))
        {
            assert!(!taken(noise), "{noise}");
        }
    }
}

proptest! {
    #[test]
    fn noise_is_never_a_token(noise in "\\PC{0,64}", bytes: [u8; 24]) {
        let filter = Filter::default();
        for noise in [noise, URL_SAFE_NO_PAD.encode(bytes)] {
            prop_assert!(revision(&noise, OF, &key("default", "run")).is_err());
            prop_assert!(place(&noise, LEDGER, "default", &filter).is_err());
        }
    }
}
