//! A run's history, a page at a time.

use prost::Message as _;

use super::lists::{Reached, YieldEvery};
use super::{ANSWER_BYTES_MAX, Authority, Call, kept, run_not_found, unreadable};
use crate::domain::Revision;
use crate::store::RunAsKept;
use crate::store::query::Reach;
use crate::telemetry::traces;
use crate::wire::from_domain::IntoMessage as _;
use crate::wire::problem::{self, Problem};
use crate::wire::{page_token, query};
use runledger_proto::v1;

impl Authority {
    /// Answers a `ListRunEvents`.
    ///
    /// # Errors
    ///
    /// The run is not there, its history cannot be read, or the page token is not one of its own.
    pub async fn list_run_events(
        &self,
        call: Call<v1::ListRunEventsRequest>,
    ) -> Result<v1::ListRunEventsResponse, Problem> {
        let (key, page_size) = query::list_run_events(&call.message, &call.caller).map_err(problem::invalid)?;
        traces::current_run(&key.namespace, &key.run_id);
        let epoch = self.store.ledger().epoch;
        let after = match call.message.page_token.as_str() {
            "" => Revision::NONE,
            token => page_token::revision(token, &self.seals, epoch, &key).map_err(problem::page_token_invalid)?,
        };
        let unreadable = |error| unreadable("ListRunEvents", &key, &error);
        // The run is read first: a run that is found has its first event, whatever is committed in between.
        let Some(RunAsKept { run, .. }) = self.reads.run(call.key, &key).await.map_err(unreadable)? else {
            return Err(run_not_found(key));
        };
        kept(&run)?;
        let (run_key, caller) = (&key, call.key);
        let read = |reach: Reach| async move {
            let bytes_max = reach.page_bytes_max();
            let page = self.store.run_events(run_key, after, page_size, bytes_max).await.map_err(unreadable)?;
            if after > Revision::NONE && self.store.ledger().epoch != epoch {
                // The caller's pages may be of another past than this page.
                return Err(problem::page_token_invalid(page_token::PageTokenInvalid));
            }
            if page.is_empty() && after < run.revision {
                // The run was purged since it was read.
                let now = self.reads.run(caller, run_key).await.map_err(unreadable)?;
                now.map_or(Ok(()), |now| kept(&now.run))?;
            }
            let is_whole = page.len() >= page_size || page.last().is_none_or(|last| last.revision >= run.revision);
            Ok(if is_whole { Reached::Whole(page) } else { Reached::Part(page) })
        };
        let (page, _turn) = self.turns.read(call.key, read).await?;
        let (mut bytes, mut yielding) = (0, YieldEvery::default());
        let mut events: Vec<v1::RunEvent> = Vec::with_capacity(page.len());
        for event in &page {
            let event: v1::RunEvent = event.into_message();
            let encoded = event.encoded_len();
            yielding.made(encoded).await;
            bytes += encoded;
            if bytes > ANSWER_BYTES_MAX && !events.is_empty() {
                break;
            }
            events.push(event);
        }
        let next_page_token = match page[..events.len()].last() {
            Some(last) if last.revision < run.revision => {
                page_token::after_revision(last.revision, &self.seals, epoch, &key)
            }
            Some(_) | None => String::new(),
        };
        Ok(v1::ListRunEventsResponse { events, next_page_token })
    }
}
