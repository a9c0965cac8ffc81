//! Generates the server's side of `runledger.v1` from the descriptors that the crate of the messages compiles.
use std::path::PathBuf;

use prost::Message as _;
use prost_types::field_descriptor_proto::Type;
use prost_types::{FieldDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto};

const PACKAGE: &str = "runledger.v1";
/// The messages that many callers get alike.
const SHARED: [&str; 3] = ["WatchRunResponse", "WatchRunsResponse", "WaitRunResponse"];
/// The services whose calls the authority answers, and the lines of their handlers between the opening of a call and its
/// answer: a call on runs or lifecycles goes on where its namespace is found.
const ANSWERED: [(&str, &str); 3] = [
    ("RunService", "\n        authority.enter(&call.caller).await?;"),
    ("LifecycleService", "\n        authority.enter(&call.caller).await?;"),
    ("NamespaceService", ""),
];

/// The calls that change a run and are answered by hand: the authority does more for them than for the others.
const BY_HAND: [&str; 5] = ["StartRun", "UpdateRun", "CompleteRun", "RedactRun", "ClaimNextRun"];

#[expect(clippy::disallowed_methods, reason = "cargo says where to in the environment; config is the server's")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=migrations");
    let descriptor = std::env::var("DEP_RUNLEDGER_PROTO_DESCRIPTOR")?;
    println!("cargo:rerun-if-changed={descriptor}");
    let files = FileDescriptorSet::decode(std::fs::read(descriptor)?.as_slice())?;
    let services = files.file.iter().filter(|file| file.package() == PACKAGE).flat_map(|file| &file.service);
    let handlers: String = services.map(handlers).collect();
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("handlers.rs"), handlers)?;
    std::fs::write(out.join("mutations.rs"), mutations(&files))?;
    let mut generator =
        tonic_prost_build::configure().codec_path("crate::wire::codec::Codec").build_client(false).bytes(".");
    for name in unshared(&files) {
        generator = generator.extern_path(format!(".{PACKAGE}.{name}"), format!("::runledger_proto::v1::{name}"));
    }
    generator.compile_fds(served(files))?;
    Ok(())
}

/// All other messages and enums: the server's are the clients'.
fn unshared(files: &FileDescriptorSet) -> Vec<String> {
    let files = files.file.iter().filter(|file| file.package() == PACKAGE);
    let names = files.flat_map(|file| {
        let messages = file.message_type.iter().map(|message| message.name().to_owned());
        messages.chain(file.enum_type.iter().map(|kind| kind.name().to_owned()))
    });
    names.filter(|name| !SHARED.contains(&name.as_str())).collect()
}

/// In the shared messages, the fields that are alike become bytes, which is the same on the wire: encoded once, they are
/// sent to all.
fn served(mut files: FileDescriptorSet) -> FileDescriptorSet {
    for file in files.file.iter_mut().filter(|file| file.package() == PACKAGE) {
        for message in file.message_type.iter_mut().filter(|message| SHARED.contains(&message.name())) {
            let of_frames = message.nested_type.iter_mut().flat_map(|frame| &mut frame.field);
            for field in message.field.iter_mut().chain(of_frames) {
                if ["event", "run", "cursor"].contains(&field.name()) {
                    field.type_name = None;
                    field.set_type(Type::Bytes);
                }
            }
        }
    }
    files
}

/// The handlers of a service: for each method the authority's function of its name, once the call was opened and checked. What
/// many callers get alike is made in `grpc::shared`.
fn handlers(service: &ServiceDescriptorProto) -> String {
    let Some((name, checks)) = ANSWERED.iter().find(|(name, _)| *name == service.name()) else { return String::new() };
    let handlers: String = service.method.iter().map(|method| handler(method, checks)).collect();
    format!("#[tonic::async_trait]\nimpl served::{}_server::{name} for Handlers {{\n{handlers}}}\n\n", snake(name))
}

fn handler(method: &MethodDescriptorProto, checks: &str) -> String {
    let name = snake(method.name());
    let [request, answer] = [method.input_type(), method.output_type()].map(|name| &name[PACKAGE.len() + 2..]);
    let written = |answer: &str, peer: &str, answered: &str| {
        format!(
            "    async fn {name}(&self, request: Request<v1::{request}>) -> Result<Response<{answer}>, Status> {{
        let (authority, call, {peer}) = self.open(request)?;{checks}
        Ok(Response::new({answered}.await?))
    }}\n"
        )
    };
    if !SHARED.contains(&answer) {
        return written(&format!("v1::{answer}"), "_", &format!("authority.{name}(call)"));
    }
    if !method.server_streaming() {
        return written(&format!("served::{answer}"), "_", &format!("shared::{name}(authority, call)"));
    }
    let stream = format!("{}Stream", method.name());
    let handler = written(&format!("Self::{stream}"), "peer", &format!("shared::{name}(authority, call, peer)"));
    format!("    type {stream} = shared::Frames<served::{answer}>;\n{handler}")
}

/// What the authority answers to the calls that change a run, which are those with a `request_id`: the command of
/// `wire::request` is committed, and the answer has what its message has a field for.
fn mutations(files: &FileDescriptorSet) -> String {
    let files = || files.file.iter().filter(|file| file.package() == PACKAGE);
    let fields = |message: &str| -> Vec<&str> {
        let messages = files().flat_map(|file| &file.message_type);
        let found = messages.filter(|found| message.strip_prefix(&format!(".{PACKAGE}.")) == Some(found.name()));
        found.flat_map(|found| &found.field).map(FieldDescriptorProto::name).collect()
    };
    let methods = files().flat_map(|file| &file.service).flat_map(|service| &service.method);
    let changes = |method: &&MethodDescriptorProto| fields(method.input_type()).contains(&"request_id");
    let methods = methods.filter(changes).filter(|method| !BY_HAND.contains(&method.name()));
    let written = methods.map(|method| {
        let (name, method, answered) = (snake(method.name()), method.name(), fields(method.output_type()).join(", "));
        format!(
            "    /// Answers a `{method}`.
    ///
    /// # Errors
    ///
    /// The command was not applied, or nobody knows.
    pub async fn {name}(&self, call: Call<v1::{method}Request>) -> Result<v1::{method}Response, Problem> {{
        let command = |message, caller: &_, _| request::{name}(message, caller);
        let Mutated {{ {answered}, .. }} = self.mutate(call, true, command).await?;
        Ok(v1::{method}Response {{ {answered} }})
    }}\n\n"
        )
    });
    format!("impl Authority {{\n{}}}\n", written.collect::<Vec<_>>().concat())
}

/// `StartRun` as `start_run`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (index, letter) in name.char_indices() {
        if index > 0 && letter.is_uppercase() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
