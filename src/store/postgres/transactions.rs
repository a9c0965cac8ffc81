//! Changes of what stands beside runs and no commit makes: namespaces and lifecycles. Each is a transaction of its own,
//! which is made again where the database asks for it.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::commit::statements::ROLLBACK;
use super::errors::{self, TimedOut};
use super::sessions::{Session, Sessions};
use crate::store::{ChangeError, StoreError};

/// The time for a whole change: past it, the outcome is unknown.
const CHANGE_MAX: Duration = Duration::from_secs(10);

/// Attempts of a change whose transaction was rolled back because of somebody else's lock, or of a row that somebody else
/// made at once: the next attempt finds it.
const ATTEMPTS_MAX: usize = 3;

/// An attempt that failed.
pub(super) enum Failed {
    /// Surely nothing was changed.
    NotApplied(Error),
    /// A row makes no sense.
    Unreadable(StoreError),
    /// The commit was sent and not confirmed.
    Unknown(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::NotApplied(error)
    }
}

/// Makes a change, whose attempt is a whole transaction and answers what was decided, or the refusal.
pub(super) async fn change<T, R: fmt::Debug>(
    sessions: &Sessions,
    attempt: impl for<'a> Fn(&'a Session) -> BoxFuture<'a, Result<Result<T, R>, Failed>> + Send + Sync,
) -> Result<T, ChangeError<R>> {
    let changed = async {
        let mut attempts = 1;
        loop {
            let session = sessions.commit().await?;
            match attempt(&session).await {
                Ok(decided) => {
                    session.put_back();
                    return decided.map_err(ChangeError::Refused);
                }
                Err(Failed::NotApplied(error)) => {
                    let again = errors::is_overtaken(&error) && attempts < ATTEMPTS_MAX;
                    if errors::spares_session(&error) {
                        session.roll_back(ROLLBACK).await;
                    } else {
                        session.close();
                    }
                    if !again {
                        return Err(errors::statement(error).into());
                    }
                    attempts += 1;
                }
                Err(Failed::Unreadable(error)) => {
                    session.roll_back(ROLLBACK).await;
                    return Err(error.into());
                }
                Err(Failed::Unknown(error)) => {
                    session.close();
                    return Err(ChangeError::Unknown(errors::statement(error)));
                }
            }
        }
    };
    timeout(CHANGE_MAX, changed).await.unwrap_or_else(|_| Err(ChangeError::Unknown(TimedOut.into())))
}

/// A statement's rows.
pub(super) async fn query(session: &Session, sql: &str, arguments: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
    let statement = session.prepare_cached(sql).await?;
    session.query(&statement, arguments).await
}
