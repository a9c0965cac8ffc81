//! The requests that choose runs: reads, lists, counts, histories, waits, watches, and the claim of the next run. A
//! request is checked whole, as the requests on one run are in [`request`](super::request).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prost_types::Timestamp;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::request::run_key;
use super::validate::{Violations, domain_duration};
use crate::auth::Caller;
use crate::domain::limits::STATUSES_MAX;
use crate::domain::sides::claims::kept_id;
use crate::domain::{Filter, LedgerEpoch, MaxRunning, Request, Revision, Route, RunKey, Status, Take, Time, Violation};
use crate::feed::WaitUntil;
use crate::feed::cursor::ViewOf;
use crate::store::query::CountBy;
use runledger_proto::v1;
use runledger_proto::v1::watch_runs_request::Initial;

/// Events in a page of history where the request does not say.
const EVENTS_PAGE_SIZE_DEFAULT: usize = 100;
/// Runs in a page of a list where the request does not say.
const RUNS_PAGE_SIZE_DEFAULT: usize = 50;
/// Events or runs in a page at most.
const PAGE_SIZE_MAX: usize = 1_000;
/// Time that a `WaitRun` waits where the request does not say.
const WAIT_DEFAULT: Duration = Duration::from_mins(1);
/// Time that a `WaitRun` waits at most.
pub const WAIT_MAX: Duration = Duration::from_hours(24);

/// The run and the page size of a `ListRunEvents`. The token is for [`page_token`](super::page_token), which has an
/// answer of its own.
///
/// # Errors
///
/// Every violation.
pub fn list_run_events(request: &v1::ListRunEventsRequest, caller: &Caller) -> Result<(RunKey, usize), Vec<Violation>> {
    let mut violations = Violations::default();
    violations.run_id(&request.run_id);
    let page_size = page_size(request.page_size, EVENTS_PAGE_SIZE_DEFAULT, &mut violations);
    violations
        .settle((RunKey { namespace: caller.namespace.clone(), run_id: request.run_id.as_str().into() }, page_size))
}

/// The question of a `ListRuns`. The token is for [`page_token`](super::page_token).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunList {
    /// The filter that runs must match.
    pub filter: Filter,
    /// Runs in the page at most.
    pub page_size: usize,
    /// Whether the runs are shown with their metadata.
    pub full: bool,
}

/// The question of a `ListRuns`.
///
/// # Errors
///
/// Every violation.
pub fn list_runs(request: v1::ListRunsRequest) -> Result<RunList, Vec<Violation>> {
    let mut violations = Violations::default();
    let filter = filter(request.filter, Some(false), &mut violations);
    let page_size = page_size(request.page_size, RUNS_PAGE_SIZE_DEFAULT, &mut violations);
    let full = is_full(request.view, &mut violations);
    violations.settle(RunList { filter, page_size, full })
}

/// The filter of a `CountRuns`, and what runs are counted by.
///
/// # Errors
///
/// Every violation.
pub fn count_runs(request: v1::CountRunsRequest) -> Result<(Filter, CountBy), Vec<Violation>> {
    let mut violations = Violations::default();
    let filter = filter(request.filter, Some(false), &mut violations);
    violations.settle((filter, CountBy { phase: request.by_phase, suspension: request.by_suspension }))
}

/// The filter and the first view of a `WatchRuns`. The cursor is for [`cursor`](super::cursor).
///
/// # Errors
///
/// Every violation.
pub fn watch_runs(request: v1::WatchRunsRequest) -> Result<(Filter, Option<ViewOf>), Vec<Violation>> {
    let mut violations = Violations::default();
    let filter = filter(request.filter, None, &mut violations);
    let view = match Initial::try_from(request.initial) {
        Ok(Initial::Unspecified | Initial::Active) => Some(ViewOf::Active),
        Ok(Initial::All) => Some(ViewOf::All),
        Ok(Initial::None) => None,
        Err(_) => {
            violations.push("initial", format!("{} is not a value of Initial", request.initial));
            None
        }
    };
    violations.settle((filter, view))
}

/// The question of a `WatchRun`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRun {
    /// The run.
    pub key: RunKey,
    /// The revision after which events are wanted; none: the watch begins with the run as it is.
    pub after: Option<Revision>,
    /// The ledger's epoch that `after` is of; none: the caller does not know it.
    pub of_epoch: Option<LedgerEpoch>,
}

/// The question of a `WatchRun`.
///
/// # Errors
///
/// Every violation.
pub fn watch_run(request: v1::WatchRunRequest, caller: &Caller) -> Result<WatchRun, Vec<Violation>> {
    Ok(WatchRun {
        key: run_key(request.run_id, caller)?,
        after: request.after_revision.map(Revision::from),
        of_epoch: request.ledger_epoch.map(LedgerEpoch::from),
    })
}

