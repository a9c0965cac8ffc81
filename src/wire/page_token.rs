//! The tokens that lead from one page to the next. Opaque to clients, and sealed: a token opens for its ledger, its
//! namespace and the question that it pages over alone: a run's history in one past of the ledger, a list of runs with
//! its filter, the namespaces, or the lifecycles or the versions of one.

use super::seal::{Binding, OVERHEAD_MAX, Opened, Purpose, Seals, text_bytes};
use crate::domain::limits::RUN_ID_BYTES_MAX;
use crate::domain::{Filter, LedgerEpoch, Revision, Route, RunKey, Time};
use crate::store::query::Place;

/// A longer text is no token. The end of a page is a time and a run, or a revision.
pub const PAGE_TOKEN_BYTES_MAX: usize = text_bytes(OVERHEAD_MAX + size_of::<i64>() + RUN_ID_BYTES_MAX);

/// The refusal of a token: one answer for noise, and for a token of another ledger, run or filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the page token is not one that was given out for this question")]
pub struct PageTokenInvalid;

/// The question that a token pages over.
#[derive(Clone, Copy, Debug)]
enum Pages<'a> {
    /// A run's history, in a past of the ledger that has this epoch.
    Events(&'a RunKey, LedgerEpoch),
    /// The runs of a namespace that match a filter. The end of such a page is a time and a run, which name a place in
    /// any past.
    Runs(&'a str, &'a Filter),
    /// The namespaces. The end of such a page is a name, as it is in any past.
    Namespaces,
    /// The lifecycles of a namespace, by name; or the versions of the one that is named.
    Lifecycles(&'a str, Option<&'a str>),
}

/// The token for the events of a run after a revision.
#[must_use]
pub fn after_revision(revision: Revision, seals: &Seals, epoch: LedgerEpoch, key: &RunKey) -> String {
    encode(&revision.get().to_be_bytes(), seals, Pages::Events(key, epoch))
}

/// The revision that a token stands at.
///
/// # Errors
///
/// The token was not given out by this ledger, in this epoch, for this run.
pub fn revision(token: &str, seals: &Seals, epoch: LedgerEpoch, key: &RunKey) -> Result<Revision, PageTokenInvalid> {
    let end = decode(token, seals, Pages::Events(key, epoch))?;
    end.try_into().map(|end| u64::from_be_bytes(end).into()).map_err(|_| PageTokenInvalid)
}

/// The token for the runs of a list behind a place.
#[must_use]
pub fn after_place(place: &Place, seals: &Seals, namespace: &str, filter: &Filter) -> String {
    let end = [&place.started_at.micros().to_be_bytes(), place.run_id.as_bytes()].concat();
    encode(&end, seals, Pages::Runs(namespace, filter))
}

/// The place that a token stands at.
///
/// # Errors
///
/// The token was not given out by this ledger for this filter in this namespace.
pub fn place(token: &str, seals: &Seals, namespace: &str, filter: &Filter) -> Result<Place, PageTokenInvalid> {
    let end = decode(token, seals, Pages::Runs(namespace, filter))?;
    let (micros, run_id) = end.split_first_chunk().ok_or(PageTokenInvalid)?;
    let run_id = std::str::from_utf8(run_id).map_err(|_| PageTokenInvalid)?;
    Ok(Place { started_at: Time::from_micros(i64::from_be_bytes(*micros)), run_id: run_id.into() })
}

/// The token for the namespaces after a name.
#[must_use]
pub fn after_namespace(name: &str, seals: &Seals) -> String {
    encode(name.as_bytes(), seals, Pages::Namespaces)
}

/// The name after which a page of namespaces begins; empty for the first.
///
/// # Errors
///
/// The token was not given out by this ledger for its namespaces.
pub fn namespace(token: &str, seals: &Seals) -> Result<String, PageTokenInvalid> {
    name(token, seals, Pages::Namespaces)
}

/// The token for the lifecycles of a namespace after a name.
#[must_use]
pub fn after_lifecycle(name: &str, seals: &Seals, namespace: &str) -> String {
    encode(name.as_bytes(), seals, Pages::Lifecycles(namespace, None))
}

/// The name after which a page of lifecycles begins; empty for the first.
///
/// # Errors
///
/// The token was not given out by this ledger for the lifecycles of this namespace.
pub fn lifecycle(token: &str, seals: &Seals, namespace: &str) -> Result<String, PageTokenInvalid> {
    name(token, seals, Pages::Lifecycles(namespace, None))
}

/// The token for the versions of a lifecycle below one.
#[must_use]
pub fn below_version(version: u32, seals: &Seals, namespace: &str, lifecycle: &str) -> String {
    encode(&version.to_be_bytes(), seals, Pages::Lifecycles(namespace, Some(lifecycle)))
}

