//! The rules of single fields. Each check notes violations and goes on, so that one answer names every violation.
//!
//! A violation never repeats more than [`EXCERPT_BYTES_MAX`] bytes of the caller's text.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::domain::limits::{LINK_BYTES_MAX, REASON_CODE_BYTES_MAX, REQUEST_ID_BYTES_MAX, RUN_ID_BYTES_MAX};
use crate::domain::{RunId, Status, Violation};
use runledger_proto::v1;

/// Violations of one request that are kept, so that a request of nothing else does not cost more than its own size.
pub(super) const VIOLATIONS_MAX: usize = 100;
/// Bytes of a caller's text that a violation shows.
const EXCERPT_BYTES_MAX: usize = 64;

/// The violations that were found in a request.
#[derive(Debug, Default)]
pub(super) struct Violations {
    found: Vec<FoundFault>,
    /// Those that stand, and those of values that may be masked.
    counts: [usize; 2],
    /// Of values that are above their limits as they were sent: they stand unless a lifecycle masks enough of them.
    oversize: Vec<Violation>,
}

#[derive(Debug)]
enum FoundFault {
    Stands(Violation),
    /// A value that no JSON has, and its path as far as no value may be masked that it leads into.
    Unfit(Violation, String),
}

impl Violations {
    /// Notes a violation, up to [`VIOLATIONS_MAX`].
    pub(super) fn push(&mut self, field: impl Into<String>, description: impl Into<String>) {
        if !self.is_full() {
            self.counts[0] += 1;
            self.found.push(FoundFault::Stands(Violation::new(field, description)));
        }
    }

    /// Notes a violation of a limit on what is kept.
    pub(super) fn oversize(&mut self, field: impl Into<String>, description: impl Into<String>) {
        self.oversize.push(Violation::new(field, description));
    }

    /// Notes that a value is none that JSON has, within an object: these keys lead to it. Nobody knows yet whether it is
    /// masked; `shown` is the path to the first of the keys.
    pub(super) fn unfit(&mut self, field: String, description: &str, within: Vec<String>, shown: String) {
        if self.counts[1] < VIOLATIONS_MAX {
            let violation = Violation { within: Some(within), ..Violation::new(field, description) };
            self.found.push(FoundFault::Unfit(violation, shown));
        } else if !self.is_full_of_unfit() {
            // What is not noted must not be taken: this stands whatever is masked.
            let description = format!("is one of more than {VIOLATIONS_MAX} values that no JSON has");
            let violation = Violation { within: Some(Vec::new()), ..Violation::new(shown.clone(), description) };
            self.found.push(FoundFault::Unfit(violation, shown));
        }
        self.counts[1] += 1;
    }

    /// Whether no more values are noted that no JSON has: a walk over many need not spell out those of the rest.
    pub(super) fn is_full_of_unfit(&self) -> bool {
        self.counts[1] > VIOLATIONS_MAX
    }

    /// Whether no more violations are kept: a walk over many values need not spell out those of the rest.
    pub(super) fn is_full(&self) -> bool {
        self.counts[0] >= VIOLATIONS_MAX
    }

    /// The value, if there is no violation.
    pub(super) fn settle<T>(self, value: T) -> Result<T, Vec<Violation>> {
        match self.settle_but_oversize(value) {
            Ok((value, oversize)) if oversize.is_empty() => Ok(value),
            Ok((_, oversize)) => Err(oversize),
            Err(violations) => Err(violations),
        }
    }

    /// The value, if there is no violation but of what may be masked, and these.
    pub(super) fn settle_but_oversize<T>(self, value: T) -> Result<(T, Vec<Violation>), Vec<Violation>> {
        let Self { found, counts: [standing, _], oversize } = self;
        let found = found.into_iter().map(|found| match found {
            FoundFault::Stands(violation) => violation,
            FoundFault::Unfit(violation, _) if standing == 0 => violation,
            // Nobody will know whether the path leads into a value that is to be masked.
            FoundFault::Unfit(violation, shown) => Violation { field: shown, within: None, ..violation },
        });
        let found: Vec<Violation> = found.chain(oversize).collect();
        if standing == 0 { Ok((value, found)) } else { Err(found) }
    }

    /// A text of at most `max` bytes.
    pub(super) fn text(&mut self, field: &str, text: &str, max: usize) {
        if text.len() > max {
            self.push(field, format!("is {} bytes; the limit is {max}", text.len()));
        }
        if text.contains('\0') {
            self.push(field, "must not contain U+0000");
        }
    }

    /// A text that must be there.
    pub(super) fn required(&mut self, field: &str, text: String, max: usize) -> String {
        if text.is_empty() {
            self.push(field, format!("is required: 1 to {max} bytes"));
        }
        self.text(field, &text, max);
        text
    }

    /// A text that is absent when empty.
    pub(super) fn optional(&mut self, field: &str, text: String, max: usize) -> Option<String> {
        self.text(field, &text, max);
        Some(text).filter(|text| !text.is_empty())
    }

    /// A link, absent when empty.
    pub(super) fn link(&mut self, field: &str, text: String) -> Option<String> {
        self.optional(field, text, LINK_BYTES_MAX)
    }

