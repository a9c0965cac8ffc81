//! The places of connections. A new one takes that of the oldest which is owed nothing; or else of the oldest that has had
//! an answer before: it is given the one that it waits for, and is closed then. So nobody's answer is cut, and nobody who
//! asks again and again keeps a probe out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time that a connection has to ask, and to take an answer, before it is cut for others.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);

/// A connection that may have to give way.
#[derive(Clone, Debug, Default)]
pub(super) struct YieldingConnection {
    is_cut: CancellationToken,
    is_last: CancellationToken,
    owed: Arc<Mutex<Owed>>,
}

#[derive(Debug)]
struct Owed {
    what: What,
    /// It has had an answer before.
    is_known: bool,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// It has the time to ask, or to take the answer that it was given, from then on.
    Time(Instant),
    /// It has asked.
    Answer,
}

impl Default for Owed {
    fn default() -> Self {
        Self { what: What::Time(Instant::now()), is_known: false }
    }
}

impl YieldingConnection {
    /// Cancelled when the connection is cut, and when it has ended.
    pub(super) fn is_cut(&self) -> &CancellationToken {
        &self.is_cut
    }

    /// Cancelled when the connection is to end with the answer that it is owed.
    pub(super) fn is_last(&self) -> &CancellationToken {
        &self.is_last
    }

    pub(super) fn asks(&self) {
        self.owed.lock().what = What::Answer;
    }

    pub(super) fn is_answered(&self) {
        *self.owed.lock() = Owed { what: What::Time(Instant::now()), is_known: true };
    }

    fn is_owed_nothing(&self) -> bool {
        match self.owed.lock().what {
            What::Time(since) => since.elapsed() >= TAKEN_WITHIN,
            What::Answer => false,
        }
    }

    fn may_end(&self) -> bool {
        !self.is_last.is_cancelled() && self.owed.lock().is_known
    }
}

/// The connections by age.
#[derive(Debug, Default)]
pub(super) struct Places(VecDeque<YieldingConnection>);

impl Places {
    pub(super) fn push(&mut self, place: YieldingConnection) {
        self.0.retain(|other| !other.is_cut.is_cancelled());
        self.0.push_back(place);
    }

    /// Has one connection give way, if there is one that may.
    pub(super) fn give_one(&mut self) {
        self.0.retain(|other| !other.is_cut.is_cancelled());
        if let Some(oldest) = self.0.iter().find(|place| place.is_owed_nothing()) {
            oldest.is_cut.cancel();
        } else if let Some(oldest) = self.0.iter().find(|place| place.may_end()) {
            oldest.is_last.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_has_asked_keeps_its_place_and_who_asks_or_takes_nothing_for_a_while_does_not() {
        let (asks, idle, takes) =
            (YieldingConnection::default(), YieldingConnection::default(), YieldingConnection::default());
        let mut places = Places::default();
        for place in [&asks, &idle, &takes] {
            places.push(place.clone());
        }
        asks.asks();
        places.give_one();
        assert!(!idle.is_cut.is_cancelled(), "its request may be on the way");
        tokio::time::advance(TAKEN_WITHIN).await;
        takes.is_answered();
        places.give_one();
        assert!(idle.is_cut.is_cancelled() && !asks.is_cut.is_cancelled());
        places.give_one();
        assert!(!takes.is_cut.is_cancelled(), "it is taking its answer");
        tokio::time::advance(TAKEN_WITHIN).await;
        places.give_one();
        assert!(takes.is_cut.is_cancelled() && !asks.is_cut.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_are_owed_an_answer_those_end_with_it_who_have_had_one_before() {
        let (new, again, takes) =
            (YieldingConnection::default(), YieldingConnection::default(), YieldingConnection::default());
        let mut places = Places::default();
        for place in [&new, &again, &takes] {
            places.push(place.clone());
        }
        again.is_answered();
        for place in [&new, &again] {
            place.asks();
        }
        takes.is_answered();
        for _waiting in 0..3 {
            places.give_one();
        }
        assert!(again.is_last.is_cancelled() && takes.is_last.is_cancelled());
        assert!(!new.is_last.is_cancelled(), "nobody is closed without one answer");
        assert!([new, again, takes].iter().all(|place| !place.is_cut.is_cancelled()));
    }
}
