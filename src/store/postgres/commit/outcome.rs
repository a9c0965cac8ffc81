//! The outcome of a statement that writes: committed, rolled back, never sent, or unknown.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use futures_util::future::{MaybeDone, maybe_done};
use tokio_postgres::Error;

use super::statements::COMMIT;
use crate::store::postgres::errors;
use crate::store::postgres::sessions::Session;

/// The outcome of a writing statement and its transaction.
pub(in crate::store::postgres) enum Written<T> {
    /// The transaction is durable, and this is the statement's answer.
    Committed(T),
    /// The statement could not be sent, so that COMMIT was not sent either.
    Unsent(Error),
    /// The statement was answered with an error, so that COMMIT did not commit.
    RolledBack(Error),
    Unknown(Error),
}

/// Sends a statement that is a transaction of its own. The driver waits for "ready for query", which comes after its
/// end.
pub(super) async fn write_alone<T>(statement: impl Future<Output = Result<T, Error>>) -> Written<T> {
    let mut statement = pin!(maybe_done(statement));
    if let Some(error) = failed_to_send(statement.as_mut()).await {
        // Only a value without an encoding was surely not sent: a connection may break, or an answer come, in the
        // same moment.
        return if error.is_closed() || error.as_db_error().is_some() { ended(error) } else { Written::Unsent(error) };
    }
    statement.as_mut().await;
    match statement.take_output().expect("it was waited for") {
        Ok(answer) => Written::Committed(answer),
        Err(error) => ended(error),
    }
}

fn ended<T>(error: Error) -> Written<T> {
    if errors::proves_rollback(&error) { Written::RolledBack(error) } else { Written::Unknown(error) }
}

/// Sends the flush that ends with COMMIT. The statement's answer is looked at before COMMIT's.
pub(in crate::store::postgres) async fn write_and_commit<T>(
    session: &Session,
    statement: impl Future<Output = Result<T, Error>>,
) -> Written<T> {
    let mut statement = pin!(maybe_done(statement));
    if let Some(error) = failed_to_send(statement.as_mut()).await {
        // The server's answer may come in the moment of sending. COMMIT was not sent either way.
        return if error.as_db_error().is_some() { Written::RolledBack(error) } else { Written::Unsent(error) };
    }
    let ((), committed) = tokio::join!(biased; statement.as_mut(), session.batch_execute(COMMIT));
    match statement.take_output().expect("it was waited for") {
        Err(error) if errors::proves_rollback(&error) => Written::RolledBack(error),
        Err(error) => Written::Unknown(error),
        Ok(answer) => match committed {
            Ok(()) => Written::Committed(answer),
            Err(error) => Written::Unknown(error),
        },
    }
}

/// Sends a statement and does not wait for it. A statement that the driver cannot send, because a value has no
/// encoding, is missing from the transaction without the server's knowing: COMMIT must not follow it.
async fn failed_to_send<T, E>(mut statement: Pin<&mut MaybeDone<impl Future<Output = Result<T, E>>>>) -> Option<E> {
    poll_fn(|context| {
        let failed = statement.as_mut().poll(context).is_ready()
            && statement.as_mut().output_mut().is_some_and(|answer| answer.is_err());
        Poll::Ready(failed.then(|| statement.as_mut().take_output().and_then(Result::err)).flatten())
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::future::{BoxFuture, FutureExt as _};

    use tokio_postgres::Row;

    use super::super::statements::BEGIN;
    use super::*;
    use crate::store::postgres::sessions::Sessions;
    use crate::tasks::Supervisor;

    type Answer = BoxFuture<'static, Result<(), &'static str>>;

    async fn failed(statement: Answer) -> Option<&'static str> {
        failed_to_send(pin!(maybe_done(statement))).await
    }

    #[tokio::test]
    async fn statements_that_wait_for_their_answers_were_sent() {
        assert_eq!(failed(pending().boxed()).await, None);
        assert_eq!(failed(ready(Ok(())).boxed()).await, None);
    }

    /// A thread that loses its turn while it sends finds the answer there. If that were taken for a statement that
    /// was not sent, a lost race would be told to the caller as a refusal of the store, and not be decided again.
    #[tokio::test]
    async fn an_answer_that_comes_in_the_moment_of_sending_is_the_servers_word() {
        #[expect(clippy::disallowed_methods, reason = "`make test` says where its Postgres is in the environment")]
        let dsn = std::env::var("RUNLEDGER_TEST_POSTGRES").expect("`make test` runs a Postgres for this");
        let sessions =
            Sessions::new(&crate::store::postgres::dsn::connector(&dsn).unwrap(), 3, &Supervisor::new(), None, || {});
        let session = sessions.commit().await.unwrap();
        session.batch_execute(BEGIN).await.unwrap();
        let lost_race = session.query_one("select 1 / 0", &[]).await.unwrap_err();
        let written = write_and_commit::<Row>(&session, ready(Err(lost_race))).await;
        assert!(matches!(written, Written::RolledBack(error) if errors::is_lost_race(&error)));
    }

    #[tokio::test]
    async fn a_statement_that_fails_before_it_waits_was_not_sent() {
        assert_eq!(failed(ready(Err("no encoding")).boxed()).await, Some("no encoding"));
    }
}
