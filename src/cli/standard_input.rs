//! The one standard input of a command line: two flags cannot both read it, as the second one would find it empty.

use std::ffi::OsStr;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command};

/// Names of standard input as a file.
const FILES: [&str; 3] = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];

/// Refuses a command line of which two flags read standard input.
///
/// # Errors
///
/// Both of them.
pub(super) fn refused(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let readers: Vec<String> = command.get_arguments().flat_map(|arg| reads(arg, matches)).collect();
    if let [first, second, ..] = &readers[..] {
        let sentence =
            format!("{first} and {second} both read standard input, which is there once: give one of them a file");
        return Err(command.error(ErrorKind::ArgumentConflict, sentence));
    }
    match matches.subcommand() {
        Some((name, matches)) => match command.find_subcommand_mut(name) {
            Some(inner) => refused(inner, matches),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

/// The argument by its name, once for each of its values that reads standard input.
fn reads(arg: &Arg, matches: &ArgMatches) -> Vec<String> {
    let id = arg.get_id().as_str();
    let raw = if matches.try_contains_id(id).unwrap_or(false) { matches.try_get_raw(id).ok().flatten() } else { None };
    let of_input = raw.into_iter().flatten().filter(|value| is_of_input(arg, value));
    let named = || arg.get_long().map_or_else(|| format!("<{}>", id.to_uppercase()), |long| format!("--{long}"));
    of_input.map(|_value| named()).collect()
}

/// Whether an argument reads standard input by a value: its forms, such as `FILE|-`, say what it takes.
fn is_of_input(arg: &Arg, value: &OsStr) -> bool {
    let forms: Vec<&str> = arg.get_value_names().into_iter().flatten().flat_map(|name| name.split('|')).collect();
    let (path, file) = match value.to_str() {
        Some(text) => text.strip_prefix('@').map_or((text, "FILE"), |path| (path, "@FILE")),
        None => return false,
    };
    (path == "-" && file == "FILE" && forms.contains(&"-"))
        || (FILES.contains(&path) && forms.contains(&file) && arg.get_long() != Some("output"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    /// Every command with its words.
    fn commands(command: &Command, words: &[String], found: &mut Vec<(Vec<String>, Command)>) {
        for inner in command.get_subcommands() {
            let words = [words, &[inner.get_name().to_owned()]].concat();
            found.push((words.clone(), inner.clone()));
            commands(inner, &words, found);
        }
    }

    #[test]
    fn two_flags_that_read_standard_input_are_refused_in_every_command_that_has_them() {
        let (mut all, mut seen) = (Vec::new(), 0);
        let mut root = Cli::command();
        root.build();
        commands(&root, &["runledger".to_owned()], &mut all);
        for (words, command) in all {
            let readers = command.get_arguments().filter(|arg| is_of_input(arg, OsStr::new("-")));
            let flags: Vec<&str> = readers.filter_map(Arg::get_long).collect();
            for (one, other) in flags.iter().flat_map(|one| flags.iter().map(move |other| (one, other))) {
                if one >= other {
                    continue;
                }
                // What the command needs besides is not looked at.
                let mut lenient = command.clone().ignore_errors(true);
                let given = [words.last().unwrap().clone(), format!("--{one}=-"), format!("--{other}=-")];
                let matches = lenient.clone().try_get_matches_from(given).unwrap();
                let error = refused(&mut lenient, &matches).unwrap_err();
                let said = error.to_string();
                assert!(
                    error.exit_code() == 2
                        && said.contains(&format!("--{one}"))
                        && said.contains(&format!("--{other}"))
                );
                seen += 1;
            }
        }
        assert!(seen >= 3, "{seen}");
    }

    #[test]
    fn one_flag_may_read_standard_input() {
        for (words, is_taken) in [
            (&["start", "--metadata=-", "--input={}"][..], true),
            (&["start", "--metadata=@/dev/stdin", "--input=-"], false),
            (&["start", "--metadata=@/dev/stdin", "--token-file=/dev/stdin"], false),
            (&["start", "--metadata=-", "--run-id=-"], true),
        ] {
            let mut root = Cli::command();
            root.build();
            let words = ["runledger", "run"].iter().chain(words).chain(&["--task-thread-id=t"]);
            let matches = root.clone().try_get_matches_from(words).unwrap();
            assert_eq!(refused(&mut root, &matches).is_ok(), is_taken, "{matches:?}");
        }
    }
}
