//! The texts by which people say times, durations, sizes, numbers and data: in flags, settings, declarations and files.
//!
//! Invariant: there is one reader for each kind, whoever asks. A text is read wholly, as what it says, or refused with
//! a sentence that says what to write: no reader takes a part of a text and drops the rest. An empty text of a flag, a
//! file or a variable is never taken for none.

mod bytes;
mod duration;
mod json;
mod mark;
mod number;
mod time;

use std::convert::Infallible;
use std::str::FromStr;

pub use self::bytes::bytes;
pub use self::duration::{duration, duration_within, limit, seconds_or_duration};
pub use self::json::object;
pub use self::mark::without_mark;
pub use self::number::{count, share, within};
pub use self::time::{When, time};

/// A text that may be empty: the empty one says "none", and is not the same as no text at all. All other texts of flags
/// and settings must have a character.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaybeEmpty(pub String);

impl FromStr for MaybeEmpty {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}
