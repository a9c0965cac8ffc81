//! A watcher of all runs, cut and slowed as its plan says, and what it was shown.

use std::net::SocketAddr;

use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::watch_runs_response::{Change, Frame};
use runledger_proto::v1::{self, RunFilter, RunStatus, WatchRunsRequest};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, timeout};
use tonic::Status;

use super::calls::{Answer, Step, meaning, reason};
use super::load::{Call, Targets};
use super::oracle::cursor_of;
use super::server::{SOON, client};

/// The run whose end every plan's filter shows: it is started after everything else was answered.
const LAST: &str = "last";

/// The time that a watcher whose streams end may be shown nothing new: after this, the cause is not a busy machine.
const STANDSTILL_MAX: Duration = Duration::from_secs(90);

/// A watcher's way of watching.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) filter: RunFilter,
    pub(crate) initial: Initial,
    /// Drops its streams after a random number of frames below this one.
    pub(crate) cut: Option<u64>,
    /// Takes a frame a second until it is told to hurry.
    pub(crate) slow: bool,
    /// Draws this one's random numbers.
    pub(crate) seed: u64,
}

impl Plan {
    pub(crate) fn all(initial: Initial) -> Self {
        Self { initial, ..Self::default() }
    }

    pub(crate) fn of_status(status: RunStatus, initial: Initial) -> Self {
        Self { filter: RunFilter { statuses: vec![status.into()], ..RunFilter::default() }, ..Self::all(initial) }
    }

    /// Runs leave this filter and come back.
    pub(crate) fn of_workflow(initial: Initial) -> Self {
        let filter = RunFilter { workflow_id: "workflow-1".to_owned(), ..RunFilter::default() };
        Self { filter, ..Self::all(initial) }
    }

    pub(crate) fn cut(self, frames: u64, seed: u64) -> Self {
        Self { cut: Some(frames), seed, ..self }
    }
}

/// The frames that a watcher was shown, over all its streams.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) plan: Plan,
    /// Each but the first resumes the one before it after the last frame that was received.
    pub(crate) streams: Vec<Stream>,
    /// The reasons for which streams ended that the watcher did not cut itself.
    pub(crate) ends: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    /// The time at which the stream was asked for.
    pub(crate) sent: Instant,
    /// The time at which the service had taken the stream.
    pub(crate) opened: Instant,
    /// The frames, each with the time at which it was received.
    pub(crate) frames: Vec<(Instant, Frame)>,
}

impl Shown {
    /// The stream that the watch began with.
    pub(crate) fn first(&self) -> &Stream {
        self.streams.iter().find(|stream| !stream.frames.is_empty()).expect("something was shown")
    }

    fn frames(&self) -> impl DoubleEndedIterator<Item = &Frame> {
        self.streams.iter().flat_map(|stream| &stream.frames).map(|(_, frame)| frame)
    }

    pub(crate) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.frames().filter_map(|frame| if let Frame::Change(change) = frame { Some(change) } else { None })
    }

    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &v1::Run> {
        self.frames()
            .filter_map(|frame| if let Frame::Snapshot(snapshot) = frame { snapshot.run.as_ref() } else { None })
    }

    /// The number of streams that were cut while they showed the first view.
    pub(crate) fn cuts_of_the_view(&self) -> usize {
        let ends = self.streams.iter().filter_map(|stream| stream.frames.last());
        ends.filter(|(_, frame)| matches!(frame, Frame::Snapshot(_))).count()
    }

    /// The number of frames that were received by then, and their bytes.
    pub(crate) fn bytes_until(&self, then: Instant) -> (usize, usize) {
        let frames = self.streams.iter().flat_map(|stream| &stream.frames).filter(|(received, _)| *received <= then);
        frames.fold((0, 0), |(count, bytes), (_, frame)| (count + 1, bytes + frame.encoded_len()))
    }

    /// Whether the last stream has caught up.
    fn has_caught_up(&self) -> bool {
        let frames = self.streams.last().map_or(&[][..], |stream| &stream.frames);
        frames.iter().any(|(_, frame)| matches!(frame, Frame::CaughtUp(_)))
    }

    fn is_over(&self) -> bool {
        let run = self
            .frames()
            .rev()
            .find_map(|frame| if let Frame::Change(change) = frame { change.run.as_ref() } else { None });
        run.is_some_and(|run| run.run_id == LAST && run.status() == RunStatus::Completed)
    }
}

/// A watcher at work.
#[derive(Debug)]
pub(crate) struct Firehose {
    task: JoinSet<Shown>,
    seen: watch::Receiver<usize>,
    hurry: watch::Sender<bool>,
}

