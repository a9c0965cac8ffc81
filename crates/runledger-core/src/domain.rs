//! The rules. Pure: no async, no clock, no ids drawn, no store; times, ids and principals come in as arguments.
//!
//! [`decide`](decide::decide) decides a command on a run, [`evolve`](evolve::evolve) folds an event into it, and
//! [`batch`] applies both to the commands of one commit.
//!
//! Invariant: a run is the fold of its events, and its row in the table `runs` is a cache of that fold. Every
//! transition is decided in `decide` and folded in `evolve`, so the rules are tested without a database, and both
//! stores share them to the letter. A renewal of a lease is no transition: [`renewal`] says when it is made.
//!
//! Statements of the stores that find, renew or count rows say some of the rules again, in SQL: which lease is over and
//! may be renewed, which runs count for `max_running`, and which runs match a filter.

pub mod ask;
pub mod batch;
pub mod changes;
pub mod check;
pub mod command;
pub mod content;
pub mod context;
pub mod decide;
pub mod decision;
mod disposition;
pub mod epoch;
pub mod event;
pub mod event_type;
pub mod evolve;
pub mod filter;
pub mod form;
mod happened;
pub mod ids;
pub mod lifecycle;
pub mod limits;
pub mod link;
pub mod namespace;
mod number;
pub mod parts;
pub mod pattern;
pub mod positions;
pub mod principal;
pub mod refusal;
pub mod renewal;
pub mod request;
pub mod retention;
pub mod revision;
pub mod rewriting;
pub mod run;
pub mod sides;
pub mod status;
pub mod steady;
mod sweep;
pub mod time;
pub mod trace;
pub mod violation;
pub mod writes;

pub use ask::{
    Ask, Asker, Basis, Brought, Claim, Complete, End, Facts, GiveBack, LeaseRow, Release, RequestAbort, Resume, Start,
    Suspend, SuspensionTerms, Terms, Update,
};
pub use batch::{Decide, Decided, Loaded, Rules, Verdict};
pub use changes::Changes;
pub use command::{Command, Prepared};
pub use content::{Content, ContentDigest, Hash};
pub use disposition::Disposition;
pub use epoch::{LeaseEpoch, LedgerEpoch};
pub use event::Event;
pub use event_type::{EventOf, EventType};
pub use filter::{AtRest, Filter};
pub use ids::{Namespace, Position, RunId, RunKey, Shard};
pub use lifecycle::{
    Lifecycle, LifecycleId, LifecycleName, LifecyclePin, LifecycleRecord, LimitThen, Masks, OnRetry, PutFacts,
    PutLifecycle, PutOutcome, PutRefusal, Requirement,
};
pub use link::Link;
pub use namespace::{
    NamespaceAsk, NamespaceCommand, NamespaceDecision, NamespaceFacts, NamespaceRecord, NamespaceRefusal,
    NamespaceSettings, Quotas,
};
pub use parts::attachments::{Attachments, AttachmentsChange, ResultDigest};
pub use parts::attempts::{AttemptBegin, AttemptFailure, Attempts, AttemptsChange};
pub use parts::bindings::{Bindings, BindingsChange, Route};
pub use parts::claim::{ClaimKey, Claimed, MaxRunning, Take};
pub use parts::ending::{AbortRequest, Ending, LateReport};
pub use parts::labels::{Labels, LabelsChange};
pub use parts::lease::{Executor, HeldLease, Lease, Progress, Renewal, Unbegun};
pub use parts::metadata::Metadata;
pub use parts::origin::Origin;
pub use parts::position::{PositionAsk, PositionChange, RunPosition};
pub use parts::priority::Priority;
pub use parts::redaction::{RedactedPath, Redaction};
pub use parts::rest::{Ready, Rest, Resumption, Suspension, Suspensions, SuspensionsChange, TimeoutThen};
pub use pattern::Pattern;
pub use positions::Positions;
pub use principal::{Agents, Identity, Principal, PrincipalKind};
pub use refusal::{Cause, Refusal};
pub use request::Request;
pub use retention::Retention;
pub use revision::Revision;
pub use run::{Refinements, RefinementsChange, Run, Summary, Supervision, SupervisionChange};
pub use sides::contents::{ContentRow, ContentTable};
pub use sides::lifecycles::{Declared, LifecycleFound, LifecycleKey};
pub use sides::max_running::LabelValue;
pub use sides::namespaces::{NamespaceFound, NamespaceRow, Used};
pub use sides::{Found, SideWrites, Sides, Wanted};
pub use status::Status;
pub use steady::Steady;
pub use time::Time;
pub use trace::TraceContext;
pub use violation::Violation;
pub use writes::{NewEvent, RunWrite, Stored};
