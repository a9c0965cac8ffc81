//! A worker, a store and its interruptions, in steps of 10 ms.

use proptest::prelude::*;

use super::*;

const STEP_MS: u64 = 10;

fn at(ms: u64) -> Time {
    Time::from_micros(1_764_000_000_000_000).plus_ms(ms)
}

/// A kind of interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The process stands still.
    Frozen,
    /// The store answers when the trouble is over.
    Slow,
    /// The store fails at once.
    Failing,
}

/// Troubles: when each begins and ends.
type Troubles = Vec<(u64, u64, Trouble)>;

fn at_work(troubles: &Troubles, ms: u64) -> Option<Trouble> {
    troubles.iter().find(|(start, end, _)| (*start..*end).contains(&ms)).map(|(_, _, trouble)| *trouble)
}

/// A heartbeat on its way: when it was sent, the number under which the server knows it, and whether its worker waits
/// for it.
struct Beat {
    sent: u64,
    number: Option<u64>,
    awaited: bool,
}

/// A server and one worker of a run.
struct World {
    uptime: Uptime,
    ttl_ms: u64,
    expires_at: Time,
    next_beat: u64,
    beats: Vec<Beat>,
    /// The time at which the worker dies.
    dies_at: u64,
}

impl World {
    fn new(ttl_ms: u64, dies_at: u64) -> Self {
        let uptime = Uptime::new(at(0), LONGEST);
        Self { uptime, ttl_ms, expires_at: at(ttl_ms), next_beat: ttl_ms / 3, beats: Vec::new(), dies_at }
    }

    fn is_over(&self, ms: u64) -> bool {
        let since = self.uptime.seen(at(ms)).since(self.ttl_ms).unwrap();
        self.expires_at.max(since.plus_ms(self.ttl_ms)) <= at(ms)
    }

    /// Makes one step. Answers whether the lease was found over: looked for before the process can have told that it
    /// runs.
    fn step(&mut self, ms: u64, trouble: Option<Trouble>) -> bool {
        let over = trouble != Some(Trouble::Frozen) && self.is_over(ms);
        self.worker(ms);
        if trouble == Some(Trouble::Frozen) {
            return over;
        }
        if ms.is_multiple_of(100) || self.uptime.ticked < at(ms.saturating_sub(100)) {
            self.uptime.tick(at(ms));
        }
        if ms.is_multiple_of(1_000) {
            // The stamp, which has no worker.
            self.beats.push(Beat { sent: ms, number: Some(self.uptime.asked(at(ms))), awaited: false });
        }
        for mut beat in std::mem::take(&mut self.beats) {
            if beat.number.is_none() && !beat.awaited {
                // The worker gave the heartbeat up before the server came to read it.
                continue;
            }
            let number = *beat.number.get_or_insert_with(|| self.uptime.asked(at(ms)));
            match trouble {
                Some(Trouble::Frozen | Trouble::Slow) => self.beats.push(beat),
                Some(Trouble::Failing) => {
                    self.uptime.answered(number, at(ms), Ended::Failed);
                    if beat.awaited {
                        self.next_beat = ms + self.pause();
                    }
                }
                None => {
                    if beat.awaited {
                        assert!(!self.is_over(ms), "a renewal was refused");
                        self.expires_at = at(ms + self.ttl_ms);
                        self.next_beat = ms + self.ttl_ms / 3;
                    }
                    self.uptime.answered(number, at(ms), Ended::Well);
                }
            }
        }
        over
    }

    fn worker(&mut self, ms: u64) {
        let (given_up, pause) = (self.ttl_ms / 3, self.pause());
        for beat in &mut self.beats {
            if beat.awaited && ms >= beat.sent + given_up {
                beat.awaited = false;
                self.next_beat = ms + pause;
            }
        }
        if ms < self.dies_at && ms >= self.next_beat && !self.beats.iter().any(|beat| beat.awaited) {
            self.beats.push(Beat { sent: ms, number: None, awaited: true });
        }
    }

    fn pause(&self) -> u64 {
        (self.ttl_ms / 12).min(500)
    }
}

fn troubles() -> impl Strategy<Value = Troubles> {
    let kinds = prop_oneof![Just(Trouble::Frozen), Just(Trouble::Slow), Just(Trouble::Failing)];
    let length = prop_oneof![1_u64..60, 1_u64..400, 1_u64..1_200];
    let pause = prop_oneof![1_u64..30, 1_u64..300, 1_u64..1_000];
    proptest::collection::vec((pause, length, kinds), 1..12).prop_map(|troubles| {
        let mut now = 0;
        let spans = troubles.into_iter().map(|(pause, length, trouble)| {
            let start = now + pause * STEP_MS;
            now = start + length * STEP_MS;
            (start, now, trouble)
        });
        spans.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 300 } else { 3_000 }))]

    #[test]
    fn no_lease_of_the_living_is_ever_over(troubles in troubles(), ttl_ms in 100_u64..2_400) {
        let ttl_ms = ttl_ms * STEP_MS;
        let mut world = World::new(ttl_ms, u64::MAX);
        let until = troubles.last().map_or(0, |(_, end, _)| *end) + 2 * ttl_ms;
        for ms in (0..until).step_by(10) {
            prop_assert!(!world.step(ms, at_work(&troubles, ms)), "over after {ms} ms");
        }
    }

    #[test]
    fn the_dead_are_found_one_ttl_after_the_last_trouble(troubles in troubles(), ttl_ms in 100_u64..2_400) {
        let ttl_ms = ttl_ms * STEP_MS;
        let end = troubles.last().map_or(0, |(_, end, _)| *end);
        let mut world = World::new(ttl_ms, end / 2);
        // A second until a stamp tells that the store is well.
        let until = end + 1_000 + ttl_ms + 100;
        let found = (0..=until).step_by(10).find(|ms| world.step(*ms, at_work(&troubles, *ms)));
        prop_assert!(found.is_some_and(|found| found >= (end / 2).min(ttl_ms)), "{found:?}");
    }
}

