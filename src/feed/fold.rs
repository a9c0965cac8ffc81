//! Runs as events leave them. Runs that are not in the cache are read back from the log, several at once.

use std::sync::Arc;

use quick_cache::sync::{Cache as QuickCache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::{in_a_task, turn};
use crate::domain::evolve::evolve;
use crate::domain::{Event, Filter, Revision, Run, RunKey};
use crate::fairness::{CallerKey, Turns};
use crate::store::{Runs, StoreError};

/// Bytes of runs kept to fold the next event on.
pub(super) const CACHE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The number of runs that the cache's tables are made for.
const RUNS: usize = 16 * 1024;
/// Runs that one read brings at most.
const FETCH_RUNS_MAX: usize = 32;
/// Metadata up to this size is kept with the runs for filters: leaving it out would cost a copy.
const METADATA_KEPT_MAX: usize = 1024;

/// Runs as they were at a revision.
pub(super) type Cache = QuickCache<(RunKey, Revision), Arc<Run>, ByWeight>;

/// Counts a run's bytes.
#[derive(Clone)]
pub(super) struct ByWeight;

impl Weighter<(RunKey, Revision), Arc<Run>> for ByWeight {
    fn weight(&self, (key, _): &(RunKey, Revision), run: &Arc<Run>) -> u64 {
        (ENTRY_BYTES + key.run_id.len() + run.weight()) as u64
    }
}

/// About the bytes that a cache takes for a run beside the run itself.
const ENTRY_BYTES: usize = 2 * size_of::<(RunKey, Revision, Arc<Run>)>();

pub(super) fn cache() -> Cache {
    let options = OptionsBuilder::new()
        .estimated_items_capacity(RUNS)
        .weight_capacity(CACHE_BYTES_MAX as u64)
        // Runs that were read ahead, or just folded, are needed soonest: they get half of the room.
        .hot_allocation(0.5)
        .shards(1)
        .build()
        .expect("every option is given");
    Cache::with_options(options, ByWeight, DefaultHashBuilder::default(), DefaultLifecycle::default())
}

/// The bytes of runs that a cache has, and how many it may have.
pub(super) fn bytes(cache: &Cache) -> (usize, usize) {
    (usize::try_from(cache.weight()).unwrap_or(usize::MAX), CACHE_BYTES_MAX)
}

/// A run before and after an event.
#[derive(Clone, Debug)]
pub(super) struct Folded {
    pub(super) before: Option<Arc<Run>>,
    pub(super) after: Arc<Run>,
}

impl Folded {
    /// Whether a watch with this filter shows the event, and if so whether the run still matches.
    pub(super) fn shown_to(&self, filter: &Filter) -> Option<bool> {
        let matches = filter.matches(&self.after);
        let shown = matches || self.before.as_ref().is_some_and(|before| filter.matches(before));
        shown.then_some(matches)
    }

    /// The runs for filters, without large metadata, which filters do not look at.
    pub(super) fn without_big_metadata(&self) -> Self {
        let without = |run: &Arc<Run>| {
            if run.metadata.weight() <= METADATA_KEPT_MAX { run.clone() } else { Arc::new(run.without_metadata()) }
        };
        Self { before: self.before.as_ref().map(without), after: without(&self.after) }
    }

    pub(super) fn weight(&self) -> usize {
        self.after.weight() + self.before.as_ref().map_or(0, |before| before.weight())
    }
}

/// Folds events one after the other.
pub(super) struct Folder<'a> {
    pub(super) runs: &'a Arc<dyn Runs>,
    pub(super) cache: &'a Arc<Cache>,
    /// The turns to read from the store, and whose they are. None: no other folder uses this cache, so that this one
    /// needs no turn, and drops a run's earlier states.
    pub(super) turns: Option<(&'a Arc<Turns>, CallerKey)>,
}

impl Folder<'_> {
    /// The run before and after an event. `following` are the next events: if this event's run must be read, theirs are
    /// read as well.
    pub(super) async fn fold(
        &self,
        event: &Event,
        following: impl Iterator<Item = &Event>,
    ) -> Result<Folded, StoreError> {
        let before = match event.revision.before() {
            None => None,
            Some(revision) => {
                let place = (event.key.clone(), revision);
                let known = if self.turns.is_none() {
                    self.cache.remove(&place).map(|(_, run)| run)
                } else {
                    self.cache.get(&place)
                };
                let run = match known {
                    Some(run) => run,
                    None => self.fetch(place, following).await?,
                };
                Some(run)
            }
        };
        let after = Arc::new(evolve(before.as_deref().cloned(), event));
        if !after.status.is_terminal() {
            self.cache.insert((event.key.clone(), event.revision), after.clone());
        }
        Ok(Folded { before, after })
    }

    async fn fetch(
        &self,
        place: (RunKey, Revision),
        following: impl Iterator<Item = &Event>,
    ) -> Result<Arc<Run>, StoreError> {
        let mut places = vec![place];
        for event in following {
            if places.len() == FETCH_RUNS_MAX {
                break;
            }
            // A new run, or one in the cache, is not read.
            let Some(before) = event.revision.before() else { continue };
            let place = (event.key.clone(), before);
            if places.iter().all(|(key, _)| *key != event.key) && self.cache.peek(&place).is_none() {
                places.push(place);
            }
        }
        let (runs, cache) = (self.runs.clone(), self.cache.clone());
        let Some((turns, caller)) = self.turns else { return read(&*runs, &cache, places).await };
        let turns = turns.clone();
        in_a_task(async move {
            let _turn = turn(&turns, caller).await;
            // The session that had the turn before may have read the run.
            if let Some(run) = cache.get(&places[0]) {
                return Ok(run);
            }
            let first = places[0].clone();
            places.retain(|place| *place == first || cache.peek(place).is_none());
            read(&*runs, &cache, places).await
        })
        .await
    }
}

/// Reads runs, of which the first one must be there. The others are left in the cache.
async fn read(from: &dyn Runs, cache: &Cache, mut places: Vec<(RunKey, Revision)>) -> Result<Arc<Run>, StoreError> {
    let runs = match from.runs_at(&places).await {
        // The error may be of a run that was read ahead, for which this one must not suffer.
        Err(StoreError::Corrupt { .. } | StoreError::Refused(_)) if places.len() > 1 => {
            places.truncate(1);
            from.runs_at(&places).await?
        }
        runs => runs?,
    };
    let mut found = places.into_iter().zip(runs);
    let (place, run) = found.next().expect("one was asked for");
    let run = run.ok_or_else(|| missing(&place.0, place.1))?;
    for (place, run) in found {
        if let Some(run) = run {
            cache.insert(place, Arc::new(run));
        }
    }
    Ok(Arc::new(run))
}

/// The error for a revision that must be in the log and is not.
pub(super) fn missing(key: &RunKey, revision: Revision) -> StoreError {
    StoreError::Corrupt {
        table: "run_events",
        column: "revision",
        key: format!("{}/{}", key.namespace, key.run_id),
        source: format!("revision {revision} is missing, and the run is further").into(),
    }
}
