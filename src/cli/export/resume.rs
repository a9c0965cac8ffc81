//! Going on with a file that an earlier export followed into, until somebody killed it: what the file has is not
//! written again, and half a line at its end is written anew.
//!
//! Events of several shards may come later than their times say, so that each shard has its own last line in the
//! file. In a session's file a run may come late as a whole: there each run has its own.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use serde::Deserialize;
use tokio::task::spawn_blocking;

use super::range::{self, Range};
use super::{Ended, Export, PAGE_EVENTS_MAX, line};
use crate::domain::ids::shard_of;
use crate::domain::{Event, Namespace, Position, Positions, Revision, RunId, RunKey, Shard, Time};
use crate::store::inspect::Link;
use crate::store::{Ledger, LoggedEvent, PAGE_BYTES_MAX};

/// Bytes of a line at most: a longer one is no event's.
pub(super) const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes of a file that are read at once, from its end.
const CHUNK_BYTES: u64 = 64 * 1024;

/// The beginning of every line.
const BEGINNING: &[u8] = br#"{"at":""#;

/// The events that a file has already.
#[derive(Debug, Default)]
pub(super) enum Seen {
    /// None: the file is new.
    #[default]
    Nothing,
    /// Each shard's last line.
    Places(HashMap<Shard, LinePlace>),
    /// The last revision of each run.
    Runs(HashMap<RunKey, Revision>),
}

/// The fields of a line that tell its event.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LinePlace {
    pub(super) at: Time,
    run_id: RunId,
    pub(super) revision: Revision,
    #[serde(default = "Namespace::only")]
    pub(super) namespace: Namespace,
}

/// The field by which a line is told that has no event.
#[derive(Debug, Deserialize)]
struct Typed<'a> {
    r#type: &'a str,
}

impl LinePlace {
    pub(super) fn key(&self) -> RunKey {
        RunKey { namespace: self.namespace.clone(), run_id: self.run_id.clone() }
    }
}

/// The lines that tell where to go on.
enum Telling {
    /// The last of each shard.
    Shards(Ledger),
    /// The last of each run.
    Runs,
    /// The last of this run.
    Run(RunKey),
}

impl Seen {
    pub(super) fn has(&self, event: &Event) -> bool {
        match self {
            Self::Nothing | Self::Places(_) => false,
            Self::Runs(runs) => runs.get(&event.key).is_some_and(|last| event.revision <= *last),
        }
    }
}

impl Export {
    /// Reads which events the file has, and cuts half a line off its end.
    pub(super) async fn resume(&mut self, run: Option<&RunKey>) -> Result<(), Ended> {
        let Some(file) = self.sink.appended() else { return Ok(()) };
        let mut file = file.try_clone().map_err(Ended::Output)?;
        let telling = match run {
            Some(key) => Telling::Run(key.clone()),
            None if self.wanted.iter().any(|link| matches!(link, Link::AuditSession(_))) => Telling::Runs,
            None => Telling::Shards(self.inspect.ledger()),
        };
        let read = spawn_blocking(move || seen(&mut file, &telling)).await;
        self.seen = read.map_err(io::Error::from).map_err(Ended::Output)??;
        Ok(())
    }

    /// Moves the range's beginning behind the last line of each shard.
    pub(super) async fn skip(&self, range: &mut Range) -> Result<(), Ended> {
        let Seen::Places(places) = &self.seen else { return Ok(()) };
        for (shard, place) in places {
            let position = self.position(*shard, place, &range.ends).await?;
            range.after.set(*shard, position.max(range.after.of(*shard)));
        }
        Ok(())
    }

    /// The position of the event of a line. Where the store's clock was set back, times fall within a shard, and a search by
    /// time may come out behind the event: then the shard is looked through once.
    async fn position(&self, shard: Shard, place: &LinePlace, ends: &Positions) -> Result<Position, Ended> {
        let (inspect, end) = (self.inspect.as_ref(), ends.of(shard));
        let before = self.ask(|| range::before_in(inspect, shard, end, place.at)).await?;
        let found = match self.found(shard, place, ends, before, true).await? {
            None => self.found(shard, place, ends, 0, false).await?,
            found => found,
        };
        found.ok_or(Ended::Foreign(
            "its last lines are of another ledger, or of a past that this one has lost: export to a new file",
        ))
    }

