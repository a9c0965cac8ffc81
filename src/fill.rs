//! Fills a ledger with finished runs, past any server, so that servers can be measured on a large ledger.
//!
//! Runs are made from a seed and a number each, and written in the order of their numbers, each shard for itself. So
//! the last run of each shard tells where to go on: the same fill, once more, finishes a fill that was ended early.

mod recipe;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::clock::draw_id;
use crate::domain::Shard;
use crate::domain::ids::shard_of;
use crate::store::bulk::{Bulk, Load, LoadError};
use crate::store::{Ledger, StoreError};
use recipe::Recipe;

/// Runs of one transaction. The transaction holds its shard's head for a tenth of a second, and servers wait for that
/// long.
const LOAD_RUNS: usize = 1_024;

/// The reason why a fill was not done, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// The disk would be full before the end. No run was written.
    #[error("{runs} runs want about {wanted} bytes, and {free} are free at {}", place.display())]
    NoRoom {
        /// Runs that were to be written.
        runs: u64,
        /// Bytes that these runs want, about.
        wanted: u64,
        /// Bytes that are free.
        free: u64,
        /// The place of the store.
        place: PathBuf,
    },
    /// A run id of the seed is not one that a fill makes.
    #[error("the ledger has a run {run_id:?} that no fill made: use another seed")]
    Foreign {
        /// The id.
        run_id: String,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A transaction failed. The transactions before it are durable.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A part of the work broke.
    #[error("a part of the work broke")]
    Broken(#[from] JoinError),
}

/// A fill that can begin: the runs that exist were looked at.
pub struct Fill {
    bulk: Arc<dyn Bulk>,
    recipe: Recipe,
    /// Each shard's last run id of this seed, and its number; 0 where there is none.
    there: Vec<(Option<String>, u64)>,
    plan: Plan,
}

/// The amount of work that a fill will do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Runs of this seed that exist.
    pub there: u64,
    /// Runs that are to be written.
    pub runs: u64,
    /// Bytes that these want, about.
    pub wanted: u64,
    /// The place of the runs, and the bytes that are free there; none when it cannot be told from here.
    pub free: Option<(PathBuf, u64)>,
}

/// The work that a fill has done so far. A transaction counts when it is durable.
#[derive(Debug, Default)]
pub struct Done {
    runs: AtomicU64,
    events: AtomicU64,
}

impl Done {
    /// Runs that were written.
    pub fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    /// Events of these runs.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }
}

impl Fill {
    /// Looks which runs of this seed exist, and whether the rest has room, so that `runs` of this seed exist at the
    /// end. Writes nothing.
    ///
    /// # Errors
    ///
    /// [`FillError::NoRoom`], [`FillError::Foreign`], [`FillError::Store`].
    pub async fn plan(bulk: Arc<dyn Bulk>, seed: u64, runs: u64) -> Result<Self, FillError> {
        let recipe = Recipe::of(seed);
        let ledger = bulk.ledger();
        let mut there = Vec::with_capacity(ledger.shard_count.into());
        for shard in 0..ledger.shard_count {
            let last = bulk.last_run_id(Shard(shard), &recipe.prefix()).await?;
            let number = match &last {
                Some(run_id) => recipe.number(run_id).ok_or_else(|| FillError::Foreign { run_id: run_id.clone() })?,
                None => 0,
            };
            there.push((last, number));
        }
        let last = there.iter().map(|(_, number)| *number).max().unwrap_or(0);
        let counting = (recipe.clone(), there.iter().map(|(_, number)| *number).collect::<Vec<_>>());
        let count = move || {
            let (recipe, ends) = counting;
            let shards = (1..=last).map(|number| (shard_of_run(ledger, &recipe, number), number));
            let counted = shards.filter(|(shard, number)| *number <= ends[usize::from(shard.0)]);
            counted.fold((0, 0), |(all, wanted), (_, number)| (all + 1, wanted + u64::from(number <= runs)))
        };
        let (all, counted): (u64, u64) = tokio::task::spawn_blocking(count).await?;
        let room = bulk.room().await?;
        let missing = runs - counted;
        let wanted = room.wanted(missing);
        if let Some((place, free)) = &room.free
            && *free < wanted
        {
            return Err(FillError::NoRoom { runs: missing, wanted, free: *free, place: place.clone() });
        }
        let plan = Plan { there: all, runs: missing, wanted, free: room.free };
        Ok(Self { bulk, recipe, there, plan })
    }

