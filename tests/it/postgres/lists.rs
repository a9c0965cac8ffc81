//! Plans by which the server finds the runs of a list or a count.

use runledger::domain::Filter;
use runledger::store::postgres::{READ_SETTINGS, of_a_count, of_a_list};
use runledger::store::query::{By, CountBy, Order, Reach, RunQuery};
use runledger::store::{PAGE_BYTES_MAX, Runs as _};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::open;
use crate::support::postgres::{Database, direct};

/// Runs as large as real ones, started a second apart in no order of their ids. Of each five, two are active; fifty
/// agents own 1,760 each, and each fifth run has no owner.
const FILLED: [&str; 3] = [
    "insert into runs
     select i % 4, 'default', id, 1, status, at, 'thread-' || i % 1000,
            case when i % 5 > 0 then 'agent-' || i % 50 end, case when i % 3 = 0 then 'workflow-' || i % 200 end,
            case when i % 2 = 0 then 'audit-' || i % 5000 end, 'mcp', labels,
            jsonb_build_object('updatedAt', at, 'failureReason', repeat('x', 200), 'refinements',
                case when status = 1 and i % 4 = 0 then jsonb_build_object('priority', 5) end), null, null, null,
            case when i % 7 = 0 then 'parent-' || i % 700 end, case when i % 11 = 0 then 'before-' || i % 1100 end
     from (select i, 'run-' || md5(i::text) as id, case when i % 5 < 2 then 1 + i % 2 else 3 + i % 3 end as status,
                  timestamptz '2025-01-01 00:00Z' + i * interval '1 second' as at,
                  jsonb_build_object('team', 'team-' || i % 7) as labels
           from generate_series(1, 110000) as i) as made",
    "insert into active (shard, namespace, run_id, started_at, status, priority)
     select shard, namespace, run_id, started_at, status, case when status = 1 and shard = 0 then 5 end
     from runs where status in (1, 2)",
    "insert into suspended (shard, namespace, run_id, started_at, kind, ready)
     select shard, namespace, run_id, started_at, 'HELP', true from runs where status = 2",
];

/// The filter beside the index: nothing, what few runs are, or what none is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Beside {
    Nothing,
    Few,
    None,
}

impl Beside {
    const ALL: [Self; 3] = [Self::Nothing, Self::Few, Self::None];
}

const LIMIT: usize = 50;

/// Whether the statement tests where runs stand.
fn stands(by: By) -> bool {
    by == By::Priority
}

