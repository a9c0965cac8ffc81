//! A worker that claims runs and does what their metadata asks for, until it is told to stop.
//!
//! ```sh
//! runledger serve &
//! runledger run start --deferred --task-thread-id thread-1 --metadata '{"words": ["a", "bb"]}'
//! cargo run --package runledger-client --example worker
//! ```

use std::time::Duration;

use runledger_client::worker::{Claiming, Job, Options, Outcome, Worker};
use runledger_client::{Client, Failure};
use runledger_proto::json;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let stop = CancellationToken::new();
    // Replicas of one ledger, with commas between them: the next is called where one does not serve.
    let working = count_words("127.0.0.1:50051", &stop);
    let told = async {
        let _no_more_signals = tokio::signal::ctrl_c().await;
        stop.cancel();
        std::future::pending().await
    };
    tokio::select! {
        ended = working => ended,
        ended = told => ended,
    }
}

/// Claims runs until the stop, and counts the letters of each run's words.
pub(crate) async fn count_words(servers: &str, stop: &CancellationToken) -> Result<(), Failure> {
    let client = Client::new(servers, Some("word-counter"))?;
    let options = Options { lease_ttl: Duration::from_secs(30), ..Options::default() };
    let mut worker = Worker::new(client, options).with_notices(|notice| eprintln!("{notice}"));
    worker.run(&Claiming::default(), stop, work).await
}

async fn work(job: Job) -> Outcome {
    let metadata = job.run().metadata.as_ref().map(json::map).unwrap_or_default();
    let Some(words) = metadata.get("words").and_then(Value::as_array) else {
        return Outcome::Failed { reason: "metadata.words is no list".into(), code: "NO_WORDS".into() };
    };
    let mut letters = 0;
    for (done, word) in (1..).zip(words) {
        // The run is to be aborted, or is not this worker's any more.
        if job.cancellation().is_some() {
            return Outcome::abort_requested("the count was stopped");
        }
        letters += word.as_str().map_or(0, |word| word.chars().count());
        job.progress(done, words.len() as u64, format!("counted {word}"));
    }
    let result = serde_json::Map::from_iter([("letters".to_owned(), letters.into())]);
    Outcome::Completed(Some(json::structure(&result)))
}
