//! Runs, events and frames in words for people. Times are RFC 3339, or ages where a terminal shows how things are.

use super::table::Column;
use crate::cli::time::time;
use crate::domain::Time;
use runledger_proto::json;
use runledger_proto::v1;

/// The width of a UUID: a run's id is shown to this width for as long as there are other columns to leave out.
const RUN_ID_WIDTH: usize = 36;
const ID_WIDTH: usize = 13;
/// As wide as `abort_requested`, as `running → completed`, and as `authority` and most names of agents.
const EVENT_WIDTH: usize = 15;
const TRANSITION_WIDTH: usize = 19;
const BY_WIDTH: usize = 11;

const DAY_MICROS: i64 = 86_400_000_000;

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

/// The form in which a time is shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Times {
    /// To the microsecond, as programs have it.
    Whole,
    /// As an age.
    Ages(Time),
    /// By the clock, as far as it is of the last day: a line that stays on a terminal says when it was.
    Clock(Time),
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

/// All fields of a run that are set.
pub(super) fn run_pairs(run: &v1::Run) -> Vec<Vec<String>> {
    let at = |timestamp| moment(time(timestamp), Times::Whole);
    let labels: std::collections::BTreeMap<_, _> = run.labels.iter().collect();
    let labels = labels.into_iter().map(|(key, value)| format!("{key}={value}"));
    let pairs = [
        ("run id", run.run_id.clone()),
        ("status", status(run.status)),
        ("word", run.word.clone()),
        ("lifecycle", run.lifecycle.clone()),
        ("phase", run.phase.clone()),
        ("phase started at", at(run.phase_started_at.as_ref())),
        ("iteration", iteration(run)),
        ("revision", run.revision.to_string()),
        ("task thread", run.task_thread_id.clone()),
        ("agent", run.agent_id.clone()),
        ("route", route(run.route)),
        ("fallback used", if run.fallback_used { "yes".to_owned() } else { String::new() }),
        ("tab group", run.tab_group_id.clone()),
        ("audit session", run.audit_session_id.clone()),
        ("workflow", run.workflow_id.clone()),
        ("parent run", run.parent_run_id.clone()),
        ("continues run", run.continues_run_id.clone()),
        ("input", run.input.as_ref().map(content).unwrap_or_default()),
        ("result", run.result.as_ref().map(content).unwrap_or_default()),
        ("links", if run.link_count > 0 { run.link_count.to_string() } else { String::new() }),
        ("started at", at(run.started_at.as_ref())),
        ("running at", at(run.running_at.as_ref())),
        ("updated at", at(run.updated_at.as_ref())),
        ("completed at", at(run.completed_at.as_ref())),
        ("archived at", at(run.archived_at.as_ref())),
        ("reason code", run.reason_code.clone()),
        ("failure reason", run.failure_reason.clone()),
        ("presumed", if run.presumed { "yes: nobody who executes it reported this".to_owned() } else { String::new() }),
        ("late report", run.late_report.as_ref().map(late_report).unwrap_or_default()),
        ("abort request", run.abort_request.as_ref().map(abort_request).unwrap_or_default()),
        ("lease", run.lease.as_ref().map(lease).unwrap_or_default()),
        ("suspended", run.suspension.as_deref().map(suspension).unwrap_or_default()),
        ("resume hint", run.suspension.as_ref().map(|it| it.resume_hint.clone()).unwrap_or_default()),
        ("resumed", run.suspension.as_ref().or(run.resumed_from.as_ref()).map(|it| resumed(it)).unwrap_or_default()),
        ("ready", run.ready.as_ref().map(ready).unwrap_or_default()),
        ("priority", if run.priority == 0 { String::new() } else { run.priority.to_string() }),
        ("progress", run.progress.as_ref().map(progress).unwrap_or_default()),
        ("start deadline", at(run.start_deadline.as_ref())),
        ("deadline", at(run.deadline.as_ref())),
        ("labels", labels.collect::<Vec<_>>().join(" ")),
        ("metadata", run.metadata.as_ref().map(json::object).unwrap_or_default()),
        ("namespace", run.namespace.clone()),
    ];
    let set = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    set.map(|(name, value)| vec![name.to_owned(), value]).collect()
}

/// A status, and what the run's lifecycle calls the run where that is something else: such as `failed (blocked)`.
fn called(status: String, run: &v1::Run) -> String {
    let is_said = run.word.is_empty() || status.ends_with(&run.word);
    if is_said { status } else { format!("{status} ({})", run.word) }
}

