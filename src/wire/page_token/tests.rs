use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::domain::Status;
use crate::store::{Ledger, SealKey};

const FIRST: LedgerEpoch = LedgerEpoch::FIRST;
const LEDGER: Ledger = Ledger {
    id: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
    epoch: FIRST,
    shard_count: 1,
    seal_key: SealKey::new(*b"a key that the tests alone have."),
};
/// Tokens that were given out stay good: these never change. Another program made them, too, by the description of
/// `seal`.
const EVENTS_VECTOR: &str = "AgEANojwSEq7rg06zbhzvF4m5V13IVBb0t1V0APSxhp1fMJV9sTP";
const RUNS_VECTOR: &str = "AgEAoET4CTaPyYOakJoWB0hLqf8s2W_1q0vuqW5m4_FFVk1GOCbRbIsU";
/// The same tokens as release 0.2.0 gave them out.
const EVENTS_FORMAT_1: &str = "AfntplJPe9IyAAAAAAAAAGQ";
const RUNS_FORMAT_1: &str = "ATQyXLF-2xLSAAZEWUFkIkBydW4";

fn seals() -> Seals {
    Seals::new(LEDGER)
}

/// The seals of other ledgers: of another id, and with another key.
fn foreign() -> [Seals; 2] {
    let seal_key = SealKey::new(*b"another key than the tests have.");
    [Seals::new(Ledger { id: Uuid::nil(), ..LEDGER }), Seals::new(Ledger { seal_key, ..LEDGER })]
}

fn key(namespace: &str, run_id: &str) -> RunKey {
    RunKey { namespace: namespace.into(), run_id: run_id.into() }
}

fn here(run_id: &str) -> Place {
    Place { started_at: Time::from_micros(1_764_000_000_123_456), run_id: run_id.into() }
}

/// The filter of a list that is asked for nothing.
fn listed() -> Filter {
    Filter { archived: Some(false), ..Filter::default() }
}

/// Filters of which no two mean the same.
fn filters() -> Vec<Filter> {
    let text = |text: &str| Some(text.to_owned());
    let time = |micros| Some(Time::from_micros(micros));
    let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    vec![
        listed(),
        Filter::default(),
        Filter { archived: Some(true), ..Filter::default() },
        Filter { task_thread_id: text("x"), ..listed() },
        Filter { agent_id: text("x"), ..listed() },
        Filter { workflow_id: text("x"), ..listed() },
        Filter { audit_session_id: text("x"), ..listed() },
        Filter { audit_session_id: text("xx"), ..listed() },
        Filter { agent_id: text("x"), workflow_id: text("x"), ..listed() },
        Filter { statuses: [Status::Pending].into(), ..listed() },
        Filter { statuses: [Status::Pending, Status::Running].into(), ..listed() },
        Filter { statuses: Status::ALL.into(), ..listed() },
        Filter { route: Some(Route::Mcp), ..listed() },
        Filter { route: Some(Route::Cli), ..listed() },
        Filter { started_from: time(0), ..listed() },
        Filter { started_before: time(0), ..listed() },
        Filter { started_before: time(1), ..listed() },
        Filter { labels: labels(&[("a", "b")]), ..listed() },
        Filter { labels: labels(&[("a", "")]), ..listed() },
        Filter { labels: labels(&[("ab", "")]), ..listed() },
        Filter { labels: labels(&[("parent", "r")]), ..listed() },
        Filter { labels: labels(&[("continues", "r")]), ..listed() },
        Filter { parent_run_id: Some("r".into()), ..listed() },
        Filter { parent_run_id: Some("r".into()), ..Filter::default() },
        Filter { continues_run_id: Some("r".into()), ..listed() },
        Filter { parent_run_id: Some("r".into()), continues_run_id: Some("r".into()), ..listed() },
        Filter { labels: labels(&[("a", "b"), ("c", "d")]), ..listed() },
    ]
}

