//! The doctor's report, for people: problems first.

use std::fmt::{self, Write as _};

use indicatif::{HumanBytes, HumanCount};

use super::problems::{seconds, who};
use super::replicas::{Replica, ShownClockStep};
use super::report::Report;
use crate::cli::table::shown;
use crate::domain::Time;
use crate::store::inspect::{Condition, File, Head, Sessions, Table};

pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    write(&mut text, report).expect("a string takes all");
    text
}

fn write(out: &mut String, report: &Report) -> fmt::Result {
    writeln!(out, "{}", if report.healthy { "HEALTHY" } else { "NOT HEALTHY" })?;
    for problem in &report.problems {
        writeln!(out, "PROBLEM  {}.\n         {}.", problem.what, problem.todo)?;
    }
    for warning in &report.warnings {
        writeln!(out, "WARNING  {}.\n         {}.", warning.what, warning.todo)?;
    }
    writeln!(out)?;
    match &report.condition {
        Some(condition) => ledger(out, report, condition)?,
        None => writeln!(out, "store    {}", report.location)?,
    }
    for replica in report.replicas.iter().filter(|replica| replica.silent.is_none()) {
        one_replica(out, replica)?;
    }
    let Some(condition) = &report.condition else { return Ok(()) };
    if let Some(seen) = &condition.sessions {
        sessions(out, seen)?;
    }
    active(out, report, condition.now)?;
    if !condition.tables.is_empty() {
        tables(out, &condition.tables)?;
    }
    condition.file.as_ref().map_or(Ok(()), |found| file(out, found))
}

fn ledger(out: &mut String, report: &Report, condition: &Condition) -> fmt::Result {
    let server = condition.server_version.as_ref().map(|version| format!(", PostgreSQL {version}"));
    writeln!(out, "store    {}{}", report.location, server.unwrap_or_default())?;
    if let Some(connection) = &report.connection {
        writeln!(out, "         {connection}")?;
    }
    if let (Some(id), Some(epoch)) = (&report.ledger_id, report.epoch) {
        writeln!(out, "ledger   {id}, epoch {epoch}, created {}", condition.created_at)?;
    }
    if let Some(began) = &report.epoch_began {
        writeln!(out, "         restored or failed over, last in {began}")?;
    }
    writeln!(
        out,
        "schema   migration {} of release {}, wants {} or later; this is {}",
        condition.migration, condition.schema_release, condition.min_release, report.release
    )?;
    writeln!(out, "durable  {}", report.not_durable.as_deref().unwrap_or("yes"))?;
    clock(out, condition.steady_ahead_micros)?;
    heads(out, &condition.heads, condition.now)
}

/// Says that a step of the store's clock was noticed once.
fn clock(out: &mut String, ahead_micros: i64) -> fmt::Result {
    let by = seconds((ahead_micros / 1_000).saturating_abs());
    let now = match ahead_micros {
        0 => return Ok(()),
        -499_999..500_000 => "and is right by the time that passed".to_owned(),
        500_000.. => format!("and is {by} behind the time that passed"),
        _ => format!("and is {by} ahead of the time that passed"),
    };
    writeln!(out, "clock    was set once, {now}: leases and deadlines go by that time")
}

fn heads(out: &mut String, heads: &[Head], now: Time) -> fmt::Result {
    writeln!(out, "\n{:<8} {:>14}  {:<10} {:>7}  HEAD HELD BY", "SHARD", "POSITION", "LAST EVENT", "WAITING")?;
    for head in heads {
        let last = head.at.map_or_else(|| "never".to_owned(), |at| format!("{} ago", since(at, now)));
        let position = HumanCount(head.position).to_string();
        let holder = head.holder.as_ref().map_or_else(|| "nobody".to_owned(), who);
        writeln!(out, "{:<8} {position:>14}  {last:<10} {:>7}  {holder}", head.shard, head.waiters.len())?;
        for waiter in &head.waiters {
            let waited = waiter.state_ms.map(|ms| format!(" for {}", seconds(ms))).unwrap_or_default();
            writeln!(out, "{:9}waits{waited}: {}", "", who(waiter))?;
        }
    }
    let oldest = heads.iter().filter_map(|head| head.waiters.first()?.state_ms).max();
    let oldest = oldest.map_or_else(|| "none waits".to_owned(), |ms| format!("has waited for {}", seconds(ms)));
    writeln!(out, "longest wait for a shard's head, the lock that its commits take: {oldest}")
}

fn one_replica(out: &mut String, replica: &Replica) -> fmt::Result {
    let Replica { server, release, store, watched_runs, watches_of_one_run, watches_of_many_runs, .. } = replica;
    writeln!(out, "\nREPLICA  {server}, release {}, on {}", shown(release), shown(store))?;
    let commands: u64 = replica.queues.iter().map(|queue| queue.commands).sum();
    let oldest = replica.oldest().map(|(shard, ms)| format!(", the oldest for {} (shard {shard})", seconds(ms)));
    let serves = match (replica.health.serving, replica.health.ready) {
        (Some(true), Some(true)) => "serving and ready",
        (Some(true), _) => "serving, and not ready",
        (Some(false), Some(true)) => "NOT SERVING, and still ready",
        (Some(false), _) => "NOT SERVING, and not ready",
        (None, _) => "not said",
    };
    let last = replica.since_last_commit_ms.map(|ms| format!("; last commit: {} ago", seconds(ms)));
    writeln!(out, "  health: {serves}{}", last.unwrap_or_default())?;
    writeln!(out, "  commands without an answer: {}{}", HumanCount(commands), oldest.unwrap_or_default())?;
    let kept = HumanBytes(replica.recent_changes_bytes);
    writeln!(
        out,
        "  watched runs: {}; watches of one run: {}; watches of many runs: {}; recent changes: {kept}",
        HumanCount(*watched_runs),
        HumanCount(*watches_of_one_run),
        HumanCount(*watches_of_many_runs)
    )?;
    writeln!(
        out,
        "  connections: {}; calls: {}; refused since it began: {}\n  requests: {}; answers not taken yet: {}",
        HumanCount(replica.connections),
        HumanCount(replica.calls),
        HumanCount(replica.refused_calls),
        HumanBytes(replica.request_bytes),
        HumanBytes(replica.unsent_bytes)
    )?;
    clocks(out, replica)?;
    memory(out, replica)
}

