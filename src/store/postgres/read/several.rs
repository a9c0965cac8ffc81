//! Reads of several runs with their leases, in one flush.
//!
//! A statement that looks at leases as well takes half as long again, even where there is no lease. So it reads only
//! runs that are [known to be held](super::super::leased_run_hints). A run that turns out to be held is known from then on, and
//! its lease is read by a second statement on the same session.

use std::collections::BTreeMap;
use std::iter;
use std::pin::pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::TryStreamExt as _;
use futures_util::future::try_join_all;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};

use super::{RUN, columns, index, number_of, reading};
use crate::domain::{LeaseEpoch, RunKey, Shard};
use crate::store::dialect::run_columns;
use crate::store::leases::KeptLease;
use crate::store::postgres::leased_run_hints::HeldRuns;
use crate::store::postgres::rows::{Reader, shown, smallint};
use crate::store::postgres::sessions::{Session, Sessions};
use crate::store::postgres::upkeep::leases;
use crate::store::postgres::uptime::ReplicaUptime;
use crate::store::postgres::uptime::statements::{EXPIRY, parameters, up};
use crate::store::rows::{runs as rows, sides};
use crate::store::{FoundRun, RunAsKept, StoreError};

/// The runs of one shard. Each is looked up by index, as in a commit.
const RUNS: &str = concat!(
    "-- read.runs
select v.number, ",
    run_columns!(postgres),
    "
from unnest($2::bigint[], $3::text[], $4::text[]) as v (number, namespace, run_id)
cross join lateral (
    select * from runs where shard = $1 and namespace = v.namespace and run_id = v.run_id offset 0) as r"
);

/// The runs of one shard with their leases.
static HELD_RUNS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "-- read.held_runs
with {up}
select v.number, {columns},
       l.epoch, l.expires_at, l.progress_done, l.progress_total, l.progress_message, l.progress_at
from unnest($2::bigint[], $3::text[], $4::text[]) as v (number, namespace, run_id)
cross join lateral (
    select * from runs where shard = $1 and namespace = v.namespace and run_id = v.run_id offset 0) as r
left join lateral (
    select l.epoch, {EXPIRY} as expires_at, l.progress_done, l.progress_total, l.progress_message, l.progress_at
    from leases l, up
    where r.status = 2 and l.shard = $1 and l.namespace = v.namespace and l.run_id = v.run_id offset 0) as l on true",
        up = up(5),
        columns = run_columns!(postgres),
    )
});

/// The statement that reads runs with their leases, for a look at its plan.
#[must_use]
pub fn of_held_runs() -> &'static str {
    &HELD_RUNS
}

/// See [`Runs::runs`](crate::store::Runs::runs).
pub(in crate::store::postgres) async fn runs(
    sessions: &Sessions,
    uptime: &ReplicaUptime,
    held: &HeldRuns,
    keys: &[RunKey],
    bytes_max: usize,
    shard_of: impl Fn(&RunKey) -> Shard,
) -> Result<Vec<FoundRun>, StoreError> {
    if let [key] = keys
        && !held.has(key)
    {
        return Ok(vec![alone(sessions, uptime, held, key, shard_of).await?]);
    }
    let asked: Vec<WantedRun<'_>> =
        keys.iter().map(|key| WantedRun { key, shard: shard_of(key), is_held: held.has(key) }).collect();
    let found = reading(sessions, |mut session| async move {
        let found = on(&mut session, uptime, &asked, bytes_max.max(1)).await;
        (session, found)
    });
    let found = found.await??;
    for found in &found {
        match found {
            FoundRun::Run(read) => held.note(&read.run.key(), RunAsKept::keeps_lease(&read.run)),
            FoundRun::Nothing | FoundRun::Left => {}
        }
    }
    Ok(found)
}

/// One run that is not known to be held, by the statement that reads only runs. A lease is read on the same session:
/// its caller has waited for one, and need not do so again.
async fn alone(
    sessions: &Sessions,
    uptime: &ReplicaUptime,
    held: &HeldRuns,
    key: &RunKey,
    shard_of: impl Fn(&RunKey) -> Shard,
) -> Result<FoundRun, StoreError> {
    let shard = shard_of(key);
    let found = reading(sessions, |session| async move {
        let found = alone_on(&session, uptime, shard, key).await;
        (session, found)
    });
    let found = found.await??;
    if matches!(&found, FoundRun::Run(read) if RunAsKept::keeps_lease(&read.run)) {
        held.note(key, true);
    }
    Ok(found)
}

/// Reads on a session, as [`on`] does.
async fn alone_on(
    session: &Session,
    uptime: &ReplicaUptime,
    shard: Shard,
    key: &RunKey,
) -> Result<Result<FoundRun, StoreError>, Error> {
    let statement = session.prepare_cached(RUN).await?;
    let row = session.query_opt(&statement, &[&smallint(shard), &key.namespace.as_str(), &key.run_id.as_str()]).await?;
    let run = match row.as_ref().map(rows::run).transpose() {
        Ok(Some(run)) => run,
        Ok(None) => return Ok(Ok(FoundRun::Nothing)),
        Err(error) => return Ok(Err(error)),
    };
    let mut read = Box::new(RunAsKept { run, lease: None });
    if RunAsKept::keeps_lease(&read.run) {
        let rows = leases::read_rows(session, uptime, iter::once((shard, key))).await?;
        match leases::by_key(&rows) {
            Ok(mut kept) => read.lease = kept.remove(key),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(FoundRun::Run(read)))
}

/// A run that is asked for.
struct WantedRun<'a> {
    key: &'a RunKey,
    shard: Shard,
    /// Whether the run is known to be held.
    is_held: bool,
}

