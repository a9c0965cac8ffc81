//! Empty texts on the command line, and in the variables that stand for flags. A script leaves one where a variable of its
//! own is unset: it is never taken for a flag that was not given, but refused. What a command cannot do without is left to
//! whoever checks its form: it is never taken for absent.

use std::ffi::OsString;

use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use crate::config;
use crate::text::MaybeEmpty;

/// Refuses an empty text on a command line that is understood otherwise.
///
/// # Errors
///
/// The argument that is empty.
pub(super) fn refused(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let asked = |arg: &&Arg| !arg.is_required_set() && !may_be_empty(arg) && is_empty(arg, matches);
    let empty = command.get_arguments().find(asked).map(sentence);
    if let Some(sentence) = empty {
        return Err(command.error(ErrorKind::InvalidValue, sentence));
    }
    match matches.subcommand() {
        Some((name, matches)) => match command.find_subcommand_mut(name) {
            Some(inner) => refused(inner, matches),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

/// Refuses an empty variable of the command that is called, unless its flag is given. The `command` still has its variables,
/// and was built.
///
/// # Errors
///
/// The variable that is empty.
pub(super) fn refused_variable(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let is_given = |arg: &Arg| {
        let id = arg.get_id().as_str();
        matches.try_contains_id(id).unwrap_or(false) && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    let empty = command.get_arguments().filter(|arg| !is_given(arg)).find_map(|arg| {
        let name = arg.get_env()?;
        config::is_empty_variable(name).then(|| config::empty_variable(&name.to_string_lossy()))
    });
    if let Some(sentence) = empty {
        return Err(command.error(ErrorKind::InvalidValue, sentence));
    }
    match matches.subcommand() {
        Some((name, matches)) => match command.find_subcommand_mut(name) {
            Some(inner) => refused_variable(inner, matches),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

fn sentence(arg: &Arg) -> String {
    let named = match arg.get_long() {
        Some(long) => format!("--{long}"),
        None => format!("<{}>", arg.get_id().as_str().to_uppercase()),
    };
    format!("{named} is empty: give it a value, or leave it out")
}

/// Whether an empty text of an argument says something of its own, as that of a program's argument does.
pub(super) fn may_be_empty(arg: &Arg) -> bool {
    let own = [ValueParser::from(clap::value_parser!(MaybeEmpty)), clap::value_parser!(OsString)];
    own.iter().any(|own| own.type_id() == arg.get_value_parser().type_id())
}

fn is_empty(arg: &Arg, matches: &ArgMatches) -> bool {
    let id = arg.get_id().as_str();
    let is_given =
        matches.try_contains_id(id).unwrap_or(false) && matches.value_source(id) == Some(ValueSource::CommandLine);
    let raw = if is_given { matches.try_get_raw(id).ok().flatten() } else { None };
    arg.get_action().takes_values() && raw.is_some_and(|mut raw| raw.any(std::ffi::OsStr::is_empty))
}
