//! The end of a call.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::auth::gate::Session;
use crate::wire::problem::{self, Problem};

/// The times at which a call is over, at the first of them.
#[derive(Clone, Debug)]
pub struct Until {
    /// The time at which the caller stops waiting.
    pub deadline: Option<Instant>,
    /// The time at which the connection is closed. The time may come to be an earlier one.
    pub connection: Option<watch::Receiver<Instant>>,
    /// The time at which the caller's credential ends.
    pub credential: Option<Instant>,
    /// Tells when the caller is let in no more.
    pub session: Option<Arc<Session>>,
}

impl Until {
    /// A call without an end.
    #[must_use]
    pub fn never() -> Self {
        Self { deadline: None, connection: None, credential: None, session: None }
    }

    /// The end by which an answer must be there to be received, as far as it is known now: that of a credential is none
    /// of these, and who waits is told it.
    #[must_use]
    pub fn end(&self) -> Option<Instant> {
        let connection = self.connection.as_ref().map(|connection| *connection.borrow());
        self.deadline.into_iter().chain(connection).min()
    }

    /// Ends when the call is over, and says why.
    pub async fn over(self) -> Problem {
        let Self { deadline, connection, credential, session } = self;
        let at = async |time: Option<Instant>| match time {
            Some(time) => sleep_until(time).await,
            None => pending().await,
        };
        let denied = async {
            match session {
                Some(session) => session.until_denied().await,
                None => pending().await,
            }
        };
        let connection = async {
            match connection {
                Some(connection) => passed(connection).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = connection => problem::connection_ends(),
            () = at(deadline) => problem::deadline(),
            () = at(credential) => problem::credential_ends(),
            denied = denied => problem::let_in_no_more(denied),
        }
    }

    /// Ends once a call that waits must not wait any more: its credential ends, or its connection is closed sooner than
    /// was known when this was asked.
    pub async fn cut_short(self) -> Problem {
        let Self { connection, credential, .. } = self;
        let connection = async {
            let Some(mut connection) = connection else { return pending().await };
            // Without a sender, the time stays.
            if connection.changed().await.is_err() {
                return pending().await;
            }
            passed(connection).await;
        };
        let credential = async {
            match credential {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = connection => problem::connection_ends(),
            () = credential => problem::credential_ends(),
        }
    }
}

/// Ends once the time that is watched has passed.
async fn passed(mut end: watch::Receiver<Instant>) {
    loop {
        let at = *end.borrow_and_update();
        tokio::select! {
            biased;
            () = sleep_until(at) => return,
            // Without a sender, the time stays.
            Ok(()) = end.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn told(problem: &Problem) -> String {
        format!("{problem:?}")
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_over_at_the_first_of_its_ends() {
        let begun = Instant::now();
        for (deadline, connection, problem) in [
            (Some(MINUTE), 2 * MINUTE, problem::deadline()),
            (Some(2 * MINUTE), MINUTE, problem::connection_ends()),
            (None, MINUTE, problem::connection_ends()),
        ] {
            let now = Instant::now();
            // The sender goes: the connection's end is then as it was.
            let (_, connection) = watch::channel(now + connection);
            let until = Until { deadline: deadline.map(|it| now + it), connection: Some(connection), ..Until::never() };
            assert_eq!(until.end(), Some(now + MINUTE));
            assert_eq!(told(&until.over().await), told(&problem));
            assert_eq!(now.elapsed(), MINUTE);
        }
        assert_eq!(begun.elapsed(), 3 * MINUTE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_its_credential_and_not_a_moment_before() {
        let begun = Instant::now();
        let (_end, connection) = watch::channel(begun + 60 * MINUTE);
        let until = Until { connection: Some(connection), credential: Some(begun + MINUTE), ..Until::never() };
        assert_eq!(until.end(), Some(begun + 60 * MINUTE), "no answer is due before");
        for why in [until.clone().cut_short().await, until.over().await] {
            assert_eq!(told(&why), told(&problem::credential_ends()));
            assert_eq!(begun.elapsed(), MINUTE);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_connection_may_come_sooner_than_was_known() {
        let begun = Instant::now();
        let (end, connection) = watch::channel(begun + 60 * MINUTE);
        let until = Until { connection: Some(connection), ..Until::never() };
        let over = until.clone().over();
        let sooner = async {
            tokio::time::sleep(MINUTE).await;
            end.send_replace(Instant::now());
        };
        let (why, short, ()) = tokio::join!(over, until.clone().cut_short(), sooner);
        assert_eq!((told(&why), told(&short)), (told(&problem::connection_ends()), told(&why)));
        assert_eq!(begun.elapsed(), MINUTE);
        assert_eq!(until.end(), Some(begun + MINUTE));
    }
}
