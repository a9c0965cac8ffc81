//! What the store is made of, apart from its paths, which the other files implement.

use std::sync::Arc;

use super::connections::Connections;
use super::secure_delete;
use super::uptime::UptimeClock;
use crate::store::lifecycles::Versions;
use crate::store::{Description, Ledger};

/// Runs in an SQLite file, or in memory.
pub struct SqliteStore {
    pub(super) connections: Arc<Connections>,
    pub(super) clock: Arc<UptimeClock>,
    pub(super) ledger: Ledger,
    pub(super) description: Description,
    /// Asked when a redaction or a purge was committed.
    pub(super) cleaning: Arc<secure_delete::CleanerCalls>,
    /// The versions of lifecycles that were read last.
    pub(super) versions: Arc<Versions>,
}
