//! `Run.metadata` of a request, a `google.protobuf.Struct`, as the domain has it. Each value that JSON or the
//! contract does not know is a violation at its path, unless it is masked: nothing looks at such a value.

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use serde_json::{Map, Value as Json};

use crate::domain::Metadata;
use crate::domain::limits::{METADATA_DEPTH_MAX, METADATA_KEYS_MAX, UNMASKED_BYTES_MAX};
use crate::domain::parts::metadata::canonical_number;
use crate::wire::validate::{Violations, excerpt};
use runledger_proto::json::structure;

/// Bytes of a path that a violation shows.
const PATH_BYTES_MAX: usize = 100;
/// Bytes of one key that a path shows.
const PATH_KEY_BYTES_MAX: usize = 64;

/// The request's `metadata`, at most `bytes_max` as compact JSON. Absent is empty.
pub(in crate::wire) fn metadata(metadata: Option<Struct>, bytes_max: usize, violations: &mut Violations) -> Metadata {
    metadata.map_or_else(Metadata::default, |metadata| object_of("metadata", metadata, bytes_max, violations))
}

/// An object of a request, with the limits and the form of metadata.
pub(in crate::wire) fn object_of(
    field: &'static str,
    of: Struct,
    bytes_max: usize,
    violations: &mut Violations,
) -> Metadata {
    let found = Metadata::from(object(of, &Path::Root(field), violations));
    let keys = found.keys();
    if keys > METADATA_KEYS_MAX {
        violations.push(field, format!("has {keys} keys at all levels; the limit is {METADATA_KEYS_MAX}"));
    }
    let bytes = found.bytes();
    if bytes > UNMASKED_BYTES_MAX.max(bytes_max) {
        let unmasked = UNMASKED_BYTES_MAX;
        violations.push(
            field,
            format!("is {bytes} bytes as compact JSON; the limit is {bytes_max}, and {unmasked} before it is masked"),
        );
    } else if bytes > bytes_max {
        violations.oversize(field, format!("is {bytes} bytes as compact JSON; the limit is {bytes_max}"));
    }
    found
}

/// An empty object is not sent.
pub(in crate::wire) fn shown(metadata: &Metadata) -> Option<Struct> {
    (!metadata.is_empty()).then(|| structure(metadata.as_map()))
}

/// The path of a value: a list on the stack, spelled out only for a violation.
enum Path<'a> {
    Root(&'static str),
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// The number of objects and lists around a value at this path, and itself: 1 at the root.
    fn depth(&self) -> usize {
        match self {
            Self::Root(_) => 1,
            Self::Key(parent, _) | Self::Index(parent, _) => parent.depth() + 1,
        }
    }

    /// The path to the first key on the way, or as far as it goes.
    fn first(&self) -> &Self {
        match self {
            Self::Root(_) | Self::Key(Self::Root(_), _) => self,
            Self::Key(parent, _) | Self::Index(parent, _) => parent.first(),
        }
    }

    /// The keys on the way to the value.
    fn keys(&self) -> Vec<String> {
        match self {
            Self::Root(_) => Vec::new(),
            Self::Index(parent, _) => parent.keys(),
            Self::Key(parent, key) => {
                let mut keys = parent.keys();
                keys.push((*key).to_owned());
                keys
            }
        }
    }

    /// Such as `metadata.a["b c"][3]`.
    fn text(&self) -> String {
        match self {
            Self::Root(field) => (*field).to_owned(),
            Self::Key(parent, key) => {
                let plain =
                    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
                let key = excerpt(key, PATH_KEY_BYTES_MAX);
                joined(parent.text(), &if plain { format!(".{key}") } else { format!("[\"{key}\"]") })
            }
            Self::Index(parent, index) => joined(parent.text(), &format!("[{index}]")),
        }
    }
}

/// A path that is full stays as it is.
fn joined(mut path: String, segment: &str) -> String {
    if path.ends_with('…') {
        return path;
    }
    path.push_str(if path.len() + segment.len() <= PATH_BYTES_MAX { segment } else { "…" });
    path
}

fn object(object: Struct, path: &Path<'_>, violations: &mut Violations) -> Map<String, Json> {
    let mut map = Map::new();
    for (key, member) in object.fields {
        let at = Path::Key(path, &key);
        if key.contains('\0') && !violations.is_full_of_unfit() {
            // A key is masked with the value that it is in, and not by itself.
            violations.unfit(at.text(), "a key must not contain U+0000", path.keys(), path.first().text());
        }
        let member = value(member, &at, violations);
        map.insert(key, member);
    }
    map
}