/// The time from the end of an absence, without another, until a lease is over that was not renewed.
fn lives(ttl_ms: u64, away_ms: u64) -> u64 {
    let mut uptime = Uptime::new(at(0), LONGEST);
    let (gone, back) = (1_000_000, 1_000_000 + away_ms);
    for ms in (0..=gone).step_by(100) {
        uptime.tick(at(ms));
    }
    let renewed_at = gone - 100;
    (back..)
        .step_by(100)
        .find_map(|ms| {
            uptime.tick(at(ms));
            let expiry = uptime.seen(at(ms)).since(ttl_ms).unwrap().max(at(renewed_at)).plus_ms(ttl_ms);
            (expiry <= at(ms)).then(|| ms - back)
        })
        .unwrap()
}

#[test]
fn an_interruption_counts_for_a_lease_of_whose_ttl_it_is_a_quarter_and_for_no_longer_one() {
    assert_eq!([250, 500, 1_000].map(|away| lives(1_000, away)), [1_000, 1_000, 1_000]);
    assert_eq!(lives(8_000, 2_000), 8_000);
    // Lengths are rounded up, by a quarter at most.
    assert_eq!(lives(8_000, 1_500), 8_000 - 100 - 1_500);
    assert_eq!(lives(24 * 3_600_000, 60_000), 24 * 3_600_000 - 100 - 60_000);
    assert_eq!(lives(60_000, 600_000), 60_000);
}

#[test]
fn steady_hiccups_keep_nobody_alive_whom_they_could_not_hurt() {
    let mut uptime = Uptime::new(at(0), GAP);
    let mut ms = 0;
    while ms < 60_000 {
        // A late tick and a slow renewal in each second.
        let number = uptime.asked(at(ms));
        ms += 400;
        uptime.tick(at(ms));
        uptime.answered(number, at(ms), Ended::Well);
        for _ in 0..6 {
            ms += 100;
            uptime.tick(at(ms));
        }
    }
    let seen = uptime.seen(at(ms));
    assert_eq!(seen.since(1_500), Some(at(ms - 600)));
    assert_eq!((seen.since(8_000), seen.since(8_400)), (Some(at(0)), None), "its start counts as a gap");
    assert_eq!(seen.begun, at(0));
}

#[test]
fn few_interruptions_are_kept_whatever_comes() {
    let mut uptime = Uptime::new(at(0), LONGEST);
    let mut ms = 0;
    // From long to short, so that none makes another one needless.
    for away in (250..30_000_000_u64).rev().step_by(50_000).chain((250..60_000).rev()) {
        ms += away;
        uptime.tick(at(ms));
        assert!(uptime.interruptions.len() <= 70, "{}", uptime.interruptions.len());
    }
    let kept = &uptime.interruptions;
    assert!(kept.is_sorted_by(|one, next| one.length > next.length && one.end <= next.end));
}

#[test]
fn a_clock_that_is_set_moves_what_was_before_with_it() {
    let mut uptime = Uptime::new(at(100_000), GAP);
    uptime.tick(at(100_100));
    uptime.tick(at(40_200));
    let seen = uptime.seen(at(40_200));
    assert_eq!(seen.since(1_000), Some(at(40_200)), "it may have stood still for as long");
    for ms in (40_300..60_000).step_by(100) {
        uptime.tick(at(ms));
    }
    assert_eq!(uptime.seen(at(60_000)).since(1_000), Some(at(40_200)));
}

#[test]
fn while_the_store_fails_nothing_is_over_and_a_success_ends_it() {
    let mut uptime = Uptime::new(at(0), GAP);
    let day = 24 * 3_600_000;
    let number = uptime.asked(at(10_000));
    uptime.answered(number, at(10_100), Ended::Failed);
    for ms in (0..=30_000).step_by(100) {
        uptime.tick(at(ms));
    }
    assert!(uptime.is_failing());
    assert_eq!(uptime.seen(at(30_000)).since(day), Some(at(30_000)));
    let number = uptime.asked(at(30_000));
    uptime.answered(number, at(30_001), Ended::Well);
    assert_eq!(uptime.seen(at(30_050)).since(80_000), Some(at(30_001)));
    assert_eq!(uptime.seen(at(30_050)).since(day), None);
    let number = uptime.asked(at(30_060));
    uptime.answered(number, at(30_090), Ended::Unknown);
    assert!(!uptime.is_failing(), "what one run is refused says nothing of the store");
}
