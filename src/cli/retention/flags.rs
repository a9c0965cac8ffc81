//! The flags that say how long runs are kept, for whoever sets it or asks what it would mean.

use std::time::Duration;

use clap::Args;

use crate::text::duration;
use runledger_proto::v1;

/// How long runs are kept that have ended.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(in crate::cli) struct RetentionFlags {
    /// Time that runs are kept after they have ended, such as 30d; `ever`: they are never purged. It says so of all that
    /// no other flag names
    #[arg(long, value_name = "DURATION", value_parser = kept)]
    keep: Option<KeepFor>,
    /// The same for completed runs alone
    #[arg(long, value_name = "DURATION", value_parser = kept)]
    keep_completed: Option<KeepFor>,
    /// The same for aborted runs alone
    #[arg(long, value_name = "DURATION", value_parser = kept)]
    keep_aborted: Option<KeepFor>,
    /// The same for failed runs alone
    #[arg(long, value_name = "DURATION", value_parser = kept)]
    keep_failed: Option<KeepFor>,
    /// Whether runs are kept, besides, until `namespace exported` has said that their events are safely elsewhere
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set)]
    keep_until_exported: Option<bool>,
}

/// A time that runs are kept; none: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct KeepFor(Option<Duration>);

/// A bare number has meant seconds elsewhere, and days to whoever wrote it here: a retention has a unit.
fn kept(text: &str) -> Result<KeepFor, String> {
    if text == "ever" { Ok(KeepFor(None)) } else { duration(text).map(|time| KeepFor(Some(time))) }
}

/// The time that runs are kept which ended in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Change {
    /// How they ended.
    pub(in crate::cli) status: v1::RunStatus,
    /// Before; none: for ever.
    pub(in crate::cli) before: Option<Duration>,
    /// From then on.
    pub(in crate::cli) after: Option<Duration>,
    /// A flag of its own says it.
    pub(in crate::cli) is_named: bool,
}

impl Change {
    /// Whether runs are kept for less than before.
    pub(in crate::cli) fn is_shorter(self) -> bool {
        self.after.is_some_and(|after| self.before.is_none_or(|before| after < before))
    }
}

impl RetentionFlags {
    pub(in crate::cli) fn is_said(self) -> bool {
        let Self { keep, keep_completed, keep_aborted, keep_failed, keep_until_exported } = self;
        keep_until_exported.is_some() || [keep, keep_completed, keep_aborted, keep_failed].iter().any(Option::is_some)
    }

    /// The retention that was said, over the one that is there.
    pub(in crate::cli) fn over(self, before: Option<v1::NamespaceRetention>) -> v1::NamespaceRetention {
        let before = before.unwrap_or_default();
        let of = |own: Option<KeepFor>, before| match own.or(self.keep) {
            Some(KeepFor(time)) => time.map(runledger_proto::duration),
            None => before,
        };
        v1::NamespaceRetention {
            completed: of(self.keep_completed, before.completed),
            aborted: of(self.keep_aborted, before.aborted),
            failed: of(self.keep_failed, before.failed),
            until_exported: self.keep_until_exported.unwrap_or(before.until_exported),
        }
    }

    /// What becomes of each status's time.
    pub(in crate::cli) fn changes(self, before: Option<v1::NamespaceRetention>) -> [Change; 3] {
        let before = before.unwrap_or_default();
        let after = self.over(Some(before));
        let time = |time: Option<runledger_proto::Duration>| time.and_then(|time| Duration::try_from(time).ok());
        let of = |status, before, after, own: Option<KeepFor>| Change {
            status,
            before: time(before),
            after: time(after),
            is_named: own.is_some(),
        };
        [
            of(v1::RunStatus::Completed, before.completed, after.completed, self.keep_completed),
            of(v1::RunStatus::Aborted, before.aborted, after.aborted, self.keep_aborted),
            of(v1::RunStatus::Failed, before.failed, after.failed, self.keep_failed),
        ]
    }
}
