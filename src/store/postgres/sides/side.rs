//! What a side is to this store.

use std::borrow::Cow;

use tokio_postgres::Row;

use crate::domain::{RunKey, SideWrites, Sides, Time, Wanted};
use crate::store::StoreError;
use crate::store::postgres::parts::Parts;
use crate::store::postgres::parts::columns::Argument;
use crate::store::postgres::uptime::ReplicaUptime;

/// How the rows of a side are read and written.
pub(super) struct Side {
    pub(super) read: Option<Reading>,
    pub(super) write: Option<for<'a> fn(&mut Parts<'a>, &Writing<'_>, &'a SideWrites)>,
    /// The condition that the rows which this process remembered for a decision still hold, where there are some.
    pub(super) guard: Option<for<'a> fn(&mut Parts<'a>, &'a Sides) -> Option<String>>,
}

/// How the rows of a side are read under the head.
pub(super) struct Reading {
    /// Takes the rows that commits of several shards share. They are read in a later statement than the one that waited.
    pub(super) lock: Option<fn() -> Cow<'static, str>>,
    /// None where no row is wanted.
    pub(super) load: fn(&Wanted) -> Option<Cow<'static, str>>,
    /// The arguments of both statements, as they are sent.
    pub(super) keys: for<'a> fn(&'a Wanted, &Sending<'_>) -> Vec<Argument<'a>>,
    pub(super) read: fn(&Row, &Wanted, &mut Sides) -> Result<(), StoreError>,
}

/// What else a statement is sent with.
pub(in crate::store::postgres) struct Sending<'a> {
    pub(in crate::store::postgres) shard: i16,
    pub(in crate::store::postgres) uptime: &'a ReplicaUptime,
}

/// What else is written with.
pub(in crate::store::postgres) struct Writing<'a> {
    pub(in crate::store::postgres) home: i16,
    /// The expression for the shard.
    pub(in crate::store::postgres) shard: &'a str,
    /// The steady clock, as this process takes it to be.
    pub(in crate::store::postgres) steady: Time,
    /// Whether this transaction holds the rows that it has read.
    pub(in crate::store::postgres) is_held: bool,
}

/// The namespaces and ids of runs.
pub(super) fn by_run<'a>(keys: impl Iterator<Item = &'a RunKey>, sending: &Sending<'_>) -> Vec<Argument<'a>> {
    let (namespaces, run_ids): (Vec<&str>, Vec<&str>) =
        keys.map(|key| (key.namespace.as_str(), key.run_id.as_str())).unzip();
    vec![Box::new(sending.shard), Box::new(namespaces), Box::new(run_ids)]
}
