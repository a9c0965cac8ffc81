//! What all calls that change a run have in common. Every call has a `request_id`, so that a call that was cut off can be
//! sent again.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use crate::cli::connect::Caller;
use crate::cli::exit::say;
use crate::cli::output::RunFormat;
use crate::text::count;

/// The paragraph on safe repetition of a mutation.
macro_rules! once {
    () => {
        "A call that is cut off is sent again with the same request id until --timeout, so it is made once or not at \
         all. Without --request-id each invocation draws its own.\n\n"
    };
}
pub(super) use once;

/// The flags of every mutation.
#[derive(Args, Debug)]
pub(super) struct Mutation {
    /// Id that makes this call the same as an earlier one: it is then applied once
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(super) request_id: Option<String>,
    /// Refuse unless the run is at this revision (start: 0 when it must not exist)
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    pub(super) expected_revision: Option<u64>,
    #[command(flatten)]
    pub(super) caller: Caller,
    #[command(flatten)]
    pub(super) format: RunFormat,
}

/// Says which flags of a call were not taken, and why.
pub(super) fn tell_dropped<F: AsRef<str>>(why: &str, flags: &[F]) {
    match flags {
        [] => {}
        [one] => say(&format!("{why}: {} was not taken", one.as_ref())),
        several => {
            let several: Vec<_> = several.iter().map(AsRef::as_ref).collect();
            say(&format!("{why}: {} were not taken", several.join(", ")));
        }
    }
}
