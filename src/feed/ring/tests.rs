//! The ring under any order of commits, pages, beginnings, evictions and readers, against a log that forgets nothing.

use std::collections::BTreeSet;

use futures_util::FutureExt as _;
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::fold::Folded;
use super::*;
use crate::domain::evolve::evolve;
use crate::domain::{Changes, Event, EventType, Positions, Principal, RunKey, Shard, Status, Time};

const SHARDS: usize = 3;
const NAMESPACE: &str = "default";
const BYTES_MAX: usize = 64 * 1024;

/// One step of the log, the tailer or a session.
#[derive(Clone, Debug)]
enum Step {
    /// A commit of events of one kind to a shard, at a later time.
    Commit { shard: usize, later: i64, kind: usize, events: usize },
    /// The tailer reads a page with a limit of events.
    Tail { limit: usize },
    /// The tailer publishes the page, of which one event may be unreadable.
    Publish { unreadable: Option<usize> },
    /// The tailer loses its place, and begins anew.
    Lose,
    /// A session begins that watches one kind, or all.
    Come { kind: Option<usize> },
    /// A session leaves.
    Leave { session: usize },
    /// A session takes looks.
    Read { session: usize, looks: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let commit = (0..SHARDS, 0..4_i64, 0..3_usize, 1..4_usize);
    let step = prop_oneof![
        6 => commit.prop_map(|(shard, later, kind, events)| Step::Commit { shard, later, kind, events }),
        6 => (1..6_usize).prop_map(|limit| Step::Tail { limit }),
        6 => proptest::option::weighted(0.1, 0..3_usize).prop_map(|unreadable| Step::Publish { unreadable }),
        1 => Just(Step::Lose),
        2 => proptest::option::of(0..3_usize).prop_map(|kind| Step::Come { kind }),
        1 => (0..4_usize).prop_map(|session| Step::Leave { session }),
        9 => (0..4_usize, 1..5_usize).prop_map(|(session, looks)| Step::Read { session, looks }),
    ];
    vec(step, 1..150)
}

/// An event of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Logged {
    at: i64,
    shard: usize,
    position: Position,
    kind: usize,
}

/// The log, as stores give it.
#[derive(Default)]
struct Log(Vec<Logged>);

impl Log {
    fn ends(&self) -> Positions {
        (0..SHARDS).map(|shard| self.0.iter().filter(|logged| logged.shard == shard).count() as u64).collect()
    }

    /// The events after some positions, merged as pages are.
    fn after(&self, positions: &[Position], limit: usize) -> Vec<Logged> {
        let mut page: Vec<Logged> =
            self.0.iter().filter(|logged| logged.position > positions[logged.shard]).copied().collect();
        page.sort_unstable();
        page.truncate(limit);
        page
    }
}

struct Session {
    id: u64,
    kind: Option<usize>,
    wake: Arc<Notify>,
    begun: Positions,
    stand: Stand,
    shown: BTreeSet<(usize, Position)>,
    state: State,
}

/// A session's activity at its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Looks,
    ReadsHistory,
    Sleeps,
}

impl Session {
    fn wants(&self, kind: usize) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind)
    }

    fn show(&mut self, (shard, position): (usize, Position)) {
        assert!(position > self.begun[shard], "before the watch began");
        let last = self.shown.range((shard, 0)..(shard + 1, 0)).next_back();
        assert!(last.is_none_or(|(_, last)| *last < position), "{position} of {shard} after {last:?}");
        self.shown.insert((shard, position));
    }
}

struct World {
    ring: Ring,
    log: Log,
    sessions: Vec<Session>,
    ids: u64,
    /// The tailer's positions, once it has begun.
    ends: Option<Positions>,
    /// The page that the tailer has read, and whether it keeps all of it.
    page: Option<(Vec<Logged>, bool)>,
}