#[test]
fn a_token_leads_back_to_where_the_page_ended() {
    let (run, seals) = (key("default", "run"), seals());
    for revision_at in [0, 1, 100, u64::MAX].map(Revision::from) {
        for epoch in [0, 1, u64::MAX].map(LedgerEpoch::from) {
            let token = after_revision(revision_at, &seals, epoch, &run);
            assert!(token.len() <= PAGE_TOKEN_BYTES_MAX);
            assert_eq!(revision(&token, &seals, epoch, &run), Ok(revision_at));
        }
    }
    for filter in filters() {
        for micros in [i64::MIN, -1, 0, 1_764_000_000_123_456, i64::MAX] {
            for run_id in ["r", "run-1", &"~".repeat(RUN_ID_BYTES_MAX)] {
                let place_at = Place { started_at: Time::from_micros(micros), run_id: run_id.into() };
                let token = after_place(&place_at, &seals, "default", &filter);
                assert!(token.len() <= PAGE_TOKEN_BYTES_MAX);
                assert_eq!(place(&token, &seals, "default", &filter), Ok(place_at));
            }
        }
    }
}

#[test]
fn a_token_has_one_text_on_every_replica() {
    let (run, last) = (key("default", "run"), filters().pop().unwrap());
    for _ in 0..2 {
        assert_eq!(after_revision(100.into(), &seals(), FIRST, &run), EVENTS_VECTOR);
        assert_eq!(after_place(&here("run"), &seals(), "default", &last), RUNS_VECTOR);
    }
}

#[test]
fn a_token_of_another_ledger_key_epoch_namespace_or_run_is_noise() {
    let (run, seals) = (key("default", "run"), seals());
    let token = after_revision(7.into(), &seals, FIRST, &run);
    for other in foreign() {
        assert_eq!(revision(&token, &other, FIRST, &run), Err(PageTokenInvalid));
    }
    assert_eq!(revision(&token, &seals, 1.into(), &run), Err(PageTokenInvalid));
    assert_eq!(revision(&token, &seals, FIRST, &key("other", "run")), Err(PageTokenInvalid));
    assert_eq!(revision(&token, &seals, FIRST, &key("default", "run2")), Err(PageTokenInvalid));
    assert_eq!(place(&token, &seals, "default", &listed()), Err(PageTokenInvalid));
}

#[test]
fn a_token_of_another_filter_is_noise() {
    let (filters, seals) = (filters(), seals());
    for (given, filter) in filters.iter().enumerate() {
        let token = after_place(&here("run"), &seals, "default", filter);
        for other in foreign() {
            assert_eq!(place(&token, &other, "default", filter), Err(PageTokenInvalid));
        }
        assert_eq!(place(&token, &seals, "other", filter), Err(PageTokenInvalid));
        assert_eq!(revision(&token, &seals, FIRST, &key("default", "run")), Err(PageTokenInvalid));
        for (asked, other) in filters.iter().enumerate() {
            assert_eq!(place(&token, &seals, "default", other).is_ok(), asked == given, "{filter:?} and {other:?}");
        }
    }
}

/// The token of a run's events, and that of a list.
fn given() -> [String; 2] {
    [
        after_revision(7.into(), &seals(), FIRST, &key("default", "run")),
        after_place(&here("run-1"), &seals(), "default", &listed()),
    ]
}

/// Whether a token is taken for either question.
fn is_taken(token: &str) -> bool {
    revision(token, &seals(), FIRST, &key("default", "run")).is_ok()
        || place(token, &seals(), "default", &listed()).is_ok()
}

#[test]
fn a_token_with_any_bit_flipped_is_noise() {
    for token in given() {
        assert!(is_taken(&token));
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_taken(&URL_SAFE_NO_PAD.encode(flipped)), "bit {bit} of {token}");
        }
    }
}

