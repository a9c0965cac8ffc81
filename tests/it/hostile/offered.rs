//! An open loop that costs its own side next to nothing: calls are made at their times, without waiting for earlier
//! ones, frame by frame. A client library would be overloaded before the server is.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::attacks::{UPDATE, update};
use super::honest::quantile_ms;
use crate::support::http2::{
    Connection, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, body, frame, header_block, window_update,
};

/// Connections that share the calls.
const CONNECTIONS: u32 = 32;

/// Calls that are open on a connection at most, as the server lets it have; the others wait, and their time runs.
const OPEN_MAX: usize = 1_000;

/// The time that a caller waits.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

/// The results of the calls of a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offered {
    /// The time at which each call was due, and the time that its acknowledgement took, in ms.
    pub(crate) acknowledged: Vec<(Duration, f64)>,
    pub(crate) refused: u64,
    /// Given up after the deadline, sent or not.
    pub(crate) late: u64,
    pub(crate) reset: u64,
}

impl Offered {
    pub(crate) fn quantile_ms(&self, part: f64) -> f64 {
        quantile_ms(self.acknowledged.iter().map(|(_, ms)| *ms).collect(), part)
    }

    fn add(&mut self, other: Self) {
        self.acknowledged.extend(other.acknowledged);
        self.refused += other.refused;
        self.late += other.late;
        self.reset += other.reset;
    }
}

/// Offers so many changes a second, of so many runs `load-0`, `load-1`, ..., for a time. Runs on a thread of its own.
pub(crate) async fn offer(address: SocketAddr, per_second: u32, runs: u32, time: Duration) -> Offered {
    let (told, offered) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let all = runtime.block_on(async {
            let mut connections = JoinSet::new();
            let begun = Instant::now() + Duration::from_millis(200);
            for number in 0..CONNECTIONS {
                let lane = Lane { number, per_second, runs, begun, time };
                connections.spawn(async move { lane.offer(Connection::open(address, &[]).await).await });
            }
            let mut all = Offered::default();
            while let Some(offered) = connections.join_next().await {
                all.add(offered.unwrap());
            }
            all
        });
        let _waited_for = told.send(all);
    });
    offered.await.unwrap()
}

/// One connection's share.
struct Lane {
    number: u32,
    per_second: u32,
    runs: u32,
    begun: Instant,
    time: Duration,
}

impl Lane {
    fn due(&self, nth: u32) -> Instant {
        self.begun + Duration::from_secs(u64::from(nth * CONNECTIONS + self.number)) / self.per_second
    }

    async fn offer(&self, mut connection: Connection) -> Offered {
        let head = header_block(UPDATE, &[("grpc-timeout", "2S")]);
        let mut offered = Offered::default();
        let mut open: Vec<Option<Instant>> = Vec::new();
        let (mut oldest, mut count, mut received) = (0, 0, 0);
        let mut due_next = 0;
        let mut ticks = interval(Duration::from_millis(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let until = self.begun + self.time;
        loop {
            tokio::select! {
                biased;
                now = ticks.tick() => {
                    let mut bytes = Vec::new();
                    while oldest < open.len() && open[oldest].is_none_or(|due| due + DEADLINE < now) {
                        if open[oldest].take().is_some() {
                            let stream = 2 * u32::try_from(oldest).unwrap() + 1;
                            bytes.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
                            offered.late += 1;
                            count -= 1;
                        }
                        oldest += 1;
                    }
                    while self.due(due_next) <= now.min(until) {
                        let due = self.due(due_next);
                        if due + DEADLINE < now {
                            offered.late += 1;
                        } else if count < OPEN_MAX {
                            let stream = 2 * u32::try_from(open.len()).unwrap() + 1;
                            let number = due_next * CONNECTIONS + self.number;
                            bytes.extend(frame(HEADERS, END_HEADERS, stream, &head));
                            let message = update(&format!("load-{}", number % self.runs), &number.to_string());
                            bytes.extend(frame(DATA, END_STREAM, stream, &body(&message)));
                            open.push(Some(due));
                            count += 1;
                        } else {
                            break;
                        }
                        due_next += 1;
                    }
                    if !bytes.is_empty() && !connection.send(&bytes).await {
                        offered.reset += 1;
                        return offered;
                    }
                    if now > until && count == 0 {
                        return offered;
                    }
                }
                received_frame = connection.reader.next() => {
                    let Some(answer) = received_frame else {
                        offered.reset += 1 + count as u64;
                        return offered;
                    };
                    if answer.kind == DATA {
                        received += answer.payload.len();
                    }
                    if received > 1 << 20 {
                        connection.send(&window_update(0, u32::try_from(received).unwrap())).await;
                        received = 0;
                    }
                    let place = answer.stream.saturating_sub(1) as usize / 2;
                    let ends = answer.kind == RST_STREAM || (answer.kind == HEADERS && answer.flags & END_STREAM != 0);
                    if answer.kind == GOAWAY {
                        offered.reset += 1;
                    }
                    // The first frame of an answer that was refused is also its last one.
                    if answer.kind == DATA {
                        if let Some(due) = open.get_mut(place).and_then(Option::take) {
                            count -= 1;
                            offered.acknowledged.push((due - self.begun, due.elapsed().as_secs_f64() * 1_000.0));
                        }
                    } else if ends && open.get_mut(place).and_then(Option::take).is_some() {
                        count -= 1;
                        *(if answer.kind == RST_STREAM { &mut offered.reset } else { &mut offered.refused }) += 1;
                    }
                }
            }
        }
    }
}
