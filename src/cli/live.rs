//! The content of a live table: the runs that changed last, their number in each status, and whether the table is live.

use std::collections::{HashMap, VecDeque};

use super::table::{Table, cut, shown};
use super::view;
use super::words::{Times, moment};
use crate::cli::time::time;
use crate::domain::Time;
use runledger_client::News;
use runledger_proto::v1::watch_runs_response::Frame;
use runledger_proto::v1::{Run, RunStatus, WatchRunsResponse};

/// More runs than any terminal has lines.
const ROWS_MAX: usize = 500;
/// Runs that have not ended are counted one by one, up to so many.
const ACTIVE_MAX: usize = 200_000;
/// Lines above the runs.
const HEADER_LINES: usize = 4;

/// The state of the table after the frames of a watch so far.
#[derive(Debug)]
pub(super) struct Board {
    server: String,
    link: Link,
    /// The last change first, without metadata.
    rows: VecDeque<Run>,
    /// The statuses of the runs that have not ended.
    active: HashMap<String, RunStatus>,
    /// Whether there were too many active runs to count.
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

    /// Applies the watch's next frame or news.
    pub(super) fn take(&mut self, news: News<WatchRunsResponse>, now: Time) {
        match news {
            News::Lost(failure) => {
                let since = if let Link::Lost { since, .. } = self.link { since } else { now };
                self.link = Link::Lost { since, failure: failure.to_string() };
            }
            News::Found => self.link = Link::Live,
            // The events shown before may never have happened; or some of what is counted is missing.
            News::Restored | News::Expired => *self = Self::new(std::mem::take(&mut self.server)),
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
                Some(Frame::CaughtUp(_)) => self.link = Link::Live,
                // A checkpoint may come before the watch has caught up.
                Some(Frame::Checkpoint(_)) | None => {}
            },
        }
    }

    fn counts(&mut self, run: &Run, anew: bool, matches: bool) {
        let (status, new) = (run.status(), u64::from(anew));
        match status {
            RunStatus::Pending | RunStatus::Running if matches => {
                if self.active.len() < ACTIVE_MAX || self.active.contains_key(&run.run_id) {
                    self.active.insert(run.run_id.clone(), status);
                } else {
                    self.uncounted = true;
                }
                return;
            }
            RunStatus::Completed => self.completed += new,
            RunStatus::Aborted => self.aborted += new,
            RunStatus::Failed => self.failed += new,
            RunStatus::Unspecified | RunStatus::Pending | RunStatus::Running => {}
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
        let room = height.saturating_sub(HEADER_LINES);
        // The last line says how many there are besides.
        let more = if self.rows.len() > room { self.rows.len() - room.saturating_sub(1).max(1) } else { 0 };
        let rows = self.rows.iter().take(self.rows.len() - more);
        let rows: Vec<_> = rows.map(|run| view::run_row(run, Times::Ages(now))).collect();
        let mut table = Table::new(view::RUNS, Some(width));
        lines.push(table.header(&rows));
        lines.extend(table.lines(&rows));
        if more > 0 {
            let or_more = if self.rows.len() == ROWS_MAX { " or more" } else { "" };
            lines.push(format!("{more}{or_more} that changed before these"));
        }
        lines.truncate(height);
        lines.iter().map(|line| cut(line, width).into_owned()).collect()
    }

    fn headline(&self, now: Time) -> String {
        let link = match &self.link {
            Link::Opening => "catching up".to_owned(),
            Link::Live => "live".to_owned(),
            Link::Lost { since, failure } => {
                format!("cut off {} ago, trying again: {failure}", moment(Some(*since), Times::Ages(now)))
            }
        };
        let changed = match self.changed_at {
            Some(at) => format!("last change {} ago", moment(Some(at), Times::Ages(now))),
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

#[cfg(test)]
mod tests {
    use super::*;
    use runledger_proto::v1::watch_runs_response::{CaughtUp, Change, Snapshot};
    use runledger_proto::v1::{RunEvent, WatchRunsResponse};

    fn run(run_id: &str, status: RunStatus) -> Run {
        Run { run_id: run_id.to_owned(), status: status.into(), ..Run::default() }
    }

    fn board(frames: impl IntoIterator<Item = Frame>) -> Board {
        let mut board = Board::new("here:1".to_owned());
        for frame in frames {
            board.take(News::Frame(WatchRunsResponse { frame: Some(frame) }), Time::from_micros(0));
        }
        board
    }

    fn snapshot(run_id: &str, status: RunStatus) -> Frame {
        Frame::Snapshot(Snapshot { run: Some(run(run_id, status)), cursor: String::new() })
    }

    fn change(run_id: &str, from: RunStatus, to: RunStatus, matches: bool) -> Frame {
        let event = RunEvent { from: from.into(), to: to.into(), ..RunEvent::default() };
        let run = Some(run(run_id, to));
        Frame::Change(Change { event: Some(event), run, matches, cursor: String::new() })
    }

    #[test]
    fn the_tally_follows_each_run_through_its_life_and_out_of_the_filter() {
        use RunStatus::{Aborted, Completed, Failed, Pending, Running, Unspecified};
        let board = board(vec![
            snapshot("a", Pending),
            snapshot("b", Running),
            snapshot("over", Failed),
            change("a", Pending, Running, true),
            change("c", Unspecified, Pending, true),
            change("b", Running, Completed, true),
            change("d", Unspecified, Running, true),
            change("d", Running, Running, false),
            change("e", Running, Aborted, false),
            Frame::CaughtUp(CaughtUp { cursor: String::new() }),
        ]);
        let picture = board.picture((200, 24), Time::from_micros(0));
        assert_eq!(picture[1], "pending 1  running 1  completed 1  aborted 1  failed 1");
        let ids: Vec<_> = picture[4..].iter().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(ids, ["e", "d", "b", "c", "a", "over"], "the last change first, each run once");
    }

    #[test]
    fn a_picture_fits_every_terminal() {
        let board = board((0..1_000).map(|index| snapshot(&format!("日本-{index}"), RunStatus::Running)));
        assert_eq!(board.rows.len(), ROWS_MAX);
        for (width, height) in [(1, 1), (3, 2), (20, 5), (80, 24), (300, 100)] {
            let picture = board.picture((width, height), Time::from_micros(0));
            assert_eq!(picture.len(), height);
            for line in picture {
                assert!(unicode_width::UnicodeWidthStr::width(line.as_str()) <= width, "{line}");
            }
        }
    }
}
