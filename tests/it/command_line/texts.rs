//! Texts of flags, settings and files: each is read as what it says, or refused; none is read as a part.
//!
//! The tests walk over the flags that the command line has and the settings that a server has. A flag of a type that has
//! no row here fails them.

mod forms;
mod process;
mod variables;

use std::any::TypeId;
use std::ffi::OsString;
use std::fmt::Debug;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{Arg, Command};
use runledger::config::file::{ConfigFile, key, settings};
use runledger::domain::Time;
use runledger::text::{MaybeEmpty, When};
use tempfile::TempDir;

use super::{every_command, path};

/// What the texts of a flag say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A length of time.
    Duration,
    /// A moment.
    Time,
    /// A whole number, or one of bytes.
    Number,
    /// A part of the whole.
    Share,
    /// An id, a name, a path, or a text for people.
    Text,
    /// One of some words.
    Choice,
    /// What has a form of its own, which the module of its type tests.
    Form,
}

/// Flags with forms of their own, and the test that says which texts they take.
const FORMS: &[(&str, &str)] = &[
    // Durations, or `ever`: looked at as durations besides.
    ("keep", "a_retention_has_a_unit"),
    ("keep-completed", "a_retention_has_a_unit"),
    ("keep-aborted", "a_retention_has_a_unit"),
    ("keep-failed", "a_retention_has_a_unit"),
    // JSON, @FILE or -.
    ("metadata", "text::json"),
    ("input", "text::json"),
    ("result", "text::json"),
    // KEY=VALUE, of which the key is not empty; LABEL=N.
    ("label", "a_label_is_a_key_and_a_value"),
    ("max-running", "a_label_is_a_key_and_a_value"),
    // REL=TARGET: the server checks both.
    ("link", "a_label_is_a_key_and_a_value"),
    // Addresses.
    ("listen", "host_port"),
    ("admin-listen", "host_port"),
    ("server", "server_address"),
    ("watch-server", "server_address"),
    ("otlp-endpoint", "config::telemetry"),
    // Places of stores, which are parsed when they are opened.
    ("store", "store::open"),
    ("database", "store::open"),
    // A namespace that is looked for as it is written.
    ("namespace", "inspect::export"),
];

fn is<T: 'static>(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == TypeId::of::<T>()
}

/// The kind of a flag: by the type that its texts are read as.
fn kind(arg: &Arg) -> Option<Kind> {
    let words = !arg.get_possible_values().is_empty() || is::<bool>(arg);
    let text = is::<String>(arg) || is::<MaybeEmpty>(arg) || is::<OsString>(arg) || is::<PathBuf>(arg);
    let whole = is::<u16>(arg) || is::<u32>(arg) || is::<u64>(arg) || is::<usize>(arg) || is::<i32>(arg);
    let has_form = || FORMS.iter().any(|(flag, _)| arg.get_long() == Some(flag));
    match () {
        () if words => Some(Kind::Choice),
        () if is::<Duration>(arg) => Some(Kind::Duration),
        () if is::<When>(arg) => Some(Kind::Time),
        () if whole || is::<NonZeroU32>(arg) => Some(Kind::Number),
        () if is::<f64>(arg) => Some(Kind::Share),
        () if text => Some(Kind::Text),
        () if has_form() => Some(Kind::Form),
        () => None,
    }
}

/// Every argument with a value, of every command, with how it is called.
fn arguments() -> Vec<(String, Arg)> {
    let of = |command: &Command| {
        let path = path(command).to_owned();
        let taking = command.get_arguments().filter(|arg| arg.get_action().takes_values());
        taking.map(|arg| (format!("{path} {}", arg.get_id()), arg.clone())).collect::<Vec<_>>()
    };
    every_command().iter().skip(1).flat_map(of).collect()
}

/// What an argument by itself reads a text as; none where it is refused.
fn read<T: Clone + Send + Sync + 'static>(arg: &Arg, text: &str) -> Option<T> {
    let alone = Arg::new("alone").long("alone").value_parser(arg.get_value_parser().clone()).env(Resettable::Reset);
    let command = Command::new("alone").no_binary_name(true).arg(alone.allow_hyphen_values(true));
    let matches = command.try_get_matches_from([format!("--alone={text}")]).ok()?;
    matches.try_get_one::<T>("alone").unwrap().cloned()
}

/// Each text is refused, or read as what it says; and the argument takes some.
fn holds<T: Clone + Debug + PartialEq + Send + Sync + 'static>(
    (called, arg): &(String, Arg),
    texts: &[(String, Option<T>)],
) {
    assert!(texts.len() >= 40, "{}", texts.len());
    let mut taken = 0;
    for (text, means) in texts {
        if let Some(found) = read::<T>(arg, text) {
            assert_eq!(Some(&found), means.as_ref(), "{called} reads {text:?}");
            taken += 1;
        }
    }
    assert!(taken > 0, "{called} takes nothing");
}

