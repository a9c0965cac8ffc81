//! Messages as `ProtoJSON`, as grpcurl shows them: only fields that are set, in the order of the proto; maps by key.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::LazyLock;

use prost::{Message, Name};
use prost_reflect::prost_types::FileDescriptorSet;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage as _, Value};
use prost_types::value::Kind as Dynamic;
use prost_types::{ListValue, Struct};
use serde_json::Value as Json;

use crate::FILE_DESCRIPTOR_SET;

/// Our own messages, and the details of errors that are gRPC's.
static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let mut pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the build made the descriptors");
    let of_grpc = FileDescriptorSet::decode(tonic_types::pb::FILE_DESCRIPTOR_SET).expect("a library's own descriptors");
    let mut details = of_grpc.file.into_iter().filter(|file| file.name() == "error_details.proto");
    details.try_for_each(|file| pool.add_file_descriptor_proto(file)).expect("nothing of ours has these names");
    pool
});

/// A message that has a form in JSON: every message of `runledger.v1`.
pub trait Named: Message + Name {}

impl<M: Message + Name> Named for M {}

/// A message on one line. All control characters are escaped, also those that JSON allows, so that no terminal obeys
/// them.
#[must_use]
pub fn line<M: Named>(message: &M) -> String {
    written(message, &M::full_name())
}

/// Reads a message of its `ProtoJSON`. A field that the message does not have is an error.
///
/// # Errors
///
/// What is wrong, for people.
pub fn read<M: Named + Default>(json: serde_json::Map<String, Json>) -> Result<M, String> {
    let descriptor = POOL.get_message_by_name(&M::full_name()).expect("a message of our own protos");
    let read = DynamicMessage::deserialize(descriptor, Json::Object(json)).map_err(|error| error.to_string())?;
    read.transcode_to().map_err(|error| error.to_string())
}

/// A `Struct`, such as `Run.metadata`, on one line.
#[must_use]
pub fn object(fields: &Struct) -> String {
    written(fields, "google.protobuf.Struct")
}

/// A `Struct` as its one text, of which the authority shows the size and the SHA-256: keys sorted, and no character escaped
/// that JSON allows. It is for programs: a terminal might obey it.
#[must_use]
pub fn text(fields: &Struct) -> String {
    let mut json = String::new();
    write_object(&mut json, fields);
    json
}

fn write_object(json: &mut String, object: &Struct) {
    let mut fields: Vec<_> = object.fields.iter().collect();
    fields.sort_unstable_by_key(|(key, _)| *key);
    json.push('{');
    for (index, (key, value)) in fields.into_iter().enumerate() {
        comma(json, index);
        json.push_str(&quoted(key));
        json.push(':');
        write_dynamic(json, value);
    }
    json.push('}');
}

fn write_dynamic(json: &mut String, value: &prost_types::Value) {
    match &value.kind {
        None | Some(Dynamic::NullValue(_)) => json.push_str("null"),
        Some(Dynamic::BoolValue(value)) => push(json, value),
        Some(Dynamic::NumberValue(number)) => write_double(json, *number),
        Some(Dynamic::StringValue(text)) => json.push_str(&quoted(text)),
        Some(Dynamic::ListValue(list)) => {
            json.push('[');
            for (index, value) in list.values.iter().enumerate() {
                comma(json, index);
                write_dynamic(json, value);
            }
            json.push(']');
        }
        Some(Dynamic::StructValue(object)) => write_object(json, object),
    }
}

fn written(message: &impl Message, name: &str) -> String {
    let mut json = String::new();
    write_message(&mut json, &reflected(message, name));
    json
}

/// A message whose fields can be looked at by their names.
pub(crate) fn reflected(message: &impl Message, name: &str) -> DynamicMessage {
    let descriptor = POOL.get_message_by_name(name).expect("a message of our own protos, or one that they import");
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic.transcode_from(message).expect("both were made from the same proto");
    dynamic
}

