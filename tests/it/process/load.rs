//! Callers that remember what they were told, and hold every later answer against it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::calls::{Answer, Step, send, send_all};
use super::data::Contents;
use super::server::{Client, SOON, Server, eventually, hasty};

/// Runs whose calls one caller sends in one list.
const LIVES_IN_A_LIST: usize = 5;

/// A caller that was told to come back comes back after this.
const PAUSE: Duration = Duration::from_millis(20);

/// The servers to call, as they come and go.
pub(crate) type Targets = watch::Receiver<Vec<SocketAddr>>;

/// One call, and what became of it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) run_id: String,
    pub(crate) step: Step,
    pub(crate) request_id: String,
    /// One for each time that it was sent.
    pub(crate) answers: Vec<Answer>,
    /// The longest that one of them took.
    pub(crate) slowest: Duration,
    /// The time at which the call was first sent.
    pub(crate) sent: Option<Instant>,
    /// The time at which the call was first known to be applied.
    pub(crate) answered: Option<Instant>,
}

impl Call {
    pub(crate) fn new(run_id: &str, step: Step, request_id: String) -> Self {
        let run_id = run_id.to_owned();
        Self { run_id, step, request_id, answers: Vec::new(), slowest: Duration::ZERO, sent: None, answered: None }
    }

    fn may_be_applied(&self) -> bool {
        self.answers.iter().any(|answer| matches!(answer, Answer::Unknown(_) | Answer::Cut(_)))
    }

    /// The revision that it was told to have made.
    pub(crate) fn acknowledged(&self) -> Option<u64> {
        self.answers.iter().rev().find_map(|answer| match answer {
            Answer::Applied(revision) | Answer::Replayed(revision) => Some(*revision),
            Answer::NothingWritten(_) | Answer::Unknown(_) | Answer::Cut(_) => None,
        })
    }

    /// Sends it once to the server at this address, and holds the answer against what it was told before.
    pub(crate) async fn send(&mut self, address: SocketAddr, client: &mut Client) -> Option<u64> {
        let begun = Instant::now();
        self.sent.get_or_insert(begun);
        let answer = timeout(SOON, send(client, &self.run_id, self.step, &self.request_id));
        let answer = if let Ok(answer) = answer.await {
            answer
        } else {
            // A request that is handed to hyper in the moment in which its connection ends may stay there, never sent
            // and never failed (hyperium/hyper#4122). A server that is there must answer.
            let gone = TcpStream::connect(address).await.is_err();
            assert!(gone, "no answer within {SOON:?}: {self:?}");
            Answer::Cut("the server is gone".to_owned())
        };
        self.told(answer, begun)
    }

    /// Holds the answer to what was sent at this time against what it was told before.
    fn told(&mut self, answer: Answer, begun: Instant) -> Option<u64> {
        match &answer {
            Answer::Applied(_) => assert_eq!(self.acknowledged(), None, "applied twice: {self:?}"),
            Answer::Replayed(revision) => {
                let before = self.acknowledged();
                assert!(before.is_none_or(|before| before == *revision), "replayed as {revision}: {self:?}");
                assert!(
                    before.is_some() || self.may_be_applied(),
                    "replayed, although every answer said that nothing was written: {self:?}"
                );
            }
            Answer::NothingWritten(_) | Answer::Unknown(_) | Answer::Cut(_) => {}
        }
        self.slowest = self.slowest.max(begun.elapsed());
        self.answers.push(answer);
        if self.acknowledged().is_some() {
            self.answered.get_or_insert_with(Instant::now);
        }
        self.acknowledged()
    }
}

/// Callers at work.
#[derive(Debug)]
pub(crate) struct Load {
    callers: JoinSet<Vec<Call>>,
    /// No new runs.
    stop: CancellationToken,
    /// Cancelled when no call is to be sent again.
    give_up: CancellationToken,
    acknowledged: Arc<AtomicU64>,
    put_off: Arc<AtomicU64>,
}

