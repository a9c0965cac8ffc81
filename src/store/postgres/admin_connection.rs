//! A connection outside the pools.

use runledger_postgres::{Connected, Connector, Wire};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::Client;

use super::errors::{self, TimedOut};
use super::pooler::{self, Pooling};
use super::sessions::CREATE_MAX;
use super::{dsn, migrate};
use crate::store::{Description, OpenError};

/// A connection outside the pools, for opening: closed when dropped.
pub(super) struct Alone {
    pub(super) client: Client,
    wire: Wire,
    pooling: Pooling,
    /// The server's process for it; 0 where it is not known.
    pub(super) pid: i32,
    _driver: JoinSet<()>,
}

impl Alone {
    /// Connects in a bounded time: a listener that accepts and never answers must not hold up the start for ever.
    /// Refuses a pooler that lends sessions for a transaction, before anything is set on a session of its.
    pub(super) async fn connect(connector: &Connector, location: &str) -> Result<Self, OpenError> {
        let connected = async {
            let mut alone = Self::bare(connector, location).await?;
            (alone.pooling, alone.pid) = pooler::recognise(&alone, connector, location).await?;
            let set = alone.client.batch_execute(migrate::SETTINGS).await;
            set.map_err(|error| errors::opening(location, error))?;
            Ok(alone)
        };
        let late = || OpenError::Unreachable { location: location.to_owned(), source: TimedOut.into() };
        timeout(CREATE_MAX, connected).await.unwrap_or_else(|_elapsed| Err(late()))
    }

    /// Connects, and sends nothing.
    pub(super) async fn bare(connector: &Connector, location: &str) -> Result<Self, OpenError> {
        let connected = connector.connect().await.map_err(|error| errors::opening(location, error))?;
        let Connected { client, connection, wire } = connected;
        let mut driver = JoinSet::new();
        // The client's own calls report how the connection ended.
        driver.spawn(async move { drop(connection.await) });
        Ok(Self { client, wire, pooling: Pooling::Unseen, pid: 0, _driver: driver })
    }

    /// The store that was reached by this connection.
    pub(super) fn describe(&self, dsn: &str, not_durable: Option<String>) -> Description {
        let pooler = match self.pooling {
            Pooling::Unseen => "",
            Pooling::Session => ", through a pooler that lends whole sessions",
        };
        let connection = Some(format!("{}{pooler}", self.wire));
        Description { kind: "postgres", location: dsn::redacted(dsn), connection, not_durable }
    }
}
