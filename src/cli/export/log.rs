//! The log of all runs: first up to the ends that are read at the beginning, then, when it follows, on and on.

use std::collections::{HashMap, HashSet};

use super::lineage::Lineage;
use super::past::Trail;
use super::range::{self, Range};
use super::resume::advance;
use super::{Ended, Export, PAGE_EVENTS_MAX};
use crate::cli::exit::say;
use crate::domain::{Event, Positions, Revision, RunKey};
use crate::store::inspect::{Link, Links};
use crate::store::{LoggedEvent, PAGE_BYTES_MAX};

impl Export {
    pub(super) async fn log(&mut self) -> Result<(), Ended> {
        let inspect = self.inspect.clone();
        let mut trail = Trail::begin(self.past().await?, inspect.ledger().shard_count.into());
        let mut range = self.range().await?;
        self.skip(&mut range).await?;
        let mut lineage = Lineage::default();
        let mut after = range.after.clone();
        // Of a part of the log nobody can tell whether what is gone was in it.
        self.told = (self.namespace.is_none() && self.wanted.is_empty()).then(|| after.clone());
        let total = range.left(&after);
        let mut progress = self.progress(total);
        while range.left(&after) > 0 {
            let page = self.ask(|| inspect.changes(&after, PAGE_EVENTS_MAX, PAGE_BYTES_MAX)).await?;
            // An event that cannot be read ends the export, and the error names it: otherwise it would be missing
            // without a trace.
            let events = page.whole()?;
            if events.is_empty() {
                break;
            }
            advance(&mut after, &events);
            trail.pass(&events);
            self.show(&events, &range, &mut lineage).await?;
            self.flush().await?;
            progress.at(total - range.left(&after));
        }
        progress.end();
        self.reached(trail.epoch(), &range.ends).await?;
        if self.follow { self.future(range.ends, trail).await } else { self.is_of_one_past(&trail).await }
    }

    /// The range to write at first: it stops at the present ends, and holds only the part of the log in which the
    /// wanted runs can be.
    async fn range(&self) -> Result<Range, Ended> {
        let inspect = self.inspect.as_ref();
        let (mut first, mut last) = (self.since, self.until);
        let ends = match self.wanted.first().filter(|_| self.until.is_none()) {
            None => self.ask(|| inspect.ends()).await?,
            Some(link) => {
                let extent = self.ask(|| inspect.extent(link)).await?;
                let Some((begun, ended)) = extent.times else {
                    return Ok(Range { after: extent.ends.clone(), end: extent.ends.clone(), ends: extent.ends });
                };
                first = first.max(Some(begun));
                last = Some(range::just_after(ended));
                extent.ends
            }
        };
        if (first.is_some() || last.is_some()) && self.times_may_fall().await? {
            say("the store's clock was set once: the whole log is read, and each event is chosen by its time");
            let after = Positions::start(inspect.ledger().shard_count);
            let end = match self.until.filter(|_| self.wants_a_session()) {
                // The runs of a session are told by the place in the log where the range ends.
                Some(until) => self.ask(|| range::last_before(inspect, &ends, until)).await?,
                None => ends.clone(),
            };
            return Ok(Range { after, end, ends });
        }
        let after = match first {
            Some(first) => self.ask(|| range::before(inspect, &ends, first)).await?,
            None => Positions::start(inspect.ledger().shard_count),
        };
        let end = match last {
            Some(last) => self.ask(|| range::before(inspect, &ends, last)).await?,
            None => ends.clone(),
        };
        Ok(Range { after, end, ends })
    }

    /// Whether events of a shard may bear earlier times than those before them.
    pub(super) async fn times_may_fall(&self) -> Result<bool, Ended> {
        Ok(self.ask(|| self.inspect.steady_ahead()).await? != 0)
    }

    fn wants_a_session(&self) -> bool {
        self.wanted.iter().any(|link| matches!(link, Link::AuditSession(_)))
    }

    /// Events up to the range's end. A run is shown whole when it is linked to the audit session at that end, so that a
    /// session's file tells the whole story of its runs.
    async fn show(&mut self, page: &[LoggedEvent], range: &Range, lineage: &mut Lineage) -> Result<(), Ended> {
        let mut events: Vec<&LoggedEvent> = page.iter().filter(|logged| range.has(logged)).collect();
        if self.wants_a_session() {
            let as_of = if self.until.is_some() { &range.end } else { &range.ends };
            let shown = self.linked(&events, as_of).await?;
            events.retain(|logged| shown.contains(&logged.event.key));
        }
        self.learn(&events, lineage).await?;
        for logged in events {
            self.tell_gap(logged);
            let (_, links) = lineage.pass(&logged.event);
            let mut lasting = self.wanted.iter().filter(|link| matches!(link, Link::TaskThread(_)));
            if lasting.all(|wanted| links.has(wanted)) && self.in_time(logged.event.at) {
                self.write(&logged.event, &links).await?;
            }
        }
        Ok(())
    }

