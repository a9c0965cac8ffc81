//! The frames that a watch of all runs must have shown: held against the log itself, read past the service, and against
//! the times at which each call was sent and answered.

use runledger::wire::from_domain::{FromDomain as _, IntoMessage as _};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use runledger::clock::SystemClock;
use runledger::domain::evolve::evolve;
use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::domain::{Position, Run};
use runledger::store::{Ledger, OpenOptions, open};
use runledger::wire::cursor;
use runledger::wire::seal::Seals;
use runledger_proto::v1::RunEvent;
use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::watch_runs_response::{Change, Frame};
use runledger_proto::v1::{self, RunFilter, RunStatus};
use tokio::time::{Duration, Instant};

use super::data::Data;
use super::firehose::{Plan, Shown};
use super::load::Call;

/// An event of the log, and the call that made it.
#[derive(Debug)]
pub(crate) struct Truth {
    shard: usize,
    position: Position,
    event: RunEvent,
    before: Option<Arc<v1::Run>>,
    after: Arc<v1::Run>,
    sent: Instant,
    /// The time of the answer; none: the caller was never told.
    answered: Option<Instant>,
}

impl Truth {
    /// Whether a watch shows it.
    fn is_shown_to(&self, filter: &RunFilter) -> bool {
        matches(filter, &self.after) || self.before.as_ref().is_some_and(|before| matches(filter, before))
    }
}

/// All events, as the log has them.
#[derive(Debug)]
pub(crate) struct Oracle {
    ledger: Ledger,
    seals: Seals,
    /// By shard and position, which are dense from 1.
    log: Vec<Vec<Truth>>,
    /// The place of each event in the log.
    places: HashMap<(String, u64), (usize, usize)>,
    /// Each run's places, by revision.
    runs: BTreeMap<String, Vec<(usize, usize)>>,
}

/// Whether a run matches: the test's own reading of what a filter means, for the fields that the tests filter by.
fn matches(filter: &RunFilter, run: &v1::Run) -> bool {
    (filter.statuses.is_empty() || filter.statuses.contains(&run.status))
        && (filter.workflow_id.is_empty() || filter.workflow_id == run.workflow_id)
}

fn is_terminal(run: &v1::Run) -> bool {
    matches!(run.status(), RunStatus::Completed | RunStatus::Aborted | RunStatus::Failed)
}

impl Oracle {
    /// Reads the log, and holds it against what the callers were told.
    pub(crate) async fn read(data: &Data, calls: &[Call]) -> Self {
        let contents = data.sound().await;
        contents.agree_with(calls);
        let location = data.store().parse().unwrap();
        let inspect = open::for_reading(&location, &OpenOptions::default(), Arc::new(SystemClock)).await.unwrap();
        let ledger = inspect.ledger();
        let shard_count = ledger.shard_count;
        let mut oracle = Self {
            ledger,
            seals: Seals::new(ledger),
            log: (0..shard_count).map(|_| Vec::new()).collect(),
            places: HashMap::new(),
            runs: BTreeMap::new(),
        };
        let calls: HashMap<(&str, &str), &Call> =
            calls.iter().map(|call| ((call.run_id.as_str(), call.request_id.as_str()), call)).collect();
        let mut states: HashMap<&str, (Run, Arc<v1::Run>)> = HashMap::new();
        let shards = data.sql("select shard from run_events order by shard, position").await;
        for (event, shard) in contents.events.iter().zip(shards) {
            let shard: usize = shard[0].as_ref().unwrap().parse().unwrap();
            let run_id = event.key.run_id.as_str();
            let call = calls[&(run_id, event.request_id.as_deref().unwrap_or_default())];
            let (run, before) = states.remove(run_id).unzip();
            let run = evolve(run, event);
            let after = Arc::new(v1::Run::from_domain(&run));
            states.insert(run_id, (run, after.clone()));
            let log = &mut oracle.log[shard];
            let place = (shard, log.len());
            let position = log.len() as u64 + 1;
            let sent = call.sent.expect("what is in the log was sent");
            log.push(Truth {
                shard,
                position,
                event: event.into_message(),
                before,
                after,
                sent,
                answered: call.answered,
            });
            oracle.places.insert((run_id.to_owned(), event.revision.get()), place);
            oracle.runs.entry(run_id.to_owned()).or_default().push(place);
        }
        oracle
    }

