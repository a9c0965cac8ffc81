//! Watches and waits: their frames, and their ends.

use std::future;
use std::sync::Arc;

use async_stream::stream;
use futures_util::{Stream, StreamExt as _};
use tokio::pin;

use super::{Authority, Call, Until, kept, run_not_found, unlisted, unreadable};
use crate::domain::{LedgerEpoch, Namespace, Progress, Revision, RunId, RunKey, Time};
use crate::feed::watch_runs::Begin;
use crate::feed::{Feed, Waited, WatchError, watch_run, watch_runs};
use crate::telemetry::{record, traces};
use crate::upkeep::progress::{ProgressBoard, ProgressWatch};
use crate::wire::cursor::{self, CursorInvalid};
use crate::wire::problem::{self, Problem};
use crate::wire::query::{self, WatchRun};
use runledger_proto::v1;

/// A frame of one run's watch.
#[derive(Debug)]
pub enum OneFrame {
    /// A snapshot, a change, or another frame of the run.
    Run(watch_run::Frame),
    /// The progress of the run's work, and the time at which its worker reported it.
    Progressed(Progress, Time),
}

impl Authority {
    /// Answers a `WatchRun`, read through a feed of the caller's connection: the epoch of the ledger that is watched,
    /// and the frames.
    ///
    /// # Errors
    ///
    /// The watch does not begin.
    pub async fn watch_run(
        &self,
        feed: Feed,
        call: Call<v1::WatchRunRequest>,
    ) -> Result<(LedgerEpoch, impl Stream<Item = Result<OneFrame, Problem>> + use<>), Problem> {
        let WatchRun { key, after, of_epoch } =
            query::watch_run(call.message, &call.caller).map_err(problem::invalid)?;
        traces::current_run(&key.namespace, &key.run_id);
        let cut = move |error, key: &_| cut("WatchRun", &error, key, after);
        self.knows(of_epoch).await.map_err(|error| unreadable("WatchRun", &key, &error))?;
        let begun = feed.watch_run(key.clone(), after, of_epoch).await;
        let (epoch, frames) = begun.map_err(|error| cut(error, &key))?;
        if after.is_some() {
            record::watch_resumed((0, "one"));
        }
        let frames = with_progress(self.progress.clone(), key.clone(), frames);
        let frames = frames.map(move |frame| frame.map_err(|error| cut(error, &key)));
        Ok((epoch, over(call.until, frames)))
    }

    /// Answers a `WatchRuns`, read through a feed of the caller's connection.
    ///
    /// # Errors
    ///
    /// The watch does not begin.
    pub async fn watch_runs(
        &self,
        feed: Feed,
        call: Call<v1::WatchRunsRequest>,
    ) -> Result<impl Stream<Item = Result<watch_runs::Frame, Problem>> + use<>, Problem> {
        let namespace = call.caller.namespace;
        let cursor = call.message.cursor.clone();
        let (filter, view) = query::watch_runs(call.message).map_err(problem::invalid)?;
        let begin = match cursor.as_str() {
            "" => Begin::Now(view),
            cursor => {
                self.knows(cursor::epoch(cursor, &self.seals, &namespace))
                    .await
                    .map_err(|error| unlisted("WatchRuns", &namespace, &error))?;
                let cursor = cursor::decode(cursor, &self.seals, self.store.ledger(), &namespace);
                Begin::After(cursor.map_err(problem::cursor_invalid)?)
            }
        };
        let frames = feed.watch_runs(namespace.clone(), filter, begin).await;
        let frames = frames.map_err(|error| cut_many(&namespace, &error))?;
        if !cursor.is_empty() {
            record::watch_resumed((1, "many"));
        }
        let frames = frames.map(move |frame| frame.map_err(|error| cut_many(&namespace, &error)));
        Ok(over(call.until, frames))
    }

