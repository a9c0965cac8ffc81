//! Certificates and revocation lists come to an end, and operators want to hear of it before.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::Time;

/// The longest time before an end at which the log begins to speak of it. It is a fifth of the whole term where the
/// term is short, as for certificates that are renewed each day.
const SOON: Duration = Duration::from_hours(3 * 24);

/// The time after which the log speaks of it again.
const AGAIN: Duration = Duration::from_hours(24);

/// The time for which a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    file: PathBuf,
    what: What,
    not_before: Time,
    pub(super) not_after: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Certificate,
    RevocationList,
}

/// How near an end is; or a beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The time has not begun.
    Early,
    Far,
    Soon,
    Over,
}

impl Term {
    /// The term of a chain: it ends with the first of its certificates.
    pub(super) fn of_certificates(file: &Path, validities: impl Iterator<Item = (Time, Time)>) -> Self {
        let (not_before, not_after) =
            validities.min_by_key(|(_, not_after)| *not_after).expect("a chain has a certificate");
        Self { file: file.to_owned(), what: What::Certificate, not_before, not_after }
    }

    /// The term of revocation lists: it ends with the first of them. None where none of them ends.
    pub(super) fn of_lists(file: &Path, updates: impl Iterator<Item = (Time, Time)>) -> Option<Self> {
        let (not_before, not_after) = updates.min_by_key(|(_, not_after)| *not_after)?;
        Some(Self { file: file.to_owned(), what: What::RevocationList, not_before, not_after })
    }

    fn state(&self, now: Time) -> State {
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).expect("some days");
        let whole = self.not_after.micros().saturating_sub(self.not_before.micros());
        let soon = micros(SOON).min(whole / 5);
        if now < self.not_before {
            return State::Early;
        }
        match self.not_after.micros().saturating_sub(now.micros()) {
            left if left < 0 => State::Over,
            left if left < soon => State::Soon,
            _ => State::Far,
        }
    }

    fn tell(&self, state: State) {
        let Self { file, what, not_before, not_after } = self;
        let file = file.display();
        match (what, state) {
            (_, State::Far) => {}
            (What::Certificate, State::Early) => tracing::error!(
                %file, %not_before, "the server's certificate does not hold yet: clients refuse it until then"
            ),
            (What::RevocationList, State::Early) => {
                tracing::warn!(%file, %not_before, "a revocation list is of a time that has not come");
            }
            (What::Certificate, State::Soon) => tracing::warn!(
                %file, %not_after, "the server's certificate ends soon: put a new one and its key in their place"
            ),
            (What::Certificate, State::Over) => tracing::error!(
                %file, %not_after, "the server's certificate is over: clients refuse it until a new one is in its place"
            ),
            (What::RevocationList, State::Soon) => {
                tracing::warn!(%file, %not_after, "a revocation list is due for its next one soon");
            }
            (What::RevocationList, State::Over) => tracing::error!(
                %file, %not_after, "a revocation list is out of date: its CA's clients are refused until the next one is there"
            ),
        }
    }
}

/// What the log was told of ends, so that it is told now and then, and not at each look.
#[derive(Debug, Default)]
pub(super) struct ExpiryLog(Vec<(Term, State, Instant)>);

impl ExpiryLog {
    /// Looks at terms, and logs those that are soon over.
    pub(super) fn look(&mut self, terms: &[Term], now: Time) {
        for (term, state) in self.due(terms, now) {
            term.tell(state);
        }
    }

    /// The terms that the log is to be told of.
    fn due(&mut self, terms: &[Term], now: Time) -> Vec<(Term, State)> {
        self.0.retain(|(told, _, at)| terms.contains(told) && at.elapsed() < AGAIN);
        let mut due = Vec::new();
        for term in terms {
            let state = term.state(now);
            let is_told = self.0.iter().any(|(told, before, _)| told == term && *before == state);
            if state != State::Far && !is_told {
                self.0.push((term.clone(), state, Instant::now()));
                due.push((term.clone(), state));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3_600 * 1_000_000;

    fn day(day: i64) -> Time {
        Time::from_micros(day * DAY)
    }

    #[test]
    fn an_end_is_near_for_three_days_or_the_last_fifth_of_a_short_term() {
        let term = |days| Term::of_certificates(Path::new("x"), [(day(0), day(days)), (day(0), day(900))].into_iter());
        assert_eq!(term(100).state(day(-1)), State::Early);
        assert_eq!(term(100).state(day(96)), State::Far);
        assert_eq!(term(100).state(day(98)), State::Soon);
        assert_eq!(term(100).state(day(100)), State::Soon, "it still holds");
        assert_eq!(term(100).state(day(101)), State::Over);
        let hour = |hour: i64| Time::from_micros(hour * DAY / 24);
        assert_eq!((term(1).state(hour(12)), term(1).state(hour(20))), (State::Far, State::Soon));
    }

    #[tokio::test(start_paused = true)]
    async fn the_log_hears_of_each_end_once_a_day_and_when_it_has_come() {
        let terms = [
            Term::of_certificates(Path::new("x"), [(day(0), day(100))].into_iter()),
            Term::of_lists(Path::new("y"), [(day(0), day(900))].into_iter()).unwrap(),
        ];
        let mut log = ExpiryLog::default();
        let states = |log: &mut ExpiryLog, now| log.due(&terms, now).into_iter().map(|(_, it)| it).collect::<Vec<_>>();
        assert_eq!(states(&mut log, day(10)), []);
        assert_eq!(states(&mut log, day(98)), [State::Soon]);
        assert_eq!(states(&mut log, day(98)), []);
        tokio::time::advance(AGAIN).await;
        assert_eq!(states(&mut log, day(99)), [State::Soon]);
        assert_eq!(states(&mut log, day(101)), [State::Over]);
        assert_eq!(states(&mut log, day(101)), []);
    }
}
