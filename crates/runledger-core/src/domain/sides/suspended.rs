//! Writes the table `suspended`: a row for each run that is suspended or ready. What a suspension says, and its
//! deadline, is written with its run.
//!
//! Lists and claims find runs by these rows. No command is decided on one.

use std::convert::Infallible;

use super::side::{Applied, Side};
use crate::domain::{Command, Rest, Run, RunKey, RunWrite};

/// No row is read, and what is written follows from the runs.
#[derive(Debug)]
pub struct Rows;

impl Side for Rows {
    type Key = Infallible;
    type Row = Infallible;
    /// Runs that are at rest from now on, or rest otherwise; none: the row is deleted.
    type Writes = Vec<(RunKey, Option<Rest>)>;

    fn wanted(_: &Command) -> Option<Infallible> {
        None
    }

    fn is_read_for(_: &Command, _: Option<&Run>) -> bool {
        false
    }

    fn of(_: Vec<Infallible>) -> Self {
        Self
    }

    fn apply(&mut self, _: &Applied<'_>) {}

    fn writes(self, runs: &[RunWrite]) -> Self::Writes {
        runs.iter().filter_map(write).collect()
    }
}

fn write(write: &RunWrite) -> Option<(RunKey, Option<Rest>)> {
    let before = write.before.as_ref().and_then(|before| before.rest.as_deref());
    let rest = write.run.rest();
    (before != rest.as_ref()).then(|| (write.run.key(), rest))
}
