//! `runledger completions`.

use std::io::Write as _;

use clap::{Args, Command};
use clap_complete::Shell;

use super::exit::Stop;

pub(super) const HELP: &str = "Examples:\n  \
    source <(runledger completions bash)\n  \
    runledger completions zsh > _runledger\n  \
    runledger completions fish > runledger.fish\n\n\
    Exit codes: 0 printed; 1 the output cannot be written; 2 usage.";

#[derive(Args, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints what completes a command line.
pub(super) fn run(args: &CompletionsArgs, mut command: Command) -> Result<(), Stop> {
    // Written whole: what generates them would panic where nobody reads to the end.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "runledger", &mut script);
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&script)?;
    stdout.flush()?;
    Ok(())
}