fn value(value: Value, path: &Path<'_>, violations: &mut Violations) -> Json {
    match value.kind {
        Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(value)) => Json::Bool(value),
        Some(Kind::NumberValue(double)) if double.is_finite() => Json::Number(canonical_number(double)),
        Some(Kind::NumberValue(_)) => refused(path, "must be a finite number", violations),
        Some(Kind::StringValue(text)) if text.contains('\0') => refused(path, "must not contain U+0000", violations),
        Some(Kind::StringValue(text)) => Json::String(text),
        // No value below the limit is walked, so that the walk is never deeper than the limit.
        Some(Kind::StructValue(_) | Kind::ListValue(_)) if path.depth() > METADATA_DEPTH_MAX => refused(
            path,
            &format!(
                "is nested too deep: {METADATA_DEPTH_MAX} objects and lists at most, the outermost being the first"
            ),
            violations,
        ),
        Some(Kind::StructValue(inner)) => Json::Object(object(inner, path, violations)),
        Some(Kind::ListValue(list)) => Json::Array(
            list.values
                .into_iter()
                .enumerate()
                .map(|(index, inner)| self::value(inner, &Path::Index(path, index), violations))
                .collect(),
        ),
        None => refused(path, "has no kind: set one, or null", violations),
    }
}

fn refused(path: &Path<'_>, description: &str, violations: &mut Violations) -> Json {
    if !violations.is_full_of_unfit() {
        violations.unfit(path.text(), description, path.keys(), path.first().text());
    }
    // A null would not be masked, since it deletes.
    Json::Bool(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Violation;
    use crate::wire::validate::VIOLATIONS_MAX;
    use prost_types::ListValue;
    use serde_json::json;

    fn wire(fields: impl IntoIterator<Item = (&'static str, Kind)>) -> Struct {
        Struct { fields: fields.into_iter().map(|(key, kind)| (key.to_owned(), of(kind))).collect() }
    }

    fn of(kind: Kind) -> Value {
        Value { kind: Some(kind) }
    }

    fn list(values: impl IntoIterator<Item = Value>) -> Kind {
        Kind::ListValue(ListValue { values: values.into_iter().collect() })
    }

    fn read(wire: Struct) -> Result<Metadata, Vec<Violation>> {
        let mut violations = Violations::default();
        let metadata = metadata(Some(wire), 1_000_000, &mut violations);
        violations.settle(metadata)
    }

    fn nested(depth: usize, level: fn(Value) -> Kind) -> Struct {
        let innermost = of(level(of(Kind::NullValue(0))));
        let inner = (2..depth).fold(innermost, |inner, _| of(level(inner)));
        wire([("a", inner.kind.unwrap())])
    }

    #[test]
    fn json_comes_back_as_it_was() {
        let json = json!({"": [], "null": null, "a": {"b": [1, -2.5, 1e308, 5e-324, "🦀\u{1}", true, {"c": {}}]}});
        let Json::Object(map) = &json else { unreachable!() };
        assert_eq!(Json::Object(read(structure(map)).unwrap().as_map().clone()), json);
    }

    #[test]
    fn numbers_are_doubles_in_one_form() {
        let numbers = [1e308, 9_007_199_254_740_993.0, -0.0, 1.0];
        let metadata = read(wire([("n", list(numbers.map(|number| of(Kind::NumberValue(number)))))])).unwrap();
        assert_eq!(serde_json::to_string(&metadata).unwrap(), r#"{"n":[1e+308,9007199254740992,0,1]}"#);
    }

    #[test]
    fn what_json_does_not_know_is_named_by_its_path() {
        let bad = [
            of(Kind::NumberValue(f64::NAN)),
            of(Kind::NumberValue(1.0)),
            of(Kind::NumberValue(f64::NEG_INFINITY)),
            Value { kind: None },
        ];
        let inner = Kind::StructValue(wire([("b", list(bad)), ("c\0\"", Kind::StringValue("\0".into()))]));
        let violations = read(wire([("a", inner)])).unwrap_err();
        let fields: Vec<_> = violations.iter().map(|violation| violation.field.as_str()).collect();
        let odd = r#"metadata.a["c\0\""]"#;
        assert_eq!(fields, ["metadata.a.b[0]", "metadata.a.b[2]", "metadata.a.b[3]", odd, odd]);
    }

    #[test]
    fn what_json_does_not_know_stands_only_if_it_is_not_masked_and_hides_what_leads_to_it_until_then() {
        let nan = || of(Kind::NumberValue(f64::NAN));
        let asked = || wire([("a", Kind::StructValue(wire([("b", list([nan()]))])))]);
        let mut violations = Violations::default();
        let found = metadata(Some(asked()), 1_000_000, &mut violations);
        let (found, faults) = violations.settle_but_oversize(found).unwrap();
        assert_eq!(Json::Object(found.as_map().clone()), json!({"a": {"b": [false]}}), "it can be masked");
        let said = |faults: &[Violation]| -> Vec<_> {
            faults.iter().map(|fault| (fault.field.clone(), fault.within.clone())).collect()
        };
        let within = Some(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(said(&faults), [("metadata.a.b[0]".to_owned(), within)]);
        let mut violations = Violations::default();
        let found = metadata(Some(asked()), 1_000_000, &mut violations);
        violations.push("run_id", "is required");
        let faults = violations.settle(found).unwrap_err();
        assert_eq!(said(&faults), [("metadata.a".to_owned(), None), ("run_id".to_owned(), None)]);
    }

    #[test]
    fn of_too_many_values_that_json_does_not_know_none_is_taken() {
        let many = (0..=VIOLATIONS_MAX).map(|_| of(Kind::NumberValue(f64::NAN)));
        let mut violations = Violations::default();
        let found = metadata(Some(wire([("password", list(many))])), 1_000_000, &mut violations);
        let (_, faults) = violations.settle_but_oversize(found).unwrap();
        assert_eq!(faults.len(), VIOLATIONS_MAX + 1);
        assert_eq!(faults.last().unwrap().within, Some(Vec::new()), "no lifecycle masks it");
    }

    #[test]
    fn metadata_is_at_most_32_deep() {
        for level in
            [|inner| list([inner]), |inner| Kind::StructValue(Struct { fields: [("a".to_owned(), inner)].into() })]
                as [fn(Value) -> Kind; 2]
        {
            assert!(read(nested(METADATA_DEPTH_MAX, level)).is_ok());
            let violations = read(nested(METADATA_DEPTH_MAX + 1, level)).unwrap_err();
            assert_eq!(violations.len(), 1);
            assert!(violations[0].field.starts_with("metadata.a") && violations[0].description.contains("too deep"));
            assert_eq!(read(nested(2_000, level)).unwrap_err(), violations);
        }
    }

    #[test]
    fn metadata_of_the_greatest_depth_fits_a_decoder_at_every_place_that_carries_it() {
        use prost::Message as _;
        use runledger_proto::v1;
        let metadata = Some(nested(METADATA_DEPTH_MAX, |inner| {
            Kind::StructValue(Struct { fields: [("a".to_owned(), inner)].into() })
        }));
        let run = v1::Run { metadata: metadata.clone(), ..v1::Run::default() };
        let changes = v1::RunChanges { metadata, ..v1::RunChanges::default() };
        let event = v1::RunEvent { changes: Some(changes), ..v1::RunEvent::default() };
        let change = v1::watch_run_response::Change { event: Some(event), run: Some(run) };
        let frame =
            v1::WatchRunResponse { frame: Some(v1::watch_run_response::Frame::Change(change)), ledger_epoch: 0 };
        assert_eq!(v1::WatchRunResponse::decode(frame.encode_to_vec().as_slice()).unwrap(), frame);
    }

    #[test]
    fn metadata_have_16384_keys_at_all_levels_at_most() {
        let of_keys = |keys: usize| {
            let inner = |nth: usize| Struct { fields: [(format!("{nth}"), of(Kind::NullValue(0)))].into() };
            wire([("a", list((1..keys).map(|nth| of(Kind::StructValue(inner(nth))))))])
        };
        assert!(read(of_keys(METADATA_KEYS_MAX)).is_ok());
        let violations = read(of_keys(METADATA_KEYS_MAX + 1)).unwrap_err();
        assert_eq!(violations[0].description, "has 16385 keys at all levels; the limit is 16384");
    }

    #[test]
    fn a_path_stays_short_whatever_the_keys_are() {
        let deep =
            nested(40, |inner| Kind::StructValue(Struct { fields: [("\u{202e}\u{7}".repeat(5_000), inner)].into() }));
        for violation in read(deep).unwrap_err() {
            assert!(violation.field.len() <= PATH_BYTES_MAX + '…'.len_utf8(), "{}", violation.field);
            assert!(!violation.field.contains(['\u{202e}', '\u{7}']));
        }
    }
}
