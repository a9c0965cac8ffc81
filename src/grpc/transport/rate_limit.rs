//! Token buckets for the frames that a connection reads. Control frames, such as PING, `RST_STREAM` or
//! `WINDOW_UPDATE`, and DATA frames of a few bytes cost their sender nothing and this process much. A client that
//! sends more of them than clients do is read more slowly: the flood stays in the client's own buffers. No client is
//! cut off for it.

use std::time::Duration;

use tokio::time::Instant;

/// Frames of a kind that may come at once: a client that gives up all its calls sends one for each.
const BURST: f64 = 1024.0;

/// Frames of a kind that are read in a second, beside what is granted for others.
const PER_SECOND: f64 = 500.0;

/// Control frames that a DATA frame of ours grants, if it is none of many small ones: a client may answer it with a
/// `WINDOW_UPDATE` for its stream and one for the connection.
const PER_DATA_SENT: f64 = 2.0;

/// Control frames that an answer's end grants, however small the answer: a client may tell its new windows then, too.
const PER_ANSWER: f64 = 2.0;

/// Small DATA frames that a call grants: some clients send the length of a message, the message and its end apart.
const PER_CALL: f64 = 3.0;

/// A DATA frame of fewer bytes is small, unless it is the last one of its stream.
const SMALL_DATA_BYTES: usize = 256;

/// The number of the types DATA and HEADERS.
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// The flag `END_STREAM` of a DATA frame.
const END_STREAM: u8 = 1;

/// The flag of a DATA frame whose length says nothing of how much data it has.
const PADDED: u8 = 8;

/// The frames of one direction of a connection, seen as their bytes go by.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The head of a frame that has come in part.
    head: [u8; 9],
    head_bytes: usize,
    /// Bytes that are still to come of the frame whose head was seen.
    payload_bytes: usize,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
}

impl Frames {
    /// The frames after bytes that were read elsewhere and end with a frame's head.
    pub(super) fn after_head(head: [u8; 9]) -> Self {
        let payload_bytes = length(head);
        Self { payload_bytes, ..Self::default() }
    }

    /// Sees the next bytes, and tells of each frame whose head is complete.
    fn see(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Head)) {
        while !bytes.is_empty() {
            let passed = self.payload_bytes.min(bytes.len());
            self.payload_bytes -= passed;
            bytes = &bytes[passed..];
            let wanted = (self.head.len() - self.head_bytes).min(bytes.len());
            self.head[self.head_bytes..][..wanted].copy_from_slice(&bytes[..wanted]);
            self.head_bytes += wanted;
            bytes = &bytes[wanted..];
            if self.head_bytes == self.head.len() {
                self.head_bytes = 0;
                self.payload_bytes = length(self.head);
                tell(Head { length: self.payload_bytes, kind: self.head[3], flags: self.head[4] });
            }
        }
    }
}

/// A frame's length, as its head has it.
fn length([first, second, third, ..]: [u8; 9]) -> usize {
    usize::from(first) << 16 | usize::from(second) << 8 | usize::from(third)
}

/// The frames that a connection may still send, see the module.
#[derive(Debug)]
pub(super) struct RateLimit {
    read: Frames,
    written: Frames,
    /// For all types but HEADERS and DATA.
    control: Bucket,
    small_data: Bucket,
}

/// A token bucket: the frames of a kind that may still come.
#[derive(Debug)]
struct Bucket {
    left: f64,
    since: Instant,
}

impl Bucket {
    fn full() -> Self {
        Self { left: BURST, since: Instant::now() }
    }

    fn grant(&mut self, frames: f64) {
        self.left = (self.left + frames).min(BURST);
    }

    /// Time to wait until one more may come.
    fn wait(&mut self) -> Option<Duration> {
        if self.left >= 0.0 {
            return None;
        }
        let now = Instant::now();
        self.grant((now - self.since).as_secs_f64() * PER_SECOND);
        self.since = now;
        (self.left < 0.0).then(|| Duration::from_secs_f64(-self.left / PER_SECOND))
    }
}

