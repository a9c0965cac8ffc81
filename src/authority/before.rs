//! What is done for a command before it is queued, since its commit would hold up others for it: the values of many keys are
//! masked, and the history of a run that is to be redacted is looked through. Both are done in turns of the caller's.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::yield_now;

use super::lists::Reached;
use super::{Authority, unreadable};
use crate::domain::sides::lifecycles;
use crate::domain::{Ask, Command, Declared, Event, LedgerEpoch, RedactedPath, Redaction, Revision, RunKey};
use crate::fairness::CallerKey;
use crate::store::PAGE_BYTES_MAX;
use crate::store::attached::Attached;
use crate::wire::problem::Problem;

/// Events that one turn looks at.
const PAGE_EVENTS_MAX: usize = 256;

/// The same of the first one, as long as nobody knows how large they are.
const FIRST_PAGE_EVENTS_MAX: usize = 16;

/// Looks that are remembered: whoever redacts the same run again and again has its history read once.
const LOOKS_MAX: usize = 64;

/// What was found by looks through histories.
#[derive(Debug, Default)]
pub struct Looks(Mutex<VecDeque<Look>>);

/// Nothing stands at these paths in a run's history, up to this revision: what was found once stays so, since events do
/// not change but by redactions.
#[derive(Debug)]
struct Look {
    key: RunKey,
    paths: Vec<RedactedPath>,
    epoch: LedgerEpoch,
    nothing_up_to: Revision,
}

impl Looks {
    fn nothing_up_to(&self, key: &RunKey, paths: &[RedactedPath], epoch: LedgerEpoch) -> Revision {
        let looks = self.0.lock();
        let found = looks.iter().find(|look| look.epoch == epoch && look.key == *key && look.paths == paths);
        found.map_or(Revision::NONE, |look| look.nothing_up_to)
    }

    fn note(&self, look: Look) {
        let mut looks = self.0.lock();
        looks.retain(|known| known.key != look.key || known.paths != look.paths);
        looks.push_back(look);
        if looks.len() > LOOKS_MAX {
            looks.pop_front();
        }
    }
}

impl Authority {
    /// Does for a command what can be done before it is queued. Answers with the turn in which it is to be committed, if
    /// such commands are committed in turns.
    pub(super) async fn before(&self, caller: CallerKey, command: &mut Command) -> Result<Option<Attached>, Problem> {
        if let Ask::Redact(redaction) = &command.ask {
            let redaction = redaction.clone();
            return Box::pin(self.before_redaction(caller, command, &redaction)).await.map(Some);
        }
        if command.brings_many_keys() {
            Box::pin(self.mask_many_keys(caller, command)).await?;
        }
        Ok(None)
    }

    async fn before_redaction(
        &self,
        caller: CallerKey,
        command: &mut Command,
        redaction: &Redaction,
    ) -> Result<Attached, Problem> {
        self.look_through(caller, command, redaction).await?;
        self.turns.redaction(caller).await
    }

    /// Masks the values by what the run is pinned to, in a turn of the caller's where that masks anything. Where it cannot be
    /// read, the commit does it, and says why not.
    async fn mask_many_keys(&self, caller: CallerKey, command: &mut Command) -> Result<(), Problem> {
        let Some(declared) = self.declared_for(caller, command).await.filter(|declared| !declared.masks.is_empty())
        else {
            return Ok(());
        };
        let ((), _turn) = self.turns.read(caller, |_reach| async { Ok(Reached::Whole(())) }).await?;
        command.mask_by(&declared);
        Ok(())
    }

    /// What the command's run is pinned to, or would be, where it can be read.
    async fn declared_for(&self, caller: CallerKey, command: &Command) -> Option<Arc<Declared>> {
        let found = self.reads.run(caller, &command.key).await.ok().flatten();
        let key = lifecycles::of(command, found.as_ref().map(|found| &found.run))?;
        self.store.declared(&key).await.ok().flatten()
    }

    /// Looks through a run's history for what a redaction takes out, up to the first event that has any of it: the commit
    /// need not read what comes before.
    async fn look_through(
        &self,
        caller: CallerKey,
        command: &mut Command,
        redaction: &Redaction,
    ) -> Result<(), Problem> {
        let (key, paths) = (command.key.clone(), &redaction.paths);
        let epoch = self.store.ledger().epoch;
        let mut after = self.looks.nothing_up_to(&key, paths, epoch);
        let mut events_max = FIRST_PAGE_EVENTS_MAX;
        loop {
            let asked = &key;
            let read = |_reach| async move {
                let page = self.store.run_events(asked, after, events_max, PAGE_BYTES_MAX).await;
                page.map(Reached::Whole).map_err(|error| unreadable("RedactRun", asked, &error))
            };
            let (page, _turn) = self.turns.read(caller, read).await?;
            let Some(last) = page.last() else { break };
            let first = page.iter().find(|event| redaction.takes_out_of(event));
            after = first.map_or(last.revision, |first| first.revision.before().unwrap_or(Revision::NONE));
            // Whoever gave up has not waited in vain: the next look goes on from here.
            self.looks.note(Look { key: key.clone(), paths: paths.clone(), epoch, nothing_up_to: after });
            if first.is_some() {
                break;
            }
            // What is stored compressed is longer than the store can count: it would read out more than the page has room for.
            let bytes: usize = page.iter().map(Event::weight).sum();
            events_max = (PAGE_BYTES_MAX * page.len() / bytes.max(1)).clamp(1, PAGE_EVENTS_MAX);
            yield_now().await;
        }
        command.looked_through(epoch, after);
        Ok(())
    }
}
