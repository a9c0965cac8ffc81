//! Generates the server's side of `runledger.v1` from the descriptors that the crate of the messages compiles.
use prost::Message as _;
use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::Type;

const PACKAGE: &str = "runledger.v1";
/// The messages that many callers get alike.
const SHARED: [&str; 3] = ["WatchRunResponse", "WatchRunsResponse", "WaitRunResponse"];

#[expect(clippy::disallowed_methods, reason = "cargo says where to in the environment; config is the server's")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=migrations");
    let descriptor = std::env::var("DEP_RUNLEDGER_PROTO_DESCRIPTOR")?;
    println!("cargo:rerun-if-changed={descriptor}");
    let files = FileDescriptorSet::decode(std::fs::read(descriptor)?.as_slice())?;
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
