//! Compiles the protos without protoc: the generated code and the descriptor set that reflection serves.
use std::path::PathBuf;

use prost::Message as _;
use protox::prost_reflect::prost_types::FileDescriptorSet;

const PROTOS: [&str; 4] = [
    "runledger/v1/run.proto",
    "runledger/v1/watch.proto",
    "runledger/v1/error.proto",
    "runledger/v1/run_service.proto",
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
    tonic_prost_build::configure()
        .codec_path("crate::proto::codec::Codec")
        .compile_fds(FileDescriptorSet::decode(encoded.as_slice())?)?;
    Ok(())
}
