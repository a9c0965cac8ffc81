//! Compiles the protos without protoc: messages, clients, the table of methods, and the descriptor set that reflection
//! serves.
#[path = "build/methods.rs"]
mod methods;

use std::path::PathBuf;

/// What the methods say of themselves: it makes the table, and no message.
const OPTIONS: &str = "runledger/v1/options.proto";

const PROTOS: [&str; 10] = [
    OPTIONS,
    "runledger/v1/run.proto",
    "runledger/v1/watch.proto",
    "runledger/v1/error.proto",
    "runledger/v1/run_service.proto",
    "runledger/v1/namespace.proto",
    "runledger/v1/namespace_service.proto",
    "runledger/v1/lifecycle_service.proto",
    "runledger/v1/replica_service.proto",
    "runledger/v1/identity_service.proto",
];

#[expect(clippy::disallowed_methods, reason = "cargo tells the output directory by the environment")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../../proto");
    let mut compiler = protox::Compiler::new(["../../proto"])?;
    compiler.include_imports(true).include_source_info(true).open_files(PROTOS)?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let descriptor = out.join("descriptor.bin");
    std::fs::write(&descriptor, compiler.encode_file_descriptor_set())?;
    println!("cargo:descriptor={}", descriptor.display());
    std::fs::write(out.join("methods.rs"), methods::source(&compiler.descriptor_pool())?)?;
    let mut config = prost_build::Config::new();
    config.enable_type_names();
    // Few runs and calls have them, and every message with a run, and every call, would have room for them.
    for field in [
        "Run.suspension",
        "Run.resumed_from",
        "Run.last_failure",
        "RunChanges.suspension",
        "RunChanges.attempt_failure",
        "RunChanges.resumption",
        "CompleteRunRequest.claim_next",
        "CompleteRunResponse.claimed",
        "CompleteRunResponse.claim_error",
    ] {
        config.boxed(format!(".runledger.v1.{field}"));
    }
    // The form of an error is that of the gRPC library.
    config.extern_path(".google.rpc.Status", "::tonic_types::pb::Status");
    let mut files = compiler.file_descriptor_set();
    files.file.retain(|file| file.name() != OPTIONS);
    tonic_prost_build::configure().build_server(false).compile_fds_with_config(files, config)?;
    Ok(())
}
