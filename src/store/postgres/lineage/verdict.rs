//! The verdict on one look at a session: whether it is to the past that this process knows.

use std::fmt;

use crate::domain::{LedgerEpoch, Positions};

/// The identity that tells one past of a database from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// The cluster's identifier: none when this role may not see it, or when nobody has noted it yet.
    pub(super) system: Option<String>,
    /// The timeline, which rises with each promotion and with each restored backup.
    pub(super) timeline: Option<i64>,
    /// The identity of the database and of the table `ledger`: another one in a database that was made anew from a
    /// dump.
    pub(super) table: Option<String>,
}

/// Whether two values are known and differ.
fn differ<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one != other)
}

impl Identity {
    /// Whether the two differ in a fact that is known of both.
    fn differs(&self, other: &Self) -> bool {
        self.is_elsewhere(other) || differ(self.timeline.as_ref(), other.timeline.as_ref())
    }

    /// Whether the two are of different clusters or databases.
    fn is_elsewhere(&self, other: &Self) -> bool {
        differ(self.system.as_ref(), other.system.as_ref()) || differ(self.table.as_ref(), other.table.as_ref())
    }

    /// Whether this one has a fact that the other does not have.
    fn adds_to(&self, other: &Self) -> bool {
        (self.system.is_some() && other.system.is_none())
            || (self.timeline.is_some() && other.timeline.is_none())
            || (self.table.is_some() && other.table.is_none())
    }

    /// Whether this one is an earlier timeline of the same cluster: a primary that was left behind.
    fn is_before(&self, other: &Self) -> bool {
        let earlier = matches!((self.timeline, other.timeline), (Some(one), Some(other)) if one < other);
        earlier && !self.is_elsewhere(other)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let timeline = self.timeline.map_or_else(|| "an unknown timeline".to_owned(), |id| format!("timeline {id}"));
        match &self.system {
            Some(system) => write!(f, "system {system} on {timeline}")?,
            None => write!(f, "a server on {timeline}")?,
        }
        self.table.as_ref().map_or(Ok(()), |table| write!(f, ", table {table}"))
    }
}

/// The facts that one session shows.
#[derive(Debug)]
pub(super) struct Look {
    /// The epoch of the ledger's row.
    pub(super) epoch: LedgerEpoch,
    /// The server that the ledger's row names.
    pub(super) noted: Identity,
    /// The server that answered.
    pub(super) server: Identity,
    pub(super) ends: Positions,
}

/// The facts that this process knows.
#[derive(Clone, Debug)]
pub(super) struct KnownFacts {
    pub(super) epoch: LedgerEpoch,
    pub(super) server: Identity,
    /// The highest position that was seen of each shard.
    pub(super) seen: Positions,
}

/// The verdict on a look.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The session is to the past that is known.
    Same,
    /// The same, and the ledger's row does not name the server yet.
    Unnamed,
    /// Another replica has raised the epoch.
    Raised,
    /// The session is to another past, for this reason, and nobody has raised the epoch yet.
    AnotherPast(String),
    /// The session is to a server that others have left.
    LeftBehind,
}

impl KnownFacts {
    pub(super) fn judge(&self, look: &Look) -> Verdict {
        let Look { epoch, noted, server, ends } = look;
        if *epoch < self.epoch && server.is_before(&self.server) {
            return Verdict::LeftBehind;
        }
        if server.differs(noted) {
            return Verdict::AnotherPast(format!("the ledger was written by {noted}, and this is {server}"));
        }
        if *epoch > self.epoch {
            return Verdict::Raised;
        }
        if server.differs(&self.server) {
            return Verdict::AnotherPast(format!("this process wrote to {}, and this is {server}", self.server));
        }
        if *epoch < self.epoch {
            let reason = format!("the ledger's epoch was {} and is {epoch}", self.epoch);
            return Verdict::AnotherPast(reason);
        }
        let fell = self.seen.iter().zip(ends.iter()).enumerate().find(|(_, (seen, end))| end < seen);
        if let Some((shard, (seen, end))) = fell {
            return Verdict::AnotherPast(format!("shard {shard} had position {seen} and ends at {end}"));
        }
        if server.adds_to(noted) { Verdict::Unnamed } else { Verdict::Same }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(system: &str, timeline: i64) -> Identity {
        Identity { system: Some(system.to_owned()), timeline: Some(timeline), table: Some("5/16384".to_owned()) }
    }

    fn known(epoch: u64, server: Identity) -> KnownFacts {
        KnownFacts { epoch: epoch.into(), server, seen: vec![7, 3].into() }
    }

    fn look(epoch: u64, noted: Identity, server: Identity) -> Look {
        Look { epoch: epoch.into(), noted, server, ends: vec![7, 4].into() }
    }

    #[test]
    fn the_same_server_is_the_same_past() {
        let (one, unknown) = (on("1", 1), Identity::default());
        assert!(matches!(known(0, one.clone()).judge(&look(0, one.clone(), one.clone())), Verdict::Same));
        assert!(matches!(known(0, unknown.clone()).judge(&look(0, unknown.clone(), one.clone())), Verdict::Unnamed));
        // A role that sees less than the one that noted the server.
        assert!(matches!(known(0, unknown.clone()).judge(&look(0, one, unknown)), Verdict::Same));
    }

    #[test]
    fn another_timeline_or_system_or_a_head_that_fell_is_another_past() {
        let from_a_dump = Identity { table: Some("6/17000".to_owned()), ..on("1", 1) };
        for server in [on("1", 2), on("2", 1), from_a_dump] {
            let verdict = known(0, Identity::default()).judge(&look(0, on("1", 1), server));
            assert!(matches!(verdict, Verdict::AnotherPast(_)), "{verdict:?}");
        }
        let fell = Look { ends: vec![6, 9].into(), ..look(0, on("1", 1), on("1", 1)) };
        assert!(matches!(known(0, on("1", 1)).judge(&fell), Verdict::AnotherPast(_)));
        // A second failover, to a standby that had not heard of the first; and one that another replica saw first.
        assert!(matches!(known(1, on("1", 2)).judge(&look(0, on("1", 1), on("1", 3))), Verdict::AnotherPast(_)));
        assert!(matches!(known(1, on("1", 2)).judge(&look(1, on("1", 3), on("1", 3))), Verdict::AnotherPast(_)));
        assert!(matches!(known(1, on("1", 2)).judge(&look(0, on("1", 2), on("1", 2))), Verdict::AnotherPast(_)));
    }

    #[test]
    fn a_higher_epoch_is_taken_over_and_a_server_that_was_left_is_not_used() {
        let fell = Look { ends: vec![0, 0].into(), ..look(1, on("1", 2), on("1", 2)) };
        assert!(matches!(known(0, on("1", 1)).judge(&fell), Verdict::Raised));
        assert!(matches!(known(1, on("1", 2)).judge(&look(0, on("1", 1), on("1", 1))), Verdict::LeftBehind));
    }
}
