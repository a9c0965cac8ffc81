use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::store::SealKey;

const LEDGER: Ledger = Ledger {
    id: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
    epoch: LedgerEpoch::new(3),
    shard_count: 4,
    seal_key: SealKey::new(*b"a key that the tests alone have."),
};

/// Cursors that were given out stay good, and replicas make the same: this never changes. Another program made it, too,
/// by the description of `seal`.
const VECTOR: &str = "AgED7D--ac6VcN_9-eCla24QU5dJQDnjK7kBpllBmorGmi_6N1mP6tcdMQUhkrKiy89UffUEkvbYNCeoTqHBnBoUAZzKRkXdaNi1rm0Byso_pHmi1w";
/// `showing(ViewOf::Active)` as release 0.2.0 gave it out.
const FORMAT_1: &str = "AQgDEg4AB____________wGsAhgBIhII-___________ARIFcnVuOjG8bxBEJEZa2w";

fn live() -> Cursor {
    Cursor { epoch: LEDGER.epoch, positions: vec![0, 7, u64::MAX, 300].into(), view: None }
}

fn showing(of: ViewOf) -> Cursor {
    let shown = Place { started_at: Time::from_micros(-5), run_id: "run:1".into() };
    let walked = match of {
        ViewOf::Active => Walked::default(),
        ViewOf::All => [(3_600_000, 7), (u64::MAX, u64::MAX)].into_iter().collect(),
    };
    Cursor { view: Some(View { of, shown: Some(shown), walked }), ..live() }
}

fn given(cursor: &Cursor) -> String {
    encode(cursor, &Seals::new(LEDGER), "default")
}

/// A text as a client sends it to a replica of this ledger.
fn taken(text: &str, ledger: Ledger, namespace: &str) -> Result<Cursor, CursorInvalid> {
    decode(text, &Seals::new(ledger), ledger, namespace)
}

#[test]
fn a_cursor_leads_back_to_its_place() {
    let unshown = Cursor { view: Some(View { of: ViewOf::All, shown: None, walked: Walked::default() }), ..live() };
    for cursor in [live(), showing(ViewOf::Active), showing(ViewOf::All), unshown] {
        assert_eq!(taken(&given(&cursor), LEDGER, "default"), Ok(cursor.clone()));
        let text = encode(&cursor, &Seals::new(LEDGER), "team-1");
        assert_eq!(taken(&text, LEDGER, "team-1"), Ok(cursor));
    }
}

#[test]
fn a_cursor_has_one_text_on_every_replica() {
    let seals = Seals::new(LEDGER);
    let texts = [(); 2].map(|()| encode(&showing(ViewOf::Active), &seals, "default"));
    assert_eq!(texts, [(); 2].map(|()| given(&showing(ViewOf::Active))));
    assert_eq!(texts[0], VECTOR);
}

#[test]
fn a_cursor_of_another_ledger_key_epoch_or_namespace_is_noise() {
    let cursor = given(&live());
    for other in [
        Ledger { id: Uuid::nil(), ..LEDGER },
        Ledger { seal_key: SealKey::new(*b"another key than the tests have."), ..LEDGER },
        Ledger { epoch: 4.into(), ..LEDGER },
        Ledger { shard_count: 5, ..LEDGER },
    ] {
        assert_eq!(taken(&cursor, other, "default"), Err(CursorInvalid), "{other:?}");
    }
    assert_eq!(taken(&cursor, LEDGER, "other"), Err(CursorInvalid));
}

/// A cursor of an epoch of which this replica has not heard yet makes it look at the ledger's past.
#[test]
fn the_epoch_of_a_cursor_is_read_without_the_ledgers_own() {
    let later = Cursor { epoch: 1_000_000.into(), ..live() };
    let text = given(&later);
    assert_eq!(epoch(&text, &Seals::new(LEDGER), "default"), Some(later.epoch));
    assert_eq!(taken(&text, LEDGER, "default"), Err(CursorInvalid));
    assert_eq!(epoch(&text, &Seals::new(LEDGER), "other"), None);
    let foreign = Ledger { seal_key: SealKey::new([0; 32]), ..LEDGER };
    assert_eq!(epoch(&text, &Seals::new(foreign), "default"), None, "an epoch that nobody sealed is not believed");
}

#[test]
fn a_cursor_with_any_bit_flipped_is_noise() {
    for text in [given(&live()), given(&showing(ViewOf::All))] {
        assert!(taken(&text, LEDGER, "default").is_ok());
        let bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let flipped = URL_SAFE_NO_PAD.encode(flipped);
            assert_eq!(taken(&flipped, LEDGER, "default"), Err(CursorInvalid), "bit {bit} of {text}");
            assert_eq!(epoch(&flipped, &Seals::new(LEDGER), "default"), None, "bit {bit} of {text}");
        }
    }
}

#[test]
fn a_cursor_changed_anywhere_is_noise() {
    let cursor = given(&showing(ViewOf::All));
    for at in 0..cursor.len() {
        for replacement in ["A", "B", "_", "=", "é", "\0", ""] {
            let mut changed = cursor.clone();
            changed.replace_range(at..=at, replacement);
            assert!(changed == cursor || taken(&changed, LEDGER, "default").is_err(), "{changed}");
        }
    }
    assert!(taken(&cursor[..cursor.len() - 2], LEDGER, "default").is_err());
    assert!(taken(&"A".repeat(CURSOR_BYTES_MAX + 1), LEDGER, "default").is_err());
}

#[test]
fn the_length_of_a_cursor_does_not_tell_how_much_the_ledger_holds() {
    let length = |position| given(&Cursor { positions: vec![position; 4].into(), ..live() }).len();
    assert!([0, 1, 1_000, 1 << 40, u64::MAX].into_iter().all(|position| length(position) == length(7)));
}

#[test]
fn the_largest_cursor_keeps_the_bound() {
    let ledger = Ledger { shard_count: 1024, epoch: u64::MAX.into(), ..LEDGER };
    let shown = Place { started_at: Time::from_micros(i64::MIN), run_id: "~".repeat(RUN_ID_BYTES_MAX).into() };
    let walked = (0..16).map(|number| (u64::MAX - number, u64::MAX)).collect();
    let cursor = Cursor {
        epoch: ledger.epoch,
        positions: vec![u64::MAX; SHARDS_MAX].into(),
        view: Some(View { of: ViewOf::All, shown: Some(shown), walked }),
    };
    let text = given(&cursor);
    assert!(text.len() <= CURSOR_BYTES_MAX, "{}", text.len());
    assert_eq!(taken(&text, ledger, "default"), Ok(cursor));
}

#[test]
fn a_cursor_that_is_not_sealed_is_taken_no_more() {
    assert_eq!(taken(FORMAT_1, LEDGER, "default"), Err(CursorInvalid));
    assert_eq!(epoch(FORMAT_1, &Seals::new(LEDGER), "default"), None);
}

proptest! {
    #[test]
    fn noise_is_never_a_cursor(noise in "\\PC{0,64}", bytes: Vec<u8>) {
        prop_assert!(taken(&noise, LEDGER, "default").is_err());
        prop_assert!(taken(&URL_SAFE_NO_PAD.encode(bytes), LEDGER, "default").is_err());
    }
}
