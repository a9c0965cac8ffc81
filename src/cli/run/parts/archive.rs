//! Runs that are hidden from lists: `runledger run archive` and `restore`.

use clap::Args;

use crate::cli::exit::exit_codes;
use crate::cli::run::mutation::{Mutation, once};
use runledger_proto::v1;

pub(in crate::cli::run) const ARCHIVE: &str = concat!(
    "Examples:\n  \
    runledger run archive try-1\n  \
    runledger run list --only-archived\n\n\
    Nothing is deleted: run get, run events and the watches show the run as before.\n",
    once!(),
    exit_codes!()
);

pub(in crate::cli::run) const RESTORE: &str =
    concat!("Example:\n  runledger run restore try-1\n", once!(), exit_codes!());

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
