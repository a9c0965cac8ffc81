//! Claims that are asked for again: the claimer's own request was answered before, and is answered with the same runs.

use std::time::Duration;

use tokio::time::timeout_at;

use super::grant::{Grant, Granted, IfUnreceived, ToGiveBack};
use super::more::numbered;
use super::{Claim, Claims, Failure};
use crate::domain::sides::claims;
use crate::domain::{Claimed, Refusal, Request, RunKey};
use crate::engine;
use crate::store::query::Reach;
use crate::store::{FoundRun, StoreError};

/// The time for which claims are kept, so that a claimer may ask again.
const KEPT: Duration = Duration::from_hours(1);

/// The answer where runs were claimed before, and are not told.
const UNKNOWN: Failure = Failure::Engine(engine::Failure::OutcomeUnknown);

/// A claim that is kept, and the guard that gives it back if the claimer goes before the answer.
type Guarded = (Claimed, IfUnreceived);

impl Claims {
    /// The runs that the claimer's own request was answered with, if it was: those that are the claimer's still.
    pub(super) async fn replay(&self, claim: &Claim) -> Result<Option<Granted>, Failure> {
        let Some(request) = &claim.request else { return Ok(None) };
        let mut requests = vec![request.clone()];
        requests.extend((1..claim.max_runs).map(|number| numbered(request, number)));
        self.granted_again(claim, &requests).await
    }

    /// The same, for a claimer that looks again while it waits: only where its first run was claimed.
    pub(super) async fn replay_if_begun(&self, claim: &Claim) -> Result<Option<Granted>, Failure> {
        let Some(request) = &claim.request else { return Ok(None) };
        let found = self.upkeep.claimed(&claim.namespace, std::slice::from_ref(&request.id)).await;
        match found.map_err(Failure::Store)?.into_iter().flatten().next() {
            Some(_) => self.replay(claim).await,
            None => Ok(None),
        }
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
        let found = self.upkeep.claimed(&claim.namespace, std::slice::from_ref(&request.id)).await;
        let found = found.map_err(Failure::Store)?.into_iter().flatten().next();
        // One of another caller is none of this one's.
        let Some(found) = found.filter(|found| found.digest == request.digest) else { return Ok(None) };
        let run = self.runs.run(&found.key).await.map_err(Failure::Store)?;
        let grantee = run.as_ref().and_then(|run| run.supervision.grantee.as_deref());
        if grantee.is_some_and(|grantee| grantee.identity.as_ref() != Some(identity)) {
            return Ok(None);
        }
        self.granted_again(claim, &[request]).await
    }

    async fn granted_again(&self, claim: &Claim, requests: &[Request]) -> Result<Option<Granted>, Failure> {
        let mut grants = self.held(claim, requests).await?.into_iter();
        let Some(first) = grants.next() else { return Ok(None) };
        Ok(Some(Granted { first, more: grants.collect(), replayed: true }))
    }

    /// The runs that these requests of the claimer were answered with, in the order of the requests: those that are the
    /// claimer's still. What the answer has no room for is given back.
    ///
    /// # Errors
    ///
    /// There were some, and none is the claimer's any more; or they cannot be read.
    pub(super) async fn held(&self, claim: &Claim, requests: &[Request]) -> Result<Vec<Grant>, Failure> {
        let to_give_back = ToGiveBack::new(&self.engine);
        if to_give_back.is_closed() {
            return Err(Failure::Draining);
        }
        let ids: Vec<String> = requests.iter().map(|request| request.id.clone()).collect();
        let found = self.upkeep.claimed(&claim.namespace, &ids).await.map_err(Failure::Store)?;
        let (mut asked, mut guards) = (Vec::new(), Vec::new());
        for (request, found) in requests.iter().zip(found) {
            let Some(found) = found else { continue };
            if found.digest != request.digest {
                let (key, request_id) = (found.key, claims::sent_id(&request.id).to_owned());
                return Err(Failure::Refused(Box::new(Refusal::RequestIdReused { key, request_id })));
            }
            asked.push(request);
            // A claimer that goes from here on has perhaps been noted as one that is answered.
            let noted = Claimed { replays: found.replays + 1, ..found };
            guards.push(to_give_back.replayed(&noted, request, claim.lease_ttl_ms));
        }
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        // A call that has many rows written takes its turn with those that read many.
        let _turn = match requests.len() {
            ..=1 => None,
            // The runs were claimed: "nothing was written" would be false.
            _ => Some(self.turn(claim, Reach::Short).await.map_err(|_| UNKNOWN)?),
        };
        let noted = async {
            let noted = self.note_answered(claim, &asked, &to_give_back, &mut guards).await?;
            let keys: Vec<RunKey> = noted.iter().map(|(claimed, _)| claimed.key.clone()).collect();
            let runs = if keys.is_empty() { Vec::new() } else { self.runs.runs(&keys, claim.bytes_max).await? };
            Ok::<_, StoreError>((noted, runs))
        };
        let noted = match claim.deadline {
            Some(deadline) => timeout_at(deadline, noted).await.ok(),
            None => Some(noted.await),
        };
        let Some(Ok((noted, runs))) = noted else { return Err(UNKNOWN) };
        let (mut grants, mut lost) = (Vec::with_capacity(noted.len()), None);
        for ((claimed, if_unreceived), found) in noted.into_iter().zip(runs) {
            let run = match found {
                FoundRun::Run(read) => Some(read.run),
                FoundRun::Nothing => None,
                FoundRun::Left => continue,
            };
            match (claims::still_held(&claimed, run.as_ref()), run) {
                (Ok(()), Some(run)) => grants.push(Grant::new(run.into(), if_unreceived)),
                (Ok(()), None) => {}
                (Err(refusal), _) => {
                    if_unreceived.receive();
                    lost.get_or_insert(refusal);
                }
            }
        }
        match lost.filter(|_| grants.is_empty()) {
            Some(refusal) => Err(Failure::Refused(Box::new(refusal))),
            None => Ok(grants),
        }
    }

    /// Notes that the claimer is answered once more, and takes over from the guards of what was found. Given back in
    /// between, a run is claimed anew: it is left out.
    async fn note_answered(
        &self,
        claim: &Claim,
        asked: &[&Request],
        to_give_back: &ToGiveBack,
        guards: &mut Vec<IfUnreceived>,
    ) -> Result<Vec<Guarded>, StoreError> {
        let ids: Vec<String> = asked.iter().map(|request| request.id.clone()).collect();
        let noted = self.upkeep.replay_claims(&claim.namespace, &ids).await?;
        guards.drain(..).for_each(IfUnreceived::receive);
        let guarded = noted.into_iter().zip(asked).filter_map(|(claimed, request)| {
            let claimed = claimed?;
            let guard = to_give_back.replayed(&claimed, request, claim.lease_ttl_ms);
            Some((claimed, guard))
        });
        Ok(guarded.collect())
    }
}
