//! What a side is.

use crate::domain::{Command, Event, Run, RunWrite, Time};

/// A side, by its rows as the commands of a batch leave them.
pub trait Side: Sized {
    /// The key by which a command finds its row.
    type Key;
    /// A row as it is read.
    type Row;
    /// The rows that are written, in the order of their keys.
    type Writes;

    /// The row that a command may be decided on, whatever run it finds.
    fn wanted(command: &Command) -> Option<Self::Key>;

    /// Whether a command on this run, or on none, is decided on a row that a store cannot have remembered.
    fn is_read_for(command: &Command, run: Option<&Run>) -> bool;

    /// The rows as they were read, as far as they are there.
    fn of(rows: Vec<Self::Row>) -> Self;

    /// Whether the batch has not read, and so not locked, a row that the command is decided on. The next batch reads
    /// it.
    fn lacks(&self, _command: &Command, _run: Option<&Run>) -> bool {
        false
    }

    /// Changes the rows as a command does that made its event.
    fn apply(&mut self, applied: &Applied<'_>);

    /// The rows to be written beside these runs.
    fn writes(self, runs: &[RunWrite]) -> Self::Writes;
}

/// A command that made its event.
#[derive(Clone, Copy, Debug)]
pub struct Applied<'a> {
    pub command: &'a Command,
    /// The run right before the event.
    pub before: Option<&'a Run>,
    pub event: &'a Event,
    /// The run right after it.
    pub run: &'a Run,
    /// The steady clock.
    pub steady: Time,
}
