//! `runledger config`: looks at the settings of a server before it starts.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::exit::{Stop, say};
use crate::app;
use crate::config::shown::{Setting, as_file};
use crate::config::{ServeConfig, shown};

macro_rules! exit_codes {
    () => {
        "Exit codes: 0 done; 1 the server would not start by these settings, or the output cannot be written; 2 usage, \
         or mistakes in the file."
    };
}

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger config check runledger.toml\n  \
    runledger config show runledger.toml --log-format json\n  \
    runledger config reference\n\n\
    What a server is to do is said by its flags, then by the environment, then by the file, then by defaults. Each \
    setting is looked for by itself.\n",
    exit_codes!()
);

const CHECK: &str = concat!(
    "Examples:\n  \
    runledger config check runledger.toml\n  \
    RUNLEDGER_STORE=memory runledger config check\n\n\
    The certificates, the access file and the other files that the settings name are read as well. The store and the \
    port are not tried.\n",
    exit_codes!()
);

const SHOW: &str = concat!(
    "Examples:\n  \
    runledger config show runledger.toml\n  \
    runledger config show --store memory\n\n\
    What is printed is a file that says the same. Passwords are left out.\n",
    exit_codes!()
);

const REFERENCE: &str = concat!("Examples:\n  runledger config reference\n\n", exit_codes!());

/// See the module.
#[derive(Args, Debug)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Tell every mistake in the settings, and in the files that they name
    #[command(after_help = CHECK)]
    Check(Box<Named>),
    /// Print the settings as they hold, and where each comes from
    #[command(after_help = SHOW)]
    Show(Box<Named>),
    /// Print the reference of all settings, in Markdown
    #[command(after_help = REFERENCE)]
    Reference,
}

/// The settings, as `runledger serve` would be given them.
#[derive(Args, Debug)]
struct Named {
    /// The file of settings, instead of the one that --config or its variable names
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    serve: ServeConfig,
}

/// Looks at `settings`, which the command line makes.
pub(super) async fn run(args: ConfigArgs, settings: &[Setting]) -> Result<(), Stop> {
    match args.command {
        ConfigCommand::Check(named) => {
            let mut mistakes = app::mistakes(&named.serve).await;
            if let Some(last) = mistakes.pop() {
                // Each is a line of its own.
                for mistake in &mistakes {
                    say(mistake);
                }
                return Err(Stop::Undone(last));
            }
            write("the settings are good\n")
        }
        ConfigCommand::Show(_) => write(&as_file(settings)),
        ConfigCommand::Reference => write(&shown::reference()),
    }
}

fn write(text: &str) -> Result<(), Stop> {
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}