impl Firehose {
    /// Returns once it was shown something, or has caught up.
    pub(crate) async fn start(plan: Plan, targets: &Targets) -> Self {
        let (sender, mut seen) = watch::channel(0);
        let (hurry, hurries) = watch::channel(false);
        let targets = targets.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut watcher = Watcher {
                shown: Shown { plan, streams: Vec::new(), ends: Vec::new() },
                cursor: String::new(),
                targets,
                seen: sender,
                hurries,
            };
            watcher.watch().await;
            watcher.shown
        });
        timeout(SOON, seen.wait_for(|seen| *seen > 0)).await.expect("a frame in time").expect("it watches");
        Self { task, seen, hurry }
    }

    /// The number of frames that the watcher has received.
    pub(crate) fn received(&self) -> usize {
        *self.seen.borrow()
    }

    /// Waits until it has received so many more frames, as long as it receives some.
    pub(crate) async fn progresses(&mut self, by: usize) {
        let mut received = self.received();
        let goal = received + by;
        while received < goal {
            let more = timeout(SOON, self.seen.wait_for(|seen| *seen > received)).await;
            received = *more.unwrap_or_else(|_| panic!("{received} of {goal} frames, and no more")).unwrap();
        }
    }

    /// Lets a slow one read as fast as it can.
    pub(crate) fn hurry(&self) {
        self.hurry.send_replace(true);
    }

    /// Waits for the last event, as long as there is progress.
    pub(crate) async fn shown(mut self) -> Shown {
        self.hurry();
        loop {
            let received = self.received();
            match timeout(STANDSTILL_MAX, self.task.join_next()).await {
                Ok(Some(Ok(shown))) => return shown,
                Ok(Some(Err(error))) => std::panic::resume_unwind(error.into_panic()),
                Ok(None) => unreachable!("it has one task"),
                Err(_) => {
                    assert!(self.received() > received, "the last event was never shown, after {received} frames");
                }
            }
        }
    }
}

/// The calls that every watcher waits for, after all others were answered.
pub(crate) async fn last_calls(address: SocketAddr) -> Vec<Call> {
    let mut calls = Vec::new();
    for (step, request_id) in [(Step::Start, "1"), (Step::Update(1), "2"), (Step::Complete, "3")] {
        let mut call = Call::new(LAST, step, format!("{LAST}/{request_id}"));
        call.send(address, &mut client(address)).await.expect("the last calls are answered");
        calls.push(call);
    }
    calls
}

struct Watcher {
    shown: Shown,
    /// Of the last frame that was received.
    cursor: String,
    targets: Targets,
    seen: watch::Sender<usize>,
    hurries: watch::Receiver<bool>,
}

impl Watcher {
    async fn watch(&mut self) {
        let (mut seen, mut progressed) = (0, Instant::now());
        let mut dice = Dice(self.shown.plan.seed);
        while !self.shown.is_over() {
            let address = {
                let targets = self.targets.borrow();
                targets[dice.below(targets.len() as u64)]
            };
            let frames_max = self.shown.plan.cut.map(|below| dice.below(below));
            if let Err(status) = self.stream(address, frames_max).await {
                match meaning(&status) {
                    Answer::NothingWritten(_) => self.shown.ends.push(reason(&status)),
                    Answer::Cut(why) => self.shown.ends.push(why),
                    other @ (Answer::Applied(_) | Answer::Replayed(_) | Answer::Unknown(_)) => {
                        panic!("a watch: {other:?}")
                    }
                }
                sleep(Duration::from_millis(20)).await;
            }
            if *self.seen.borrow() > seen {
                (seen, progressed) = (*self.seen.borrow(), Instant::now());
            }
            assert!(progressed.elapsed() < STANDSTILL_MAX, "after {seen} frames, no more: {:?}", self.shown.ends);
        }
    }

    /// One stream, resumed after what was received, up to the last event or so many frames.
    async fn stream(&mut self, address: SocketAddr, frames_max: Option<usize>) -> Result<(), Status> {
        let Plan { filter, initial, .. } = &self.shown.plan;
        let (filter, initial) = (Some(filter.clone()), (*initial).into());
        let asked = WatchRunsRequest { filter, initial, cursor: self.cursor.clone() };
        let sent = Instant::now();
        let mut stream = client(address).watch_runs(asked).await?.into_inner();
        self.shown.streams.push(Stream { sent, opened: Instant::now(), frames: Vec::new() });
        for _ in 0..frames_max.unwrap_or(usize::MAX) {
            let Some(frame) = stream.message().await? else { panic!("a watch of all runs does not end by itself") };
            let frame = frame.frame.unwrap();
            cursor_of(&frame).clone_into(&mut self.cursor);
            self.shown.streams.last_mut().unwrap().frames.push((Instant::now(), frame));
            self.seen.send_modify(|seen| *seen += 1);
            // Who resumes late is shown the last event before it has caught up.
            if self.shown.is_over() && (frames_max.is_some() || self.shown.has_caught_up()) {
                break;
            }
            if self.shown.plan.slow {
                let _hurried = timeout(Duration::from_secs(1), self.hurries.wait_for(|hurry| *hurry)).await;
            }
        }
        Ok(())
    }
}

/// Random numbers that are the same in every run of the test: splitmix64.
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, end: u64) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end).unwrap()
    }
}
