//! Measurements of leases: what it costs to keep many alive, and how fast work is claimed.

pub mod claims;
pub mod heartbeats;

use runledger_proto::Duration as WireDuration;

/// Longer than any measurement's pause.
const LEASE_TTL: WireDuration = WireDuration { seconds: 120, nanos: 0 };
