//! A ledger of a test's own, written to past any server.

use std::path::Path;
use std::sync::Arc;

use runledger::clock::{SystemClock, draw_id};
use runledger::domain::ids::shard_of;
use runledger::domain::{Command, Rules, Shard};
use runledger::store::open::{self, Location};
use runledger::store::{OpenOptions, Store};
use runledger::tasks::Supervisor;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::conformance::asking::apply;
use crate::process::data::Data;
use crate::process::server::run;
use crate::support::commands::{Asking, abort, complete, deferred, fail, given, left, start, update};
use crate::support::lifecycles;
use crate::support::postgres::{Database, Template};

/// A ledger's location, which exists for as long as the value.
pub(crate) struct Ledger {
    pub(crate) data: Data,
    _directory: Option<TempDir>,
    _database: Option<Database>,
}

impl Ledger {
    pub(crate) fn sqlite() -> Self {
        let directory = TempDir::new().unwrap();
        let data = Data::Sqlite(directory.path().join("ledger.db"));
        Self { data, _directory: Some(directory), _database: None }
    }

    #[expect(clippy::unused_async, reason = "the other kind of ledger is awaited")]
    pub(crate) async fn empty_sqlite() -> Self {
        Self::sqlite()
    }

    pub(crate) async fn postgres() -> Self {
        Self::on(Database::fresh().await)
    }

    fn on(database: Database) -> Self {
        Self { data: Data::Postgres(database.dsn()), _directory: None, _database: Some(database) }
    }

    /// A copy of a file that was filled and given to once.
    pub(crate) async fn filled_sqlite() -> Self {
        static FILLED: OnceCell<Vec<u8>> = OnceCell::const_new();
        let file = FILLED.get_or_init(async || {
            let ledger = Self::sqlite();
            ledger.fill().await;
            ledger.give().await;
            std::fs::read(ledger.file()).unwrap()
        });
        let copy = Self::sqlite();
        std::fs::write(copy.file(), file.await).unwrap();
        copy
    }

    /// A copy of a database that was filled and given to once.
    pub(crate) async fn filled_postgres() -> Self {
        static FILLED: Template = Template::new();
        let fill = async |dsn: &str| {
            let ledger = Self { data: Data::Postgres(dsn.to_owned()), _directory: None, _database: None };
            ledger.fill().await;
            ledger.give().await;
        };
        Self::on(FILLED.copy(fill).await)
    }

    fn file(&self) -> &Path {
        let Data::Sqlite(path) = &self.data else { panic!("it is no file") };
        path
    }

    pub(crate) fn store(&self) -> String {
        self.data.store()
    }

    async fn open(&self) -> Arc<dyn Store> {
        let location: Location = self.store().parse().unwrap();
        let options = OpenOptions { shards: Some(3), ..OpenOptions::default() };
        open::open(&location, &options, Arc::new(SystemClock), &Supervisor::new()).await.unwrap()
    }

    /// Commits commands, each a batch of its own. Each makes an event.
    pub(crate) async fn commit(&self, commands: Vec<Command>) {
        let store = self.open().await;
        for command in commands {
            apply(&*store, command).await;
        }
        store.close().await;
    }

    /// So many runs that have ended, many of them in one batch.
    pub(crate) async fn ended(&self, runs: u32) {
        let store = self.open().await;
        let ledger = store.ledger();
        let mut shards = vec![Vec::new(); ledger.shard_count.into()];
        for number in 1..=runs {
            let run_id = format!("ended-{number}");
            let commands = [start(&run_id), complete(&run_id)];
            let shard = shard_of(ledger.id, ledger.shard_count, &commands[0].key);
            shards[usize::from(shard.0)].extend(commands.map(Arc::new));
        }
        for (shard, commands) in (0..).map(Shard).zip(shards) {
            for batch in commands.chunks(1_000) {
                let decided = store.commit(shard, draw_id(), batch.into(), &Rules::shared()).await.unwrap();
                assert_eq!(decided.events.len(), batch.len());
            }
        }
        store.close().await;
    }

    /// Puts a lifecycle in the namespace `default`.
    pub(crate) async fn put(&self, source: &str) {
        let store = self.open().await;
        lifecycles::put(store.as_ref(), source).await;
        store.close().await;
    }

    /// Runs of every kind: `long` (two keyframes, request ids), `running` (all links), `pending`, `failed`, `linked`
    /// (to `audit-1` by its second event) and `unlinked` (from `audit-1`, by its third).
    pub(crate) async fn fill(&self) {
        let running =
            start("running").owner("agent-1").workflow("workflow-1").label("color", "red").changing(|changes| {
                changes.route = Some(runledger::domain::Route::Mcp);
                changes.audit_session_id = Some("audit-2".to_owned());
            });
        let mut commands = vec![
            running.request("running/1"),
            deferred("pending").thread("thread-2"),
            start("failed").thread("thread-2"),
            start("linked"),
            start("unlinked"),
            start("long").metadata(&json!({"step": 0})).request("long/1"),
        ];
        commands.extend(
            (1..70).map(|step| update("long").metadata(&json!({"step": step})).request(&format!("long/{}", step + 1))),
        );
        let audit = |run_id, session: &str| {
            update(run_id).changing(|changes| changes.audit_session_id = Some(session.to_owned()))
        };
        commands.extend([
            audit("linked", "audit-1"),
            audit("unlinked", "audit-1"),
            audit("unlinked", ""),
            fail("failed").changing(|changes| changes.reason_code = Some("TIMEOUT".to_owned())),
            complete("linked"),
            abort("unlinked"),
            complete("long").request("long/71"),
        ]);
        self.commit(commands).await;
    }

    /// A run `given`, with an input, two results and three links.
    pub(crate) async fn give(&self) {
        self.commit(vec![
            given("given", &json!({"order": 7}), "long"),
            left("given", &json!({"part": 1}), &[("receipt", "a")]),
            left("given", &json!({"all": true}), &[("receipt", "b"), ("url", "c")]),
        ])
        .await;
    }

    /// Runs the binary on it.
    pub(crate) async fn run(&self, args: &[&str]) -> (i32, String) {
        let store = self.store();
        run(&[args, &["--store", &store]].concat()).await
    }

    /// Changes a field of a column of JSON.
    pub(crate) fn with(&self, column: &str, path: &[&str], json: &str) -> String {
        match self.data {
            Data::Sqlite(_) => format!("{column} = json_set({column}, '$.{}', json('{json}'))", path.join(".")),
            Data::Postgres(_) => format!("{column} = jsonb_set({column}, '{{{}}}', '{json}')", path.join(",")),
        }
    }

    /// Bytes, from their hexadecimal digits.
    pub(crate) fn bytes(&self, digits: &str) -> String {
        match self.data {
            Data::Sqlite(_) => format!("x'{digits}'"),
            Data::Postgres(_) => format!("'\\x{digits}'::bytea"),
        }
    }

    /// An hour before the time of a column.
    pub(crate) fn an_hour_earlier(&self, column: &str) -> String {
        match self.data {
            Data::Sqlite(_) => format!("{column} = {column} - 3600000000"),
            Data::Postgres(_) => format!("{column} = {column} - interval '1 hour'"),
        }
    }
}
