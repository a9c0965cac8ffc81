//! The message of a panic. The standard library would write it to standard error itself, and wait for its reader.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, PanicHookInfo};
use std::thread;

use super::err;

/// Has the messages of panics queued like all other lines from now on.
pub fn say_panics() {
    panic::set_hook(Box::new(|panicked| err().say(&message(panicked))));
}

fn message(panicked: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let backtrace = Backtrace::capture();
    let is_wanted = backtrace.status() == BacktraceStatus::Captured;
    let shown = if is_wanted { format!("{backtrace}\n") } else { String::new() };
    format!("thread '{name}' {panicked}\n{shown}")
}
