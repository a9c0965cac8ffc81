//! The replica service: the state of this process, for operators.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::transport::{Context, Totals};
use crate::authority::{Authority, AuthoritySlot};
use crate::clock::{Clock as _, SystemClock};
use crate::domain::Time;
use crate::memory::MemoryUse;
use crate::wire::scalars;
use crate::wire::served::replica_service_server::ReplicaService;
use runledger_proto::v1;

/// The replica service.
pub(super) struct Replica {
    slot: AuthoritySlot,
    totals: Arc<Totals>,
    started_at: Time,
}

impl Replica {
    pub(super) fn new(slot: AuthoritySlot, totals: Arc<Totals>) -> Self {
        Self { slot, totals, started_at: SystemClock.now() }
    }
}

#[tonic::async_trait]
impl ReplicaService for Replica {
    async fn get_replica(
        &self,
        request: Request<v1::GetReplicaRequest>,
    ) -> Result<Response<v1::GetReplicaResponse>, Status> {
        let is_local = request.extensions().get::<Context>().is_some_and(|context| context.peer.is_local());
        let mut replica = v1::GetReplicaResponse {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: Some(scalars::timestamp(self.started_at)),
            connections: self.totals.connections() as u64,
            request_bytes: self.totals.request_bytes() as u64,
            unsent_bytes: self.totals.unsent_bytes() as u64,
            calls: self.totals.calls() as u64,
            refused_calls: self.totals.refused(),
            memory_limit_bytes: self.totals.memory().limit().unwrap_or(0),
            ..v1::GetReplicaResponse::default()
        };
        if let Some(backend) = self.slot.get() {
            let hub = backend.feed.hub();
            let store = backend.store.describe();
            // A path or a host is nobody's business on another machine.
            replica.store = if is_local { store.location } else { store.kind.to_owned() };
            replica.queues = (0..)
                .zip(backend.engine.unanswered())
                .map(|(shard, unanswered)| v1::ShardQueue {
                    shard,
                    commands: unanswered.commands as u64,
                    oldest: unanswered.oldest.and_then(|oldest| oldest.try_into().ok()),
                })
                .collect();
            replica.watched_runs = hub.watched_runs() as u64;
            replica.watches_of_one_run = hub.watches_of_one_run() as u64;
            replica.watches_of_many_runs = hub.watches_of_many_runs() as u64;
            replica.recent_changes_bytes = hub.recent_changes_bytes() as u64;
            replica.log_read_at = hub.as_of().map(scalars::timestamp);
            let health = backend.engine.commit_health();
            if let Some((reason, lasts)) = health.fault() {
                replica.not_serving_because = reason;
                replica.not_serving_for = lasts.try_into().ok();
            }
            let clocks = backend.store.clocks();
            replica.clock_steps = clocks.steps.into_iter().map(v1::ClockStep::from).collect();
            replica.machine_clock_ahead = Some(scalars::span(clocks.server_ahead_micros.unwrap_or(0)));
            replica.since_last_commit = health.since_last_write().and_then(|since| since.try_into().ok());
        }
        let mut parts = memory_parts(&self.totals, self.slot.get());
        // Asked for after the parts, which may have grown since: and what was asked of the allocator and never touched is
        // in no memory. No part is more than the whole.
        replica.resident_bytes = self.totals.memory().resident();
        let whole = usize::try_from(replica.resident_bytes).ok().filter(|whole| *whole > 0);
        for part in &mut parts {
            part.bytes = whole.map_or(part.bytes, |whole| part.bytes.min(whole));
        }
        parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        replica.memory = parts.into_iter().map(shown).collect();
        Ok(Response::new(replica))
    }
}

/// What each part of the process takes.
#[must_use]
pub fn memory_parts(totals: &Totals, authority: Option<&Authority>) -> Vec<MemoryUse> {
    let mut parts = vec![totals.memory().base()];
    parts.extend(totals.parts());
    parts.extend(authority.map(Authority::memory).into_iter().flatten());
    parts.extend(totals.memory().beside(&parts));
    parts
}

fn shown(MemoryUse { name, bytes, bytes_max }: MemoryUse) -> v1::MemoryPart {
    v1::MemoryPart { name: name.to_owned(), bytes: bytes as u64, bytes_max: bytes_max.unwrap_or(0) as u64 }
}
