//! A lent session, and its way back to the pool.
//!
//! Invariant: no session is lent on which a statement is still running. A reader whose caller went away leaves such a
//! session behind, and so does one that had read enough: a task waits until the session is idle before the next caller
//! gets it. The pool's place stays taken meanwhile, so that callers who go away open no further connections; and
//! so does the [turn](crate::store::attached) that the read was made in. A statement that takes longer is cancelled on
//! the server, for which nobody would do the work in vain.

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{Object, Pool};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_postgres::Error;

use super::connection::{Connection, Connections};
use crate::store::StoreError;
use crate::store::attached::{self, Attached};
use crate::store::metrics::{POOL_COMMIT, POOL_READ};
use crate::store::postgres::errors;
use crate::tasks::Supervisor;
use crate::telemetry::{record, traces};

/// The time for which an abandoned statement may go on. Most end sooner, and a cancellation costs two connections: one
/// that carries it, and a new session.
const DRAIN_MAX: Duration = Duration::from_millis(500);

/// The time for a cancellation, from its first packet to the end of the statement.
const CANCEL_MAX: Duration = Duration::from_secs(2);

/// The time for a rollback that only has to be answered.
const ROLLBACK_MAX: Duration = Duration::from_secs(2);

/// See the module.
pub(in crate::store::postgres) struct Session {
    object: Option<Object<Connections>>,
    /// Runs the task that waits until the session is idle; none: the session is closed when it is abandoned.
    drained_by: Option<Arc<Supervisor>>,
    /// Whether answers are still to come that nobody reads.
    unread: bool,
    /// What the read has taken along, until the session is idle or closed.
    attached: Option<Attached>,
}

impl Session {
    pub(super) async fn lend(
        pool: &Pool<Connections>,
        drained_by: Option<&Arc<Supervisor>>,
    ) -> Result<Self, StoreError> {
        let _waits = traces::part("store.wait_for_connection");
        let began = Instant::now();
        let object = pool.get().await.map_err(errors::session);
        record::pool_wait(if drained_by.is_some() { POOL_READ } else { POOL_COMMIT }, began.elapsed());
        let object = object?;
        Ok(Self { object: Some(object), drained_by: drained_by.cloned(), unread: false, attached: attached::current() })
    }

    /// Notes that the rest of a statement's answer will not be read.
    pub(in crate::store::postgres) fn leave_unread(&mut self) {
        self.unread = true;
    }

    /// Returns the session: no transaction is open.
    pub(in crate::store::postgres) fn put_back(mut self) {
        if !self.unread {
            drop(self.object.take());
        }
    }

    /// Closes the session: a statement failed, perhaps because of the statements that it has prepared.
    pub(in crate::store::postgres) fn close(mut self) {
        self.object.take().map(Object::take);
    }

    /// Returns a session whose transaction failed with an error that [spares it](errors::spares_session), once the
    /// server has answered a rollback. A closed session would cost more than itself: the hints go with it.
    pub(in crate::store::postgres) async fn roll_back(self, rollback: &str) {
        if let Ok(Ok(())) = timeout(ROLLBACK_MAX, self.batch_execute(rollback)).await {
            self.put_back();
        } else {
            self.close();
        }
    }
}

impl Deref for Session {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.object.as_ref().expect("there until given back")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        match self.drained_by.take() {
            // Without a runtime, the process ends.
            Some(supervisor) if !object.is_closed() && Handle::try_current().is_ok() => {
                let attached = self.attached.take();
                supervisor.spawn(drain(Self { object: Some(object), drained_by: None, unread: false, attached }));
            }
            _ => drop(Object::take(object)),
        }
    }
}

/// Puts a session back once it is idle: the server answers an empty statement after all that were sent before it. A
/// session whose statement had to be cancelled is closed, since the cancellation may come late and hit the next one.
async fn drain(session: Session) {
    if is_soon_idle(&session).await && !session.is_littered() {
        session.put_back();
    } else {
        session.close();
    }
}

