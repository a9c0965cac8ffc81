//! What a server tells of itself, seen from outside: metrics as Prometheus reads them, and spans as a collector does.

mod alerts;
mod collector;
mod dashboard;
mod metrics;
mod traces;

use std::net::SocketAddr;

use crate::process::admin;
use crate::process::server::{SOON, Server, eventually};

/// A server that is scraped, on the store that `flags` name.
async fn scraped(flags: &[&str]) -> (Server, Scrape) {
    let (server, address) = admin::start(flags).await;
    admin::ready(address).await;
    (server, Scrape(address))
}

/// What Prometheus reads of one server.
#[derive(Clone, Copy)]
struct Scrape(SocketAddr);

impl Scrape {
    /// The whole text.
    async fn text(self) -> String {
        let answer = admin::asked(self.0, "GET /metrics").await.expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 ") && head.contains("content-type: text/plain; version=0.0.4"),
            "{head}"
        );
        body.to_owned()
    }

    /// The series of a name, each with its labels as they are written, and its value.
    async fn series(self, name: &str) -> Vec<(String, f64)> {
        let text = self.text().await;
        let lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let split = |line: &str| {
            let (labels, value) = line.rsplit_once(' ').unwrap();
            (labels.to_owned(), value.parse().unwrap())
        };
        lines.filter(|line| line.starts_with(['{', ' '])).map(split).collect()
    }

    /// The sum of the series of a name that have all of these labels.
    async fn sum(self, name: &str, labels: &[&str]) -> f64 {
        let series = self.series(name).await;
        series.iter().filter(|(of, _)| labels.iter().all(|label| of.contains(label))).map(|(_, value)| value).sum()
    }

    /// Waits until the sum is at least so much.
    async fn reaches(self, name: &str, labels: &[&str], least: f64) {
        let reached = eventually(SOON, async || (self.sum(name, labels).await >= least).then_some(()));
        let reached = reached.await.is_some();
        assert!(reached, "{name}{labels:?} does not reach {least}:\n{}", self.text().await);
    }
}
