//! What this process says on standard output and standard error. Nobody waits for whoever reads it.
//!
//! A pipe takes some 64 KiB that are not read, and a stopped terminal takes nothing: then a write waits for as long as
//! the reader likes. So a line is only queued, and a thread for each of the two streams writes. The queue is bounded in
//! bytes. Lines for which it has no room are dropped and counted, and in their place stands a line that says how many.
//!
//! Nothing that serves, renews or stops may write to these streams otherwise: `tests/it/outputs.rs` has the places that
//! may. A command whose output is data, which must not be dropped, writes by itself.

mod panics;
mod queue;

use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::time::Instant;

pub use self::panics::say_panics;
pub use self::queue::Note;
use self::queue::{Queue, lines, piece};

/// Time that a flush waits for a reader that takes nothing.
const STALL_MAX: Duration = Duration::from_millis(300);

/// Time that a flush takes at most, however the reader reads.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// The stack of a thread that writes, whatever the environment has for others.
const STACK: usize = 256 * 1024;

/// The capacity that an empty buffer keeps.
const BUFFER_KEPT: usize = 64 * 1024;

static OUT: Stream = Stream::of(To::Out);
static ERR: Stream = Stream::of(To::Err);

/// Standard output.
#[must_use]
pub fn out() -> &'static Stream {
    &OUT
}

/// Standard error.
#[must_use]
pub fn err() -> &'static Stream {
    &ERR
}

/// Waits until what was said is written, for a bounded time: a reader that takes nothing is left alone.
pub fn flush() {
    OUT.flush();
    ERR.flush();
}

/// Flushes when it is dropped: at the end of the process, also by a panic.
#[derive(Debug)]
pub struct Flushed;

impl Drop for Flushed {
    fn drop(&mut self) {
        flush();
    }
}

#[derive(Clone, Copy, Debug)]
enum To {
    Out,
    Err,
}

/// One of the two streams.
#[derive(Debug)]
pub struct Stream {
    to: To,
    state: Mutex<State>,
    changed: Condvar,
    /// Whether the thread that writes was asked for.
    begun: AtomicBool,
    /// All lines that were lost.
    lost: AtomicU64,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    /// Whether the thread has taken what it has not written yet.
    is_writing: bool,
    /// Grows with everything that was written, or given up.
    progress: u64,
}

impl State {
    fn is_behind(&self) -> bool {
        self.is_writing || !self.queue.is_empty()
    }
}

impl Stream {
    const fn of(to: To) -> Self {
        Self {
            to,
            state: Mutex::new(State { queue: Queue::new(), is_writing: false, progress: 0 }),
            changed: Condvar::new(),
            begun: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        }
    }

    /// The name of the stream, for a metric.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.to {
            To::Out => "stdout",
            To::Err => "stderr",
        }
    }

    /// Says whole lines, soon. They are dropped, and counted, where too many wait for the reader.
    pub fn say(&'static self, text: &str) {
        if !self.begun.load(Ordering::Acquire) && !self.begin() {
            // A system without a thread to spare ends this process anyway, and the reason is worth the wait.
            self.write(text.as_bytes());
            return;
        }
        let lost = self.lock().queue.push(text.as_bytes());
        self.lost.fetch_add(lost, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// The lines that were lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Has losses told by this line from now on.
    pub fn tells_losses_by(&self, note: Note) {
        self.lock().queue.note = note;
    }

    /// Whether all that was said is written.
    #[must_use]
    pub fn is_written(&self) -> bool {
        !self.lock().is_behind()
    }

    /// A writer of whole lines, which never waits and never fails.
    #[must_use]
    pub fn writer(&'static self) -> Lines {
        Lines(self)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread that writes, once. Whether there is one.
    fn begin(&'static self) -> bool {
        let _state = self.lock();
        if self.begun.load(Ordering::Acquire) {
            return true;
        }
        let begun = thread::Builder::new().name(self.name().to_owned()).stack_size(STACK).spawn(|| self.keep_writing());
        let begun = begun.is_ok();
        self.begun.store(begun, Ordering::Release);
        begun
    }

    fn keep_writing(&self) {
        let mut taken = Vec::new();
        loop {
            let mut state = self.lock();
            state.is_writing = false;
            self.changed.notify_all();
            while state.queue.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.queue.take(&mut taken);
            state.is_writing = true;
            // A reader has its time from now on, however late the thread came.
            state.progress += 1;
            drop(state);
            let unwritten = self.write(&taken);
            self.lost.fetch_add(unwritten, Ordering::Relaxed);
            self.lock().queue.unwritten(unwritten);
            taken.clear();
            taken.shrink_to(BUFFER_KEPT);
        }
    }

    /// Writes, and waits for the reader. Gives the lines that could not be written: the disk under a file may be full,
    /// or a pipe without a reader.
    fn write(&self, text: &[u8]) -> u64 {
        let mut rest = text;
        while !rest.is_empty() {
            let written = match self.to {
                To::Out => rustix::io::write(io::stdout().as_fd(), piece(rest)),
                To::Err => rustix::io::write(io::stderr().as_fd(), piece(rest)),
            };
            match written {
                Ok(count) if count > 0 => rest = &rest[count..],
                Err(Errno::INTR) => continue,
                // Whoever shares the stream may have set it so that nobody waits.
                Err(Errno::AGAIN) => self.until_writable(),
                Ok(_) | Err(_) => return lines(rest),
            }
            self.lock().progress += 1;
            self.changed.notify_all();
        }
        0
    }

    fn until_writable(&self) {
        let wait = |fd| poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None);
        // A wait that failed ends with the next attempt to write.
        let _waited = match self.to {
            To::Out => wait(io::stdout().as_fd()),
            To::Err => wait(io::stderr().as_fd()),
        };
    }

    /// See [`flush`].
    pub fn flush(&self) {
        let begun = Instant::now();
        let mut state = self.lock();
        while state.is_behind() {
            let before = state.progress;
            let waited =
                self.changed.wait_timeout_while(state, STALL_MAX, |now| now.is_behind() && now.progress == before);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            // Where the thread has not taken it yet, it waits for a processor and for no reader.
            let is_stalled = state.progress == before && state.is_writing;
            if is_stalled || begun.elapsed() >= FLUSH_MAX {
                return;
            }
        }
    }
}

/// See [`Stream::writer`].
#[derive(Clone, Copy, Debug)]
pub struct Lines(&'static Stream);

impl Write for Lines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.say(&String::from_utf8_lossy(text));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_is_waited_for_where_only_the_thread_that_writes_it_comes_late() {
        let stream: &'static Stream = Box::leak(Box::new(Stream::of(To::Err)));
        stream.begun.store(true, Ordering::Release);
        stream.say("a line that a machine with much to do writes late\n");
        thread::spawn(|| {
            thread::sleep(5 * STALL_MAX / 2);
            stream.keep_writing();
        });
        stream.flush();
        assert!(stream.is_written());
    }
}