/// Such as `from HELP (which account?) at 2026-11-27 10:00:00 by agent-1: account 7`; empty while nobody has resumed it.
fn resumed(suspension: &v1::Suspension) -> String {
    let Some(resumption) = &suspension.resumption else { return String::new() };
    let by = resumption.by.as_ref().map(|by| format!(" by {}", principal(by))).unwrap_or_default();
    let at = moment(time(resumption.at.as_ref()), Times::Whole);
    let why = if resumption.reason.is_empty() { String::new() } else { format!(": {}", resumption.reason) };
    let phase = if resumption.phase.is_empty() { String::new() } else { format!(", in phase {}", resumption.phase) };
    let max = match resumption.max_iterations {
        0 => String::new(),
        max => format!(", up to iteration {max}"),
    };
    format!("from {} ({}) at {at}{by}{phase}{max}{why}", suspension.kind, suspension.reason)
}

/// Such as `HELP since 2026-11-27 10:00:00 by agent-1, until 2026-11-28 10:00:00: which account?`.
fn suspension(suspension: &v1::Suspension) -> String {
    let until = time(suspension.deadline.as_ref()).map(|at| format!(", until {at}")).unwrap_or_default();
    let by = suspension.by.as_ref().map(|by| format!(" by {}", principal(by))).unwrap_or_default();
    let since = moment(time(suspension.at.as_ref()), Times::Whole);
    let slot = if suspension.keep_slot { ", keeping its slot" } else { "" };
    format!("{} since {since}{by}{until}{slot}: {}", suspension.kind, suspension.reason)
}

/// Such as `2 of 5, then refuse`.
fn iteration(run: &v1::Run) -> String {
    let then = match run.max_iterations_then() {
        v1::LimitThen::Unspecified | v1::LimitThen::Refuse => "refuse",
        v1::LimitThen::Abort => "abort",
        v1::LimitThen::Suspend => "suspend",
    };
    match (run.iteration, run.max_iterations) {
        (0, 0) => String::new(),
        (iteration, 0) => iteration.to_string(),
        (iteration, max) => format!("{iteration} of {max}, then {then}"),
    }
}