/// The run of a `WaitRun`, and the time to wait.
///
/// # Errors
///
/// Every violation.
pub fn wait_run(request: v1::WaitRunRequest, caller: &Caller) -> Result<(RunKey, Duration, WaitUntil), Vec<Violation>> {
    let mut violations = Violations::default();
    violations.run_id(&request.run_id);
    let timeout = request.timeout.map_or(Some(WAIT_DEFAULT), domain_duration);
    let timeout = timeout.filter(|timeout| *timeout <= WAIT_MAX);
    if timeout.is_none() {
        violations.push("timeout", "must be 0 to 24 hours");
    }
    let key = RunKey { namespace: caller.namespace.clone(), run_id: request.run_id.into() };
    let until = match v1::WaitUntil::try_from(request.until) {
        Ok(v1::WaitUntil::Unspecified | v1::WaitUntil::Terminal) => WaitUntil::Terminal,
        Ok(v1::WaitUntil::Suspended) => WaitUntil::Suspended,
        Err(_) => {
            violations.push("until", format!("{} is not a value of WaitUntil", request.until));
            WaitUntil::Terminal
        }
    };
    violations.settle((key, timeout.unwrap_or(WAIT_DEFAULT), until))
}

/// The question of a `GetRun`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAsked {
    /// The run.
    pub key: RunKey,
    /// The label whose queue the caller asks about.
    pub queue_label: Option<String>,
    /// How much of the run.
    pub view: v1::RunView,
}

/// Whether runs are shown with their metadata, by the number of a view of many.
pub(super) fn is_full(view: i32, violations: &mut Violations) -> bool {
    match v1::RunView::try_from(view) {
        Ok(v1::RunView::Unspecified | v1::RunView::Basic) => false,
        Ok(v1::RunView::Full) => true,
        Ok(v1::RunView::Whole) => {
            violations.push("view", "RUN_VIEW_WHOLE is for GetRun alone");
            false
        }
        Err(_) => {
            violations.push("view", format!("{view} is not a value of RunView"));
            false
        }
    }
}

/// The question of a `GetRun`.
///
/// # Errors
///
/// Every violation.
pub fn get_run(request: v1::GetRunRequest, caller: &Caller) -> Result<RunAsked, Vec<Violation>> {
    let mut violations = Violations::default();
    violations.run_id(&request.run_id);
    let label = request.queue_label;
    if let Some(label) = &label {
        violations.label_key(|| "queue_label".to_owned(), label);
    }
    let number = request.view.unwrap_or_default();
    let view = v1::RunView::try_from(number).unwrap_or_else(|_| {
        violations.push("view", format!("{number} is not a value of RunView"));
        v1::RunView::Unspecified
    });
    let key = RunKey { namespace: caller.namespace.clone(), run_id: request.run_id.into() };
    violations.settle(RunAsked { key, queue_label: label, view })
}

/// The run of a `ListLinks`, and the `rel` of the links; none: all.
///
/// # Errors
///
/// Every violation.
pub fn list_links(request: v1::ListLinksRequest, caller: &Caller) -> Result<(RunKey, Option<String>), Vec<Violation>> {
    let mut violations = Violations::default();
    violations.run_id(&request.run_id);
    let rel = Some(request.rel).filter(|rel| !rel.is_empty());
    if let Some(rel) = &rel {
        violations.rel("rel", rel);
    }
    violations.settle((RunKey { namespace: caller.namespace.clone(), run_id: request.run_id.into() }, rel))
}

/// Runs that one claim takes at most.
const CLAIM_RUNS_MAX: u32 = 100;

/// The claim that a `ClaimNextRun` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimNext {
    /// The filter that runs must match.
    pub filter: Filter,
    /// Which runs are taken.
    pub take: Take,
    /// Milliseconds that the lease lasts without a heartbeat.
    pub lease_ttl_ms: u64,
    /// The time to wait.
    pub wait: Duration,
    /// The limit of runs with the same value of a label that may be running.
    pub max_running: Option<MaxRunning>,
    /// The number of runs at most.
    pub max_runs: usize,
    /// The request id, which makes the call safe to retry.
    pub request: Option<Request>,
}