    /// The position of the event of a line after another position; `in_order`: later events bear later times.
    async fn found(
        &self,
        shard: Shard,
        place: &LinePlace,
        ends: &Positions,
        before: Position,
        in_order: bool,
    ) -> Result<Option<Position>, Ended> {
        let (inspect, key, end) = (self.inspect.as_ref(), place.key(), ends.of(shard));
        let mut after = ends.clone();
        after.set(shard, before);
        while after.of(shard) < end {
            let page = self.ask(|| inspect.changes(&after, PAGE_EVENTS_MAX, PAGE_BYTES_MAX)).await?;
            let events = page.whole()?;
            for logged in events.iter().filter(|logged| logged.shard == shard) {
                let event = &logged.event;
                if event.key == key && event.revision == place.revision && event.at == place.at {
                    return Ok(Some(logged.position));
                }
                if in_order && event.at > place.at {
                    return Ok(None);
                }
            }
            if events.is_empty() {
                break;
            }
            advance(&mut after, &events);
        }
        Ok(None)
    }
}

fn seen(file: &mut File, telling: &Telling) -> Result<Seen, Ended> {
    let mut lines = Backwards::of(file).map_err(Ended::Output)?;
    let length = lines.start;
    let (mut places, mut runs) = (HashMap::new(), HashMap::new());
    let mut whole = length;
    while let Some(line) = lines.next().map_err(Ended::Output)? {
        if !line.ends_with(b"\n") {
            let common = line.len().min(BEGINNING.len());
            if line[..common] != BEGINNING[..common] {
                return Err(Ended::Foreign("it ends in what no export wrote"));
            }
            whole -= line.len() as u64;
            continue;
        }
        if is_gone(&line) {
            continue;
        }
        let Ok(place) = serde_json::from_slice::<LinePlace>(&line) else {
            return Err(Ended::Foreign("it has a line that no export wrote"));
        };
        match telling {
            Telling::Shards(ledger) => {
                places.entry(shard_of(ledger.id, ledger.shard_count, &place.key())).or_insert(place);
                if places.len() == usize::from(ledger.shard_count) {
                    break;
                }
            }
            Telling::Runs => {
                runs.entry(place.key()).or_insert(place.revision);
            }
            Telling::Run(key) if *key == place.key() => {
                runs.insert(place.key(), place.revision);
                break;
            }
            Telling::Run(_) => {}
        }
    }
    if whole < length {
        lines.file.set_len(whole).map_err(Ended::Output)?;
    }
    Ok(match telling {
        Telling::Shards(_) => Seen::Places(places),
        Telling::Runs | Telling::Run(_) => Seen::Runs(runs),
    })
}

/// Whether a line tells of events that are gone, and has none.
pub(super) fn is_gone(line: &[u8]) -> bool {
    serde_json::from_slice::<Typed>(line).is_ok_and(|line| line.r#type == line::GONE)
}

/// A file's lines, the last one first, each with its line feed.
pub(super) struct Backwards<'a> {
    file: &'a mut File,
    /// The offset in the file at which `held` begins. Everything before is unread.
    start: u64,
    held: Vec<u8>,
}

impl<'a> Backwards<'a> {
    pub(super) fn of(file: &'a mut File) -> io::Result<Self> {
        let start = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, start, held: Vec::new() })
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        // The bytes that were not looked at: what stands behind them has no line feed but its last byte.
        let mut unseen = self.held.len().saturating_sub(1);
        loop {
            if let Some(feed) = self.held[..unseen].iter().rposition(|byte| *byte == b'\n') {
                return Ok(Some(self.held.split_off(feed + 1)));
            }
            if self.held.len() as u64 > LINE_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it has a line that no export wrote"));
            }
            if self.start == 0 {
                return Ok(Some(std::mem::take(&mut self.held)).filter(|line| !line.is_empty()));
            }
            // As much again, so that a long line is not moved for each of its pieces.
            let size = self.start.min(CHUNK_BYTES.max(self.held.len() as u64));
            self.start -= size;
            self.file.seek(SeekFrom::Start(self.start))?;
            let mut chunk = Vec::new();
            (&mut *self.file).take(size).read_to_end(&mut chunk)?;
            unseen = if self.held.is_empty() { chunk.len().saturating_sub(1) } else { chunk.len() };
            chunk.append(&mut self.held);
            self.held = chunk;
        }
    }
}

pub(super) fn advance(after: &mut Positions, events: &[LoggedEvent]) {
    for logged in events {
        after.set(logged.shard, logged.position);
    }
}
