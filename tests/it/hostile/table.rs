//! Each attack beside an honest client, measured: `make measure-attacks`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::attacks::{Attack, Got};
use super::honest;
use crate::process::calls::{Step, ask};
use crate::process::crowds::memory_kb;
use crate::process::server::Server;
use crate::support::postgres::variable;

/// A server of a fresh ledger with what the attacks ask for: a run to change, and one with a long and large history.
pub(crate) async fn attacked(directory: &Path) -> Server {
    let server = Server::start(&format!("sqlite:{}", directory.join("ledger.db").display())).await;
    server.is_ready().await;
    let mut client = server.client();
    for run_id in ["attacked", "large"] {
        ask(&mut client, run_id, Step::Start, "").await.unwrap();
    }
    for update in 0..40 {
        ask(&mut client, "large", Step::Bulk, "").await.unwrap();
        ask(&mut client, "large", Step::Update(update), "").await.unwrap();
    }
    for nth in 0..60 {
        let run_id = format!("page-{nth}");
        ask(&mut client, &run_id, Step::Start, "").await.unwrap();
        ask(&mut client, &run_id, Step::Bulk, "").await.unwrap();
    }
    server
}

/// What a server's memory comes to at most, in kB, until the value is dropped.
async fn greatest_memory(server: &Server, over: &AtomicBool) -> u64 {
    let mut greatest = 0;
    while !over.load(Ordering::Relaxed) {
        greatest = greatest.max(memory_kb(server, "VmRSS"));
        sleep(Duration::from_millis(20)).await;
    }
    greatest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measured_attacks() {
    let Some(seconds) = variable("RUNLEDGER_TEST_ATTACKS") else { return };
    let time = Duration::from_secs(seconds.parse().unwrap());
    let only = variable("RUNLEDGER_TEST_ATTACK");
    let count: usize = variable("RUNLEDGER_TEST_ATTACKERS").map_or(1, |count| count.parse().unwrap());
    println!("| attack | honest p50, p99, max ms alone | beside it | failed | memory MiB | the attacker got |");
    println!("|---|---|---|---|---|---|");
    for attack in Attack::ALL {
        if only.as_ref().is_some_and(|only| !format!("{attack:?}").contains(only.as_str())) {
            continue;
        }
        let directory = TempDir::new().unwrap();
        let server = attacked(directory.path()).await;
        let alone = honest::calls(server.address, time.min(Duration::from_secs(3))).await;
        let (got, over) = (Arc::new(Got::default()), Arc::new(AtomicBool::new(false)));
        let until = Instant::now() + time;
        let mut attackers = JoinSet::new();
        for _ in 0..count {
            attackers.spawn(attack.run(server.address, until, got.clone()));
        }
        let (met, memory) = tokio::join!(
            async {
                let met = honest::calls(server.address, time).await;
                over.store(true, Ordering::Relaxed);
                met
            },
            greatest_memory(&server, &over)
        );
        while attackers.join_next().await.is_some() {}
        let shown = |met: &honest::Met| {
            format!("{:.1}, {:.1}, {:.0}", met.quantile_ms(0.5), met.quantile_ms(0.99), met.quantile_ms(1.0))
        };
        println!(
            "| {attack:?} | {} | {} | {} of {} | {} | {got} |",
            shown(&alone),
            shown(&met),
            met.failed.len(),
            met.failed.len() + met.calls_ms.len(),
            memory >> 10,
        );
        if let Some(first) = met.failed.first() {
            println!("  first failure: {}", first.chars().take(300).collect::<String>());
        }
    }
}
