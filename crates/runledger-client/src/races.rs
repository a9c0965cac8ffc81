//! The race between a call and the end of its connection. A server that lets a connection end, because of its age or
//! because the server stops, says so by GOAWAY; a call that crosses it on the way was not begun there. Other clients
//! send such a call again by themselves; tonic shows it as CANCELLED or INTERNAL.

use tonic::{Code, Status};

/// Whether a call met the orderly end of its connection. Exactly two forms count: a call that hyper took back because
/// the connection was gone, and one that the server's GOAWAY without an error named as not begun.
pub(crate) fn met_goaway(status: &Status) -> bool {
    if ![Code::Cancelled, Code::Internal].contains(&status.code()) {
        return false;
    }
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
            return true;
        }
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR);
        }
        cause = error.source();
    }
    false
}
