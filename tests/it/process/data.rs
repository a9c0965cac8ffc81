//! The data on the disk, read past the service, and held against itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use runledger::domain::evolve::evolve;
use runledger::domain::sides::contents::ContentsOf;
use runledger::domain::{ContentTable, Event, Hash, Run, RunKey, Time};
use runledger::store::json::{EventColumns, RunColumns, read_event, read_run};
use rusqlite::types::ValueRef;
use tokio_postgres::SimpleQueryMessage;

use crate::support::model::folded;
use crate::support::postgres::direct;

/// A row's cells as text.
pub(crate) type Row = Vec<Option<String>>;

/// A database, seen past the service.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Sqlite(PathBuf),
    Postgres(String),
}

impl Data {
    /// The value of `--store`.
    pub(crate) fn store(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
            Self::Postgres(dsn) => dsn.clone(),
        }
    }

    /// Runs a statement, and gives its rows.
    pub(crate) async fn sql(&self, statement: &str) -> Vec<Row> {
        match self {
            Self::Sqlite(path) => sqlite(path.clone(), statement),
            Self::Postgres(dsn) => {
                let answer = direct(dsn).await.simple_query(statement).await.unwrap();
                let rows = answer.into_iter().filter_map(|message| {
                    let SimpleQueryMessage::Row(row) = message else { return None };
                    Some(row)
                });
                rows.map(|row| (0..row.len()).map(|index| row.get(index).map(str::to_owned)).collect()).collect()
            }
        }
    }

    fn micros(&self, column: &str) -> String {
        match self {
            Self::Sqlite(_) => column.to_owned(),
            Self::Postgres(_) => format!("(extract(epoch from {column}) * 1000000)::bigint"),
        }
    }

    /// Reads everything and holds it against itself: positions dense and from 1, times that never fall, dense
    /// revisions, runs that are the fold of their events, and `active` the runs that are not terminal.
    async fn beside(&self) -> BTreeSet<Beside> {
        let mut rows = BTreeSet::new();
        for table in ContentTable::ALL {
            let number = if table == ContentTable::Link { "number" } else { "0" };
            let statement = format!("select run_id, revision, {number}, content from {}", table.name());
            for row in self.sql(&statement).await {
                let [run_id, revision, number, content] = row.try_into().unwrap();
                let content = Hash::new(content.unwrap().as_bytes());
                rows.insert((table.name(), run_id.unwrap(), revision.unwrap(), number.unwrap(), content));
            }
        }
        rows
    }

    pub(crate) async fn sound(&self) -> Contents {
        let columns = "shard, position, run_id, revision, event, request_id, namespace";
        let log = format!("select {columns}, {} from run_events order by shard, position", self.micros("at"));
        let mut events = Vec::new();
        let mut ends: BTreeMap<String, (u64, Time)> = BTreeMap::new();
        for row in self.sql(&log).await {
            let cell = |index: usize| row[index].clone().unwrap();
            let at = Time::from_micros(cell(7).parse().unwrap());
            let (end, before) = ends.entry(cell(0)).or_insert((0, at));
            assert_eq!(cell(1), (*end + 1).to_string(), "positions are dense, from 1, in shard {}", cell(0));
            assert!(*before <= at, "times never fall in shard {}", cell(0));
            (*end, *before) = (*end + 1, at);
            let columns = EventColumns {
                key: RunKey { namespace: cell(6).into(), run_id: cell(2).into() },
                revision: cell(3).parse::<u64>().unwrap().into(),
                at,
                event: cell(4),
                request_id: row[5].clone(),
            };
            events.push(read_event(columns).unwrap());
        }
        let runs = folded(&events);
        let mut stored = BTreeMap::new();
        let columns = "namespace, run_id, revision, status, task_thread_id, agent_id, workflow_id, audit_session_id, \
                       route, labels, record, metadata";
        let archived_at = self.micros("archived_at");
        for row in self.sql(&format!("select {}, {columns}, {archived_at} from runs", self.micros("started_at"))).await
        {
            let mut row = row.into_iter();
            let mut cell = || row.next().unwrap();
            let started_at = Time::from_micros(cell().unwrap().parse().unwrap());
            let key = RunKey { namespace: cell().unwrap().into(), run_id: cell().unwrap().into() };
            let columns = RunColumns {
                key: key.clone(),
                revision: cell().unwrap().parse().unwrap(),
                status: cell().unwrap().parse().unwrap(),
                started_at,
                task_thread_id: cell().unwrap(),
                agent_id: cell(),
                workflow_id: cell(),
                audit_session_id: cell(),
                route: cell(),
                labels: cell(),
                record: cell().unwrap(),
                metadata: cell(),
                purged_at: None,
                archived_at: cell().map(|micros| Time::from_micros(micros.parse().unwrap())),
            };
            stored.insert(key, read_run(columns).unwrap());
        }
        for (key, run) in &runs {
            assert_eq!(stored.get(key), Some(run), "the stored run is the fold of its events");
        }
        assert_eq!(stored.len(), runs.len(), "no run is without events");
        assert_eq!(self.beside().await, beside(&events), "what stands beside the runs is what their events say");
        let active: BTreeSet<String> =
            self.sql("select run_id from active").await.into_iter().map(|row| row[0].clone().unwrap()).collect();
        let expected =
            runs.values().filter(|run| !run.status.is_terminal()).map(|run| run.run_id.to_string()).collect();
        assert_eq!(active, expected, "the active runs are those that are not terminal");
        Contents { events, runs }
    }
}

