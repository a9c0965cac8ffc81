//! Values of the wire from JSON and pairs.

use std::collections::{BTreeMap, HashMap};

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde_json::Value as Json;

/// A JSON object as the wire has it. The empty one is not sent in answers.
#[expect(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "json! makes values, messages take options"
)]
pub(crate) fn structure(json: Json) -> Option<Struct> {
    match value(&json).kind {
        Some(Kind::StructValue(structure)) => Some(structure),
        _ => panic!("not an object: {json}"),
    }
}

fn value(json: &Json) -> Value {
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(bool) => Kind::BoolValue(*bool),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap()),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(values) => Kind::ListValue(ListValue { values: values.iter().map(value).collect() }),
        Json::Object(map) => {
            Kind::StructValue(Struct { fields: map.iter().map(|(key, json)| (key.clone(), value(json))).collect() })
        }
    };
    Value { kind: Some(kind) }
}

/// An object with one value that JSON may not have.
#[expect(clippy::unnecessary_wraps, reason = "messages take options")]
pub(crate) fn one(key: &str, kind: Kind) -> Option<Struct> {
    Some(Struct { fields: [(key.to_owned(), Value { kind: Some(kind) })].into() })
}

/// Objects in objects, so many levels: the first is the metadata itself.
#[expect(clippy::unnecessary_wraps, reason = "messages take options")]
pub(crate) fn nested(levels: usize) -> Option<Struct> {
    let deepest = Struct { fields: BTreeMap::from([("leaf".to_owned(), value(&Json::Bool(true)))]) };
    Some((1..levels).fold(deepest, |inner, _| Struct {
        fields: [("a".to_owned(), Value { kind: Some(Kind::StructValue(inner)) })].into(),
    }))
}

/// Metadata that is so many bytes as compact JSON.
pub(crate) fn metadata_of(bytes: usize) -> Option<Struct> {
    structure(serde_json::json!({ "k": "x".repeat(bytes - r#"{"k":""}"#.len()) }))
}

pub(crate) fn labels<const N: usize>(pairs: [(&str, &str); N]) -> HashMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}
