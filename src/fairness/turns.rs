//! Turns at a thing that few may use at once.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::{CallerKey, Party};

/// The time in which half of a caller's use is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(2);

/// The length of a caller's line below which calls that have gone may stay in its middle.
const TIDY_MIN: usize = 64;

/// Seconds of use of late above which a caller's turns count as long. A caller that uses a twentieth of a turn all the
/// time comes to as much.
const MUCH_USE_SECONDS: f64 = 0.15;

/// Callers whose use is remembered, at most: above, newcomers are forgotten, and then those that used the least.
const CALLERS_MAX: usize = 1_024;

/// The time for which a caller that was not proven is a newcomer, from its first turn on. What it uses counts for all
/// newcomers together: a new connection costs nothing, so that its having used nothing says nothing of its caller.
const NEW_FOR: Duration = Duration::from_secs(4);

/// Turns, of which each caller has half at once at most, short ones and long ones each.
///
/// Of the callers that wait, the one is next that has used the least time of late: of its namespace and of the caller
/// itself, whichever has used more, since a caller may have many namespaces. Of one namespace, the proven identity is next
/// that has; and then the connection and the agent. So a caller that asks rarely waits for turns that were begun and for
/// no queue, however many others ask all the time.
///
/// Newcomers have one account: each comes after whoever has used less than all of them together, and among themselves
/// they come in the order of their arrival. A connection by which a known agent is named is none.
///
/// Of several turns, one is kept for what is short: long turns, and those of callers that have used much of late, are
/// together all but one of them.
#[derive(Debug)]
pub struct Turns {
    own_max: usize,
    long_max: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// The long turns that are under way.
    long: usize,
    /// The calls that wait, of each caller.
    waiting: HashMap<(CallerKey, Length), Line>,
    /// The number of calls that have waited.
    arrivals: u64,
    users: HashMap<Party, Usage>,
    newcomers: Seconds,
}

/// How long a turn may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Length {
    /// It ends soon, or nobody knows.
    Short,
    /// Others would feel it.
    Long,
}

/// The calls of one caller that wait, in the order of their arrival.
#[derive(Debug, Default)]
struct Line {
    calls: VecDeque<Waiting>,
    /// The length at which calls that have gone are taken out of the middle.
    tidy_at: usize,
}

#[derive(Debug)]
struct Waiting {
    arrival: u64,
    /// Takes the turn to the call, unless it has gone.
    turn: oneshot::Sender<Turn>,
}

impl Line {
    fn push(&mut self, waiting: Waiting) {
        if self.calls.len() >= self.tidy_at {
            self.calls.retain(|waiting| !waiting.turn.is_closed());
            self.tidy_at = (2 * self.calls.len()).max(TIDY_MIN);
        }
        self.calls.push_back(waiting);
    }

    /// The arrival of the first call that still waits.
    fn first(&mut self) -> Option<u64> {
        while self.calls.front().is_some_and(|waiting| waiting.turn.is_closed()) {
            self.calls.pop_front();
        }
        self.calls.front().map(|waiting| waiting.arrival)
    }
}

/// A call that is to have a turn now.
struct Next {
    caller: CallerKey,
    /// [`Length::Long`] also for a caller that has used much.
    length: Length,
    call: oneshot::Sender<Turn>,
}

/// Seconds of turns, of which half is forgotten in each [`HALF_LIFE`] up to `at`.
#[derive(Clone, Copy, Debug)]
struct Seconds {
    seconds: f64,
    at: Instant,
}

impl Seconds {
    fn none(at: Instant) -> Self {
        Self { seconds: 0.0, at }
    }

    fn now(&self, now: Instant) -> f64 {
        self.seconds * (-(now - self.at).as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
    }

    fn add(&mut self, time: Duration, now: Instant) {
        *self = Self { seconds: self.now(now) + time.as_secs_f64(), at: now };
    }
}

#[derive(Clone, Copy, Debug)]
struct Usage {
    /// The beginning of the first turn that is remembered.
    since: Instant,
    /// Turns that are under way.
    short: usize,
    long: usize,
    seconds: Seconds,
}

impl Usage {
    fn turns(&self, length: Length) -> usize {
        match length {
            Length::Short => self.short,
            Length::Long => self.long,
        }
    }

    fn turns_mut(&mut self, length: Length) -> &mut usize {
        match length {
            Length::Short => &mut self.short,
            Length::Long => &mut self.long,
        }
    }

    fn is_under_way(&self) -> bool {
        self.short + self.long > 0
    }

    fn is_new(&self, now: Instant) -> bool {
        now - self.since < NEW_FOR
    }
}

impl Turns {
    /// So many turns at once.
    #[must_use]
    pub fn new(turns: usize) -> Arc<Self> {
        let state = State {
            free: turns,
            long: 0,
            waiting: HashMap::new(),
            arrivals: 0,
            users: HashMap::new(),
            newcomers: Seconds::none(Instant::now()),
        };
        let (own_max, long_max) = (turns.div_ceil(2), turns.saturating_sub(1).max(1));
        Arc::new(Self { own_max, long_max, state: Mutex::new(state) })
    }

