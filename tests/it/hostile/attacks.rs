//! Attacks of a hostile or broken client, on one connection after the other.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use runledger_proto::v1::UpdateRunRequest;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::support::http2::{
    ACK, CONTINUATION, Connection, DATA, END_STREAM, Frame, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, MAGIC, PING,
    PRIORITY, RST_STREAM, SETTINGS, WINDOW_MAX, body, call, frame, header_block, headers, settings, window_update,
};

pub(crate) const UPDATE: &str = "/runledger.v1.RunService/UpdateRun";
pub(crate) const LIST_EVENTS: &str = "/runledger.v1.RunService/ListRunEvents";
pub(crate) const LIST: &str = "/runledger.v1.RunService/ListRuns";
pub(crate) const WATCH: &str = "/runledger.v1.RunService/WatchRun";
pub(crate) const WATCH_ALL: &str = "/runledger.v1.RunService/WatchRuns";
pub(crate) const WAIT: &str = "/runledger.v1.RunService/WaitRun";
pub(crate) const REPLICA: &str = "/runledger.v1.ReplicaService/GetReplica";

/// An attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Streams that this side has to reset: their windows overflow (CVE-2025-8671, `MadeYouReset`).
    MadeToReset,
    /// Calls that are given up as soon as they are made (CVE-2023-44487).
    RapidReset,
    /// PING without an end.
    Pings,
    /// SETTINGS without an end.
    Settings,
    /// PRIORITY without an end.
    Priorities,
    /// `WINDOW_UPDATE` of one byte without an end.
    WindowUpdates,
    /// DATA without data.
    EmptyData,
    /// Headers that never end.
    Continuations,
    /// Calls that cost nothing, as many as the connection takes.
    CheapCalls,
    /// 12,000 changes of one run at a time.
    ManyCalls,
    /// Large pages, asked for and never taken: the window of each stream is closed.
    UntakenPages,
    /// The same with open windows, by a socket that is not read.
    UnreadPages,
    /// Pages of which one byte after the other is taken.
    SippedPages,
    /// Watches that are not read, of a run that changes.
    SleepingWatches,
    /// Watches of all runs that are not read, not even their first view.
    SleepingViews,
    /// Waits that are answered at once, and whose answers are not read.
    SleepingWaits,
    /// Requests of which one byte after the other comes.
    SlowRequests,
    /// The beginnings of large requests.
    HalfRequests,
    /// Requests that are costly to decode, of which all last bytes come together.
    HeldBackRequests,
    /// The largest requests, made of nothing.
    EmptyKeys,
    /// Connections that say nothing.
    SilentConnections,
    /// Connections that begin to say HTTP/2's preface.
    HalfPrefaces,
    /// Connections that are made and closed.
    ConnectAndLeave,
}

impl Attack {
    pub(crate) const ALL: [Self; 23] = [
        Self::MadeToReset,
        Self::RapidReset,
        Self::Pings,
        Self::Settings,
        Self::Priorities,
        Self::WindowUpdates,
        Self::EmptyData,
        Self::Continuations,
        Self::CheapCalls,
        Self::ManyCalls,
        Self::UntakenPages,
        Self::UnreadPages,
        Self::SippedPages,
        Self::SleepingWatches,
        Self::SleepingViews,
        Self::SleepingWaits,
        Self::SlowRequests,
        Self::HalfRequests,
        Self::HeldBackRequests,
        Self::EmptyKeys,
        Self::SilentConnections,
        Self::HalfPrefaces,
        Self::ConnectAndLeave,
    ];