impl ClaimNext {
    /// The digest of everything that a repetition must repeat: all but the time to wait, with the acting agent. The
    /// format is frozen: the digest is compared with digests in the ledger.
    fn digest(&self, caller: &Caller) -> [u8; 32] {
        #[derive(Serialize)]
        struct DigestedQuery<'a> {
            rpc: &'static str,
            acting_agent: Option<&'a str>,
            task_thread_id: Option<&'a str>,
            statuses: &'a BTreeSet<Status>,
            agent_id: Option<&'a str>,
            workflow_id: Option<&'a str>,
            audit_session_id: Option<&'a str>,
            route: Option<Route>,
            labels: &'a BTreeMap<String, String>,
            started_from: Option<Time>,
            started_before: Option<Time>,
            lease_ttl_ms: u64,
            max_running: Option<&'a MaxRunning>,
            #[serde(skip_serializing_if = "Option::is_none")]
            parent_run_id: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            continues_run_id: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            phase: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            lifecycle: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            suspension_kind: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            take: Option<&'static str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            max_runs: Option<usize>,
        }
        let Self { filter, lease_ttl_ms, max_running, max_runs, .. } = self;
        let asked = DigestedQuery {
            rpc: "ClaimNextRun",
            acting_agent: caller.principal.agent_id.as_deref(),
            task_thread_id: filter.task_thread_id.as_deref(),
            statuses: &filter.statuses,
            agent_id: filter.agent_id.as_deref(),
            workflow_id: filter.workflow_id.as_deref(),
            audit_session_id: filter.audit_session_id.as_deref(),
            route: filter.route,
            labels: &filter.labels,
            started_from: filter.started_from,
            started_before: filter.started_before,
            lease_ttl_ms: *lease_ttl_ms,
            max_running: max_running.as_ref(),
            parent_run_id: filter.parent_run_id.as_deref(),
            continues_run_id: filter.continues_run_id.as_deref(),
            phase: filter.phase.as_deref(),
            lifecycle: filter.lifecycle.as_deref(),
            suspension_kind: filter.suspension_kind.as_deref(),
            take: self.take.name(),
            max_runs: Some(*max_runs).filter(|max_runs| *max_runs > 1),
        };
        let json = serde_json::to_vec(&asked).expect("strings and numbers serialize");
        Sha256::digest(json).into()
    }
}

/// The question of a `ClaimNextRun`.
///
/// # Errors
///
/// Every violation.
pub fn claim_next_run(request: v1::ClaimNextRunRequest, caller: &Caller) -> Result<ClaimNext, Vec<Violation>> {
    let mut violations = Violations::default();
    if request.filter.as_ref().is_some_and(|filter| filter.archived != 0) {
        violations.push("filter.archived", "must be unspecified: no run that waits is archived");
    }
    for (field, given) in request.filter.iter().flat_map(|it| [("suspended", it.suspended), ("ready", it.ready)]) {
        if given.is_some() {
            violations.push(format!("filter.{field}"), "must be absent: take says which runs are taken");
        }
    }
    let filter = filter(request.filter, None, &mut violations);
    if filter.statuses.iter().any(|status| *status != Status::Pending) {
        violations.push(
            "filter.statuses",
            "must be empty or RUN_STATUS_PENDING: only runs that are pending, or ready, are claimed",
        );
    }
    let lease_ttl_ms = violations.required_lease_ttl_ms(request.lease_ttl);
    let wait = request.wait.map_or(Some(Duration::ZERO), domain_duration).filter(|wait| *wait <= WAIT_MAX);
    if wait.is_none() {
        violations.push("wait", "must be 0 to 24 hours");
    }
    let max_running = violations.max_running(request.max_running);
    let take = match v1::ClaimTake::try_from(request.take) {
        Ok(v1::ClaimTake::Unspecified | v1::ClaimTake::Pending) => Take::Pending,
        Ok(v1::ClaimTake::Ready) => Take::Ready,
        Ok(v1::ClaimTake::Both) => Take::Both,
        Err(_) => {
            violations.push("take", format!("{} is not a value of ClaimTake", request.take));
            Take::Pending
        }
    };
    if take == Take::Pending && filter.suspension_kind.is_some() {
        violations.push("filter.suspension_kind", "must be empty: with this take, no run is taken that was suspended");
    }
    if request.max_runs > CLAIM_RUNS_MAX {
        violations.push("max_runs", format!("must be 1 to {CLAIM_RUNS_MAX}, or 0 for 1"));
    }
    let max_runs = request.max_runs.max(1) as usize;
    let request_id = violations.request_id(request.request_id);
    let wait = wait.unwrap_or_default();
    let asked = ClaimNext { filter, take, lease_ttl_ms, wait, max_running, max_runs, request: None };
    let mut asked = violations.settle(asked)?;
    let identity = caller.principal.identity.as_deref();
    asked.request = request_id.map(|id| Request { id: kept_id(identity, &id), digest: asked.digest(caller) });
    Ok(asked)
}