fn numbers<N: TryFrom<i128> + Copy>() -> Vec<(String, Option<N>)> {
    let as_own = |number: i128| N::try_from(number).ok();
    forms::numbers().into_iter().map(|(text, number)| (text, number.and_then(as_own))).collect()
}

fn sizes<N: TryFrom<i128> + Copy>() -> Vec<(String, Option<N>)> {
    let as_own = |number: i128| N::try_from(number).ok();
    forms::sizes().into_iter().map(|(text, number)| (text, number.and_then(as_own))).collect()
}

#[test]
fn every_argument_reads_a_text_as_what_it_says_or_refuses_it() {
    let noon = Time::from_micros(forms::NOON);
    let mut seen = [0; 5];
    for called in arguments() {
        let arg = &called.1;
        let Some(kind) = kind(arg) else { panic!("{}: what do its texts say? See FORMS", called.0) };
        let is_size = arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "BYTES"));
        match kind {
            Kind::Duration => holds(&called, &forms::durations()),
            Kind::Time => {
                let texts = forms::times();
                assert!(texts.len() >= 40);
                for (text, means) in texts {
                    let found = read::<When>(arg, &text).map(|when| when.from(noon).micros());
                    assert!(found.is_none() || found == means, "{}: {text:?} is {found:?}", called.0);
                }
                assert!(read::<When>(arg, "7d").is_some() && read::<When>(arg, "2026-11-27").is_some(), "{}", called.0);
            }
            Kind::Number if is::<u16>(arg) => holds(&called, &numbers::<u16>()),
            Kind::Number if is::<u32>(arg) && is_size => holds(&called, &sizes::<u32>()),
            Kind::Number if is::<u32>(arg) => holds(&called, &numbers::<u32>()),
            Kind::Number if is::<i32>(arg) => holds(&called, &numbers::<i32>()),
            Kind::Number if is::<usize>(arg) => holds(&called, &numbers::<usize>()),
            Kind::Number if is::<u64>(arg) && is_size => holds(&called, &sizes::<u64>()),
            Kind::Number if is::<u64>(arg) => holds(&called, &numbers::<u64>()),
            Kind::Number => {
                let texts = numbers::<u32>();
                let some: Vec<_> = texts.into_iter().map(|(text, it)| (text, it.and_then(NonZeroU32::new))).collect();
                holds(&called, &some);
            }
            Kind::Share => holds(&called, &forms::shares()),
            Kind::Text => {
                for text in forms::ids() {
                    let found = match () {
                        () if is::<String>(arg) => read::<String>(arg, &text),
                        () if is::<MaybeEmpty>(arg) => read::<MaybeEmpty>(arg, &text).map(|text| text.0),
                        () if is::<PathBuf>(arg) => read::<PathBuf>(arg, &text).map(|path| path.display().to_string()),
                        () => read::<OsString>(arg, &text).map(|text| text.into_string().unwrap()),
                    };
                    assert!(found.is_none() || found.as_deref() == Some(&text), "{}: {text:?} is {found:?}", called.0);
                }
            }
            Kind::Choice | Kind::Form => {}
        }
        if let Some(count) = seen.get_mut(kind as usize) {
            *count += 1;
        }
    }
    let [durations, times, numbers, shares, texts] = seen;
    assert!(durations >= 40 && times >= 6 && numbers >= 40 && shares >= 1 && texts >= 100, "{seen:?}");
}

#[test]
fn an_address_is_read_wholly() {
    let of_servers = |flag: &str| FORMS.iter().any(|(name, form)| *name == flag && form.ends_with("address"));
    let of_ports = |flag: &str| FORMS.iter().any(|(name, form)| *name == flag && *form == "host_port");
    let mut seen = 0;
    for (called, arg) in arguments() {
        let Some(flag) = arg.get_long().filter(|flag| of_servers(flag) || of_ports(flag)) else { continue };
        let is_taken = |text: &str| {
            let alone = Arg::new("alone").long("alone").value_parser(arg.get_value_parser().clone());
            let command = Command::new("alone").no_binary_name(true).arg(alone.env(Resettable::Reset));
            command.try_get_matches_from([format!("--alone={text}")]).is_ok()
        };
        for text in forms::addresses() {
            // Blanks at the ends are no part of a server's address.
            let bare = text.trim_ascii();
            let is_sound = of_servers(flag) && bare != text && is_taken(bare);
            assert_eq!(is_taken(&text), is_sound, "{called}: {text:?}");
        }
        assert!(is_taken("localhost:50051") && is_taken("[::1]:50051"), "{called} --{flag}");
        seen += 1;
    }
    assert!(seen >= 20, "{seen}");
}

