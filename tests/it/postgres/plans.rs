//! Plans by which the server finds rows for a commit.

use std::sync::Arc;

use runledger::domain::batch::decide_batch;
use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::domain::limits::KEYFRAME_EVENTS;
use runledger::domain::{Claimed, Command, Decided, LabelValue, LedgerEpoch, Loaded, Request, Sides, Steady, Time};
use runledger::store::postgres::{
    COMMIT_SETTINGS, READ_SETTINGS, of_a_commit, of_a_namespace, of_claims, of_held_runs, of_leases, of_lifecycles,
    of_links, of_max_running, of_namespaces, of_overdue, of_purge, of_queues,
};
use serde_json::json;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::open;
use crate::support::commands::{Asking as _, claim, complete, deferred, give_back, key, leased, start, update};
use crate::support::postgres::{Database, direct};

/// Runs `from + 1` to `to`, as large as real ones, each with an event that carries a request id.
fn filled(from: u32, to: u32) -> String {
    format!(
        "insert into runs
         select i % 4, 'default', 'run-' || i, 1, 2, now(), 't-' || i % 1000, null, null, null, null, null,
                jsonb_build_object('text', repeat('x', 400)), null
         from generate_series({from} + 1, {to}) as i;
         insert into run_events
         select i % 4, i / 4 + 1, 'default', 'run-' || i, 1, now(),
                jsonb_build_object('text', repeat('x', 200)), gen_random_uuid(), 'r', null, i, null
         from generate_series({from} + 1, {to}) as i;
         insert into leases
         select i % 4, 'default', 'run-' || i, 1, 1000, now(), false from generate_series({from} + 1, {to}) as i;
         insert into max_running
         select 'default', 'instance', 'i-' || i, jsonb_build_object('run-' || i, i % 4), now()
         from generate_series({from} + 1, {to}) as i;
         insert into active select i % 4, 'default', 'run-' || i, now(), 2 from generate_series({from} + 1, {to}) as i;
         insert into run_input select i % 4, 'default', 'run-' || i, 1, '{{}}' from generate_series({from} + 1, {to}) as i;
         insert into run_results select i % 4, 'default', 'run-' || i, 1, '{{}}' from generate_series({from} + 1, {to}) as i;
         insert into run_links
         select i % 4, 'default', 'run-' || i, 1, 1, sha256('a'), '{{}}' from generate_series({from} + 1, {to}) as i;
         insert into suspended
         select i % 4, 'default', 'run-' || i, now(), true from generate_series({from} + 1, {to}) as i;
         insert into lifecycles
         select 'default', 'name-' || i % 200, i / 200 + 1, now(), '{{}}', repeat('x', 400), '{{}}', i
         from generate_series({from} + 1, {to}) as i;
         insert into claims
         select 'default', 'r-' || i, '\\\\x00', 'run-' || i, 1, 0, now() from generate_series({from} + 1, {to}) as i"
    )
}

/// The plan that a session of the store would make for a statement now, and keep.
async fn plan(session: &Client, statement: &str) -> String {
    let count = (1..100).rev().find(|n| statement.contains(&format!("${n}"))).unwrap_or(0);
    let arguments = if count == 0 { String::new() } else { format!("({})", vec!["null"; count].join(", ")) };
    let explain = format!("prepare s as {statement}; explain (costs off) execute s{arguments}; deallocate s");
    let answer = session.simple_query(&explain).await.unwrap();
    let lines = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        SimpleQueryMessage::CommandComplete(_) | SimpleQueryMessage::RowDescription(_) | _ => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The condition that an index is asked for; `run`: a run's whole key.
fn what_for(condition: &str) -> &'static str {
    let asks = |columns: &[&str]| columns.iter().all(|column| condition.contains(column));
    let of_any_shard = condition.replace("shard = v.shard", "shard = $1");
    let asks = |columns: &[&str]| asks(columns) || columns.iter().all(|column| of_any_shard.contains(column));
    match () {
        () if asks(&["shard = $1", "namespace =", "run_id ="]) => "run",
        // The runs that count towards a limit are of any shard.
        () if asks(&["shard = (h.value)::smallint", "namespace =", "run_id ="]) => "run",
        () if asks(&["namespace =", "label =", "value ="]) => "value",
        () if asks(&["namespace =", "request_id ="]) => "claim",
        () if asks(&["claimed_at <"]) => "old",
        () if asks(&["namespace =", "name ="]) => "lifecycle",
        () if asks(&["(name = "]) => "name",
        () if asks(&["(namespace = "]) => "active",
        () if asks(&["shard = $1", "request_key ="]) => "request",
        () if asks(&["shard = '"]) => "end",
        () if asks(&["singleton"]) => "ledger",
        () if condition.trim() == "Index Cond: (shard = $1)" => "head",
        () => "something else",
    }
}

