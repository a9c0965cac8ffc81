//! The failure of a call without an answer: refused, not served at all, or cut off with an open outcome.

use std::fmt;
use std::time::Duration;

use prost::Message;
use runledger_proto::{chain, v1};
use tonic::{Code, Status};
use tonic_types::pb::{BadRequest, ErrorInfo, RetryInfo, Status as RpcStatus};

use crate::builder::Unusable;
use crate::fault::Fault;
use crate::races;
use crate::server_address::ServerAddress;

/// The reason why a call has no answer.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Failure {
    /// The kind of the failure, for the caller.
    pub kind: Kind,
    /// The authority's reason; none when the error is not its own.
    pub reason: Option<String>,
    /// The text for people.
    pub message: String,
    /// Details, a line each: the violations of the request, or the run that won.
    pub details: Vec<String>,
    /// The wait after which the server asks the caller to come back.
    pub retry_after: Option<Duration>,
    safe_to_repeat: bool,
    /// The status's code; none where no status came.
    code: Option<Code>,
    fault: Option<Fault>,
    /// Whether the call crossed the orderly end of its connection.
    pub(crate) met_goaway: bool,
    /// Whether it was the client certificate that was not good.
    certificate: bool,
    /// Whether the outcome of an attempt before stayed open.
    pub(crate) is_after_open: bool,
}

/// The kind of a failure, for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The authority refused the call.
    Refused,
    /// No server served the call, and nothing was done: the call can be made again.
    Unreachable,
    /// The call was cut off or not answered in time: its outcome is open.
    Cut,
}

impl Failure {
    /// No connection could be made.
    pub(crate) fn unreachable(server: &ServerAddress, error: &dyn std::error::Error) -> Self {
        Self::own(Kind::Unreachable, format!("{server} does not answer: {}", chain(error)))
    }

    /// The server is there, and no connection came to be.
    pub(crate) fn at_fault(server: &ServerAddress, fault: Fault) -> Self {
        let message = if fault.is_own() { fault.to_string() } else { format!("{server} cannot be called: {fault}") };
        Self { fault: Some(fault), ..Self::own(Kind::Unreachable, message) }
    }

    /// The caller's own time is over.
    pub(crate) fn late() -> Self {
        Self::own(Kind::Cut, "no answer came in time".to_owned())
    }

    /// A stream closed or became silent, without its end.
    pub(crate) fn cut(message: &str) -> Self {
        Self::own(Kind::Cut, message.to_owned())
    }

    /// The same failure, as the end of a stream that was open.
    pub(crate) fn of_a_stream(self) -> Self {
        let kind = if self.kind == Kind::Refused { Kind::Refused } else { Kind::Cut };
        Self { kind, ..self }
    }

    pub(crate) fn own(kind: Kind, message: String) -> Self {
        Self {
            kind,
            reason: None,
            message,
            details: Vec::new(),
            retry_after: None,
            safe_to_repeat: true,
            code: None,
            fault: None,
            met_goaway: false,
            certificate: false,
            is_after_open: false,
        }
    }

    /// The same failure, whose cause is known better here than where it was made.
    pub(crate) fn because(self, cause: &str) -> Self {
        Self { message: format!("{}: {cause}", self.message.trim_end_matches('.')), ..self }
    }

    /// Whether another server may be called for the same call: none served it, and there is no [`Fault`] to look at.
    pub(crate) fn lets_others_serve(&self) -> bool {
        self.kind == Kind::Unreachable && self.fault.as_ref().is_none_or(Fault::may_be_an_end)
    }

    /// Whether the failure was made on the way, and says nothing of the server's own.
    pub(crate) fn is_of_the_way(&self) -> bool {
        self.reason.is_none() && self.kind != Kind::Refused
    }

    /// The reason why the client and a server that is there have no connection, such as a certificate that is not
    /// trusted. Nothing was asked of the server.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Whether the server does not know who calls: there was no credential, or one that it does not accept.
    #[must_use]
    pub fn is_unauthenticated(&self) -> bool {
        self.code == Some(Code::Unauthenticated)
    }

    /// Whether the server does not know who calls because of the client certificate.
    #[must_use]
    pub fn is_of_certificate(&self) -> bool {
        self.is_unauthenticated() && self.certificate
    }

    /// Whether the caller is known and has no right to this call.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.code == Some(Code::PermissionDenied)
    }

    /// Whether the call may have been applied, and asking again tells.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.kind == Kind::Cut && self.safe_to_repeat && self.reason.as_deref() != Some("DEADLINE")
    }

    /// Whether the call, or an attempt of it before the one that failed so, may have been applied.
    pub(crate) fn may_be_applied(&self) -> bool {
        self.is_open() || self.is_after_open
    }
}

