//! Attempts: a run whose starter says so is begun anew where an attempt at it fails.
//!
//! Where attempts are left, a failure that the run's holder reports, and the end of its lease, do not end the run: it stays
//! RUNNING and is ready, and the next claim begins the next attempt under an epoch of its own. Without attempts left it ends as
//! every run does. A run that may be attempted once, without a bound on its time, has no attempts.

use serde::{Deserialize, Serialize};

use super::redaction::Redaction;
use super::texts;
use crate::domain::{LeaseEpoch, Principal, Time};

/// The attempts at a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attempts {
    /// How many there may be.
    pub max: u32,
    /// How long one of them may be RUNNING and not at rest, in milliseconds; none: without a bound of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How many have failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u32,
    /// The last one has failed, and the next has not begun: nobody executes the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// When the attempt began that comes after a failed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<AttemptBegin>,
    /// The owner that the run had before its first claim made the claimer the owner; empty: none. Each attempt is that one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The failure of the last attempt that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Box<AttemptFailure>>,
}

/// The beginning of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttemptBegin {
    /// Its time.
    pub at: Time,
    /// For how long the run had been at rest by then, in microseconds.
    pub rested_micros: i64,
}

/// The failure of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttemptFailure {
    /// Which attempt failed, from 1.
    pub attempt: u32,
    /// Its time.
    pub at: Time,
    /// The caller that reported it, or the authority.
    pub by: Principal,
    /// The epoch of the lease under which the attempt was made; [`LeaseEpoch::NONE`]: without one.
    pub lease_epoch: LeaseEpoch,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The reason, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<String>,
    /// The authority concluded it from silence: the worker may know better.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub presumed: bool,
}

/// The change of a run's attempts by an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttemptsChange {
    /// Set at creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Set at creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The attempt that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<AttemptFailure>,
    /// The attempt after a failed one that begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<AttemptBegin>,
    /// See [`Attempts::owner`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Attempts {
    /// The attempt that is under way, or the next one, from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.failed.saturating_add(1).min(self.max)
    }

    /// Whether another attempt may follow the one that is under way.
    #[must_use]
    pub fn are_left(&self) -> bool {
        self.failed.saturating_add(1) < self.max
    }

    pub(in crate::domain) fn fold(attempts: &mut Option<Box<Self>>, change: &AttemptsChange) {
        let AttemptsChange { max, timeout_ms, failure, began, owner } = change;
        let blank =
            || Self { max: 1, timeout_ms: None, failed: 0, waits: false, began: None, owner: None, last_failure: None };
        let attempts = attempts.get_or_insert_with(|| Box::new(blank()));
        attempts.max = max.unwrap_or(attempts.max);
        attempts.timeout_ms = timeout_ms.or(attempts.timeout_ms);
        if let Some(failure) = failure {
            (attempts.failed, attempts.waits) = (failure.attempt, true);
            attempts.last_failure = Some(Box::new(failure.clone()));
        }
        if began.is_some() {
            (attempts.began, attempts.waits) = (*began, false);
        }
        if owner.is_some() {
            attempts.owner.clone_from(owner);
        }
    }

    /// What a later start says of the attempts, beside what was settled at the run's creation.
    pub(in crate::domain) fn beside(
        all: Option<&Self>,
        max: Option<u32>,
        timeout_ms: Option<u64>,
    ) -> [(&'static str, Option<String>, Option<String>); 2] {
        let milliseconds = |timeout: u64| format!("{timeout}ms");
        [
            ("max_attempts", max.map(|max| max.to_string()), Some(all.map_or(1, |all| all.max).to_string())),
            ("attempt_timeout", timeout_ms.map(milliseconds), all.and_then(|all| all.timeout_ms).map(milliseconds)),
        ]
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { max: _, timeout_ms: _, failed: _, waits: _, began: _, owner, last_failure } = self;
        size_of::<Self>() + texts::weight([owner]) + last_failure.as_ref().map_or(0, |failure| failure.weight())
    }

    pub(in crate::domain) fn take_out(&mut self, redaction: &Redaction) -> u64 {
        let Self { max: _, timeout_ms: _, failed: _, waits: _, began: _, owner: _, last_failure } = self;
        last_failure.as_mut().map_or(0, |failure| failure.take_out(redaction))
    }
}

impl AttemptFailure {
    fn weight(&self) -> usize {
        let Self { attempt: _, at: _, by: _, lease_epoch: _, failure_reason, reason_code, presumed: _ } = self;
        size_of::<Self>() + texts::weight([failure_reason, reason_code])
    }

    fn take_out(&mut self, redaction: &Redaction) -> u64 {
        let Self { attempt: _, at: _, by: _, lease_epoch: _, failure_reason, reason_code: _, presumed: _ } = self;
        redaction.of_reason(failure_reason)
    }
}

impl AttemptsChange {
    /// The change in a box; none where it changes nothing.
    pub(in crate::domain) fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let Self { max: _, timeout_ms: _, failure, began: _, owner } = self;
        size_of::<Self>() + texts::weight([owner]) + failure.as_ref().map_or(0, AttemptFailure::weight)
    }

    pub(in crate::domain) fn take_out(&mut self, redaction: &Redaction) -> u64 {
        let Self { max: _, timeout_ms: _, failure, began: _, owner: _ } = self;
        failure.as_mut().map_or(0, |failure| failure.take_out(redaction))
    }
}
