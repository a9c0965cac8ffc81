//! Runs, events and frames as rows of tables.

use super::table::Column;
use super::time::time;
use super::words::{Times, amount, event_type, moment, principal, status};
use runledger_proto::json;
use runledger_proto::v1;

/// The width of a UUID: a run's id is shown to this width for as long as there are other columns to leave out.
const RUN_ID_WIDTH: usize = 36;
const ID_WIDTH: usize = 13;
/// As wide as `abort_requested`, as `running → completed`, and as `authority` and most names of agents.
const EVENT_WIDTH: usize = 15;
const TRANSITION_WIDTH: usize = 19;
const BY_WIDTH: usize = 11;

/// The columns of a list of runs.
pub(super) const RUNS: &[Column] = &[
    Column::ids("RUN ID", RUN_ID_WIDTH),
    Column::whole("STATUS").usual(9),
    Column::whole("REV").leaves(1),
    Column::ids("TASK THREAD", ID_WIDTH).leaves(2),
    Column::ids("AGENT", ID_WIDTH).leaves(4),
    Column::whole("STARTED").leaves(3),
    Column::whole("UPDATED"),
    Column::texts("REASON"),
];
/// The columns of a history, and of a watch of one run.
pub(super) const EVENTS: &[Column] = &events("AT");
/// The same where times are ages.
pub(super) const EVENTS_BY_AGE: &[Column] = &events("AGE");
/// The columns of a watch of many runs, line by line.
pub(super) const FRAMES: &[Column] = &[
    Column::whole("AT"),
    Column::ids("RUN ID", RUN_ID_WIDTH),
    Column::whole("REV").usual(3),
    Column::whole("EVENT").usual(EVENT_WIDTH),
    Column::whole("STATUS").usual(TRANSITION_WIDTH),
    Column::ids("BY", BY_WIDTH).usual(BY_WIDTH).leaves(2),
    Column::ids("TASK THREAD", ID_WIDTH).leaves(1),
];

/// The columns of a run's links.
pub(super) const LINKS: &[Column] = &[
    Column::whole("REV"),
    Column::whole("REL"),
    Column::texts("TARGET"),
    Column::whole("MEDIA TYPE"),
    Column::texts("SUMMARY"),
    Column::ids("SHA256", ID_WIDTH),
];

/// A row of [`LINKS`].
pub(super) fn link_row(link: &v1::Link) -> Vec<String> {
    let v1::Link { rel, target, sha256, media_type, summary, revision, late } = link.clone();
    let revision = if late { format!("{revision} late") } else { revision.to_string() };
    vec![revision, rel, target, media_type, summary, sha256]
}

const fn events(times: &'static str) -> [Column; 6] {
    [
        Column::whole("REV").usual(3),
        Column::whole(times),
        Column::whole("EVENT").usual(EVENT_WIDTH),
        Column::whole("STATUS").usual(TRANSITION_WIDTH),
        Column::ids("BY", BY_WIDTH).usual(BY_WIDTH).leaves(1),
        Column::texts("CHANGES"),
    ]
}

