//! The content of a load's calls: the same for Runledger as for a database that is written to directly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;

use crate::random::Random;
use crate::random::draw_id;

/// Task threads that the runs are spread over.
const TASK_THREADS: u64 = 100_000;

/// The part of metadata that does not depend on the size: as JSON without the note.
const URL: &str = "https://example.com/x";
const FRAME: usize = r#"{"note":"","url":"https://example.com/x"}"#.len();

const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The content of a run.
#[derive(Args, Clone, Debug)]
pub struct Content {
    /// Metadata of a run that is started, in bytes of JSON; 0 for none, else at least 64
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = metadata_bytes)]
    metadata_bytes: usize,
    /// Owner of the runs; empty for nobody
    #[arg(long, value_name = "AGENT", default_value = "agent-1")]
    agent_id: String,
    /// Lifecycle of the runs that are started, `NAME` or `NAME@N`
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    lifecycle: String,
    /// Phases that a run's updates set, one after the other
    #[arg(long, value_name = "PHASES", value_delimiter = ',')]
    phases: Vec<String>,
    /// Give each call that changes something a request id
    #[arg(long)]
    request_ids: bool,
    /// Send each step of so many runs as one call, `ApplyCommands`: of lifecycle and start-complete [default: one by one]
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    batch: Option<u16>,
    /// Seed of the choices of runs to read and of threads: the same seed makes the same choices
    #[arg(long, value_name = "N", default_value_t = crate::pace::SEED)]
    seed: u64,
}

fn metadata_bytes(text: &str) -> Result<usize, String> {
    let bytes = text.parse().ok().filter(|bytes| *bytes == 0 || (64..=65_536).contains(bytes));
    bytes.ok_or_else(|| "expected 0, or 64 to 65536".to_owned())
}

/// The content of all callers' calls.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The note of every run. No part of it repeats, so that no store can make it smaller than a user's own.
    pub(crate) note: Option<String>,
    pub(crate) agent_id: String,
    pub(crate) lifecycle: String,
    phases: Vec<String>,
    pub(crate) request_ids: bool,
    /// Runs whose steps are sent together; 0: each by itself.
    pub(crate) batch: usize,
    random: Random,
    /// The source of ids, of this load alone: ids of an earlier load with the same seed are taken.
    ids: Random,
    /// The number of the next caller over all rounds: it tells the draws of one round from those of the next.
    drawers: AtomicU64,
}

impl Asked {
    pub(crate) fn new(content: &Content) -> Arc<Self> {
        let Content { metadata_bytes, agent_id, lifecycle, phases, request_ids, batch, seed } = content.clone();
        let batch = batch.map_or(0, usize::from);
        let random = Random::new(seed);
        let mut letters = random.branch(u64::MAX);
        let letter = |_| LETTERS[usize::try_from(letters.within(0..LETTERS.len() as u64)).expect("an index")];
        let note = metadata_bytes.checked_sub(FRAME).map(|length| (0..length).map(letter).map(char::from).collect());
        let ids = Random::new(draw_id().as_u64_pair().1);
        Arc::new(Self {
            note,
            agent_id,
            lifecycle,
            phases,
            request_ids,
            batch,
            random,
            ids,
            drawers: AtomicU64::new(0),
        })
    }

    /// The fields of a run's metadata.
    pub(crate) fn metadata(&self) -> Option<[(&'static str, &str); 2]> {
        self.note.as_deref().map(|note| [("url", URL), ("note", note)])
    }

    /// The phase that a run's update of this number sets; empty: none.
    pub(crate) fn phase(&self, update: u32) -> String {
        usize::try_from(update).ok().and_then(|update| self.phases.get(update)).cloned().unwrap_or_default()
    }

    /// The metadata as text.
    pub(crate) fn metadata_json(&self) -> Option<Arc<str>> {
        let json = |[(url, at), (note, text)]: [(&str, &str); 2]| format!(r#"{{"{url}":"{at}","{note}":"{text}"}}"#);
        self.metadata().map(json).map(Arc::from)
    }

    /// The draws of one caller. The choices are the same each time, the ids never.
    pub(crate) fn draws(&self, caller: u64) -> Draws {
        let drawer = self.drawers.fetch_add(1, Ordering::Relaxed);
        Draws { drawer, random: self.random.branch(caller), ids: self.ids.branch(drawer), steps: 0 }
    }

    /// The id of a run that no caller starts.
    pub(crate) fn run_id(&self, number: u64) -> String {
        run_id(&mut self.ids.branch(u64::MAX - number))
    }
}

/// The random values of one caller. No caller waits for another's.
#[derive(Debug)]
pub(crate) struct Draws {
    drawer: u64,
    random: Random,
    ids: Random,
    steps: u64,
}

impl Draws {
    /// A run id that is new in every ledger.
    pub(crate) fn run_id(&mut self) -> String {
        run_id(&mut self.ids)
    }

    pub(crate) fn request_id(&mut self) -> String {
        format!("request-{:016x}", self.ids.draw())
    }

    pub(crate) fn task_thread_id(&mut self) -> String {
        format!("thread-{}", self.random.within(0..TASK_THREADS))
    }

    /// A value that no other update has, so that each update is an event.
    pub(crate) fn step(&mut self) -> String {
        self.steps += 1;
        format!("{}-{}", self.drawer, self.steps)
    }

    pub(crate) fn number_below(&mut self, end: u64) -> u64 {
        self.random.within(0..end)
    }

    /// An index below a count.
    pub(crate) fn one_of(&mut self, count: usize) -> usize {
        usize::try_from(self.number_below(count as u64)).expect("less than a count")
    }
}

fn run_id(ids: &mut Random) -> String {
    format!("run-{:016x}", ids.draw())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn content(metadata_bytes: usize) -> Content {
        let (agent_id, lifecycle, phases) = (String::new(), String::new(), Vec::new());
        Content { metadata_bytes, agent_id, lifecycle, phases, request_ids: false, batch: None, seed: 1 }
    }

    #[test]
    fn metadata_is_as_long_as_was_asked_for() {
        for bytes in [64, 200, 65_536] {
            let asked = Asked::new(&content(bytes));
            let fields: serde_json::Map<String, serde_json::Value> =
                asked.metadata().unwrap().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
            let json = asked.metadata_json().unwrap();
            assert_eq!((json.len(), serde_json::from_str(&json).ok()), (bytes, Some(fields)));
        }
        assert_eq!(Asked::new(&content(0)).metadata(), None);
    }

    #[test]
    fn a_seed_chooses_the_same_for_runs_that_are_new_each_time() {
        let (first, second) = (Asked::new(&content(64)), Asked::new(&content(64)));
        let (mut of_first, mut of_second) = (first.draws(3), second.draws(3));
        let mut again = first.draws(3);
        assert_ne!((of_first.run_id(), of_first.step()), (again.run_id(), again.step()), "of another round");
        let choices = |draws: &mut Draws| -> Vec<usize> { (0..9).map(|_| draws.one_of(1_000)).collect() };
        assert_eq!(choices(&mut of_first), choices(&mut of_second));
        assert_eq!(first.note, second.note);
        let loads = [first, second];
        let ids = loads.iter().flat_map(|asked| (0..9).map(|caller| asked.draws(caller).run_id()));
        let prepared = loads.iter().flat_map(|asked| (0..9).map(|number| asked.run_id(number)));
        assert_eq!(ids.chain(prepared).collect::<HashSet<_>>().len(), 36);
    }
}
