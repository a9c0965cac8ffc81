//! Runledger is the lifecycle authority for runs: workers do the work and report; Runledger decides which transitions
//! are true, keeps every event, and tells every watcher. One binary, stateless replicas over one database.
//!
//! Each rule that must always hold stands at the top of the module that keeps it. `docs/architecture.md` describes the
//! whole for readers without the code, has the words, and says where the parts of a lease or a suspension are found.
//!
//! # The path of a command
//!
//! ```text
//! client -> grpc -> authority (wire: validate, convert) -> engine (queue per shard, group commit)
//!        -> store.commit: { lock the shard's head, read its end and the rows } decide, evolve { write; COMMIT } -> reply
//!                                                                                     |
//! watcher <- grpc (frames) <- feed (history, then live) <--------------------------+  (wake-up; the log is the truth)
//!
//! ClaimNextRun: authority -> claims (candidates, told by the feed) -> engine     sweep: leases -> engine
//! heartbeat:    authority -> leases (batches) -> store.renew, without a command
//! ```
//!
//! One direction; the one way back is a channel by which the engine tells `claims` of a claim that nobody received.
//! `grpc` and `authority` hold no SQL and no rules; `domain` is pure; a commit of `store` is handed the rules and knows
//! none. `tests/it/layering.rs` holds the table of who may use whom, and fails on a breach.
//!
//! # The path of a watch
//!
//! ```text
//! store.changes: all shards in one statement -> tailer (folds once, encodes once) -> ring (in bytes) -> sessions
//! store.changes_of, run_events: history, a page at a time -----------------------------------------------^
//! ```
//!
//! # The modules
//!
//! | module | what it is |
//! |---|---|
//! | [`domain`] | the rules, pure: what a command does to a run, in the order of the contract's checks |
//! | [`declaration`] | declarations of lifecycles: read from YAML and JSON, checked, drawn; those that are built in |
//! | [`store`] | durable runs and their log: the contract, Postgres, SQLite, and the contract of the tools |
//! | [`engine`] | one committer a shard: commands queue, and are committed in batches |
//! | [`feed`] | the tailer, the ring and the sessions of watches |
//! | [`claims`] | queues of runs that wait for a claim |
//! | [`upkeep`] | heartbeats in batches, the sweep of runs whose time is over, progress, tidying |
//! | [`reads`] | reads that share a query |
//! | [`retention`] | purges of runs that were kept for as long as their namespace wants |
//! | [`namespaces`] | the namespaces that exist, as a process knows |
//! | [`wire`] | requests as commands and queries, runs and refusals as answers; sealed cursors and page tokens |
//! | [`authority`] | the calls without a transport: a request in, an answer or a problem out |
//! | [`grpc`] | the gRPC face of the authority, health, and the listener with its bounds |
//! | [`tls`] | certificates and client CAs, read again when they change; handshakes; trust in connected clients |
//! | [`auth`] | who makes a call, and what the caller may do: the gate, the access file, signed tokens |
//! | [`fairness`] | how much each caller may take of a thing that callers share |
//! | [`admin`] | the port for those who run the process: `/livez`, `/readyz`, `/metrics` |
//! | [`telemetry`] | metrics, traces and log lines |
//! | [`memory`] | how much memory the process takes, and what is refused when little is left |
//! | [`app`], [`config`], [`tasks`] | the process: wired, told what to do, stopped |
//! | [`clock`], [`private`], [`stdio`] | the one place each that reads the clock, makes files, and writes to the streams |
//! | [`text`] | texts of people: times, durations, sizes, numbers |
//! | [`cli`] | the binary as a client, and the tools on a ledger |

#![expect(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "nobody depends on this package: a name that says all has no docs"
)]

pub mod admin;
pub mod app;
pub mod auth;
pub mod authority;
pub mod claims;
pub mod cli;
pub mod clock;
pub mod config;
pub mod engine;
pub mod fairness;
pub mod feed;
pub mod grpc;
pub mod memory;
pub mod namespaces;
pub mod private;
pub mod reads;
pub mod retention;
pub mod stdio;
pub mod store;
pub mod tasks;
pub mod telemetry;
pub mod tls;
pub mod upkeep;
pub mod wire;

pub use runledger_core::{declaration, domain, text};