/// A frame of a watch, as far as it is shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Happening<'a> {
    /// The run was so when the watch began.
    Snapshot(&'a v1::Run),
    /// An event.
    Event(&'a v1::RunEvent),
    /// An event, and the run after it.
    Change(&'a v1::RunEvent, &'a v1::Run),
    /// The progress of the work.
    Progress(&'a v1::Progress),
}

/// A row of [`RUNS`].
pub(super) fn run_row(run: &v1::Run, times: Times) -> Vec<String> {
    vec![
        run.run_id.clone(),
        called(status(run.status), run),
        run.revision.to_string(),
        run.task_thread_id.clone(),
        run.agent_id.clone(),
        moment(time(run.started_at.as_ref()), times),
        moment(time(run.updated_at.as_ref()), times),
        reason(run),
    ]
}

/// A row of [`EVENTS`].
pub(super) fn event_row(event: &v1::RunEvent, times: Times) -> Vec<String> {
    happening_row(&Happening::Event(event), times)
}

/// A row of [`EVENTS`] for a frame of one run's watch.
pub(super) fn happening_row(happening: &Happening<'_>, times: Times) -> Vec<String> {
    let at = |at| moment(time(at), times);
    let nothing = String::new;
    match happening {
        Happening::Snapshot(run) => {
            let what = "snapshot".to_owned();
            vec![
                run.revision.to_string(),
                at(run.updated_at.as_ref()),
                what,
                called(status(run.status), run),
                nothing(),
                reason(run),
            ]
        }
        Happening::Event(event) | Happening::Change(event, _) => vec![
            event.revision.to_string(),
            at(event.at.as_ref()),
            event_type(event),
            transition(event),
            event.principal.as_ref().map(principal).unwrap_or_default(),
            event.changes.as_ref().map(changes).unwrap_or_default(),
        ],
        Happening::Progress(progress) => {
            vec![nothing(), at(progress.at.as_ref()), "progress".to_owned(), nothing(), nothing(), amount(progress)]
        }
    }
}

/// A row of [`FRAMES`].
pub(super) fn frame_row(happening: &Happening<'_>, times: Times) -> Vec<String> {
    let (Happening::Snapshot(run) | Happening::Change(_, run)) = happening else { return Vec::new() };
    let [revision, at, what, status, by, _changes] =
        <[String; 6]>::try_from(happening_row(happening, times)).expect("one for each column");
    let status = called(status, run);
    vec![at, run.run_id.clone(), revision, what, status, by, run.task_thread_id.clone()]
}

/// A status, and what the run's lifecycle calls the run where that is something else: such as `failed (blocked)`.
fn called(status: String, run: &v1::Run) -> String {
    let is_said = run.word.is_empty() || status.ends_with(&run.word);
    if is_said { status } else { format!("{status} ({})", run.word) }
}

/// A run's place in its queue, such as `number 3 of instance=chrome-7; running: run-1`.
pub(super) fn queue_pair(queue: Option<&v1::QueuePlace>) -> Vec<String> {
    let place = queue.map_or_else(
        || "none: the run does not wait for a claim, or does not have the label".to_owned(),
        |v1::QueuePlace { label, value, position, truncated, running_run_ids }| {
            let or_later = if *truncated { " or later" } else { "" };
            let running = match running_run_ids.as_slice() {
                [] => String::new(),
                running => format!("; running: {}", running.join(" ")),
            };
            format!("number {position}{or_later} of {label}={value}{running}")
        },
    );
    vec!["queue".to_owned(), place]
}

/// An event's changes as JSON; of a request to abort only the reason, because its author and time stand beside it.
fn changes(changes: &v1::RunChanges) -> String {
    match &changes.abort_request {
        Some(request) if !request.reason.is_empty() => request.reason.clone(),
        Some(_) | None => json::line(changes),
    }
}

/// Such as `pending → running`, or only the status where the event did not change it.
fn transition(event: &v1::RunEvent) -> String {
    if event.from == 0 || event.from == event.to {
        return status(event.to);
    }
    format!("{} → {}", status(event.from), status(event.to))
}

/// The reason for the run's state, in short: why it ended, was reported late, is to be aborted, or is ready.
fn reason(run: &v1::Run) -> String {
    let why = match (run.reason_code.as_str(), run.failure_reason.as_str()) {
        ("", text) => text.to_owned(),
        (code, "") => code.to_owned(),
        (code, text) => format!("{code}: {text}"),
    };
    let late = run.late_report.as_ref().map(|late| format!("reported late as {}", status(late.status)));
    let is_active = run.completed_at.is_none();
    let abort = run.abort_request.as_ref().filter(|_| is_active).map(|abort| match abort.reason.as_str() {
        "" => "to be aborted".to_owned(),
        reason => format!("to be aborted: {reason}"),
    });
    let ready = run.ready.as_ref().map(|_| "ready to be claimed".to_owned());
    let suspended = run.suspension.as_ref().map(|it| format!("suspended ({}): {}", it.kind, it.reason));
    let phase = Some(&run.phase).filter(|phase| !phase.is_empty() && **phase != run.word);
    let phase = phase.map(|phase| format!("phase {phase}"));
    let waits = run.status() == v1::RunStatus::Pending || run.ready.is_some();
    let priority = Some(run.priority).filter(|priority| *priority != 0 && waits);
    let priority = priority.map(|priority| format!("priority {priority}"));
    let parts = [Some(why).filter(|why| !why.is_empty()), late, abort, suspended, ready, priority, phase];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_event_shifts_the_columns_of_a_watch() {
        let types = (0..100).filter_map(|number| v1::RunEventType::try_from(number).ok());
        let words: Vec<_> =
            types.map(|it| event_type(&v1::RunEvent { r#type: it.into(), ..v1::RunEvent::default() })).collect();
        assert!(words.contains(&"abort_requested".to_owned()), "{words:?}");
        assert!(words.iter().all(|word| word.len() <= EVENT_WIDTH), "{words:?}");
    }
}
