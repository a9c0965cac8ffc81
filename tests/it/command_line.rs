//! The command line is what its own help and the documentation say it is, and does what they say.

mod apply;
mod calls;
mod cli;
mod config;
mod contexts;
mod cuts;
mod endings;
mod examples;
mod files;
mod hostile;
mod lists;
mod rights;
mod screen;
mod secured;
mod texts;
mod told;

use clap::{Command, CommandFactory as _};
use runledger::app::STOP_WAIT_MAX;
use runledger::cli::Cli;

/// The exit codes of each command by itself. The overview has none.
const ENDS: &[(&str, &[u8])] = &[
    ("serve", &[0, 1, 2, 130]),
    ("run", &[0, 1, 2, 3, 4]),
    ("watch", &[0, 1, 2, 3, 4, 130]),
    ("lifecycle", &[0, 1, 2, 3, 4]),
    ("namespace", &[0, 1, 2, 3, 4]),
    ("export", &[0, 1, 2, 3, 130]),
    ("health", &[0, 1, 2, 3]),
    ("whoami", &[0, 1, 2, 3, 4]),
    ("doctor", &[0, 1, 2, 3]),
    ("verify", &[0, 1, 2, 3]),
    ("migrate", &[0, 1, 2]),
    ("retention", &[0, 1, 2, 3]),
    ("bench", &[0, 1, 2, 3, 130]),
    ("config", &[0, 1, 2]),
    ("monitoring", &[0, 1, 2]),
    ("context", &[0, 1, 2]),
    ("token", &[0, 1, 2]),
    ("completions", &[0, 1, 2]),
];

#[test]
fn every_help_names_every_exit_code_of_its_command_and_no_other() {
    for command in every_command().iter().skip(1) {
        let path = path(command);
        let family = path.split(' ').next().unwrap();
        let ends = ENDS.iter().find(|(name, _)| *name == family).unwrap_or_else(|| panic!("how does {path} end?")).1;
        let help = command.get_after_help().unwrap().to_string();
        let codes = help.split_once("Exit codes: ").unwrap_or_else(|| panic!("{path}: {help}")).1;
        let codes = codes.trim_end_matches('.').split("; ").map(|code| code.split(' ').next().unwrap().parse());
        assert_eq!(codes.collect::<Result<Vec<u8>, _>>().as_deref(), Ok(ends), "{path}: {help}");
    }
}

#[test]
fn every_command_has_an_example() {
    for command in every_command() {
        assert!(!examples_of(&command).is_empty(), "{} has no example", path(&command));
    }
}

#[test]
fn a_link_is_called_by_either_of_its_names_in_every_command() {
    let mut seen = 0;
    for command in every_command() {
        for flag in command.get_arguments() {
            let names = flag.get_long_and_visible_aliases().unwrap_or_default();
            for link in ["task-thread", "audit-session", "workflow", "tab-group"] {
                let both = [link, &format!("{link}-id")].map(|name| names.contains(&name));
                assert!(both[0] == both[1], "{}: {names:?}", path(&command));
                seen += usize::from(both[0]);
            }
        }
    }
    assert!(seen >= 14, "{seen}");
}

#[test]
fn every_command_that_calls_servers_takes_every_flag_of_the_connection() {
    let mut seen = 0;
    for command in every_command().iter().skip(1) {
        let flags: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let is_client = flags.contains(&"server");
        let names = ["tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name", "token-file", "namespace", "context"];
        for name in names.into_iter().chain(["allow-plaintext-token"]) {
            let inherited = name == "context" && path(command).split(' ').next() == Some("bench");
            let own =
                [("serve", "tls-cert"), ("serve", "tls-key"), ("export", "namespace"), ("token new", "namespace")];
            // Those that look at a server's settings take them all.
            let own = own.iter().any(|(of, flag)| {
                name == *flag && (path(command) == *of || *of == "serve" && path(command).starts_with("config "))
            });
            assert!(flags.contains(&name) == is_client || inherited || own, "{} and --{name}", path(command));
        }
        let secret = flags.iter().find(|flag| ["token", "password"].contains(flag));
        assert_eq!(secret, None, "{}: others see the flags of a process", path(command));
        seen += usize::from(is_client);
    }
    assert!(seen >= 30, "{seen}");
}

#[test]
fn the_help_fits_a_terminal() {
    for command in every_command() {
        let help = command.clone().render_long_help().to_string();
        // Wrapped text is still there, in pieces: a column that is too wide shows in the examples.
        for example in command
            .get_after_help()
            .into_iter()
            .flat_map(|text| text.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
        {
            let is_example = example.starts_with("  ");
            assert!(!is_example || (example.len() <= 100 && help.contains(&example)), "{example}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
}

#[test]
fn the_help_names_the_bound_of_a_stop() {
    let root = Cli::command();
    let help = root.find_subcommand("serve").unwrap().get_after_help().unwrap().to_string();
    assert!(help.contains(&format!(" {} s at most", STOP_WAIT_MAX.as_secs())), "{help}");
}

/// Every command, with those inside others. The first is the overview.
fn every_command() -> Vec<Command> {
    let mut root = Cli::command();
    root.build();
    let mut commands = vec![root];
    let mut next = 0;
    while let Some(command) = commands.get(next) {
        let inner: Vec<_> = command
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help" && !inner.is_hide_set())
            .cloned()
            .collect();
        commands.extend(inner);
        next += 1;
    }
    commands
}

/// The words that a user types for a command: two commands are named `watch`.
fn path(command: &Command) -> &str {
    let whole = command.get_bin_name().expect("it is built");
    whole.strip_prefix("runledger ").unwrap_or(whole)
}

/// The command lines of a help's examples, without the words on what they do.
fn examples_of(command: &Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let lines = help.lines().filter_map(|line| line.strip_prefix("  ")).filter_map(|line| line.split("   ").next());
    lines.filter(|line| line.contains("runledger ")).map(str::to_owned).collect()
}
