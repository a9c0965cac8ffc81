//! What an API offers by name, and what one offers beyond another.

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, ServiceDescriptor};
use prost_types::method_options::IdempotencyLevel;
use prost_types::{FieldOptions, MethodOptions};

/// The package that is Runledger's own.
const PACKAGE: &str = "runledger.v1";

/// Every service, method, message, field, enum and value: each by the name that a text gives it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Surface(BTreeMap<String, Element>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Element {
    /// Everything but its comment: the same form means the same to a caller.
    form: String,
    /// The service, message or enum that it stands in.
    within: Option<String>,
    /// The messages and enums that it names.
    uses: Vec<String>,
}

impl Surface {
    pub(super) fn of(pool: &DescriptorPool) -> Self {
        let mut surface = Self::default();
        for service in pool.services().filter(|service| service.package_name() == PACKAGE) {
            surface.service(&service);
        }
        for message in pool.all_messages().filter(|message| message.package_name() == PACKAGE) {
            surface.message(&message);
        }
        for kind in pool.all_enums().filter(|kind| kind.package_name() == PACKAGE) {
            surface.enumeration(&kind);
        }
        surface
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of what is new here or has another form than in `before`, but for what something else that is new
    /// brings with it: the methods of a new service, the fields and values of a new type, and a new type that a new
    /// method or field uses.
    pub(super) fn beyond(&self, before: &Self) -> BTreeSet<&str> {
        let is_new = |name: &str| !before.0.contains_key(name);
        let brought: BTreeSet<&String> =
            self.0.iter().filter(|(name, _)| is_new(name)).flat_map(|(_, element)| &element.uses).collect();
        let differs = self.0.iter().filter(|(name, element)| before.0.get(*name) != Some(element));
        let alone = differs.filter(|(name, element)| {
            let comes_along = element.within.as_deref().is_some_and(is_new) || brought.contains(name);
            !(is_new(name) && comes_along)
        });
        alone.map(|(name, _)| name.as_str()).collect()
    }

    fn service(&mut self, service: &ServiceDescriptor) {
        self.add(short(service.full_name()), String::new(), None, Vec::new());
        for method in service.methods() {
            let (input, output) = (method.input(), method.output());
            let streams = [method.is_client_streaming(), method.is_server_streaming()];
            let options = method.method_descriptor_proto().options.as_ref();
            let deprecated = options.is_some_and(MethodOptions::deprecated);
            let level = options.map_or(IdempotencyLevel::IdempotencyUnknown, MethodOptions::idempotency_level);
            let form = format!("{} -> {} {streams:?} {deprecated} {level:?}", input.full_name(), output.full_name());
            let uses = [input.full_name(), output.full_name()].map(short).to_vec();
            self.add(method.name().to_owned(), form, Some(short(service.full_name())), uses);
        }
    }

    fn message(&mut self, message: &MessageDescriptor) {
        let name = short(message.full_name());
        let parent = message.parent_message().map(|parent| short(parent.full_name()));
        self.add(name.clone(), String::new(), parent, Vec::new());
        for field in message.fields() {
            let (kind, uses) = kind(&field);
            let oneof = field.containing_oneof().map(|oneof| oneof.name().to_owned());
            let deprecated = field.field_descriptor_proto().options.as_ref().is_some_and(FieldOptions::deprecated);
            let form = format!(
                "{} {kind} {:?} {} {oneof:?} {deprecated}",
                field.number(),
                field.cardinality(),
                field.supports_presence()
            );
            self.add(format!("{name}.{}", field.name()), form, Some(name.clone()), uses);
        }
    }

    fn enumeration(&mut self, kind: &EnumDescriptor) {
        let name = short(kind.full_name());
        let parent = kind.parent_message().map(|parent| short(parent.full_name()));
        self.add(name.clone(), String::new(), parent, Vec::new());
        for value in kind.values() {
            self.add(value.name().to_owned(), value.number().to_string(), Some(name.clone()), Vec::new());
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "each caller makes them")]
    fn add(&mut self, name: String, form: String, within: Option<String>, uses: Vec<String>) {
        let before = self.0.insert(name.clone(), Element { form, within, uses });
        assert_eq!(before, None, "two elements have the name {name}, so that a text cannot tell which it means");
    }
}

/// A field's type, and the types of ours that it names.
#[expect(clippy::wildcard_enum_match_arm, reason = "all scalars are alike")]
fn kind(field: &FieldDescriptor) -> (String, Vec<String>) {
    match field.kind() {
        Kind::Message(message) => (message.full_name().to_owned(), vec![short(message.full_name())]),
        Kind::Enum(of) => (of.full_name().to_owned(), vec![short(of.full_name())]),
        scalar => (format!("{scalar:?}"), Vec::new()),
    }
}

/// A full name without our package.
fn short(name: &str) -> String {
    name.strip_prefix(PACKAGE).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name).to_owned()
}