impl RateLimit {
    pub(super) fn new(read: Frames) -> Self {
        Self { read, written: Frames::default(), control: Bucket::full(), small_data: Bucket::full() }
    }

    /// Takes note of bytes that were read.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let Self { read, control, small_data, .. } = self;
        read.see(bytes, |Head { length, kind, flags }| match kind {
            HEADERS => small_data.grant(PER_CALL),
            DATA if flags & PADDED == 0 && (length >= SMALL_DATA_BYTES || flags & END_STREAM != 0) => {}
            DATA => small_data.left -= 1.0,
            _ => control.left -= 1.0,
        });
    }

    /// Takes note of bytes that were written.
    pub(super) fn wrote(&mut self, bytes: &[u8]) {
        let mut granted = 0.0;
        self.written.see(bytes, |head| {
            if head.kind == DATA && (head.length >= SMALL_DATA_BYTES || head.flags & END_STREAM != 0) {
                granted += PER_DATA_SENT;
            } else if head.kind == HEADERS && head.flags & END_STREAM != 0 {
                granted += PER_ANSWER;
            }
        });
        if granted > 0.0 {
            self.control.grant(granted);
        }
    }

    /// Time to wait before more is read.
    pub(super) fn pause(&mut self) -> Option<Duration> {
        self.control.wait().max(self.small_data.wait())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], &vec![7; payload]].concat()
    }

    #[test]
    fn frames_are_seen_however_their_bytes_are_cut() {
        let frames = [(HEADERS, 4, 40), (DATA, 0, 0), (6, 0, 8), (DATA, 1, 300), (3, 0, 4)];
        let bytes: Vec<u8> = frames.iter().flat_map(|(kind, flags, length)| frame(*kind, *flags, *length)).collect();
        for cut in 1..bytes.len() {
            let mut seen = Vec::new();
            let mut parser = Frames::default();
            for part in bytes.chunks(cut) {
                parser.see(part, |head| seen.push((head.kind, head.flags, head.length)));
            }
            assert_eq!(seen, frames, "{cut}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_control_frames_or_of_small_data_is_read_at_a_bounded_rate() {
        for flood in [frame(6, 0, 8), frame(3, 0, 4), frame(99, 0, 0), frame(DATA, 0, 1), frame(DATA, PADDED, 900)] {
            let begun = Instant::now();
            let mut limit = RateLimit::new(Frames::default());
            let mut read = 0_u32;
            while begun.elapsed() < Duration::from_secs(10) {
                limit.read(&flood);
                read += 1;
                if let Some(pause) = limit.pause() {
                    tokio::time::advance(pause).await;
                }
            }
            assert!((6_000..6_100).contains(&read), "{read}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_and_their_answers_are_read_without_a_pause() {
        let mut limit = RateLimit::new(Frames::default());
        for _ in 0..100_000 {
            limit.read(&frame(HEADERS, 4, 60));
            limit.read(&frame(DATA, 0, 5));
            limit.read(&frame(DATA, 0, 30));
            limit.read(&frame(DATA, END_STREAM, 0));
            limit.wrote(&frame(DATA, 0, 390));
            limit.read(&frame(8, 0, 4));
            limit.read(&frame(8, 0, 4));
            assert_eq!(limit.pause(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn small_answers_whose_end_is_in_their_trailers_are_read_without_a_pause() {
        let mut limit = RateLimit::new(Frames::default());
        for _ in 0..100_000 {
            limit.read(&frame(HEADERS, 4, 60));
            limit.read(&frame(DATA, END_STREAM, 20));
            limit.wrote(&frame(HEADERS, 4, 40));
            limit.wrote(&frame(DATA, 0, 90));
            limit.wrote(&frame(HEADERS, END_STREAM | 4, 20));
            limit.read(&frame(8, 0, 4));
            limit.read(&frame(8, 0, 4));
            assert_eq!(limit.pause(), None);
        }
    }
}
