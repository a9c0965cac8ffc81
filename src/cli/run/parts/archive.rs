//! Runs that are hidden from lists: `runledger run archive` and `restore`.

use clap::Args;

use crate::cli::run::mutation::Mutation;
use runledger_proto::v1;

#[derive(Args, Debug)]
pub(in crate::cli::run) struct ArchiveArgs {
    /// The run
    run_id: String,
    #[command(flatten)]
    mutation: Mutation,
}

#[derive(Args, Debug)]
pub(in crate::cli::run) struct RestoreArgs {
    /// The run
    run_id: String,
    #[command(flatten)]
    mutation: Mutation,
}

impl ArchiveArgs {
    pub(in crate::cli::run) fn request(self) -> (v1::ArchiveRunRequest, Mutation) {
        (v1::ArchiveRunRequest { run_id: self.run_id, ..v1::ArchiveRunRequest::default() }, self.mutation)
    }
}

impl RestoreArgs {
    pub(in crate::cli::run) fn request(self) -> (v1::RestoreRunRequest, Mutation) {
        (v1::RestoreRunRequest { run_id: self.run_id, ..v1::RestoreRunRequest::default() }, self.mutation)
    }
}
