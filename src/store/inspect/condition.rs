//! The condition of a ledger, as the store that has it tells.

use std::fmt;

use serde::Serialize;

use crate::domain::{Position, RunKey, Time};

/// The condition of a ledger.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The store's clock.
    pub now: Time,
    /// The database server's version; none for a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
    /// The release that made or last migrated the schema.
    pub schema_release: String,
    /// The oldest release that may work with it.
    pub min_release: String,
    /// The last migration that was applied.
    pub migration: u64,
    /// The time at which the ledger was created.
    pub created_at: Time,
    /// The heads of the shards.
    pub heads: Vec<Head>,
    /// Runs that are not terminal, by status code.
    #[serde(skip)]
    pub active: Vec<(i16, u64)>,
    /// The runs that are not terminal, the oldest of them.
    #[serde(skip)]
    pub oldest: Vec<OldRun>,
    /// See [`Inspect::steady_ahead`](super::Inspect::steady_ahead).
    pub steady_ahead_micros: i64,
    /// The server's report on its sessions; none for a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Sessions>,
    /// The standbys of a database server; none for a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
    /// The sizes of the tables; empty for a file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// The file; none for a database server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<File>,
}

/// A shard's head.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    pub shard: u16,
    /// The shard's last position.
    pub position: Position,
    /// The time of the shard's last event.
    pub at: Option<Time>,
    /// The session that holds the head.
    pub holder: Option<Session>,
    /// The sessions that wait for the head, the longest wait first.
    pub waiters: Vec<Session>,
}

/// A session of a database server.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// The process id of the session.
    pub pid: i32,
    /// The name that the client gives itself.
    pub application: Option<String>,
    /// The client's address.
    pub client: Option<String>,
    /// The role that the session works as.
    pub user: Option<String>,
    /// The session's state: `active`, `idle in transaction` and so on; none when this role may not see it.
    pub state: Option<String>,
    /// The name of the session's statement, or its beginning.
    pub statement: Option<String>,
    /// The time for which the session's transaction has been open.
    pub transaction_ms: Option<i64>,
    /// The time for which the session has been in its state: at its statement, or idle.
    pub state_ms: Option<i64>,
}

/// As an operator finds it. Texts of others are shown without what a terminal would obey.
impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|user| format!("user {user}"));
        let texts = [&self.application, &self.client, &self.state, &self.statement, &user];
        let known: Vec<_> = texts.into_iter().filter_map(|text| text.as_deref()).map(plain).collect();
        write!(f, "pid {}", self.pid)?;
        if known.is_empty() { Ok(()) } else { write!(f, " ({})", known.join(", ")) }
    }
}

fn plain(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character }).collect()
}

/// A database server's report on its sessions.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sessions {
    /// Connections of clients to the server.
    pub used: u64,
    /// Connections that the server has for everybody.
    pub max: u64,
    /// Whether this role sees what the sessions of other roles do.
    pub all_seen: bool,
    /// Sessions in this database that are idle in a transaction, the longest first.
    pub idle_in_transaction: Vec<Session>,
    /// The transaction in this database that is open for longest.
    pub oldest_transaction: Option<Session>,
}

/// The standbys of a database server.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replication {
    /// `synchronous_commit`: whether a commit waits for synchronous standbys.
    pub synchronous_commit: String,
    /// The standbys that are connected.
    pub standbys: Vec<Standby>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Standby {
    /// The name that the standby gives itself.
    pub name: Option<String>,
    /// `async`, `potential`, `sync` or `quorum`; none when this role may not see it.
    pub sync_state: Option<String>,
}

/// A run that is not terminal.
#[derive(Clone, Debug)]
pub struct OldRun {
    /// The run's key.
    pub key: RunKey,
    /// The code of the run's status.
    pub status: i16,
    /// The time at which the run was created.
    pub started_at: Time,
    /// The run's owner.
    pub agent_id: Option<String>,
    /// The kind of the run's suspension; none: it is not suspended.
    pub suspension_kind: Option<String>,
    /// Whether the next claim takes the running run.
    pub ready: bool,
}

/// The size of a table.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Table {
    /// The table's name.
    pub name: String,
    /// The table's size without indexes.
    pub bytes: u64,
    /// The size of the indexes.
    pub index_bytes: u64,
    /// Rows, about.
    pub rows: u64,
    /// Rows that were replaced or deleted, and whose place is not free yet, about.
    pub dead_rows: u64,
    /// The time at which autovacuum last worked on the table.
    pub last_autovacuum: Option<Time>,
}

/// The room that a ledger's file system must have left: its write-ahead log takes so much before it is emptied.
pub const SPACE_BYTES_MIN: u64 = 32 * 1024 * 1024;

/// The size of a file.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// The database file.
    pub bytes: u64,
    /// The write-ahead log beside it.
    pub wal_bytes: u64,
    /// The part of the file that is free for new rows.
    pub free_bytes: u64,
    /// The bytes of its file system that this user may still fill; none where the system does not tell.
    pub available_bytes: Option<u64>,
    /// The bytes of its file system.
    pub volume_bytes: Option<u64>,
}
