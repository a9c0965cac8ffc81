//! A ledger, a feed that tells late and is cut, and claimers that come, wait, are refused and go, in any order; and a
//! queue that keeps all runs, or very few.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::LazyLock;

use proptest::prelude::*;
use tokio::sync::futures::OwnedNotified;

use super::{backlog, backlog_of_bytes, ended, only, pending, ready, resumed, waiter};
use crate::claims::backlog::*;
use crate::domain::Status;

const PAGE_RUNS_MAX: usize = 2;
const CLAIMERS_MAX: usize = 6;
const VALUES: [&str; 3] = ["a", "b", "c"];
const OWNERS: [Option<&str>; 3] = [None, Some("x"), Some("y")];

/// The claimers: callers that may write every run, and such as are confined to some agents.
static TAKERS: LazyLock<[(Option<&str>, Agents); 5]> = LazyLock::new(|| {
    [
        (None, Agents::All),
        (Some("x"), Agents::All),
        (Some("y"), Agents::All),
        (Some("y"), only(&["y"])),
        (Some("y"), only(&["x", "y"])),
    ]
});

fn takers() -> [Taker<'static>; 5] {
    TAKERS.each_ref().map(|(agent_id, agents)| Taker { agent_id: *agent_id, agents })
}

/// One step of the model. Numbers choose among the runs and claimers that exist.
#[derive(Clone, Copy, Debug)]
enum Step {
    Start { at: usize, value: usize, owner: usize },
    ClaimElsewhere(usize),
    End(usize),
    GiveBack(usize),
    Resume(usize),
    Tell,
    Cut,
    Come { taker: usize, gives_up: bool },
    Go(usize),
    Proceed(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..40_usize, 0..3_usize, 0..6_usize).prop_map(|(at, value, owner)| Step::Start { at, value, owner }),
        1 => (0..40_usize).prop_map(Step::ClaimElsewhere),
        3 => (0..40_usize).prop_map(Step::End),
        1 => (0..40_usize).prop_map(Step::GiveBack),
        1 => (0..40_usize).prop_map(Step::Resume),
        6 => Just(Step::Tell),
        1 => Just(Step::Cut),
        4 => (0..5_usize, any::<bool>()).prop_map(|(taker, gives_up)| Step::Come { taker, gives_up }),
        1 => (0..CLAIMERS_MAX).prop_map(Step::Go),
        16 => (0..CLAIMERS_MAX).prop_map(Step::Proceed),
    ];
    proptest::collection::vec(step, 1..200)
}

struct Claimer {
    number: usize,
    taker: Taker<'static>,
    gives_up: bool,
    /// The runs that were to be had when it came, and ever since.
    due: BTreeSet<RunId>,
    does: Does,
}

/// The doings of a claimer; each is left by one step.
enum Does {
    Looks,
    /// A page is on its way to the claimer whose turn it is.
    Reads {
        news: u64,
        after: ClaimPlace,
        is_whole: bool,
        feed: u64,
        page: ClaimPage,
    },
    Claims(RunId),
    Hears(RunId, Answer),
    /// The store is asked what counts for a value, and its answer is on its way.
    Asks {
        run_id: Option<RunId>,
        counts: Vec<(Arc<str>, Vec<RunId>)>,
    },
    Waits(u64, Pin<Box<OwnedNotified>>),
    Leaves,
}

enum Answer {
    Granted,
    Lost,
    Refused(Vec<RunId>),
}

struct World {
    limit: usize,
    runs: BTreeMap<ClaimPlace, Run>,
    /// The runs that count towards their value.
    counts: BTreeSet<RunId>,
    feed: VecDeque<Run>,
    backlog: Backlog,
    /// Runs that the queue keeps, about.
    runs_max: usize,
    claimers: Vec<Claimer>,
    come: usize,
    /// The runs that were told or shown, each as it was then.
    informed: BTreeMap<RunId, Run>,
    /// The claimer whose turn it is to read.
    reader: Option<usize>,
}

fn instance(run: &Run) -> &str {
    &run.labels["instance"]
}

fn executes(run: &Run) -> bool {
    run.status == Status::Running && !run.is_ready()
}

impl World {
    /// `by_bytes`: the bound is one of bytes, for about so many runs.
    fn new(limit: u32, runs_max: usize, by_bytes: bool) -> Self {
        let backlog = if by_bytes { backlog_of_bytes(runs_max * 300, limit) } else { backlog(runs_max, limit) };
        Self {
            limit: limit as usize,
            runs: BTreeMap::new(),
            counts: BTreeSet::new(),
            feed: VecDeque::new(),
            backlog,
            runs_max,
            claimers: Vec::new(),
            come: 0,
            informed: BTreeMap::new(),
            reader: None,
        }
    }