    /// Answers a `WaitRun`.
    ///
    /// # Errors
    ///
    /// The run is not there, or cannot be read.
    pub async fn wait_run(&self, call: Call<v1::WaitRunRequest>) -> Result<Waited, Problem> {
        let (key, timeout, state) = query::wait_run(call.message, &call.caller).map_err(problem::invalid)?;
        traces::current_run(&key.namespace, &key.run_id);
        let wait_max = self.wait_max(timeout, &call.until);
        let feed = self.feed.of_caller(call.key);
        tokio::select! {
            biased;
            waited = feed.wait_run(&key, wait_max, state) => waited.map_err(|error| cut("WaitRun", &error, &key, None)),
            why = call.until.cut_short() => Err(why),
        }
    }
}

/// The frames of one run's watch, and between them the progress of its work, once the watch has caught up.
fn with_progress(
    board: Arc<ProgressBoard>,
    key: RunKey,
    frames: impl Stream<Item = Result<watch_run::Frame, WatchError>>,
) -> impl Stream<Item = Result<OneFrame, WatchError>> {
    let mut frames = Box::pin(frames);
    stream! {
        let (mut held, mut caught_up) = (false, false);
        let mut watching: Option<ProgressWatch> = None;
        loop {
            let progressed = async {
                match &mut watching {
                    Some(watching) => watching.next().await,
                    None => future::pending().await,
                }
            };
            tokio::select! {
                biased;
                frame = frames.next() => {
                    let Some(frame) = frame else { return };
                    match &frame {
                        Ok(watch_run::Frame::Snapshot { held: now, .. } | watch_run::Frame::Change { held: now, .. }) => {
                            held = *now;
                        }
                        Ok(watch_run::Frame::CaughtUp { .. }) => caught_up = true,
                        Ok(watch_run::Frame::Checkpoint { .. } | watch_run::Frame::End(_)) | Err(_) => {}
                    }
                    if held && caught_up {
                        watching.get_or_insert_with(|| board.watch(&key));
                    } else {
                        watching = None;
                    }
                    yield frame.map(OneFrame::Run);
                }
                (said, at) = progressed => yield Ok(OneFrame::Progressed(said, at)),
            }
        }
    }
}

/// The frames until the call is over. The transport does not end them: its timer is for the first answer.
pub fn over<F, E: From<Problem>>(
    until: Until,
    frames: impl Stream<Item = Result<F, E>>,
) -> impl Stream<Item = Result<F, E>> {
    // The frames are boxed: a value that is moved into the stream below takes its room there twice.
    let mut frames = Box::pin(frames);
    stream! {
        let over = until.over();
        pin!(over);
        loop {
            tokio::select! {
                biased;
                why = &mut over => {
                    yield Err(why.into());
                    return;
                }
                frame = frames.next() => match frame {
                    Some(frame) => yield frame,
                    None => return,
                },
            }
        }
    }
}

/// The problem for the end of a watch of many runs.
fn cut_many(namespace: &Namespace, error: &WatchError) -> Problem {
    let key = RunKey { namespace: namespace.clone(), run_id: RunId::default() };
    if matches!(error, WatchError::LedgerRestored) {
        // No cursor leads on from before the loss.
        return problem::cursor_invalid(CursorInvalid);
    }
    cut("WatchRuns", error, &key, None)
}

/// The problem for the end of a watch or a wait.
fn cut(rpc: &'static str, error: &WatchError, key: &RunKey, after_revision: Option<Revision>) -> Problem {
    match error {
        WatchError::RunNotFound => run_not_found(key.clone()),
        WatchError::RunExpired(run) => kept(run).err().unwrap_or_else(|| run_not_found(key.clone())),
        WatchError::RevisionAhead { revision } => {
            problem::revision_ahead(key, after_revision.unwrap_or_default(), *revision)
        }
        WatchError::CursorInvalid => problem::cursor_invalid(CursorInvalid),
        WatchError::CursorExpired => problem::cursor_expired(),
        WatchError::LedgerRestored => problem::ledger_restored(),
        WatchError::Draining => problem::draining(),
        // The reader that met the event has logged it.
        WatchError::Unreadable(error) => problem::store(error),
        WatchError::Store(error) => unreadable(rpc, key, error),
    }
}