    fn at(&self, (shard, index): (usize, usize)) -> &Truth {
        &self.log[shard][index]
    }

    fn all(&self) -> impl Iterator<Item = &Truth> {
        self.log.iter().flatten()
    }

    /// The log's entry that a change shows.
    fn truth(&self, change: &Change) -> &Truth {
        let event = change.event.as_ref().unwrap();
        let place = self.places.get(&(event.run_id.clone(), event.revision));
        self.at(*place.unwrap_or_else(|| panic!("an event that is not in the log: {event:?}")))
    }

    fn positions(&self, cursor: &str) -> Vec<Position> {
        cursor::decode(cursor, &self.seals, self.ledger, DEFAULT_NAMESPACE).unwrap().positions.into()
    }

    /// Checks all properties at once: for tests of trouble that a watch may meet.
    pub(crate) fn all_hold(&self, shown: &Shown) {
        grammar(shown);
        self.ordered(shown);
        self.unique(shown);
        self.atomic(shown);
        self.reliable(shown);
        self.resumable(shown);
        self.bookmarkable(shown);
    }

    /// The events of one run arrive by revision; and no event arrives before one whose call had been answered before
    /// its own call was sent.
    pub(crate) fn ordered(&self, shown: &Shown) {
        let mut revisions: HashMap<&str, u64> = HashMap::new();
        for run in shown.snapshots() {
            revisions.insert(&run.run_id, run.revision);
        }
        for change in shown.changes() {
            let event = change.event.as_ref().unwrap();
            let last = revisions.insert(&event.run_id, event.revision).unwrap_or_default();
            assert!(last < event.revision, "ordered: {} after {last} of {}", event.revision, event.run_id);
        }
        // The first view is one arrival: it shows runs as they were at one moment.
        let view: Vec<&Truth> = shown
            .snapshots()
            .flat_map(|run| (1..=run.revision).map(|revision| &self.places[&(run.run_id.clone(), revision)]))
            .map(|place| self.at(*place))
            .collect();
        let arrivals: Vec<&Truth> = shown.changes().map(|change| self.truth(change)).collect();
        let mut earliest: Option<(Instant, &Truth)> = None;
        for truth in arrivals.iter().rev().chain(&view) {
            if let Some((answered, later)) = earliest {
                let (one, other) = (&truth.event, &later.event);
                assert!(truth.sent <= answered, "ordered: {one:?} arrived before {other:?}, which was answered first");
            }
            if let Some(answered) = truth.answered
                && !view.iter().any(|seen| std::ptr::eq(*seen, *truth))
                && earliest.is_none_or(|(before, _)| answered < before)
            {
                earliest = Some((answered, truth));
            }
        }
    }

    /// No run is shown twice in the first view, and no event twice, or again after a view that had it.
    #[expect(clippy::unused_self, reason = "it is one of the six")]
    pub(crate) fn unique(&self, shown: &Shown) {
        let mut seen = HashSet::new();
        let mut view: HashMap<&str, u64> = HashMap::new();
        for run in shown.snapshots() {
            assert!(view.insert(&run.run_id, run.revision).is_none(), "unique: {} is shown twice", run.run_id);
        }
        for change in shown.changes() {
            let event = change.event.as_ref().unwrap();
            assert!(seen.insert((&event.run_id, event.revision)), "unique: twice: {event:?}");
            let viewed = view.get(event.run_id.as_str()).copied().unwrap_or_default();
            assert!(event.revision > viewed, "unique: the first view had it: {event:?}");
        }
    }

