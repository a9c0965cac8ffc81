//! What the database tells of itself: its size, and what it found when it last analyzed its tables.

use tokio_postgres::Row;

use super::read;
use super::sessions::Sessions;
use crate::domain::Status;
use crate::store::{Statistics, StoreError};

/// The lists of the commonest values hold all of a column's values where these are as few as statuses. The number of
/// a table's rows is below zero before its first analysis.
const STATISTICS: &str = "-- statistics.read
select
    pg_database_size(current_database()) as bytes,
    (select reltuples::float8 from pg_class where oid = 'leases'::regclass and reltuples >= 0) as leases,
    (select reltuples::float8 from pg_class where oid = 'runs'::regclass and reltuples >= 0) as runs,
    (select most_common_vals::text::int2[] from pg_stats
        where schemaname = current_schema() and tablename = 'runs' and attname = 'status') as statuses,
    (select most_common_freqs from pg_stats
        where schemaname = current_schema() and tablename = 'runs' and attname = 'status') as shares";

/// What is tried of these when the store is opened.
pub(super) const TRIED: [&str; 1] = [STATISTICS];

pub(super) async fn read(sessions: &Sessions) -> Result<Statistics, StoreError> {
    let rows = read::rows(sessions, STATISTICS, &[]).await?;
    Ok(rows.first().map(told).unwrap_or_default())
}

/// Statistics are no part of the ledger: what cannot be read of them is left out.
fn told(row: &Row) -> Statistics {
    let bytes: i64 = row.try_get("bytes").unwrap_or_default();
    let runs: Option<f64> = row.try_get("runs").ok().flatten();
    let statuses: Vec<i16> = row.try_get("statuses").ok().flatten().unwrap_or_default();
    let shares: Vec<f32> = row.try_get("shares").ok().flatten().unwrap_or_default();
    let of_status = |status: Status| {
        let share = statuses.iter().zip(&shares).find(|(code, _)| **code == status.code()).map(|(_, share)| *share);
        (status, f64::from(share.unwrap_or_default()) * runs.unwrap_or_default())
    };
    Statistics {
        bytes: u64::try_from(bytes).unwrap_or_default(),
        runs: if statuses.is_empty() { Vec::new() } else { Status::ALL.map(of_status).to_vec() },
        leases: row.try_get("leases").ok().flatten(),
    }
}
