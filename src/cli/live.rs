//! What a live table shows: the runs that changed last, how many there are in each status, and whether it is live.

use std::collections::{HashMap, VecDeque};

use super::table::{Table, cut, shown};
use super::view;
use crate::client::follow::News;
use crate::client::time;
use crate::domain::Time;
use crate::proto::v1::watch_runs_response::Frame;
use crate::proto::v1::{Run, RunStatus, WatchRunsResponse};

/// More runs than any terminal has lines.
const ROWS_MAX: usize = 500;
/// Runs that have not ended are counted one by one, up to so many.
const ACTIVE_MAX: usize = 200_000;
/// Lines above the runs.
const HEADER_LINES: usize = 4;

/// What the watch has shown so far.
#[derive(Debug)]
pub(super) struct Board {
    server: String,
    link: Link,
    /// The last change first, without metadata.
    rows: VecDeque<Run>,
    /// The statuses of the runs that have not ended.
    active: HashMap<String, RunStatus>,
    /// There were too many to count.
    uncounted: bool,
    completed: u64,
    aborted: u64,
    failed: u64,
    changed_at: Option<Time>,
}

#[derive(Debug)]
enum Link {
    Opening,
    Live,
    Lost { since: Time, failure: String },
}

impl Board {
    pub(super) fn new(server: String) -> Self {
        Self {
            server,
            link: Link::Opening,
            rows: VecDeque::new(),
            active: HashMap::new(),
            uncounted: false,
            completed: 0,
            aborted: 0,
            failed: 0,
            changed_at: None,
        }
    }

    /// Takes in what the watch tells.
    pub(super) fn take(&mut self, news: News<WatchRunsResponse>, now: Time) {
        match news {
            News::Lost(failure) => {
                let since = if let Link::Lost { since, .. } = self.link { since } else { now };
                self.link = Link::Lost { since, failure: failure.to_string() };
            }
            News::Found => self.link = Link::Live,
            News::Frame(frame) => match frame.frame {
                Some(Frame::Snapshot(snapshot)) => {
                    if let Some(run) = snapshot.run {
                        self.counts(&run, true, true);
                        self.shows(run);
                    }
                }
                Some(Frame::Change(change)) => {
                    if let (Some(event), Some(run)) = (change.event, change.run) {
                        self.changed_at = time(event.at.as_ref());
                        self.counts(&run, event.from != event.to, change.matches);
                        self.shows(run);
                    }
                }
                Some(Frame::CaughtUp(_) | Frame::Checkpoint(_)) => self.link = Link::Live,
                None => {}
            },
        }
    }

    fn counts(&mut self, run: &Run, anew: bool, matches: bool) {
        let status = run.status();
        match status {
            RunStatus::Pending | RunStatus::Running if matches => {
                if self.active.len() < ACTIVE_MAX || self.active.contains_key(&run.run_id) {
                    self.active.insert(run.run_id.clone(), status);
                } else {
                    self.uncounted = true;
                }
                return;
            }
            RunStatus::Completed if anew => self.completed += 1,
            RunStatus::Aborted if anew => self.aborted += 1,
            RunStatus::Failed if anew => self.failed += 1,
            RunStatus::Unspecified
            | RunStatus::Pending
            | RunStatus::Running
            | RunStatus::Completed
            | RunStatus::Aborted
            | RunStatus::Failed => {}
        }
        self.active.remove(&run.run_id);
    }

    fn shows(&mut self, run: Run) {
        self.rows.retain(|row| row.run_id != run.run_id);
        self.rows.push_front(Run { metadata: None, ..run });
        self.rows.truncate(ROWS_MAX);
    }

    /// Lines that fit the terminal.
    pub(super) fn picture(&self, (width, height): (usize, usize), now: Time) -> Vec<String> {
        let mut lines = vec![self.headline(now), self.tally(), String::new()];
        let rows: Vec<_> = self.rows.iter().take(height.saturating_sub(HEADER_LINES)).collect();
        let rows: Vec<_> = rows.into_iter().map(|run| view::run_row(run, Some(now))).collect();
        let mut table = Table::new(view::RUNS, Some(width));
        lines.push(table.header(&rows));
        lines.extend(table.lines(&rows));
        lines.truncate(height);
        lines.iter().map(|line| cut(line, width).into_owned()).collect()
    }

    fn headline(&self, now: Time) -> String {
        let link = match &self.link {
            Link::Opening => "catching up".to_owned(),
            Link::Live => "live".to_owned(),
            Link::Lost { since, failure } => {
                format!("cut off {} ago, trying again: {failure}", view::moment(Some(*since), Some(now)))
            }
        };
        let changed = match self.changed_at {
            Some(at) => format!("last change {} ago", view::moment(Some(at), Some(now))),
            None => "no change yet".to_owned(),
        };
        shown(&format!("runledger at {}, {changed}, {link}", self.server)).into_owned()
    }

    fn tally(&self) -> String {
        let of = |wanted| self.active.values().filter(|status| **status == wanted).count();
        let more = if self.uncounted { "+" } else { "" };
        let (pending, running) = (of(RunStatus::Pending), of(RunStatus::Running));
        let (completed, aborted, failed) = (self.completed, self.aborted, self.failed);
        format!(
            "pending {pending}{more}  running {running}{more}  completed {completed}  aborted {aborted}  failed {failed}"
        )
    }
}
