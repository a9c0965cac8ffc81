//! What the store is made of, apart from its paths, which the other files implement.

use tokio::sync::Mutex;

use super::announce::Announcer;
use super::changes::OverShards;
use super::commit::CommitPath;
use crate::store::{Description, Ledger};

/// Runs and their log in a Postgres database.
pub struct PostgresStore {
    pub(super) ledger: Ledger,
    pub(super) description: Description,
    pub(super) commits: CommitPath,
    pub(super) over_shards: OverShards,
    pub(super) announcer: Announcer,
    /// The turn of puts of lifecycles.
    pub(super) puts: Mutex<()>,
}
