//! Texts of each kind, made of parts, with what they say. None: no reader may take such a text for anything.

use std::time::Duration;

/// 2026-11-27T12:00:00Z, in microseconds.
pub(super) const NOON: i64 = 1_795_780_800_000_000;

/// Text around, inside and instead of a sound one: what is left when a reader takes a part of it is sound.
fn spoilt(sound: &str) -> Vec<String> {
    let half = sound.len() / 2;
    let (front, back) = sound.split_at(sound.floor_char_boundary(half));
    let mut spoilt: Vec<String> = [
        ("", " "),
        (" ", ""),
        ("+", ""),
        ("", "x"),
        ("", " x"),
        ("", ";"),
        ("", ","),
        ("", "\0"),
        ("", "\n"),
        ("", "\u{a0}"),
        ("\u{feff}", ""),
        ("", "[Europe/Berlin]"),
        ("(", ")"),
        ("'", "'"),
        ("", "%"),
        ("", "/2"),
        ("=", ""),
        ("--", ""),
        ("", "..."),
        ("", "\u{301}"),
    ]
    .map(|(before, after)| format!("{before}{sound}{after}"))
    .to_vec();
    spoilt.push(format!("{front}_{back}"));
    spoilt.push(format!("{front}\u{200b}{back}"));
    spoilt.push(
        sound.chars().map(|char| char.to_digit(10).map_or(char, |it| char::from_u32(0x660 + it).unwrap())).collect(),
    );
    spoilt
}

