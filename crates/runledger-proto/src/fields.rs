//! The fields of a message by the names that the proto gives them: for whoever shows them, or holds them against those of
//! another message, without a line for each.

use prost_reflect::{FieldDescriptor, ReflectMessage as _, Value};

use crate::Timestamp;
use crate::json::{Named, reflected, write_value};

/// What people read in a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// A text as it is, a number, `yes` or `no`, the word of an enum in small letters, or else JSON without quotes around it.
    Text(String),
    /// A time.
    At(Timestamp),
}

/// The names of all fields of a message.
#[must_use]
pub fn names<M: Named + Default>() -> Vec<String> {
    let message = reflected(&M::default(), &M::full_name());
    message.descriptor().fields().map(|field| field.name().to_owned()).collect()
}

/// The fields of a message that are set, in the order of their numbers: their names, and what people read there.
#[must_use]
pub fn shown<M: Named>(message: &M) -> Vec<(String, Shown)> {
    let message = reflected(message, &M::full_name());
    message.fields().map(|(field, value)| (field.name().to_owned(), of_value(&field, value))).collect()
}

fn of_value(field: &FieldDescriptor, value: &Value) -> Shown {
    if let Value::Message(message) = value
        && message.descriptor().full_name() == "google.protobuf.Timestamp"
    {
        return Shown::At(message.transcode_to().expect("it has this type"));
    }
    Shown::Text(if let Some(text) = value.as_str() {
        text.to_owned()
    } else if let Some(is_so) = value.as_bool() {
        if is_so { "yes" } else { "no" }.to_owned()
    } else if let Some(number) = value.as_enum_number() {
        word(field, number)
    } else {
        let mut json = String::new();
        write_value(&mut json, field, value);
        // Such as a number that JSON has as a text.
        json.trim_matches('"').to_owned()
    })
}

/// Such as `mcp` for `ROUTE_MCP`; the number where the descriptors have no such value.
fn word(field: &FieldDescriptor, number: i32) -> String {
    let kind = field.kind();
    let kind = kind.as_enum().expect("its value is an enum's");
    let unspecified = kind.default_value();
    let prefix = unspecified.name().trim_end_matches("UNSPECIFIED");
    let known = kind.get_value(number).map(|value| value.name().trim_start_matches(prefix).to_lowercase());
    known.unwrap_or_else(|| number.to_string())
}

/// The names of the fields that one message sets, and of which the other says something else, or nothing at all. Of a map,
/// the other may have more.
#[must_use]
pub fn unlike<A: Named, B: Named>(one: &A, other: &B) -> Vec<String> {
    let (one, other) = (reflected(one, &A::full_name()), reflected(other, &B::full_name()));
    let is_unlike = |field: &FieldDescriptor, value: &Value| {
        let own = other.descriptor().get_field_by_name(field.name());
        own.is_none_or(|own| match (value, &*other.get_field(&own)) {
            (Value::Map(value), Value::Map(own)) => value.iter().any(|(key, value)| own.get(key) != Some(value)),
            (value, own) => value != own,
        })
    };
    let unlike = one.fields().filter(|(field, value)| is_unlike(field, value));
    unlike.map(|(field, _)| field.name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;

    #[test]
    fn a_field_is_shown_by_its_name_as_people_read_it() {
        let at = Timestamp { seconds: 1, nanos: 0 };
        let run = v1::Run {
            run_id: "a".into(),
            status: v1::RunStatus::Running.into(),
            started_at: Some(at),
            route: 77,
            fallback_used: true,
            revision: 3,
            lease: Some(v1::Lease { epoch: 2, ..v1::Lease::default() }),
            priority: -7,
            ..v1::Run::default()
        };
        let text = |text: &str| Shown::Text(text.to_owned());
        let wanted = [
            ("run_id", text("a")),
            ("status", text("running")),
            ("started_at", Shown::At(at)),
            ("route", text("77")),
            ("fallback_used", text("yes")),
            ("revision", text("3")),
            ("lease", text(r#"{"epoch":"2"}"#)),
            ("priority", text("-7")),
        ];
        assert_eq!(shown(&run), wanted.map(|(name, shown)| (name.to_owned(), shown)));
    }

    #[test]
    fn a_field_is_unlike_where_the_other_has_another_value_or_none() {
        let start = v1::StartRunRequest {
            agent_id: "a".into(),
            workflow_id: "w".into(),
            metadata: Some(crate::Struct::default()),
            input: Some(crate::Struct::default()),
            start_timeout: Some(crate::Duration::default()),
            labels: [("a".into(), "b".into())].into(),
            ..v1::StartRunRequest::default()
        };
        let labels = [("a".into(), "b".into()), ("c".into(), "d".into())].into();
        let run = v1::Run { agent_id: "a".into(), workflow_id: "v".into(), labels, ..v1::Run::default() };
        assert_eq!(unlike(&start, &run), ["workflow_id", "start_timeout", "input"]);
        assert_eq!(unlike(&start, &v1::Run::default()).len(), 5, "all but the object, which is empty in both");
    }
}
