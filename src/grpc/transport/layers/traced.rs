//! Does the work of a call within the trace that it belongs to. Refuses nothing.

use super::super::call::Execution;
use super::passing::{Executed, Executing, Nothing};
use crate::telemetry::traces;

pub(super) fn layer<B, N: Executing<Execution<B>>>(
    _: &Nothing,
    mut call: Execution<B>,
    next: &mut N,
) -> impl Future<Output = Executed> + Send + use<B, N> {
    let trace = call.trace.take();
    traces::within(trace, next.call(call))
}
