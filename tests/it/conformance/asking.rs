//! Commits in one line.

use std::sync::Arc;

use runledger::clock::draw_id;
use runledger::domain::ids::shard_of;
use runledger::domain::{Command, Decided, Disposition, Positions, Refusal, Rules, Run, RunKey, Shard, Verdict};
use runledger::store::{CommitError, Store};

pub(crate) type Answer = Result<Verdict, Refusal>;

/// Commits the commands as one batch, and what it did not look at as another; they must be of one shard.
pub(crate) async fn ask_all(store: &dyn Store, commands: Vec<Command>) -> Vec<Answer> {
    let shard = home(store, &commands[0].key);
    assert!(commands.iter().all(|command| home(store, &command.key) == shard), "one batch, one shard");
    let commands: Vec<Arc<Command>> = commands.into_iter().map(Arc::new).collect();
    let mut verdicts: Vec<Answer> = Vec::new();
    while verdicts.len() < commands.len() {
        let more = commit(store, shard, commands[verdicts.len()..].into()).await.verdicts;
        assert!(!more.is_empty(), "a batch looks at one command at least");
        verdicts.extend(more);
    }
    assert_eq!(verdicts.len(), commands.len(), "one verdict for each command");
    verdicts
}

/// Commits as the engine does: a commit of unknown outcome, which a slow machine can make of any on Postgres, is
/// settled, and made again where it was not applied. On SQLite nothing but a failing disk makes an outcome unknown.
async fn commit(store: &dyn Store, shard: Shard, commands: Arc<[Arc<Command>]>) -> Decided {
    let attempts = if store.describe().kind == "postgres" { 3 } else { 1 };
    for _ in 0..attempts {
        match store.commit(shard, draw_id(), commands.clone(), &Rules::shared()).await {
            Ok(decided) => return decided,
            Err(CommitError::Unknown { unsettled, .. }) => {
                if store.settle(&unsettled).await.unwrap() {
                    return unsettled.decided;
                }
            }
            Err(CommitError::NotApplied(error)) => panic!("not applied: {error:?}"),
        }
    }
    panic!("the outcome was unknown, and nothing was applied, {attempts} times")
}

pub(crate) async fn ask(store: &dyn Store, command: Command) -> Answer {
    ask_all(store, vec![command]).await.remove(0)
}

/// Commits a command that must be applied; the run right after it.
pub(crate) async fn apply(store: &dyn Store, command: Command) -> Run {
    match ask(store, command).await {
        Ok(Verdict::Done(Disposition::Applied, run)) => (*run).clone(),
        other => panic!("not applied: {other:?}"),
    }
}

/// One word for an answer: `applied`, `recorded late`, `unchanged`, `replayed`, or the refusal's reason.
pub(crate) fn word(answer: &Answer) -> &'static str {
    match answer {
        Ok(Verdict::Done(Disposition::RecordedLate, _)) => "recorded late",
        Ok(Verdict::Done(disposition, _)) => disposition.name(),
        Ok(Verdict::Redacted { .. }) => "redacted",
        Ok(Verdict::Replayed { .. }) => "replayed",
        Err(refusal) => refusal.reason(),
    }
}

pub(crate) fn words(answers: &[Answer]) -> Vec<&'static str> {
    answers.iter().map(word).collect()
}

/// The run as the store has it.
pub(crate) async fn stored(store: &dyn Store, key: &RunKey) -> Run {
    store.run(key).await.unwrap().expect("the run exists")
}

pub(crate) fn home(store: &dyn Store, key: &RunKey) -> Shard {
    let ledger = store.ledger();
    shard_of(ledger.id, ledger.shard_count, key)
}

/// Ids of runs that live in one shard.
pub(crate) fn neighbours(store: &dyn Store, count: usize) -> Vec<String> {
    let ids = (0..).map(|n| format!("run-{n}"));
    ids.filter(|id| home(store, &crate::support::commands::key(id)) == Shard(0)).take(count).collect()
}

/// Before everything, in each shard.
pub(crate) fn beginning(store: &dyn Store) -> Positions {
    Positions::start(store.ledger().shard_count)
}
