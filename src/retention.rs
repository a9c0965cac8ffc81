//! Retention: runs that have ended are purged when they were kept for as long as their namespace wants.
//!
//! A namespace that was changed is left alone for a while: whoever keeps runs for too short a time by a slip of the hand
//! has that long to see it. The time counts since this process saw the change; the store's clock, which may be set, says only
//! of a change from before how long ago it was. And where nobody had served for long by that clock, nothing is purged for as
//! long a while: it may have been ahead, and what it says is seen by people first.
//!
//! Every replica looks now and then, none leads: a purge is one transaction under the shard's head, and what another
//! replica has purged is passed over. Commits come first: after each purge of a shard there is a pause as long as it took.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::domain::{Namespace, Position, Revision, Shard};
use crate::store::retention::{Purged, Retained, Walk};
use crate::store::{Purges, StoreError};
use crate::telemetry::{LogThrottle, chain, record};

/// The shortest pause after a purge.
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// The time in which nothing of a namespace is purged after it was changed. Its creation shortens nothing.
pub const GRACE: Duration = Duration::from_hours(1);

/// What this process knows of when there is nothing to purge.
#[derive(Debug, Default)]
pub struct Quiets {
    /// The walks in which nothing is due for a while.
    walks: HashMap<(Walk, Shard), Instant>,
    grace: Duration,
    /// The last change of each namespace: when this process came to know of it, and how long ago it was then.
    changes: HashMap<Namespace, (Revision, Instant, Duration)>,
    /// Nothing is purged before.
    begins: Option<Instant>,
}

/// The longest time without a server that is no more than a restart.
const UNATTENDED_MAX: Duration = Duration::from_mins(1);

/// The longest time for which a walk is left alone: a clock may be set.
const QUIET_MAX: Duration = Duration::from_mins(10);

impl Quiets {
    /// Nothing of a namespace is purged for so long after its last change.
    #[must_use]
    pub fn with_grace(grace: Duration) -> Self {
        Self { grace, ..Self::default() }
    }

    /// The same, and nothing at all for so long from now on where nobody had served for a while.
    #[must_use]
    pub fn after_unattended(unattended: Duration, grace: Duration) -> Self {
        let begins = (unattended > UNATTENDED_MAX).then(|| Instant::now() + grace);
        Self { begins, ..Self::with_grace(grace) }
    }

    /// Keeps those of the namespaces' walks, and of none that is asked for no more.
    fn keep_of(&mut self, retentions: &[Retained]) {
        let walks: HashSet<Walk> = retentions.iter().flat_map(|of| Walk::each(&of.namespace, &of.retention)).collect();
        self.walks.retain(|(walk, _), _| walks.contains(walk));
        self.changes.retain(|namespace, _| retentions.iter().any(|of| of.namespace == *namespace));
    }

    /// Whether nothing of a namespace is purged yet.
    fn holds(&mut self, of: &Retained) -> bool {
        let now = Instant::now();
        let first = (of.revision, now, of.unchanged_for);
        let seen = self.changes.entry(of.namespace.clone()).or_insert(first);
        if seen.0 != of.revision {
            *seen = (of.revision, now, Duration::ZERO);
        }
        let (revision, since, before) = *seen;
        let is_changed = revision > Revision::FIRST && before.saturating_add(now - since) < self.grace;
        is_changed || self.begins.is_some_and(|begins| now < begins)
    }

    fn has(&mut self, walk: &Walk, shard: Shard) -> bool {
        let place = (walk.clone(), shard);
        let is_quiet = self.walks.get(&place).is_some_and(|until| *until > Instant::now());
        if !is_quiet {
            self.walks.remove(&place);
        }
        is_quiet
    }

    fn note(&mut self, walk: &Walk, shard: Shard, time: Duration) {
        if !time.is_zero() {
            self.walks.insert((walk.clone(), shard), Instant::now() + time.min(QUIET_MAX));
        }
    }
}

/// Whether a namespace was changed within a time.
#[must_use]
pub fn is_held(of: &Retained, grace: Duration) -> bool {
    of.revision > Revision::FIRST && of.unchanged_for < grace
}

/// What was done in one walk: for whoever shows progress.
#[derive(Clone, Debug)]
pub struct WalkStep<'a> {
    /// The namespace.
    pub walk: &'a Walk,
    pub shard: Shard,
    /// What this step has purged, or would purge.
    pub purged: Purged,
}

/// Whether what is due is purged, or only found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is purged.
    Purge,
    /// It is found, and stays.
    Preview,
}

