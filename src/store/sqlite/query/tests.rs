use rusqlite::{Connection, StatementStatus};

use super::super::open::configured;
use super::*;
use crate::domain::Time;
use crate::store::PAGE_BYTES_MAX;
use crate::store::migrations::SQLITE;

/// A database of so many runs, a second apart, the second of each two active, in tables that nobody has analysed.
fn filled(runs: u32) -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    for migration in SQLITE {
        connection.execute_batch(migration.sql).unwrap();
    }
    connection
        .execute(
            "with recursive n (i) as (select 1 union all select i + 1 from n where i < ?1)
             insert into runs
             select 0, 'default', printf('run-%06d', i), 1, 2 + i % 2, i * 1000000, 'thread-' || (i % 1000),
                    'agent-' || (i % 50), 'workflow-' || (i % 200), 'audit-' || (i % 5000), 'mcp',
                    json_object('team', 'team-' || (i % 7)),
                    json_object('updatedAt', '2026-01-01T00:00:00Z', 'failureReason', printf('%.200c', 'x')), null, null, null,
                    'parent-' || (i % 700), 'before-' || (i % 1100)
             from n",
            [runs],
        )
        .unwrap();
    connection
        .execute(
            "insert into active (shard, namespace, run_id, started_at, status)
             select shard, namespace, run_id, started_at, status from runs where status = 2",
            [],
        )
        .unwrap();
    connection
}

fn asked(filter: Filter) -> RunQuery {
    RunQuery {
        namespace: "default".into(),
        filter,
        order: Order::NewestFirst,
        after: None,
        limit: 50,
        bytes_max: PAGE_BYTES_MAX,
        metadata: false,
        reach: Reach::Long,
    }
}

#[test]
fn every_walk_is_a_range_of_its_index_and_sorts_nothing() {
    let connection = filled(10);
    for by in By::ALL {
        for order in [Order::NewestFirst, Order::OldestFirst] {
            for columns in [tested(false), tested(true), listed(false), listed(true)] {
                let statement = format!("explain query plan {}", walk(by, order, &columns));
                let mut statement = connection.prepare(&statement).unwrap();
                // The values are given by number, in the order in which the names occur.
                let numbered =
                    (1..=statement.parameter_count()).map(|n| statement.parameter_name(n).unwrap().to_owned());
                let named = (1..=5).map(|n| format!("${n}")).chain(by.column().map(filter::parameter));
                assert_eq!(numbered.collect::<Vec<_>>(), named.collect::<Vec<_>>());
                let values: Vec<&dyn ToSql> = vec![&""; statement.parameter_count()];
                let mut rows = statement.query(values.as_slice()).unwrap();
                let mut plan = Vec::new();
                while let Some(row) = rows.next().unwrap() {
                    plan.push(row.get::<_, String>("detail").unwrap());
                }
                let known = by.column().map_or_else(String::new, |column| format!(" AND {column}=?"));
                let range = format!("(namespace=?{known} AND (started_at,run_id)>(?,?) AND (started_at,run_id)<(?,?))");
                assert!(plan[0].starts_with("SEARCH ") && plan[0].contains(by.index()), "{plan:?}");
                assert!(plan[0].ends_with(&range), "{plan:?}");
                let joined = usize::from(matches!(by, By::Active | By::Unprioritised | By::Priority | By::Suspended));
                assert_eq!(plan.len(), 1 + joined, "{plan:?}");
                if joined == 1 {
                    assert!(plan[1].ends_with("(shard=? AND namespace=? AND run_id=?)"), "{plan:?}");
                }
            }
        }
    }
}

#[test]
fn a_walk_is_planned_once_whatever_its_values_are() {
    let connection = configured(filled(1_000)).unwrap();
    connection.execute_batch("analyze").unwrap();
    let none = Filter { labels: [("team".to_owned(), "none".to_owned())].into(), ..Filter::default() };
    let mut query = asked(none);
    for (micros, limit) in (1..4).zip(1..) {
        query.after = Some(Place { started_at: Time::from_micros(micros), run_id: "a".into() });
        list(&connection, &query).unwrap();
        ready(
            &connection,
            "default",
            ReadyOf { not_begun: true, priority: Priority::NONE },
            query.after.clone(),
            limit,
        )
        .unwrap();
    }
    for statement in [walk(By::Start, Order::NewestFirst, &listed(false)).as_str(), READY] {
        let statement = connection.prepare_cached(statement).unwrap();
        assert_eq!(statement.get_status(StatementStatus::Run), 3, "it is the one that was executed");
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }
}

#[test]
fn a_page_and_a_count_end_where_they_have_looked_at_their_limit() {
    let connection = filled(110_000);
    let none = Filter { labels: [("team".to_owned(), "none".to_owned())].into(), ..Filter::default() };
    let mut query = asked(none.clone());
    let mut pages = 0;
    loop {
        let page = list(&connection, &query).unwrap();
        assert!(page.runs.is_empty());
        pages += 1;
        query.after = page.next;
        let Some(next) = &query.after else { break };
        assert_eq!(next.started_at.micros(), (110_001 - pages * 10_000) * 1_000_000);
    }
    assert_eq!(pages, 12, "eleven that look at 10,000 each, and one that finds the end");

    let counted = count(&connection, "default", &Filter::default(), None, (CountBy::STATUS, Reach::Long)).unwrap();
    assert!(counted.truncated);
    assert_eq!(counted.counts, [(Status::Running, 50_000), (Status::Completed, 50_000)].into());
    assert_eq!(
        count(&connection, "default", &none, None, (CountBy::STATUS, Reach::Long)).unwrap(),
        RunCounts { truncated: true, ..RunCounts::default() }
    );
    let running = Filter { statuses: [Status::Running].into(), ..Filter::default() };
    let counted = count(&connection, "default", &running, None, (CountBy::STATUS, Reach::Long)).unwrap();
    assert_eq!((counted.counts, counted.truncated), ([(Status::Running, 55_000)].into(), false));
}