/// The clocks of a replica, where any was set or is apart.
fn clocks(out: &mut String, replica: &Replica) -> fmt::Result {
    for ShownClockStep { clock, by_micros, ago_ms } in &replica.clock_steps {
        let by = by_micros.unwrap_or(0);
        let way = if by < 0 { "back" } else { "forward" };
        let ago = ago_ms.map(|ms| format!(", {} ago", seconds(ms))).unwrap_or_default();
        let whose = if clock == "server" { "its machine's clock" } else { "the store's clock" };
        writeln!(out, "  {whose} was set {way} by {}{ago}", seconds((by / 1_000).saturating_abs()))?;
    }
    Ok(())
}

/// The memory of a replica, and the parts that take a hundredth of it or more.
fn memory(out: &mut String, replica: &Replica) -> fmt::Result {
    let Replica { resident_bytes, memory_limit_bytes, memory, .. } = replica;
    if memory.is_empty() {
        return Ok(());
    }
    let of = if *memory_limit_bytes > 0 { format!(" of {}", HumanBytes(*memory_limit_bytes)) } else { String::new() };
    let parts = memory.iter().filter(|part| part.bytes * 100 >= *resident_bytes);
    let parts: Vec<String> = parts.map(|part| format!("{} {}", shown(&part.name), HumanBytes(part.bytes))).collect();
    writeln!(out, "  memory: {}{of}: {}", HumanBytes(*resident_bytes), parts.join(", "))
}

fn sessions(out: &mut String, sessions: &Sessions) -> fmt::Result {
    let Sessions { used, max, all_seen, idle_in_transaction, oldest_transaction } = sessions;
    writeln!(out, "\nCONNECTIONS  {used} of {max}")?;
    writeln!(out, "silent in a transaction: {}", idle_in_transaction.len())?;
    for session in idle_in_transaction {
        writeln!(out, "  {} for {}", who(session), seconds(session.state_ms.unwrap_or(0)))?;
    }
    if let Some(session) = oldest_transaction {
        writeln!(out, "oldest transaction: {} by {}", seconds(session.transaction_ms.unwrap_or(0)), who(session))?;
    }
    if !all_seen {
        writeln!(out, "This role does not see what other roles' sessions do: grant it pg_monitor to see all.")?;
    }
    Ok(())
}

fn active(out: &mut String, report: &Report, now: Time) -> fmt::Result {
    let counts: Vec<String> =
        report.active.iter().map(|(status, runs)| format!("{} {status}", HumanCount(*runs))).collect();
    let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    writeln!(out, "\nACTIVE RUNS  {counts}")?;
    for run in &report.oldest_active {
        let agent = shown(run.agent_id.as_deref().unwrap_or("-"));
        let waits = run.waits();
        let waits = shown(&waits);
        let began = since(run.started_at, now);
        let key = format!("{}/{}", run.namespace, run.run_id);
        writeln!(out, "  {began:>9}  {:<8} {}  {agent}{waits}", run.status, shown(&key))?;
    }
    Ok(())
}

fn tables(out: &mut String, tables: &[Table]) -> fmt::Result {
    let names = ["TABLE", "SIZE", "INDEXES", "ROWS", "DEAD ROWS"];
    writeln!(
        out,
        "\n{:<12} {:>11} {:>11} {:>13} {:>12}  LAST AUTOVACUUM",
        names[0], names[1], names[2], names[3], names[4]
    )?;
    for table in tables {
        let vacuumed = table.last_autovacuum.map_or_else(|| "never".to_owned(), |at| at.to_string());
        writeln!(
            out,
            "{:<12} {:>11} {:>11} {:>13} {:>12}  {vacuumed}",
            table.name,
            HumanBytes(table.bytes).to_string(),
            HumanBytes(table.index_bytes).to_string(),
            HumanCount(table.rows).to_string(),
            HumanCount(table.dead_rows).to_string(),
        )?;
    }
    Ok(())
}

fn file(out: &mut String, file: &File) -> fmt::Result {
    let File { bytes, wal_bytes, free_bytes, available_bytes, volume_bytes } = *file;
    let (bytes, wal, free) = (HumanBytes(bytes), HumanBytes(wal_bytes), HumanBytes(free_bytes));
    writeln!(out, "\nFILE  {bytes}, of which {free} are free; write-ahead log {wal}")?;
    match available_bytes.zip(volume_bytes) {
        Some((available, volume)) => {
            writeln!(out, "file system: {} of {} are free", HumanBytes(available), HumanBytes(volume))
        }
        None => Ok(()),
    }
}

fn since(at: Time, now: Time) -> String {
    seconds(now.micros().saturating_sub(at.micros()) / 1000)
}
