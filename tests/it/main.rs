//! Tests of Runledger's promises: the rules without a database, both stores by one list of behaviours, and the
//! layering. `make test` runs it with a private Postgres.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod api;
mod changelog;
mod chart;
mod claims;
mod client;
mod command_line;
mod conformance;
mod documentation;
mod domain;
mod engine;
mod hostile;
mod identity;
mod inspect;
mod layering;
mod namespaces;
mod outputs;
mod postgres;
mod process;
mod reads;
mod support;
mod telemetry;
mod tls;
