//! Times of the wire, as the domain has them.

use crate::domain::Time;

/// A time of the wire; none when it was not sent.
#[must_use]
pub(super) fn time(timestamp: Option<&runledger_proto::Timestamp>) -> Option<Time> {
    let timestamp = timestamp?;
    Some(Time::from_micros(
        timestamp.seconds.saturating_mul(1_000_000).saturating_add(i64::from(timestamp.nanos) / 1_000),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_wire_is_the_domains() {
        let timestamp = runledger_proto::Timestamp { seconds: -1, nanos: 999_999_000 };
        assert_eq!(time(Some(&timestamp)), Some(Time::from_micros(-1)));
        assert_eq!(time(None), None);
    }
}
