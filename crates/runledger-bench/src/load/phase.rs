//! One phase of a load: callers that call for a time, in a closed or in an open loop.
//!
//! In a closed loop each caller calls again as soon as it was answered. In an open loop turns are due at a rate,
//! whatever becomes of earlier ones, and a late turn counts from the time at which it was due: a server that stalls
//! does not hide the stall by slowing its load down.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;

use super::tally::{Sum, Tally, Totals};
use crate::BenchError;
use crate::progress::Progress;

/// The pacer's shortest sleep: turns that are due within it come together.
const SLEEP_MIN: Duration = Duration::from_micros(100);

/// The pacer's longest sleep: after it, it looks whether it is still wanted.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Interval at which the progress is shown on a terminal.
const SAY_INTERVAL: Duration = Duration::from_millis(500);

/// One of the callers of a load, with its own state.
pub(crate) trait Caller: Send + Sized + 'static {
    /// Does the load's sequence of calls once. `due`: the time at which the turn was due.
    fn turn(&mut self, due: Instant, tally: &mut Tally) -> impl Future<Output = Result<(), BenchError>> + Send;

    /// Ends open runs and waits: no turn follows.
    fn finish(self, _tally: &mut Tally) -> impl Future<Output = Result<(), BenchError>> + Send {
        std::future::ready(Ok(()))
    }
}

/// The display of a phase, and the stop that may end it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched<'a> {
    /// The phase, for people.
    pub(crate) name: &'a str,
    pub(crate) progress: &'a Progress,
    pub(crate) stop: &'a CancellationToken,
}

/// The settings of a phase.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    /// Callers; in an open loop, turns that may be under way at once.
    pub(crate) callers: usize,
    /// Turns a second of an open loop.
    pub(crate) rate: Option<NonZeroU32>,
    /// The time at the beginning that is not measured.
    pub(crate) warm_up: Duration,
    /// The time that is measured.
    pub(crate) time: Duration,
}

impl Phase {
    /// Lets callers call until the time is over, or until the stop. Every turn that was begun is done, and every caller
    /// has finished. Gives the measurement, and its time.
    pub(crate) async fn run<C: Caller>(
        &self,
        caller: impl Fn(u64) -> C,
        watched: Watched<'_>,
    ) -> Result<(Sum, Duration), BenchError> {
        let begun = Instant::now();
        let measured_from = begun + self.warm_up;
        let totals = Totals::new(measured_from..measured_from + self.time);
        let load = async {
            match self.rate {
                Some(rate) => open(self.callers, Due { rate, begun }, caller, &totals, watched.stop).await,
                None => closed(self.callers, caller, &totals, watched.stop).await,
            }
        };
        tokio::select! {
            done = load => done?,
            () = self.look_on(begun, &totals, watched) => {}
        }
        Ok(totals.sum())
    }

    /// Never ends by itself.
    async fn look_on(&self, begun: Instant, totals: &Totals, Watched { name, progress, .. }: Watched<'_>) {
        let mut interval = interval(SAY_INTERVAL);
        let (mut before, mut then) = (0, begun);
        loop {
            let now = interval.tick().await;
            let answered = totals.answered();
            let rate = (answered - before) * 1_000 / u64::try_from((now - then).as_millis()).unwrap_or(1).max(1);
            (before, then) = (answered, now);
            let second = begun.elapsed().as_secs();
            let all = (self.warm_up + self.time).as_secs();
            let warm_up = if begun.elapsed() < self.warm_up { ", warming up" } else { "" };
            progress.say(&format!("{name}: second {second} of {all}{warm_up}, {rate} calls/s"));
        }
    }
}

async fn closed<C: Caller>(
    callers: usize,
    caller: impl Fn(u64) -> C,
    totals: &Arc<Totals>,
    stop: &CancellationToken,
) -> Result<(), BenchError> {
    let until = totals.until();
    let mut calling = JoinSet::new();
    for number in 0..callers as u64 {
        let (mut caller, mut tally, stop) = (caller(number), Tally::new(totals.clone()), stop.clone());
        calling.spawn(async move {
            loop {
                let now = Instant::now();
                if now >= until || stop.is_cancelled() {
                    break;
                }
                caller.turn(now, &mut tally).await?;
            }
            caller.finish(&mut tally).await?;
            tally.hand_in();
            Ok(())
        });
    }
    all_done(calling).await
}

async fn open<C: Caller>(
    callers_max: usize,
    times: Due,
    caller: impl Fn(u64) -> C,
    totals: &Arc<Totals>,
    stop: &CancellationToken,
) -> Result<(), BenchError> {
    let until = totals.until();
    let (sender, mut due) = mpsc::channel(callers_max);
    let mut pacing = JoinSet::new();
    pacing.spawn_blocking({
        let stop = stop.clone();
        move || times.tell(until, &sender, &stop)
    });
    let mut busy: JoinSet<Result<(C, Tally), BenchError>> = JoinSet::new();
    let mut idle = Vec::new();
    let mut made = 0;
    while let Some(due) = due.recv().await {
        while let Some(done) = busy.try_join_next() {
            idle.push(done??);
        }
        let (mut caller, mut tally) = match idle.pop() {
            Some(rested) => rested,
            None if busy.len() < callers_max => {
                made += 1;
                (caller(made - 1), Tally::new(totals.clone()))
            }
            None => busy.join_next().await.expect("as many as there may be")??,
        };
        busy.spawn(async move {
            caller.turn(due, &mut tally).await?;
            Ok((caller, tally))
        });
    }
    while let Some(done) = busy.join_next().await {
        idle.push(done??);
    }
    let mut finishing = JoinSet::new();
    for (caller, mut tally) in idle {
        finishing.spawn(async move {
            caller.finish(&mut tally).await?;
            tally.hand_in();
            Ok(())
        });
    }
    all_done(finishing).await
}

async fn all_done(mut tasks: JoinSet<Result<(), BenchError>>) -> Result<(), BenchError> {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// The times at which the turns of an open loop are due.
#[derive(Clone, Copy, Debug)]
struct Due {
    rate: NonZeroU32,
    begun: Instant,
}

impl Due {
    /// Tells when a turn is due. On a thread of its own: the runtime's timer is exact to a millisecond, which is longer
    /// than many of the calls that are measured.
    fn tell(self, until: Instant, due: &mpsc::Sender<Instant>, stop: &CancellationToken) {
        for number in 0_u64.. {
            let at = self.begun + Duration::from_nanos(number * 1_000_000_000 / u64::from(self.rate.get()));
            while let Some(early) = at.checked_duration_since(Instant::now()).filter(|early| !early.is_zero()) {
                if stop.is_cancelled() || due.is_closed() {
                    return;
                }
                std::thread::sleep(early.clamp(SLEEP_MIN, SLEEP_MAX));
            }
            if at >= until || stop.is_cancelled() || due.blocking_send(at).is_err() {
                return;
            }
        }
    }
}
