//! The tokens that lead from one page to the next. Opaque to clients; bound to their ledger, their namespace and the
//! question that they page over: a run's history, or a list of runs with its filter.
//!
//! The tag keeps a token from being used where it was not given out. The tag is no secret: a client that forges one
//! only skips entries that it may read anyway.

use std::hash::Hasher as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use siphasher::sip::SipHasher13;
use uuid::Uuid;

use crate::domain::limits::RUN_ID_BYTES_MAX;
use crate::domain::{Filter, LedgerEpoch, Revision, Route, RunKey, Time};
use crate::store::Ledger;
use crate::store::query::Place;

const VERSION: u8 = 1;
/// Bytes of the tag. A token is a version, a tag, and the end of its page.
const TAG: usize = 8;
const BYTES_MAX: usize = 1 + TAG + size_of::<i64>() + RUN_ID_BYTES_MAX;
/// As base64, which makes four characters of three bytes.
pub const PAGE_TOKEN_BYTES_MAX: usize = BYTES_MAX.div_ceil(3) * 4;

/// The refusal of a token: one answer for noise, and for a token of another ledger, run or filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the page token is not one that was given out for this question")]
pub struct PageTokenInvalid;

/// The question that a token pages over.
#[derive(Clone, Copy, Debug)]
pub enum Pages<'a> {
    /// A run's history, in a past of the ledger that has this epoch.
    Events(&'a RunKey, LedgerEpoch),
    /// The runs of a namespace that match a filter.
    Runs(&'a str, &'a Filter),
}

/// The token for the events of a run after a revision.
#[must_use]
pub fn after_revision(revision: Revision, ledger: Ledger, key: &RunKey) -> String {
    encode(&revision.get().to_be_bytes(), ledger.id, Pages::Events(key, ledger.epoch))
}

/// The revision that a token stands at.
///
/// # Errors
///
/// The token was not given out by this ledger, as it is now, for this run.
pub fn revision(token: &str, ledger: Ledger, key: &RunKey) -> Result<Revision, PageTokenInvalid> {
    let end = decode(token, ledger.id, Pages::Events(key, ledger.epoch))?;
    end.try_into().map(|end| u64::from_be_bytes(end).into()).map_err(|_| PageTokenInvalid)
}

/// The token for the runs of a list behind a place.
#[must_use]
pub fn after_place(place: &Place, ledger: Uuid, namespace: &str, filter: &Filter) -> String {
    let end = [&place.started_at.micros().to_be_bytes(), place.run_id.as_bytes()].concat();
    encode(&end, ledger, Pages::Runs(namespace, filter))
}

/// The place that a token stands at.
///
/// # Errors
///
/// The token was not given out by this ledger for this filter in this namespace.
pub fn place(token: &str, ledger: Uuid, namespace: &str, filter: &Filter) -> Result<Place, PageTokenInvalid> {
    let end = decode(token, ledger, Pages::Runs(namespace, filter))?;
    let (micros, run_id) = end.split_first_chunk().ok_or(PageTokenInvalid)?;
    let run_id = std::str::from_utf8(run_id).map_err(|_| PageTokenInvalid)?;
    Ok(Place { started_at: Time::from_micros(i64::from_be_bytes(*micros)), run_id: run_id.into() })
}

fn encode(end: &[u8], ledger: Uuid, pages: Pages<'_>) -> String {
    URL_SAFE_NO_PAD.encode([&[VERSION], &tag(end, ledger, pages)[..], end].concat())
}

/// The end of a token's page. The base64 engine refuses a second spelling of a token.
fn decode(token: &str, ledger: Uuid, pages: Pages<'_>) -> Result<Vec<u8>, PageTokenInvalid> {
    if token.len() > PAGE_TOKEN_BYTES_MAX {
        return Err(PageTokenInvalid);
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| PageTokenInvalid)?;
    let (version, rest) = bytes.split_first().ok_or(PageTokenInvalid)?;
    let (found, end) = rest.split_first_chunk().ok_or(PageTokenInvalid)?;
    let sound = *version == VERSION && *found == tag(end, ledger, pages);
    sound.then(|| end.to_vec()).ok_or(PageTokenInvalid)
}

/// Two filters that mean the same have one tag: the domain keeps statuses and labels in order.
fn tag(end: &[u8], ledger: Uuid, pages: Pages<'_>) -> [u8; TAG] {
    let mut tagged = Tagged(SipHasher13::new_with_key(ledger.as_bytes()));
    match pages {
        Pages::Events(RunKey { namespace, run_id }, epoch) => {
            tagged.part(b"events");
            tagged.part(namespace.as_bytes());
            tagged.part(run_id.as_bytes());
            // Tokens of a ledger that lost nothing stay as they were.
            if epoch > LedgerEpoch::FIRST {
                tagged.part(&epoch.get().to_be_bytes());
            }
        }
        Pages::Runs(namespace, filter) => {
            tagged.part(b"runs");
            tagged.part(namespace.as_bytes());
            tagged.filter(filter);
        }
    }
    tagged.part(end);
    tagged.0.finish().to_be_bytes()
}

/// The hash behind a tag. Each part has its length in front, so that no two lists of parts are the same bytes.
struct Tagged(SipHasher13);

impl Tagged {
    fn part(&mut self, part: &[u8]) {
        self.0.write(&(part.len() as u64).to_be_bytes());
        self.0.write(part);
    }

    /// A part that may be absent: an empty one is not the same.
    fn optional(&mut self, part: Option<&[u8]>) {
        self.0.write(&[u8::from(part.is_some())]);
        self.part(part.unwrap_or_default());
    }

    fn filter(&mut self, filter: &Filter) {
        let Filter {
            task_thread_id,
            statuses,
            agent_id,
            workflow_id,
            audit_session_id,
            route,
            labels,
            started_from,
            started_before,
            or_ready: _,
        } = filter;
        for link in [task_thread_id, agent_id, workflow_id, audit_session_id] {
            self.optional(link.as_ref().map(String::as_bytes));
        }
        let statuses: Vec<&str> = statuses.iter().map(|status| status.name()).collect();
        self.part(statuses.join(",").as_bytes());
        self.optional(route.map(Route::name).map(str::as_bytes));
        for time in [started_from, started_before] {
            self.optional(time.map(|time| time.micros().to_be_bytes()).as_ref().map(<[u8; 8]>::as_slice));
        }
        for (key, value) in labels {
            self.part(key.as_bytes());
            self.part(value.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