    /// Attacks from one connection until then, and from another one whenever that is closed.
    pub(crate) async fn run(self, address: SocketAddr, until: Instant, got: Arc<Got>) {
        if self == Self::SilentConnections {
            return hold(address, until, &got, b"").await;
        } else if self == Self::HalfPrefaces {
            return hold(address, until, &got, &MAGIC[..12]).await;
        } else if self == Self::ConnectAndLeave {
            return connect_and_leave(address, until, &got).await;
        }
        while Instant::now() < until {
            let _over = timeout_at(until, self.once(address, &got)).await;
            got.connections.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One connection's attack, until it is closed.
    async fn once(self, address: SocketAddr, got: &Arc<Got>) {
        let takes_nothing =
            [Self::UntakenPages, Self::SleepingWatches, Self::SleepingViews, Self::SleepingWaits].contains(&self);
        let open = if self == Self::SippedPages { 1 } else { WINDOW_MAX };
        let window = if takes_nothing { 0 } else { open };
        let Connection { mut reader, writer } = Connection::open(address, &[(INITIAL_WINDOW_SIZE, window)]).await;
        let reads = self != Self::UnreadPages;
        let mut reading = JoinSet::new();
        reading.spawn({
            let got = got.clone();
            async move {
                if !reads {
                    sleep(Duration::from_hours(1)).await;
                }
                while let Some(frame) = reader.next().await {
                    got.note(&frame);
                }
            }
        });
        let mut sender = Sender { writer, stream: 1, got };
        while self.send(&mut sender).await {}
        // Answers are counted until this side is over, or the other one has closed.
        let _closed = reading.join_next().await;
    }

    /// Sends some more. False once nothing more is to be sent.
    async fn send(self, sender: &mut Sender<'_>) -> bool {
        match self {
            Self::MadeToReset => {
                let bytes =
                    sender.streams(100, |stream| [headers(stream, WAIT), window_update(stream, WINDOW_MAX)].concat());
                sender.send(&bytes).await
            }
            Self::RapidReset => {
                let bytes = sender.streams(100, |stream| {
                    [headers(stream, UPDATE), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
                });
                sender.send(&bytes).await
            }
            Self::Pings => sender.send(&frame(PING, 0, 0, &[7; 8]).repeat(1_000)).await,
            Self::Settings => sender.send(&settings(&[(3, 100)]).repeat(1_000)).await,
            Self::Priorities => sender.send(&frame(PRIORITY, 0, 9_999, &[0, 0, 0, 0, 16]).repeat(1_000)).await,
            Self::WindowUpdates => {
                let bytes =
                    if sender.stream == 1 { sender.streams(1, |stream| headers(stream, UPDATE)) } else { vec![] };
                sender.send(&[bytes, window_update(0, 1).repeat(1_000)].concat()).await
            }
            Self::EmptyData => {
                let bytes = sender.streams(1, |stream| headers(stream, UPDATE));
                sender.send(&[bytes, frame(DATA, 0, sender.stream - 2, &[]).repeat(90)].concat()).await
            }
            Self::Continuations => {
                let bytes = if sender.stream == 1 {
                    sender.streams(1, |stream| frame(HEADERS, 0, stream, &header_block(UPDATE, &[])))
                } else {
                    vec![]
                };
                let more = frame(CONTINUATION, 0, 1, &[0, 1, b'a', 1, b'b']).repeat(100);
                sender.send(&[bytes, more].concat()).await
            }
            Self::CheapCalls => {
                let bytes = sender.streams(100, |stream| call(stream, REPLICA, b""));
                sender.send(&bytes).await
            }
            Self::ManyCalls => {
                // Each asks for a change of its own.
                let bytes =
                    sender.streams(12_000, |stream| call(stream, UPDATE, &update("attacked", &stream.to_string())));
                sender.send(&bytes).await;
                sender.until_answered(12_000).await
            }
            Self::UntakenPages | Self::UnreadPages => {
                let bytes = sender.streams(1_000, page);
                sender.send(&bytes).await;
                false
            }
            Self::SippedPages => {
                let bytes = match sender.stream {
                    1 => sender.streams(1_000, page),
                    _ => (0..1_000).flat_map(|nth| window_update(2 * nth + 1, 1)).collect(),
                };
                sender.send(&bytes).await
            }
            Self::SleepingWatches => {
                let bytes =
                    sender.streams(1_000, |stream| call(stream, WATCH, &[run_id("large"), vec![16, 1]].concat()));
                sender.send(&bytes).await;
                false
            }
            Self::SleepingViews => {
                let bytes = sender.streams(1_000, |stream| call(stream, WATCH_ALL, &[16, 2]));
                sender.send(&bytes).await;
                false
            }
            Self::SleepingWaits => {
                let bytes = sender.streams(1_000, |stream| call(stream, WAIT, &run_id("ended")));
                sender.send(&bytes).await;
                false
            }
            Self::SlowRequests => sender.slowly().await,
            Self::HalfRequests => sender.halves().await,
            Self::HeldBackRequests => sender.held_back().await,
            Self::EmptyKeys => {
                let bytes = sender.streams(1, |stream| {
                    call(stream, UPDATE, &[run_id("attacked"), [REMOVE_LABELS_TAG, 0].repeat(520_000)].concat())
                });
                sender.send(&bytes).await && sender.until_answered(1).await
            }
            Self::SilentConnections | Self::HalfPrefaces | Self::ConnectAndLeave => unreachable!("they hold no stream"),
        }
    }
}

/// A call for a page of runs or of events, about as large as there are.
fn page(stream: u32) -> Vec<u8> {
    match stream % 4 {
        1 => call(stream, LIST, &[16, 50, 32, 2]),
        _ => call(stream, LIST_EVENTS, &[run_id("large"), vec![16, 100]].concat()),
    }
}

/// An `UpdateRun` of some 30 KB whose metadata is made of small objects.
fn costly_update() -> Vec<u8> {
    let number = |n: usize| Value { kind: Some(Kind::NumberValue(f64::from(u32::try_from(n).unwrap()))) };
    let object = |n: usize| {
        let fields = (0..8).map(|key| (key.to_string(), number(n))).collect();
        Value { kind: Some(Kind::StructValue(Struct { fields })) }
    };
    let fields = (0..180).map(|n| (n.to_string(), object(n))).collect();
    let request = UpdateRunRequest {
        run_id: "attacked".to_owned(),
        metadata: Some(Struct { fields }),
        ..UpdateRunRequest::default()
    };
    request.encode_to_vec()
}

/// The tags of `UpdateRunRequest.labels` and `.remove_labels`.
const LABELS_TAG: u8 = LABELS << 3 | 2;
const REMOVE_LABELS_TAG: u8 = REMOVE_LABELS << 3 | 2;
const LABELS: u8 = 8;
const REMOVE_LABELS: u8 = 9;

/// The field `run_id`, which is the first of all these requests.
pub(crate) fn run_id(run_id: &str) -> Vec<u8> {
    [&[10, u8::try_from(run_id.len()).unwrap()], run_id.as_bytes()].concat()
}

/// An `UpdateRun` that sets the label `n`.
pub(crate) fn update(run: &str, value: &str) -> Vec<u8> {
    let entry = [&[10, 1, b'n', 18, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    [&run_id(run), [LABELS_TAG, u8::try_from(entry.len()).unwrap()].as_slice(), &entry].concat()
}

struct Sender<'a> {
    writer: tokio::net::tcp::OwnedWriteHalf,
    stream: u32,
    got: &'a Got,
}

impl Sender<'_> {
    /// The bytes for so many new streams.
    fn streams(&mut self, count: u32, bytes: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
        let first = self.stream;
        self.stream += 2 * count;
        self.got.streams.fetch_add(count.into(), Ordering::Relaxed);
        (0..count).flat_map(|nth| bytes(first + 2 * nth)).collect()
    }

    /// See [`Attack::SlowRequests`].
    async fn slowly(&mut self) -> bool {
        if self.stream == 1 {
            let bytes = self.streams(1_000, |stream| headers(stream, UPDATE));
            self.send(&bytes).await;
        }
        // The pace of the attack, which nothing waits for.
        sleep(Duration::from_millis(100)).await;
        let byte = |stream| frame(DATA, 0, stream, &[0]);
        let bytes: Vec<u8> = (0..1_000).flat_map(|nth| byte(2 * nth + 1)).collect();
        self.send(&bytes).await
    }

    /// See [`Attack::HalfRequests`].
    async fn halves(&mut self) -> bool {
        let half = vec![0; 16_000];
        let begin = [&[0, 0, 15, 0, 0], half.as_slice()].concat();
        let bytes = self.streams(1_000, |stream| {
            let parts: Vec<u8> = begin.chunks(16_384).flat_map(|part| frame(DATA, 0, stream, part)).collect();
            [headers(stream, UPDATE), parts, frame(DATA, 0, stream, &half).repeat(30)].concat()
        });
        self.send(&bytes).await;
        false
    }

    /// See [`Attack::HeldBackRequests`].
    async fn held_back(&mut self) -> bool {
        let message = body(&costly_update());
        let (last, most) = message.split_last().unwrap();
        let first = self.stream;
        let bytes = self.streams(200, |stream| {
            let parts: Vec<u8> = most.chunks(16_384).flat_map(|part| frame(DATA, 0, stream, part)).collect();
            [headers(stream, UPDATE), parts].concat()
        });
        let ends: Vec<u8> = (0..200).flat_map(|nth| frame(DATA, END_STREAM, first + 2 * nth, &[*last])).collect();
        self.send(&bytes).await && self.send(&ends).await && self.until_answered(200).await
    }

    /// False once the connection is closed.
    async fn send(&mut self, bytes: &[u8]) -> bool {
        self.got.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.writer.write_all(bytes).await.is_ok()
    }

    /// Waits until all but so many of the streams have ended.
    async fn until_answered(&mut self, open_max: u64) -> bool {
        let before = self.got.ended.load(Ordering::Relaxed);
        while self.got.ended.load(Ordering::Relaxed) < before + open_max {
            if self.got.goaways.load(Ordering::Relaxed) > 0 {
                return false;
            }
            sleep(Duration::from_millis(2)).await;
        }
        true
    }
}

/// Holds 1,134 connections that have sent these bytes.
async fn hold(address: SocketAddr, until: Instant, got: &Got, bytes: &[u8]) {
    let mut held = Vec::new();
    while held.len() < 1_134 && Instant::now() < until {
        let Ok(Ok(mut stream)) = timeout_at(until, TcpStream::connect(address)).await else { continue };
        let _sent = stream.write_all(bytes).await;
        held.push(stream);
        got.connections.fetch_add(1, Ordering::Relaxed);
    }
    tokio::time::sleep_until(until).await;
    for stream in &held {
        let closed = stream.try_read(&mut [0; 64]);
        got.ended.fetch_add(
            u64::from(!closed.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)),
            Ordering::Relaxed,
        );
    }
}

async fn connect_and_leave(address: SocketAddr, until: Instant, got: &Got) {
    while Instant::now() < until {
        let opened = async {
            let mut connection = Connection::open(address, &[]).await;
            let _settings = connection.reader.next().await;
        };
        let _over = timeout_at(until, opened).await;
        got.connections.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts of what an attacker sent and got.
#[derive(Debug, Default)]
pub(crate) struct Got {
    pub(crate) connections: AtomicU64,
    pub(crate) streams: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Streams that ended.
    pub(crate) ended: AtomicU64,
    pub(crate) resets: AtomicU64,
    pub(crate) goaways: AtomicU64,
    pub(crate) data_bytes: AtomicU64,
    pub(crate) acknowledged: AtomicU64,
}

impl Got {
    fn note(&self, Frame { kind, flags, payload, .. }: &Frame) {
        let add = |counter: &AtomicU64, more: u64| counter.fetch_add(more, Ordering::Relaxed);
        match (*kind, *flags) {
            (RST_STREAM, _) => {
                add(&self.resets, 1);
                add(&self.ended, 1);
            }
            (GOAWAY, _) => {
                add(&self.goaways, 1);
            }
            (DATA, _) => {
                add(&self.data_bytes, payload.len() as u64);
            }
            (HEADERS, flags) if flags & END_STREAM != 0 => {
                add(&self.ended, 1);
            }
            (PING | SETTINGS, ACK) => {
                add(&self.acknowledged, 1);
            }
            _ => {}
        }
    }
}

impl fmt::Display for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let parts = [
            (of(&self.connections), "connections"),
            (of(&self.streams), "streams"),
            (of(&self.bytes) >> 20, "MiB sent"),
            (of(&self.ended), "ended"),
            (of(&self.resets), "reset"),
            (of(&self.goaways), "GOAWAY"),
            (of(&self.acknowledged), "acknowledged"),
            (of(&self.data_bytes) >> 20, "MiB answered"),
        ];
        let told: Vec<String> =
            parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        f.write_str(&told.join(", "))
    }
}
