//! The variable by which a command line cannot be understood: an error of the parser names the flag whose value the
//! variable gives, and nobody has typed that flag.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

use crate::config;

/// What is wrong with a variable, where an error of a command line comes of one.
pub(super) fn of_a_variable(command: &Command, words: &[OsString], error: &clap::Error) -> Option<String> {
    let mut called = command;
    let mut rest = words.get(1..).unwrap_or_default();
    while let [word, after @ ..] = rest
        && let Some(next) = called.find_subcommand(word)
    {
        (called, rest) = (next, after);
    }
    called.get_arguments().filter(|arg| !is_typed(arg, rest)).find_map(|arg| wrong(arg, error))
}

/// Whether a command line has the flag, so that its variable is not looked at.
fn is_typed(arg: &Arg, words: &[OsString]) -> bool {
    let names: Vec<String> = arg.get_long().into_iter().map(|long| format!("--{long}")).collect();
    let is =
        |word: &str, name: &str| word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
    // What stands behind `--` is another program's.
    let own = words.iter().take_while(|word| *word != "--");
    own.filter_map(|word| word.to_str()).any(|word| names.iter().any(|name| is(word, name)))
}

/// What is wrong with the variable of an argument, where it is that which the error tells.
fn wrong(arg: &Arg, error: &clap::Error) -> Option<String> {
    let name = arg.get_env()?.to_str()?;
    let value = config::variable(name)?;
    let long = arg.get_long()?;
    let alone = alone(arg, long, &value).err()?;
    let is_told = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(told)) => told.split(' ').next() == Some(&format!("--{long}")),
        Some(_) | None => true,
    };
    if alone.kind() != error.kind() || !is_told {
        return None;
    }
    if alone.kind() == ErrorKind::InvalidUtf8 {
        return Some(format!("error: {name} is not UTF-8\n"));
    }
    let sentence = alone.render().to_string();
    Some(sentence.replacen("error: ", &format!("error: {name}: "), 1))
}

/// Reads a value as an argument by itself reads it.
fn alone(arg: &Arg, long: &str, value: &OsStr) -> Result<(), clap::Error> {
    let mut own = Arg::new("own").long(long.to_owned()).value_parser(arg.get_value_parser().clone());
    if let Some(name) = arg.get_value_names().and_then(<[_]>::first) {
        own = own.value_name(name.clone());
    }
    if let Some(delimiter) = arg.get_value_delimiter() {
        own = own.value_delimiter(delimiter);
    }
    let mut word = OsString::from(format!("--{long}="));
    word.push(value);
    Command::new("runledger").no_binary_name(true).arg(own).try_get_matches_from([word]).map(drop)
}
