//! The server that this process talks to, and whether it is still the one with all acknowledged calls.
//!
//! An asynchronous standby that is promoted has lost what had not reached it, and writes other events at the same
//! positions; so does a server that was put back from a backup. The ledger's row keeps the server's system identifier
//! and timeline. Each new session looks at them before it is used, and once a second one that is in use does: where
//! they changed, or where a shard ends before a position that this process has seen, the ledger's epoch is raised, once
//! for all replicas.
//!
//! Invariant: the process's epoch is raised before a session is used that may read the new past. So code that gives out
//! a place in the log (a cursor, a revision of a watch) compares the epoch between its read and its answer, and no
//! watch goes from one past to another.

mod statements;
mod verdict;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

pub(super) use self::statements::past;
use self::statements::{is_refused, looks, missing, name, raise};
use self::verdict::{Identity, KnownFacts, Look, Verdict};
use super::changes::OverShards;
use super::commit::hints::Hints;
use super::errors;
use super::rows::Reader;
use super::sessions::Connection;
use crate::domain::{LedgerEpoch, Position, Positions, Shard};
use crate::store::{Ledger, StoreError};
use crate::telemetry::chain;

/// Looks at one session at most: another replica may change the ledger's row in between, and then the row is read
/// again.
const LOOKS_MAX: usize = 8;

/// See the module.
pub(super) struct Lineage {
    /// A copy of [`KnownFacts::epoch`], to be read without the mutex.
    epoch: AtomicU64,
    known: Mutex<(KnownFacts, Option<Instant>)>,
    hints: Arc<Hints>,
    /// The statements that look, each with less of the server's identity.
    looks: [String; 4],
    /// The first of the statements that the server does not refuse.
    allowed: AtomicUsize,
    over_shards: OverShards,
    /// The number of looks that were begun for callers, and the last look that ended, with its number and result.
    begun: AtomicU64,
    made: tokio::sync::Mutex<(u64, Result<(), Arc<StoreError>>)>,
}

impl Lineage {
    pub(super) fn new(ledger: &Ledger, hints: Arc<Hints>) -> Self {
        let over_shards = OverShards::new(ledger.shard_count);
        let ends = over_shards.ends_statement();
        let looks = looks(ends);
        let known =
            KnownFacts { epoch: ledger.epoch, server: Identity::default(), seen: Positions::start(ledger.shard_count) };
        Self {
            epoch: AtomicU64::new(ledger.epoch.get()),
            known: Mutex::new((known, None)),
            hints,
            looks,
            allowed: AtomicUsize::new(0),
            over_shards,
            begun: AtomicU64::new(0),
            made: tokio::sync::Mutex::new((0, Ok(()))),
        }
    }