/// Gives back the first claim.
fn not_begun(run_id: &str) -> Command {
    give_back(run_id, 1)
}

/// By the claimer's own request.
fn asked_for(command: Command, request_id: &str) -> Command {
    command.on(|terms| terms.claim_request = Some(Request { id: request_id.to_owned(), digest: [7; 32] }))
}

/// A commit with every part that one can have: it creates a run under a request id, changes links, labels and metadata
/// at a keyframe, starts a run that was pending, and ends one; leases are granted and end, and a deadline is set.
fn everything_at_once() -> Decided {
    let at = Time::from_micros(1);
    let value = LabelValue { namespace: DEFAULT_NAMESPACE.into(), label: "instance".to_owned(), value: "i".to_owned() };
    let claimed = Claimed { key: key("unreceived"), epoch: 1.into(), digest: [7; 32], replays: 0 };
    let decided = |commands: Vec<Command>, runs| {
        let commands: Vec<_> = commands.into_iter().map(Arc::new).collect();
        decide_batch(
            &commands,
            Loaded {
                last: 0,
                now: at,
                steady: Steady::always(at),
                runs,
                requests: Vec::new(),
                sides: Sides {
                    max_running: vec![(value.clone(), Vec::new())],
                    claims: vec![((DEFAULT_NAMESPACE.into(), "other".to_owned()), claimed.clone())],
                    ..Sides::default()
                },
                ledger_epoch: LedgerEpoch::FIRST,
            },
        )
    };
    let mut before = vec![start("changed"), deferred("pending"), leased("ended")];
    before.push(deferred("claimed").label("instance", "i"));
    before.extend([deferred("given-back"), claim("given-back"), deferred("ready"), claim("ready")]);
    before.extend([deferred("unreceived"), claim("unreceived"), not_begun("ready")]);
    before.extend((2..KEYFRAME_EVENTS).map(|step| update("changed").label("step", &step.to_string())));
    let runs = decided(before, Vec::new()).runs.into_iter().map(|write| write.run).collect();
    let all = decided(
        vec![
            leased("new").run_timeout_ms(1).request("request"),
            update("changed").workflow("w").label("k", "v").metadata(&json!({"k": "v"})),
            start("pending").run_timeout_ms(1),
            complete("ended").epoch(1),
            claim("claimed").max_running("instance", 1),
            not_begun("given-back"),
            asked_for(claim("ready"), "one"),
            asked_for(not_begun("unreceived"), "other"),
        ],
        runs,
    );
    assert!(all.events.iter().any(|new| new.keyframe.is_some()), "a keyframe");
    assert_eq!((all.verdicts.len(), all.sides.max_running.len()), (8, 1), "everything, and a claim that counts");
    assert_eq!((all.events.len(), all.sides.claims.len()), (8, 2), "a request that is kept, and one that is forgotten");
    all
}

