//! Runledger is the lifecycle authority for runs: others do the work and report; it decides which transitions are
//! true, keeps every event, and tells everyone who watches. One binary, stateless replicas over one
//! database.
//!
//! # The path of a command
//!
//! ```text
//! client -> grpc -> authority (convert, validate) -> engine (queue per shard, group commit)
//!        -> store.commit: { lock the shard's head, read its end and the rows } decide, evolve { write; COMMIT } -> reply
//!                                                                                     |
//! watcher <- grpc (frames) <- feed (history, then live) <--------------------------+  (wake-up; the log is the truth)
//! ```
//!
//! One direction, no way back. `grpc` and `authority` hold no SQL and no rules, [`domain`] no async, clocks or ids, [`store`] no
//! rules. [`engine`] and [`feed`] never name each other.
//!
//! # What holds
//!
//! - A run is the fold of its events; the `runs` row is a cached fold. Every rule is in [`domain::decide`] and
//!   [`domain::evolve`], so it is tested without a database and both stores share it to the letter.
//! - One transaction writes exactly one shard, and takes the shard's head first. So in each shard positions are dense
//!   and in commit order: a reader that has seen p has seen all before p.
//! - Answers go out after the commit, refusals too. A commit of unknown outcome is settled before its callers hear.
//! - A commit rests on what was read under the head. On Postgres it may be decided before, on what this process
//!   remembers: then the statement that writes looks under the head whether all of it is so, and else writes nothing, and
//!   the commit is made again under the head. Where others commit all the time it is made there from the first: of what
//!   is remembered only runs are then taken, and looked at in the same way. Nothing is answered from memory.
//! - The time is the store's; no time in a run is before its `updated_at`, and an event's `at` is not before its
//!   shard's last, and after every event of any shard that was acknowledged before its call was sent. A commit that was
//!   decided before the head was taken bears the time that this process took for the store's, which the store checks: at
//!   most 5 ms ahead of it, and less than a second behind.
//! - On SQLite the ledger is one file with one name, and its log. When a name comes to mean another file, what is being
//!   committed stays unknown, nothing is acknowledged any more, and the service stops.
//! - A replica whose release the database has outgrown (`min_release`) commits nothing more: it reads that under the head.
//! - The state after any event is fewer than 32 events away: from the run's first event, or from a keyframe, which
//!   every event carries whose revision is a multiple of 32.
//! - Callers of `GetRun` that meet share the next query, never one that was sent. Nothing is cached between calls.
//! - A Postgres database may lose what was acknowledged: an asynchronous standby is promoted, a backup is put back.
//!   Then the ledger's epoch is raised, once for all replicas, before a session is used that may read the new past. Who
//!   gives out a place in the log (cursors, revisions of a watch) compares the epoch between the read and the answer:
//!   no watch goes from one past to another.
//! - A lease's epoch is part of the run and decides who may write; when it expires is not: that stands in a row of its own
//!   (`leases`), which a heartbeat renews without the head and without an event. A sweep or a claim reads that row under the
//!   head and locks it, so that of a heartbeat and an end the first wins; it is taken off in the commit that ends the run.
//! - The authority ends runs, and gives claims back, by ordinary commands. Every replica looks once a second for leases and
//!   deadlines that are over, none leads, and what they find is decided under the head. What it concludes from silence is
//!   `presumed`: then, and only then, may an event follow a terminal status, and it changes none.
//! - A lease is over when its expiry has passed, and one ttl since the authority was last away: its own outage kills nobody.
//!   It is away for a lease when renewals cannot be made for a quarter of the ttl: because no server runs, one stands
//!   still, or the store fails. Each server knows its own interruptions and forgets them when it ends. The servers on
//!   Postgres tell each other by a stamp a second since when there was one of them without an interruption of 2 s, so that
//!   a restart is no outage; one of 2 s counts there for leases of every ttl.
//! - A list or a count walks one index in its order and looks at a bounded number of runs, whatever its filter says.
//! - Every queue, page, ring and cache is bounded, in bytes where the size of an item is the caller's choice.
//!
//! # The path of a watch
//!
//! ```text
//! store.changes: all shards in one statement -> tailer (folds once, encodes once) -> ring (bounded in bytes) -> sessions
//! store.changes, run_events: history, a page at a time ---------------------------------------------------------^
//! ```
//!
//! - One tailer a process reads the log's end. It is woken by this process's commits, by `NOTIFY`, and by a poll: wake-ups
//!   may be lost, events may not. While nobody watches, it reads nothing.
//! - A session takes its place first, then reads history up to heads that it took itself, then the ring; what it has seen it
//!   tells by shard and position, which are dense. When the ring has moved on, it goes back to history. So a slow reader
//!   costs a page and a number, never a queue.
//! - A cursor is a position for each shard, and in the first view the last run that was shown. The first view shows runs as
//!   they were at these positions, whatever has happened since: so every event after them is due, and nothing else need be
//!   remembered.
//! - Each session, the tailer and the ring belong to one epoch of the ledger, and end or begin anew when it is raised.
//! - An event that cannot be read ends the sessions that it is for; the others pass over it.
//! - A watcher of many runs is woken only when an event is for it; the tailer tests the filters. Who waits for a run's end
//!   waits for the same signal, and asks the database nothing.
//!
//! # The transport
//!
//! ```text
//! listener: a place -> preface -> hyper, h2 -> by its headers: refused, or begun -> its request, whole -> its turn -> service
//!                                                                    answer, in parts, counted until written <------+
//! ```
//!
//! - What one connection can take is bounded: the bytes that it has read before others are read, frames without a call, calls
//!   in execution, bytes of requests and of untaken answers, time without progress, its age.
//! - A connection that reaches its own bound waits, or its calls do. Only where all connections together reach one, is
//!   something refused or cut, of those that have more than their share.
//! - What is refused by its headers was not decoded, and nothing of it was written.
//!
//! # Claims
//!
//! Claimers with one filter share a queue of candidates, read oldest first, a page at a time, and from its end on told by the
//! feed; each is handed another one. The queue is a hint, and the claim a command. A claimer that finds nothing waits for the
//! feed to tell of a run that is new or ready. A new filter evicts the queue that is idle for the longest, where there are too
//! many.
//!
//! A claim that nobody received is given back: the engine notices that its caller has gone when the answer is due, and the
//! authority releases the lease by a command. The run stays RUNNING and is *ready*: it has no row in `leases` and one in
//! `suspended`, and the next claim takes it. What a claimer's own `request_id` was granted stands in a row of `claims`, which
//! is the request's mutex: a claim takes it after the head and after the rows of `max_running`. Like these, it is not made
//! from the log.
//!
//! A claim may state how many runs with one value of a label may be running. Which runs count for a value stands in a row of
//! its own (`max_running`), of any shard's: a claim takes it after the head, and it is the only lock that commits of two
//! shards share: while a claim waits for it, so does its shard, for 2 s at most where the holder is frozen. A run counts
//! while `active` has it and it is not ready: what ends says nothing, and is forgotten by the next claim. No event says under
//! which limit a run was claimed: this table is not made from the log, and `verify` does not look at it. A queue remembers
//! the runs that a claim was refused for, asks the store once whether they still count, and passes over their value until
//! the feed tells of an end. The runs that wait stand in lanes, one for each owner and value, and an index has the oldest run
//! of each lane whose value has room.
//!
//! # The modules
//!
//! | module | what it is |
//! |---|---|
//! | [`domain`] | the rules, pure: what a command does to a run, in the order of the contract's checks |
//! | `domain::ask` | what callers ask for, one form for each call |
//! | `domain::run` | a run, in parts: links, labels, ending, supervision; each with its change and its fold |
//! | `domain::sides` | what a decision rests on besides its run: leases, limits, claim requests |
//! | `domain::decide`, `domain::evolve` | a command on a run makes an event; an event makes a run |
//! | [`store`] | durable runs and their log: one contract, on SQLite and on Postgres, under the same file names |
//! | [`engine`] | one committer a shard: commands queue, and are committed in batches |
//! | [`feed`] | the tailer, the ring and the sessions of watches |
//! | [`claims`] | queues of runs that wait for a claim |
//! | [`leases`] | heartbeats in batches, the sweep of whose time is over, the board of progress |
//! | [`reads`] | reads that share a query |
//! | [`wire`] | requests as commands, runs and refusals as answers, cursors and page tokens |
//! | [`authority`] | the calls without a transport: a request in, an answer or a problem out |
//! | [`grpc`] | the gRPC face on top of it, health, and the listener with its bounds |
//! | [`auth`] | who makes a call |
//! | [`app`], [`config`], [`supervise`], [`telemetry`], [`clock`] | the process: wired, told what to do, stopped, heard |
//! | [`cli`] | the binary as a client, and the tools on a ledger |
//!
//! Beside this package, `crates/` has the messages (`runledger-proto`), a client with a worker's loop (`runledger-client`)
//! and the measurements (`runledger-bench`).
//!
//! A rule is looked up by what it is about: a lease, for example, is described in `domain::run`, decided in
//! `domain::decide` on the row that `domain::sides` wants, read and written by `store::postgres::sides` and
//! `store::sqlite::sides`, renewed and swept by `leases`, and shown by `wire::answer`.
//!
//! `tests/it/layering.rs` holds the table of who may use whom, and fails on a breach.
//!
//! # Words
//!
//! One word for each thing, in names, comments, SQL, metrics and logs:
//!
//! - *ledger*: one database of runs with its identity. Its *epoch* rises when it turns out to have lost a part of its past.
//! - *shard*: a part of the ledger whose events are in one order. Its *head* is the lock that every writer takes first; a
//!   *position* is an event's place in it.
//! - *run*: the fold of its events; its *revision* counts them. A *keyframe* is a whole run kept with an event.
//! - *command*: an *ask* of one run, by a *principal*. It is *decided*: it makes an event, is *unchanged*, *replayed* (it
//!   was applied before), or *refused*. What came of a call is its *disposition*.
//! - *side*: a row besides the run that a decision rests on. It is read and locked under the head.
//! - *batch*: commands that are committed together. A commit of unknown outcome is *unsettled* until the log was looked at.
//! - *hint*: what a process remembers of runs and shards, to decide on before the head is taken; an *optimistic commit* is
//!   decided on hints, and writes only where they hold. After one that was wrong comes a *back-off*.
//! - *lease*: who may report what a run does. Its epoch is the fencing token; it is *granted*, *renewed* by a *heartbeat*,
//!   *released*, or *over*. *Progress* is what its holder says of the work.
//! - *claim*: a lease on a run that waits for one. It is *not begun* while no event was made under it, and *unreceived*
//!   when its caller had gone; given back, its run is *ready*.
//! - *limit*: how many runs with one value of a label may be running.
//! - *sweep*: the authority's own command that ends a run whose time is over. A conclusion from silence is *presumed*, and
//!   a *late report* is what came after it.
//! - *tailer*, *ring*, *session*: who reads the log's end, keeps its last part, and serves one watch from it. A *frame* is
//!   one message of a watch, a *cursor* where it goes on.
//! - *problem* and *violation*: a refusal as the wire shows it, and one thing that is wrong with a request.

pub mod app;
pub mod auth;
pub mod authority;
pub mod claims;
pub mod cli;
pub mod clock;
pub mod config;
pub mod domain;
pub mod engine;
pub mod feed;
#[cfg(feature = "bench")]
pub mod fill;
pub mod grpc;
pub mod leases;
pub mod reads;
pub mod store;
pub mod supervise;
pub mod telemetry;
pub mod wire;
