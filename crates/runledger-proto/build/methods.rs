//! The table of methods, made of what the proto says of each: see `proto/runledger/v1/options.proto`. A method of which
//! something is not said, or which contradicts itself, fails the build.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prost_reflect::prost_types::MethodOptions;
use prost_reflect::prost_types::method_options::IdempotencyLevel;
use prost_reflect::prost_types::source_code_info::Location;
use prost_reflect::{
    DescriptorPool, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    ReflectMessage as _,
};

/// The option of a method that has its rules.
const RULES: &str = "runledger.v1.rules";

/// The package of whose services the table is.
const PACKAGE: &str = "runledger.v1";

/// Puts a line into the source.
macro_rules! put {
    ($source:ident, $($line:tt)*) => {
        writeln!($source, $($line)*).expect("a String takes everything")
    };
}

/// What a method's rules say: the value of each field, by the field's name.
type Rules = BTreeMap<String, String>;

/// The Rust source of the table: the enums of the rules, a row for each method, the way from a path to its row, and what
/// each request is sent to.
pub(super) fn source(pool: &DescriptorPool) -> Result<String, String> {
    let option = pool.get_extension_by_name(RULES).ok_or_else(|| format!("the proto has no option {RULES}"))?;
    let Kind::Message(rules) = option.kind() else { return Err(format!("{RULES} is no message")) };
    let mut source = String::new();
    for kind in rules.child_enums() {
        write_enum(&mut source, &kind);
    }
    let services = pool.services().filter(|service| service.package_name() == PACKAGE);
    let methods: Vec<_> = services.flat_map(|service| service.methods().collect::<Vec<_>>()).collect();
    let (mut rows, mut requests) = (String::new(), String::new());
    let mut by_length = BTreeMap::<usize, String>::new();
    for (index, method) in methods.iter().enumerate() {
        let said = rules_of(method)?;
        if let Some(fault) = fault_of(method, &said) {
            return Err(format!("{}: {fault}", method.full_name()));
        }
        let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
        let fields: Vec<_> = said.iter().map(|(field, value)| format!("{field}: {value}")).collect();
        let list_levels = list_levels(&method.input(), &methods);
        put!(
            rows,
            "    Method {{ path: \"{path}\", number: {index}, list_levels: {list_levels}, {} }},",
            fields.join(", ")
        );
        let arms = by_length.entry(path.len()).or_default();
        put!(arms, "            \"{path}\" => {index},");
        write_request(&mut requests, index, method);
    }
    put!(source, "/// Every method of our services.\npub static METHODS: [Method; {}] = [", methods.len());
    put!(source, "{rows}];\n");
    // Paths of one length are few, so that most other paths are compared with none.
    put!(source, "fn index(path: &str) -> Option<usize> {{\n    Some(match path.len() {{");
    for (length, arms) in by_length {
        put!(source, "        {length} => match path {{\n{arms}            _ => return None,\n        }},");
    }
    put!(source, "        _ => return None,\n    }})\n}}\n");
    Ok(source + &requests)
}

/// The rules of a method, each field of them.
fn rules_of(method: &MethodDescriptor) -> Result<Rules, String> {
    let options = method.options();
    let option = method.parent_pool().get_extension_by_name(RULES).expect("it was looked at before");
    let rules = options.get_extension(&option);
    let rules = rules.as_message().expect("the option is a message");
    let form = rules.descriptor();
    let said = form.fields().map(|field| {
        let value = rules.get_field(&field).as_enum_number().filter(|number| *number != 0);
        let kind = field.kind().as_enum().cloned().ok_or_else(|| format!("{RULES}.{} is no enum", field.name()))?;
        let Some(value) = value.and_then(|number| kind.get_value(number)) else {
            return Err(format!(
                "{} does not say its `{}`: each method says all of `option ({RULES})`, see proto/runledger/v1/options.proto",
                method.full_name(),
                field.name()
            ));
        };
        Ok((field.name().to_owned(), format!("{}::{}", kind.name(), variant(&kind, value.name()))))
    });
    said.collect()
}

/// What a method says of itself that is not true of its form.
fn fault_of(method: &MethodDescriptor, said: &Rules) -> Option<&'static str> {
    let options: MethodOptions = method.options().transcode_to().unwrap_or_default();
    let level = options.idempotency_level();
    let has_id = method.input().get_field_by_name("request_id").is_some() || commands_of(&method.input()).is_some();
    let is_paged = method.output().get_field_by_name("next_page_token").is_some();
    let is = |kind: &str| said["kind"] == format!("Kind::{kind}");
    let resends = |how: &str| said["resend"] == format!("Resend::{how}");
    let faults = [
        (method.is_client_streaming(), "its request is a stream, and the server reads one message"),
        (method.is_server_streaming() != is("Watch"), "a stream of answers, and nothing else, is a KIND_WATCH"),
        (is_paged && !is("Page"), "an answer with a `next_page_token` is of a KIND_PAGE"),
        (
            has_id != resends("ByRequestId"),
            "it is RESEND_BY_REQUEST_ID if its request, or each command in it, has a `request_id`",
        ),
        (level == IdempotencyLevel::NoSideEffects && !resends("Always"), "without side effects, it is RESEND_ALWAYS"),
        (
            level == IdempotencyLevel::IdempotencyUnknown && resends("Always"),
            "as RESEND_ALWAYS, it has an `idempotency_level`",
        ),
    ];
    faults.iter().find(|(is_fault, _)| *is_fault).map(|(_, fault)| *fault)
}