#[test]
fn a_pattern_of_namespaces_is_one_that_some_namespace_has() {
    let patterns =
        |(called, arg): &(String, Arg)| called.starts_with("token new") && arg.get_long() == Some("namespace");
    let arguments = arguments();
    let arg = &arguments.iter().find(|argument| patterns(argument)).expect("there is one").1;
    for text in forms::ids() {
        let is_name = runledger::domain::namespace::is_name(&text) || text == "*";
        assert_eq!(read::<String>(arg, &text).is_some(), is_name, "{text:?}");
    }
    for (text, is_taken) in [("team-*", true), ("A", false), ("a b", false), ("é", false), ("*a", false), ("A*", false)]
    {
        assert_eq!(read::<String>(arg, text).is_some(), is_taken, "{text:?}");
    }
}

#[test]
fn a_file_of_settings_takes_what_the_flags_take() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("settings.toml");
    let is_taken = |arg: &Arg, text: &str| {
        // What JSON escapes, TOML escapes in the same way.
        std::fs::write(&file, format!("{} = {}\n", key(arg), serde_json::to_string(text).unwrap())).unwrap();
        ConfigFile::read(&file).is_ok()
    };
    for arg in settings().iter().filter(|arg| arg.get_action().takes_values()) {
        let texts: Vec<String> = match kind(arg) {
            Some(Kind::Duration) => forms::durations().into_iter().map(|(text, _)| text).collect(),
            Some(Kind::Number) => forms::sizes().into_iter().map(|(text, _)| text).collect(),
            Some(Kind::Share) => forms::shares().into_iter().map(|(text, _)| text).collect(),
            Some(Kind::Time | Kind::Text | Kind::Choice | Kind::Form) => vec![String::new()],
            None => panic!("{}: what do its texts say?", arg.get_id()),
        };
        for text in texts {
            let by_flag = match () {
                () if text.is_empty() => false,
                () if is::<Duration>(arg) => read::<Duration>(arg, &text).is_some(),
                () if is::<u16>(arg) => read::<u16>(arg, &text).is_some(),
                () if is::<u64>(arg) => read::<u64>(arg, &text).is_some(),
                () if is::<usize>(arg) => read::<usize>(arg, &text).is_some(),
                () if is::<NonZeroU32>(arg) => read::<NonZeroU32>(arg, &text).is_some(),
                () => read::<f64>(arg, &text).is_some(),
            };
            assert_eq!(is_taken(arg, &text), by_flag, "{} = {text:?}", key(arg));
        }
    }
}

#[test]
fn every_setting_of_the_environment_is_one_of_a_flag() {
    // A variable is read by the parser of its flag, so that it takes what the flag takes.
    for (called, arg) in arguments() {
        let Some(variable) = arg.get_env() else { continue };
        assert!(variable.to_str().unwrap().starts_with("RUNLEDGER_") && arg.get_long().is_some(), "{called}");
    }
}

#[test]
fn the_rows_of_forms_are_those_that_are_needed() {
    let arguments = arguments();
    let is_needed =
        |flag: &str| arguments.iter().any(|(_, arg)| arg.get_long() == Some(flag) && kind(arg) == Some(Kind::Form));
    let needless: Vec<_> = FORMS.iter().filter(|(flag, _)| !is_needed(flag)).collect();
    assert!(needless.is_empty(), "{needless:?}");
}

#[test]
fn a_retention_has_a_unit() {
    let kept: Vec<_> = arguments()
        .into_iter()
        .filter(|(_, arg)| arg.get_long().is_some_and(|long| ["keep", "keep-failed"].contains(&long)))
        .collect();
    assert!(kept.len() >= 6, "{kept:?}");
    for (called, arg) in kept {
        let is_taken = |text: &str| {
            let alone = Arg::new("alone").long("alone").value_parser(arg.get_value_parser().clone());
            let command = Command::new("alone").no_binary_name(true).arg(alone);
            command.try_get_matches_from([format!("--alone={text}")]).is_ok()
        };
        for (text, means) in forms::durations().into_iter().filter(|(text, _)| text != "ever") {
            let is_bare = text.bytes().all(|byte| byte.is_ascii_digit());
            assert!(!is_taken(&text) || (means.is_some() && !is_bare), "{called}: {text:?}");
        }
        assert!(is_taken("30d") && is_taken("ever") && !is_taken("90") && !is_taken("Ever"), "{called}");
    }
}

#[test]
fn a_label_is_a_key_and_a_value() {
    for (called, arg) in arguments().into_iter().filter(|(_, arg)| arg.get_long() == Some("max-running")) {
        let is_taken = |text: &str| {
            let alone = Arg::new("alone").long("alone").value_parser(arg.get_value_parser().clone());
            let command = Command::new("alone").no_binary_name(true).arg(alone);
            command.try_get_matches_from([format!("--alone={text}")]).is_ok()
        };
        assert!(is_taken("instance=1") && is_taken("a=b=2"), "{called}");
        for text in
            ["instance", "=1", "instance=", "instance=+1", "instance=-1", "instance=1 ", "instance= 1", "a=1k", "a=1.0"]
        {
            assert!(!is_taken(text), "{called}: {text}");
        }
    }
}
