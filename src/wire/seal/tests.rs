use super::*;

const LEDGER: Ledger = Ledger {
    id: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
    epoch: LedgerEpoch::FIRST,
    shard_count: 1,
    seal_key: SealKey::new(*b"a key that the tests alone have."),
};

fn sealed(seals: &Seals, binding: &Binding<'_>, content: &[u8]) -> String {
    seals.seal(binding, 3.into(), content.len(), |bytes| bytes.extend_from_slice(content))
}

#[test]
fn a_text_opens_for_nothing_but_what_it_was_made_for() {
    let seals = Seals::new(LEDGER);
    let mut bindings = Vec::new();
    for purpose in [Purpose::Cursor, Purpose::Events, Purpose::Runs, Purpose::Namespaces, Purpose::Lifecycles] {
        for (namespace, question) in [("a", "bc"), ("ab", "c"), ("abc", ""), ("", "abc"), ("a", ""), ("", "")] {
            bindings.push(Binding { purpose, namespace, question: question.as_bytes() });
        }
    }
    for (made_for, binding) in bindings.iter().enumerate() {
        let text = sealed(&seals, binding, b"content");
        for (asked_for, other) in bindings.iter().enumerate() {
            let opened = seals.open(other, &text);
            assert_eq!(opened.is_some(), made_for == asked_for, "{binding:?} opened for {other:?}");
            if let Some(Opened { epoch, content }) = opened {
                assert_eq!((epoch, &*content), (3.into(), &b"content"[..]));
            }
        }
    }
}

#[test]
fn a_text_shows_nothing_of_its_content() {
    let binding = Binding { purpose: Purpose::Cursor, namespace: "default", question: &[] };
    let seals = Seals::new(LEDGER);
    let bytes = |content: &[u8]| URL_SAFE_NO_PAD.decode(sealed(&seals, &binding, content)).unwrap();
    let (one, other) = (bytes(&[0; 64]), bytes(&[1; 64]));
    assert_eq!(one[..3], [FORMAT, KEY_ID, 3]);
    assert_eq!(one[..3], other[..3]);
    // Two streams of random bytes have half a byte of 64 in common; the nonces are unlike, so the streams are.
    let alike = one[3..].iter().zip(&other[3..]).filter(|(one, other)| one == other).count();
    assert!(alike < 8, "{alike} bytes are alike");
}

#[test]
fn an_epoch_has_one_spelling() {
    let binding = Binding { purpose: Purpose::Cursor, namespace: "default", question: &[] };
    let seals = Seals::new(LEDGER);
    let mut bytes = URL_SAFE_NO_PAD.decode(sealed(&seals, &binding, b"content")).unwrap();
    bytes.splice(2..3, [0x83, 0x00]);
    assert!(seals.open(&binding, &URL_SAFE_NO_PAD.encode(bytes)).is_none());
}

#[test]
fn the_keys_of_more_namespaces_than_are_kept_are_derived_anew() {
    let seals = Seals::new(LEDGER);
    let names: Vec<String> = (0..NAMESPACES_MAX * 2).map(|number| format!("team-{number}")).collect();
    let of = |namespace| Binding { purpose: Purpose::Cursor, namespace, question: &[] };
    let texts: Vec<String> = names.iter().map(|name| sealed(&seals, &of(name), b"content")).collect();
    assert!(seals.cursors.len() <= NAMESPACES_MAX);
    for (name, text) in names.iter().zip(&texts) {
        assert!(seals.open(&of(name), text).is_some());
        assert_eq!(sealed(&seals, &of(name), b"content"), *text);
    }
}
