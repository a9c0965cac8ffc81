//! A run's labels.

use std::collections::BTreeMap;

use clap::Args;

use super::row::Row;
use crate::cli::exit::Stop;
use crate::cli::fields::{self, Label};
use runledger_proto::v1;

/// The flags of an update.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct Relabeling {
    /// A label to set; repeat it for more
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Label>,
    /// A label to drop; repeat it for more
    #[arg(long = "remove-label", value_name = "KEY")]
    remove_labels: Vec<String>,
}

impl Relabeling {
    pub(in crate::cli::run) fn put(self, request: &mut v1::UpdateRunRequest) -> Result<(), Stop> {
        request.labels = fields::labels(self.labels)?;
        request.remove_labels = self.remove_labels;
        Ok(())
    }
}

pub(super) const ROW: Row = Row::said("labels", &[], |run| {
    let labels: BTreeMap<_, _> = run.labels.iter().collect();
    labels.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
});