/// The version below which a page of versions begins; the first page's is the highest.
///
/// # Errors
///
/// The token was not given out by this ledger for the versions of this lifecycle.
pub fn version(token: &str, seals: &Seals, namespace: &str, lifecycle: &str) -> Result<u32, PageTokenInvalid> {
    if token.is_empty() {
        return Ok(u32::MAX);
    }
    let end = decode(token, seals, Pages::Lifecycles(namespace, Some(lifecycle)))?;
    end.try_into().map(u32::from_be_bytes).map_err(|_| PageTokenInvalid)
}

fn name(token: &str, seals: &Seals, pages: Pages<'_>) -> Result<String, PageTokenInvalid> {
    if token.is_empty() {
        return Ok(String::new());
    }
    String::from_utf8(decode(token, seals, pages)?).map_err(|_| PageTokenInvalid)
}

fn encode(end: &[u8], seals: &Seals, pages: Pages<'_>) -> String {
    let question = pages.question();
    seals.seal(&pages.binding(&question), pages.epoch(), end.len(), |bytes| bytes.extend_from_slice(end))
}

/// The end of a token's page. The base64 engine refuses a second spelling of a token.
fn decode(token: &str, seals: &Seals, pages: Pages<'_>) -> Result<Vec<u8>, PageTokenInvalid> {
    if token.len() > PAGE_TOKEN_BYTES_MAX {
        return Err(PageTokenInvalid);
    }
    let question = pages.question();
    match seals.open(&pages.binding(&question), token) {
        Some(Opened { epoch, content }) if epoch == pages.epoch() => Ok(content),
        Some(_) | None => Err(PageTokenInvalid),
    }
}

impl Pages<'_> {
    fn binding<'a>(&'a self, question: &'a [u8]) -> Binding<'a> {
        let (purpose, namespace) = match self {
            Self::Events(key, _) => (Purpose::Events, &*key.namespace),
            Self::Runs(namespace, _) => (Purpose::Runs, *namespace),
            // They are the ledger's.
            Self::Namespaces => (Purpose::Namespaces, ""),
            Self::Lifecycles(namespace, _) => (Purpose::Lifecycles, *namespace),
        };
        Binding { purpose, namespace, question }
    }

    /// The epoch that the token is bound to. A list's is bound to none, and has the first.
    fn epoch(&self) -> LedgerEpoch {
        match self {
            Self::Events(_, epoch) => *epoch,
            Self::Runs(..) | Self::Namespaces | Self::Lifecycles(..) => LedgerEpoch::FIRST,
        }
    }

    /// Two filters that mean the same are one question: the domain keeps statuses and labels in order.
    fn question(&self) -> Vec<u8> {
        let mut question = Question(Vec::new());
        match self {
            Self::Events(key, _) => question.part(key.run_id.as_bytes()),
            Self::Runs(_, filter) => question.filter(filter),
            Self::Namespaces => {}
            Self::Lifecycles(_, name) => question.optional(name.map(str::as_bytes)),
        }
        question.0
    }
}

/// The bytes of a question. Each part has its length in front, so that no two lists of parts are the same bytes.
struct Question(Vec<u8>);

impl Question {
    fn part(&mut self, part: &[u8]) {
        self.0.extend((part.len() as u64).to_be_bytes());
        self.0.extend_from_slice(part);
    }

    /// A part that may be absent: an empty one is not the same.
    fn optional(&mut self, part: Option<&[u8]>) {
        self.0.push(u8::from(part.is_some()));
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
            parent_run_id,
            continues_run_id,
            phase,
            lifecycle,
            labels,
            started_from,
            started_before,
            archived,
            suspended,
            ready,
            suspension_kind,
            priority: _,
            or: _,
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
        // A list leaves archived runs out unless it is asked for them, as one did before there were any.
        if *archived != Some(false) {
            self.optional(archived.map(|archived| [u8::from(archived)]).as_ref().map(<[u8; 1]>::as_slice));
        }
        let ids = [parent_run_id, continues_run_id].map(Option::as_deref);
        let [parent, continued] = ids;
        let stands = [phase, lifecycle, suspension_kind].map(Option::as_deref);
        let [phase, lifecycle, kind] = stands;
        let [suspended, ready] = [suspended, ready].map(|flag| flag.map(|flag| if flag { "true" } else { "false" }));
        for (name, run_id) in [
            ("parent", parent),
            ("continues", continued),
            ("phase", phase),
            ("lifecycle", lifecycle),
            ("suspended", suspended),
            ("ready", ready),
            ("suspension_kind", kind),
        ] {
            if let Some(run_id) = run_id {
                // No label's key is empty: a label of this name is another filter.
                self.part(b"");
                self.part(name.as_bytes());
                self.part(run_id.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests;
