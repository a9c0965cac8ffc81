//! What an export that follows selects, noted beside its file: lines do not tell which events are missing between them, so that
//! an export of another selection that went on with the file would leave a hole in it for good.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::resume::{LinePlace, is_gone};
use super::{Ended, Export};
use crate::cli::exit::say;
use crate::domain::{Namespace, RunId, RunKey, Time};
use crate::private::{self, Rights};
use crate::store::inspect::Link;
use crate::text::When;

/// The ending of the file that has the selection.
const ENDING: &str = ".selection";

/// The bytes that it may have: names, and no more.
const SELECTION_BYTES_MAX: u64 = 16 * 1024;

/// The events that an export shows.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Selection {
    ledger: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<Namespace>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    audit_session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task_thread_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Time>,
}

/// The place of the selection of a file.
fn beside(output: &str) -> io::Result<PathBuf> {
    let mut name = private::followed(Path::new(output))?.into_os_string();
    name.push(ENDING);
    Ok(name.into())
}

/// The file was replaced by an export that does not follow: what was noted is of the former one.
pub(super) fn forget(output: &str) -> io::Result<()> {
    match fs::remove_file(beside(output)?) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

impl Export {
    /// Holds the file that is gone on with to the selection of this export: what is to be noted beside a file that has none. A
    /// time that was given as so long ago is the one from which the file has events.
    pub(super) fn held_to_its_selection(
        &mut self,
        output: &str,
        run: Option<&RunKey>,
        given: Option<When>,
    ) -> Result<Option<Selection>, Ended> {
        let Some(file) = self.sink.appended() else { return Ok(None) };
        let mut file = file.try_clone().map_err(Ended::Output)?;
        let has_lines = file.metadata().map_err(Ended::Output)?.len() > 0;
        if has_lines {
            let is_ago = matches!(given, Some(When::Ago(_)));
            if let Some(noted) = noted(output)? {
                self.since = noted.since.filter(|_| is_ago).or(self.since);
                let asked = self.selection(run);
                return if noted == asked { Ok(None) } else { Err(Ended::Foreign(noted.differs(&asked))) };
            }
            // An earlier release, or an export that did not follow, wrote it.
            let first = self.has_only(&mut file, run)?;
            self.since = first.filter(|_| is_ago).or(self.since);
        }
        Ok(Some(self.selection(run)))
    }

    fn selection(&self, run: Option<&RunKey>) -> Selection {
        let (mut audit_session_id, mut task_thread_id) = (None, None);
        for link in &self.wanted {
            match link {
                Link::AuditSession(id) => audit_session_id = Some(id.clone()),
                Link::TaskThread(id) => task_thread_id = Some(id.clone()),
            }
        }
        Selection {
            ledger: self.inspect.ledger().id.to_string(),
            namespace: run.map(|run| run.namespace.clone()).or_else(|| self.namespace.clone()),
            run_id: run.map(|run| run.run_id.clone()),
            audit_session_id,
            task_thread_id,
            since: self.since,
        }
    }

    /// Refuses a file without a note that has more than this export selects, as far as lines tell; the time of its first line.
    /// What no export wrote is refused later.
    fn has_only(&self, file: &mut File, run: Option<&RunKey>) -> Result<Option<Time>, Ended> {
        let (mut lines, mut line, mut first) = (BufReader::new(file), Vec::new(), None);
        while lines.read_until(b'\n', &mut line).map_err(Ended::Output)? > 0 {
            if line.ends_with(b"\n")
                && !is_gone(&line)
                && let Ok(place) = serde_json::from_slice::<LinePlace>(&line)
            {
                if self.namespace.as_ref().is_some_and(|namespace| *namespace != place.namespace) {
                    return Err(Ended::Foreign("it has events of another namespace"));
                }
                if run.is_some_and(|run| *run != place.key()) {
                    return Err(Ended::Foreign("it has events of more than this run"));
                }
                first.get_or_insert(place.at);
            }
            line.clear();
        }
        Ok(first)
    }
}

fn noted(output: &str) -> Result<Option<Selection>, Ended> {
    match runledger_files::read(&beside(output).map_err(Ended::Output)?, SELECTION_BYTES_MAX) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|_| Ended::Foreign("the file beside it that ends in .selection does not say what it selects")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Ended::Output(error)),
    }
}

impl Selection {
    /// Notes the selection beside the file. Where that cannot be, the export goes on, and says so.
    pub(super) fn note(&self, output: &str) -> Result<(), Ended> {
        let path = beside(output).map_err(Ended::Output)?;
        let text = serde_json::to_string(self).map_err(io::Error::other).map_err(Ended::Output)?;
        if let Err(error) = private::replace(&path, format!("{text}\n").as_bytes(), Rights::OfAnyWriter) {
            let path = path.display();
            say(&format!("{path} cannot be written ({error}): nothing will keep the output from another selection"));
        }
        Ok(())
    }

    /// In what a selection differs from the one that was noted.
    fn differs(&self, asked: &Self) -> &'static str {
        if self.ledger != asked.ledger {
            "it is an export of another ledger"
        } else if self.namespace != asked.namespace {
            "it is an export of another --namespace, or of all"
        } else if self.run_id != asked.run_id {
            "it is an export of another --run, or of all"
        } else if self.audit_session_id != asked.audit_session_id {
            "it is an export of another --audit-session, or of none"
        } else if self.task_thread_id != asked.task_thread_id {
            "it is an export of another --task-thread, or of none"
        } else {
            "it is an export of another --since, or without one"
        }
    }
}
