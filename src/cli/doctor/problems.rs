//! The problems in a ledger's condition, and the remedy for each.

use std::collections::BTreeMap;

use crate::cli::ledger_access::counted;
use crate::cli::table::shown;
use crate::store::Description;
use crate::store::finding::{Fault, Finding as Problem};
use crate::store::inspect::{Condition, File, Head, Replication, SPACE_BYTES_MIN, Session, Sessions, Table};

/// A head is held for the time of a commit; a frozen server's session is ended after 2 s.
const HELD_MS_MAX: i64 = 2_000;
/// A command waits for a few commits at most.
pub(super) const WAITED_MS_MAX: i64 = 1_000;
/// Our own sessions are ended after so long.
const SILENT_MS_MAX: i64 = 2_000;
/// Age of an open transaction. One as old keeps dead rows of the whole database from being cleaned up.
const OPEN_MS_MAX: i64 = 10 * 60_000;
/// Percent of the server's connections that may be in use.
const USED_PERCENT_MAX: u64 = 90;
/// Dead rows beside live ones that autovacuum should have cleaned up by now.
const DEAD_ROWS_MAX: u64 = 100_000;
/// Bytes of the write-ahead log. The log is emptied at 32 MB where nothing keeps it from that.
const WAL_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of a file system from which on little is left of it, where that is also less than a twentieth.
const LITTLE_ROOM_BYTES: u64 = 1024 * 1024 * 1024;

pub(super) fn problems(description: &Description, condition: &Condition) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(why) = &description.not_durable {
        problems.push(Problem {
            name: Fault::NotDurable,
            what: format!("A crash of the database server may lose acknowledged calls: {why}"),
            todo: "Mend the setting, then restart the servers: they run on it with --allow-unsafe-store only"
                .to_owned(),
        });
    }
    problems.extend(held(&condition.heads));
    problems.extend(condition.heads.iter().filter_map(awaited));
    problems.extend(condition.sessions.iter().flat_map(sessions));
    problems.extend(condition.tables.iter().filter_map(table));
    problems.extend(condition.file.iter().filter_map(file));
    problems.extend(clock(condition));
    problems
}

/// More than replicas' estimates of the clock differ by.
const CLOCK_AHEAD_MICROS: i64 = 2_000_000;

/// Conditions that are right for now, and may cost something one day.
pub(super) fn warnings(condition: &Condition) -> Vec<Problem> {
    condition.replication.iter().filter_map(replication).chain(condition.file.iter().filter_map(room)).collect()
}

fn room(file: &File) -> Option<Problem> {
    let (available, volume) = (file.available_bytes?, file.volume_bytes?);
    (available < LITTLE_ROOM_BYTES && available * 20 < volume && available >= SPACE_BYTES_MIN).then(|| Problem {
        name: Fault::NoSpace,
        what: format!("{} MiB are left on the file system of the ledger", available / 1024 / 1024),
        todo: "Make room there before it is full: commits fail then".to_owned(),
    })
}

fn replication(replication: &Replication) -> Option<Problem> {
    let in_state = |state: &str| {
        replication.standbys.iter().filter(|standby| standby.sync_state.as_deref() == Some(state)).collect::<Vec<_>>()
    };
    let waits = !["off", "local"].contains(&replication.synchronous_commit.as_str());
    let behind = if waits { in_state("async") } else { replication.standbys.iter().collect() };
    let names: Vec<String> =
        behind.iter().map(|standby| shown(standby.name.as_deref().unwrap_or("-")).into_owned()).collect();
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    (!names.is_empty()).then(|| Problem {
        name: Fault::NoSynchronousStandby,
        what: format!(
            "No commit waits for a standby ({}): a failover to one may lose acknowledged calls",
            names.join(", ")
        ),
        todo: format!(
            "Set synchronous_standby_names to the standbys that may be promoted, such as 'ANY 1 ({})', and leave \
             synchronous_commit on",
            quoted.join(", ")
        ),
    })
}

/// A session that holds several heads for too long is one problem.
fn held(heads: &[Head]) -> Vec<Problem> {
    let mut holders: BTreeMap<i32, (&Session, i64, Vec<String>)> = BTreeMap::new();
    for head in heads {
        if let Some((holder, held)) = head.holder.as_ref().and_then(|holder| Some((holder, holder.transaction_ms?)))
            && held > HELD_MS_MAX
        {
            holders.entry(holder.pid).or_insert((holder, held, Vec::new())).2.push(head.shard.to_string());
        }
    }
    let problem = |(holder, held, shards): (&Session, i64, Vec<String>)| {
        let (which, have) = match shards.as_slice() {
            [one] => (format!("head of shard {one}"), "has"),
            several => (format!("heads of shards {}", several.join(", ")), "have"),
        };
        Problem {
            name: Fault::HeadHeld,
            what: format!(
                "The {which} {have} been held for {} by {}: nothing commits there",
                seconds(held),
                who(holder)
            ),
            todo: format!("If it stays, end that session: select pg_terminate_backend({})", holder.pid),
        }
    };
    holders.into_values().map(problem).collect()
}

