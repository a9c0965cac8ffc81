//! Whether a pooler stands before the server, and how it lends the server's sessions.
//!
//! A session of this store has settings, prepared statements, and locks; the listener's hears notifications. A pooler
//! that lends the server's sessions for one transaction, or one statement, would leave the settings on sessions of
//! strangers: some say that a session only reads. Such a pooler is refused before anything is set. A pooler that lends
//! a whole session until it is closed is as good as the server.
//!
//! Two connections tell: in transaction pooling both are on one session of the server, or the first moves to another
//! while the second holds the session in a transaction. Sessions are told apart by the server's own words, its process
//! and the microsecond at which that began, so no clock of ours counts. A busy pooler may lend the same sessions again
//! by chance: the look is repeated.

use runledger_postgres::Connector;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::admin_connection::Alone;
use super::errors;
use crate::store::OpenError;
use crate::store::finding::Fault;

/// Looks at the two connections.
const LOOKS: usize = 4;

/// Plain statements: a pooler may not know of prepared ones.
const SESSION: &str = "-- pooler.session
select pg_backend_pid(),
       (select (extract(epoch from backend_start) * 1000000)::bigint from pg_stat_activity where pid = pg_backend_pid()),
       (extract(epoch from clock_timestamp()) * 1000000)::bigint";
const BEGIN: &str = "-- pooler.begin
begin read only";
const ROLLBACK: &str = "-- pooler.rollback
rollback";

const REFUSED: &str = "a pooler before Postgres lends the server's sessions for one transaction only, and this store \
    needs sessions of its own";
const DIRECTLY: &str = "connect to Postgres directly, or set pool_mode = session for this database in the pooler";

/// The pooler that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pooling {
    /// None: there is none, or it opens the server's sessions as they are asked for and keeps them apart.
    Unseen,
    /// It lent a session of the server that is older than the connection.
    Session,
}

/// A session of the server.
#[derive(Debug, PartialEq, Eq)]
struct Session {
    pid: i64,
    /// None where the server does not say.
    began_us: Option<i64>,
}

/// Tells whether there is a pooler, by a second connection beside the first, and the process of the first one's session.
pub(super) async fn recognise(
    first: &Alone,
    connector: &Connector,
    location: &str,
) -> Result<(Pooling, i32), OpenError> {
    let opening = |error| errors::opening(location, error);
    let (own, asked_at) = session(&first.client).await.map_err(opening)?;
    let second = Alone::bare(connector, location).await?;
    let mut pooling = Pooling::Unseen;
    for _ in 0..LOOKS {
        let Some(seen) = look(&first.client, &second.client, &own).await.map_err(opening)? else {
            return Err(OpenError::Unfit {
                location: location.to_owned(),
                fault: Fault::Server,
                what: REFUSED.to_owned(),
                todo: DIRECTLY.to_owned(),
            });
        };
        if seen.began_us.is_some_and(|began| began < asked_at) {
            pooling = Pooling::Session;
        }
    }
    Ok((pooling, i32::try_from(own.pid).unwrap_or_default()))
}

/// The second connection's session; none when a session of the server was lent to both, or not for long.
async fn look(first: &Client, second: &Client, own: &Session) -> Result<Option<Session>, Error> {
    match second.batch_execute(BEGIN).await {
        Ok(()) => {}
        // A pooler that lends for one statement begins no transaction.
        Err(error) if error.as_db_error().is_some_and(|said| said.message().contains("statement pooling")) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    let (other, _) = session(second).await?;
    // Where they share it, the first one would wait for the end of the second one's transaction.
    let shared = other == *own || session(first).await?.0 != *own;
    second.batch_execute(ROLLBACK).await?;
    Ok((!shared).then_some(other))
}

/// The session that a connection is on, and the server's time in microseconds.
async fn session(client: &Client) -> Result<(Session, i64), Error> {
    let answer = client.simple_query(SESSION).await?;
    let row =
        answer.iter().find_map(|message| if let SimpleQueryMessage::Row(row) = message { Some(row) } else { None });
    let number = |at| row.and_then(|row| row.get(at)).and_then(|text| text.parse::<i64>().ok());
    let session = Session { pid: number(0).unwrap_or_default(), began_us: number(1) };
    Ok((session, number(2).unwrap_or_default()))
}
