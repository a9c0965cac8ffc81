//! A sound ledger verifies, also while servers write.

use tokio::sync::watch;

use super::ledger::Ledger;
use super::on_both_stores;
use crate::process::load::Load;
use crate::process::server::{Server, run};

on_both_stores! {
    a_sound_ledger_is_sound
    a_ledger_is_sound_while_eight_writers_write
    one_shard_can_be_verified_alone
}

async fn a_sound_ledger_is_sound(ledger: Ledger) {
    ledger.fill().await;
    let (code, said) = ledger.run(&["verify"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("SOUND: ") && said.contains(": 6 runs, 82 events, 3 shards in "), "{said}");
    // Once more, after a server has had it.
    Server::start(&ledger.store()).await.is_ready().await;
    let (code, said) = ledger.run(&["verify"]).await;
    assert_eq!(code, 0, "{said}");
}

async fn a_ledger_is_sound_while_eight_writers_write(ledger: Ledger) {
    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let (_servers, targets) = watch::channel(vec![server.address]);
    let mut load = Load::start("run", 8, &targets);
    let mut story = Load::story("story", &targets);
    for _ in 0..4 {
        load.progresses(150).await;
        story.progresses(10).await;
        let (code, said) = ledger.run(&["verify"]).await;
        assert_eq!(code, 0, "{said}");
    }
    let mut calls = load.finish().await;
    calls.extend(story.finish().await);
    let (code, said) = ledger.run(&["verify"]).await;
    assert_eq!(code, 0, "{said}");
    ledger.data.sound().await.agree_with(&calls);
}

async fn one_shard_can_be_verified_alone(ledger: Ledger) {
    ledger.fill().await;
    let mut runs = 0;
    for shard in ["0", "1", "2"] {
        let (code, said) = ledger.run(&["verify", "--shard", shard]).await;
        assert_eq!(code, 0, "{said}");
        let words: Vec<&str> = said.split_whitespace().collect();
        let place = words.iter().position(|word| ["run,", "runs,"].contains(word)).unwrap();
        runs += words[place - 1].parse::<usize>().unwrap();
    }
    assert_eq!(runs, 6, "every run is in one shard");
    let (code, said) = ledger.run(&["verify", "--shard", "3"]).await;
    assert_eq!((code, said.contains("the shards 0 to 2")), (2, true), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_nothing_to_look_at_from_outside() {
    for command in ["verify", "export", "doctor"] {
        let (code, said) = run(&[command, "--store", "memory"]).await;
        assert_eq!((code, said.contains("its own server only")), (3, true), "{said}");
    }
}
