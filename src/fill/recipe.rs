//! The recipe for the runs of a fill: each run is made from the seed and its number alone.

use runledger_bench::filled::run_id;
use serde_json::json;

use crate::domain::{
    Agents, Ask, Command, Complete, Content, End, Ending, Labels, Link, LinksChange, Metadata, Namespace, Principal,
    Request, Route, RunKey, Start, Update,
};

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
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    seed: u64,
}

impl Recipe {
    pub(super) fn of(seed: u64) -> Self {
        Self { seed }
    }

    /// The prefix of the seed's run ids.
    pub(super) fn prefix(&self) -> String {
        format!("fill-{}-", self.seed)
    }

    /// The run with a number, from 1.
    pub(super) fn key(&self, number: u64) -> RunKey {
        RunKey { namespace: Namespace::only(), run_id: run_id(self.seed, number).into() }
    }

    /// The number of a run; none when it is not of this seed.
    pub(super) fn number(&self, run_id: &str) -> Option<u64> {
        let digits = run_id.strip_prefix(&self.prefix())?;
        let number = digits.parse().ok()?;
        (self.key(number).run_id == run_id).then_some(number)
    }

    /// The commands of a run, from its start to its end: a start, up to two updates, and an end. Every fourth run's
    /// commands have request ids.
    pub(super) fn history(&self, number: u64) -> Vec<Command> {
        let mut dice = Dice(self.seed.wrapping_mul(0x0100_0000_01b3) ^ number);
        let key = self.key(number);
        let agent_id = format!("agent-{}", dice.below(AGENTS));
        let keyed = dice.below(4) == 0;
        let updates = dice.below(3);
        let mut commands = vec![Ask::Start(self.start(number, &agent_id, &mut dice))];
        commands.extend((1..=updates).map(|step| Ask::Update(update(step, number, &mut dice))));
        commands.push(end(&mut dice, number));
        let command = |(revision, ask): (u64, Ask)| {
            let principal = Principal::claimed(agent_id.clone());
            let (key, expected_revision, request) = (key.clone(), None, None);
            let mut command = Command {
                key,
                ask,
                expected_revision,
                request,
                principal,
                agents: Agents::All,
                oversize: Vec::new(),
                prepared: crate::domain::Prepared::default(),
                trace: None,
            };
            if keyed {
                let (id, digest) = (format!("{}/{revision}", command.key.run_id), command.digest());
                command.request = Some(Request { id, digest });
            }
            command
        };
        (1..).zip(commands).map(command).collect()
    }

    fn start(&self, number: u64, agent_id: &str, dice: &mut Dice) -> Start {
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
            _ => Labels::new(),
        };
        let links = LinksChange {
            route: Some(dice.one_of(&[Route::Mcp, Route::Cli, Route::Http])),
            workflow_id: (dice.below(5) == 0).then(|| format!("workflow-{}", dice.below(WORKFLOWS))),
            ..LinksChange::default()
        };
        let refined = is_refined(number);
        let input = refined.then(|| Content::from(&object(json!({"order": number, "do": "send the invoice"}))));
        let parent = number.checked_sub(1).filter(|before| refined && *before > 0);
        Start {
            input,
            parent_run_id: parent.map(|before| self.key(before).run_id),
            task_thread_id: thread,
            agent_id: Some(agent_id.to_owned()),
            links,
            labels,
            metadata: object(metadata),
            ..Start::default()
        }
    }
}

/// One of sixteen runs has an input, a parent, and a result with a link where it completes.
fn is_refined(number: u64) -> bool {
    number.is_multiple_of(16)
}

fn update(step: u64, number: u64, dice: &mut Dice) -> Update {
    let links = LinksChange {
        audit_session_id: (dice.below(8) == 0).then(|| format!("audit-{}", number / 4)),
        tab_group_id: (step == 1).then(|| format!("tabs-{}", number % 64)),
        ..LinksChange::default()
    };
    Update { links, metadata: object(json!({"step": step})), ..Update::default() }
}