/// Lengths of time. A number alone says seconds, where it is taken.
pub(super) fn durations() -> Vec<(String, Option<Duration>)> {
    const UNITS: [(&str, u64); 6] =
        [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let ms = |ms: u64| Some(Duration::from_millis(ms));
    let mut texts = Vec::new();
    for (at, (unit, size)) in UNITS.iter().enumerate() {
        for number in [0, 1, 5, 90] {
            texts.push((format!("{number}{unit}"), ms(number * size)));
        }
        for (smaller, of) in &UNITS[at + 1..] {
            texts.push((format!("2{unit}30{smaller}"), ms(2 * size + 30 * of)));
            texts.push((format!("2{unit} 30{smaller}"), ms(2 * size + 30 * of)));
            texts.push((format!("30{smaller}2{unit}"), None));
        }
        texts.push((format!("1{unit}1{unit}"), None));
        texts.push((format!("1{unit}1"), None));
        texts.push((format!("-1{unit}"), None));
        texts.push(((*unit).to_owned(), None));
        texts.push((format!("99999999999999999999{unit}"), None));
    }
    texts.extend([("1.5h".to_owned(), ms(5_400_000)), ("0.5s".to_owned(), ms(500)), ("5 s".to_owned(), ms(5_000))]);
    texts.extend([("90".to_owned(), ms(90_000)), ("0".to_owned(), ms(0))]);
    let refused = [
        "",
        " ",
        "1.5",
        "1,5h",
        "1e3s",
        "0x5s",
        "1mo",
        "1y",
        "1.5ms",
        "0.0001s",
        "5s ago",
        "ever",
        "18446744073709551615",
    ];
    texts.extend(refused.map(|text| (text.to_owned(), None)));
    texts.extend(["90s", "1h30m", "2d"].iter().flat_map(|sound| spoilt(sound)).map(|text| (text, None)));
    texts
}

/// Moments, in microseconds; a length of time says how long before [`NOON`].
pub(super) fn times() -> Vec<(String, Option<i64>)> {
    const SECOND: i64 = 1_000_000;
    let mut texts = vec![
        ("2026-11-27".to_owned(), Some(NOON - 12 * 3600 * SECOND)),
        ("2026-11-28".to_owned(), Some(NOON + 12 * 3600 * SECOND)),
        ("2026-11-27T22Z".to_owned(), Some(NOON + 10 * 3600 * SECOND)),
        ("7d".to_owned(), Some(NOON - 7 * 86_400 * SECOND)),
        ("90m".to_owned(), Some(NOON - 5_400 * SECOND)),
    ];
    for parted in ["T", "t", " "] {
        for (clock, seconds) in [("22:05:00", 79_500), ("22:05", 79_500), ("00:00:01", 1), ("23:59:59", 86_399)] {
            for (fraction, micros) in [("", 0), (".5", 500_000), (".123456", 123_456), (".1234560", 123_456)] {
                let at = NOON - 12 * 3600 * SECOND + seconds * SECOND + micros;
                // No clock is so far from another one, and none by a part of a minute.
                for offset in ["+25:00", "+24:00", "+25:59:59", "+01:00:00", "+01:00:00.5", "+01:60", "+1:00", "+010"] {
                    texts.push((format!("2026-11-27{parted}{clock}{fraction}{offset}"), None));
                }
                for (offset, ahead) in [("Z", 0), ("z", 0), ("+01:00", 3_600), ("-02:30", -9_000), ("+0100", 3_600)] {
                    texts.push((format!("2026-11-27{parted}{clock}{fraction}{offset}"), Some(at - ahead * SECOND)));
                }
                // Without an offset, or with one that a name contradicts, it is no moment.
                texts.push((format!("2026-11-27{parted}{clock}{fraction}"), None));
                texts.push((format!("2026-11-27{parted}{clock}{fraction}[Europe/Berlin]"), None));
                texts.push((format!("2026-11-27{parted}{clock}{fraction}+05:00[Europe/Berlin]"), None));
                texts.push((format!("2026-11-27{parted}{clock}{fraction}7777777Z"), None));
            }
        }
    }
    let refused = ["", "2026-11-27T", "2026-11-27Z", "2026-11-27T22:05:60Z", "2026-02-30", "20261127"];
    texts.extend(refused.map(|text| (text.to_owned(), None)));
    let refused = ["2026-11-27T220560Z", "2026-11-27T220500Z", "2026-11-27T2205Z", "2026-11-27T22:05.5Z"];
    texts.extend(refused.map(|text| (text.to_owned(), None)));
    for sound in ["2026-11-27T22:05:00Z", "2026-11-27", "7d"] {
        texts.extend(spoilt(sound).into_iter().map(|text| (text, None)));
    }
    texts
}

/// Whole numbers.
pub(super) fn numbers() -> Vec<(String, Option<i128>)> {
    let sound =
        [0, 1, 3, 7, 42, 100, 255, 256, 65_535, 65_536, 4_294_967_295, 4_294_967_296, 18_446_744_073_709_551_615];
    let signed = sound.iter().flat_map(|number: &i128| [*number, -*number]);
    let mut texts: Vec<_> = signed.map(|number| (number.to_string(), Some(number))).collect();
    texts.extend([("007".to_owned(), Some(7)), ("+7".to_owned(), Some(7)), ("18446744073709551616".to_owned(), None)]);
    let refused = ["", "-", "1.5", "1.0", "1e3", "0x10", "1k", "1 000", "1,000", "five", "1/2", "--5"];
    texts.extend(refused.map(|text| (text.to_owned(), None)));
    texts.extend(spoilt("42").into_iter().filter(|text| text != "+42").map(|text| (text, None)));
    texts
}

/// Numbers, of bytes where they have a unit.
pub(super) fn sizes() -> Vec<(String, Option<i128>)> {
    let mut texts = numbers();
    texts.retain(|(text, _)| text != "1k");
    for (unit, size) in [
        ("B", 1),
        ("k", 1_000),
        ("MB", 1_000_000),
        ("Ki", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TB", 10_i128.pow(12)),
    ] {
        for number in [0, 1, 512] {
            texts.push((format!("{number}{unit}"), Some(number * size)));
            texts.push((format!("{number} {unit}"), Some(number * size)));
        }
        texts.push((format!("1.5{unit}"), None));
        texts.push((format!("1{unit}1"), None));
        texts.push((format!("99999999999999999999{unit}"), None));
    }
    texts.extend(["1mib", "1KB", "1kib", "1iB", "1 bytes", "1MiB2KiB"].map(|text| (text.to_owned(), None)));
    texts.extend(spoilt("512MiB").into_iter().map(|text| (text, None)));
    texts
}

/// Parts of the whole.
pub(super) fn shares() -> Vec<(String, Option<f64>)> {
    let sound = [("0", 0.0), ("1", 1.0), ("0.5", 0.5), (".5", 0.5), ("1.0", 1.0), ("5e-1", 0.5), ("0.010", 0.01)];
    let mut texts: Vec<_> = sound.map(|(text, share)| (text.to_owned(), Some(share))).to_vec();
    let refused =
        ["", "-0.5", "1.1", "2", "50%", "0,5", "1/2", "inf", "nan", "1e400", "1e-400", "0x1", "half", "0.5.5", "-0"];
    texts.extend(refused.map(|text| (text.to_owned(), None)));
    texts.extend(spoilt("0.5").into_iter().map(|text| (text, None)));
    texts
}

/// Texts that are no address of a server.
pub(super) fn addresses() -> Vec<String> {
    let own =
        ["", " ", "localhost", ":50051", "a b:1", "a:b", "a:+1", "a:1:2", "a:65536", "-a:1", "é:1", "a:1\t", "[::1]"];
    // A name may have a `_`.
    let spoilt = spoilt("localhost:50051").into_iter().filter(|text| !text.contains('_'));
    own.iter().map(|text| (*text).to_owned()).chain(spoilt).collect()
}

/// Ids, names and texts: as they are, with every blank and mark.
pub(super) fn ids() -> Vec<String> {
    let own = [
        "", " ", "a", "a b", "a\tb", "run-1", "a@1", "a=b", "a:b", "a,b", "é", "e\u{301}", "日本", "1", "-1", "*",
        "${x}", "@a",
    ];
    own.iter().map(|text| (*text).to_owned()).chain(spoilt("run-1")).chain(["x".repeat(4_096)]).collect()
}