fn awaited(head: &Head) -> Option<Problem> {
    let longest = head.waiters.first()?;
    let waited = longest.state_ms.filter(|waited| *waited > WAITED_MS_MAX)?;
    Some(Problem {
        name: Fault::HeadAwaited,
        what: format!(
            "The head of shard {} is awaited by {}; for longest, {}, {}",
            head.shard,
            counted(head.waiters.len() as u64, "session"),
            seconds(waited),
            who(longest)
        ),
        todo: "Look at who holds it; if nobody does for long, the database is slow to commit: look at its disks \
               and at its standbys"
            .to_owned(),
    })
}

fn sessions(sessions: &Sessions) -> Vec<Problem> {
    let mut problems = Vec::new();
    for silent in &sessions.idle_in_transaction {
        let for_ms = silent.state_ms.unwrap_or(0);
        if for_ms > SILENT_MS_MAX {
            problems.push(Problem {
                name: Fault::SilentSession,
                what: format!("{} has been silent in a transaction for {}", who(silent), seconds(for_ms)),
                todo: format!(
                    "Find out what it waits for, or end it: select pg_terminate_backend({}); a shell needs a commit",
                    silent.pid
                ),
            });
        }
    }
    if let Some((oldest, open)) =
        sessions.oldest_transaction.as_ref().and_then(|oldest| Some((oldest, oldest.transaction_ms?)))
        && open > OPEN_MS_MAX
    {
        problems.push(Problem {
            name: Fault::OldTransaction,
            what: format!(
                "{} has had a transaction open for {}: dead rows pile up meanwhile",
                who(oldest),
                seconds(open)
            ),
            todo: format!("Let it come to its end, or end it: select pg_terminate_backend({})", oldest.pid),
        });
    }
    let Sessions { used, max, .. } = *sessions;
    if used * 100 > max * USED_PERCENT_MAX {
        problems.push(Problem {
            name: Fault::Connections,
            what: format!("{used} of {max} connections are used"),
            todo: "Raise max_connections, lower --connections, or end who does not need them: servers that cannot \
                   connect answer STORE_UNAVAILABLE"
                .to_owned(),
        });
    }
    problems
}

fn table(table: &Table) -> Option<Problem> {
    let Table { name, rows, dead_rows, .. } = table;
    (*dead_rows > DEAD_ROWS_MAX && dead_rows * 2 > *rows).then(|| Problem {
        name: Fault::DeadRows,
        what: format!("{name} has {dead_rows} dead rows beside {rows} live ones: autovacuum does not keep up"),
        todo: format!("Look for old transactions, then: vacuum (analyze) {name}"),
    })
}

fn file(file: &File) -> Option<Problem> {
    (file.wal_bytes > WAL_BYTES_MAX).then(|| Problem {
        name: Fault::LargeLog,
        what: format!(
            "The write-ahead log has grown to {} MiB: something reads for long",
            file.wal_bytes / 1024 / 1024
        ),
        todo: "End whoever has the file open beside the server, such as a shell or a backup that hangs".to_owned(),
    })
}

/// Events that have not happened yet were written while the clock was ahead, or it is behind now.
fn clock(condition: &Condition) -> Option<Problem> {
    let newest = condition.heads.iter().filter_map(|head| head.at).max()?;
    let ahead = newest.since(condition.now);
    (ahead > CLOCK_AHEAD_MICROS).then(|| Problem {
        name: Fault::ClockAhead,
        what: format!(
            "The newest event is {} ahead of the store's clock, which shows {}: the clock was ahead when it was written, or \
             is behind now",
            seconds(ahead / 1_000),
            condition.now
        ),
        todo: "Look at the clock of the store's machine. Leases and deadlines go on by the time that passes, and new events \
               bear the time that the clock shows"
            .to_owned(),
    })
}

/// A session as an operator finds it.
pub(super) fn who(session: &Session) -> String {
    shown(&session.to_string()).into_owned()
}

/// A time in milliseconds, for people.
pub(super) fn seconds(ms: i64) -> String {
    let ms = ms.max(0);
    match ms / 1000 {
        0..=99 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        seconds @ 100..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}
