//! A call as metrics tell of it.

use std::fmt;

use http::HeaderMap;
use tokio::time::Instant;
use tonic::Code;

use super::method;
use crate::telemetry::record;

/// One call. It is told of when the value is dropped: once its answer was taken, or its stream has gone.
pub(super) struct Measured(Option<Call>);

struct Call {
    method: record::Value,
    arrived: Instant,
    /// The status that the caller was told; none while it was told none, as where it went away.
    code: Option<Code>,
}

impl Measured {
    /// A call that has arrived. Where nobody asks for metrics, nothing is kept of it.
    pub(super) fn of(path: &str, arrived: Instant) -> Self {
        Self(record::is_on().then(|| Call { method: method::numbered(path), arrived, code: None }))
    }

    /// Takes note of the status in the headers or the trailers of an answer, if it is there.
    pub(super) fn told(&mut self, headers: &HeaderMap) {
        if let Some(call) = &mut self.0
            && let Some(status) = headers.get("grpc-status")
        {
            call.code = Some(Code::from_bytes(status.as_bytes()));
        }
    }

    /// Takes note of an answer that is no answer of gRPC's: other clients learn of it by HTTP's own status.
    pub(super) fn refused(mut self, headers: &HeaderMap) {
        self.told(headers);
        if let Some(call) = &mut self.0 {
            call.code = call.code.or(Some(Code::Unknown));
        }
    }

    /// Takes note of the status of a stream that ends with an error.
    pub(super) fn failed(&mut self, code: Code) {
        if let Some(call) = &mut self.0 {
            call.code = Some(code);
        }
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        if let Some(Call { method, arrived, code }) = self.0.take() {
            record::call(method, numbered(code.unwrap_or(Code::Cancelled)), arrived.elapsed());
        }
    }
}

impl fmt::Debug for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Measured")
    }
}

/// A code's number and its name, as gRPC writes it.
fn numbered(code: Code) -> record::Value {
    let name = match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    };
    #[expect(clippy::as_conversions, reason = "the number of a variant")]
    (code as usize, name)
}
