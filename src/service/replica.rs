//! What this process is doing, for operators.

use tonic::{Request, Response, Status};

use super::BackendSlot;
use crate::clock::{Clock as _, SystemClock};
use crate::domain::Time;
use crate::proto::served::replica_service_server::ReplicaService;
use crate::proto::{answer, v1};

/// The replica service.
pub(super) struct Replica {
    slot: BackendSlot,
    started_at: Time,
}

impl Replica {
    pub(super) fn new(slot: BackendSlot) -> Self {
        Self { slot, started_at: SystemClock.now() }
    }
}

#[tonic::async_trait]
impl ReplicaService for Replica {
    async fn get_replica(&self, _: Request<v1::GetReplicaRequest>) -> Result<Response<v1::GetReplicaResponse>, Status> {
        let mut replica = v1::GetReplicaResponse {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: Some(answer::timestamp(self.started_at)),
            ..v1::GetReplicaResponse::default()
        };
        if let Some(backend) = self.slot.get() {
            let hub = backend.feed.hub();
            replica.store = backend.store.describe().location;
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
            replica.log_read_at = hub.as_of().map(answer::timestamp);
        }
        Ok(Response::new(replica))
    }
}