    /// Looks for a caller. One look answers all callers who came before it began: however many they are, they take
    /// one session.
    pub(super) async fn once(&self, look: impl Future<Output = Result<(), StoreError>>) -> Result<(), StoreError> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut made = self.made.lock().await;
        if made.0 <= before {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            *made = (number, look.await.map_err(Arc::new));
        }
        made.1.as_ref().copied().map_err(StoreError::shared)
    }

    /// The ledger's epoch: never behind the epoch that any session has read.
    pub(super) fn epoch(&self) -> LedgerEpoch {
        self.epoch.load(Ordering::SeqCst).into()
    }

    /// The time at which the epoch last changed while this process ran: older sessions may be to a server that was
    /// left.
    pub(super) fn changed_at(&self) -> Option<Instant> {
        self.known.lock().1
    }

    /// Notes the positions of shards that a session showed, which was lent at this epoch.
    pub(super) fn saw(&self, epoch: LedgerEpoch, places: impl IntoIterator<Item = (Shard, Position)>) {
        let mut known = self.known.lock();
        if known.0.epoch != epoch {
            return;
        }
        for (shard, position) in places {
            let seen = known.0.seen.of(shard);
            known.0.seen.set(shard, position.max(seen));
        }
    }

    /// Compares a session's server with the facts that are known. When this returns without an error, the session may
    /// be used, for what is now the process's epoch.
    ///
    /// # Errors
    ///
    /// The server only reads, was left behind by a failover, or cannot be asked. The session must be closed.
    pub(super) async fn check(&self, client: &Connection) -> Result<(), StoreError> {
        let mut raised_for = None;
        for _ in 0..LOOKS_MAX {
            // Taken before the look: the server must have every position that was seen by then.
            let before = self.known.lock().0.clone();
            let look = self.look(client).await?;
            match before.judge(&look) {
                Verdict::Same => {
                    self.agree(&before, &look);
                    return Ok(());
                }
                Verdict::Unnamed => {
                    name(client, &look.server).await?;
                    self.agree(&before, &look);
                    return Ok(());
                }
                Verdict::Raised => self.begin(&look, raised_for.take()),
                Verdict::AnotherPast(reason) => {
                    raise(client, &look, before.epoch.max(look.epoch)).await?;
                    raised_for = Some(reason);
                }
                Verdict::LeftBehind => {
                    let sentence = format!(
                        "{} was left behind: the ledger is at epoch {} on {}; if it was put back to this one, restart \
                         the servers",
                        look.server, before.epoch, before.server
                    );
                    return Err(StoreError::Unavailable(sentence.into()));
                }
            }
        }
        Err(StoreError::Unavailable("the ledger's epoch does not come to rest".into()))
    }

    async fn look(&self, client: &Connection) -> Result<Look, StoreError> {
        loop {
            let allowed = self.allowed.load(Ordering::Relaxed);
            let rows = async {
                let statement = client.prepare_cached(&self.looks[allowed]).await?;
                client.query(&statement, &[]).await
            };
            let rows = match rows.await {
                Ok(rows) => rows,
                Err(error) if is_refused(&error) && allowed + 1 < self.looks.len() => {
                    if self.allowed.fetch_max(allowed + 1, Ordering::Relaxed) == allowed {
                        let error = errors::statement(error);
                        let seen = "failovers are seen by less: at the least by a shard that ends too early";
                        tracing::warn!(error = chain(&error), seen, "the server does not tell all of its identity");
                    }
                    continue;
                }
                Err(error) => return Err(errors::statement(error)),
            };
            let Some(row) = rows.first() else {
                return Err(missing());
            };
            let ledger = Reader { table: "ledger", row, key: &|| "the only row".to_owned() };
            if ledger.get("standby")? {
                let source = "the server is a standby and only reads; the primary is needed".into();
                return Err(StoreError::Unavailable(source));
            }
            return Ok(Look {
                epoch: ledger.get("epoch")?,
                noted: Identity {
                    system: ledger.get("noted_system")?,
                    timeline: ledger.get("noted_timeline")?,
                    table: ledger.get("noted_table")?,
                },
                server: Identity {
                    system: ledger.get("system")?,
                    timeline: ledger.get("timeline")?,
                    table: ledger.get("table_oid")?,
                },
                ends: self.over_shards.ends_of(&rows)?,
            });
        }
    }

    /// Remembers the server and its positions.
    fn agree(&self, before: &KnownFacts, look: &Look) {
        let mut known = self.known.lock();
        if known.0.epoch != before.epoch {
            return;
        }
        known.0.server = look.server.clone();
        known.0.seen.advance(&look.ends);
    }

    /// Takes over a higher epoch: all remembered facts are of a past that may be lost.
    fn begin(&self, look: &Look, raised_for: Option<String>) {
        let mut known = self.known.lock();
        let before = known.0.epoch;
        if look.epoch <= before {
            return;
        }
        known.0 = KnownFacts { epoch: look.epoch, server: look.server.clone(), seen: look.ends.clone() };
        known.1 = Some(Instant::now());
        self.epoch.store(look.epoch.get(), Ordering::SeqCst);
        drop(known);
        self.hints.forget();
        let reason = raised_for.unwrap_or_else(|| "another replica has seen it".to_owned());
        tracing::error!(
            reason,
            epoch = look.epoch.get(),
            epoch_before = before.get(),
            server = %look.server,
            "the ledger is of another past than before, after a failover or from a copy: acknowledged calls may be lost, \
             and watches begin again"
        );
    }
}
