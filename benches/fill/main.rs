//! The runs of `runledger bench fill`, past the servers: `cargo bench --bench fill -- N STORE`. For ten million runs, for
//! which `bench fill` takes the better part of an hour.
//!
//! What is written is what servers would have written: their requests as commands, decided by the rules, committed by
//! the store. Only calls and queues are left out, and a thousand runs share a commit. Each commit has the same runs each
//! time, so that a fill goes on where the last one ended. No other program writes runs of the seed.

use std::error::Error;
use std::sync::Arc;

use runledger::auth::{Caller, Rights};
use runledger::clock::{SystemClock, draw_id};
use runledger::domain::ids::{DEFAULT_NAMESPACE, shard_of};
use runledger::domain::{Agents, Command, Principal, Rules, RunKey, Shard};
use runledger::store::{OpenOptions, Store, open};
use runledger::tasks::Supervisor;
use runledger::wire::request;
use runledger_bench::fill::recipe::{Call, Recipe, SEED};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The runs of one commit, during which servers wait for the shard's head.
const COMMIT_RUNS: usize = 1_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    // `cargo bench` without a name asks every bench, and names no store; a flag is one of the other bench's.
    let (runs, store) = match words.as_slice() {
        [runs, store] if !runs.starts_with('-') => (runs, store),
        _ => {
            println!("cargo bench --bench fill -- N STORE");
            return Ok(());
        }
    };
    let runs: u64 = runs.parse()?;
    let supervisor = Supervisor::new();
    let store = open::open(&store.parse()?, &OpenOptions::default(), Arc::new(SystemClock), &supervisor).await?;
    let begun = Instant::now();
    let mut shards = JoinSet::new();
    for shard in (0..store.ledger().shard_count).map(Shard) {
        shards.spawn(fill(store.clone(), shard, runs));
    }
    let mut written = 0;
    while let Some(ended) = shards.join_next().await {
        written += ended?.map_err(|error| -> Box<dyn Error> { error })?;
    }
    store.close().await;
    println!("wrote {written} of {runs} runs in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Writes the runs of a shard that are missing. Gives their number.
async fn fill(store: Arc<dyn Store>, shard: Shard, runs: u64) -> Result<usize, Box<dyn Error + Send + Sync>> {
    let (ledger, recipe) = (store.ledger(), Recipe::new(SEED));
    let key = |number| RunKey { namespace: DEFAULT_NAMESPACE.into(), run_id: recipe.run_id(number).into() };
    let own: Vec<u64> =
        (1..=runs).filter(|number| shard_of(ledger.id, ledger.shard_count, &key(*number)) == shard).collect();
    let mut written = 0;
    for mut numbers in own.chunks(COMMIT_RUNS) {
        if store.run(&key(*numbers.last().expect("a chunk has a number"))).await?.is_some() {
            continue;
        }
        // A shorter fill has written the first ones.
        while store.run(&key(numbers[0])).await?.is_some() {
            numbers = &numbers[1..];
        }
        let calls = numbers.iter().flat_map(|number| recipe.history(*number));
        let commands: Vec<_> = calls.map(|call| Arc::new(command(call, ledger.id))).collect();
        let decided = store.commit(shard, draw_id(), commands.into(), &Rules::shared()).await?;
        if let Some(Err(refusal)) = decided.verdicts.iter().find(|verdict| verdict.is_err()) {
            return Err(format!("{refusal:?}").into());
        }
        written += numbers.len();
    }
    Ok(written)
}

fn command(call: Call, ledger: uuid::Uuid) -> Command {
    let caller = Caller {
        namespace: DEFAULT_NAMESPACE.into(),
        principal: Principal::anonymous(),
        agents: Agents::All,
        rights: Rights::all(),
    };
    let command = match call {
        Call::Start(request) => request::start_run(*request, &caller, ledger),
        Call::Update(request) => request::update_run(*request, &caller),
        Call::Complete(request) => request::complete_run(*request, &caller),
        Call::Fail(request) => request::fail_run(*request, &caller),
        Call::Abort(request) => request::abort_run(*request, &caller),
    };
    command.expect("the recipe's requests are sound")
}
