//! Numbers of bytes.

/// The units, with their bytes.
const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("B", 1),
    ("k", 1_000),
    ("kB", 1_000),
    ("M", 1_000_000),
    ("MB", 1_000_000),
    ("G", 1_000_000_000),
    ("GB", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
];

/// A number of bytes such as `512MiB`, `2Gi`, `4GB` or `1073741824`.
///
/// # Errors
///
/// The form that was expected.
pub fn bytes(text: &str) -> Result<u64, &'static str> {
    let expected = "expected a number of bytes such as 512MiB, 2Gi or 4GB";
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.strip_prefix(' ').filter(|unit| !unit.is_empty()).unwrap_or(unit);
    let short = unit.strip_suffix('B').filter(|unit| unit.ends_with('i')).unwrap_or(unit);
    let (_, size) = UNITS.iter().find(|(name, _)| *name == short).ok_or(expected)?;
    let number: u64 = number.parse().map_err(|_no_number| expected)?;
    number.checked_mul(*size).ok_or(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_bytes_may_have_a_unit() {
        for (text, wanted) in [
            ("0", 0),
            ("1073741824", 1 << 30),
            ("512MiB", 512 << 20),
            ("512 MiB", 512 << 20),
            ("2Gi", 2 << 30),
            ("4GB", 4_000_000_000),
            ("3k", 3_000),
            ("7B", 7),
        ] {
            assert_eq!(bytes(text), Ok(wanted), "{text}");
        }
        for text in [
            "",
            " ",
            "B",
            "MiB",
            "-1",
            "+1",
            "1.5GiB",
            "1,5G",
            "1e9",
            "1 000",
            "5 ",
            " 5",
            "5  MB",
            "5mb",
            "5KB",
            "5kib",
            "5iB",
            "5MiBB",
            "5 MiB x",
            "0x10",
            "\u{0665}",
            "18446744073709551616",
            "16777216TiB",
            "5%",
            "5 bytes",
        ] {
            assert!(bytes(text).is_err(), "{text}: {:?}", bytes(text));
        }
    }
}
