//! The places of connections: a new one takes that of the oldest which is owed nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time that a connection has to take an answer before it gives way to others.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);

/// A connection that may have to give way.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    gives_way: CancellationToken,
    owed: Arc<Mutex<Owed>>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Owed {
    /// It has not asked, or has had the time to take its answer.
    #[default]
    Nothing,
    /// It has asked.
    Answer,
    /// Its answer was given then.
    Taking(Instant),
}

impl Place {
    /// Cancelled when the connection gives way, and when it has ended.
    pub(super) fn gives_way(&self) -> &CancellationToken {
        &self.gives_way
    }

    pub(super) fn asks(&self) {
        self.is_owed(Owed::Answer);
    }

    pub(super) fn is_answered(&self) {
        self.is_owed(Owed::Taking(Instant::now()));
    }

    fn is_owed(&self, owed: Owed) {
        *self.owed.lock().unwrap_or_else(PoisonError::into_inner) = owed;
    }

    fn may_go(&self) -> bool {
        match *self.owed.lock().unwrap_or_else(PoisonError::into_inner) {
            Owed::Nothing => true,
            Owed::Answer => false,
            Owed::Taking(since) => since.elapsed() >= TAKEN_WITHIN,
        }
    }
}

/// The connections by age.
#[derive(Debug, Default)]
pub(super) struct Places(VecDeque<Place>);

impl Places {
    pub(super) fn push(&mut self, place: Place) {
        self.0.retain(|other| !other.gives_way.is_cancelled());
        self.0.push_back(place);
    }

    /// Has the oldest connection give way that is owed nothing, if there is one.
    pub(super) fn give_one(&mut self) {
        self.0.retain(|other| !other.gives_way.is_cancelled());
        if let Some(oldest) = self.0.iter().find(|place| place.may_go()) {
            oldest.gives_way.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_has_asked_keeps_its_place_and_who_takes_no_answer_does_not() {
        let (asks, idle, takes) = (Place::default(), Place::default(), Place::default());
        let mut places = Places::default();
        for place in [&asks, &idle, &takes] {
            places.push(place.clone());
        }
        asks.asks();
        takes.is_answered();
        places.give_one();
        assert!(idle.gives_way.is_cancelled() && !asks.gives_way.is_cancelled());
        places.give_one();
        assert!(!takes.gives_way.is_cancelled(), "it is taking its answer");
        tokio::time::advance(TAKEN_WITHIN).await;
        places.give_one();
        assert!(takes.gives_way.is_cancelled() && !asks.gives_way.is_cancelled());
    }
}
