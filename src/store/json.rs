//! The JSON that both stores keep: the `record`, `metadata`, `labels`, `event` and `keyframe` columns.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::StoreError;
use super::scalars::{self, shown};
use crate::domain::evolve::evolve;
use crate::domain::form::object;
use crate::domain::{Bindings, Ending, Event, Labels, Metadata, Refinements, Revision, Run, RunKey, Supervision, Time};

/// The columns of `runs` that make a run, with its documents as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunColumns<T> {
    /// `namespace` and `run_id`.
    pub key: RunKey,
    pub revision: i64,
    pub status: i16,
    pub started_at: Time,
    pub task_thread_id: String,
    pub agent_id: Option<String>,
    pub workflow_id: Option<String>,
    pub audit_session_id: Option<String>,
    pub route: Option<T>,
    pub labels: Option<T>,
    pub record: T,
    pub metadata: Option<T>,
    pub archived_at: Option<Time>,
    pub purged_at: Option<Time>,
}

impl<T: AsRef<str>> RunColumns<T> {
    /// The length of the texts and documents: for bounds on pages.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let texts = [&self.agent_id, &self.workflow_id, &self.audit_session_id];
        let documents = [self.labels.as_ref(), Some(&self.record), self.metadata.as_ref()];
        self.key.namespace.len()
            + self.key.run_id.len()
            + self.task_thread_id.len()
            + texts.into_iter().flatten().map(String::len).sum::<usize>()
            + documents.into_iter().flatten().map(|document| document.as_ref().len()).sum::<usize>()
    }
}

impl RunColumns<&str> {
    /// The same columns, with documents of their own.
    #[must_use]
    pub fn into_owned(self) -> RunColumns<String> {
        let Self { key, revision, status, started_at, task_thread_id, agent_id, workflow_id, audit_session_id, .. } =
            self;
        RunColumns {
            key,
            revision,
            status,
            started_at,
            task_thread_id,
            agent_id,
            workflow_id,
            audit_session_id,
            route: self.route.map(str::to_owned),
            labels: self.labels.map(str::to_owned),
            record: self.record.to_owned(),
            metadata: self.metadata.map(str::to_owned),
            archived_at: self.archived_at,
            purged_at: self.purged_at,
        }
    }
}

/// The columns of `run_events` that make an event, besides its place.
#[derive(Clone, Debug)]
pub struct EventColumns {
    /// `namespace` and `run_id`.
    pub key: RunKey,
    pub revision: Revision,
    pub at: Time,
    pub event: String,
    pub request_id: Option<String>,
}

/// The fields of a run that `record` keeps: those that no other column has. Each version of a row is written to the
/// database's log whole, so no field is there twice.
#[derive(Debug)]
pub struct Record<'a> {
    updated_at: Time,
    running_at: Option<Time>,
    completed_at: Option<Time>,
    bindings: Cow<'a, Bindings>,
    ending: Cow<'a, Ending>,
    supervision: Option<Cow<'a, Supervision>>,
    refinements: Option<Cow<'a, Box<Refinements>>>,
}

object!(Record::unread(), ["updatedAt"], Record<'a> {
    updated_at: "updatedAt" required,
    running_at: "runningAt",
    completed_at: "completedAt",
    bindings,
    ending,
    supervision: "supervision",
    refinements: "refinements"
});

impl<'a> Record<'a> {
    /// The fields of a run.
    #[must_use]
    pub fn of(run: &'a Run) -> Self {
        let without_columns =
            Bindings { route: None, audit_session_id: None, workflow_id: None, ..run.bindings.clone() };
        Self {
            updated_at: run.updated_at,
            running_at: run.running_at,
            completed_at: run.completed_at,
            bindings: Cow::Owned(without_columns),
            ending: Cow::Borrowed(&run.ending),
            supervision: Some(&run.supervision).filter(|kept| !kept.is_empty()).map(Cow::Borrowed),
            refinements: run.refinements.as_ref().map(Cow::Borrowed),
        }
    }

    fn unread() -> Self {
        Self {
            updated_at: Time::from_micros(0),
            running_at: None,
            completed_at: None,
            bindings: Cow::default(),
            ending: Cow::default(),
            supervision: None,
            refinements: None,
        }
    }
}

/// The `record` of a run.
#[must_use]
pub fn record(run: &Run) -> String {
    text(&Record::of(run))
}

/// The `metadata` of a run: none for an empty object.
#[must_use]
pub fn metadata(run: &Run) -> Option<String> {
    (!run.metadata.is_empty()).then(|| text(&run.metadata))
}

/// The column `labels`: none when there are none.
#[must_use]
pub fn labels(labels: &Labels) -> Option<String> {
    (!labels.is_empty()).then(|| text(labels))
}

/// The column `event`.
#[must_use]
pub fn event(event: &Event) -> String {
    text(event)
}

/// The column `keyframe`: the whole run.
#[must_use]
pub fn keyframe(run: &Run) -> String {
    text(&Keyframe::new(run))
}

/// The fields that `keyframe` keeps.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Keyframe<'a> {
    run: &'a Run,
    metadata: &'a Metadata,
}

impl<'a> Keyframe<'a> {
    /// The fields of a run.
    #[must_use]
    pub fn new(run: &'a Run) -> Self {
        Self { run, metadata: &run.metadata }
    }
}

