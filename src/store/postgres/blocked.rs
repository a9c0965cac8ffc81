//! Who holds what an opening waits for. Of the server's catalogue alone, on a connection that waits for no table: a
//! session that holds a table, and does nothing, would else keep everybody waiting who could name it.

use std::pin::pin;
use std::time::Duration;

use runledger_postgres::Connector;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{Client, Row};

use super::admin_connection::Alone;
use super::errors;
use super::grants::SERVING;
use super::inspect::session;
use super::migrate::LOCK;
use super::rows::Reader;
use crate::store::inspect::Session;
use crate::store::{OpenError, StoreError};

/// Holders of a table of the ledger, or who wait for one and keep all later ones waiting; then whoever keeps a session
/// of this role and this program's name waiting, for whatever it is, and for longer than a commit waits for another one:
/// at the end of each chain of waits. A pid of 0 is a prepared transaction's. A migration of this program is known by its
/// advisory lock, and is nobody to complain of.
const HOLDERS: &str = "-- blocked.holders
with recursive of_tables as materialized (
    select coalesce(l.pid, 0) as pid, t.name as \"table\", l.mode, l.granted, l.virtualtransaction
    from pg_catalog.pg_locks l
    join unnest($1::text[]) as t (name) on l.relation = pg_catalog.to_regclass(t.name)
    where l.locktype = 'relation' and l.mode = any($2::text[]) and l.pid is distinct from pg_catalog.pg_backend_pid()
      and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())),
waits (pid) as (
    select a.pid
    from pg_catalog.pg_stat_activity a
    where a.datname = pg_catalog.current_database() and a.wait_event_type = 'Lock'
      and a.query_start < clock_timestamp() - interval '900 ms'
      and a.usename = current_user and a.application_name = pg_catalog.current_setting('application_name')
    union
    select pid from of_tables where not granted
    union
    select b.pid from waits cross join lateral unnest(pg_catalog.pg_blocking_pids(waits.pid)) as b (pid)),
held as (
    select pid, \"table\", mode, granted, virtualtransaction, 0 as number from of_tables
    union all
    select w.pid, null, null, true, null, 1
    from waits w
    where not exists (select from pg_catalog.pg_locks l where l.pid = w.pid and not l.granted)
      and w.pid not in (select pid from of_tables))
select h.\"table\", h.mode, h.granted, h.pid, p.gid,
       nullif(s.application_name, '') as application, host(s.client_addr) as client, s.usename::text as \"user\", s.state,
       left(s.query, 200) as statement,
       (extract(epoch from clock_timestamp() - s.xact_start) * 1000)::bigint as transaction_ms,
       (extract(epoch from clock_timestamp() - case when s.state = 'active' then s.query_start else s.state_change end)
        * 1000)::bigint as state_ms
from held h
left join pg_catalog.pg_stat_activity s on s.pid = h.pid
left join pg_catalog.pg_prepared_xacts p on h.pid = 0 and h.virtualtransaction = '-1/' || p.transaction
where h.pid <> all($3::integer[])
  and not exists (select from pg_catalog.pg_locks m
                  where m.pid = h.pid and m.locktype = 'advisory' and m.granted and m.objsubid = 1
                    and m.classid::bigint << 32 | m.objid::bigint = $4)
order by h.number, not h.granted, transaction_ms desc nulls last, h.pid";

/// The locks of tables that keep readers waiting, and those that keep writers waiting.
const KEEP_READERS: &[&str] = &["AccessExclusiveLock"];
const KEEP_WRITERS: &[&str] = &["AccessExclusiveLock", "ExclusiveLock", "ShareRowExclusiveLock", "ShareLock"];

/// What an opening is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To look at the ledger.
    Reading,
    /// To serve it, or to change its schema.
    Writing,
}

impl Purpose {
    fn locks(self) -> &'static [&'static str] {
        match self {
            Self::Reading => KEEP_READERS,
            Self::Writing => KEEP_WRITERS,
        }
    }

    /// The time that an opening may take before somebody is blamed. A migration may wait for a moment: the vacuum that
    /// is in its way goes after a second.
    fn patience(self) -> Duration {
        match self {
            Self::Reading => Duration::from_secs(1),
            Self::Writing => Duration::from_secs(3),
        }
    }
}