/// What stands beside a run, such as `83 bytes, sha256 44136f...`.
fn content(content: &v1::Content) -> String {
    format!("{} bytes, sha256 {}", content.bytes, content.sha256)
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

/// Such as `by agent-7, at 2026-11-22T10:00:00.000000Z: the page is wrong`.
pub(super) fn abort_request(request: &v1::AbortRequest) -> String {
    let by = request.by.as_ref().map(principal).unwrap_or_default();
    let at = moment(time(request.at.as_ref()), Times::Whole);
    let until =
        time(request.deadline.as_ref()).map(|at| format!(", to be ended by the authority at {at}")).unwrap_or_default();
    format!("by {by}, at {at}{until}{}", because(&request.reason))
}

/// Such as `completed, by agent-7, at 2026-11-22T10:00:00.000000Z, under epoch 1`.
fn late_report(report: &v1::LateReport) -> String {
    let by = report.by.as_ref().map(principal).unwrap_or_default();
    let (status, at) = (status(report.status), moment(time(report.at.as_ref()), Times::Whole));
    let phase = if report.phase.is_empty() { String::new() } else { format!(", phase {}", report.phase) };
    let why = [report.reason_code.as_str(), report.failure_reason.as_str()];
    let why = why.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
    let lacks = report.completion_missing.join(", ");
    let lacks = if lacks.is_empty() { lacks } else { format!(" (lacks {lacks})") };
    format!("{status}, by {by}, at {at}, under epoch {}{phase}{}{lacks}", report.lease_epoch, because(&why))
}

fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

/// Such as `epoch 2, ttl 30s, until 2026-11-22T10:00:00.000000Z`.
fn lease(lease: &v1::Lease) -> String {
    let ttl = lease.ttl.as_ref().map(|ttl| format!(", ttl {ttl}")).unwrap_or_default();
    let until = time(lease.expires_at.as_ref()).map(|at| format!(", until {at}")).unwrap_or_default();
    let released = if lease.released { ", released" } else { "" };
    let resting = if lease.resting { ", resting" } else { "" };
    format!("epoch {}{ttl}{until}{released}{resting}", lease.epoch)
}

/// Such as `since 2026-11-22T10:00:00.000000Z, until 2026-11-22T11:00:00.000000Z: the next claim takes it`.
fn ready(ready: &v1::Ready) -> String {
    let since = moment(time(ready.at.as_ref()), Times::Whole);
    let until = time(ready.deadline.as_ref()).map(|at| format!(", until {at}")).unwrap_or_default();
    let take = if ready.not_begun { "the next claim takes it" } else { "the next claim that takes ready runs has it" };
    format!("since {since}{until}: {take}")
}

/// Such as `3 of 10, fetching, at 2026-11-22T10:00:00.000000Z`.
fn progress(progress: &v1::Progress) -> String {
    let at = time(progress.at.as_ref()).map(|at| format!(", at {at}")).unwrap_or_default();
    format!("{}{at}", amount(progress))
}

/// Such as `3 of 10, fetching`.
fn amount(progress: &v1::Progress) -> String {
    let of = if progress.total > 0 { format!(" of {}", progress.total) } else { String::new() };
    let message = if progress.message.is_empty() { String::new() } else { format!(", {}", progress.message) };
    format!("{}{of}{message}", progress.done)
}

/// Such as `running`.
pub(super) fn status(number: i32) -> String {
    word(v1::RunStatus::try_from(number).map(|status| status.as_str_name()), "RUN_STATUS_", number)
}

/// Such as `applied`.
pub(super) fn disposition(number: i32) -> String {
    word(v1::Disposition::try_from(number).map(|disposition| disposition.as_str_name()), "DISPOSITION_", number)
}

fn route(number: i32) -> String {
    if number == 0 {
        return String::new();
    }
    word(v1::Route::try_from(number).map(|route| route.as_str_name()), "ROUTE_", number)
}

/// Such as `created`.
pub(super) fn event_type(event: &v1::RunEvent) -> String {
    let name = v1::RunEventType::try_from(event.r#type).map(|name| name.as_str_name());
    word(name, "RUN_EVENT_TYPE_", event.r#type)
}

/// Such as `pending → running`, or only the status where the event did not change it.
fn transition(event: &v1::RunEvent) -> String {
    if event.from == 0 || event.from == event.to {
        return status(event.to);
    }
    format!("{} → {}", status(event.from), status(event.to))
}

/// The principal's name: its agent's, or its own where it acted as no agent. A word in brackets is nobody's name.
pub(super) fn principal(principal: &v1::Principal) -> String {
    match principal.kind() {
        v1::PrincipalKind::Anonymous => "(anonymous)".to_owned(),
        v1::PrincipalKind::Authority => "(authority)".to_owned(),
        v1::PrincipalKind::Authenticated if principal.agent_id.is_empty() => principal.subject.clone(),
        v1::PrincipalKind::Unspecified | v1::PrincipalKind::Claimed | v1::PrincipalKind::Authenticated => {
            principal.agent_id.clone()
        }
    }
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

/// A value's word; its number where a newer authority has one that is not known here.
fn word<E>(name: Result<&'static str, E>, prefix: &str, number: i32) -> String {
    name.map_or_else(|_unknown| number.to_string(), |name| name.trim_start_matches(prefix).to_lowercase())
}

/// A time; nothing where there is none.
pub(super) fn moment(at: Option<Time>, times: Times) -> String {
    match (at, times) {
        (None, _) => String::new(),
        (Some(at), Times::Whole) => at.to_string(),
        (Some(at), Times::Ages(now)) => age(at, now),
        (Some(at), Times::Clock(now)) if now.micros() - at.micros() < DAY_MICROS => clock(at),
        (Some(at), Times::Clock(now)) => format!("{} ago", age(at, now)),
    }
}

/// Such as `10:00:00Z`.
fn clock(at: Time) -> String {
    let seconds = at.micros().div_euclid(1_000_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// The age of a time, in its two largest units. The authority's clock and this one may differ a little.
fn age(at: Time, now: Time) -> String {
    let seconds = now.micros().saturating_sub(at.micros()).max(0) / 1_000_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        (_, _, _) => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_two_units_and_is_never_negative() {
        let now = Time::from_micros(1_000_000_000_000);
        for (seconds, shown) in [
            (-5, "0s"),
            (0, "0s"),
            (59, "59s"),
            (61, "1m01s"),
            (3_600, "1h00m"),
            (90_061, "1d01h"),
            (864_000, "10d00h"),
        ] {
            assert_eq!(age(Time::from_micros(now.micros() - seconds * 1_000_000), now), shown);
        }
    }

    #[test]
    fn the_clock_tells_times_of_the_last_day_and_others_by_their_age() {
        let (day, second) = (DAY_MICROS, 1_000_000);
        let now = Time::from_micros(20_000 * day + 3_661 * second);
        for (ago, shown) in
            [(0, "01:01:01Z"), (-second, "01:01:02Z"), (3_662 * second, "23:59:59Z"), (day, "1d00h ago")]
        {
            assert_eq!(moment(Some(Time::from_micros(now.micros() - ago)), Times::Clock(now)), shown);
        }
    }

    #[test]
    fn no_event_shifts_the_columns_of_a_watch() {
        let types = (0..100).filter_map(|number| v1::RunEventType::try_from(number).ok());
        let words: Vec<_> =
            types.map(|it| event_type(&v1::RunEvent { r#type: it.into(), ..v1::RunEvent::default() })).collect();
        assert!(words.contains(&"abort_requested".to_owned()), "{words:?}");
        assert!(words.iter().all(|word| word.len() <= EVENT_WIDTH), "{words:?}");
    }

    #[test]
    fn what_a_newer_authority_says_is_shown_by_its_number() {
        assert_eq!((status(2), status(77)), ("running".to_owned(), "77".to_owned()));
        assert_eq!((route(0), route(1), route(9)), (String::new(), "mcp".to_owned(), "9".to_owned()));
    }
}
