//! Compiles the protos without protoc: the generated code and the descriptor set that reflection serves.
use std::path::PathBuf;

use prost::Message as _;
use protox::prost_reflect::prost_types::FileDescriptorSet;
use protox::prost_reflect::prost_types::field_descriptor_proto::Type;
use tonic_prost_build::Builder;

const PACKAGE: &str = "runledger.v1";
/// The messages that many callers get alike.
const SHARED: [&str; 3] = ["WatchRunResponse", "WatchRunsResponse", "WaitRunResponse"];
const PROTOS: [&str; 5] = [
    "runledger/v1/run.proto",
    "runledger/v1/watch.proto",
    "runledger/v1/error.proto",
    "runledger/v1/run_service.proto",
    "runledger/v1/replica_service.proto",
];

#[expect(clippy::disallowed_methods, reason = "cargo says where to in the environment; config is the server's")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=migrations");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true).open_files(PROTOS)?;
    let encoded = compiler.encode_file_descriptor_set();
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptor.bin"), &encoded)?;
    let files = FileDescriptorSet::decode(encoded.as_slice())?;
    // What clients speak.
    generator().build_server(false).compile_fds(files.clone())?;
    // What the server sends.
    let out = out.join("served");
    std::fs::create_dir_all(&out)?;
    let mut generator = generator().build_client(false).bytes(".").out_dir(out);
    for name in unshared(&files) {
        generator = generator.extern_path(format!(".{PACKAGE}.{name}"), format!("crate::proto::v1::{name}"));
    }
    generator.compile_fds(served(files))?;
    Ok(())
}

fn generator() -> Builder {
    tonic_prost_build::configure().codec_path("crate::proto::codec::Codec")
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