impl World {
    fn new() -> Self {
        Self { ring: Ring::new(BYTES_MAX), log: Log::default(), sessions: Vec::new(), ids: 0, ends: None, page: None }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Commit { shard, later, kind, events } => {
                for _ in 0..events {
                    let position = self.log.ends()[shard] + 1;
                    let last = self.log.0.iter().filter(|logged| logged.shard == shard).map(|logged| logged.at).max();
                    // Another shard's last may be later: then a page shows it later, and the next one shows this first.
                    let at = last.unwrap_or_default() + later;
                    self.log.0.push(Logged { at, shard, position, kind });
                }
            }
            Step::Tail { limit } => self.tail(limit),
            Step::Publish { unreadable } => self.publish(unreadable),
            Step::Lose => (self.ends, self.page) = (None, None),
            Step::Come { kind } => {
                let thread = kind.map(|kind| format!("kind-{kind}"));
                let filter = Filter { task_thread_id: thread, ..Filter::default() };
                self.ids += 1;
                let (wake, _looked) = self.ring.admit(self.ids, NAMESPACE.into(), Arc::new(filter), LedgerEpoch::FIRST);
                let begun = self.log.ends();
                let stand = Stand::at(begun.clone());
                let (id, shown, state) = (self.ids, BTreeSet::new(), State::Looks);
                self.sessions.push(Session { id, kind, wake, begun, stand, shown, state });
            }
            Step::Leave { session } => {
                if session < self.sessions.len() {
                    let session = self.sessions.remove(session);
                    self.ring.dismiss(session.id);
                }
            }
            Step::Read { session, looks } => (0..looks).for_each(|_| self.look(session)),
        }
    }

    fn tail(&mut self, limit: usize) {
        if self.page.is_some() {
            return;
        }
        match &self.ends {
            None => {
                self.ends = Some(self.log.ends());
                self.ring.clear(LedgerEpoch::FIRST);
            }
            Some(ends) => {
                let wants_all = self.ring.has_watchers();
                if wants_all {
                    self.ring.begin(ends);
                }
                self.page = Some((self.log.after(ends, limit), wants_all));
            }
        }
    }

    fn publish(&mut self, unreadable: Option<usize>) {
        let Some((page, wants_all)) = self.page.take() else { return };
        let mut end = self.ends.clone().expect("it has begun");
        let mut entries = Vec::new();
        for (number, logged) in page.iter().enumerate() {
            let before = end.clone();
            end.set(Shard(u16::try_from(logged.shard).unwrap()), logged.position);
            if !wants_all {
                continue;
            }
            if unreadable == Some(number) {
                self.ring.take(std::mem::take(&mut entries), &before, None);
                self.ring.interrupt();
                if self.ring.has_watchers() {
                    self.ring.begin(&end);
                }
            } else {
                entries.push((Arc::new(entry(*logged, &end)), None));
            }
        }
        let at_end = end == self.log.ends();
        self.ring.take(entries, &end, at_end.then_some(Time::from_micros(1)));
        self.ends = Some(end);
    }

    /// One look of a session.
    fn look(&mut self, session: usize) {
        let Some(session) = self.sessions.get_mut(session) else { return };
        match session.state {
            State::Sleeps if session.wake.notified().now_or_never().is_none() => {}
            State::Sleeps | State::Looks => {
                session.state = State::Looks;
                match self.ring.next(session.id, &mut session.stand) {
                    Next::Change(entry, matches) => {
                        assert!(matches);
                        session.show((usize::from(entry.place.0.0), entry.place.1));
                    }
                    Next::Nothing(_) => session.state = State::Sleeps,
                    Next::More => {}
                    Next::Behind => {
                        session.state = State::ReadsHistory;
                        let missing = |begun: &Begun| !session.stand.positions.reaches(&begun.positions);
                        assert!(self.ring.begun.as_ref().is_none_or(missing), "all that it lacks is in the ring");
                    }
                }
            }
            State::ReadsHistory => {
                let page = self.log.after(&session.stand.positions, 3);
                session.state = if page.is_empty() { State::Sleeps } else { State::Looks };
                for Logged { shard, position, kind, .. } in page {
                    session.stand.pass((Shard(u16::try_from(shard).unwrap()), position));
                    if session.wants(kind) {
                        session.show((shard, position));
                    }
                }
            }
        }
    }

    /// Checks that a session was shown exactly the events that it watches, up to its stand.
    fn whole(&self, session: &Session) {
        let due = self.log.0.iter().filter(|logged| {
            let after = logged.position > session.begun[logged.shard];
            after && logged.position <= session.stand.positions[logged.shard] && session.wants(logged.kind)
        });
        let due: BTreeSet<_> = due.map(|logged| (logged.shard, logged.position)).collect();
        assert_eq!(session.shown, due, "of {:?} up to {:?}", session.kind, session.stand.positions);
    }

    /// Brings the tailer to the end of the log, and every session that is awake, or woken, to the tailer's positions.
    fn settle(&mut self) {
        self.publish(None);
        self.tail(1);
        while self.ends.as_ref() != Some(&self.log.ends()) || self.ring.begun.is_none() {
            self.publish(None);
            self.tail(100);
            if self.sessions.is_empty() {
                return;
            }
        }
        for session in 0..self.sessions.len() {
            (0..1_000).for_each(|_| self.look(session));
        }
        let ends = self.log.ends();
        for session in &mut self.sessions {
            assert_eq!(session.state, State::Sleeps, "it comes to rest");
            // A session that was not woken has no event to see.
            session.stand.positions.clone_from(&ends);
        }
        self.sessions.iter().for_each(|session| self.whole(session));
    }
}

/// An entry of such a size that a ring holds seven.
fn entry(Logged { shard, position, kind, .. }: Logged, positions: &[Position]) -> Entry {
    static LARGE: [u8; BYTES_MAX / 8] = [0; BYTES_MAX / 8];
    let key = RunKey { namespace: NAMESPACE.into(), run_id: format!("{shard}-{position}").into() };
    let event = Event {
        key: key.clone(),
        revision: 1.into(),
        at: Time::from_micros(0),
        steady_ahead_micros: 0,
        request_id: None,
        event_type: EventType::Created,
        from: None,
        to: Status::Running,
        principal: Principal::anonymous(),
        trace: None,
        changes: Changes { task_thread_id: Some(format!("kind-{kind}")), ..Changes::default() },
    };
    let filtered = Folded { before: None, after: Arc::new(evolve(None, &event)) };
    let (event, run) = (Bytes::from_static(&LARGE), Bytes::new());
    let change = Change {
        key,
        revision: 1.into(),
        status: Status::Running,
        held: false,
        waits: false,
        at: Time::from_micros(0),
        event,
        run,
        filtered,
    };
    let place = (Shard(u16::try_from(shard).unwrap()), position);
    Entry { change, place, positions: positions.into(), cursor: Bytes::new() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_change_is_skipped_or_shown_twice_and_nobody_goes_back_without_need(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.sessions.iter().for_each(|session| world.whole(session));
            prop_assert!(world.ring.bytes <= BYTES_MAX);
        }
        world.settle();
    }
}