    /// Waits for a turn, which lasts until the value is dropped.
    ///
    /// # Errors
    ///
    /// There was no turn in time: the time for which the caller has waited.
    pub async fn turn(self: &Arc<Self>, caller: CallerKey, wait_max: Duration) -> Result<Turn, Duration> {
        self.turn_of(caller, Length::Short, wait_max).await
    }

    /// Waits for a turn that others would feel.
    ///
    /// # Errors
    ///
    /// See [`turn`](Self::turn).
    pub async fn long_turn(self: &Arc<Self>, caller: CallerKey, wait_max: Duration) -> Result<Turn, Duration> {
        self.turn_of(caller, Length::Long, wait_max).await
    }

    async fn turn_of(
        self: &Arc<Self>,
        caller: CallerKey,
        length: Length,
        wait_max: Duration,
    ) -> Result<Turn, Duration> {
        let (turn, mut given) = oneshot::channel();
        self.state().arrives((caller, length), turn);
        let until = Instant::now() + wait_max;
        loop {
            let again = self.give_to((caller, length));
            match timeout_at(again.map_or(until, |again| again.min(until)), &mut given).await {
                Ok(turn) => return Ok(turn.expect("a call that waits is forgotten only when it has gone")),
                Err(_elapsed) if Instant::now() < until => {}
                Err(_elapsed) => {
                    given.close();
                    // The turn may have come just now.
                    return given.try_recv().map_err(|_none| wait_max);
                }
            }
        }
    }

    /// Gives a caller a free turn, if it may have one: whoever came before may not, or the turn would not be free. Answers
    /// when so much of the caller's use is forgotten that it may have a turn which is kept from it now.
    fn give_to(self: &Arc<Self>, line: (CallerKey, Length)) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.state();
        let used = state.used(line.0, now);
        let next = state.may_begin(self, line, used).and_then(|as_long| state.take(line, as_long));
        let given = next.map(|next| self.begin(&mut state, next, now));
        drop(state);
        if let Some((call, turn)) = given {
            let _gone = call.send(turn);
        }
        let halves = (used.by_caller() / MUCH_USE_SECONDS).log2();
        (line.1 == Length::Short && halves > 0.0).then(|| now + HALF_LIFE.mul_f64(halves) + Duration::from_millis(1))
    }

    fn begin(
        self: &Arc<Self>,
        state: &mut State,
        Next { caller, length, call }: Next,
        now: Instant,
    ) -> (oneshot::Sender<Turn>, Turn) {
        let is_new = state.is_new(caller, now);
        state.begin(caller, length, now);
        (call, Turn { turns: self.clone(), caller, length, is_new, since: now })
    }

