//! The rules. Pure: no async, no clock, no ids drawn, no store; times, ids and principals come in as arguments.
//!
//! [`decide`](decide::decide) says what a command does to a run, [`evolve`](evolve::evolve) what an event makes of it,
//! and [`batch`] applies both to the commands of one commit. Every rule of the contract stands here, so it is tested
//! without a database and both stores share it to the letter.

pub mod batch;
pub mod check;
pub mod claimed;
pub mod command;
pub mod decide;
pub mod event;
pub mod evolve;
pub mod filter;
pub mod heartbeat;
pub mod ids;
pub mod limits;
pub mod max_running;
pub mod metadata;
pub mod ready;
pub mod refusal;
pub mod run;
pub mod supervision;
mod sweep;
pub mod time;

pub use batch::{Decided, Loaded, NewEvent, RunWrite, Verdict};
pub use claimed::Claimed;
pub use command::{Changes, Command, Operation, Principal, PrincipalKind, Request, Terms};
pub use event::{Event, EventType};
pub use filter::Filter;
pub use ids::{Position, RunKey, Shard};
pub use max_running::{LabelValue, MaxRunning};
pub use metadata::Metadata;
pub use ready::{Ready, Unbegun};
pub use refusal::{Refusal, Violation};
pub use run::{Route, Run, Status, Summary};
pub use supervision::{AbortRequest, HeldLease, LateReport, Lease, Progress, Renewal, Supervision};
pub use time::Time;
