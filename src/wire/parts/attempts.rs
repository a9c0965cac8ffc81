//! The attempts at a run.

use crate::domain::limits::ATTEMPTS_MAX;
use crate::domain::{AttemptFailure, Attempts, AttemptsChange, Run};
use crate::wire::from_domain::{FromDomain, IntoMessage};
use crate::wire::scalars::{duration, text, timestamp};
use crate::wire::validate::Violations;
use runledger_proto::v1;

impl Violations {
    /// A number of attempts; 0: as the lifecycle says it.
    pub(in crate::wire) fn max_attempts(&mut self, number: u32) -> Option<u32> {
        if number > ATTEMPTS_MAX {
            self.push("max_attempts", format!("must be 1 to {ATTEMPTS_MAX}"));
        }
        Some(number).filter(|number| *number > 0)
    }
}

impl FromDomain<&AttemptFailure> for v1::AttemptFailure {
    fn from_domain(failure: &AttemptFailure) -> Self {
        let AttemptFailure { attempt, at, by, lease_epoch, failure_reason, reason_code, presumed } = failure;
        Self {
            attempt: *attempt,
            at: Some(timestamp(*at)),
            by: Some(by.into_message()),
            lease_epoch: (*lease_epoch).into(),
            failure_reason: text(failure_reason.as_ref()),
            reason_code: text(reason_code.as_ref()),
            presumed: *presumed,
        }
    }
}

pub(in crate::wire) fn show(run: &Run, shown: &mut v1::Run) {
    let Some(attempts) = run.refinements.as_ref().and_then(|all| all.attempts.as_deref()) else { return };
    // When one began shows its deadline, and whose the run was shows its owner.
    let Attempts { max, timeout_ms, failed, waits, began: _, owner: _, last_failure } = attempts;
    // What ended between two attempts ended without the later one.
    let ended_between = *waits && run.status.is_terminal();
    (shown.attempt, shown.max_attempts) = (if ended_between { *failed } else { attempts.number() }, *max);
    shown.attempt_timeout = timeout_ms.map(duration);
    shown.attempt_deadline = run.attempt_deadline().map(timestamp);
    shown.last_failure = last_failure.as_deref().map(|failure| Box::new(failure.into_message()));
}

pub(in crate::wire) fn show_change(change: Option<&AttemptsChange>, shown: &mut v1::RunChanges) {
    let Some(AttemptsChange { max, timeout_ms, failure, began: _, owner: _ }) = change else { return };
    shown.max_attempts = *max;
    shown.attempt_timeout = timeout_ms.map(duration);
    shown.attempt_failure = failure.as_ref().map(|failure| Box::new(failure.into_message()));
}

#[cfg(test)]
pub(in crate::wire) mod tests {
    use super::*;
    use crate::domain::{AttemptBegin, Principal, Time};

    /// Attempts that have something in every field.
    pub(in crate::wire) fn whole() -> Attempts {
        let failure = AttemptFailure {
            attempt: 1,
            at: Time::from_micros(13),
            by: Principal::authority(),
            lease_epoch: 2.into(),
            failure_reason: Some("it was not renewed".into()),
            reason_code: Some("ORPHANED".into()),
            presumed: true,
        };
        Attempts {
            max: 4,
            timeout_ms: Some(2_500),
            failed: 1,
            waits: false,
            began: Some(AttemptBegin { at: Time::from_micros(14), rested_micros: 15 }),
            owner: Some("agent-1".into()),
            last_failure: Some(Box::new(failure)),
        }
    }

    /// Its failure as it is shown.
    pub(in crate::wire) fn shown() -> v1::AttemptFailure {
        v1::AttemptFailure {
            attempt: 1,
            at: Some(timestamp(Time::from_micros(13))),
            by: Some((&Principal::authority()).into_message()),
            lease_epoch: 2,
            failure_reason: "it was not renewed".into(),
            reason_code: "ORPHANED".into(),
            presumed: true,
        }
    }
}
