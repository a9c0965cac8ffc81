//! The lines that wait to be written: bounded in bytes, and exact about what they leave out.

use std::mem;

/// Bytes that wait. As many more are in the hand of the thread that writes.
const BYTES_MAX: usize = 512 * 1024;

/// Bytes that are written at once: a pipe takes so many whole, among what other processes write to it.
const PIECE_BYTES_MAX: usize = 4096;

/// Makes the line that tells of so many lost lines.
pub type Note = fn(u64) -> String;

/// See the module.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: Vec<u8>,
    /// Lines that were lost behind those that wait, and of which nothing is told yet.
    untold: u64,
    /// Lines that were taken and could not be written. They are told with the next line: told alone, they would be
    /// tried for ever on a stream that takes nothing any more.
    unwritten: u64,
    pub(super) note: Note,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self { waiting: Vec::new(), untold: 0, unwritten: 0, note }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.untold == 0
    }

    /// Queues lines. Gives how many were dropped instead.
    pub(super) fn push(&mut self, text: &[u8]) -> u64 {
        let lost = mem::take(&mut self.unwritten) + mem::take(&mut self.untold);
        let note = if lost > 0 { (self.note)(lost) } else { String::new() };
        if self.waiting.len() + note.len() + text.len() > BYTES_MAX {
            let dropped = lines(text);
            self.untold = lost + dropped;
            return dropped;
        }
        self.waiting.extend_from_slice(note.as_bytes());
        self.waiting.extend_from_slice(text);
        0
    }

    /// Moves all that waits into an empty buffer, with what was lost behind it.
    pub(super) fn take(&mut self, into: &mut Vec<u8>) {
        mem::swap(&mut self.waiting, into);
        let lost = mem::take(&mut self.untold);
        if lost > 0 {
            into.extend_from_slice((self.note)(lost).as_bytes());
        }
    }

    /// Takes note of lines that could not be written.
    pub(super) fn unwritten(&mut self, lines: u64) {
        self.unwritten += lines;
    }
}

fn note(lost: u64) -> String {
    format!("runledger: {lost} lines that belong here were lost: nobody took them\n")
}

/// The lines of a text; one at least.
pub(super) fn lines(text: &[u8]) -> u64 {
    (text.split(|byte| *byte == b'\n').count() - 1).max(1) as u64
}

/// What is written next: whole lines where they are short.
pub(super) fn piece(text: &[u8]) -> &[u8] {
    if text.len() <= PIECE_BYTES_MAX {
        return text;
    }
    let piece = &text[..PIECE_BYTES_MAX];
    piece.iter().rposition(|byte| *byte == b'\n').map_or(piece, |end| &piece[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(queue: &mut Queue) -> String {
        let mut taken = Vec::new();
        queue.take(&mut taken);
        String::from_utf8(taken).unwrap()
    }

    #[test]
    fn lines_that_find_no_room_are_counted_and_told_in_their_place() {
        let mut queue = Queue::new();
        let line = format!("{}\n", "x".repeat(1023));
        let dropped: u64 = (0..600).map(|_| queue.push(line.as_bytes())).sum();
        assert_eq!(dropped, 88);
        let said = taken(&mut queue);
        assert!(said.len() <= BYTES_MAX + 100 && said.ends_with(&note(88)), "{}", said.len());
        assert_eq!(queue.push(b"next\n"), 0);
        assert_eq!(taken(&mut queue), "next\n", "what was told once is not told again");
        assert!(queue.is_empty());
    }

    #[test]
    fn a_line_that_fits_after_a_loss_comes_behind_the_note_of_it() {
        let mut queue = Queue::new();
        assert_eq!(queue.push("y".repeat(BYTES_MAX + 1).as_bytes()), 1);
        assert_eq!(queue.push(b"a\n"), 0);
        assert_eq!(taken(&mut queue), format!("{}a\n", note(1)));
    }

    #[test]
    fn what_could_not_be_written_is_told_with_the_next_line_and_wakes_nobody() {
        let mut queue = Queue::new();
        queue.unwritten(3);
        assert!(queue.is_empty());
        assert_eq!(queue.push(b"a\n"), 0);
        assert_eq!(taken(&mut queue), format!("{}a\n", note(3)));
    }

    #[test]
    fn a_piece_ends_with_a_line_where_one_ends() {
        assert_eq!(piece(b"a\nb"), b"a\nb");
        let long = [b"a\n".as_slice(), &[b'x'; 5000]].concat();
        assert_eq!(piece(&long), b"a\n");
        assert_eq!(piece(&long[2..]).len(), PIECE_BYTES_MAX);
        assert_eq!((lines(b"a"), lines(b"a\nb\n")), (1, 2));
    }
}