    /// A change of a link: absent stays, empty clears.
    pub(super) fn link_change(&mut self, field: &str, text: Option<String>) -> Option<String> {
        if let Some(text) = &text {
            self.text(field, text, LINK_BYTES_MAX);
        }
        text
    }

    /// `run_id`, which must be there.
    pub(super) fn run_id(&mut self, run_id: &str) {
        self.run_id_of("run_id", run_id);
    }

    fn run_id_of(&mut self, field: &str, run_id: &str) {
        let charset = |byte: u8| byte.is_ascii_alphanumeric() || b"._:~-".contains(&byte);
        if !(1..=RUN_ID_BYTES_MAX).contains(&run_id.len()) || !run_id.bytes().all(charset) {
            self.push(field, format!("must be 1 to {RUN_ID_BYTES_MAX} characters of [A-Za-z0-9._:~-]"));
        }
    }

    /// The id of another run, absent when empty.
    pub(super) fn other_run(&mut self, field: &str, run_id: String) -> Option<RunId> {
        if run_id.is_empty() {
            return None;
        }
        self.run_id_of(field, &run_id);
        Some(run_id.into())
    }

    /// `request_id`, absent when empty.
    pub(super) fn request_id(&mut self, request_id: String) -> Option<String> {
        self.optional("request_id", request_id, REQUEST_ID_BYTES_MAX)
    }

    /// `reason_code`, absent when empty.
    pub(super) fn reason_code(&mut self, code: String) -> Option<String> {
        self.kind("reason_code", code)
    }

    /// A code or a kind: a name in upper snake case; absent when empty.
    pub(super) fn kind(&mut self, field: &str, code: String) -> Option<String> {
        let charset = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let sound = code.len() <= REASON_CODE_BYTES_MAX
            && code.bytes().all(charset)
            && code.bytes().next().is_none_or(|first| first.is_ascii_uppercase());
        if !sound {
            self.push(field, format!("must be 1 to {REASON_CODE_BYTES_MAX} characters of [A-Z0-9_], a letter first"));
        }
        Some(code).filter(|code| !code.is_empty())
    }

    /// A duration in whole milliseconds, rounded down.
    pub(super) fn duration_ms(
        &mut self,
        field: &str,
        duration: Option<prost_types::Duration>,
        range: RangeInclusive<u64>,
        shown: &str,
    ) -> Option<u64> {
        let ms = domain_duration(duration?).and_then(|duration| u64::try_from(duration.as_millis()).ok());
        let ms = ms.filter(|ms| range.contains(ms));
        if ms.is_none() {
            self.push(field, format!("must be {shown}"));
        }
        ms
    }

    /// A status, absent when unspecified.
    pub(super) fn status(&mut self, field: &str, number: i32) -> Option<Status> {
        match v1::RunStatus::try_from(number) {
            Ok(v1::RunStatus::Unspecified) => None,
            Ok(v1::RunStatus::Pending) => Some(Status::Pending),
            Ok(v1::RunStatus::Running) => Some(Status::Running),
            Ok(v1::RunStatus::Completed) => Some(Status::Completed),
            Ok(v1::RunStatus::Aborted) => Some(Status::Aborted),
            Ok(v1::RunStatus::Failed) => Some(Status::Failed),
            Err(_) => {
                self.push(field, format!("{number} is not a value of RunStatus"));
                None
            }
        }
    }
}

/// A duration of the wire that is not negative. `prost`'s own conversion is not used, because it overflows on the least
/// duration.
pub(super) fn domain_duration(duration: prost_types::Duration) -> Option<Duration> {
    let nanos = u32::try_from(duration.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(duration.seconds).ok()?, nanos))
}

/// A caller's text within a violation.
pub(super) fn quoted(text: &str) -> String {
    excerpt(text, EXCERPT_BYTES_MAX)
}

/// The beginning of a caller's text, of about `max` bytes at most as shown. Control characters, quotes and invisible
/// characters are escaped, so that the text neither ends its quotes nor rearranges a terminal.
pub(super) fn excerpt(text: &str, max: usize) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        let escaped = character.escape_debug();
        if shown.len() + escaped.clone().map(char::len_utf8).sum::<usize>() > max {
            shown.push('…');
            break;
        }
        shown.extend(escaped);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_shows_nothing_that_acts() {
        assert_eq!(excerpt("plain é", 64), "plain é");
        assert_eq!(excerpt("a\"b\n\u{202e}", 64), "a\\\"b\\n\\u{202e}");
        for character in ["x", "é", "🦀", "\0", "\u{202e}", "\u{10ffff}"] {
            let shown = excerpt(&character.repeat(10_000), 64);
            assert!(shown.ends_with('…') && shown.len() <= 64 + '…'.len_utf8(), "{shown}");
            assert!(!shown.chars().any(char::is_control));
        }
    }

    #[test]
    fn a_request_of_nothing_but_violations_is_not_followed_to_its_end() {
        let mut violations = Violations::default();
        violations.remove_labels(vec![String::new(); 1_000_000], &std::collections::BTreeMap::new());
        assert_eq!(violations.found.len(), 1, "how many there are, and not each of them");
        (0..1_000_000).for_each(|_| violations.push("field", "is wrong"));
        assert_eq!(violations.settle(()).unwrap_err().len(), VIOLATIONS_MAX);
    }
}
