//! Claims that are asked for again: the claimer's own request was answered before, and is answered with the same run.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;

use super::more::numbered;
use super::{Claim, Claims, Failure, Granted};
use crate::domain::sides::claims;
use crate::domain::{Lease, Refusal, Request};
use crate::engine::{self, Unreceived};
use crate::store::StoreError;

/// The time for which claims are kept, so that a claimer may ask again.
const KEPT: Duration = Duration::from_hours(1);

impl Claims {
    /// The run that the claimer's own request was answered with, if it was.
    pub(super) async fn replay(&self, claim: &Claim) -> Result<Option<Granted>, Failure> {
        let Some(request) = &claim.request else { return Ok(None) };
        let Some(mut granted) = self.replay_of(claim, request).await? else { return Ok(None) };
        for number in 1..claim.max_runs {
            let Some(request) = numbered(Some(request), number) else { break };
            match self.replay_of(claim, &request).await {
                Ok(Some(Granted { run, .. })) => granted.more.push(self.granted_before(run)),
                // There were fewer, or this one is the claimer's no more.
                Ok(None) | Err(Failure::Refused(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(Some(granted))
    }

    /// The same, of a claim that an older release has kept by the id alone: only a process that has just begun looks for
    /// one, while such a claim may still be asked for again.
    pub(super) async fn replay_older(&self, claim: &Claim) -> Result<Option<Granted>, Failure> {
        let Some((request, identity)) = claim.request.as_ref().zip(claim.principal.identity.as_ref()) else {
            return Ok(None);
        };
        if self.began.elapsed() > KEPT {
            return Ok(None);
        }
        let request = Request { id: claims::sent_id(&request.id).to_owned(), digest: request.digest };
        let found = self.upkeep.claimed(&claim.namespace, &request.id).await.map_err(Failure::Store)?;
        // One of another caller is none of this one's.
        let Some(found) = found.filter(|found| found.digest == request.digest) else { return Ok(None) };
        let run = self.runs.run(&found.key).await.map_err(Failure::Store)?;
        let grantee = run.as_ref().and_then(|run| run.supervision.grantee.as_deref());
        if grantee.is_some_and(|grantee| grantee.identity.as_ref() != Some(identity)) {
            return Ok(None);
        }
        self.replay_of(claim, &request).await
    }

    async fn replay_of(&self, claim: &Claim, request: &Request) -> Result<Option<Granted>, Failure> {
        let found = self.upkeep.claimed(&claim.namespace, &request.id).await.map_err(Failure::Store)?;
        let Some(found) = found else { return Ok(None) };
        if found.digest != request.digest {
            let (key, request_id) = (found.key, claims::sent_id(&request.id).to_owned());
            return Err(Failure::Refused(Box::new(Refusal::RequestIdReused { key, request_id })));
        }
        let lease = Lease { epoch: found.epoch, ttl_ms: claim.lease_ttl_ms, released: false, resting: false };
        // A claimer that goes from here on has perhaps been noted as one that is answered.
        let (key, replays) = (found.key, found.replays + 1);
        let answer = Unreceived { key, lease, request: Some(request.clone()), replays, revision: None };
        let mut undelivered = self.gives_back(Some(answer));
        let noted = async {
            let Some(claimed) = self.upkeep.replay_claim(&claim.namespace, &request.id).await? else { return Ok(None) };
            if let Some(answer) = &mut undelivered.claim {
                answer.replays = claimed.replays;
            }
            let run = self.runs.run(&claimed.key).await?;
            Ok::<_, StoreError>(Some((claimed, run)))
        };
        let noted = match claim.deadline {
            Some(deadline) => timeout_at(deadline, noted).await.ok(),
            None => Some(noted.await),
        };
        // The run was claimed: "nothing was written" would be false.
        let Some(Ok(noted)) = noted else { return Err(Failure::Engine(engine::Failure::OutcomeUnknown)) };
        undelivered.receive();
        // Given back in between, the run is claimed anew.
        let Some((claimed, run)) = noted else { return Ok(None) };
        claims::still_held(&claimed, run.as_ref()).map_err(|refusal| Failure::Refused(Box::new(refusal)))?;
        Ok(run.map(|run| Granted { run: Arc::new(run), more: Vec::new(), replayed: true }))
    }
}