/// Whether the session became idle by itself. Else its statement is cancelled.
async fn is_soon_idle(session: &Session) -> bool {
    let mut idle = pin!(idle(session));
    if let Ok(answered) = timeout(DRAIN_MAX, &mut idle).await {
        return answered.is_ok();
    }
    let cancelled = async {
        session.cancel().await?;
        idle.await
    };
    // Either way the session is closed: the server notices it where the statement goes on.
    let _ended = timeout(CANCEL_MAX, cancelled).await;
    false
}

async fn idle(session: &Session) -> Result<(), Error> {
    session.batch_execute("-- session.drain").await
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::store::postgres::sessions::Sessions;

    /// Sessions of which one reads.
    fn sessions() -> Sessions {
        #[expect(clippy::disallowed_methods, reason = "`make test` says where its Postgres is in the environment")]
        let dsn = std::env::var("RUNLEDGER_TEST_POSTGRES").expect("`make test` runs a Postgres for this");
        Sessions::new(&crate::store::postgres::dsn::connector(&dsn).unwrap(), 3, &Supervisor::new(), None, || {})
    }

    async fn pid(session: &Session) -> i32 {
        session.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0)
    }

    /// Sends a statement, and goes away when the server executes it.
    async fn abandon(sessions: &Sessions, statement: &str) -> i32 {
        let (session, watch) = (sessions.read().await.unwrap(), sessions.commit().await.unwrap());
        let pid = pid(&session).await;
        assert!(session.batch_execute(statement).now_or_never().is_none());
        while runs(&watch, pid).await != Some(true) {}
        watch.put_back();
        pid
    }

    /// Whether a session executes a statement; none when it is closed.
    async fn runs(watch: &Session, pid: i32) -> Option<bool> {
        let state = "select state = 'active' from pg_stat_activity where pid = $1";
        watch.query_opt(state, &[&pid]).await.unwrap().map(|row| row.get(0))
    }

    #[tokio::test]
    async fn a_session_is_lent_on_when_what_was_abandoned_on_it_has_ended() {
        let sessions = sessions();
        let abandoned = abandon(&sessions, "select pg_sleep(0.1)").await;
        let (session, watch) = (sessions.read().await.unwrap(), sessions.commit().await.unwrap());
        assert_eq!(runs(&watch, abandoned).await, Some(false), "nothing runs on what is lent");
        assert_eq!(pid(&session).await, abandoned);
    }

    #[tokio::test]
    async fn a_statement_that_goes_on_for_nobody_is_cancelled_before_another_session_is_lent() {
        let sessions = sessions();
        let abandoned = abandon(&sessions, "select pg_sleep(60)").await;
        let (session, watch) = (sessions.read().await.unwrap(), sessions.commit().await.unwrap());
        assert_ne!(runs(&watch, abandoned).await, Some(true), "the place was taken until it had ended");
        assert_ne!(pid(&session).await, abandoned);
        while runs(&watch, abandoned).await.is_some() {}
    }

    #[tokio::test]
    async fn what_a_read_has_taken_along_is_dropped_when_its_statement_has_ended() {
        for (statement, ends) in [("select pg_sleep(0.1)", Some(false)), ("select pg_sleep(60)", None)] {
            let sessions = sessions();
            let (taken, mut dropped) = oneshot::channel::<()>();
            let abandoned = attached::with(std::sync::Arc::new(taken), abandon(&sessions, statement)).await;
            assert!(dropped.try_recv().is_err_and(|error| error == TryRecvError::Empty), "the statement goes on");
            assert!(dropped.await.is_err());
            let watch = sessions.commit().await.unwrap();
            while runs(&watch, abandoned).await != ends {}
        }
    }

    #[tokio::test]
    async fn a_session_whose_answers_are_left_over_is_lent_on_when_they_have_come() {
        let sessions = sessions();
        let mut session = sessions.read().await.unwrap();
        let mut pids = vec![pid(&session).await];
        assert!(session.batch_execute("select pg_sleep(0.1)").now_or_never().is_none());
        session.leave_unread();
        session.put_back();
        let (session, watch) = (sessions.read().await.unwrap(), sessions.commit().await.unwrap());
        assert_eq!(runs(&watch, pids[0]).await, Some(false));
        pids.push(pid(&session).await);
        assert_eq!(pids[0], pids[1]);
    }
}