/// The run that its columns make.
///
/// # Errors
///
/// [`StoreError::Corrupt`].
pub fn read_run<T: AsRef<str>>(columns: RunColumns<T>) -> Result<Run, StoreError> {
    let RunColumns {
        key, revision, status, started_at, task_thread_id, agent_id, workflow_id, audit_session_id, ..
    } = columns;
    let corrupt = |column, source| StoreError::Corrupt { table: "runs", column, key: shown(&key), source };
    let revision = u64::try_from(revision).map(Revision::from).map_err(|error| corrupt("revision", error.into()))?;
    let status = scalars::status(status).ok_or_else(|| corrupt("status", format!("no status is {status}").into()))?;
    let route = columns
        .route
        .as_ref()
        .map(T::as_ref)
        .map(|name| scalars::route(name).ok_or_else(|| corrupt("route", format!("no route is {name}").into())));
    let route = route.transpose()?;
    let labels = columns.labels.as_ref().map(|labels| read("runs", "labels", &key, labels.as_ref())).transpose()?;
    let documents = Documents::read(&key, &columns.record, columns.metadata.as_ref())?;
    let mut run = Run {
        run_id: key.run_id,
        namespace: key.namespace,
        task_thread_id,
        status,
        revision,
        started_at,
        agent_id,
        bindings: Bindings { route, audit_session_id, workflow_id, ..Bindings::default() },
        ending: Ending::default(),
        labels: labels.unwrap_or_default(),
        metadata: Metadata::default(),
        updated_at: started_at,
        running_at: None,
        completed_at: None,
        archived_at: columns.archived_at,
        purged_at: columns.purged_at,
        supervision: Supervision::default(),
        refinements: None,
    };
    documents.put_into(&mut run);
    Ok(run)
}

/// A run with the fields of `record` and `metadata` taken from these columns.
///
/// # Errors
///
/// [`StoreError::Corrupt`].
pub fn with_documents<T: AsRef<str>>(mut run: Run, columns: &RunColumns<T>) -> Result<Run, StoreError> {
    Documents::read(&columns.key, &columns.record, columns.metadata.as_ref())?.put_into(&mut run);
    Ok(run)
}

/// The contents of `record` and `metadata`.
struct Documents<'a> {
    record: Record<'a>,
    metadata: Metadata,
}

impl<'a> Documents<'a> {
    fn read<T: AsRef<str>>(key: &RunKey, record: &'a T, metadata: Option<&T>) -> Result<Self, StoreError> {
        let metadata = metadata.map(|metadata| read("runs", "metadata", key, metadata.as_ref())).transpose()?;
        Ok(Self { record: read("runs", "record", key, record.as_ref())?, metadata: metadata.unwrap_or_default() })
    }

    fn put_into(self, run: &mut Run) {
        let Record { updated_at, running_at, completed_at, bindings, ending, supervision, refinements } = self.record;
        let Bindings { route, audit_session_id, workflow_id, .. } = std::mem::take(&mut run.bindings);
        run.updated_at = updated_at;
        run.running_at = running_at;
        run.completed_at = completed_at;
        // Those that are named have columns.
        run.bindings = Bindings { route, audit_session_id, workflow_id, ..bindings.into_owned() };
        run.ending = ending.into_owned();
        run.supervision = supervision.map(Cow::into_owned).unwrap_or_default();
        run.refinements = refinements.map(Cow::into_owned);
        run.metadata = self.metadata;
    }
}

/// The event that its columns make.
///
/// # Errors
///
/// [`StoreError::Corrupt`].
pub fn read_event(columns: EventColumns) -> Result<Event, StoreError> {
    try_event(columns).map_err(|unreadable| unreadable.1)
}

/// The event of a row of `run_events`, or its columns and why they make none.
pub(super) fn try_event(columns: EventColumns) -> Result<Event, Box<(EventColumns, StoreError)>> {
    let mut event: Event = match read("run_events", "event", &columns.key, &columns.event) {
        Ok(event) => event,
        Err(error) => return Err(Box::new((columns, error))),
    };
    event.key = columns.key;
    event.revision = columns.revision;
    event.at = columns.at;
    event.request_id = columns.request_id;
    Ok(event)
}

/// The run of `keyframe`.
///
/// # Errors
///
/// [`StoreError::Corrupt`].
pub fn read_keyframe(key: &RunKey, keyframe: &str) -> Result<Run, StoreError> {
    #[derive(Deserialize)]
    struct KeptKeyframe {
        run: Run,
        metadata: Metadata,
    }
    let KeptKeyframe { mut run, metadata } = read("run_events", "keyframe", key, keyframe)?;
    run.metadata = metadata;
    Ok(run)
}

/// The run that events make of a keyframe, or of nothing; events up to the keyframe's revision are skipped.
///
/// # Errors
///
/// [`StoreError::Corrupt`] when a revision is missing.
pub fn fold(keyframe: Option<Run>, events: &[Event]) -> Result<Option<Run>, StoreError> {
    let mut run = keyframe;
    for event in events {
        let last = run.as_ref().map_or(Revision::NONE, |run| run.revision);
        if event.revision <= last {
            continue;
        }
        if event.revision > last.next() {
            return Err(StoreError::Corrupt {
                table: "run_events",
                column: "revision",
                key: shown(&event.key),
                source: format!("revision {} follows {last}", event.revision).into(),
            });
        }
        run = Some(evolve(run, event));
    }
    Ok(run)
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings, finite numbers and string keys serialize")
}

fn read<'a, T: Deserialize<'a>>(
    table: &'static str,
    column: &'static str,
    key: &RunKey,
    json: &'a str,
) -> Result<T, StoreError> {
    serde_json::from_str(json).map_err(|error| StoreError::Corrupt {
        table,
        column,
        key: shown(key),
        source: error.into(),
    })
}