impl Load {
    /// Callers that start, update and end runs. Three in four send a call again until it is acknowledged, of which one
    /// sends the calls of several runs in one list; the others leave it at the first answer that is none, and go on with
    /// another run.
    pub(crate) fn start(name: &'static str, callers: usize, targets: &Targets) -> Self {
        Self::of(name, callers, targets, life, |number| number % 4 == 1)
    }

    /// The same without lists: each caller has one call on its way.
    pub(crate) fn one_by_one(name: &'static str, callers: usize, targets: &Targets) -> Self {
        Self::of(name, callers, targets, life, |_| false)
    }

    /// The same by calls that the release before has as well.
    pub(crate) fn known_before(name: &'static str, callers: usize, targets: &Targets) -> Self {
        let is_known = |step: &Step| !matches!(step, Step::Suspend | Step::Resume);
        let life = move |number| life(number).into_iter().filter(is_known).collect();
        Self::of(name, callers, targets, life, |_| false)
    }

    fn of(
        name: &'static str,
        callers: usize,
        targets: &Targets,
        life: impl Fn(usize) -> Vec<Step> + Copy + Send + Sync + 'static,
        sends_lists: fn(usize) -> bool,
    ) -> Self {
        let mut load = Self::none();
        for number in 0..callers {
            let mut caller = load.caller(targets, number, number % 4 != 3);
            let stop = load.stop.clone();
            load.callers.spawn(async move {
                for round in 0.. {
                    if stop.is_cancelled() {
                        break;
                    }
                    if sends_lists(number) {
                        let run_id = |n: usize| format!("{name}-{number}-{round}-{n}");
                        let lives = (0..LIVES_IN_A_LIST).map(|n| (run_id(n), life(number + round + n)));
                        caller.run_all(lives.collect()).await;
                    } else {
                        caller.run(&format!("{name}-{number}-{round}"), life(number + round)).await;
                    }
                }
                caller.calls
            });
        }
        load
    }

    /// The same with runs that are as large as they may be, and with many updates each.
    pub(crate) fn heavy(callers: usize, targets: &Targets) -> Self {
        let mut load = Self::none();
        for number in 0..callers {
            let mut caller = load.caller(targets, number, true);
            let stop = load.stop.clone();
            load.callers.spawn(async move {
                for round in 0.. {
                    if stop.is_cancelled() {
                        break;
                    }
                    let steps = [Step::Start, Step::Bulk].into_iter().chain((0..30).map(Step::Update));
                    caller.run(&format!("heavy-{number}-{round}"), steps.chain([Step::Complete])).await;
                }
                caller.calls
            });
        }
        load
    }

    /// One caller that updates one run until it is stopped, and then completes it.
    pub(crate) fn story(run_id: &'static str, targets: &Targets) -> Self {
        let mut load = Self::none();
        let mut caller = load.caller(targets, 0, true);
        let stop = load.stop.clone();
        load.callers.spawn(async move {
            let updates = (0..).take_while(|_| !stop.is_cancelled());
            let updates =
                updates.map(|number| if number % 5 == 4 { Step::Leave(number) } else { Step::Update(number) });
            let steps = [Step::Start].into_iter().chain(updates).chain([Step::Complete]);
            caller.run(run_id, steps).await;
            caller.calls
        });
        load
    }

    fn none() -> Self {
        Self {
            callers: JoinSet::new(),
            stop: CancellationToken::new(),
            give_up: CancellationToken::new(),
            acknowledged: Arc::default(),
            put_off: Arc::default(),
        }
    }

    fn caller(&self, targets: &Targets, number: usize, persistent: bool) -> Caller {
        Caller {
            targets: targets.clone(),
            number,
            persistent,
            give_up: self.give_up.clone(),
            acknowledged: self.acknowledged.clone(),
            put_off: self.put_off.clone(),
            clients: HashMap::new(),
            calls: Vec::new(),
        }
    }

    /// Calls acknowledged so far.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until so many more calls were acknowledged, as long as some are.
    pub(crate) async fn progresses(&mut self, by: u64) {
        let mut acknowledged = self.acknowledged();
        let goal = acknowledged + by;
        while acknowledged < goal {
            let more = || Some(self.acknowledged()).filter(|now| *now > acknowledged);
            let more = eventually(SOON, async || more()).await;
            acknowledged = more.unwrap_or_else(|| panic!("{acknowledged} of {goal} calls, and no more in {SOON:?}"));
        }
    }

