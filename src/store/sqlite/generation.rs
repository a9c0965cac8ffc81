//! Generations: what a file and its write-ahead log have in common, so that a log is not replayed into a file that it
//! was not begun on, such as a backup that was put in place beside it.
//!
//! A generation is a number in the header of the file's first page, drawn at random, with the number before it: of the
//! two numbers that SQLite keeps there for applications, and changes in a transaction like any row. A log is stamped
//! twice: with its last transaction before all of it is written into the file, and with its first one after it was
//! begun anew. So the file is of the generation that the log was begun on, or of one that is in the log: any other file
//! would become a mixture of two. [`log`](super::log) reads that.
//!
//! The stamp before the log is written into the file is an even number, the others are odd. So a file whose first page has an
//! even number lacks what was committed since, and is nothing without its log; what a server leaves that was stopped has an
//! odd one. What SQLite makes of the two together, such as a backup, may be made between the two stamps: SQLite gives it another
//! number of its schema, with which an even stamp goes in the ledger's own file.
//!
//! SQLite begins the log anew by itself, and a tool beside the server may empty it. So the stamps follow what the log is
//! seen to do, after each commit, and a log without one proves nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rusqlite::{Connection, TransactionBehavior};

use crate::clock;

/// The pages of 4 KiB in the write-ahead log at which a checkpoint writes them to the file. Runs are found by keys in no
/// order, so a commit of 256 changes some 500 pages, each written to the log whole. Beside the usual 1,000 pages, and the
/// usual cache: a third more commits, for 32 MB of log and 16 MB of memory.
const CHECKPOINT_PAGES: i32 = 8_000;

/// The log, as the one writer sees it.
#[derive(Debug)]
pub(super) struct Turns {
    /// The pages in the log at which it is written into the file.
    pages_max: i32,
    /// The pages that were in the log after the last commit.
    pages: AtomicI32,
    /// The pages at which it is written into the file next: some more than there were at the last try where somebody read, who
    /// kept the log from being begun anew. Each try makes two commits, so not every commit is followed by one.
    due_at: AtomicI32,
    /// SQLite has begun the log anew, and it bears no stamp yet.
    begun_anew: AtomicBool,
}

impl Turns {
    /// Follows the commits of the one connection that writes, in place of SQLite's own checkpoints.
    pub(super) fn of(writer: &mut Connection) -> rusqlite::Result<Arc<Self>> {
        Self::at(writer, CHECKPOINT_PAGES)
    }

    fn at(writer: &mut Connection, pages_max: i32) -> rusqlite::Result<Arc<Self>> {
        let (pages, due_at) = (AtomicI32::new(0), AtomicI32::new(pages_max));
        let turns = Arc::new(Self { pages_max, pages, due_at, begun_anew: AtomicBool::new(false) });
        let told = turns.clone();
        writer.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            if pages < told.pages.swap(pages, Ordering::Relaxed) {
                told.begun_anew.store(true, Ordering::Relaxed);
                told.due_at.store(pages_max, Ordering::Relaxed);
            }
            Ok(())
        }))?;
        Ok(turns)
    }

    /// Writes the log into the file where it has grown, and stamps it where it was begun anew; not into a file that has lost
    /// what it had, which would seem to be whole. Called after each job of the writer. What fails is tried again after the
    /// next one.
    pub(super) fn follow(&self, writer: &mut Connection, has_all: impl FnOnce() -> bool) {
        let due_at = self.due_at.load(Ordering::Relaxed);
        let is_due = self.pages.load(Ordering::Relaxed) >= due_at || self.begun_anew.load(Ordering::Relaxed);
        if is_due && has_all() {
            let is_written = self.turn(writer);
            let left = self.pages.load(Ordering::Relaxed);
            // The step is the same however long the log is: readers that come one after the other keep it from being begun anew
            // at most tries, and it must not grow by a part of itself each time.
            let is_early = is_written && left < self.pages_max;
            let due_at = if is_early { self.pages_max } else { left.saturating_add(self.pages_max / 8) };
            self.due_at.store(due_at, Ordering::Relaxed);
        }
    }

    /// Brings the log to its end: stamps it, writes it into the file, and stamps the next one. Where somebody reads, the
    /// log goes on. Whether all of it is in the file, which then tells that it lacks what comes next.
    pub(super) fn turn(&self, writer: &mut Connection) -> bool {
        // A full disk keeps no page from the file whose place is there already.
        let sealed = stamp(writer, Stamp::End);
        let written = sealed.and_then(|()| {
            let checkpoint = "-- generation.checkpoint\npragma wal_checkpoint(passive)";
            writer.query_row(checkpoint, [], |row| Ok(row.get::<_, i64>("log")? == row.get::<_, i64>("checkpointed")?))
        });
        let is_written = matches!(written, Ok(true));
        // Also where not all of it was written: what SQLite reads is whole.
        let begun = stamp(writer, Stamp::Begin);
        self.note(&written.and(begun));
        is_written
    }

    /// Writes the log into the file and cuts it, so that nothing of it is left. False where somebody reads; nobody waits
    /// for the reader, and the log is written after the next job: until then the file does not tell that it lacks anything.
    pub(super) fn cut(&self, writer: &mut Connection) -> rusqlite::Result<bool> {
        self.due_at.store(0, Ordering::Relaxed);
        // The file lacks nothing while there is no log.
        let stamped = stamp(writer, Stamp::Begin);
        let wait = writer.query_row("pragma busy_timeout = 0", [], |row| row.get::<_, i64>(0));
        let busy = writer.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, i64>(0));
        writer.busy_timeout(super::open::BUSY_WAIT)?;
        let is_cut = wait.and(busy)? == 0;
        if !is_cut {
            self.note(&stamped);
        } else if self.turn(writer) {
            self.due_at.store(self.pages_max, Ordering::Relaxed);
        }
        Ok(is_cut)
    }

    /// Notes whether the log bears a stamp.
    fn note(&self, stamped: &rusqlite::Result<()>) {
        if let Err(error) = stamped {
            tracing::debug!(%error, "the write-ahead log was not stamped");
        }
        self.begun_anew.store(stamped.is_err(), Ordering::Relaxed);
    }
}

