//! A watch that goes on where it was cut, for as long as its caller wants: no frame comes twice, and none is missing.
//! Where the ledger was restored, or no longer has what is missing, the watch begins again and says so.

use std::time::Duration;

use async_stream::stream;
use futures_util::Stream;
use runledger_proto::methods::Streamed;
use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::{self, watch_run_response as of_run, watch_runs_response as of_runs};
use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::client::Client;
use crate::failure::{Failure, Kind};

/// Time that a stream may be silent. A server that has nothing else to send sends a checkpoint every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// An item of a followed watch.
#[derive(Clone, Debug)]
pub enum News<F> {
    /// A frame that was not told before.
    Frame(F),
    /// The stream was cut, or could not be opened again. The watch tries again.
    Lost(Failure),
    /// The stream is open again after it was lost.
    Found,
    /// The ledger was restored or failed over: what was told may be lost. The watch begins again.
    Restored,
    /// Runs were purged that the watch had not shown. The watch begins again.
    Expired,
}

/// The meaning of a frame for the whole of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The frame is news.
    Shown,
    /// The caller has the frame already, or does not know its kind.
    Skipped,
    /// The frame is news, and the last.
    Last,
}

/// A watch and its place.
pub trait Watch: Send {
    /// The request that opens the stream.
    type Request: Streamed<Frame = Self::Frame>;
    /// A frame of the stream.
    type Frame: Send;

    /// The request that goes on from the watch's place.
    fn resume(&self) -> Self::Request;

    /// Goes on behind a frame.
    fn pass(&mut self, frame: &Self::Frame) -> Pass;

    /// The reason of a refusal which says that the ledger is not the one that was watched.
    const RESTORED: &str;

    /// The reason of a refusal which says that what is missing was purged; none: there is no such refusal.
    const EXPIRED: Option<&str>;

    /// Goes back to the beginning: what was told may be lost.
    fn begin_again(&mut self);
}

/// One run's watch.
#[derive(Clone, Debug)]
pub struct RunWatch {
    /// The request that goes on from the watch's place.
    pub request: v1::WatchRunRequest,
    /// Whether the watch began with the whole history.
    of_all: bool,
    caught_up: bool,
}

/// The watch of all runs that match a filter.
#[derive(Clone, Debug)]
pub struct RunsWatch {
    /// The request that goes on from the watch's place.
    pub request: v1::WatchRunsRequest,
    caught_up: bool,
}

impl RunWatch {
    /// A watch from its beginning.
    #[must_use]
    pub fn new(request: v1::WatchRunRequest) -> Self {
        Self { of_all: request.after_revision == Some(0), request, caught_up: false }
    }
}

impl RunsWatch {
    /// A watch from its beginning.
    #[must_use]
    pub fn new(request: v1::WatchRunsRequest) -> Self {
        Self { request, caught_up: false }
    }
}

impl Watch for RunWatch {
    type Request = v1::WatchRunRequest;
    type Frame = v1::WatchRunResponse;

    fn resume(&self) -> Self::Request {
        self.request.clone()
    }

    fn pass(&mut self, frame: &Self::Frame) -> Pass {
        let run_at = |run: &Option<v1::Run>| run.as_ref().map(|run| run.revision);
        let (revision, pass) = match &frame.frame {
            Some(of_run::Frame::Snapshot(snapshot)) => (run_at(&snapshot.run), Pass::Shown),
            Some(of_run::Frame::Change(change)) => (run_at(&change.run), Pass::Shown),
            Some(of_run::Frame::CaughtUp(caught_up)) => (Some(caught_up.revision), once(&mut self.caught_up)),
            Some(of_run::Frame::Checkpoint(checkpoint)) => (Some(checkpoint.revision), Pass::Shown),
            Some(of_run::Frame::End(end)) => (run_at(&end.run), Pass::Last),
            // A frame of progress has no revision to resume from.
            Some(of_run::Frame::Progressed(_)) => (None, Pass::Shown),
            None => (None, Pass::Skipped),
        };
        if revision.is_some() {
            self.request.after_revision = revision;
            self.request.ledger_epoch = Some(frame.ledger_epoch);
        }
        pass
    }

    const RESTORED: &str = "LEDGER_RESTORED";
    const EXPIRED: Option<&str> = None;

