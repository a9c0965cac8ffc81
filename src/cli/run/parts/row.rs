//! A row of a run as it is shown.

use runledger_proto::v1;

/// The name of a row, the fields of a run that it tells of, and how.
pub(in crate::cli::run) struct Row {
    pub(super) name: &'static str,
    /// Fields beside the one of its own name.
    pub(super) others: &'static [&'static str],
    /// None: as the field is.
    pub(super) text: Option<fn(&v1::Run) -> String>,
}

impl Row {
    /// A row that is the field of its name, as it is.
    pub(super) const fn plain(name: &'static str) -> Self {
        Self { name, others: &[], text: None }
    }

    /// A row that is a sentence of its own.
    pub(super) const fn said(
        name: &'static str,
        others: &'static [&'static str],
        text: fn(&v1::Run) -> String,
    ) -> Self {
        Self { name, others, text: Some(text) }
    }
}