/// A JSON object as a `Struct`.
#[must_use]
pub fn structure(map: &serde_json::Map<String, Json>) -> Struct {
    Struct { fields: map.iter().map(|(key, json)| (key.clone(), dynamic(json))).collect() }
}

fn dynamic(json: &Json) -> prost_types::Value {
    let kind = match json {
        Json::Null => Dynamic::NullValue(0),
        Json::Bool(value) => Dynamic::BoolValue(*value),
        Json::Number(number) => Dynamic::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => Dynamic::StringValue(text.clone()),
        Json::Array(values) => Dynamic::ListValue(ListValue { values: values.iter().map(dynamic).collect() }),
        Json::Object(map) => Dynamic::StructValue(structure(map)),
    };
    prost_types::Value { kind: Some(kind) }
}

/// A `Struct` as a JSON object. A number that is not finite is null: JSON has none.
#[must_use]
pub fn map(object: &Struct) -> serde_json::Map<String, Json> {
    object.fields.iter().map(|(key, value)| (key.clone(), plain_value(value))).collect()
}

fn plain_value(value: &prost_types::Value) -> Json {
    match &value.kind {
        None | Some(Dynamic::NullValue(_)) => Json::Null,
        Some(Dynamic::BoolValue(value)) => Json::Bool(*value),
        Some(Dynamic::NumberValue(number)) => serde_json::Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Some(Dynamic::StringValue(text)) => Json::String(text.clone()),
        Some(Dynamic::ListValue(list)) => Json::Array(list.values.iter().map(plain_value).collect()),
        Some(Dynamic::StructValue(object)) => Json::Object(map(object)),
    }
}

fn write_message(json: &mut String, message: &DynamicMessage) {
    match message.descriptor().full_name() {
        "google.protobuf.Timestamp" => {
            let timestamp = message.transcode_to::<prost_types::Timestamp>().expect("it has this type");
            write_text(json, &timestamp.to_string());
        }
        "google.protobuf.Duration" => {
            let duration = message.transcode_to::<prost_types::Duration>().expect("it has this type");
            write_text(json, &duration.to_string());
        }
        "google.protobuf.Any" => write_any(json, &message.transcode_to().expect("it has this type")),
        "google.protobuf.Struct" | "google.protobuf.ListValue" => {
            let field = message.descriptor().fields().next().expect("its one field");
            write_value(json, &field, &message.get_field(&field));
        }
        "google.protobuf.Value" => match message.fields().next() {
            Some((field, _)) if field.name() == "null_value" => json.push_str("null"),
            Some((field, value)) => write_value(json, &field, value),
            None => json.push_str("null"),
        },
        _ => {
            json.push('{');
            write_fields(json, message, 0);
            json.push('}');
        }
    }
}

/// Writes the fields of a message, behind so many others of the same object.
fn write_fields(json: &mut String, message: &DynamicMessage, before: usize) {
    for (index, (field, value)) in message.fields().enumerate() {
        comma(json, before + index);
        write_text(json, field.json_name());
        json.push(':');
        write_value(json, &field, value);
    }
}

/// Writes a message by its type's name. Of a type that this release does not know, the name alone.
fn write_any(json: &mut String, any: &prost_types::Any) {
    json.push_str("{\"@type\":");
    write_text(json, &any.type_url);
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    let known = POOL.get_message_by_name(name);
    if let Some(message) = known.and_then(|known| DynamicMessage::decode(known, any.value.as_slice()).ok()) {
        write_fields(json, &message, 1);
    }
    json.push('}');
}

