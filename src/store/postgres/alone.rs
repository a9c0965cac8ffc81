//! A connection outside the pools.

use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, NoTls};

use super::errors::{self, TimedOut};
use super::migrate;
use super::sessions::CREATE_MAX;
use crate::store::OpenError;

/// A connection outside the pools, for opening: closed when dropped.
pub(super) struct Alone {
    pub(super) client: Client,
    _driver: JoinSet<()>,
}

impl Alone {
    /// Connects in a bounded time: a listener that accepts and never answers must not hold up the start for ever.
    pub(super) async fn connect(config: &Config, location: &str) -> Result<Self, OpenError> {
        let connected = async {
            let (client, connection) = config.connect(NoTls).await?;
            let mut driver = JoinSet::new();
            // The client's own calls report how the connection ended.
            driver.spawn(async move { drop(connection.await) });
            client.batch_execute(migrate::SETTINGS).await?;
            Ok(Self { client, _driver: driver })
        };
        match timeout(CREATE_MAX, connected).await {
            Ok(connected) => connected.map_err(|error| errors::opening(location, error)),
            Err(_) => Err(OpenError::Unreachable { location: location.to_owned(), source: TimedOut.into() }),
        }
    }
}