    /// The plan of this fill.
    #[must_use]
    pub fn planned(&self) -> &Plan {
        &self.plan
    }

    /// Writes the missing runs whose numbers are up to `runs`, until the stop. After the stop, the transactions in hand
    /// end.
    ///
    /// # Errors
    ///
    /// [`FillError::Load`], [`FillError::Broken`]. The runs that [`Done`] counts are durable all the same.
    pub async fn run(self, runs: u64, done: Arc<Done>, stop: &CancellationToken) -> Result<(), FillError> {
        let stop = stop.child_token();
        // An early end, by an error or by a caller that goes away, stops the other workers.
        let _stops = stop.clone().drop_guard();
        let ledger = self.bulk.ledger();
        let parts = self.bulk.loads_max().min(ledger.shard_count.into());
        let mut workers = JoinSet::new();
        for part in 0..parts {
            let worker =
                Worker { bulk: self.bulk.clone(), recipe: self.recipe.clone(), done: done.clone(), stop: stop.clone() };
            let mut there: Vec<Option<Own>> =
                self.there.iter().cloned().map(|(last, number)| Some(Own::new(last, number))).collect();
            for (shard, own) in there.iter_mut().enumerate() {
                if shard % parts != part {
                    *own = None;
                }
            }
            workers.spawn(worker.write(there, runs));
        }
        while let Some(ended) = workers.join_next().await {
            ended??;
        }
        Ok(())
    }
}

fn shard_of_run(ledger: Ledger, recipe: &Recipe, number: u64) -> Shard {
    shard_of(ledger.id, ledger.shard_count, &recipe.key(number))
}

/// A shard that only one worker in this process writes to.
struct Own {
    last_run_id: Option<String>,
    last_number: u64,
    pending: Vec<u64>,
}

impl Own {
    fn new(last_run_id: Option<String>, last_number: u64) -> Self {
        Self { last_run_id, last_number, pending: Vec::new() }
    }
}

/// Writes to some of the shards, one transaction at a time.
struct Worker {
    bulk: Arc<dyn Bulk>,
    recipe: Recipe,
    done: Arc<Done>,
    stop: CancellationToken,
}

impl Worker {
    async fn write(self, mut shards: Vec<Option<Own>>, runs: u64) -> Result<(), FillError> {
        let ledger = self.bulk.ledger();
        for number in 1..=runs {
            let shard = shard_of_run(ledger, &self.recipe, number);
            let Some(own) = &mut shards[usize::from(shard.0)] else { continue };
            if number <= own.last_number {
                continue;
            }
            own.pending.push(number);
            if own.pending.len() == LOAD_RUNS {
                if self.stop.is_cancelled() {
                    return Ok(());
                }
                self.load(shard, own).await?;
            }
        }
        for (shard, own) in (0..).map(Shard).zip(&mut shards) {
            if let Some(own) = own.as_mut().filter(|own| !own.pending.is_empty()) {
                if self.stop.is_cancelled() {
                    return Ok(());
                }
                self.load(shard, own).await?;
            }
        }
        Ok(())
    }

    async fn load(&self, shard: Shard, own: &mut Own) -> Result<(), FillError> {
        let numbers = std::mem::take(&mut own.pending);
        let histories: Vec<_> = numbers.iter().map(|number| self.recipe.history(*number)).collect();
        let (runs, last) = (histories.len(), numbers.last().map(|number| self.recipe.key(*number).run_id.into()));
        let load = Load { histories, prefix: self.recipe.prefix(), after: own.last_run_id.take() };
        let events = self.bulk.load(shard, draw_id(), load).await?;
        own.last_run_id = last;
        self.done.runs.fetch_add(u64::try_from(runs).unwrap_or(0), Ordering::Relaxed);
        self.done.events.fetch_add(events, Ordering::Relaxed);
        Ok(())
    }
}
