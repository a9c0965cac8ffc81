//! The recipe for the runs of a fill: each run is made from the seed and its number alone.

use runledger_proto::json::structure;
use runledger_proto::v1::{
    AbortRunRequest, CompleteRunRequest, FailRunRequest, Link, Route, StartRunRequest, UpdateRunRequest,
};
use serde_json::{Value, json};

use crate::random::Random;

/// The largest number that a run's id has room for: ten digits, so that ids sort as their numbers do.
pub const RUNS_MAX: u64 = 9_999_999_999;
const NUMBER_DIGITS: usize = 10;

/// The seed of a fill that names none.
pub const SEED: u64 = 1;

/// The number of small task threads among `RUNS_OF_THREADS` consecutive runs, ten runs each. The runs of a thread lie
/// apart, as those of a slow task do.
const THREADS: u64 = 1_000;
const RUNS_OF_THREADS: u64 = 10 * THREADS;

/// Every twentieth of `RUNS_OF_A_LARGE_THREAD` consecutive runs is of one large thread, which has 100,000 runs.
const LARGE_ONE_IN: u64 = 20;
const RUNS_OF_A_LARGE_THREAD: u64 = 100_000 * LARGE_ONE_IN;

const AGENTS: u64 = 500;
const WORKFLOWS: u64 = 50;

/// The runs of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    seed: u64,
}

/// One call of a run's history.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is named as the call is")]
pub enum Call {
    Start(Box<StartRunRequest>),
    Update(Box<UpdateRunRequest>),
    Complete(Box<CompleteRunRequest>),
    Fail(Box<FailRunRequest>),
    Abort(Box<AbortRunRequest>),
}

impl Recipe {
    /// The recipe of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The id of the run with a number, from 1.
    #[must_use]
    pub fn run_id(self, number: u64) -> String {
        format!("fill-{}-{number:0NUMBER_DIGITS$}", self.seed)
    }

    /// The calls of a run, from its start to its end: a start, up to two updates, and an end. Each makes an event. Every
    /// fourth run's calls have request ids.
    #[must_use]
    pub fn history(self, number: u64) -> Vec<Call> {
        let mut dice = Dice(Random::new(self.seed.wrapping_mul(0x0100_0000_01b3) ^ number));
        let run_id = self.run_id(number);
        let agent_id = format!("agent-{}", dice.below(AGENTS));
        let keyed = dice.below(4) == 0;
        let request_id = |revision| if keyed { format!("{run_id}/{revision}") } else { String::new() };
        let updates = dice.below(3);
        let start = StartRunRequest { request_id: request_id(1), ..self.start(number, agent_id, &mut dice) };
        let mut calls = vec![Call::Start(start.into())];
        for step in 1..=updates {
            let (run_id, request_id) = (run_id.clone(), request_id(step + 1));
            let update = UpdateRunRequest { run_id, request_id, ..update(step, number, &mut dice) };
            calls.push(Call::Update(update.into()));
        }
        calls.push(end(&mut dice, number, run_id.clone(), request_id(updates + 2)));
        calls
    }

    fn start(self, number: u64, agent_id: String, dice: &mut Dice) -> StartRunRequest {
        let index = number - 1;
        let thread = if index.is_multiple_of(LARGE_ONE_IN) {
            format!("fill-{}-large-{}", self.seed, index / RUNS_OF_A_LARGE_THREAD)
        } else {
            format!("fill-{}-{}", self.seed, index / RUNS_OF_THREADS * THREADS + index % THREADS)
        };
        let metadata = json!({
            "url": format!("https://shop.example.com/orders/{number}/checkout"),
            "browser": "chromium",
            "viewport": {"width": 1280, "height": 720},
            "attempt": 1 + dice.below(3),
            "step": 0,
            "note": "the customer asked for an invoice by mail and for a later delivery",
        });
        let labels = [("team", ["web", "data", "payments"]), ("tier", ["free", "paid", "trial"])];
        let labels = match dice.below(3) {
            0 => labels.map(|(key, values)| (key.to_owned(), dice.one_of(&values).to_owned())).into(),
            _ => [].into(),
        };
        let refined = is_refined(number);
        let parent = number.checked_sub(1).filter(|before| refined && *before > 0);
        StartRunRequest {
            run_id: self.run_id(number),
            route: dice.one_of(&[Route::Mcp, Route::Cli, Route::Http]).into(),
            workflow_id: if dice.below(5) == 0 { format!("workflow-{}", dice.below(WORKFLOWS)) } else { String::new() },
            input: refined.then(|| object(json!({"order": number, "do": "send the invoice"}))),
            parent_run_id: parent.map(|before| self.run_id(before)).unwrap_or_default(),
            task_thread_id: thread,
            agent_id,
            labels,
            metadata: Some(object(metadata)),
            ..StartRunRequest::default()
        }
    }
}

