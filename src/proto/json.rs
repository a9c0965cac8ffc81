//! `google.protobuf.Struct` to JSON and back. What JSON or the contract does not know is a violation at its path.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde_json::{Map, Value as Json};

use super::validate::{Violations, excerpt};
use crate::domain::Metadata;
use crate::domain::limits::METADATA_DEPTH_MAX;
use crate::domain::metadata::canonical_number;

/// How much of a path a violation shows.
const PATH_BYTES_MAX: usize = 100;
/// How much of one key it shows.
const PATH_KEY_BYTES_MAX: usize = 64;

/// The request's `metadata`, at most `bytes_max` as compact JSON. Absent is empty.
pub(super) fn metadata(metadata: Option<Struct>, bytes_max: usize, violations: &mut Violations) -> Metadata {
    let Some(metadata) = metadata else { return Metadata::default() };
    let metadata = Metadata::from(object(metadata, &Path::Root, violations));
    let bytes = metadata.bytes();
    if bytes > bytes_max {
        violations.push("metadata", format!("is {bytes} bytes as compact JSON; the limit is {bytes_max}"));
    }
    metadata
}

/// A JSON object as a `Struct`.
pub(super) fn structure(map: &Map<String, Json>) -> Struct {
    Struct { fields: map.iter().map(|(key, json)| (key.clone(), dynamic(json))).collect() }
}

fn dynamic(json: &Json) -> Value {
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(value) => Kind::BoolValue(*value),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(values) => Kind::ListValue(ListValue { values: values.iter().map(dynamic).collect() }),
        Json::Object(map) => Kind::StructValue(structure(map)),
    };
    Value { kind: Some(kind) }
}

/// Where a value stands: a list on the stack, spelled out only for a violation.
enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// How many objects and lists deep a value at this path is: 1 at the root.
    fn depth(&self) -> usize {
        match self {
            Self::Root => 1,
            Self::Key(parent, _) | Self::Index(parent, _) => parent.depth() + 1,
        }
    }

    /// Such as `metadata.a["b c"][3]`.
    fn text(&self) -> String {
        match self {
            Self::Root => "metadata".to_owned(),
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
        let path = Path::Key(path, &key);
        if key.contains('\0') {
            violations.push(path.text(), "a key must not contain U+0000");
        }
        let member = value(member, &path, violations);
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
        // Nothing is walked below the limit, so the walk is never deeper than it.
        Some(Kind::StructValue(_) | Kind::ListValue(_)) if path.depth() > METADATA_DEPTH_MAX => refused(
            path,
            &format!(
                "is nested too deep: {METADATA_DEPTH_MAX} objects and lists at most, the metadata being the first"
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
    violations.push(path.text(), description);
    Json::Null
}
