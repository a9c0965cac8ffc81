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
use super::offered::offer;
use crate::process::calls::{Step, ask};
use crate::process::crowds::{memory_kb, processor_time};
use crate::process::server::Server;
use crate::support::postgres::{Database, variable};

/// A server of a fresh ledger with what the attacks ask for: a run to change, and one with a long and large history.
pub(crate) async fn attacked(directory: &Path) -> Server {
    let server = Server::start(&format!("sqlite:{}", directory.join("ledger.db").display())).await;
    server.is_ready().await;
    let mut client = server.hasty();
    for run_id in ["attacked", "large"] {
        ask(&mut client, run_id, Step::Start, "").await.unwrap();
    }
    for update in 0..40 {
        ask(&mut client, "large", Step::Bulk, "").await.unwrap();
        ask(&mut client, "large", Step::Update(update), "").await.unwrap();
    }
    for step in [Step::Start, Step::Bulk, Step::Complete] {
        ask(&mut client, "ended", step, "").await.unwrap();
    }
    for nth in 0..60 {
        let run_id = format!("page-{nth}");
        ask(&mut client, &run_id, Step::Start, "").await.unwrap();
        ask(&mut client, &run_id, Step::Bulk, "").await.unwrap();
    }
    server
}

/// The greatest memory of a server, in kB, until `over` is true.
pub(crate) async fn greatest_memory(server: &Server, over: &AtomicBool) -> u64 {
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

/// The number of runs that the offered changes are of.
const RUNS: u32 = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measured_overload() {
    let Some(rates) = variable("RUNLEDGER_TEST_OFFERED") else { return };
    let time = Duration::from_secs(variable("RUNLEDGER_TEST_SECONDS").map_or(5, |seconds| seconds.parse().unwrap()));
    let directory = TempDir::new().unwrap();
    let database = match variable("RUNLEDGER_TEST_OFFERED_STORE").as_deref() {
        Some("postgres") => Some(Database::fresh().await),
        _ => None,
    };
    let on_sqlite = || format!("sqlite:{}", directory.path().join("ledger.db").display());
    let store = database.as_ref().map_or_else(on_sqlite, Database::dsn);
    let server = Server::start(&store).await;
    server.is_ready().await;
    let mut client = server.hasty();
    for nth in 0..RUNS {
        ask(&mut client, &format!("load-{nth}"), Step::Start, "").await.unwrap();
    }
    println!(
        "| offered/s | acknowledged/s | refused/s | late/s | reset | p50, p99, max ms | CPU % | MiB | honest after, p99 ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for rate in rates.split(',') {
        let rate: u32 = rate.parse().unwrap();
        let before = processor_time(&server);
        let offered = offer(server.address, rate, RUNS, time).await;
        let busy = 100.0 * processor_time(&server).saturating_sub(before).as_secs_f64() / time.as_secs_f64();
        let memory = memory_kb(&server, "VmRSS") >> 10;
        let after = honest::calls(server.address, Duration::from_secs(1)).await;
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let each = |count: usize| count as f64 / time.as_secs_f64();
        println!(
            "| {rate} | {:.0} | {:.0} | {:.0} | {} | {:.0}, {:.0}, {:.0} | {busy:.0} | {memory} | {:.1} |",
            each(offered.acknowledged.len()),
            each(usize::try_from(offered.refused).unwrap()),
            each(usize::try_from(offered.late).unwrap()),
            offered.reset,
            offered.quantile_ms(0.5),
            offered.quantile_ms(0.99),
            offered.quantile_ms(1.0),
            after.quantile_ms(0.99),
        );
    }
}
