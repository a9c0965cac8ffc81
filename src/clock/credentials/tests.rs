use std::sync::atomic::{AtomicI64, Ordering};

use super::*;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The time that the machine's clock shows where it is right, and nothing has passed.
const BEGUN: i64 = 1_000 * DAY;

/// A machine that has run for so long, and whose clock is off by so much, in seconds.
#[derive(Default)]
struct Machine {
    passed: AtomicI64,
    off: AtomicI64,
    /// The time between the two readings of a look.
    late_micros: AtomicI64,
}

impl Machine {
    fn passed(&self) -> i64 {
        self.passed.load(Ordering::SeqCst)
    }
}

impl Clock for &'static Machine {
    fn now(&self) -> Time {
        let seconds = BEGUN + self.passed() + self.off.load(Ordering::SeqCst);
        Time::from_micros(seconds * 1_000_000 + self.late_micros.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.passed().unsigned_abs())
    }
}

/// A server, and the clock of its database where it has one.
struct Server {
    machine: &'static Machine,
    clock: CredentialClock<&'static Machine>,
}

impl Server {
    /// Begins with a clock that is off by so much.
    fn begins(off: i64) -> Self {
        let machine: &Machine = Box::leak(Box::default());
        machine.off.store(off, Ordering::SeqCst);
        Self { machine, clock: CredentialClock::beside(machine) }
    }

    /// By how much the time of credentials is off after so many looks, a second each, and the latest time that it may be.
    fn after(&self, seconds: i64, off: i64, database: Option<i64>) -> (i64, i64) {
        self.machine.off.store(off, Ordering::SeqCst);
        for _ in 0..seconds {
            self.machine.passed.fetch_add(1, Ordering::SeqCst);
            let other = database.map(|off| Time::from_micros((BEGUN + self.machine.passed() + off) * 1_000_000));
            self.clock.look(other);
        }
        let off = |time: Time| time.micros() / 1_000_000 - BEGUN - self.machine.passed();
        (off(self.clock.now()), off(self.clock.latest()))
    }
}

#[test]
fn the_time_of_credentials_never_falls_and_follows_a_clock_that_stays_ahead() {
    let server = Server::begins(0);
    let after = |seconds: i64, off: i64| server.after(seconds, off, None);
    assert_eq!(after(0, -2 * DAY), (0, 0), "set back before anybody looked: it began with the machine's time");
    assert_eq!(after(11 * MINUTE, 0), (0, 0));
    assert_eq!(after(10, 400 * DAY), (0, 400 * DAY), "ahead for a moment");
    assert_eq!(after(1, 0), (0, 0));
    assert_eq!(after(10, -HOUR), (0, 0), "set back: what has ended stays so");
    assert_eq!(after(2 * HOUR, -HOUR), (0, 0));
    assert_eq!(after(1, 2 * HOUR), (0, 2 * HOUR));
    assert_eq!(after(HOUR / 2, 3 * HOUR), (0, 3 * HOUR));
    assert_eq!(after(HOUR / 2 - 1, 2 * HOUR), (0, 2 * HOUR));
    assert_eq!(after(1, 2 * HOUR), (2 * HOUR, 2 * HOUR), "it stood so for an hour");
    assert_eq!(after(5, 0), (2 * HOUR, 2 * HOUR), "set back again");
}

#[test]
fn a_server_that_began_before_its_clock_was_set_follows_it_within_a_minute() {
    let server = Server::begins(-2 * DAY);
    assert_eq!(server.after(5, -2 * DAY, None), (-2 * DAY, -2 * DAY));
    assert_eq!(server.after(MINUTE, 0, None), (-2 * DAY, 0));
    assert_eq!(server.after(1, 0, None), (0, 0), "it stood so for a minute");
    let late = Server::begins(-2 * DAY);
    late.after(11 * MINUTE, -2 * DAY, None);
    assert_eq!(late.after(HOUR, 0, None), (-2 * DAY, 0), "no boot sets the clock so late");
    assert_eq!(late.after(1, 0, None), (0, 0));
}

#[test]
fn what_the_databases_clock_shows_as_well_is_followed_within_a_minute_at_any_age() {
    for age in [1, 11 * MINUTE, 2 * HOUR] {
        let server = Server::begins(-2 * DAY);
        assert_eq!(server.after(age, -2 * DAY, Some(0)), (-2 * DAY, -2 * DAY), "another clock sets none alone");
        assert_eq!(server.after(MINUTE + 1, 3 * DAY, Some(0)), (0, 3 * DAY), "{age}: as far as both show it");
        assert_eq!(server.after(HOUR, 3 * DAY, Some(0)), (0, 3 * DAY));
        assert_eq!(server.after(1, 3 * DAY, Some(0)), (3 * DAY, 3 * DAY), "for an hour it goes before the other");
    }
}

#[test]
fn a_clock_that_seems_ahead_by_less_than_a_second_counts_from_when_it_is_set() {
    for database in [None, Some(0)] {
        let server = Server::begins(0);
        server.after(2 * MINUTE, 0, database);
        server.machine.late_micros.store(3, Ordering::SeqCst);
        server.after(30, 0, database);
        assert!(server.clock.leads.lock().alone.is_none(), "{database:?}: it is no clock that was set");
        let set = database.map(|_| 2 * DAY);
        assert_eq!(server.after(MINUTE, 2 * DAY, set).0, 0, "{database:?}");
        assert_eq!(server.after(1, 2 * DAY, set).0, 2 * DAY, "{database:?}: it stood so for a minute");
    }
}

#[test]
fn a_clock_that_is_ahead_for_a_moment_ends_nothing() {
    for database in [None, Some(0), Some(2 * DAY)] {
        let server = Server::begins(0);
        server.after(5, 0, Some(0).filter(|_| database.is_some()));
        assert_eq!(server.after(MINUTE, 2 * DAY, database), (0, 2 * DAY), "{database:?}");
        assert_eq!(server.after(2 * HOUR, 0, Some(0).filter(|_| database.is_some())), (0, 0), "{database:?}");
    }
}
