//! Ends a wait whose caller is let in no more: it wrote nothing. A watch ends itself, after the frames that it has.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::Either;
use pin_project_lite::pin_project;
use runledger_proto::methods::Kind;
use tonic::Status;

use super::super::call::Execution;
use super::passing::{Executed, Executing, Nothing};
use crate::auth::gate::Denied;
use crate::wire::problem;

pub(super) fn layer<B, N: Executing<Execution<B>>>(
    _: &Nothing,
    call: Execution<B>,
    next: &mut N,
) -> impl Future<Output = Executed> + Send + use<B, N> {
    let session = call.admitted.session.clone().filter(|_| call.kind == Kind::Wait);
    let executed = next.call(call);
    match session {
        None => Either::Left(executed),
        Some(session) => Either::Right(WhileAdmitted { executed, denied: async move { session.until_denied().await } }),
    }
}

pin_project! {
    /// The work of a call, which ends when its caller is denied.
    struct WhileAdmitted<F, D> {
        #[pin]
        executed: F,
        #[pin]
        denied: D,
    }
}

impl<F: Future<Output = Executed>, D: Future<Output = Denied>> Future for WhileAdmitted<F, D> {
    type Output = Executed;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Executed> {
        let me = self.project();
        match me.executed.poll(cx) {
            Poll::Ready(answer) => Poll::Ready(answer),
            Poll::Pending => {
                me.denied.poll(cx).map(|denied| Ok(Status::from(problem::let_in_no_more(denied)).into_http()))
            }
        }
    }
}