pub(crate) fn write_value(json: &mut String, field: &FieldDescriptor, value: &Value) {
    match value {
        Value::Message(message) => write_message(json, message),
        Value::List(values) => {
            json.push('[');
            for (index, value) in values.iter().enumerate() {
                comma(json, index);
                write_value(json, field, value);
            }
            json.push(']');
        }
        Value::Map(entries) => {
            let Kind::Message(entry) = field.kind() else { unreachable!("a map's entries are messages") };
            let mut entries: Vec<_> = entries.iter().map(|(key, value)| (key_text(key), value)).collect();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            json.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                comma(json, index);
                write_text(json, &key);
                json.push(':');
                write_value(json, &entry.map_entry_value_field(), value);
            }
            json.push('}');
        }
        Value::EnumNumber(number) => {
            let known = field.kind().as_enum().and_then(|kind| kind.get_value(*number));
            match known {
                Some(known) => write_text(json, known.name()),
                None => push(json, number),
            }
        }
        Value::Bool(value) => push(json, value),
        Value::I32(value) => push(json, value),
        Value::U32(value) => push(json, value),
        // JSON's numbers are doubles for most readers.
        Value::I64(value) => write_text(json, &value.to_string()),
        Value::U64(value) => write_text(json, &value.to_string()),
        Value::F32(value) => write_double(json, f64::from(*value)),
        Value::F64(value) => write_double(json, *value),
        Value::String(text) => write_text(json, text),
        Value::Bytes(_) => unreachable!("no message has bytes"),
    }
}

/// Writes a number. JSON has no number that is not finite, and protobuf has names for these. An integer is written
/// without a fraction.
fn write_double(json: &mut String, double: f64) {
    const INTEGERS: f64 = 9_223_372_036_854_775_808.0; // 2^63
    if double.fract() == 0.0 && double.abs() < INTEGERS {
        #[expect(clippy::cast_possible_truncation, reason = "integral and within an i64")]
        push(json, &(double as i64));
    } else if let Some(number) = serde_json::Number::from_f64(double) {
        push(json, &number);
    } else {
        write_text(json, &double.to_string());
    }
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::String(key) => key.clone(),
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
    }
}

fn comma(json: &mut String, index: usize) {
    if index > 0 {
        json.push(',');
    }
}

fn push(json: &mut String, value: &impl std::fmt::Display) {
    write!(json, "{value}").expect("a String takes everything");
}