#[tokio::test]
async fn a_commit_finds_rows_by_their_whole_key_with_statistics_and_without() {
    let database = Database::fresh().await;
    open(&database.dsn()).await;
    let (session, other) = (direct(&database.dsn()).await, direct(&database.dsn()).await);
    session.batch_execute(COMMIT_SETTINGS).await.unwrap();
    for table in [
        "runs",
        "run_events",
        "run_input",
        "run_results",
        "run_links",
        "active",
        "leases",
        "max_running",
        "suspended",
        "claims",
        "namespaces",
        "lifecycles",
    ] {
        other.batch_execute(&format!("alter table {table} set (autovacuum_enabled = off)")).await.unwrap();
    }
    let mut statements = of_a_commit(4, &everything_at_once());
    statements.extend(of_leases());
    statements.extend(of_max_running());
    statements.extend(of_claims());
    statements.extend(of_namespaces());
    statements.push(of_held_runs().to_owned());
    statements.push(of_links().to_owned());
    statements.push(of_lifecycles().to_owned());
    let (mut rows, fills) = (0, [(0, false), (0, true), (1, false), (1_000, false), (20_000, false), (100_000, true)]);
    for (more, analysed) in fills {
        other.batch_execute(&filled(rows, more)).await.unwrap();
        rows = more;
        if analysed {
            other.batch_execute("analyze").await.unwrap();
        }
        for statement in &statements {
            let plan = plan(&session, statement).await;
            let place = format!("{rows} rows, analysed: {analysed}: {statement}\n{plan}");
            let name = statement.lines().next().unwrap().trim_start_matches("-- ").trim_start_matches("commit.");
            for bad in ["Seq Scan", "Hash Cond", "Merge Cond", "Join Filter", "JIT"] {
                // Leases are found by arrays of keys, and then told whose renewal is whose.
                let told = bad == "Join Filter" && ["load_leases", "leases.renew"].contains(&name);
                assert!(told || !plan.contains(bad), "{bad}: {place}");
            }
            // Leases, and claims that are answered once more, are found as they are when they are found, and so by no row's
            // address: while there are a few, the planner may as well look at all of a shard's, or a namespace's. A session
            // keeps its plans for half a minute at most.
            let lines: Vec<&str> = plan.lines().collect();
            let conditions = lines.iter().enumerate().filter(|(_, line)| line.contains("Index Cond"));
            let looked_up = conditions.map(|(at, condition)| match what_for(condition) {
                "head" if rows < 20_000 && lines[at - 1].contains("leases_pkey") => "run",
                "active" if rows < 20_000 && lines[at - 1].contains("claims_pkey") => "claim",
                other => other,
            });
            let looked_up = looked_up.collect::<Vec<_>>();
            let mut expected = match name {
                "lock_head" => vec!["head"],
                "ends" => vec!["end", "end", "end", "end", "ledger"],
                "load_runs" | "load_links" => vec!["run"],
                // The run, whether it is ready, and the steady clock.
                "lock_max_running" => vec!["run", "run", "ledger"],
                "lock_claims" => vec!["ledger"],
                "load_claims" => vec!["claim"],
                // To take the row, and to write it.
                "claims.replay" => vec!["claim"; 2],
                "claims.forget" => vec!["old", "ledger"],
                "lock_namespaces" => vec!["name"],
                // The namespace, its active runs, and the bytes of its shards, which are found as those are.
                "load_namespaces" => vec!["active", "active", "name"],
                "load_request_ids" => vec!["request"],
                "load_lifecycles" => vec!["lifecycle"; 2],
                "load_leases" | "leases.leases" => vec!["ledger", "run"],
                // The run and its lease.
                "read.held_runs" => vec!["ledger", "run", "run"],
                // The lease, its owner, and the run.
                "leases.renew" => vec!["ledger", "run", "run", "run"],
                "load_max_running" => [vec!["run"; 4], vec!["value"]].concat(),
                "max_running.running" => vec!["run", "run", "value"],
                // The run that changes, of `active` the run that ends and the one that starts, and the lease that
                // ends; what counts towards a limit, with whether each run of it still does; and the steady clock.
                "write" => [vec!["run"; 6], vec!["claim"; 2], vec!["value", "ledger"]].concat(),
                // The same, that the new one is not there, that its namespace is, and which version of its lifecycle
                // is the newest, and what that declares.
                "at_once" => [
                    vec!["head", "head", "ledger", "ledger", "request", "claim", "name", "lifecycle", "lifecycle"],
                    vec!["end"; 4],
                    vec!["run"; 7],
                    vec!["value"],
                ]
                .concat(),
                other => panic!("what does {other} look for?"),
            };
            expected.sort_unstable();
            let mut found = looked_up.clone();
            found.sort_unstable();
            assert_eq!(found, expected, "{place}");
        }
    }
}

/// What a purge takes is found by whole keys: it holds the shard's head meanwhile.
#[tokio::test]
async fn a_purge_finds_what_stands_beside_its_runs_by_their_keys_with_statistics_and_without() {
    let database = Database::fresh().await;
    open(&database.dsn()).await;
    let (session, other) = (direct(&database.dsn()).await, direct(&database.dsn()).await);
    session.batch_execute(COMMIT_SETTINGS).await.unwrap();
    let mut rows = 0;
    for (more, analysed) in [(0, false), (0, true), (1_000, false), (20_000, false), (20_000, true)] {
        other.batch_execute(&filled(rows, more)).await.unwrap();
        rows = more;
        if analysed {
            other.batch_execute("analyze").await.unwrap();
        }
        let plan = plan(&session, of_purge()).await;
        let place = format!("{rows} rows, analysed: {analysed}:\n{plan}");
        for table in ["run_input", "run_results", "run_links"] {
            let (_, found) =
                plan.split_once(&format!("using {table}_pkey")).unwrap_or_else(|| panic!("{table}: {place}"));
            let condition = found.lines().nth(1).unwrap();
            // While there are a few rows, the planner may as well look at all of them.
            assert!(condition.contains("Index Cond"), "{table}: {place}");
            assert!(!analysed || rows < 20_000 || condition.contains("run_id = ANY"), "{table}: {place}");
        }
    }
}