    /// Each change is one call's, whole: the event as it is in the log, the run as right after it, and whether the run
    /// still matches.
    pub(crate) fn atomic(&self, shown: &Shown) {
        let mut made = HashSet::new();
        for change in shown.changes() {
            let truth = self.truth(change);
            assert_eq!(change.event.as_ref(), Some(&truth.event), "atomic: the event as it is in the log");
            assert_eq!(change.run.as_ref(), Some(&*truth.after), "atomic: the run right after its event");
            let request = (&truth.event.run_id, &truth.event.request_id);
            assert!(made.insert(request), "atomic: two events of one call: {:?}", truth.event);
            assert_eq!(change.matches, matches(&shown.plan.filter, &truth.after), "matches: {:?}", truth.event);
            assert!(truth.is_shown_to(&shown.plan.filter), "not for this filter: {:?}", truth.event);
        }
        for run in shown.snapshots() {
            let truth = self.at(self.places[&(run.run_id.clone(), run.revision)]);
            assert_eq!(run, &*truth.after, "atomic: the run as it was");
        }
    }

    /// All events after the watch's beginning were shown. The beginning is not later than the watch, and not before a
    /// call that had been answered before the watch.
    pub(crate) fn reliable(&self, shown: &Shown) {
        let begin = self.beginning(shown);
        let first = shown.first();
        let seen: HashSet<(&str, u64)> = shown
            .changes()
            .map(|change| change.event.as_ref().unwrap())
            .map(|event| (event.run_id.as_str(), event.revision))
            .collect();
        for truth in self.all() {
            let event = &truth.event;
            let due = truth.position > begin[truth.shard];
            assert!(due || truth.sent <= first.opened, "reliable: it happened after the watch began: {event:?}");
            let answered_before = truth.answered.is_some_and(|answered| answered < first.sent);
            assert!(!due || !answered_before, "reliable: it happened before the watch began: {event:?}");
            let due = due && truth.is_shown_to(&shown.plan.filter);
            let shown = seen.contains(&(event.run_id.as_str(), event.revision));
            assert_eq!(shown, due, "reliable: it is due, or not, and was shown, or not: {event:?}");
        }
        self.view(shown, &begin);
    }

    /// The first view shows the runs that are meant as they were where the watch begins, oldest first. A run that was
    /// not meant any more when its turn came may be left out: what made it so is shown as a change.
    fn view(&self, shown: &Shown, begin: &[Position]) {
        let Plan { filter, initial, .. } = &shown.plan;
        let meant = |run: &v1::Run| match initial {
            Initial::Unspecified | Initial::Active => matches(filter, run) && !is_terminal(run),
            Initial::All => matches(filter, run),
            Initial::None => false,
        };
        let mut viewed: HashMap<&str, u64> = shown.snapshots().map(|run| (run.run_id.as_str(), run.revision)).collect();
        for (run_id, places) in &self.runs {
            let (before, later): (Vec<&Truth>, Vec<&Truth>) =
                places.iter().map(|place| self.at(*place)).partition(|truth| truth.position <= begin[truth.shard]);
            let then = before.last().filter(|truth| meant(&truth.after));
            match (then, viewed.remove(run_id.as_str())) {
                (Some(then), Some(revision)) => assert_eq!(revision, then.event.revision, "as it was: {run_id}"),
                (Some(_), None) => {
                    assert!(later.iter().any(|truth| !meant(&truth.after)), "reliable: not in the view: {run_id}");
                }
                (None, Some(_)) => panic!("it does not belong into the view: {run_id}"),
                (None, None) => {}
            }
        }
        let order: Vec<_> = shown.snapshots().map(|run| (run.started_at, &run.run_id)).collect();
        let times = order.iter().map(|(at, run_id)| (at.map(|at| (at.seconds, at.nanos)), *run_id));
        assert!(times.is_sorted(), "the oldest first");
    }

    /// The positions of the watch's beginning: no event up to them is due.
    fn beginning(&self, shown: &Shown) -> Vec<Position> {
        let (_, frame) = &shown.first().frames[0];
        let mut positions = self.positions(cursor_of(frame));
        if let Frame::Change(change) = frame {
            let truth = self.truth(change);
            positions[truth.shard] = truth.position - 1;
        }
        positions
    }

    /// A watch that is resumed at any frame misses nothing: at each, exactly what lies before its cursor was shown.
    pub(crate) fn resumable(&self, shown: &Shown) {
        self.at_cursors(shown, |frame| matches!(frame, Frame::Snapshot(_) | Frame::Change(_)), "resumable");
    }

