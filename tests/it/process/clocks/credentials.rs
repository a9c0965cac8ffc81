//! Credentials end by the time that it is, whatever the machine's clock shows for a moment.

use std::path::PathBuf;

use runledger::auth::token::TokenHash;
use runledger::clock::{Clock as _, SystemClock};
use tempfile::TempDir;

use super::{HOUR, YEAR_AND_MORE, shifted};
use crate::process::data::Data;
use crate::process::server::{Process, SOON, Server, eventually, run};
use crate::support::postgres::Database;

const DAY: i64 = 24 * HOUR;

/// A server with an access file, and the clock of its machine.
struct Guarded {
    directory: TempDir,
    server: Server,
}

impl Guarded {
    /// A server that begins while its clock is off by so many seconds. It knows each token, which ends so many seconds from now.
    async fn begins(store: &str, off_by: i64, tokens: &[(&str, i64)]) -> Self {
        let directory = TempDir::new().unwrap();
        let (library, clock) = (shifted(&directory), directory.path().join("clock"));
        std::fs::write(&clock, off_by.to_string()).unwrap();
        let access_file = directory.path().join("access.toml");
        let entries = tokens.iter().map(|(name, seconds)| {
            let (token, ends) = (format!("rl_{name}"), SystemClock.now().plus_micros(seconds * 1_000_000));
            std::fs::write(directory.path().join(name), &token).unwrap();
            format!(
                "[[token]]\nname = \"{name}\"\nsha256 = \"{}\"\nexpires_at = \"{ends}\"\n\
                 grants = [{{ namespaces = [\"*\"], roles = [\"reader\"] }}]\n",
                TokenHash::new(token.as_bytes())
            )
        });
        std::fs::write(&access_file, entries.collect::<String>()).unwrap();
        let environment = [("LD_PRELOAD", library.to_str().unwrap()), ("CLOCK_FILE", clock.to_str().unwrap())];
        let access_file = access_file.display().to_string();
        let args = ["serve", "--listen", "127.0.0.1:0", "--store", store, "--access-file", &access_file];
        let server = Server::of(Process::spawn_with(&args, &environment)).await;
        Self { directory, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn set(&self, off_by: i64) {
        std::fs::write(self.path("next"), off_by.to_string()).unwrap();
        std::fs::rename(self.path("next"), self.path("clock")).unwrap();
    }

    /// Whether a token is taken.
    async fn takes(&self, name: &str) -> bool {
        let (server, file) = (self.server.address.to_string(), self.path(name).display().to_string());
        let (code, said) = run(&["whoami", "--server", &server, "--token-file", &file]).await;
        assert!(code == 0 || said.contains("CREDENTIAL_INVALID"), "{code}: {said}");
        code == 0
    }

    async fn refuses_soon(&self, name: &str) -> bool {
        eventually(SOON + std::time::Duration::from_mins(1), async || (!self.takes(name).await).then_some(()))
            .await
            .is_some()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_brings_no_ended_token_back_and_refuses_no_good_one() {
    // The leeway of 30 s is nearly over for the one.
    let guarded = Guarded::begins("memory", 0, &[("short", -22), ("long", HOUR)]).await;
    assert!(guarded.takes("long").await);
    guarded.set(2 * HOUR);
    assert!(guarded.takes("long").await, "the clock is ahead for a moment");
    guarded.set(0);
    assert!(guarded.refuses_soon("short").await);
    for off_by in [-HOUR, -YEAR_AND_MORE, 0] {
        guarded.set(off_by);
        assert!(!guarded.takes("short").await && guarded.takes("long").await, "{off_by}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_began_before_its_clock_was_set_follows_it_where_the_databases_shows_it_as_well() {
    let database = Database::fresh().await;
    let store = Data::Postgres(database.dsn()).store();
    let guarded = Guarded::begins(&store, -2 * DAY, &[("ended", -DAY), ("good", HOUR)]).await;
    let is_open = eventually(SOON, async || guarded.takes("good").await.then_some(())).await;
    assert!(is_open.is_some() && guarded.takes("ended").await, "it cannot know: {}", guarded.server.process.said());
    guarded.set(0);
    assert!(guarded.refuses_soon("ended").await, "{}", guarded.server.process.said());
    assert!(guarded.takes("good").await);
    let told = "the machine's clock was set forward: credentials end by it now";
    assert_eq!(guarded.server.process.said().matches(told).count(), 1, "{}", guarded.server.process.said());
    // The database's clock does not show this one.
    guarded.set(2 * DAY);
    let waits = "credentials end by it once it has stood so for long enough";
    let is_told = eventually(SOON, async || guarded.server.process.said().contains(waits).then_some(())).await;
    assert!(is_told.is_some(), "{}", guarded.server.process.said());
    assert!(guarded.takes("good").await && !guarded.takes("ended").await);
    assert_eq!(guarded.server.process.said().matches(told).count(), 1, "{}", guarded.server.process.said());
}