/// However much others write, the history of a namespace is read by its own index, and in its order.
#[tokio::test]
async fn the_history_of_a_namespace_is_read_by_index_with_statistics_and_without() {
    let database = Database::fresh().await;
    open(&database.dsn()).await;
    let (session, other) = (direct(&database.dsn()).await, direct(&database.dsn()).await);
    session.batch_execute(READ_SETTINGS).await.unwrap();
    let named = "update run_events set namespace = case position % 100 when 0 then 'small' else 'large' end";
    let mut rows = 0;
    for (more, analysed) in [(0, false), (1_000, false), (20_000, true)] {
        other.batch_execute(&filled(rows, more)).await.unwrap();
        other.batch_execute(named).await.unwrap();
        rows = more;
        if analysed {
            other.batch_execute("analyze").await.unwrap();
        }
        let plan = plan(&session, &of_a_namespace(2)).await;
        let place = format!("{rows} rows, analysed: {analysed}:\n{plan}");
        assert!(!["Seq Scan", "Bitmap", "JIT"].iter().any(|bad| plan.contains(bad)), "{place}");
        assert_eq!(plan.matches("using run_events_by_namespace").count(), 2, "{place}");
    }
}

/// A page costs what it shows, wherever it begins: neither search goes over the rows before its place.
#[tokio::test]
async fn a_sweep_goes_on_from_its_place_by_index_with_statistics_and_without() {
    let database = Database::fresh().await;
    open(&database.dsn()).await;
    let (session, other) = (direct(&database.dsn()).await, direct(&database.dsn()).await);
    session.batch_execute(READ_SETTINGS).await.unwrap();
    let mut rows = 0;
    for (more, analysed) in [(0, false), (0, true), (1_000, false), (20_000, false), (20_000, true)] {
        other.batch_execute(&filled(rows, more)).await.unwrap();
        // One run of ten has a deadline, and a hundred share it.
        let due = "update active set due_at = now() - substr(run_id, 5)::int / 1000 * interval '1 s'
                   where run_id like '%0' and due_at is null";
        other.batch_execute(due).await.unwrap();
        rows = more;
        if analysed {
            other.batch_execute("analyze").await.unwrap();
        }
        let plan = plan(&session, &of_overdue()).await;
        let place = format!("{rows} rows, analysed: {analysed}:\n{plan}");
        assert!(!["Seq Scan", "Bitmap", "Join Filter", "JIT"].iter().any(|bad| plan.contains(bad)), "{place}");
        let walks = |index: &str, condition: &str| {
            let (_, walk) = plan.split_once(index).unwrap_or_else(|| panic!("{index}: {place}"));
            assert!(walk.lines().nth(1).is_some_and(|line| line.contains(condition)), "{condition}: {place}");
        };
        walks("using leases_pkey", "(ROW(namespace, run_id) > ROW($2, $3))");
        walks("using active_by_due", "(due_at >= $5)");
        let sorts: Vec<&str> = plan.lines().map(str::trim).filter(|line| line.contains("Sort")).collect();
        assert_eq!(sorts.len(), 2, "{place}");
    }
}

/// However many runs are ready, of one priority or of many, a queue steps to the next priority and reads a page of it.
#[tokio::test]
async fn a_queue_finds_runs_that_wait_by_index_with_statistics_and_without() {
    let database = Database::fresh().await;
    open(&database.dsn()).await;
    let (session, other) = (direct(&database.dsn()).await, direct(&database.dsn()).await);
    session.batch_execute(READ_SETTINGS).await.unwrap();
    let mut rows = 0;
    for (more, analysed) in [(0, false), (0, true), (1_000, false), (20_000, false), (20_000, true)] {
        other.batch_execute(&filled(rows, more)).await.unwrap();
        let ready = "update suspended set kind = 'HELP', priority = (substr(run_id, 5)::int % 3 - 1)
                     where run_id not like '%7'";
        other.batch_execute(ready).await.unwrap();
        let pending = "update active set status = 1, priority = (substr(run_id, 5)::int % 5)
                       where run_id like '%9' and priority is null";
        other.batch_execute(pending).await.unwrap();
        rows = more;
        if analysed {
            other.batch_execute("analyze").await.unwrap();
        }
        let [ready, next_priority] = of_queues();
        for (statement, index, condition) in [
            (ready, "suspended_by_claim", "((namespace = $1) AND ((kind IS NULL) = $5) AND (priority = $6)"),
            (next_priority, "suspended_by_claim", "((namespace = $1) AND ((kind IS NULL) = "),
            (next_priority, "active_by_priority", "((namespace = $1) AND (priority < "),
        ] {
            let plan = plan(&session, statement).await;
            let place = format!("{rows} rows, analysed: {analysed}:\n{plan}");
            assert!(!["Seq Scan", "Bitmap", "Sort", "JIT"].iter().any(|bad| plan.contains(bad)), "{place}");
            let (_, walk) = plan.split_once(index).unwrap_or_else(|| panic!("{index}: {place}"));
            assert!(walk.lines().nth(1).is_some_and(|line| line.contains(condition)), "{condition}: {place}");
        }
    }
}
