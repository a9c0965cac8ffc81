//! The terminal on which a progress bar is drawn: whoever has stopped it stops nothing else.

use std::fmt::Write as _;
use std::io;

use indicatif::TermLike;
use parking_lot::Mutex;

use crate::stdio;

/// The columns of a terminal that does not tell its width.
const WIDTH_DEFAULT: u16 = 80;

/// Standard error, for pictures that are left out while one before them is not taken.
#[derive(Debug, Default)]
pub(super) struct Unwaited {
    picture: Mutex<String>,
}

impl Unwaited {
    /// Moves the cursor, in the direction of a letter.
    fn moves(&self, by: usize, letter: char) {
        if by > 0 {
            let _written = write!(self.picture.lock(), "\x1b[{by}{letter}");
        }
    }
}

impl TermLike for Unwaited {
    fn width(&self) -> u16 {
        terminal_size::terminal_size_of(io::stderr()).map_or(WIDTH_DEFAULT, |(width, _)| width.0)
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        self.moves(lines, 'A');
        Ok(())
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        self.moves(lines, 'B');
        Ok(())
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        self.moves(columns, 'C');
        Ok(())
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        self.moves(columns, 'D');
        Ok(())
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        let _written = writeln!(self.picture.lock(), "{line}");
        Ok(())
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.picture.lock().push_str(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.picture.lock().push_str("\r\x1b[2K");
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let picture = std::mem::take(&mut *self.picture.lock());
        if stdio::err().is_written() {
            stdio::err().say(&picture);
        }
        Ok(())
    }
}
