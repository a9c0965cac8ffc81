//! The place of a call in a trace, by which those who look at an event find what led to it, and link on.
//!
//! It is the W3C Trace Context, level 1: `traceparent`. The trace of a call is kept with its event. It decides nothing, and
//! is no part of a run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// See the module. Neither of the ids is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceContext {
    pub trace_id: u128,
    /// The span in it that the call is, or that it came from.
    pub span_id: u64,
    /// Whether that span was recorded.
    pub sampled: bool,
}

/// A text that is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 00-<32 hexadecimal digits>-<16>-<2>, and neither id zero")]
pub struct NoTraceContext;

/// The flag of a span that was recorded.
const SAMPLED: u8 = 1;

impl TraceContext {
    /// The trace's id, as people and logs write it.
    #[must_use]
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace_id)
    }
}

impl FromStr for TraceContext {
    type Err = NoTraceContext;

    fn from_str(text: &str) -> Result<Self, NoTraceContext> {
        let hex = |from: usize, to: usize| {
            let digits = text.get(from..to).filter(|digits| digits.bytes().all(is_lower_hex));
            digits.and_then(|digits| u128::from_str_radix(digits, 16).ok()).ok_or(NoTraceContext)
        };
        let is_dash = |at: usize| text.as_bytes().get(at) == Some(&b'-');
        let version = hex(0, 2)?;
        // Later versions may add parts, after another dash.
        let ends = text.len() == 55 || (version > 0 && is_dash(55));
        if version == 0xff || !ends || !is_dash(2) || !is_dash(35) || !is_dash(52) {
            return Err(NoTraceContext);
        }
        let (trace_id, span_id, flags) = (hex(3, 35)?, hex(36, 52)?, hex(53, 55)?);
        let span_id = u64::try_from(span_id).map_err(|_| NoTraceContext)?;
        if trace_id == 0 || span_id == 0 {
            return Err(NoTraceContext);
        }
        Ok(Self { trace_id, span_id, sampled: flags & u128::from(SAMPLED) != 0 })
    }
}

fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = if self.sampled { SAMPLED } else { 0 };
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.trace_id, self.span_id)
    }
}

impl TryFrom<String> for TraceContext {
    type Error = NoTraceContext;

    fn try_from(text: String) -> Result<Self, NoTraceContext> {
        text.parse()
    }
}

impl From<TraceContext> for String {
    fn from(context: TraceContext) -> Self {
        context.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_as_it_is_written() {
        let context: TraceContext = TEXT.parse().unwrap();
        assert_eq!(context.to_string(), TEXT);
        assert_eq!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(context.sampled);
        let unsampled: TraceContext = TEXT.replace("-01", "-00").parse().unwrap();
        assert!(!unsampled.sampled);
        let with_unknown_flags: TraceContext = TEXT.replace("-01", "-ff").parse().unwrap();
        assert!(with_unknown_flags.sampled);
        let later: TraceContext = format!("cc{}-what-follows", &TEXT[2..]).parse().unwrap();
        assert_eq!(later, context);
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        for text in [
            "",
            "00",
            &TEXT[1..],
            &format!("{TEXT}-more"),
            &TEXT.to_uppercase(),
            &TEXT.replace("00-4b", "ff-4b"),
            &TEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &TEXT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &TEXT.replace('-', "_"),
            &TEXT.replace("4bf9", "4bg9"),
            &TEXT.replace("4bf9", "+bf9"),
            &TEXT.replace("4bf92f", "é2f7"),
        ] {
            assert_eq!(text.parse::<TraceContext>(), Err(NoTraceContext), "{text:?}");
        }
    }
}
