//! Runledger is the lifecycle authority for runs: workers do the work and report; Runledger decides which transitions
//! are true, keeps every event, and tells every watcher. One binary, stateless replicas over one database.
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
//! `grpc` and `authority` hold no SQL and no rules; [`domain`] is not async, reads no clock and draws no ids. A
//! commit of [`store`] is handed the rules and knows none. The statements that find or count rows say some of the
//! rules again, in SQL: which lease is over and may be renewed, which runs count for `max_running`, and which runs
//! match a filter. [`engine`] and [`feed`] never name each other.
//!
//! # The modules
//!
//! | module | what it is |
//! |---|---|
//! | [`domain`] | the rules, pure: what a command does to a run, in the order of the contract's checks |
//! | `domain::ask`, `domain::command` | what callers and the authority ask for, each with its payload; and by whom, on which run |
//! | `domain::run` | a run, in parts: lease, links, labels, ending, supervision; each with its change and its fold |
//! | `domain::sides` | what a decision rests on besides its run: leases, `max_running`, claim requests |
//! | `domain::decide`, `domain::evolve` | a command on a run makes an event; an event makes a run |
//! | `domain::steady` | the two clocks of a ledger: which of them decides what |
//! | `domain::{renewal, sweep}` | when a lease is renewed; when the authority ends a run |
//! | `domain::lifecycle` | lifecycles: their phases, words and masking, references to them, and how one is put |
//! | `domain::namespace` | how a namespace is made, changed and deleted |
//! | [`declaration`] | declarations of lifecycles: read from YAML and JSON with a place for each finding, checked, drawn; those that are built in |
//! | [`store`] | durable runs and their log, on SQLite and on Postgres |
//! | `store::{commits, lifecycles, log, namespaces, runs, upkeep}` | the contract, by path: the engine, the feed and the others take the paths that they use |
//! | `store::observed` | a wrapper that counts the calls of a store |
//! | `store::steady` | what the stores keep of the steady clock |
//! | `store::{postgres, sqlite}` | the two stores: `commit`, `sides`, `upkeep`, `read`, `changes`, `query` in both |
//! | `store::inspect` | the contract of the tools: export, verify and doctor |
//! | [`engine`] | one committer a shard: commands queue, and are committed in batches |
//! | [`feed`] | the tailer, the ring and the sessions of watches |
//! | [`claims`] | queues of runs that wait for a claim |
//! | [`leases`] | heartbeats in batches, the sweep of runs whose time is over, the board of progress, tidying |
//! | [`reads`] | reads that share a query |
//! | [`retention`] | purges of runs that were kept for as long as their namespace wants |
//! | [`namespaces`] | which namespaces are there, as a process knows |
//! | [`share`] | how much each caller may take of a thing that callers share |
//! | [`stdio`] | what the process says on standard output and standard error, so that nobody waits for its reader |
//! | [`wire`] | requests as commands and queries, runs and refusals as answers, cursors and page tokens |
//! | `wire::seal` | what only this ledger may read again: its key, and what a text is bound to |
//! | [`authority`] | the calls without a transport: a request in, an answer or a problem out |
//! | [`grpc`] | the gRPC face on top of it, health, and the listener with its bounds |
//! | [`tls`] | certificates and client CAs, read again when they change; handshakes; the trust in connected clients |
//! | [`admin`] | the port for those who run the process: `/livez`, `/readyz`, `/metrics` |
//! | [`auth`] | who makes a call, and what the caller may do |
//! | `auth::{gate, access, grant}` | the gate that every call passes; what the access that a method needs takes; what was granted |
//! | `auth::{access_file, rules, token, reload}` | the access file: its form, what it says of whom, new rules while the server runs |
//! | `auth::{trusted, jwt, jwks}` | what credentials are held against: the rules, and signed tokens of issuers by the sets of their keys |
//! | [`memory`] | how much memory the process takes and may take, and what is refused when little is left |
//! | [`private`] | the one place that makes files: their owner's alone, and whole or not at all |
//! | [`app`], [`config`], [`supervise`], [`telemetry`], [`clock`] | the process: wired, told what to do, stopped, heard |
//! | `config::{file, shown}` | a server's settings from a file; as they hold, and their reference |
//! | `telemetry::{metrics, record, gauges}` | the table of metrics; what is recorded as it happens; what is read when asked |
//! | `telemetry::{traces, otlp}` | the spans of a call, from its headers to its commit; their way to a collector |
//! | [`cli`] | the binary as a client, and the tools on a ledger |
//! | `cli::{connect, context}` | how servers are reached: by flags, then a context that is named; else by the environment, then the current context |
//!
//! Beside this package, `crates/` has the messages (`runledger-proto`), a client with TLS, tokens and a worker's loop
//! (`runledger-client`) and the measurements (`runledger-bench`). Both callers of servers, `cli` and the measurements,
//! reach them by that client alone.
//!
//! # Where to look
//!
//! | a lease is | by |
//! |---|---|
//! | described | `domain::run::lease` |
//! | granted, with a start or a claim; fenced: only its holder reports | `domain::decide::lease` |
//! | free to be claimed | `domain::decide::claim`, on the row of `domain::sides::leases` |
//! | over | `domain::sweep`; the expiry that counts is `store::uptime`'s |
//! | read and written with a commit | `sides::leases` of each store |
//! | renewed | `authority::heartbeat`, `leases::renewals`, by `domain::renewal`; `upkeep::leases` of each store |
//! | swept | `leases::sweeper`, which finds rows by `upkeep::leases` and makes commands |
//! | shown | `wire::answer`, with the row's expiry and progress, which `reads` brings, by `authority::reads`; to watchers, its progress alone by `leases::progress` and `authority::watch` |
//!
//! | `max_running` is | by |
//! |---|---|
//! | decided | `domain::decide::claim`, on the row of `domain::sides::max_running` |
//! | counted, read and written with a commit | `sides::max_running` of each store |
//! | foreseen, to save claims that would be refused | `claims::max_running` and `claims::lanes` |
//!
//! | a lifecycle is | by |
//! |---|---|
//! | described, and put | `domain::lifecycle`; `authority::lifecycles`; `lifecycles` of each store |
//! | read from its text | `declaration::{read, check}` |
//! | read for a commit, remembered | `sides::lifecycles` of each store, by `store::lifecycles` |
//! | held to: phases, iterations, completion, words | `domain::decide::phases` |
//! | held to: masking | `domain::decide::masking` |
//! | shown with a run | `domain::run::refinements`, `wire::phases` |
//!
//! A new optional field of a run that the store keeps in its record touches four files: `run.proto` and the request's
//! proto, its part in `domain::run`, and its part's form in `wire`.
//!
//! `tests/it/layering.rs` holds the table of who may use whom, and fails on a breach.
//!
//! # Words
//!
//! One word for each thing, in names, comments, SQL, metrics and logs:
//!
//! - *authority*: the service as a whole, which decides; a *server* or *replica* is one process of it.
//! - *bridge*: a client that drives what runs execute. An *agent* is a named caller; a run's *owner* is the agent
//!   that may report on it.
//! - *ledger*: one database of runs with its identity. The ledger's *epoch* rises when it turns out to have lost a part
//!   of its past.
//! - *shard*: a part of the ledger whose events are in one order; a *position* is an event's place in it, and the
//!   shard's *end* is its newest event. A shard's *head* is the lock that every commit takes first.
//! - *namespace*: a wall round runs; an admin makes it. Its *quotas* are its own limits.
//! - *lifecycle*: what users declare of their runs; a *declaration* is its text. It is *put* as a *version* of its
//!   name, and a run is *pinned* to one. In the code a `LifecycleName` is as a caller says it (`name` or `name@3`), a
//!   `LifecycleId` one version, and a `LifecyclePin` the version with the digest of what it declares; `Declared` is a
//!   pin with that. A *phase* is where a run stands within its status, an *iteration* how often it began anew, its
//!   *word* what its lifecycle calls its state: these are the run's *refinements*.
//! - *retention*: how long a namespace keeps runs that have ended. A run that is *due* is *purged*; what is left of it is
//!   its *tombstone*. A *walk* goes over a shard's log for runs that are due.
//! - *run*: the fold of its events; its *revision* counts them. A *keyframe* is a whole run kept with an event.
//! - *command*: an *ask* of one run, by a *principal*. A command is *decided*: it makes an event (it is *applied*, or
//!   a late report is *recorded late*), is *unchanged*, *replayed* (it was applied before), or *refused*. The
//!   *disposition* of a call says which; a refusal has none.
//! - *side*: a row besides the run that a decision rests on. A side is read and locked under the head.
//! - *batch*: commands that are committed together; of other things, those that share a write or a query. A commit of
//!   unknown outcome is *unsettled* until the store has told its outcome.
//! - *hint*: a fact about a run or a shard that a process remembers, to decide on before the head is taken; an
//!   *optimistic commit* is decided on hints, and writes only where they hold. After a hint that did not hold comes a
//!   *back-off*.
//! - *lease*: the right of one worker, its *holder*, to report on a run. The lease's epoch is the fencing token; a
//!   lease is *granted*, *renewed* by a *heartbeat*, *released*, or *over*. *Progress* is the holder's report of how
//!   far the work has come.
//! - *claim*: a lease that a worker takes on a run that waits for one, or has no holder any more. A claim is *not
//!   begun* while no event was made under it, and *unreceived* when its caller had gone before the answer; when it is
//!   *given back*, its run is *ready*, which is a row in the table `suspended`. Of the runs that wait for a claim, the
//!   one with the highest *priority* comes first. A *claim request* is a claimer's own
//!   request, by its `request_id`, which a repetition finds again.
//! - *suspension*: a RUNNING run that waits, by its *kind*, without anybody who executes it; it ends with its
//!   *resumption*, whose effect, for a run that is made ready, comes with the claim. A run is *at rest* while it is
//!   suspended or ready: its lease is *resting*, and the time at rest is no time of its deadline.
//! - *`max_running`*: the largest number of runs with one value of a label that may be running, as a claim states it:
//!   the runs *count* that were claimed under it. A *limit* is also a bound of the contract or of a part of the
//!   process.
//! - *caller*: whoever makes a call. A *credential* proves its *identity* (a subject and an issuer); its *grants* say
//!   what it may do, in which *role*, as which agents. Where nothing is to be proven, a caller is *believed*. Limits
//!   tell callers apart by a key of *parties*: the identity, or the connection and the named agent. A *share* is the
//!   part of a bounded thing that a caller has taken; a *turn* is the right to use a thing that few may use at once.
//! - *upkeep*: whatever changes without a commit: renewals, stamps by which servers tell that they are alive, and
//!   tidying, which deletes rows that nothing needs any more.
//! - *sweep*: the authority's own command that ends a run whose time is over. A conclusion from silence is *presumed*,
//!   and a *late report* is a worker's report that came after it.
//! - *tailer*, *ring*, *session*: the tailer reads the log's end, the ring keeps its last part, and a session serves
//!   one watch from it. A *frame* is one message of a watch, a *cursor* the place to go on from. In the stores a
//!   session is a connection to the database, and in the transport a frame is HTTP/2's.
//! - *chain*: a certificate and those between it and a CA; a client's *name* is in the first of them. The trust in a
//!   client is *withdrawn* when its chain verifies no more.
//! - *problem* and *violation*: a refusal as the wire shows it, and one field that is wrong in a request.

pub mod admin;
pub mod app;
pub mod auth;
pub mod authority;
pub mod claims;
pub mod cli;
pub mod clock;
pub mod config;
pub mod declaration;
pub mod domain;
pub mod engine;
pub mod feed;
pub mod grpc;
pub mod leases;
pub mod memory;
pub mod namespaces;
pub mod private;
pub mod reads;
pub mod retention;
pub mod share;
pub mod stdio;
pub mod store;
pub mod supervise;
pub mod telemetry;
pub mod text;
pub mod tls;
pub mod wire;