/// Four of five runs complete.
fn end(dice: &mut Dice, number: u64) -> Ask {
    let because = |reason: &str, code: &str| {
        let why = Ending { failure_reason: Some(reason.to_owned()), reason_code: Some(code.to_owned()) };
        End { why, ..End::default() }
    };
    match dice.below(10) {
        0 => Ask::Fail(because("the page did not load in time", "TIMEOUT")),
        1 => Ask::Abort(because("the user closed the tab", "USER_CANCELLED")),
        _ if is_refined(number) => Ask::Complete(Complete {
            result: Some(Content::from(&object(json!({"sent": true, "order": number})))),
            added: vec![Link {
                rel: "receipt".to_owned(),
                target: format!("https://shop.example.com/receipts/{number}"),
                sha256: None,
                media_type: Some("application/pdf".to_owned()),
                summary: None,
            }],
            ..Complete::default()
        }),
        _ => Ask::Complete(Complete::default()),
    }
}

fn object(value: serde_json::Value) -> Metadata {
    let serde_json::Value::Object(map) = value else { unreachable!("what is made here is an object") };
    Metadata::from(map)
}

/// A generator that gives the same numbers for the same run, each time.
struct Dice(u64);

impl Dice {
    /// A number from 0, below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        let index = self.below(u64::try_from(values.len()).unwrap_or(1));
        values[usize::try_from(index).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use runledger_bench::filled::RUNS_MAX;

    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn a_run_is_the_same_each_time_and_another_with_another_seed() {
        let recipe = Recipe::of(7);
        for number in [1, 2, 12_345_678, RUNS_MAX] {
            assert_eq!(recipe.history(number), Recipe::of(7).history(number));
            assert_ne!(recipe.history(number), Recipe::of(8).history(number));
            assert_eq!(recipe.number(&recipe.key(number).run_id), Some(number));
        }
        for strange in ["fill-7-", "fill-7-1", "fill-7-+000000001", "fill-8-0000000001", "run-1", "fill-7-x"] {
            assert_eq!(recipe.number(strange), None, "{strange}");
        }
    }

    #[test]
    fn ids_sort_as_numbers_do() {
        let recipe = Recipe::of(7);
        let ids: Vec<_> = [1, 9, 10, 999, 1_000, RUNS_MAX].map(|number| recipe.key(number).run_id).into();
        assert!(ids.is_sorted(), "{ids:?}");
    }

    fn start(command: &Command) -> &Start {
        let Ask::Start(start) = &command.ask else { panic!("a history begins with a start") };
        start
    }

    #[test]
    fn runs_are_as_they_are_said_to_be() {
        let recipe = Recipe::of(1);
        let histories: Vec<_> = (1..=20_000).map(|number| recipe.history(number)).collect();
        let events: usize = histories.iter().map(Vec::len).sum();
        assert!((58_000..62_000).contains(&events), "about three events a run: {events}");
        let bytes: usize = histories.iter().map(|history| start(&history[0]).metadata.bytes()).sum();
        assert!((190..230).contains(&(bytes / 20_000)), "about 200 bytes of metadata: {}", bytes / 20_000);
        let ends: BTreeSet<_> = histories.iter().map(|history| history.last().unwrap().ask.facts().rpc).collect();
        assert_eq!(ends, BTreeSet::from(["AbortRun", "CompleteRun", "FailRun"]));
        let mut threads = BTreeMap::new();
        for history in &histories {
            *threads.entry(start(&history[0]).task_thread_id.clone()).or_insert(0) += 1;
        }
        assert_eq!(threads.remove("fill-1-large-0"), Some(1_000), "one of twenty");
        assert!(threads.values().all(|runs| *runs <= 10));
        assert!(threads.len() > 1_800, "{}", threads.len());
    }
}
