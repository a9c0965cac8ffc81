//! Messages as `ProtoJSON`, as grpcurl shows them: only what is set, fields in the order of the proto, maps by key.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage as _, Value};

use super::time;
use crate::domain::metadata::canonical_number;
use crate::proto::{FILE_DESCRIPTOR_SET, v1};

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the build made the descriptors"));

/// A message that has a form in JSON.
pub trait Named: Message {
    /// Its full name.
    const NAME: &str;
}

macro_rules! named {
    ($($name:ident)*) => {$(
        impl Named for v1::$name {
            const NAME: &str = concat!("runledger.v1.", stringify!($name));
        }
    )*};
}

named! {
    StartRunResponse UpdateRunResponse CompleteRunResponse AbortRunResponse FailRunResponse GetRunResponse
    ClaimRunResponse ClaimNextRunResponse ReleaseRunResponse HeartbeatRunResponse RequestAbortResponse AbortRequest LateReport
    CheckTransitionResponse WaitRunResponse CountRunsResponse WatchRunResponse WatchRunsResponse Run RunEvent RunChanges
}

impl Named for prost_types::Struct {
    const NAME: &str = "google.protobuf.Struct";
}

/// A message on one line. What a terminal would obey, no line has: control characters are escaped, also those that
/// JSON allows.
#[must_use]
pub fn line<M: Named>(message: &M) -> String {
    let descriptor = POOL.get_message_by_name(M::NAME).expect("a message of our own protos, or one that they import");
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic.transcode_from(message).expect("both were made from the same proto");
    let mut json = String::new();
    write_message(&mut json, &dynamic);
    json
}

fn write_message(json: &mut String, message: &DynamicMessage) {
    match message.descriptor().full_name() {
        "google.protobuf.Timestamp" => {
            let timestamp = message.transcode_to::<prost_types::Timestamp>().expect("it has this type");
            // Zeros go by threes, as protobuf writes times.
            let shown = time(Some(&timestamp)).expect("it is there").to_string();
            let shown = shown.trim_end_matches('Z');
            let shown = shown.strip_suffix("000").unwrap_or(shown);
            write_text(json, &format!("{}Z", shown.strip_suffix(".000").unwrap_or(shown)));
        }
        "google.protobuf.Duration" => {
            let duration = message.transcode_to::<prost_types::Duration>().expect("it has this type");
            write_text(json, &seconds(&duration));
        }
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
            for (index, (field, value)) in message.fields().enumerate() {
                comma(json, index);
                write_text(json, field.json_name());
                json.push(':');
                write_value(json, &field, value);
            }
            json.push('}');
        }
    }
}

/// Such as `30s` or `1.500s`: zeros go by threes, as protobuf writes durations.
#[must_use]
pub fn seconds(duration: &prost_types::Duration) -> String {
    let fraction = format!("{:09}", duration.nanos.unsigned_abs());
    let mut fraction = fraction.as_str();
    while let Some(shorter) = fraction.strip_suffix("000") {
        fraction = shorter;
    }
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}s", duration.seconds)
}

fn write_value(json: &mut String, field: &FieldDescriptor, value: &Value) {
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

/// JSON has no number for what is not finite; protobuf has names.
fn write_double(json: &mut String, double: f64) {
    if double.is_finite() {
        push(json, &canonical_number(double));
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
    let quoted = serde_json::to_string(text).expect("a text is JSON");
    json.push_str(&plain(&quoted));
}

/// JSON on one line, as it is, but for the control characters that JSON allows in texts: they are escaped.
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
    use prost_types::Timestamp;

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
            metadata: metadata.as_object().map(crate::proto::structure),
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
        assert_eq!(line(&odd), r#"{"n":"NaN"}"#);
    }
}