/// The time that a look may take: its server may have gone.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Interval between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Somebody who holds something.
#[derive(Debug)]
pub(super) struct Holder {
    table: Option<String>,
    mode: Option<String>,
    granted: bool,
    session: Session,
    /// The name of the prepared transaction that it is.
    prepared: Option<String>,
}

impl Holder {
    /// What is held, by whom, and since when; and the remedy.
    pub(super) fn told(&self) -> (String, String) {
        let Self { table, mode, granted, session, prepared } = self;
        let what = match (table, mode, granted) {
            (Some(table), Some(mode), true) => format!("the table {table} is held ({mode}) by "),
            (Some(table), Some(mode), false) => {
                format!("the table {table} is waited for ({mode}), before everybody who comes later, by ")
            }
            _ => "what a session of this program waits for is held by ".to_owned(),
        };
        if session.pid == 0 {
            let name = prepared.as_deref().unwrap_or("see pg_prepared_xacts");
            let what = format!("{what}a prepared transaction ({name})");
            return (what, format!("Commit it, or: rollback prepared '{name}'"));
        }
        let since = session.transaction_ms.map(|ms| {
            let ms = ms.max(0);
            format!(", in a transaction for {}.{} s", ms / 1000, ms % 1000 / 100)
        });
        let what = format!("{what}{session}{}", since.unwrap_or_default());
        (what, format!("If it stays, end that session: select pg_terminate_backend({})", session.pid))
    }

    /// Whether it holds, or awaits, a whole table.
    pub(super) fn is_of_a_table(&self) -> bool {
        self.table.is_some()
    }

    fn refused(&self, location: &str) -> OpenError {
        let (what, todo) = self.told();
        OpenError::Held { location: location.to_owned(), what, todo }
    }
}

/// Who keeps sessions waiting, the worst first, but for these processes.
pub(super) async fn holders(client: &Client, purpose: Purpose, but_for: &[i32]) -> Result<Vec<Holder>, StoreError> {
    let tables: Vec<&str> = SERVING.iter().map(|(table, _)| *table).collect();
    let rows = client.query(HOLDERS, &[&tables, &purpose.locks(), &but_for, &LOCK]).await.map_err(errors::statement)?;
    rows.iter().map(holder).collect()
}

fn holder(row: &Row) -> Result<Holder, StoreError> {
    let held = Reader { table: "pg_locks", row, key: &String::new };
    Ok(Holder {
        table: held.get("table")?,
        mode: held.get("mode")?,
        granted: held.get("granted")?,
        session: session(row)?,
        prepared: held.get("gid")?,
    })
}

/// Refuses a ledger of which somebody holds a table, also one that no step of an opening needs: the first call would
/// wait for it. Whoever is gone in a moment is waited for.
pub(super) async fn free(client: &Client, location: &str, purpose: Purpose, own: i32) -> Result<(), OpenError> {
    let until = Instant::now() + purpose.patience();
    loop {
        let held = holders(client, purpose, &[own]).await.map_err(|error| errors::opening_with(location, error))?;
        match held.into_iter().find(|holder| holder.table.is_some()) {
            None => return Ok(()),
            Some(holder) if Instant::now() >= until => return Err(holder.refused(location)),
            Some(_) => sleep(FREE_EVERY).await,
        }
    }
}

/// Interval between two looks at a table that is held.
const FREE_EVERY: Duration = Duration::from_millis(250);

/// Takes the steps of an opening on a connection's session; once they take long, names whoever keeps them waiting.
pub(super) async fn watched<T>(
    (connector, location): (&Connector, &str),
    purpose: Purpose,
    own: i32,
    steps: impl Future<Output = Result<T, OpenError>>,
) -> Result<T, OpenError> {
    let mut steps = pin!(steps);
    let mut patience = purpose.patience();
    loop {
        if let Ok(done) = timeout(patience, &mut steps).await {
            return done;
        }
        let look = async {
            let beside = Alone::bare(connector, location).await.ok()?;
            holders(&beside.client, purpose, &[own]).await.ok()?.into_iter().next()
        };
        tokio::select! {
            biased;
            done = &mut steps => return done,
            found = timeout(LOOK_MAX, look) => if let Ok(Some(holder)) = found {
                return Err(holder.refused(location));
            },
        }
        patience = LOOK_EVERY;
    }
}