    /// Writes events as they come. An event is shown when its run is linked as wanted before it or after it. A run that
    /// comes to be linked brings along those of its events that were not shown.
    async fn future(&mut self, mut after: Positions, mut trail: Trail) -> Result<(), Ended> {
        let inspect = self.inspect.clone();
        let mut lineage = Lineage::default();
        // Runs that were linked, were shown up to this revision, and may be linked again.
        let mut left: HashMap<RunKey, Revision> = HashMap::new();
        let mut is_told = false;
        loop {
            let page = self.ask(|| inspect.changes(&after, PAGE_EVENTS_MAX, PAGE_BYTES_MAX)).await?;
            if let Some(back) = self.goes_back(&mut trail).await? {
                self.told = self.told.take().map(|_| back.clone());
                after = back;
                lineage = Lineage::default();
                left.clear();
                continue;
            }
            let events = page.whole()?;
            if events.is_empty() {
                self.reached(trail.epoch(), &after).await?;
                self.pause().await?;
                continue;
            }
            advance(&mut after, &events);
            trail.pass(&events);
            let events: Vec<&LoggedEvent> = events.iter().collect();
            self.learn(&events, &mut lineage).await?;
            for logged in events {
                self.tell_gap(logged);
                let event = &logged.event;
                let (before, links) = lineage.pass(event);
                let was_there = event.revision.before().is_some();
                match (was_there && self.wants(&before), self.wants(&links)) {
                    (false, false) => continue,
                    (false, true) => self.catch_up(event, left.remove(&event.key).unwrap_or(Revision::NONE)).await?,
                    (true, false) => drop(left.insert(event.key.clone(), event.revision)),
                    (true, true) => {}
                }
                if self.in_time(event.at) {
                    self.write(event, &links).await?;
                } else if !is_told {
                    is_told = true;
                    say("the store's clock is behind --since: events that bear earlier times are left out");
                }
            }
            self.flush().await?;
            self.reached(trail.epoch(), &after).await?;
        }
    }

    /// A run's events after a revision and before an event.
    async fn catch_up(&mut self, event: &Event, mut after: Revision) -> Result<(), Ended> {
        let inspect = self.inspect.clone();
        let asked = [(event.key.clone(), after)];
        let mut links = if after < Revision::FIRST {
            Links::default()
        } else {
            self.ask(|| inspect.links(&asked)).await?.swap_remove(0)
        };
        while after.next() < event.revision {
            let page = self.ask(|| inspect.run_events(&event.key, after, PAGE_EVENTS_MAX, PAGE_BYTES_MAX)).await?;
            for earlier in page.iter().take_while(|earlier| earlier.revision < event.revision) {
                let changes = &earlier.changes;
                links.change(changes.task_thread_id.as_deref(), changes.bindings.audit_session_id.as_deref());
                if self.in_time(earlier.at) {
                    self.write(earlier, &links).await?;
                }
            }
            let Some(last) = page.last() else { break };
            after = last.revision;
            self.flush().await?;
        }
        Ok(())
    }

    /// Gathers a line for the events that are missing right before this one.
    fn tell_gap(&mut self, logged: &LoggedEvent) {
        let is_in_time = self.in_time(logged.event.at);
        let Some(told) = &mut self.told else { return };
        let gone = logged.position.saturating_sub(told.of(logged.shard) + 1);
        told.set(logged.shard, logged.position);
        if gone > 0 && is_in_time {
            self.lines.write_gap(gone, logged);
        }
    }

    fn wants(&self, links: &Links) -> bool {
        self.wanted.iter().all(|wanted| links.has(wanted))
    }

    /// Looks up the links that these events do not tell themselves.
    async fn learn(&self, events: &[&LoggedEvent], lineage: &mut Lineage) -> Result<(), Ended> {
        let unknown = lineage.unknown(events.iter().map(|logged| &logged.event));
        if !unknown.is_empty() {
            let found = self.ask(|| self.inspect.links(&unknown)).await?;
            lineage.learn(unknown, found);
        }
        Ok(())
    }

    /// The runs of the events that were linked as wanted when the log ended at `ends`.
    async fn linked(&self, events: &[&LoggedEvent], ends: &Positions) -> Result<HashSet<RunKey>, Ended> {
        let keys: HashSet<&RunKey> = events.iter().map(|logged| &logged.event.key).collect();
        let keys: Vec<RunKey> = keys.into_iter().cloned().collect();
        let revisions = self.ask(|| self.inspect.revisions_as_of(&keys, ends)).await?;
        let asked: Vec<(RunKey, Revision)> = keys.into_iter().zip(revisions).collect();
        let links = self.ask(|| self.inspect.links(&asked)).await?;
        Ok(asked.into_iter().zip(links).filter(|(_, links)| self.wants(links)).map(|((key, _), _)| key).collect())
    }
}