    /// Gives free turns to calls that wait.
    fn give(self: &Arc<Self>) {
        let (mut given, now) = (Vec::new(), Instant::now());
        let mut state = self.state();
        while let Some(next) = state.next(self, now) {
            given.push(self.begin(&mut state, next, now));
        }
        drop(state);
        for (call, turn) in given {
            // A call that has gone meanwhile drops its turn, and so gives it to the next one.
            let _gone = call.send(turn);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn arrives(&mut self, line: (CallerKey, Length), turn: oneshot::Sender<Turn>) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        self.waiting.entry(line).or_default().push(Waiting { arrival, turn });
    }

    /// The call that is next, if there is one whose caller may have another turn. Callers whose calls have all gone are
    /// forgotten. The cost grows with the callers that wait and not with their calls.
    fn next(&mut self, turns: &Turns, now: Instant) -> Option<Next> {
        if self.free == 0 {
            return None;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut next: Option<(Used, u64, (CallerKey, Length), Length)> = None;
        waiting.retain(|&key, line| {
            let Some(arrival) = line.first() else { return false };
            let used = self.used(key.0, now);
            // Of those that have used the same, the first that came.
            let is_before =
                |(least, first, ..): (Used, u64, _, _)| used.compare(&least).then(arrival.cmp(&first)).is_lt();
            if next.is_none_or(is_before)
                && let Some(as_long) = self.may_begin(turns, key, used)
            {
                next = Some((used, arrival, key, as_long));
            }
            true
        });
        self.waiting = waiting;
        next.and_then(|(_, _, key, as_long)| self.take(key, as_long))
    }

    fn used(&self, caller: CallerKey, now: Instant) -> Used {
        let seconds = |party: Option<Party>| {
            party.and_then(|party| self.users.get(&party)).map_or(0.0, |usage| usage.seconds.now(now))
        };
        Used {
            namespace: seconds(Some(caller.namespace())),
            identity: caller.subject.map(|subject| seconds(Some(Party::Subject(subject)))),
            name: seconds(Some(caller.connection())).max(seconds(caller.agent())),
            newcomers: if self.is_new(caller, now) { self.newcomers.now(now) } else { 0.0 },
        }
    }

    /// Whether nothing is known of a caller: it was not proven, and both its connection and its agent are new. The
    /// authority itself is known.
    fn is_new(&self, caller: CallerKey, now: Instant) -> bool {
        let is_known = |party: Party| self.users.get(&party).is_some_and(|usage| !usage.is_new(now));
        caller.subject.is_none() && caller != CallerKey::AUTHORITY && !caller.parties().any(is_known)
    }

    /// Whether a caller that has used so much may have a turn of those that are free, and as which it counts.
    fn may_begin(&self, turns: &Turns, (caller, length): (CallerKey, Length), used: Used) -> Option<Length> {
        let as_long = if used.by_caller() > MUCH_USE_SECONDS { Length::Long } else { length };
        let is_free = self.free > 0 && (as_long == Length::Short || self.long < turns.long_max);
        let mut usages = caller.parties().filter_map(|party| self.users.get(&party));
        (is_free && usages.all(|usage| usage.turns(as_long) < turns.own_max)).then_some(as_long)
    }

    /// Takes the first call of a line that still waits.
    fn take(&mut self, key: (CallerKey, Length), as_long: Length) -> Option<Next> {
        let line = self.waiting.get_mut(&key)?;
        let _arrival = line.first()?;
        let call = line.calls.pop_front()?.turn;
        if line.calls.is_empty() {
            self.waiting.remove(&key);
        }
        Some(Next { caller: key.0, length: as_long, call })
    }

    fn begin(&mut self, caller: CallerKey, length: Length, now: Instant) {
        self.free -= 1;
        self.long += usize::from(length == Length::Long);
        for party in users_of(caller) {
            let new = || Usage { since: now, short: 0, long: 0, seconds: Seconds::none(now) };
            let usage = self.users.entry(party).or_insert_with(new);
            *usage.turns_mut(length) += 1;
        }
    }

    fn end(&mut self, &Turn { caller, length, is_new, since, .. }: &Turn) {
        self.free += 1;
        self.long -= usize::from(length == Length::Long);
        let now = Instant::now();
        for party in users_of(caller) {
            if let Some(usage) = self.users.get_mut(&party) {
                usage.seconds.add(now - since, now);
                *usage.turns_mut(length) -= 1;
            }
        }
        if is_new {
            self.newcomers.add(now - since, now);
        }
        self.tidy(now);
    }

    /// Forgets callers, where there are too many. Who is forgotten is a newcomer the next time.
    fn tidy(&mut self, now: Instant) {
        if self.users.len() <= CALLERS_MAX {
            return;
        }
        let is_anonymous = |party: &Party| matches!(party, Party::Connection(_) | Party::Agent(_));
        self.users.retain(|party, usage| usage.is_under_way() || !is_anonymous(party) || !usage.is_new(now));
        if self.users.len() <= CALLERS_MAX {
            return;
        }
        let mut least: Vec<f64> = self.users.values().map(|usage| usage.seconds.now(now)).collect();
        let (_, median, _) = least.select_nth_unstable_by(CALLERS_MAX / 2, f64::total_cmp);
        let median = *median;
        self.users.retain(|_, usage| usage.is_under_way() || usage.seconds.now(now) > median);
    }
}

/// All for which the use of a turn counts.
fn users_of(caller: CallerKey) -> impl Iterator<Item = Party> {
    let named = [caller.agent(), caller.subject.map(Party::Subject)].into_iter().flatten();
    [caller.connection(), caller.namespace()].into_iter().chain(named)
}

/// Seconds of late.
#[derive(Clone, Copy, Debug)]
struct Used {
    namespace: f64,
    /// By the identity, where it was proven.
    identity: Option<f64>,
    /// By the connection or the agent, whichever has used more.
    name: f64,
    /// By all newcomers, where the caller is one.
    newcomers: f64,
}

impl Used {
    /// Who has used less comes first.
    fn compare(&self, other: &Self) -> Ordering {
        let by_any = |used: &Self| used.namespace.max(used.identity.unwrap_or(used.by_name()));
        let by_identity = |used: &Self| used.identity.unwrap_or(0.0);
        by_any(self)
            .total_cmp(&by_any(other))
            .then(self.namespace.total_cmp(&other.namespace))
            .then(by_identity(self).total_cmp(&by_identity(other)))
            .then(self.by_name().total_cmp(&other.by_name()))
    }

    /// What counts for a name, in the order of the turns.
    fn by_name(&self) -> f64 {
        self.name.max(self.newcomers)
    }

    /// What the caller itself has used. The account of newcomers makes nobody's turns long: a short one stays short.
    fn by_caller(&self) -> f64 {
        self.identity.unwrap_or(0.0).max(self.name)
    }
}

/// The use of a thing by one call, until the value is dropped.
#[derive(Debug)]
pub struct Turn {
    turns: Arc<Turns>,
    caller: CallerKey,
    length: Length,
    /// The caller was a newcomer when it began.
    is_new: bool,
    since: Instant,
}

impl Turn {
    /// The time up to now was spent waiting, and is not counted as use.
    pub fn begins_now(&mut self) {
        self.since = Instant::now();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.state().end(self);
        self.turns.give();
    }
}

#[cfg(test)]
mod tests;