#[test]
fn a_token_changed_anywhere_is_noise() {
    for token in given() {
        assert!(is_taken(&token));
        for at in 0..token.len() {
            for replacement in ["A", "B", "_", "=", "é", "\0", ""] {
                let mut changed = token.clone();
                changed.replace_range(at..=at, replacement);
                assert!(changed == token || !is_taken(&changed), "{changed}");
            }
        }
        let longer = [format!("{token}="), format!("{token}A"), format!("{token}AA"), format!("{token}AAAA")];
        for noise in ["", "A", "==", " ", &token[1..], &"A".repeat(9999)].into_iter().chain(longer.iter().map(|t| &**t))
        {
            assert!(!is_taken(noise), "{noise}");
        }
    }
}

#[test]
fn a_token_that_is_not_sealed_is_taken_no_more() {
    let (run, last) = (key("default", "run"), filters().pop().unwrap());
    assert_eq!(revision(EVENTS_FORMAT_1, &seals(), FIRST, &run), Err(PageTokenInvalid));
    assert_eq!(place(RUNS_FORMAT_1, &seals(), "default", &last), Err(PageTokenInvalid));
    for name in ["default", "team-a", "7"] {
        assert_eq!(namespace(name, &seals()), Err(PageTokenInvalid));
        assert_eq!(lifecycle(name, &seals(), "default"), Err(PageTokenInvalid));
        assert_eq!(version(name, &seals(), "default", "review"), Err(PageTokenInvalid));
    }
}

#[test]
fn a_token_of_names_opens_for_its_list_alone() {
    let (name, seals) = ("n".repeat(64), seals());
    let tokens = [
        after_namespace(&name, &seals),
        after_lifecycle(&name, &seals, "default"),
        after_lifecycle(&name, &seals, "other"),
        below_version(7, &seals, "default", "review"),
        below_version(7, &seals, "default", "other"),
        below_version(7, &seals, "other", "review"),
    ];
    for (given, token) in tokens.iter().enumerate() {
        assert!(token.len() <= PAGE_TOKEN_BYTES_MAX && !token.contains("nnn"));
        let taken = [
            namespace(token, &seals).as_deref() == Ok(&name),
            lifecycle(token, &seals, "default").as_deref() == Ok(&name),
            lifecycle(token, &seals, "other").as_deref() == Ok(&name),
            version(token, &seals, "default", "review") == Ok(7),
            version(token, &seals, "default", "other") == Ok(7),
            version(token, &seals, "other", "review") == Ok(7),
        ];
        assert!(taken.into_iter().enumerate().all(|(asked, taken)| taken == (asked == given)), "{given}: {taken:?}");
        for other in foreign() {
            assert!(namespace(token, &other).is_err() && lifecycle(token, &other, "default").is_err());
            assert!(version(token, &other, "default", "review").is_err());
        }
    }
    assert_eq!((namespace("", &seals), lifecycle("", &seals, "a")), (Ok(String::new()), Ok(String::new())));
    assert_eq!(version("", &seals, "a", "b"), Ok(u32::MAX));
}

/// Whoever adds a list adds a question to [`Pages`], so that its tokens are sealed.
#[test]
fn every_list_of_the_protocol_has_its_tokens_here() {
    let pool = prost_reflect::DescriptorPool::decode(runledger_proto::FILE_DESCRIPTOR_SET).unwrap();
    let pages = pool.all_messages().filter(|message| message.get_field_by_name("page_token").is_some());
    let mut lists: Vec<String> = pages.map(|message| message.name().to_owned()).collect();
    lists.sort();
    assert_eq!(lists, ["ListLifecyclesRequest", "ListNamespacesRequest", "ListRunEventsRequest", "ListRunsRequest"]);
}

proptest! {
    #[test]
    fn noise_is_never_a_token(noise in "\\PC{0,64}", bytes: [u8; 24]) {
        for noise in [noise, URL_SAFE_NO_PAD.encode(bytes)] {
            prop_assert!(!is_taken(&noise));
        }
    }
}
