//! The runs that a run comes from.

use clap::Args;

use super::row::Row;
use runledger_proto::v1;

/// The flags of a start.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct Origin {
    /// The run that starts this one
    #[arg(long = "parent", visible_alias = "parent-run-id", value_name = "RUN_ID")]
    parent_run_id: Option<String>,
    /// The run that this one goes on with or repeats
    #[arg(long = "continues", visible_alias = "continues-run-id", value_name = "RUN_ID")]
    continues_run_id: Option<String>,
}

impl Origin {
    pub(in crate::cli::run) fn put(self, request: &mut v1::StartRunRequest) {
        request.parent_run_id = self.parent_run_id.unwrap_or_default();
        request.continues_run_id = self.continues_run_id.unwrap_or_default();
    }
}

pub(super) const ROWS: &[Row] = &[Row::plain("parent run"), Row::plain("continues run")];
