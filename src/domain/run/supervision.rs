//! What keeps a run from staying open for ever: its lease, its deadlines, a request to abort it, and what was reported
//! too late.

use serde::{Deserialize, Serialize};

use crate::domain::{Event, EventType, Metadata, Principal, Ready, Run, Status, Time, Unbegun};

/// Who may report what a run does. The epoch is the fencing token: it only grows, and writes under an older one are
/// refused. When it expires is not said here: renewals are no events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// 1 for the run's first lease, and more for each that follows; more by far after a failover that lost commits.
    pub epoch: u64,
    /// How long it lasts after it was granted or renewed, in milliseconds.
    pub ttl_ms: u64,
    /// Its holder gave it up: nobody holds this epoch, and the run may be claimed at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
}

/// The wish that a run be aborted by who executes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AbortRequest {
    /// When it was made.
    pub at: Time,
    /// Who made it.
    pub by: Principal,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the authority aborts the run by itself; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
}

/// What the holder of the last lease reported after the authority had ended its run. It changes no status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LateReport {
    /// When it came.
    pub at: Time,
    /// Who reported.
    pub by: Principal,
    /// The lease that it was reported under; 0 for a run without one.
    pub lease_epoch: u64,
    /// How the run ended by this report.
    pub status: Status,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<String>,
    /// The metadata patch that came with it; applied to nothing, and kept in the event alone.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

impl LateReport {
    /// As the run shows it: without the patch, which the event keeps.
    #[must_use]
    pub fn without_metadata(&self) -> Self {
        Self { metadata: Metadata::default(), ..self.clone() }
    }

    fn weight(&self) -> usize {
        self.failure_reason.as_ref().map_or(0, String::len) + self.metadata.weight() + size_of::<Self>()
    }
}

/// What of a run the authority watches over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Supervision {
    /// The last lease that was granted; stays when the run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// When a pending run that was not started is aborted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_deadline: Option<Time>,
    /// How long the run may be running, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// The request to abort it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_request: Option<Box<AbortRequest>>,
    /// The terminal status is the authority's conclusion: nobody who executes the run reported it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub presumed: bool,
    /// What was reported after that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_report: Option<Box<LateReport>>,
    /// Nobody executes the running run: the next claim takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<Box<Ready>>,
    /// The last lease was granted by a claim, and its holder has written nothing yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unbegun: Option<Box<Unbegun>>,
    /// How long the run has been ready in all, in microseconds: its time to run stood still meanwhile.
    #[serde(skip_serializing_if = "is_zero")]
    pub rest_micros: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// What of its supervision an event set. No command asks for it: the authority adds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SupervisionChange {
    /// The lease that was granted or given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// See [`Supervision::start_deadline`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_deadline: Option<Time>,
    /// See [`Supervision::run_timeout_ms`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// The request to abort the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_request: Option<Box<AbortRequest>>,
    /// The authority concluded it by itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub presumed: bool,
    /// The report that came late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_report: Option<Box<LateReport>>,
    /// The run became ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<Box<Ready>>,
    /// The lease was granted by a claim, which may be given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unbegun: Option<Box<Unbegun>>,
}

impl Supervision {
    pub(in crate::domain) fn fold(&mut self, event: &Event) {
        let SupervisionChange {
            lease,
            start_deadline,
            run_timeout_ms,
            abort_request,
            presumed,
            late_report,
            ready,
            unbegun,
        } = &event.changes.supervision;
        self.lease = lease.or(self.lease);
        self.start_deadline = start_deadline.or(self.start_deadline);
        self.run_timeout_ms = run_timeout_ms.or(self.run_timeout_ms);
        self.presumed |= presumed;
        // Whatever happens to a run that is ready ends that; and after any event of its own a claim has been begun. A request
        // to abort the run is somebody else's.
        if event.event_type != EventType::AbortRequested {
            if let Some(ready) = self.ready.take().filter(|_| event.to == Status::Running) {
                self.rest_micros += event.at.micros() - ready.at.micros();
            }
            self.ready.clone_from(ready);
            self.unbegun.clone_from(unbegun);
        }
        if let Some(request) = abort_request {
            self.abort_request = Some(request.clone());
        }
        if let Some(report) = late_report {
            self.late_report = Some(Box::new(report.without_metadata()));
        }
    }

    /// Whether there is nothing to watch over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The current epoch; 0 for a run that never had a lease.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.lease.map_or(0, |lease| lease.epoch)
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let request = self.abort_request.as_ref();
        request.map_or(0, |request| size_of::<AbortRequest>() + request.reason.as_ref().map_or(0, String::len))
            + self.late_report.as_ref().map_or(0, |report| report.weight())
            + self.ready.as_ref().map_or(0, |_| size_of::<Ready>())
            + self.unbegun.as_ref().map_or(0, |unbegun| unbegun.weight())
    }
}

impl Run {
    /// When a running run is aborted; none: never, or not while it is ready.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let Supervision { run_timeout_ms, rest_micros, ready: None, .. } = self.supervision else { return None };
        Some(self.running_at?.plus_ms(run_timeout_ms?).plus_micros(rest_micros))
    }

    /// When the authority has to end the run by itself, whether or not anybody holds its lease; none: never.
    #[must_use]
    pub fn due_at(&self) -> Option<Time> {
        let deadline = match self.status {
            Status::Pending => self.supervision.start_deadline,
            Status::Running => match &self.supervision.ready {
                Some(ready) => ready.deadline,
                None => self.deadline(),
            },
            Status::Completed | Status::Aborted | Status::Failed => return None,
        };
        let grace = self.supervision.abort_request.as_ref().and_then(|request| request.deadline);
        deadline.into_iter().chain(grace).min()
    }

    /// Whether somebody may hold a lease on it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.status == Status::Running && self.supervision.lease.is_some() && !self.is_ready()
    }

    /// How the run ended, as far as is known: what was reported late, else the status.
    #[must_use]
    pub fn outcome(&self) -> Option<Status> {
        let reported = self.supervision.late_report.as_ref().map(|report| report.status);
        reported.or(Some(self.status).filter(|status| status.is_terminal()))
    }
}

/// How far the work has come, as its worker says. Best effort: the last value is shown while the run has a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How much is done.
    pub done: u64,
    /// Of how much; 0: not known.
    pub total: u64,
    /// What is being done, for people.
    pub message: String,
}

/// A lease as the store keeps it, read under the shard's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// Its epoch.
    pub epoch: u64,
    /// When it is over: its own expiry, or one ttl after the authority came back, if that is later.
    pub expires_at: Time,
    /// Whether it was renewed since it was granted.
    pub renewed: bool,
}

impl HeldLease {
    /// A lease that is granted at a time.
    #[must_use]
    pub fn granted(lease: Lease, at: Time) -> Self {
        Self { epoch: lease.epoch, expires_at: at.plus_ms(lease.ttl_ms), renewed: false }
    }
}

/// What a heartbeat asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The epoch that the caller holds.
    pub epoch: u64,
    /// The acting agent.
    pub agent_id: Option<String>,
    /// How far the work has come.
    pub progress: Option<Progress>,
}
