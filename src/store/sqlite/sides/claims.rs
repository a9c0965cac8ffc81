//! The claims of claimers' own requests: see [`Claimed`]. The one writer is their mutex.

use rusqlite::{Connection, params};

use super::side::{Loading, Side};
use crate::domain::{ClaimKey, Claimed, SideWrites, Sides, Time};
use crate::store::StoreError;
use crate::store::rows::sides::claim;
use crate::store::sqlite::rows::{bigint, execute, first};
use crate::store::sqlite::writer::Writer;

const READ: &str = "-- claims.read
select namespace, request_id, request_digest, run_id, epoch, replays
from claims
where namespace = ?1 and request_id = ?2 and run_id is not null";

/// The claim that a request was answered with.
pub(in crate::store::sqlite) fn claimed(
    connection: &Connection,
    (namespace, request_id): &ClaimKey,
) -> Result<Option<Claimed>, StoreError> {
    Ok(first(connection, READ, (namespace.as_str(), request_id), |row| claim(row))?.map(|(_, claimed)| claimed))
}

pub(super) const SIDE: Side = Side { load: Some(load), write: Some(write) };

fn load(Loading { transaction, wanted, .. }: &Loading<'_>, sides: &mut Sides) -> Result<(), StoreError> {
    for key in &wanted.claims {
        sides.claims.extend(claimed(transaction, key)?.map(|claimed| (key.clone(), claimed)));
    }
    Ok(())
}

fn write(writer: &Writer<'_>, sides: &SideWrites, now: Time) -> Result<(), StoreError> {
    sides.claims.iter().try_for_each(|(key, claimed)| keep(writer, key, claimed.as_ref(), now))
}

/// Remembers a request, or forgets it.
fn keep(
    Writer { transaction, .. }: &Writer<'_>,
    (namespace, request_id): &ClaimKey,
    claimed: Option<&Claimed>,
    now: Time,
) -> Result<(), StoreError> {
    match claimed {
        Some(Claimed { key, epoch, digest, replays }) => execute(
            transaction,
            "-- commit.keep_claim
             insert or replace into claims (namespace, request_id, run_id, epoch, request_digest, replays, claimed_at)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                namespace.as_str(),
                request_id,
                key.run_id.as_str(),
                bigint(*epoch),
                digest,
                bigint(*replays),
                now.micros()
            ],
        ),
        None => execute(
            transaction,
            "-- commit.forget_claim\ndelete from claims where namespace = ?1 and request_id = ?2",
            (namespace.as_str(), request_id),
        ),
    }
    .map(drop)
}