/// The arguments of a list in the middle of the runs; a count takes all but the last two.
fn arguments(by: By, beside: Beside) -> Vec<String> {
    let text = |text: &str| format!("'{text}'");
    let null = || "null".to_owned();
    let mut all = vec![
        text("default"),
        text("2025-01-01 00:00Z"),
        text(""),
        text("2025-01-02 03:00Z"),
        text("run-8"),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        "false".to_owned(),
    ];
    if stands(by) {
        all.extend([null(), null(), null(), null(), null(), "5::smallint".to_owned()]);
    }
    all.extend(["1048576".to_owned(), (LIMIT + 1).to_string()]);
    match by {
        By::TaskThread => all[6] = text("thread-7"),
        By::AuditSession => all[9] = text("audit-8"),
        By::Active | By::Unprioritised => all[5] = text("{1,2}"),
        By::Priority => all[5] = text("{1}"),
        By::Agent => all[7] = text("agent-7"),
        By::Workflow => all[8] = text("workflow-9"),
        By::Parent => all[11] = text("parent-7"),
        By::Continued => all[12] = text("before-11"),
        By::Suspended | By::Start => {}
    }
    match beside {
        Beside::Nothing => {}
        Beside::Few => {
            all[10] = text("mcp");
            all[13] = text(r#"{"team": "team-3"}"#);
        }
        Beside::None => {
            let of_active = matches!(by, By::Active | By::Unprioritised | By::Priority);
            all[5] = text(if of_active { "{1}" } else { "{3,4}" });
            all[10] = text("http");
        }
    }
    all
}

async fn explained(session: &Client, statement: &str, arguments: &[String]) -> String {
    let arguments = if arguments.is_empty() { String::new() } else { format!("({})", arguments.join(", ")) };
    let explain = format!(
        "prepare s as {statement}; explain (analyze, costs off, timing off, summary off) execute s{arguments};
         deallocate s"
    );
    let answer = session.simple_query(&explain).await.unwrap();
    let lines = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        SimpleQueryMessage::CommandComplete(_) | SimpleQueryMessage::RowDescription(_) | _ => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The most rows that any part of a plan handled.
fn rows(plan: &str) -> usize {
    let of_line = |line: &str| {
        let (rows, loops) = line.split_once("(actual rows=")?.1.split_once(" loops=")?;
        let loops = loops.split_once(')')?.0;
        Some(rows.parse::<usize>().unwrap() * loops.parse::<usize>().unwrap())
    };
    plan.lines().filter_map(of_line).max().expect("it was executed")
}

/// Asserts that a plan walks the index in its order, from one end of the range to the other, and sees no more rows than
/// it may.
fn assert_walks(plan: &str, by: By, rows_max: usize) {
    for bad in ["Seq Scan", "Sort", "Bitmap", "Hash Join", "Merge Join", "JIT"] {
        assert!(!plan.contains(bad), "{bad}: {plan}");
    }
    let lines: Vec<&str> = plan.lines().collect();
    let walk = lines.iter().position(|line| line.contains(&format!("using {} on", by.index())));
    let walk = walk.unwrap_or_else(|| panic!("not by {}: {plan}", by.index()));
    let range = lines[walk + 1];
    let equal = if matches!(by, By::Active | By::Unprioritised | By::Suspended | By::Start) { 1 } else { 2 };
    assert_eq!(range.matches(" = ").count(), equal, "{plan}");
    assert!(
        ["ROW(started_at, run_id) > ROW", "ROW(started_at, run_id) < ROW"].iter().all(|b| range.contains(b)),
        "{plan}"
    );
    assert!(rows(plan) <= rows_max, "{} rows: {plan}", rows(plan));
}

/// Holds every list and every count against what it may do.
async fn assert_all_walk(session: &Client, settings: &str) {
    let own = settings == READ_SETTINGS;
    for (by, beside) in By::ALL.into_iter().flat_map(|by| Beside::ALL.map(|beside| (by, beside))) {
        // To join all of tables this small is the cheapest way, which the store's own settings keep from growing up.
        if matches!(by, By::Active | By::Unprioritised | By::Priority | By::Suspended) && !own {
            continue;
        }
        let arguments = arguments(by, beside);
        for (order, metadata, reach) in [
            (Order::NewestFirst, false, Reach::Long),
            (Order::OldestFirst, true, Reach::Long),
            (Order::NewestFirst, true, Reach::Short),
        ] {
            let plan = explained(session, &of_a_list(by, order, metadata, stands(by), reach), &arguments).await;
            // The page, and a row or two that are looked at ahead.
            // It passes over runs that have a priority.
            let page = if by == By::Unprioritised { 2 * LIMIT } else { LIMIT + 5 };
            assert_walks(&plan, by, if beside == Beside::Nothing { page } else { reach.list_runs_max() + 1 });
            assert_eq!(plan.contains("Backward using"), order == Order::NewestFirst, "{plan}");
        }
        // A count may look at every run of a table this small, and by default that is no walk.
        if own {
            let conditions = &arguments[..arguments.len() - 2];
            for reach in [Reach::Short, Reach::Long] {
                let plan =
                    explained(session, &of_a_count(by, false, stands(by), CountBy::STATUS, reach), conditions).await;
                assert_walks(&plan, by, reach.count_runs_max() + 1);
                if by == By::Active {
                    let plan =
                        explained(session, &of_a_count(by, true, false, CountBy::STATUS, reach), &arguments[..6]).await;
                    assert_walks(&plan, by, reach.count_runs_max() + 1);
                    assert!(!plan.contains("runs_pkey"), "{plan}");
                }
            }
        }
    }
}

#[tokio::test]
async fn lists_and_counts_walk_the_index_of_their_filter_and_no_further_than_they_may() {
    let database = Database::fresh().await;
    let store = open(&database.dsn()).await;
    let other = direct(&database.dsn()).await;
    other.batch_execute("alter table runs set (autovacuum_enabled = off)").await.unwrap();
    other.batch_execute("alter table active set (autovacuum_enabled = off)").await.unwrap();
    for part in FILLED {
        other.batch_execute(part).await.unwrap();
    }
    let session = direct(&database.dsn()).await;
    session.batch_execute(READ_SETTINGS).await.unwrap();
    assert_all_walk(&session, READ_SETTINGS).await;
    other.batch_execute("analyze").await.unwrap();
    for settings in
        [READ_SETTINGS, "set plan_cache_mode = force_generic_plan", "set plan_cache_mode = force_custom_plan"]
    {
        let session = direct(&database.dsn()).await;
        session.batch_execute(settings).await.unwrap();
        assert_all_walk(&session, settings).await;
    }

    // The same through the store, where the end of a walk is seen.
    let all = store.count(&"default".into(), &Filter::default(), None, CountBy::STATUS, Reach::Long).await.unwrap();
    assert_eq!((all.counts.values().sum::<u64>(), all.truncated), (100_000, true));
    let filter = Filter { labels: [("team".to_owned(), "none".to_owned())].into(), ..Filter::default() };
    let mut query = RunQuery {
        namespace: "default".into(),
        filter,
        order: Order::NewestFirst,
        after: None,
        limit: 50,
        bytes_max: PAGE_BYTES_MAX,
        metadata: false,
        reach: Reach::Long,
    };
    let mut pages = 0;
    loop {
        let page = store.list(&query).await.unwrap();
        assert!(page.runs.is_empty());
        pages += 1;
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(pages, 12, "eleven that look at 10,000 each, and one that finds the end");
}