    /// Waits until so many more answers were no acknowledgements.
    pub(crate) async fn is_put_off(&mut self, by: u64) {
        let goal = self.put_off.load(Ordering::Relaxed) + by;
        let reached = async || (self.put_off.load(Ordering::Relaxed) >= goal).then_some(());
        assert!(eventually(SOON, reached).await.is_some(), "nobody was put off");
    }

    /// Lets every caller end its run, and gives all calls. The calls that persist were all acknowledged.
    pub(crate) async fn finish(self) -> Vec<Call> {
        self.stop.cancel();
        joined(self.callers).await
    }

    /// The same when no server answers any more: no call is sent again.
    pub(crate) async fn give_up(self) -> Vec<Call> {
        self.give_up.cancel();
        self.finish().await
    }
}

async fn joined(mut callers: JoinSet<Vec<Call>>) -> Vec<Call> {
    let mut calls = Vec::new();
    while let Some(ended) = callers.join_next().await {
        match ended {
            Ok(more) => calls.extend(more),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    calls
}

struct Caller {
    targets: Targets,
    number: usize,
    persistent: bool,
    give_up: CancellationToken,
    acknowledged: Arc<AtomicU64>,
    put_off: Arc<AtomicU64>,
    clients: HashMap<SocketAddr, Client>,
    calls: Vec<Call>,
}

impl Caller {
    /// Takes a run through its steps, as long as each is acknowledged.
    async fn run(&mut self, run_id: &str, steps: impl IntoIterator<Item = Step>) {
        for (revision, step) in (1..).zip(steps) {
            let request_id = format!("{run_id}/{revision}");
            let mut call = Call::new(run_id, step, request_id);
            self.perform(&mut call).await;
            let made = call.acknowledged();
            assert!(made.is_none_or(|made| made == revision), "revision {revision} was to be made: {call:?}");
            self.calls.push(call);
            if made.is_none() {
                return;
            }
        }
    }

    /// Takes runs through their steps by lists of all that is not acknowledged, those of one run in their order.
    async fn run_all(&mut self, lives: Vec<(String, Vec<Step>)>) {
        let mut calls = Vec::new();
        for (run_id, steps) in &lives {
            let steps = steps.iter().filter(|step| **step != Step::Resume);
            let named = (1..).zip(steps).map(|(revision, step)| (revision, *step, format!("{run_id}/{revision}")));
            calls.extend(named.map(|(revision, step, request_id)| (revision, Call::new(run_id, step, request_id))));
        }
        let (deadline, mut attempt) = (Instant::now() + SOON * 2, 0);
        while calls.iter().any(|(_, call)| call.acknowledged().is_none()) && !self.give_up.is_cancelled() {
            let address = self.address(attempt);
            attempt += 1;
            let client = self.clients.entry(address).or_insert_with(|| hasty(address));
            let mut left: Vec<_> = calls.iter_mut().filter(|(_, call)| call.acknowledged().is_none()).collect();
            let begun = Instant::now();
            for (_, call) in &mut left {
                call.sent.get_or_insert(begun);
            }
            let list: Vec<_> =
                left.iter().map(|(_, call)| (call.run_id.as_str(), call.step, call.request_id.as_str())).collect();
            let answers = if let Ok(answers) = timeout(SOON, send_all(client, &list)).await {
                answers
            } else {
                assert!(TcpStream::connect(address).await.is_err(), "no answer within {SOON:?}: {list:?}");
                vec![Answer::Cut("the server is gone".to_owned()); list.len()]
            };
            for ((revision, call), answer) in left.into_iter().zip(answers) {
                match call.told(answer, begun) {
                    Some(made) => {
                        assert_eq!(made, *revision, "{call:?}");
                        self.acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                    None => _ = self.put_off.fetch_add(1, Ordering::Relaxed),
                }
            }
            if calls.iter().any(|(_, call)| call.acknowledged().is_none()) {
                sleep(PAUSE).await;
                assert!(Instant::now() < deadline, "the service did not come back: {calls:?}");
            }
        }
        self.calls.extend(calls.into_iter().map(|(_, call)| call));
    }

    fn address(&self, attempt: usize) -> SocketAddr {
        let targets = self.targets.borrow();
        targets[(self.number + attempt) % targets.len()]
    }

    async fn perform(&mut self, call: &mut Call) {
        let deadline = Instant::now() + SOON * 2;
        loop {
            let address = self.address(call.answers.len());
            let client = self.clients.entry(address).or_insert_with(|| hasty(address));
            if call.send(address, client).await.is_some() {
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.put_off.fetch_add(1, Ordering::Relaxed);
            if self.give_up.is_cancelled() {
                return;
            }
            sleep(PAUSE).await;
            if !self.persistent {
                return;
            }
            assert!(Instant::now() < deadline, "the service did not come back: {call:?}");
        }
    }
}

/// A run's life; one in seven never ends, and some wait for a while, or to the end.
fn life(number: usize) -> Vec<Step> {
    let mut steps = if number.is_multiple_of(5) { vec![Step::Defer, Step::Start] } else { vec![Step::Start] };
    steps.extend((0..number % 4).map(Step::Update));
    steps.extend(match number % 6 {
        3 => vec![Step::Suspend, Step::Resume],
        4 => vec![Step::Suspend],
        _ => Vec::new(),
    });
    steps.extend(match number % 7 {
        0 => None,
        1 => Some(Step::Abort),
        2 => Some(Step::Fail),
        _ => Some(Step::Complete),
    });
    steps
}

impl Contents {
    /// Holds the ledger against the answers to the callers: an acknowledged call is in it once and at its place; a call
    /// that was said not to be written is not; a call of unknown outcome is in it once or not at all; and the ledger
    /// has nothing else.
    pub(crate) fn agree_with(&self, calls: &[Call]) {
        let mut made: HashMap<(&str, &str), Vec<u64>> = HashMap::new();
        for event in &self.events {
            let request_id = event.request_id.as_deref().unwrap_or_default();
            made.entry((&event.key.run_id, request_id)).or_default().push(event.revision.get());
        }
        for call in calls {
            let made = made.remove(&(call.run_id.as_str(), call.request_id.as_str())).unwrap_or_default();
            match call.acknowledged() {
                Some(revision) => assert_eq!(made, [revision], "acknowledged: {call:?}"),
                None if call.may_be_applied() => assert!(made.len() <= 1, "applied as {made:?}: {call:?}"),
                None => assert!(made.is_empty(), "said not to be written, and applied as {made:?}: {call:?}"),
            }
        }
        assert!(made.is_empty(), "events that nobody asked for: {made:?}");
    }
}

/// Sends some acknowledged calls once more, until they are answered: each is replayed as it was.
pub(crate) async fn are_replayed(server: &Server, calls: &mut [Call]) {
    let mut client = server.client();
    let acknowledged = calls.iter_mut().filter(|call| call.acknowledged().is_some());
    let mut replayed = 0;
    for call in acknowledged.step_by(37).take(50) {
        // The server may be put off by its store, as it was before.
        let replayed_now = async || {
            call.send(server.address, &mut client).await;
            matches!(call.answers.last(), Some(Answer::Replayed(_))).then_some(())
        };
        assert!(eventually(SOON, replayed_now).await.is_some(), "{call:?}");
        replayed += 1;
    }
    assert!(replayed > 0, "nothing was acknowledged");
}

/// The number of calls that got an answer of this kind at least once.
pub(crate) fn answered(calls: &[Call], kind: impl Fn(&Answer) -> bool) -> usize {
    calls.iter().filter(|call| call.answers.iter().any(&kind)).count()
}

/// The longest that a call waited for an answer.
pub(crate) fn slowest(calls: &[Call]) -> &Call {
    calls.iter().max_by_key(|call| call.slowest).expect("there were calls")
}