impl From<Unusable> for Failure {
    /// Settings that cannot be used: nothing was done.
    fn from(error: Unusable) -> Self {
        let fault = Some(Fault::Files(chain(&error)));
        Self { fault, ..Self::own(Kind::Unreachable, chain(&error)) }
    }
}

impl From<&Status> for Failure {
    /// The failure that a status stands for. A status without an `ErrorInfo` was made on the way and not by the
    /// authority, so that nobody knows how far the call came.
    fn from(status: &Status) -> Self {
        let details = Details::new(&RpcStatus::decode(status.details()).unwrap_or_default());
        let met_goaway = details.reason.is_none() && races::met_goaway(status);
        let kind = match (details.reason.as_deref(), status.code()) {
            (Some("STORE_UNAVAILABLE" | "CREDENTIAL_UNVERIFIED" | "DRAINING" | "OVERLOADED"), _) => Kind::Unreachable,
            (Some("OUTCOME_UNKNOWN" | "DEADLINE"), _) => Kind::Cut,
            (None, code) if on_the_way(code) => Kind::Cut,
            (Some(_) | None, _) => Kind::Refused,
        };
        let message = match (&details.reason, kind) {
            (None, Kind::Cut) if met_goaway => "the connection ended as the call was sent".to_owned(),
            (None, Kind::Cut) => format!("the call was cut off: {}", said(status)),
            (None, Kind::Refused | Kind::Unreachable) => format!("{}: {}", status.code(), said(status)),
            (Some(_), _) => status.message().to_owned(),
        };
        // The service answers with another code where the call cannot simply be sent again.
        let safe_to_repeat = details.reason.is_none() || status.code() == Code::Unavailable;
        let Details { reason, lines, retry_after, certificate } = details;
        let code = Some(status.code());
        let fault = None;
        Self {
            kind,
            reason,
            message,
            details: lines,
            retry_after,
            safe_to_repeat,
            code,
            fault,
            met_goaway,
            certificate,
            is_after_open: false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.reason {
            write!(f, "{reason}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Codes with which client libraries and proxies give up by themselves.
fn on_the_way(code: Code) -> bool {
    [Code::DeadlineExceeded, Code::Unavailable, Code::Cancelled, Code::Unknown, Code::Internal].contains(&code)
}

/// A status's message, or its causes where it has some.
fn said(status: &Status) -> String {
    std::error::Error::source(status).map_or_else(|| status.message().to_owned(), chain)
}

/// The details of a status.
#[derive(Debug, Default)]
struct Details {
    reason: Option<String>,
    lines: Vec<String>,
    retry_after: Option<Duration>,
    /// Whether it was the client certificate that was not good.
    certificate: bool,
}

impl Details {
    /// Reads a status's details. Details that cannot be read are left out: the status's code still says enough.
    fn new(status: &RpcStatus) -> Self {
        let mut found = Self::default();
        for detail in &status.details {
            let bytes = detail.value.as_slice();
            match detail.type_url.rsplit('/').next().unwrap_or_default() {
                "google.rpc.ErrorInfo" => {
                    let info = ErrorInfo::decode(bytes).unwrap_or_default();
                    found.certificate = info.metadata.contains_key("certificate");
                    found.reason = (info.domain == "runledger").then_some(info.reason);
                }
                "google.rpc.RetryInfo" => {
                    let retry = RetryInfo::decode(bytes).unwrap_or_default();
                    found.retry_after = retry.retry_delay.and_then(|delay| delay.try_into().ok());
                }
                name => found.lines.extend(lines(name, bytes).unwrap_or_default()),
            }
        }
        found
    }
}

/// The wait before a command is sent again whose call had no time left.
const DEADLINE_AFTER: Duration = Duration::from_millis(50);

/// What an error says of sending the command again: that of a command in a list, or the status of its own call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// The command wrote nothing, and may be sent again after this time.
    After(Duration),
    /// Nobody knows whether the command was applied.
    Open,
    /// The command would fail again.
    Useless,
}

impl From<&RpcStatus> for Repetition {
    fn from(error: &RpcStatus) -> Self {
        let Details { reason, retry_after, .. } = Details::new(error);
        match (reason.as_deref(), retry_after) {
            (Some("OVERLOADED" | "STORE_UNAVAILABLE" | "DRAINING"), Some(after)) => Self::After(after),
            // The call's time was over before the command was written.
            (Some("DEADLINE"), _) => Self::After(DEADLINE_AFTER),
            (Some("OUTCOME_UNKNOWN") | None, _) => Self::Open,
            (Some(_), _) => Self::Useless,
        }
    }
}

impl From<&Status> for Repetition {
    fn from(status: &Status) -> Self {
        // What cannot be read has no reason.
        Self::from(&RpcStatus::decode(status.details()).unwrap_or_default())
    }
}

/// A detail in lines.
fn lines(name: &str, bytes: &[u8]) -> Result<Vec<String>, prost::DecodeError> {
    Ok(match name {
        "google.rpc.BadRequest" => {
            let violations = BadRequest::decode(bytes)?.field_violations;
            violations.into_iter().map(|violation| format!("{}: {}", violation.field, violation.description)).collect()
        }
        "runledger.v1.RunSummary" => vec![summary(&v1::RunSummary::decode(bytes)?)],
        "runledger.v1.LifecycleTransitionError" => {
            v1::LifecycleTransitionError::decode(bytes)?.run.iter().map(summary).collect()
        }
        "runledger.v1.RevisionMismatchError" => {
            v1::RevisionMismatchError::decode(bytes)?.run.iter().map(summary).collect()
        }
        "runledger.v1.LeaseLostError" => v1::LeaseLostError::decode(bytes)?.run.iter().map(summary).collect(),
        "runledger.v1.LeaseHeldError" => v1::LeaseHeldError::decode(bytes)?.run.iter().map(summary).collect(),
        "runledger.v1.MaxRunningError" => {
            let max = v1::MaxRunningError::decode(bytes)?;
            let running = format!("running with {}={:?}: {}", max.label, max.value, max.running_run_ids.join(", "));
            std::iter::once(running).chain(max.run.iter().map(summary)).collect()
        }
        "runledger.v1.RunSuspendedError" => {
            let suspended = v1::RunSuspendedError::decode(bytes)?;
            suspended.suspension.iter().map(suspension).chain(suspended.run.iter().map(summary)).collect()
        }
        "runledger.v1.BudgetExceededError" => v1::BudgetExceededError::decode(bytes)?.run.iter().map(summary).collect(),
        "runledger.v1.PhaseError" => v1::PhaseError::decode(bytes)?.run.iter().map(summary).collect(),
        "runledger.v1.IterationLimitError" => v1::IterationLimitError::decode(bytes)?.run.iter().map(summary).collect(),
        "runledger.v1.CompletionIncompleteError" => {
            v1::CompletionIncompleteError::decode(bytes)?.run.iter().map(summary).collect()
        }
        "runledger.v1.RunIdConflictError" => {
            let conflict = v1::RunIdConflictError::decode(bytes)?;
            let differs = format!(
                "{}: {:?} was asked for, the run has {:?}",
                conflict.field, conflict.requested, conflict.actual
            );
            std::iter::once(differs).chain(conflict.run.iter().map(summary)).collect()
        }
        "runledger.v1.OwnershipError" => {
            let owned = v1::OwnershipError::decode(bytes)?;
            vec![format!("owner: {:?}, acting agent: {:?}", owned.owner_agent_id, owned.agent_id)]
        }
        _ => Vec::new(),
    })
}

/// A suspension in a line: what the run waits for, since when, and who said so.
fn suspension(suspension: &v1::Suspension) -> String {
    let by = suspension.by.as_ref();
    let who = by.map(|by| if by.agent_id.is_empty() { &by.subject } else { &by.agent_id }).cloned();
    let mut line = format!("suspended ({})", suspension.kind);
    for (word, value) in [
        ("since", suspension.at.as_ref().map(ToString::to_string)),
        ("by", who),
        ("until", suspension.deadline.as_ref().map(ToString::to_string)),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            line.extend([" ", word, " ", &value]);
        }
    }
    line.extend([": ", &suspension.reason]);
    if !suspension.resume_hint.is_empty() {
        line.extend(["; to go on: ", &suspension.resume_hint]);
    }
    line
}

/// The run's status in a line: the winner, and the time.
fn summary(run: &v1::RunSummary) -> String {
    let status = run.status().as_str_name().trim_start_matches("RUN_STATUS_").to_lowercase();
    let mut line = format!("run {} is {status} at revision {}", run.run_id, run.revision);
    let parts = [
        ("since", run.completed_at.as_ref().or(run.updated_at.as_ref()).map(ToString::to_string)),
        ("of agent", Some(run.agent_id.clone())),
        ("with reason code", Some(run.reason_code.clone())),
    ];
    for (word, value) in parts {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            line.extend([" ", word, " ", &value]);
        }
    }
    if !run.failure_reason.is_empty() {
        line.extend([": ", &run.failure_reason]);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_broke_leaves_open_what_became_of_the_call() {
        let failure = Failure::from(&Status::from_error("broken pipe".into()));
        assert_eq!((failure.kind, failure.is_open()), (Kind::Cut, true));
    }

    #[test]
    fn a_code_that_only_a_service_gives_is_a_refusal_also_without_a_reason() {
        for code in (0..17).map(Code::from) {
            let status = Status::from_header_map(&http::HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-status"),
                http::HeaderValue::from(i32::from(code)),
            )]));
            let kind = Failure::from(&status.unwrap()).kind;
            assert_eq!(kind == Kind::Cut, [1, 2, 4, 13, 14].contains(&i32::from(code)), "{code}");
        }
    }
}