    /// A checkpoint, or a caught-up, at a cursor means that everything up to it was delivered; and caught up is what
    /// had been answered before the watch began.
    pub(crate) fn bookmarkable(&self, shown: &Shown) {
        self.at_cursors(shown, |frame| matches!(frame, Frame::CaughtUp(_) | Frame::Checkpoint(_)), "bookmarkable");
        for stream in &shown.streams {
            for (_, frame) in &stream.frames {
                let Frame::CaughtUp(caught_up) = frame else { continue };
                let positions = self.positions(&caught_up.cursor);
                for truth in self.all().filter(|truth| truth.answered.is_some_and(|answered| answered < stream.sent)) {
                    let event = &truth.event;
                    assert!(truth.position <= positions[truth.shard], "bookmarkable: not caught up with {event:?}");
                }
            }
        }
    }

    /// Holds the cursors of some frames against what had been shown when they came.
    fn at_cursors(&self, shown: &Shown, chosen: impl Fn(&Frame) -> bool, guarantee: &str) {
        let begin = self.beginning(shown);
        let due: Vec<Vec<Position>> = self
            .log
            .iter()
            .map(|log| log.iter().filter(|truth| truth.is_shown_to(&shown.plan.filter)).map(|truth| truth.position))
            .map(Iterator::collect)
            .collect();
        let mut before = begin.clone();
        let mut delivered = 0;
        for (_, frame) in shown.streams.iter().flat_map(|stream| &stream.frames) {
            delivered += usize::from(matches!(frame, Frame::Change(_)));
            if !chosen(frame) {
                continue;
            }
            let positions = self.positions(cursor_of(frame));
            assert!(before.iter().zip(&positions).all(|(before, now)| before <= now), "{guarantee}: it goes back");
            let up_to = |positions: &[Position]| -> usize {
                due.iter().zip(positions).map(|(due, position)| due.partition_point(|one| one <= position)).sum()
            };
            let expected = up_to(&positions) - up_to(&begin);
            assert_eq!(delivered, expected, "{guarantee}: delivered, and up to the cursor, of {frame:?}");
            before = positions;
        }
    }

    /// The time from each call's answer until its event arrived, sorted.
    pub(crate) fn delays(&self, shown: &Shown) -> Vec<Duration> {
        let frames = shown.streams.iter().flat_map(|stream| &stream.frames);
        let delays = frames.filter_map(|(received, frame)| {
            let Frame::Change(change) = frame else { return None };
            Some(received.saturating_duration_since(self.truth(change).answered?))
        });
        let mut delays: Vec<Duration> = delays.collect();
        delays.sort_unstable();
        delays
    }
}

pub(crate) fn cursor_of(frame: &Frame) -> &str {
    match frame {
        Frame::Snapshot(snapshot) => &snapshot.cursor,
        Frame::Change(change) => &change.cursor,
        Frame::CaughtUp(caught_up) => &caught_up.cursor,
        Frame::Checkpoint(checkpoint) => &checkpoint.cursor,
    }
}

/// snapshot* change* `caught_up` change*, with checkpoints between any of them, in each stream and, but for
/// `caught_up`, over all.
pub(crate) fn grammar(shown: &Shown) {
    let mut viewing = true;
    for stream in &shown.streams {
        let mut caught_up = false;
        for (_, frame) in &stream.frames {
            match frame {
                Frame::Snapshot(_) => assert!(viewing && !caught_up, "a snapshot after the first view"),
                Frame::Change(_) => viewing = false,
                Frame::CaughtUp(_) => {
                    assert!(!caught_up, "caught_up comes once");
                    (viewing, caught_up) = (false, true);
                }
                Frame::Checkpoint(_) => {}
            }
        }
    }
    if shown.plan.cut.is_none() {
        let last = &shown.streams.last().unwrap().frames;
        assert!(last.iter().any(|(_, frame)| matches!(frame, Frame::CaughtUp(_))), "caught_up comes");
    }
}
