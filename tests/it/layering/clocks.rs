//! One place reads the machine's clock: a time that cannot be written is held there, where others would panic.

use super::writing::places_of;

/// What reads the clock, or draws an id by it.
const READERS: [&str; 9] = [
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
    "UnixTime::now",
    "Uuid::now_v7",
    "Uuid::now_v1",
    "Utc::now",
    "clock_gettime",
    "gettimeofday",
];

/// The places, each with its reason.
const PLACES: [(&str, &str); 5] = [
    ("src/clock.rs", "the place"),
    ("crates/runledger-client/src/tls/time.rs", "holds it for handshakes, in a crate that is published"),
    ("crates/runledger-postgres/src/tls/time.rs", "holds it for handshakes, in a crate of its own"),
    ("crates/runledger-client/src/worker.rs", "draws ids, in a crate that is published"),
    ("crates/runledger-bench/src/random.rs", "draws ids, in a crate of its own"),
];

#[test]
fn one_place_reads_the_clock() {
    let places = places_of(&READERS);
    let others = places.iter().filter(|(name, _)| !PLACES.iter().any(|(place, _)| place == name)).collect::<Vec<_>>();
    assert!(others.is_empty(), "ask `clock`: {others:#?}");
    for (place, _) in PLACES {
        assert!(places.iter().any(|(name, _)| name == place), "{place} reads no clock any more");
    }
}

/// What makes TLS that reads the machine's clock by itself, and panics before 1970.
const READS_ITSELF: [&str; 4] = [
    "ClientConfig::builder()",
    "ClientConfig::builder_with_provider",
    "ServerConfig::builder()",
    "ServerConfig::builder_with_provider",
];

#[test]
fn no_handshake_reads_the_machines_clock_by_itself() {
    let places = places_of(&READS_ITSELF);
    assert!(places.is_empty(), "give it the time, with builder_with_details: {places:#?}");
    let given = places_of(&["Config::builder_with_details"]);
    assert_eq!(given.len(), 4, "the port, key sets, the client and Postgres: {given:#?}");
}