/// What a stamp is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    /// The log is at its end, and is written into the file next: what comes after it is in the log alone.
    End,
    /// The log begins; or SQLite itself writes all of it into the file next.
    Begin,
}

/// Stamps the log before SQLite writes all of it into the file and removes it.
pub(super) fn close(writer: &mut Connection) -> rusqlite::Result<()> {
    stamp(writer, Stamp::Begin)
}

/// Stamps the log with a generation of its own. Nobody waits until it is on the disk: it lies before whatever is waited
/// for next, in the same log.
fn stamp(writer: &mut Connection, what: Stamp) -> rusqlite::Result<()> {
    writer.pragma_update(None, "synchronous", "normal")?;
    let stamped = write(writer, what);
    // Without it, no later commit would be on the disk when it is answered.
    writer.pragma_update(None, "synchronous", "full").expect("a setting of the connection needs no disk");
    stamped
}

fn write(writer: &mut Connection, what: Stamp) -> rusqlite::Result<()> {
    let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let before: i32 = transaction.pragma_query_value(None, OWN, |row| row.get(0))?;
    let schema = own_schema(&transaction)?;
    transaction.pragma_update(None, BEFORE, before)?;
    transaction.pragma_update(None, OWN, draw(what, schema))?;
    transaction.commit()
}

/// The number that has the generation: 0 in a file that was never stamped.
const OWN: &str = "application_id";

/// The mark of a file that is being made, in the place of a generation. A log begins after it: without a log, nothing was
/// ever written, as where the disk was full. No generation is drawn with it.
pub(super) const BEGUN: u32 = 0x0052_4c01;

/// Marks a file that is empty, before it has a log.
pub(super) fn begin(writer: &Connection) -> rusqlite::Result<()> {
    let pages: i64 = writer.pragma_query_value(None, "page_count", |row| row.get(0))?;
    if pages == 0 { writer.pragma_update(None, OWN, BEGUN) } else { Ok(()) }
}

/// The number that has the generation before. Releases before 0.8, and probes, count with it: it has a meaning in a stamp
/// alone.
const BEFORE: &str = "user_version";

/// The bits of a stamp before a checkpoint that have the number of the schema: the last ones but that which makes it even.
const SCHEMA_BITS: u32 = 0xfff << 1;

/// The bit of the schema's number that the ledger's own file has. A new copy has not: SQLite counts from the number that the
/// copy's file had before, from 0 where there was none. A copy over the file of another ledger, and one by `vacuum into`, has
/// the bit, and other bits below it.
const SCHEMA_OWN: u32 = 0x800;

/// The highest of the bits below, which is not drawn: so many changes of the schema lead to no other [`SCHEMA_OWN`].
const SCHEMA_ROOM: u32 = 0x400;

/// The number of the schema that SQLite compares to see that it is another one.
const SCHEMA: &str = "schema_version";

/// The number of the schema, drawn where the file has none of its own, such as one that was a copy. Whoever has the file open
/// then reads its schema once more.
fn own_schema(writer: &Connection) -> rusqlite::Result<u32> {
    let found: i32 = writer.pragma_query_value(None, SCHEMA, |row| row.get(0))?;
    if found.cast_unsigned() & SCHEMA_OWN != 0 {
        return Ok(found.cast_unsigned());
    }
    let [a, b, c, d, ..] = clock::draw_key();
    // Far from the greatest number, which no change of the schema may count past.
    let drawn = u32::from_be_bytes([a & 0x3f, b, c, d]) & !SCHEMA_ROOM | SCHEMA_OWN;
    writer.pragma_update(None, SCHEMA, drawn)?;
    Ok(drawn)
}

fn draw(what: Stamp, schema: u32) -> i32 {
    let [a, b, c, d, ..] = clock::draw_key();
    // Neither is 0.
    let drawn = u32::from_be_bytes([a | 1, b, c, d]);
    let stamp = match what {
        Stamp::End => (drawn & !(SCHEMA_BITS | 1)) | of_schema(schema),
        Stamp::Begin => drawn | 1,
    };
    stamp.cast_signed()
}

fn of_schema(schema: u32) -> u32 {
    (schema << 1) & SCHEMA_BITS
}

/// Whether a file with this stamp and schema is nothing without its log. A copy that SQLite made while the log was written into
/// the file has the same stamp, and another number of its schema: it has all that there was.
pub(super) fn lacks_its_log(own: u32, schema: u32) -> bool {
    own != 0 && own.is_multiple_of(2) && own & SCHEMA_BITS == of_schema(schema)
}

#[cfg(test)]
mod tests;
