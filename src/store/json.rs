//! The JSON that both stores keep: the `record`, `metadata`, `labels`, `event` and `keyframe` columns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::StoreError;
use super::columns::shown;
use crate::domain::evolve::evolve;
use crate::domain::{Event, Metadata, Run, RunKey, Time};

/// The columns of `run_events` that make an event, besides its place.
#[derive(Clone, Debug)]
pub struct EventColumns {
    /// `namespace` and `run_id`.
    pub key: RunKey,
    /// `revision`.
    pub revision: u64,
    /// `at`.
    pub at: Time,
    /// `event`.
    pub event: String,
    /// `request_id`.
    pub request_id: Option<String>,
}

/// `record`: the run without its metadata.
#[must_use]
pub fn record(run: &Run) -> String {
    text(run)
}

/// `metadata`: none for an empty object.
#[must_use]
pub fn metadata(run: &Run) -> Option<String> {
    (!run.metadata.is_empty()).then(|| text(&run.metadata))
}

/// `labels`: none when there are none.
#[must_use]
pub fn labels(labels: &BTreeMap<String, String>) -> Option<String> {
    (!labels.is_empty()).then(|| text(labels))
}

/// `event`.
#[must_use]
pub fn event(event: &Event) -> String {
    text(event)
}

/// `keyframe`: the whole run.
#[must_use]
pub fn keyframe(run: &Run) -> String {
    text(&Keyframe::of(run))
}

/// What `keyframe` keeps.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Keyframe<'a> {
    run: &'a Run,
    metadata: &'a Metadata,
}

impl<'a> Keyframe<'a> {
    /// Of a run.
    #[must_use]
    pub fn of(run: &'a Run) -> Self {
        Self { run, metadata: &run.metadata }
    }
}

/// The run of `record` and `metadata`.
///
/// # Errors
///
/// [`StoreError::Corrupt`].
pub fn read_run(key: &RunKey, record: &str, metadata: Option<&str>) -> Result<Run, StoreError> {
    let mut run: Run = read("runs", "record", key, record)?;
    if let Some(metadata) = metadata {
        run.metadata = read("runs", "metadata", key, metadata)?;
    }
    Ok(run)
}

/// The event of its columns.
///
/// # Errors
///
/// [`StoreError::Corrupt`].
pub fn read_event(columns: EventColumns) -> Result<Event, StoreError> {
    let mut event: Event = read("run_events", "event", &columns.key, &columns.event)?;
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
    struct Kept {
        run: Run,
        metadata: Metadata,
    }
    let Kept { mut run, metadata } = read("run_events", "keyframe", key, keyframe)?;
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
        let revision = run.as_ref().map_or(0, |run| run.revision);
        if event.revision <= revision {
            continue;
        }
        if event.revision != revision + 1 {
            return Err(StoreError::Corrupt {
                table: "run_events",
                column: "revision",
                key: shown(&event.key),
                source: format!("revision {} follows {revision}", event.revision).into(),
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