/// Walks over all that is due now, of one namespace or of all. What cannot be read or written in one shard keeps nothing
/// else from being purged.
///
/// # Errors
///
/// The store cannot be read or written: the first error, of however many.
pub async fn walk(
    store: &dyn Purges,
    only: Option<&Namespace>,
    mode: Mode,
    quiets: &mut Quiets,
    told: impl FnMut(WalkStep<'_>) -> ControlFlow<()>,
) -> Result<Purged, StoreError> {
    let retentions = store.retentions().await?;
    walk_over(store, (&retentions, only), mode, quiets, told).await
}

/// Walks over all that is due by these retentions, which need not be those that the namespaces have: but then nothing is
/// purged.
///
/// # Errors
///
/// See [`walk`].
pub async fn walk_over(
    store: &dyn Purges,
    (retentions, only): (&[Retained], Option<&Namespace>),
    mode: Mode,
    quiets: &mut Quiets,
    mut told: impl FnMut(WalkStep<'_>) -> ControlFlow<()>,
) -> Result<Purged, StoreError> {
    quiets.keep_of(retentions);
    let (mut all, mut failed) = (Purged::default(), None);
    for of in retentions {
        let Retained { namespace, retention, .. } = of;
        if only.is_some_and(|only| only != namespace) || (mode == Mode::Purge && quiets.holds(of)) {
            continue;
        }
        // Read before the walk: an exporter only goes forward.
        let exported = if retention.until_exported { Some(store.exported(namespace).await?) } else { None };
        for walk in Walk::each(namespace, retention) {
            for shard in (0..store.ledger().shard_count).map(Shard) {
                let mut told = |purged: Purged| {
                    all.runs += purged.runs;
                    all.events += purged.events;
                    told(WalkStep { walk: &walk, shard, purged })
                };
                let upto = exported.as_ref().map_or(Position::MAX, |exported| exported.of(shard));
                match walk_shard(store, (shard, upto), &walk, mode, quiets, &mut told).await {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(())) => return Ok(all),
                    Err(error @ (StoreError::Refused(_) | StoreError::Corrupt { .. })) => {
                        failed.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
    failed.map_or(Ok(all), Err)
}

async fn walk_shard(
    store: &dyn Purges,
    (shard, upto): (Shard, Position),
    walk: &Walk,
    mode: Mode,
    quiets: &mut Quiets,
    told: &mut impl FnMut(Purged) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, StoreError> {
    if quiets.has(walk, shard) {
        return Ok(ControlFlow::Continue(()));
    }
    let mut after = store.walked(shard, walk).await?;
    while after < upto {
        let due = store.due(shard, walk, after, upto).await?;
        quiets.note(walk, shard, due.quiet_for);
        if due.upto == after && due.runs.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let begun = Instant::now();
        let purged = match mode {
            Mode::Purge => match store.purge(shard, walk, &due).await? {
                Some(purged) => purged,
                None => return Ok(ControlFlow::Continue(())),
            },
            Mode::Preview => Purged {
                runs: due.runs.len() as u64,
                events: due.runs.iter().map(|(_, revision)| revision.get()).sum(),
            },
        };
        let goes_on = told(purged);
        if goes_on.is_break() || !due.more {
            return Ok(goes_on);
        }
        after = due.upto;
        if mode == Mode::Purge && purged.runs > 0 {
            sleep(begun.elapsed().max(PAUSE_MIN)).await;
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Purges what is due, again and again until the stop. What was changed lately is left alone for a while.
pub async fn keep(store: Arc<dyn Purges>, interval: Duration, stop: CancellationToken) {
    let (said, mut quiets) = (LogThrottle::default(), Quiets::after_unattended(store.unattended(), GRACE));
    if quiets.begins.is_some() {
        let for_s = store.unattended().as_secs();
        tracing::info!(
            for_s,
            "by the store's clock nobody has served for so long: leases and deadlines that were due meanwhile end now, and \
             nothing is purged within the next hour"
        );
    }
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = sleep(interval) => {}
        }
        let purged = walk(&*store, None, Mode::Purge, &mut quiets, |step| {
            record::purged(step.purged.runs);
            if stop.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match purged.await {
            Ok(Purged { runs: 0, .. }) => {}
            Ok(Purged { runs, events }) => tracing::info!(runs, events, "runs were purged that were kept long enough"),
            Err(error) => {
                if let Some(unsaid) = said.is_due() {
                    tracing::warn!(error = chain(&error), unsaid, "runs cannot be purged: trying again");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_holds_purges_back_for_the_grace_whatever_the_clock_says() {
        let of = |revision: Revision, minutes: u64| Retained {
            namespace: "team-a".into(),
            retention: crate::domain::Retention::default(),
            revision,
            unchanged_for: Duration::from_mins(minutes),
        };
        let (made, changed) = (Revision::FIRST, Revision::FIRST.next());
        let mut quiets = Quiets::with_grace(GRACE);
        assert!(!quiets.holds(&of(made, 0)), "its creation shortens nothing");
        assert!(quiets.holds(&of(changed, 0)));
        assert!(quiets.holds(&of(changed, 600)), "the clock was set forward since");
        for (minutes, is_held) in [(59, true), (60, false)] {
            assert_eq!(Quiets::with_grace(GRACE).holds(&of(changed, minutes)), is_held, "of before the start");
        }
        // The clock was ahead when it was changed: so it never seems to be longer ago.
        tokio::time::advance(Duration::from_mins(59)).await;
        assert!(quiets.holds(&of(changed, 0)));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(!quiets.holds(&of(changed, 0)));
        assert!(quiets.holds(&of(changed.next(), 0)), "another change begins anew");
        assert!(!Quiets::default().holds(&of(changed, 0)));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_purged_for_the_grace_where_nobody_had_served_for_longer_than_a_restart_takes() {
        let of = Retained {
            namespace: "team-a".into(),
            retention: crate::domain::Retention::default(),
            revision: Revision::FIRST,
            unchanged_for: Duration::MAX,
        };
        assert!(!Quiets::after_unattended(Duration::from_secs(59), GRACE).holds(&of));
        let mut quiets = Quiets::after_unattended(Duration::from_hours(24 * 400), GRACE);
        tokio::time::advance(Duration::from_mins(59)).await;
        assert!(quiets.holds(&of));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(!quiets.holds(&of));
    }
}