/// The rows of a statement for some of the runs.
struct RunRows {
    /// The places of the runs among those that are asked for.
    numbers: Vec<i64>,
    with_leases: bool,
    rows: Vec<Row>,
    /// Whether there were more rows.
    cut: bool,
}

/// Reads on a session. An answer of the server that makes no sense is no failure of the session.
async fn on(
    session: &mut Session,
    uptime: &ReplicaUptime,
    asked: &[WantedRun<'_>],
    bytes_max: usize,
) -> Result<Result<Vec<FoundRun>, StoreError>, Error> {
    let parts = rows_of(session, uptime, asked, bytes_max).await?;
    if parts.iter().any(|part| part.cut) {
        session.leave_unread();
    }
    let mut found = match found(asked, &parts) {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    let unknown = |asked: &WantedRun<'_>, found: &FoundRun| match found {
        FoundRun::Run(read) => !asked.is_held && RunAsKept::keeps_lease(&read.run),
        FoundRun::Nothing | FoundRun::Left => false,
    };
    let unknown = asked.iter().zip(&found).filter(|(asked, found)| unknown(asked, found));
    let unknown: Vec<(Shard, &RunKey)> = unknown.map(|(asked, _)| (asked.shard, asked.key)).collect();
    if unknown.is_empty() {
        return Ok(Ok(found));
    }
    let rows = leases::read_rows(session, uptime, unknown.into_iter()).await?;
    let kept = match leases::by_key(&rows) {
        Ok(kept) => kept,
        Err(error) => return Ok(Err(error)),
    };
    for (asked, found) in asked.iter().zip(&mut found) {
        match found {
            FoundRun::Run(read) if !asked.is_held => read.lease = kept.get(asked.key).cloned(),
            FoundRun::Run(_) | FoundRun::Nothing | FoundRun::Left => {}
        }
    }
    Ok(Ok(found))
}

/// Sends a statement for each shard and each kind of its runs, all in one flush, and reads until the rows have so many
/// bytes.
async fn rows_of(
    session: &Session,
    uptime: &ReplicaUptime,
    asked: &[WantedRun<'_>],
    bytes_max: usize,
) -> Result<Vec<RunRows>, Error> {
    let mut parts: BTreeMap<(bool, Shard), Vec<i64>> = BTreeMap::new();
    for (number, asked) in (0..).zip(asked) {
        parts.entry((asked.is_held, asked.shard)).or_default().push(number);
    }
    let mut prepared: BTreeMap<bool, Statement> = BTreeMap::new();
    for (with_leases, _) in parts.keys() {
        if !prepared.contains_key(with_leases) {
            let text = if *with_leases { of_held_runs() } else { RUNS };
            prepared.insert(*with_leases, session.prepare_cached(text).await?);
        }
    }
    let (sent, bytes) = (uptime.sent(), AtomicUsize::new(0));
    let reads = parts.into_iter().map(async |((with_leases, shard), numbers)| {
        let shard = smallint(shard);
        let (namespaces, run_ids) = columns(numbers.iter().map(|number| asked[index(*number)].key));
        let mut arguments: Vec<&(dyn ToSql + Sync)> = vec![&shard, &numbers, &namespaces, &run_ids];
        if with_leases {
            arguments.extend(parameters(&sent));
        }
        let mut stream = pin!(session.query_raw(&prepared[&with_leases], arguments).await?);
        let (mut rows, mut cut) = (Vec::new(), false);
        while let Some(row) = stream.try_next().await? {
            cut = bytes.load(Ordering::Relaxed) >= bytes_max;
            if cut {
                break;
            }
            bytes.fetch_add(row.raw_size_bytes(), Ordering::Relaxed);
            rows.push(row);
        }
        Ok(RunRows { numbers, with_leases, rows, cut })
    });
    try_join_all(reads).await
}

/// The runs in the rows.
fn found(asked: &[WantedRun<'_>], parts: &[RunRows]) -> Result<Vec<FoundRun>, StoreError> {
    let mut found = vec![FoundRun::Nothing; asked.len()];
    for part in parts {
        if part.cut {
            part.numbers.iter().for_each(|number| found[index(*number)] = FoundRun::Left);
        }
        for row in &part.rows {
            let Some(nth) = number_of(row).map(index) else { continue };
            let run = rows::run(row)?;
            let lease = if part.with_leases { lease(row, asked[nth].key)? } else { None };
            found[nth] = FoundRun::Run(Box::new(RunAsKept { run, lease }));
        }
    }
    Ok(found)
}

/// The lease in a row of [`of_held_runs`], if there is one.
fn lease(row: &Row, key: &RunKey) -> Result<Option<KeptLease>, StoreError> {
    let epoch: Option<LeaseEpoch> = Reader { table: "leases", row, key: &|| shown(key) }.get("epoch")?;
    epoch.map(|_| sides::lease(row, key)).transpose()
}
