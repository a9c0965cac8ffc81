//! Values in words for people. Times are RFC 3339, or ages where a terminal shows how things are.

use super::time::time;
use crate::domain::Time;
use runledger_proto::{Timestamp, v1};

const DAY_MICROS: i64 = 86_400_000_000;

/// The form in which a time is shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Times {
    /// To the microsecond, as programs have it.
    Whole,
    /// As an age.
    Ages(Time),
    /// By the clock, as far as it is of the last day: a line that stays on a terminal says when it was.
    Clock(Time),
}

/// A time; nothing where there is none.
pub(super) fn moment(at: Option<Time>, times: Times) -> String {
    match (at, times) {
        (None, _) => String::new(),
        (Some(at), Times::Whole) => at.to_string(),
        (Some(at), Times::Ages(now)) => age(at, now),
        (Some(at), Times::Clock(now)) if now.micros() - at.micros() < DAY_MICROS => clock(at),
        (Some(at), Times::Clock(now)) => format!("{} ago", age(at, now)),
    }
}

/// The same of a message, to the microsecond.
pub(super) fn at(timestamp: Option<&Timestamp>) -> String {
    moment(time(timestamp), Times::Whole)
}

/// Such as `, until 2026-11-28T10:00:00.000000Z`; nothing where there is no such time.
pub(super) fn until(timestamp: Option<&Timestamp>) -> String {
    time(timestamp).map(|at| format!(", until {at}")).unwrap_or_default()
}

/// Such as `10:00:00Z`.
fn clock(at: Time) -> String {
    let seconds = at.micros().div_euclid(1_000_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// The age of a time, in its two largest units. The authority's clock and this one may differ a little.
fn age(at: Time, now: Time) -> String {
    let seconds = now.micros().saturating_sub(at.micros()).max(0) / 1_000_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        (_, _, _) => format!("{days}d{:02}h", hours % 24),
    }
}

/// Such as `running`.
pub(super) fn status(number: i32) -> String {
    word(v1::RunStatus::try_from(number).map(|status| status.as_str_name()), "RUN_STATUS_", number)
}

/// Such as `applied`.
pub(super) fn disposition(number: i32) -> String {
    word(v1::Disposition::try_from(number).map(|disposition| disposition.as_str_name()), "DISPOSITION_", number)
}

/// Such as `created`.
pub(super) fn event_type(event: &v1::RunEvent) -> String {
    let name = v1::RunEventType::try_from(event.r#type).map(|name| name.as_str_name());
    word(name, "RUN_EVENT_TYPE_", event.r#type)
}

/// A value's word; its number where a newer authority has one that is not known here.
fn word<E>(name: Result<&'static str, E>, prefix: &str, number: i32) -> String {
    name.map_or_else(|_unknown| number.to_string(), |name| name.trim_start_matches(prefix).to_lowercase())
}

/// The principal's name: its agent's, or its own where it acted as no agent. A word in brackets is nobody's name.
pub(super) fn principal(principal: &v1::Principal) -> String {
    match principal.kind() {
        v1::PrincipalKind::Anonymous => "(anonymous)".to_owned(),
        v1::PrincipalKind::Authority => "(authority)".to_owned(),
        v1::PrincipalKind::Authenticated if principal.agent_id.is_empty() => principal.subject.clone(),
        v1::PrincipalKind::Unspecified | v1::PrincipalKind::Claimed | v1::PrincipalKind::Authenticated => {
            principal.agent_id.clone()
        }
    }
}

/// A reason behind what is said; nothing where there is none.
pub(super) fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

/// Such as `3 of 10, fetching`.
pub(super) fn amount(progress: &v1::Progress) -> String {
    let of = if progress.total > 0 { format!(" of {}", progress.total) } else { String::new() };
    let message = if progress.message.is_empty() { String::new() } else { format!(", {}", progress.message) };
    format!("{}{of}{message}", progress.done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_two_units_and_is_never_negative() {
        let now = Time::from_micros(1_000_000_000_000);
        for (seconds, shown) in [
            (-5, "0s"),
            (0, "0s"),
            (59, "59s"),
            (61, "1m01s"),
            (3_600, "1h00m"),
            (90_061, "1d01h"),
            (864_000, "10d00h"),
        ] {
            assert_eq!(age(Time::from_micros(now.micros() - seconds * 1_000_000), now), shown);
        }
    }

    #[test]
    fn the_clock_tells_times_of_the_last_day_and_others_by_their_age() {
        let (day, second) = (DAY_MICROS, 1_000_000);
        let now = Time::from_micros(20_000 * day + 3_661 * second);
        for (ago, shown) in
            [(0, "01:01:01Z"), (-second, "01:01:02Z"), (3_662 * second, "23:59:59Z"), (day, "1d00h ago")]
        {
            assert_eq!(moment(Some(Time::from_micros(now.micros() - ago)), Times::Clock(now)), shown);
        }
    }

    #[test]
    fn what_a_newer_authority_says_is_shown_by_its_number() {
        assert_eq!((status(2), status(77)), ("running".to_owned(), "77".to_owned()));
    }
}
