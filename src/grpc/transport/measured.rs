//! A call as metrics tell of it.

use std::fmt;

use http::HeaderMap;
use tokio::time::Instant;
use tonic::Code;

use super::method::Method;
use crate::domain::TraceContext;
use crate::telemetry::metrics::RPC_STATUS;
use crate::telemetry::record;
use crate::telemetry::traces::{self, CallTrace};

/// One call: boxed, as there may be thousands that wait. It is told of when the value is dropped: once its answer was
/// taken, or its stream has gone.
#[derive(Default)]
pub(super) struct Measured(Option<Box<Call>>);

struct Call {
    method: record::Value,
    arrived: Instant,
    /// The status that the caller was told; none while it was told none, as where it went away.
    code: Option<Code>,
    trace: Option<Box<CallTrace>>,
}

/// The header by which a caller names the trace that its call belongs to.
const TRACEPARENT: &str = "traceparent";

impl Measured {
    /// A call that has arrived. Where nobody asks for metrics or traces, nothing is kept of it but the trace that its
    /// caller names.
    pub(super) fn of(method: Method, headers: &HeaderMap, arrived: Instant) -> Self {
        // A text that is no trace context is passed over, as the standard has it.
        let asked: Option<TraceContext> = headers.get(TRACEPARENT).and_then(|text| text.to_str().ok()?.parse().ok());
        if asked.is_none() && !record::is_on() {
            return Self(None);
        }
        let method = method.named;
        let trace = traces::call(method.1, asked).map(Box::new);
        Self(Some(Box::new(Call { method, arrived, code: None, trace })))
    }

    /// The trace that the call belongs to.
    pub(super) fn trace(&self) -> Option<Box<CallTrace>> {
        self.0.as_ref()?.trace.clone()
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
            // It was no call of the protocol: a fault of whoever sent it.
            call.code = call.code.or(Some(Code::Unimplemented));
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
        let Some(call) = self.0.take() else { return };
        let Call { method, arrived, code, trace } = *call;
        let code = code.unwrap_or(Code::Cancelled);
        record::call(method, numbered(code), arrived.elapsed());
        if let Some(span) = trace.and_then(|trace| trace.span) {
            let name = numbered(code).1;
            span.set(RPC_STATUS, name);
            span.end(FAILURES.contains(&code).then_some(name));
        }
    }
}

impl fmt::Debug for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Measured")
    }
}

/// The codes of a call that failed by its server: the list is that of OpenTelemetry's conventions.
const FAILURES: [Code; 6] =
    [Code::Unknown, Code::DeadlineExceeded, Code::Unimplemented, Code::Internal, Code::Unavailable, Code::DataLoss];

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
