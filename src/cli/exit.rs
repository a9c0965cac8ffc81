//! The end of a command: its line on stderr, and its exit code.

use std::io;
use std::process::ExitCode;

use super::table::shown;
use crate::stdio;
use crate::store::StoreError;
use crate::telemetry::chain;
use runledger_client::{Failure, Fault, Kind};

/// The exit codes of every command that calls a server, as its help says them.
macro_rules! exit_codes {
    ($($more:literal)?) => {
        concat!(
            "Exit codes: 0 done; 1 refused by the authority, or the output cannot be written; 2 usage; 3 unreachable, or \
             not serving now: nothing was done; 4 cut off or timed out: what became of the call is open, unless the \
             error says that nothing was written",
            $($more,)?
            "."
        )
    };
}
pub(super) use exit_codes;

/// The reason why a command ends before it has done what was asked.
#[derive(Debug)]
pub(super) enum Stop {
    /// A call has no answer.
    Failed(Failure),
    /// The command line makes no sense.
    Usage(String),
    /// The command was tried, and failed for a reason that lasts.
    Undone(String),
    /// The store or server that the command needs does not answer.
    Unreachable(String),
    /// The verdict of the command is negative. The output says so.
    Unsound,
    /// The time that was given is over.
    TimedOut(String),
    /// The reader of the output has closed it.
    Closed,
    /// The output cannot be written.
    Unwritable(io::Error),
    /// A signal, by its number.
    Signal(u8),
    /// The exit code of a program that was run.
    Program(u8),
}

impl Stop {
    /// The same reason, with its sentence changed, where it has one of its own.
    pub(super) fn with_sentence(mut self, change: impl FnOnce(String) -> String) -> Self {
        if let Self::Usage(sentence) | Self::Undone(sentence) | Self::Unreachable(sentence) | Self::TimedOut(sentence) =
            &mut self
        {
            *sentence = change(std::mem::take(sentence));
        }
        self
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Unwritable(error) }
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Unreachable(chain(&error))
    }
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Self {
        Self::Undone(chain(error.as_ref()))
    }
}

/// The next step of a user whose server does not answer.
pub(super) const NO_SERVER: &str =
    "is the server running? `runledger serve` starts one here; --server or RUNLEDGER_SERVER names another";

/// The next step of a user whose call failed, where the command line has one for it.
fn hint(failure: &Failure) -> Option<&'static str> {
    match failure.fault() {
        Some(Fault::UnknownCa) => Some("--tls-ca or RUNLEDGER_CLIENT_TLS_CA names the file of the CA to trust"),
        Some(Fault::WrongName { .. }) => Some("--tls-server-name says which name its certificate must have"),
        Some(Fault::SpeaksTls) => Some("--tls, or an https:// address, calls it over TLS"),
        Some(Fault::PlainText | Fault::HungUp) => Some("it is called in plain text without the flags of TLS"),
        Some(Fault::TokenInPlainText(_)) => {
            Some("--tls calls over TLS, and --allow-plaintext-token sends the token all the same")
        }
        Some(Fault::WantsCertificate) => Some("--tls-cert and --tls-key name the files of one"),
        None if failure.is_of_certificate() => {
            Some("--tls-cert and --tls-key show another certificate; without them, a token alone names the caller")
        }
        None if failure.is_unauthenticated() => Some(
            "--token-file or RUNLEDGER_TOKEN_FILE names a file with a token, RUNLEDGER_TOKEN holds one; --tls-cert and \
             --tls-key show a certificate",
        ),
        None if failure.is_denied() && matches!(failure.reason.as_deref(), Some("NOT_OWNER" | "SELF_RAISE")) => None,
        // Without a reason, it was no grant that was lacking: it was said on the way, by the transport.
        None if failure.is_denied() && failure.reason.is_some() => Some(
            "the caller is known and has no grant for this, and `runledger whoami` says which it has: ask the server's \
             operator for one, or name another namespace (--namespace) or agent (--as)",
        ),
        None if failure.kind == Kind::Unreachable && failure.reason.is_none() => Some(NO_SERVER),
        Some(_) | None => None,
    }
}

/// Prints the reason of a stop, and gives the exit code.
pub(super) fn code(done: Result<(), Stop>) -> ExitCode {
    let code = match done {
        Ok(()) | Err(Stop::Closed) => 0,
        Err(Stop::Failed(failure)) => {
            // The message names the first detail, for those who show no others.
            let invalid =
                failure.reason.as_deref().filter(|reason| *reason == "INVALID_FIELD" && !failure.details.is_empty());
            match invalid {
                Some(reason) => say(&format!("{reason}: to be corrected are")),
                None => say(&failure.to_string()),
            }
            for line in &failure.details {
                warn(&format!("  {}", shown(line)));
            }
            if let Some(hint) = hint(&failure) {
                warn(&format!("  {hint}"));
            }
            match failure.kind {
                Kind::Refused => 1,
                Kind::Unreachable => 3,
                Kind::Cut => 4,
            }
        }
        Err(Stop::Usage(sentence)) => {
            say(&sentence);
            2
        }
        Err(Stop::Undone(sentence)) => {
            say(&sentence);
            1
        }
        Err(Stop::Unreachable(sentence)) => {
            say(&sentence);
            3
        }
        Err(Stop::Unsound) => 1,
        Err(Stop::TimedOut(sentence)) => {
            say(&sentence);
            4
        }
        Err(Stop::Unwritable(error)) => {
            say(&format!("the output cannot be written: {error}"));
            1
        }
        Err(Stop::Signal(number)) => 128 + number,
        Err(Stop::Program(code)) => code,
    };
    ExitCode::from(code)
}

/// Writes a line to stderr. The line may hold text from elsewhere, so its control characters are escaped.
pub(super) fn say(sentence: &str) {
    warn(&format!("runledger: {}", shown(sentence)));
}

/// Writes a line to stderr, for whose reader nobody waits.
fn warn(line: &str) {
    stdio::err().say(&format!("{line}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Violation;
    use crate::wire::problem;

    #[test]
    fn each_refusal_of_the_service_is_what_it_says() {
        for (problem, kind, open) in [
            (problem::store_unavailable(), Kind::Unreachable, false),
            (problem::draining(), Kind::Unreachable, false),
            (problem::overloaded(), Kind::Unreachable, false),
            (problem::outcome_unknown(true), Kind::Cut, true),
            (problem::outcome_unknown(false), Kind::Cut, false),
            (problem::deadline(), Kind::Cut, false),
            (problem::store_refused(), Kind::Refused, false),
            (problem::store_corrupt(), Kind::Refused, false),
            (problem::invalid(vec![Violation::new("run_id", "is required")]), Kind::Refused, false),
        ] {
            let failure = Failure::from(&problem.clone().into());
            assert_eq!((failure.kind, failure.is_open()), (kind, open), "{problem:?}");
        }
        assert!(Failure::from(&problem::overloaded().into()).retry_after.is_some_and(|wait| !wait.is_zero()));
    }
}