/// A row beside a run: its table, run, revision and number, and the hash of its content.
type Beside = (&'static str, String, String, String, Hash);

/// The rows beside runs that their events say.
fn beside(events: &[Event]) -> BTreeSet<Beside> {
    let mut runs: BTreeMap<RunKey, Run> = BTreeMap::new();
    let mut rows = BTreeSet::new();
    for event in events {
        let run = evolve(runs.remove(&event.key), event);
        let ContentsOf { input, result, links: (first, links) } = ContentsOf::event(event, &run);
        let mut row = |table: ContentTable, number: u32, hash| {
            let (run_id, revision) = (event.key.run_id.to_string(), event.revision.to_string());
            rows.insert((table.name(), run_id, revision, number.to_string(), hash));
        };
        for (table, content) in [(ContentTable::Input, input), (ContentTable::Result, result)] {
            if let Some(content) = content {
                row(table, 0, content.sha256);
            }
        }
        for (number, link) in (first..).zip(links) {
            row(ContentTable::Link, number, Hash::new(serde_json::to_string(link).unwrap().as_bytes()));
        }
        runs.insert(event.key.clone(), run);
    }
    rows
}

fn sqlite(path: PathBuf, statement: &str) -> Vec<Row> {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    let mut statement = connection.prepare(statement).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut answer = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let cell = |index| match row.get_ref(index).unwrap() {
            ValueRef::Null => None,
            ValueRef::Integer(integer) => Some(integer.to_string()),
            ValueRef::Text(text) => Some(std::str::from_utf8(text).unwrap().to_owned()),
            other @ (ValueRef::Real(_) | ValueRef::Blob(_)) => panic!("no column of the ledger is {other:?}"),
        };
        answer.push((0..columns).map(cell).collect());
    }
    answer
}

/// All rows of a database.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) events: Vec<Event>,
    pub(crate) runs: BTreeMap<RunKey, Run>,
}

impl Contents {
    pub(crate) fn run(&self, run_id: &str) -> Option<&Run> {
        self.runs.get(&RunKey { namespace: "default".into(), run_id: run_id.into() })
    }

    /// The revisions of the events that a request made.
    pub(crate) fn made_by(&self, run_id: &str, request_id: &str) -> Vec<u64> {
        let of_request = |event: &&Event| event.key.run_id == run_id && event.request_id.as_deref() == Some(request_id);
        self.events.iter().filter(of_request).map(|event| event.revision.get()).collect()
    }
}