/// One of sixteen runs has an input, a parent, and a result with a link where it completes.
fn is_refined(number: u64) -> bool {
    number.is_multiple_of(16)
}

fn update(step: u64, number: u64, dice: &mut Dice) -> UpdateRunRequest {
    UpdateRunRequest {
        audit_session_id: (dice.below(8) == 0).then(|| format!("audit-{}", number / 4)),
        tab_group_id: (step == 1).then(|| format!("tabs-{}", number % 64)),
        metadata: Some(object(json!({"step": step}))),
        ..UpdateRunRequest::default()
    }
}

/// Four of five runs complete.
fn end(dice: &mut Dice, number: u64, run_id: String, request_id: String) -> Call {
    match dice.below(10) {
        0 => Call::Fail(Box::new(FailRunRequest {
            run_id,
            request_id,
            failure_reason: "the page did not load in time".to_owned(),
            reason_code: "TIMEOUT".to_owned(),
            ..FailRunRequest::default()
        })),
        1 => Call::Abort(Box::new(AbortRunRequest {
            run_id,
            request_id,
            failure_reason: "the user closed the tab".to_owned(),
            reason_code: "USER_CANCELLED".to_owned(),
            ..AbortRunRequest::default()
        })),
        _ => Call::Complete(Box::new(CompleteRunRequest {
            run_id,
            request_id,
            result: is_refined(number).then(|| object(json!({"sent": true, "order": number}))),
            links: is_refined(number).then(|| receipt(number)).into_iter().collect(),
            ..CompleteRunRequest::default()
        })),
    }
}

fn receipt(number: u64) -> Link {
    Link {
        rel: "receipt".to_owned(),
        target: format!("https://shop.example.com/receipts/{number}"),
        media_type: "application/pdf".to_owned(),
        ..Link::default()
    }
}

fn object(value: Value) -> prost_types::Struct {
    let Value::Object(map) = value else { unreachable!("what is made here is an object") };
    structure(&map)
}

/// Gives the same numbers for the same run, each time.
struct Dice(Random);

impl Dice {
    /// A number from 0, below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0.within(0..end)
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        let index = self.below(u64::try_from(values.len()).unwrap_or(1));
        values[usize::try_from(index).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn a_run_is_the_same_each_time_and_another_with_another_seed() {
        let recipe = Recipe::new(7);
        for number in [1, 2, 12_345_678, RUNS_MAX] {
            assert_eq!(recipe.history(number), Recipe::new(7).history(number));
            assert_ne!(recipe.history(number), Recipe::new(8).history(number));
        }
    }

    #[test]
    fn ids_sort_as_numbers_do() {
        let ids: Vec<_> = [1, 9, 10, 999, 1_000, RUNS_MAX].map(|number| Recipe::new(7).run_id(number)).into();
        assert!(ids.is_sorted(), "{ids:?}");
    }

    fn start(history: &[Call]) -> &StartRunRequest {
        let Some(Call::Start(start)) = history.first() else { panic!("a history begins with a start") };
        start
    }

    #[test]
    fn runs_are_as_they_are_said_to_be() {
        let histories: Vec<_> = (1..=20_000).map(|number| Recipe::new(1).history(number)).collect();
        let events: usize = histories.iter().map(Vec::len).sum();
        assert!((58_000..62_000).contains(&events), "about three events a run: {events}");
        let text = |history: &Vec<Call>| runledger_proto::json::text(start(history).metadata.as_ref().unwrap()).len();
        let bytes: usize = histories.iter().map(text).sum();
        assert!((190..230).contains(&(bytes / 20_000)), "about 200 bytes of metadata: {}", bytes / 20_000);
        let ends = histories.iter().map(|history| match history.last().unwrap() {
            Call::Complete(_) => "CompleteRun",
            Call::Fail(_) => "FailRun",
            Call::Abort(_) => "AbortRun",
            Call::Start(_) | Call::Update(_) => "no end",
        });
        assert_eq!(ends.collect::<BTreeSet<_>>(), BTreeSet::from(["AbortRun", "CompleteRun", "FailRun"]));
        let mut threads = BTreeMap::new();
        for history in &histories {
            *threads.entry(start(history).task_thread_id.clone()).or_insert(0) += 1;
        }
        assert_eq!(threads.remove("fill-1-large-0"), Some(1_000), "one of twenty");
        assert!(threads.values().all(|runs| *runs <= 10));
        assert!(threads.len() > 1_800, "{}", threads.len());
    }
}
