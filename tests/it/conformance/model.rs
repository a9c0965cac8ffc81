//! Random commands: the store is the fold of its events is the pure model.

use std::collections::BTreeMap;

use proptest::strategy::{Strategy as _, ValueTree as _};
use runledger::domain::{Command, Disposition, Event, Refusal, Shard, Time, Verdict};

use super::asking::{Answer, ask_all, home, word};
use super::fixture::Fixture;
use super::sound::sound;
use crate::support::lifecycles;
use crate::support::model::Model;
use crate::support::random::{batches, source};

const CASES: usize = 25;

/// An answer as far as it can be known: when a lease is over, the store's clock alone says.
fn known(answer: Answer) -> Answer {
    answer.map_err(|mut refusal| {
        if let Refusal::LeaseHeld { expires_at, .. } = &mut refusal {
            *expires_at = None;
        }
        refusal
    })
}

/// The cases share a store, each with runs of its own; a failure prints its commands.
pub(crate) async fn random_commands_make_the_store_the_fold_and_the_model_the_same<F: Fixture>(fixture: F) {
    let mut runner = source();
    let replica = fixture.replica().await;
    let stores = [fixture.store(), &*replica];
    lifecycles::put(fixture.store(), lifecycles::RANDOM).await;
    let mut model = Model::default();
    for case in 0..CASES {
        let batches = batches(10).new_tree(&mut runner).unwrap().current();
        for (n, batch) in batches.into_iter().enumerate() {
            let mut by_shard: BTreeMap<Shard, Vec<Command>> = BTreeMap::new();
            for mut command in batch {
                command.key.run_id = format!("case-{case}-{}", command.key.run_id).into();
                // The digest stands as it was taken: what a retry repeats is the same in every case.
                by_shard.entry(home(stores[0], &command.key)).or_default().push(command);
            }
            for commands in by_shard.into_values() {
                let answers = ask_all(stores[n % 2], commands.clone()).await;
                for (command, answer) in commands.iter().zip(&answers) {
                    // The store's clock is known from the events only; refusals and no-ops do not depend on it.
                    let now = match answer {
                        Ok(
                            Verdict::Done(Disposition::Applied | Disposition::RecordedLate, run)
                            | Verdict::Redacted { run, .. },
                        ) => run.updated_at,
                        Ok(Verdict::Done(..) | Verdict::Replayed { .. }) | Err(_) => Time::from_micros(0),
                    };
                    let expected = known(model.ask(command, now));
                    assert_eq!(expected, known(answer.clone()), "{} for {command:?}", word(answer));
                }
            }
        }
    }
    let contents = sound(stores[0]).await;
    assert_eq!(contents.runs, model.runs);
    let by_run = |events: Vec<Event>| {
        let mut runs: BTreeMap<_, Vec<Event>> = BTreeMap::new();
        for event in events {
            runs.entry(event.key.clone()).or_default().push(event);
        }
        runs
    };
    let logged = by_run(contents.log.into_iter().map(|logged| logged.event).collect());
    assert_eq!(logged, by_run(model.events), "event by event");
    for (key, events) in &logged {
        assert_eq!(&stores[1].run_events(key, 0.into(), 1000, runledger::store::PAGE_BYTES_MAX).await.unwrap(), events);
    }
}