/// What a request is sent to, what answers it, and whether it changes a run.
fn write_request(source: &mut String, index: usize, method: &MethodDescriptor) {
    let (input, output) = (method.input(), method.output());
    let is_stream = method.is_server_streaming();
    let (of, answer) = if is_stream { ("Streamed", "Frame") } else { ("Unary", "Answer") };
    put!(source, "impl {of} for v1::{} {{\n    type {answer} = v1::{};", input.name(), output.name());
    put!(source, "    const METHOD: &'static Method = &METHODS[{index}];");
    if let Some(commands) = commands_of(&input) {
        let arms =
            commands.iter().map(|command| format!("Command::{}(request) => &request.request_id,", camel(command)));
        let arms: Vec<_> = arms.collect();
        put!(source, "    fn has_request_id(&self) -> bool {{");
        put!(source, "        use v1::run_command::Command;");
        put!(source, "        self.commands.iter().all(|command| command.command.as_ref().is_some_and(|command| {{");
        put!(
            source,
            "            let id = match command {{\n                {}\n            }};",
            arms.join("\n                ")
        );
        put!(source, "            !id.is_empty()\n        }}))\n    }}");
    } else if !is_stream && input.get_field_by_name("request_id").is_some() {
        put!(source, "    fn has_request_id(&self) -> bool {{\n        !self.request_id.is_empty()\n    }}");
    }
    put!(source, "}}\n");
    if let Some(commands) = commands_of(&input) {
        put!(source, "/// The id that makes a repetition of a command the same one.");
        put!(source, "pub fn request_id_mut(command: &mut v1::run_command::Command) -> &mut String {{");
        put!(source, "    use v1::run_command::Command;\n    match command {{");
        for command in commands {
            put!(source, "        Command::{}(request) => &mut request.request_id,", camel(&command));
        }
        put!(source, "    }}\n}}\n");
    }
    let has = |message: &MessageDescriptor, field| message.get_field_by_name(field).is_some();
    if has(&input, "request_id")
        && has(&input, "expected_revision")
        && has(&output, "run")
        && has(&output, "disposition")
    {
        put!(source, "impl RunMutation for v1::{} {{", input.name());
        put!(source, "    fn set_terms(&mut self, request_id: String, expected_revision: Option<u64>) {{");
        put!(source, "        (self.request_id, self.expected_revision) = (request_id, expected_revision);\n    }}");
        put!(source, "    fn outcome(answer: &Self::Answer) -> (Option<&v1::Run>, i32) {{");
        put!(source, "        (answer.run.as_ref(), answer.disposition)\n    }}\n}}\n");
    }
}

/// How many levels within a request the fields stand of the requests that it lists: one, or two where each is within a
/// command; none where it is no list.
fn list_levels(request: &MessageDescriptor, methods: &[MethodDescriptor]) -> usize {
    let of_requests = |field: FieldDescriptor| {
        let message = field.kind().as_message().cloned();
        field.is_list() && message.is_some_and(|message| methods.iter().any(|method| method.input() == message))
    };
    match commands_of(request) {
        Some(_) => 2,
        None => usize::from(request.fields().any(of_requests)),
    }
}

/// The names of the commands that a request is a list of; none of a request that is no such list.
fn commands_of(request: &MessageDescriptor) -> Option<Vec<String>> {
    let commands = request.get_field_by_name("commands")?;
    let command = commands.kind().as_message()?.oneofs().next()?;
    Some(command.fields().map(|field| field.name().to_owned()).collect())
}

/// `request_abort` as `RequestAbort`.
fn camel(name: &str) -> String {
    name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

/// An enum of the rules, without the value for what is not said.
fn write_enum(source: &mut String, kind: &EnumDescriptor) {
    write_comment(source, "", &kind.parent_file(), kind.path());
    put!(source, "#[derive(Clone, Copy, Debug, PartialEq, Eq)]\npub enum {} {{", kind.name());
    for value in kind.values().filter(|value| value.number() != 0) {
        write_comment(source, "    ", &kind.parent_file(), value.path());
        put!(source, "    {},", variant(kind, value.name()));
    }
    put!(source, "}}\n");
}

/// The comment that stands in the proto above an element.
fn write_comment(source: &mut String, indent: &str, file: &FileDescriptor, path: &[i32]) {
    let places = file.file_descriptor_proto().source_code_info.as_ref();
    let place = places.and_then(|places| places.location.iter().find(|place| place.path == path));
    for line in place.map(Location::leading_comments).unwrap_or_default().lines() {
        put!(source, "{indent}///{line}");
    }
}

/// `ACCESS_READ` of `Access` as `Read`.
fn variant(kind: &EnumDescriptor, value: &str) -> String {
    let words = value.split('_').skip(kind.name().split(char::is_uppercase).count() - 1);
    let capital = |word: &str| word[..1].to_owned() + &word[1..].to_lowercase();
    words.map(capital).collect()
}