    fn begin_again(&mut self) {
        self.request.after_revision = self.of_all.then_some(0);
        self.request.ledger_epoch = None;
        self.caught_up = false;
    }
}

impl Watch for RunsWatch {
    type Request = v1::WatchRunsRequest;
    type Frame = v1::WatchRunsResponse;

    fn resume(&self) -> Self::Request {
        self.request.clone()
    }

    fn pass(&mut self, frame: &Self::Frame) -> Pass {
        let (cursor, pass) = match &frame.frame {
            Some(of_runs::Frame::Snapshot(snapshot)) => (&snapshot.cursor, Pass::Shown),
            Some(of_runs::Frame::Change(change)) => (&change.cursor, Pass::Shown),
            Some(of_runs::Frame::CaughtUp(caught_up)) => (&caught_up.cursor, once(&mut self.caught_up)),
            Some(of_runs::Frame::Checkpoint(checkpoint)) => (&checkpoint.cursor, Pass::Shown),
            None => return Pass::Skipped,
        };
        self.request.cursor.clone_from(cursor);
        pass
    }

    const RESTORED: &str = "CURSOR_INVALID";
    const EXPIRED: Option<&str> = Some("CURSOR_EXPIRED");

    fn begin_again(&mut self) {
        self.request.cursor.clear();
        if self.request.initial() == Initial::None {
            // A watch from now on would leave out the events since the ledger was restored, or since the cursor.
            self.request.set_initial(Initial::Active);
        }
        self.caught_up = false;
    }
}

/// Shows `CaughtUp` once: each stream catches up, and the followed watch does so only the first time.
fn once(caught_up: &mut bool) -> Pass {
    if std::mem::replace(caught_up, true) { Pass::Skipped } else { Pass::Shown }
}

/// The news of a watch. The stream ends behind the last frame, or with an error: a refusal; or a cut, unless the watch
/// is to `reconnect`. The first stream must open: a server that was never there is not waited for.
pub fn follow<W: Watch>(
    mut client: Client,
    mut watch: W,
    reconnect: bool,
) -> impl Stream<Item = Result<News<W::Frame>, Failure>> {
    stream! {
        let mut opened = false;
        let mut backoff = Backoff::default();
        loop {
            let (lost, was_open) = match client.open(&watch).await {
                Err(failure) => (failure, false),
                Ok(mut frames) => {
                    if opened {
                        yield Ok(News::Found);
                    }
                    opened = true;
                    let lost = loop {
                        let frame = match timeout(SILENCE_MAX, frames.message()).await {
                            Ok(Ok(Some(frame))) => frame,
                            Ok(Ok(None)) => break Failure::cut("the stream closed without an end"),
                            Ok(Err(status)) => break Failure::from(&status),
                            Err(_elapsed) => break Failure::cut("the stream went silent"),
                        };
                        backoff = Backoff::default();
                        match watch.pass(&frame) {
                            Pass::Shown => yield Ok(News::Frame(frame)),
                            Pass::Skipped => {}
                            Pass::Last => {
                                yield Ok(News::Frame(frame));
                                return;
                            }
                        }
                    };
                    client.disconnect();
                    (lost, true)
                }
            };
            // A stream ends with its token, and may go on with the next one. Where that is not there in time, the call
            // that opens the stream is refused.
            let is_over = lost.kind == Kind::Refused && (!was_open || client.is_refused_for_good(&lost));
            let begins_again = match lost.reason.as_deref().filter(|_| reconnect && opened) {
                Some(reason) if reason == W::RESTORED => Some(News::Restored),
                Some(reason) if Some(reason) == W::EXPIRED => Some(News::Expired),
                Some(_) | None => None,
            };
            if let Some(news) = begins_again {
                watch.begin_again();
                yield Ok(news);
                sleep(backoff.next_wait()).await;
                continue;
            }
            if !reconnect || !opened || is_over {
                // A server that ends a stream that it had opened has cut it, whatever its status says.
                yield Err(if opened { lost.of_a_stream() } else { lost });
                return;
            }
            let wait = backoff.next_wait().max(lost.retry_after.unwrap_or_default());
            yield Ok(News::Lost(lost));
            sleep(wait).await;
        }
    }
}