fn write_text(json: &mut String, text: &str) {
    json.push_str(&plain(&quoted(text)));
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

/// JSON on one line, unchanged but for the control characters that JSON allows in texts, which are escaped.
#[must_use]
pub fn plain(json: &str) -> Cow<'_, str> {
    if !json.contains(char::is_control) {
        return Cow::Borrowed(json);
    }
    let mut plain = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_control() {
            write!(plain, "\\u{:04x}", u32::from(character)).expect("a String takes everything");
        } else {
            plain.push(character);
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;
    use prost_types::Timestamp;

    #[test]
    fn the_text_of_an_object_escapes_what_json_must_and_the_line_what_a_terminal_might_obey() {
        let object =
            serde_json::json!({"z": [1.0, -2.5, 1e300, -0.0, null], "a\u{7f}": {"b": "\u{1}\u{9b}ü\"", "": []}});
        let object = structure(object.as_object().unwrap());
        assert_eq!(text(&object), "{\"a\u{7f}\":{\"\":[],\"b\":\"\\u0001\u{9b}ü\\\"\"},\"z\":[1,-2.5,1e+300,0,null]}");
        assert!(!self::object(&object).contains(char::is_control));
        let read = |text: &str| serde_json::from_str::<Json>(text).unwrap();
        assert_eq!(read(&text(&object)), read(&self::object(&object)));
    }

    #[test]
    fn a_message_is_as_grpcurl_shows_it() {
        let metadata = serde_json::json!({"z": [1, -2.5, 1e300, null], "a": {"b": {}, "c": []}, "": true});
        let run = v1::Run {
            task_thread_id: "ü\u{1}\u{7f}\u{9b}".to_owned(),
            status: v1::RunStatus::Failed.into(),
            route: 77,
            started_at: Some(Timestamp { seconds: 1_764_000_000, nanos: 0 }),
            running_at: Some(Timestamp { seconds: 1_764_000_000, nanos: 120_000_000 }),
            updated_at: Some(Timestamp { seconds: 1_764_000_000, nanos: 123_400_000 }),
            metadata: metadata.as_object().map(structure),
            revision: u64::MAX,
            labels: ["b", "a", "c"].map(|key| (key.to_owned(), String::new())).into(),
            ..v1::Run::default()
        };
        let shown = concat!(
            r#"{"taskThreadId":"ü\u0001\u007f\u009b","status":"RUN_STATUS_FAILED","#,
            r#""startedAt":"2025-11-24T16:00:00Z","route":77,"#,
            r#""metadata":{"":true,"a":{"b":{},"c":[]},"z":[1,-2.5,1e+300,null]},"revision":"18446744073709551615","#,
            r#""runningAt":"2025-11-24T16:00:00.120Z","updatedAt":"2025-11-24T16:00:00.123400Z","#,
            r#""labels":{"a":"","b":"","c":""}}"#
        );
        assert_eq!(line(&run), shown);
    }

    #[test]
    fn json_becomes_a_struct_and_comes_back() {
        let json = serde_json::json!({"": [], "null": null, "a": {"b": [1.0, -2.5, "ü", true, {"c": {}}]}});
        assert_eq!(Some(&map(&structure(json.as_object().unwrap()))), json.as_object());
    }

    #[test]
    fn an_error_is_shown_with_its_details_by_their_types() {
        let info = tonic_types::pb::ErrorInfo { reason: "FULL".into(), ..Default::default() };
        let any =
            |name: &str, value: Vec<u8>| prost_types::Any { type_url: format!("type.googleapis.com/{name}"), value };
        let details = vec![any("google.rpc.ErrorInfo", info.encode_to_vec()), any("later.Detail", vec![1, 2])];
        let error = Some(tonic_types::pb::Status { code: 8, message: "full".into(), details });
        let result = v1::CommandResult { error, ..Default::default() };
        let expected = r#"{"error":{"code":8,"message":"full","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"FULL"},{"@type":"type.googleapis.com/later.Detail"}]}}"#;
        assert_eq!(line(&result), expected);
    }

    #[test]
    fn a_message_is_read_of_its_json_and_of_nothing_else() {
        let start = v1::StartRunRequest { run_id: "a".into(), deferred: true, ..Default::default() };
        let command = v1::RunCommand { command: Some(v1::run_command::Command::Start(start)) };
        let map = |text: &str| serde_json::from_str::<serde_json::Map<_, _>>(text).unwrap();
        assert_eq!(read(map(&line(&command))), Ok(command));
        for wrong in [r#"{"start": {"runid": "a"}}"#, r#"{"begin": {}}"#, r#"{"start": {"deferred": "yes"}}"#] {
            assert!(read::<v1::RunCommand>(map(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_duration_is_seconds() {
        for (seconds, nanos, shown) in
            [(0, 0, "0s"), (30, 0, "30s"), (1_000, 0, "1000s"), (1, 500_000_000, "1.500s"), (0, 1, "0.000000001s")]
        {
            let lease = v1::Lease { ttl: Some(prost_types::Duration { seconds, nanos }), ..v1::Lease::default() };
            let run = v1::Run { lease: Some(lease), ..v1::Run::default() };
            assert_eq!(line(&run), format!(r#"{{"lease":{{"ttl":"{shown}"}}}}"#));
        }
    }

    #[test]
    fn what_is_not_set_is_not_shown_and_what_is_explicit_is() {
        assert_eq!(line(&v1::Run::default()), "{}");
        let changes = v1::RunChanges { tab_group_id: Some(String::new()), ..v1::RunChanges::default() };
        assert_eq!(line(&changes), r#"{"tabGroupId":""}"#);
        let number = prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(f64::NAN)) };
        let odd = prost_types::Struct { fields: [("n".to_owned(), number)].into() };
        assert_eq!(object(&odd), r#"{"n":"NaN"}"#);
    }
}
