//! The environment beside a context that is named: the context is final, and what a variable says otherwise is told and
//! not done. A shell keeps its variables long after the server was another one, and a call by a name must not go to
//! that server, nor take its token along.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use super::{Context, NONE};
use crate::cli::connect::absolute;
use crate::config;
use runledger_client::ServerAddress;

/// The variable that names a context, as `--context` does.
pub(in crate::cli) const CONTEXT: &str = "RUNLEDGER_CONTEXT";

const SERVER: &str = "RUNLEDGER_SERVER";

/// The variables that say what a context says as well.
pub(in crate::cli) const VARIABLES: [&str; 11] = [
    SERVER,
    "RUNLEDGER_AGENT_ID",
    "RUNLEDGER_NAMESPACE",
    "RUNLEDGER_CLIENT_TLS",
    "RUNLEDGER_CLIENT_TLS_CA",
    "RUNLEDGER_CLIENT_TLS_CERT",
    "RUNLEDGER_CLIENT_TLS_KEY",
    "RUNLEDGER_CLIENT_TLS_SERVER_NAME",
    "RUNLEDGER_TOKEN_FILE",
    "RUNLEDGER_TOKEN",
    "RUNLEDGER_ALLOW_PLAINTEXT_TOKEN",
];

/// Reads a command line: without these variables where it names a context, and else with them.
pub(in crate::cli) fn read(command: Command, words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let of_this_program = words.iter().take_while(|word| *word != "--");
    let mut flags = of_this_program.filter_map(|word| word.to_str());
    let may_name = flags.any(|word| word == "--context" || word.starts_with("--context="));
    if !may_name && config::variable(CONTEXT).is_none() {
        return command.try_get_matches_from(words);
    }
    match without_variables(command.clone()).try_get_matches_from(words) {
        Ok(matches) if names_a_context(&matches) => Ok(matches),
        Ok(_) => command.try_get_matches_from(words),
        // The error is one of the variables that were left out, such as of a key without its certificate; or it is the
        // help, which shows them.
        Err(error) => match command.try_get_matches_from(words) {
            Ok(matches) if names_a_context(&matches) => Err(error),
            matches => matches,
        },
    }
}

fn without_variables(command: Command) -> Command {
    let unset = |arg: clap::Arg| {
        let is_one = |name: &OsStr| VARIABLES.iter().any(|variable| name == *variable);
        if arg.get_env().is_some_and(is_one) { arg.env(Resettable::Reset) } else { arg }
    };
    command.mut_args(unset).mut_subcommands(without_variables)
}

/// Whether the command that is called is told of a context by its name.
fn names_a_context(matches: &ArgMatches) -> bool {
    const ID: &str = "context";
    let here = matches.try_contains_id(ID).unwrap_or(false)
        && matches.value_source(ID).is_some_and(|source| source != ValueSource::DefaultValue)
        && matches.get_raw(ID).is_some_and(|mut values| values.all(|value| value != NONE));
    here || matches.subcommand().is_some_and(|(_, matches)| names_a_context(matches))
}

impl Context {
    /// The servers of the environment, for a context that says nothing of servers: then it is about the rest.
    pub(in crate::cli) fn servers_or_ambient(&self) -> Result<Vec<ServerAddress>, String> {
        if !self.servers.is_empty() {
            return Ok(self.servers.clone());
        }
        let Some(value) = config::variable(SERVER) else { return Ok(Vec::new()) };
        ServerAddress::several(&value.to_string_lossy()).map_err(|expected| format!("{SERVER}: {expected}"))
    }

    /// The variables that say something else than the context, and which it leaves aside.
    pub(in crate::cli) fn left_aside(&self) -> Vec<&'static str> {
        let is_open = |name: &str| name == SERVER && self.servers.is_empty();
        let said = |name: &&str| !is_open(name) && config::variable(name).is_some_and(|value| !self.says(name, &value));
        VARIABLES.into_iter().filter(said).collect()
    }

    /// Whether the context says the same as a variable of that value.
    fn says(&self, variable: &str, value: &OsStr) -> bool {
        let text = value.to_string_lossy();
        let file = |path: &Option<PathBuf>| path.as_deref() == Some(&*absolute(value.as_ref()));
        let is_on = |on: bool| {
            let said = match text.to_ascii_lowercase().as_str() {
                "y" | "yes" | "t" | "true" | "on" | "1" => Some(true),
                "n" | "no" | "f" | "false" | "off" | "0" => Some(false),
                _ => None,
            };
            said == Some(on)
        };
        match variable {
            SERVER => self.named_servers() == text,
            "RUNLEDGER_AGENT_ID" => self.acting_agent.as_deref() == Some(&*text),
            "RUNLEDGER_NAMESPACE" => self.namespace.as_deref() == Some(&*text),
            "RUNLEDGER_CLIENT_TLS" => is_on(self.tls),
            "RUNLEDGER_CLIENT_TLS_CA" => file(&self.tls_ca),
            "RUNLEDGER_CLIENT_TLS_CERT" => file(&self.tls_cert),
            "RUNLEDGER_CLIENT_TLS_KEY" => file(&self.tls_key),
            "RUNLEDGER_CLIENT_TLS_SERVER_NAME" => self.tls_server_name.as_deref() == Some(&*text),
            "RUNLEDGER_TOKEN_FILE" => file(&self.token_file),
            "RUNLEDGER_ALLOW_PLAINTEXT_TOKEN" => is_on(self.allow_plaintext_token),
            // A token by its value is in no context.
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    /// Every variable of every flag that says how a server is reached, or who calls.
    fn of_connections(command: &Command, found: &mut Vec<String>) {
        let of_this_command = command.get_arguments().filter(|arg| arg.get_help_heading() == Some("Connection"));
        found.extend(of_this_command.filter_map(|arg| arg.get_env()).map(|name| name.to_str().unwrap().to_owned()));
        command.get_subcommands().for_each(|command| of_connections(command, found));
    }

    #[test]
    fn a_context_stands_above_every_variable_of_a_connection() {
        let mut found = Vec::new();
        of_connections(&Cli::command(), &mut found);
        found.sort();
        found.dedup();
        // The token by its value has no flag.
        let known = VARIABLES.into_iter().filter(|name| *name != "RUNLEDGER_TOKEN").chain([CONTEXT]);
        let mut known: Vec<_> = known.collect();
        known.sort_unstable();
        assert_eq!(found, known);
    }

    #[test]
    fn a_command_that_names_a_context_reads_none_of_the_variables() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        for (given, names) in [
            (&["runledger", "run", "list", "--context", "a"][..], true),
            (&["runledger", "run", "list", "--context=a"], true),
            (&["runledger", "run", "list", "--context", NONE], false),
            (&["runledger", "run", "list"], false),
            (&["runledger", "run", "worker", "--claim", "--", "x", "--context", "a"], false),
        ] {
            let matches = read(Cli::command(), &words(given)).unwrap();
            assert_eq!(names_a_context(&matches), names, "{given:?}");
        }
        let without = without_variables(Cli::command());
        let mut left = Vec::new();
        of_connections(&without, &mut left);
        left.dedup();
        assert!(left.iter().all(|name| name == CONTEXT), "{left:?}");
    }
}
