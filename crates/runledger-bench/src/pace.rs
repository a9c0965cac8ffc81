//! The times at which the calls of a load are made.
//!
//! An open loop makes calls at their times whether or not earlier ones were answered, as many independent callers do: a
//! server that stalls does not slow its own load down, and the stall shows in the delays. A closed loop waits.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::BenchError;
use super::random::Random;

/// Calls of an open loop that may be open: a server that stands still must not take the client's memory.
pub(super) const OPEN_MAX: usize = 8_192;

/// The pauses of a load that is hardly one, in milliseconds: not even, so that they do not fall in with a server's
/// poll.
const PAUSE_MS: std::ops::Range<u64> = 25..75;

/// The same load each time.
pub(super) const SEED: u64 = 0x52_75_6e_6c_65_64_67_65;

/// The rate of calls.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// Calls a second, whatever becomes of them.
    PerSecond(NonZeroU32),
    /// One at a time, with pauses: about 20 a second.
    OneAtATime,
}

impl Pace {
    /// 0 is one at a time.
    pub(super) fn of(rate: u32) -> Self {
        NonZeroU32::new(rate).map_or(Self::OneAtATime, Self::PerSecond)
    }
}

/// Makes so many calls at a pace, or as many as there is time for, or until the stop, and waits for the answers of all.
/// Gives how many it made.
pub(super) async fn make<C>(
    pace: Pace,
    count: u64,
    until: Option<Instant>,
    stop: &CancellationToken,
    mut call: impl FnMut(u64) -> C,
) -> Result<u64, BenchError>
where
    C: Future<Output = Result<(), BenchError>> + Send + 'static,
{
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    let mut random = Random::new(SEED);
    let mut due = begun;
    let mut made = 0;
    while made < count && until.is_none_or(|until| due < until) && !stop.is_cancelled() {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = sleep_until(due) => {}
        }
        calls.spawn(call(made));
        made += 1;
        due = match pace {
            Pace::PerSecond(rate) => begun + Duration::from_secs(made) / rate.get(),
            Pace::OneAtATime => {
                all_answered(&mut calls).await?;
                Instant::now() + Duration::from_millis(random.within(PAUSE_MS))
            }
        };
        while let Some(answered) = calls.try_join_next() {
            answered??;
        }
        if calls.len() >= OPEN_MAX {
            next_answered(&mut calls).await?;
        }
    }
    all_answered(&mut calls).await?;
    Ok(made)
}

/// Makes so many calls, so many at once, and waits for the answers of all. Gives how many it made before the stop.
pub(super) async fn make_all<C>(
    count: u64,
    at_once: usize,
    stop: &CancellationToken,
    mut call: impl FnMut(u64) -> C,
) -> Result<u64, BenchError>
where
    C: Future<Output = Result<(), BenchError>> + Send + 'static,
{
    let mut calls = JoinSet::new();
    let mut made = 0;
    while made < count && !stop.is_cancelled() {
        if calls.len() >= at_once {
            next_answered(&mut calls).await?;
        }
        calls.spawn(call(made));
        made += 1;
    }
    all_answered(&mut calls).await?;
    Ok(made)
}

async fn next_answered(calls: &mut JoinSet<Result<(), BenchError>>) -> Result<(), BenchError> {
    calls.join_next().await.map_or(Ok(()), |answered| answered?)
}

async fn all_answered(calls: &mut JoinSet<Result<(), BenchError>>) -> Result<(), BenchError> {
    while !calls.is_empty() {
        next_answered(calls).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn an_open_loop_keeps_its_rate_when_nobody_answers() {
        let begun = Instant::now();
        let pace = Pace::of(1_000);
        let slow = |_| async {
            sleep(10 * SECOND).await;
            Ok(())
        };
        let made = make(pace, u64::MAX, Some(begun + SECOND), &CancellationToken::new(), slow).await.unwrap();
        assert_eq!(made, 1_000);
        assert!(begun.elapsed() >= 10 * SECOND, "every answer was waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_is_about_twenty_a_second() {
        let until = Instant::now() + 10 * SECOND;
        let alone = Arc::new(Semaphore::new(1));
        let call = |_| {
            let turn = alone.clone().try_acquire_owned().expect("the call before was answered");
            async move {
                drop(turn);
                Ok(())
            }
        };
        let made = make(Pace::of(0), u64::MAX, Some(until), &CancellationToken::new(), call).await.unwrap();
        assert!((180..=220).contains(&made), "{made}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_a_load_and_a_failed_call_fails_it() {
        let stop = CancellationToken::new();
        stop.cancel();
        let call = |_| async { Ok(()) };
        assert_eq!(make(Pace::of(1_000), 10, None, &stop, call).await.unwrap(), 0);
        assert_eq!(make_all(10, 2, &stop, call).await.unwrap(), 0);
        let fails = |_| async { Err(BenchError::Ended { rpc: "WatchRuns" }) };
        let failed = make_all(10, 2, &CancellationToken::new(), fails).await;
        assert!(matches!(failed, Err(BenchError::Ended { .. })));
    }
}
