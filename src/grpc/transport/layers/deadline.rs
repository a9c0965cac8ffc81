//! Answers a call whose deadline has passed, also where what executes it does not look at the time. Whether anything was
//! written is then unknown to the caller, as the answer says.

use futures_util::FutureExt as _;
use futures_util::future::Either;
use tokio::time::timeout_at;
use tonic::Status;

use super::super::call::{Deadlines, Execution};
use super::passing::{Executed, Executing, Nothing};
use crate::wire::problem;

pub(super) fn layer<B, N: Executing<Execution<B>>>(
    _: &Nothing,
    call: Execution<B>,
    next: &mut N,
) -> impl Future<Output = Executed> + Send + use<B, N> {
    let deadlines = call.deadlines;
    let executed = next.call(call);
    match deadlines {
        None => Either::Left(executed),
        Some(Deadlines { around, .. }) => Either::Right(
            timeout_at(around, executed)
                .map(|answer| answer.unwrap_or_else(|_elapsed| Ok(Status::from(problem::deadline()).into_http()))),
        ),
    }
}