/// The question of a claim that comes with another call, in its field `claim_next`.
///
/// # Errors
///
/// Every violation, by its field of that call.
pub fn claim_next(request: v1::ClaimNextRunRequest, caller: &Caller) -> Result<ClaimNext, Vec<Violation>> {
    let mut more = Vec::new();
    if request.wait.is_some() {
        more.push(Violation::new("wait", "must be absent: the claim is answered at once"));
    }
    if request.request_id.is_empty() {
        more.push(Violation::new("request_id", "is required: who sends the call again gets the same run"));
    }
    let mut asked = claim_next_run(request, caller);
    if !more.is_empty() {
        asked = Err(asked.err().into_iter().flatten().chain(more).collect());
    }
    let of_call = |violation: Violation| Violation { field: format!("claim_next.{}", violation.field), ..violation };
    asked.map_err(|violations| violations.into_iter().map(of_call).collect())
}

/// `filter`. `archived`: what the call means where the filter does not say it.
fn filter(filter: Option<v1::RunFilter>, archived: Option<bool>, violations: &mut Violations) -> Filter {
    let Some(filter) = filter else { return Filter { archived, ..Filter::default() } };
    let archived = match v1::ArchivedFilter::try_from(filter.archived) {
        Ok(v1::ArchivedFilter::Unspecified) => archived,
        Ok(v1::ArchivedFilter::Excluded) => Some(false),
        Ok(v1::ArchivedFilter::Included) => None,
        Ok(v1::ArchivedFilter::Only) => Some(true),
        Err(_) => {
            violations.push("filter.archived", format!("{} is not a value of ArchivedFilter", filter.archived));
            None
        }
    };
    let labels = violations.labels("filter.labels", filter.labels);
    let mut time = |field: &str, time: Option<Timestamp>| {
        let time = time?;
        let known = domain_time(&time);
        if known.is_none() {
            violations.push(field, "is not a time of the years 1 to 9999");
        }
        known
    };
    let started_from = time("filter.started_from", filter.started_from);
    let started_before = time("filter.started_before", filter.started_before);
    if let (Some(from), Some(before)) = (started_from, started_before)
        && from >= before
    {
        violations.push("filter.started_before", "must be later than filter.started_from");
    }
    if filter.statuses.len() > STATUSES_MAX {
        let count = filter.statuses.len();
        violations.push("filter.statuses", format!("has {count} entries; the limit is {STATUSES_MAX}"));
    }
    let mut statuses = BTreeSet::new();
    for (index, number) in filter.statuses.into_iter().take(STATUSES_MAX).enumerate() {
        let field = format!("filter.statuses[{index}]");
        match violations.status(&field, number) {
            Some(status) => {
                statuses.insert(status);
            }
            None if number == i32::from(v1::RunStatus::Unspecified) => {
                violations.push(field, "must be a status: give none at all for any");
            }
            None => {}
        }
    }
    Filter {
        archived,
        task_thread_id: violations.link("filter.task_thread_id", filter.task_thread_id),
        statuses,
        agent_id: violations.link("filter.agent_id", filter.agent_id),
        workflow_id: violations.link("filter.workflow_id", filter.workflow_id),
        audit_session_id: violations.link("filter.audit_session_id", filter.audit_session_id),
        route: violations.route("filter.route", filter.route),
        parent_run_id: violations.other_run("filter.parent_run_id", filter.parent_run_id),
        continues_run_id: violations.other_run("filter.continues_run_id", filter.continues_run_id),
        phase: violations.phase("filter.phase", filter.phase),
        lifecycle: violations.phase("filter.lifecycle", filter.lifecycle),
        labels,
        started_from,
        started_before,
        suspended: filter.suspended,
        ready: filter.ready,
        suspension_kind: violations.kind("filter.suspension_kind", filter.suspension_kind),
        priority: None,
        or: None,
    }
}

/// A page's size: 0 is the default.
pub(super) fn page_size(asked: i32, default: usize, violations: &mut Violations) -> usize {
    match usize::try_from(asked) {
        Ok(0) => default,
        Ok(size) => size.min(PAGE_SIZE_MAX),
        Err(_) => {
            violations.push("page_size", format!("must not be negative: 0 to {PAGE_SIZE_MAX}"));
            default
        }
    }
}

/// A time of the wire, at the next whole microsecond: no run starts in between; none outside the years 1 to 9999.
fn domain_time(time: &Timestamp) -> Option<Time> {
    let nanos = u32::try_from(time.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    let years = -62_135_596_800..=253_402_300_799;
    let micros = i64::from(nanos.div_ceil(1_000));
    years.contains(&time.seconds).then(|| Time::from_micros(time.seconds * 1_000_000 + micros))
}
