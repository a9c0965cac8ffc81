//! Whether an export may replace the file that has its output's name: only one that an export of the same ledger wrote,
//! and of nothing else than this one is to write. Whoever means another file says so by `--force`.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _};

use tokio::task::spawn_blocking;

use super::resume::{Backwards, LINE_BYTES_MAX, LinePlace, is_gone};
use super::{Ended, Export};
use crate::cli::exit::say;
use crate::domain::{Revision, RunKey};
use crate::store::PAGE_BYTES_MAX;

/// A file's first and last line; none: the file is not there, is empty, or is a pipe or a device, which is never replaced.
type Ends = Option<[Vec<u8>; 2]>;

/// What a line of the file says of the ledger.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineStanding {
    /// The ledger has its event.
    Known,
    /// The ledger does not know the run, which may have been purged; or the line has no event.
    Unknown,
}

impl Export {
    /// Refuses an output whose file is not one that this export may replace.
    pub(super) async fn may_replace(&mut self, output: &str, run: Option<&RunKey>) -> Result<(), Ended> {
        let path = output.to_owned();
        let read = spawn_blocking(move || ends(&path)).await;
        let Some(lines) = read.map_err(io::Error::from).map_err(Ended::Output)?.map_err(Ended::Output)? else {
            return Ok(());
        };
        let (mut found, mut times) = (Vec::new(), Vec::new());
        for line in lines {
            if is_gone(&line) {
                found.push(LineStanding::Unknown);
                continue;
            }
            let Ok(place) = serde_json::from_slice::<LinePlace>(&line) else {
                return Err(Ended::Kept("no export wrote it"));
            };
            if self.namespace.as_ref().is_some_and(|namespace| *namespace != place.namespace) {
                return Err(Ended::Kept("it is an export of another namespace"));
            }
            if run.is_some_and(|run| *run != place.key()) {
                return Err(Ended::Kept("it is an export of more than this run"));
            }
            found.push(self.look_for(&place).await?);
            times.push(place.at);
        }
        if found.contains(&LineStanding::Known) {
            self.replaced = times.first().copied().zip(times.last().copied());
            Ok(())
        } else {
            Err(Ended::Kept("this ledger does not have its events, or no more"))
        }
    }

    /// Says where the file that is replaced has events outside of the times of this export: the new one has less.
    pub(super) fn tell_of_less(&self) {
        let is_less = |(first, last)| !self.in_time(first) || !self.in_time(last);
        if self.replaced.is_some_and(is_less) {
            say("the file that is replaced has events outside of --since and --until, which the new one leaves out");
        }
    }

    async fn look_for(&self, place: &LinePlace) -> Result<LineStanding, Ended> {
        let (key, after) = (place.key(), Revision::from(place.revision.get().saturating_sub(1)));
        let page = self.ask(|| self.inspect.run_events(&key, after, 1, PAGE_BYTES_MAX)).await?;
        match page.first() {
            None => Ok(LineStanding::Unknown),
            Some(event) if (event.revision, event.at) == (place.revision, place.at) => Ok(LineStanding::Known),
            Some(_) => Err(Ended::Kept("it is of another ledger, or of a past that this one has lost")),
        }
    }
}

fn ends(path: &str) -> io::Result<Ends> {
    // A pipe is not opened here: somebody may wait for its reader.
    match fs::metadata(path) {
        Ok(there) if there.is_file() && there.len() > 0 => {}
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut file = File::open(path)?;
    let mut first = Vec::new();
    BufReader::new((&file).take(2)).read_to_end(&mut first)?;
    if first != b"{\"" {
        // It may be large, and of one line: nothing more of it is read.
        return Ok(Some([first.clone(), first]));
    }
    file.rewind()?;
    first.clear();
    BufReader::new((&file).take(LINE_BYTES_MAX)).read_until(b'\n', &mut first)?;
    let last = Backwards::of(&mut file)?.next()?.unwrap_or_default();
    Ok(Some([first, last]))
}