    fn running(&self, value: &str) -> Vec<RunId> {
        let of_value = self.runs.values().filter(|run| instance(run) == value && self.counts.contains(&run.run_id));
        of_value.map(|run| run.run_id.clone()).collect()
    }

    fn has_room(&self, run: &Run) -> bool {
        self.running(instance(run)).len() < self.limit
    }

    fn happens(&mut self, run: Run, counts: bool) {
        if counts {
            self.counts.insert(run.run_id.clone());
        } else {
            self.counts.remove(&run.run_id);
        }
        self.feed.push_back(run.clone());
        self.runs.insert(ClaimPlace::new(&run), run);
    }

    fn nth(&self, number: usize, is: impl Fn(&Run) -> bool) -> Option<Run> {
        let found: Vec<&Run> = self.runs.values().filter(|run| is(run)).collect();
        found.get(number % found.len().max(1)).map(|run| (*run).clone())
    }

    /// The runs that a claimer could be granted now, if all claims that are on their way are granted.
    fn to_be_had(&self, Taker { agent_id, agents }: Taker<'_>) -> BTreeSet<RunId> {
        let is_own = |run: &Run| agent_id.is_none() || run.agent_id.is_none() || run.agent_id.as_deref() == agent_id;
        let writes = |run: &Run| run.agent_id.as_deref().is_none_or(|owner| agents.contains(owner));
        let is_for = |run: &Run| is_own(run) || (run.is_for_any_worker() && writes(run));
        let is_out = |run: &Run| self.backlog.handed_out.contains_key(&run.run_id);
        let has_room = |run: &Run| {
            let counts = |other: &&Run| self.counts.contains(&other.run_id) || is_out(other);
            let of_value = self.runs.values().filter(|other| instance(other) == instance(run));
            of_value.filter(counts).count() < self.limit
        };
        let runs = self.runs.values().filter(|run| run.awaits_claim() && is_for(run) && has_room(run) && !is_out(run));
        runs.map(|run| run.run_id.clone()).collect()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Start { at, value, owner } => {
                let run = pending(at, VALUES[value], OWNERS.get(owner).copied().flatten());
                if !self.runs.contains_key(&ClaimPlace::new(&run)) {
                    self.happens(run, false);
                }
            }
            Step::ClaimElsewhere(number) => {
                if let Some(run) = self.nth(number, |run| run.awaits_claim() && self.has_room(run)) {
                    self.claim(run);
                }
            }
            Step::End(number) => {
                if let Some(run) = self.nth(number, executes) {
                    self.happens(ended(&run), false);
                }
            }
            Step::GiveBack(number) => {
                if let Some(run) = self.nth(number, executes) {
                    self.happens(ready(&run), false);
                }
            }
            Step::Resume(number) => {
                if let Some(run) = self.nth(number, executes) {
                    self.happens(resumed(&run), false);
                }
            }
            Step::Tell => self.tell(),
            Step::Cut => {
                self.feed.clear();
                self.informed.clear();
                self.backlog.begin_feed();
            }
            Step::Come { taker, gives_up } if self.claimers.len() < CLAIMERS_MAX => {
                self.come += 1;
                let (number, taker) = (self.come, takers()[taker]);
                let due = self.to_be_had(taker);
                self.claimers.push(Claimer { number, taker, gives_up, due, does: Does::Looks });
            }
            Step::Go(number) if number < self.claimers.len() => {
                let claimer = self.claimers.remove(number);
                let run_id = match claimer.does {
                    Does::Claims(run_id) | Does::Hears(run_id, _) | Does::Asks { run_id: Some(run_id), .. } => {
                        Some(run_id)
                    }
                    Does::Looks | Does::Reads { .. } | Does::Asks { .. } | Does::Waits(..) | Does::Leaves => None,
                };
                if let Some(run_id) = run_id {
                    self.backlog.give_up(&run_id);
                }
                self.leave(claimer.number);
            }
            Step::Proceed(number) if number < self.claimers.len() => {
                let mut claimer = self.claimers.remove(number);
                let does = std::mem::replace(&mut claimer.does, Does::Looks);
                claimer.does = self.proceed(&claimer, does);
                if matches!(claimer.does, Does::Leaves) {
                    self.leave(claimer.number);
                } else {
                    self.claimers.insert(number, claimer);
                }
            }
            Step::Come { .. } | Step::Go(_) | Step::Proceed(_) => {}
        }
        self.look_at_what_is_due();
        self.look_at_the_index();
    }

    fn tell(&mut self) {
        let Some(run) = self.feed.pop_front() else { return };
        self.inform(&run);
        self.backlog.tell(&run);
    }

    fn inform(&mut self, run: &Run) {
        if self.informed.get(&run.run_id).is_some_and(|known| known.revision > run.revision) {
            return;
        }
        self.informed.insert(run.run_id.clone(), run.clone());
    }

    fn leave(&mut self, number: usize) {
        self.reader.take_if(|reader| *reader == number);
        self.backlog.news().told.notify_one();
    }

    fn claim(&mut self, run: Run) {
        let mut run = Run { status: Status::Running, revision: run.revision.next(), ..run };
        run.supervision.ready = None;
        if let Some(refinements) = &mut run.refinements {
            refinements.rest.suspension = None;
        }
        self.happens(run, true);
    }

    /// As [`Claims::next`](crate::claims::Claims::next) and the queue go on.
    fn proceed(&mut self, claimer: &Claimer, does: Does) -> Does {
        let taker = claimer.taker;
        match does {
            Does::Looks => {
                if let Some(run_id) = self.backlog.take(taker, &ClaimPlace::start()) {
                    return self.handed(run_id, taker);
                }
                if *self.reader.get_or_insert(claimer.number) != claimer.number {
                    return Does::Looks;
                }
                let (after, news) = self.backlog.begin_walk(taker, false);
                self.read(claimer, news, after, false)
            }
            Does::Reads { news, after, is_whole, feed, page } => {
                if feed == self.backlog.feed {
                    page.runs.iter().for_each(|run| self.inform(run));
                }
                let (found, after) = self.backlog.end_page(&after, feed, page, taker);
                match found {
                    Some(run_id) => {
                        self.reader = None;
                        self.handed(run_id, taker)
                    }
                    None => self.read(claimer, news, after, is_whole),
                }
            }
            Does::Claims(run_id) => {
                let run = self.runs.values().find(|run| run.run_id == run_id).cloned().unwrap();
                let running = self.running(instance(&run));
                let answer = if !run.awaits_claim() {
                    Answer::Lost
                } else if running.len() >= self.limit {
                    Answer::Refused(running)
                } else {
                    self.claim(run);
                    Answer::Granted
                };
                Does::Hears(run_id, answer)
            }
            Does::Hears(run_id, Answer::Granted) => {
                self.informed.remove(&run_id);
                self.backlog.decided(&run_id, Outcome::Claimed);
                Does::Leaves
            }
            Does::Hears(run_id, Answer::Lost) => {
                self.informed.remove(&run_id);
                self.backlog.decided(&run_id, Outcome::Lost);
                Does::Looks
            }
            Does::Hears(run_id, Answer::Refused(running)) => {
                let value = self.backlog.refused(&run_id, &running).unwrap();
                let running = self.running(&value);
                Does::Asks { run_id: Some(run_id), counts: vec![(value, running)] }
            }
            Does::Asks { run_id, counts } => {
                for (value, running) in counts {
                    self.backlog.counts_at_most(&value, &running);
                }
                if let Some(run_id) = run_id {
                    self.backlog.decided(&run_id, Outcome::Waits);
                    return Does::Looks;
                }
                self.reader = None;
                if let Some(run_id) = self.backlog.take(taker, &ClaimPlace::start()) {
                    return self.handed(run_id, taker);
                }
                let is_long = self.backlog.unread_after != ClaimPlace::end();
                assert!(is_long || claimer.due.is_empty(), "{:?} were to be had", claimer.due);
                Does::Leaves
            }
            Does::Waits(news, mut told) => {
                if told.as_mut().enable() {
                    self.wait(news)
                } else {
                    Does::Waits(news, told)
                }
            }
            Does::Leaves => Does::Leaves,
        }
    }

    /// A claimer was handed a run. Of runs that are not kept, an older one may have come to be had after it was read.
    fn handed(&mut self, run_id: RunId, taker: Taker<'_>) -> Does {
        let place = self.backlog.handed_out[&run_id].place.clone();
        let older = self.runs.values().filter(|run| ClaimPlace::new(run) < place && run.awaits_claim());
        for run in older.filter_map(|run| self.informed.get(&run.run_id).filter(|told| told.awaits_claim())) {
            let lane = Lane::of(run, Some("instance"));
            let has_room = self.backlog.lanes.counted.has_room(lane.value.as_ref(), lane.keeps_slot.as_ref());
            // The value of the run that was handed out had room before.
            let is_its = self.backlog.handed_out[&run_id].lane.value == lane.value;
            let is_out = self.backlog.handed_out.contains_key(&run.run_id);
            let is_kept = self.runs_max > 4 || self.backlog.lanes.runs().contains_key(&ClaimPlace::new(run));
            let is_older = lane.is_for(taker) && (has_room || is_its) && !is_out && is_kept;
            assert!(!is_older, "{run_id} was handed out before {}", run.run_id);
        }
        Does::Claims(run_id)
    }

    /// Reads on, in this claimer's turn.
    fn read(&mut self, claimer: &Claimer, news: u64, mut after: ClaimPlace, mut is_whole: bool) -> Does {
        if after == ClaimPlace::end() {
            self.backlog.end_walk(claimer.taker, news);
            if !claimer.gives_up {
                self.reader = None;
                return self.wait(news);
            }
            if is_whole {
                let counts = self.backlog.full().into_iter().map(|value| (value.clone(), self.running(&value)));
                return Does::Asks { run_id: None, counts: counts.collect() };
            }
            (after, is_whole) = (ClaimPlace::start(), true);
        }
        let mut waiting = self.runs.values().filter(|run| ClaimPlace::new(run) > after && run.awaits_claim()).cloned();
        let runs: Vec<Run> = waiting.by_ref().take(PAGE_RUNS_MAX).collect();
        let next = waiting.next().and(runs.last()).map(ClaimPlace::new);
        let feed = self.backlog.begin_page();
        Does::Reads { news, after, is_whole, feed, page: ClaimPage { runs, next } }
    }

    fn wait(&mut self, news: u64) -> Does {
        if self.backlog.news().count != news {
            return Does::Looks;
        }
        Does::Waits(news, waiter(&self.backlog))
    }

    fn look_at_what_is_due(&mut self) {
        let to_be_had = takers().map(|taker| self.to_be_had(taker));
        for claimer in &mut self.claimers {
            let taker = takers().iter().position(|taker| *taker == claimer.taker).unwrap();
            claimer.due.retain(|run_id| to_be_had[taker].contains(run_id));
        }
        assert!(self.backlog.lanes.runs().len() <= self.runs_max + 2 * CLAIMERS_MAX, "too many are kept");
    }

    /// The index leads to the same run as a walk over all of them.
    fn look_at_the_index(&self) {
        let Backlog { lanes, .. } = &self.backlog;
        for taker in takers() {
            let may_have = |lane: &Lane| {
                lane.is_for(taker) && lanes.counted.has_room(lane.value.as_ref(), lane.keeps_slot.as_ref())
            };
            let oldest = lanes.runs().iter().find(|(_, run)| may_have(&run.lane)).map(|(place, _)| place);
            assert_eq!(lanes.oldest(taker), oldest, "{taker:?}");
        }
    }

    /// Everything is told, and every claimer goes on until all wait.
    fn settle(&mut self) {
        let mut rounds_at_rest = 0;
        for _ in 0..1_000 {
            let is_rest = self.feed.is_empty() && self.claimers.iter().all(|it| matches!(it.does, Does::Waits(..)));
            rounds_at_rest = if is_rest { rounds_at_rest + 1 } else { 0 };
            if rounds_at_rest > CLAIMERS_MAX {
                break;
            }
            self.tell();
            (0..CLAIMERS_MAX).for_each(|number| self.step(Step::Proceed(number)));
        }
        assert!(rounds_at_rest > CLAIMERS_MAX, "somebody does not come to rest");
        for claimer in &self.claimers {
            assert_eq!(self.to_be_had(claimer.taker), BTreeSet::new(), "{:?} is forgotten", claimer.taker);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 256 } else { 20_000 }))]

    #[test]
    fn each_is_handed_the_oldest_that_may_be_had_and_nobody_who_waits_is_forgotten(
        steps in steps(),
        limit in 1..3_u32,
        runs_max in prop_oneof![Just(4_usize), Just(1_000)],
        by_bytes in any::<bool>(),
    ) {
        let mut world = World::new(limit, runs_max, by_bytes);
        for step in steps {
            world.step(step);
        }
        world.settle();
        // All running runs end, one after the other: each end lets a claimer go on that waits for it.
        while let Some(run) = world.nth(0, executes) {
            world.happens(ended(&run), false);
            world.settle();
        }
    }
}
