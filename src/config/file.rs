//! The file of a server's settings (TOML). A key is a flag's name, with `_` for `-`; so what a setting means, and which
//! values it takes, is said once, by the flag.
//!
//! A file is taken whole or not at all, and all mistakes in it are told at once.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command};
use toml::de::{DeTable, DeValue};

use super::ServeConfig;

/// Bytes of the longest file that is read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The name of the flag that names the file, which the file itself cannot have.
const OWN_FLAG: &str = "config";

/// The name of the argument that names the file for those who only look at it.
const POSITIONAL: &str = "file";

/// The settings that say the same thing in two ways: whoever names one sets the file's other one aside.
const ALTERNATIVES: &[&str] = &["store", "store_file"];

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFile {
    values: Vec<(String, Vec<String>)>,
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Every mistake in it, with its line.
    pub fn read(path: &Path) -> Result<Self, Vec<String>> {
        let shown = path.display();
        let text = text(path).map_err(|error| vec![format!("cannot read {shown}: {error}")])?;
        let at_line = |(line, mistake): (usize, String)| format!("{shown}:{line}: {mistake}");
        Self::parse(&text).map_err(|mistakes| mistakes.into_iter().map(at_line).collect())
    }

    /// What a text says; else every mistake, and its line.
    fn parse(text: &str) -> Result<Self, Vec<(usize, String)>> {
        let line = |at: usize| text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
        let table = DeTable::parse(text).map_err(|error| {
            vec![(error.span().map_or(1, |span| line(span.start)), format!("not TOML: {}", error.message()))]
        })?;
        let settings = settings();
        let (mut values, mut mistakes) = (Vec::new(), Vec::new());
        for (key, value) in table.get_ref() {
            let at = line(key.span().start);
            let key = &**key.get_ref();
            let Some(arg) = settings.iter().find(|arg| self::key(arg) == key) else {
                mistakes.push((at, unknown(key, &settings)));
                continue;
            };
            let texts = texts(value.get_ref(), arg).and_then(|texts| {
                let is_empty = texts.iter().any(String::is_empty);
                if is_empty { Err("is empty: give it a value, or leave it out".to_owned()) } else { Ok(texts) }
            });
            match texts.and_then(|texts| try_values(arg, &texts).map(|()| texts)) {
                Ok(texts) => values.push((key.to_owned(), texts)),
                Err(expected) => mistakes.push((at, format!("`{key}`: {expected}"))),
            }
        }
        mistakes.sort_by_key(|(line, _)| *line);
        if mistakes.is_empty() { Ok(Self { values }) } else { Err(mistakes) }
    }

    /// Whether the file has a key.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.values.iter().any(|(own, _)| own == key)
    }

    /// The command whose settings have the file's values where neither a flag nor the environment says otherwise.
    /// `words`: all after the command's name.
    #[must_use]
    pub fn beneath(mut self, command: Command, words: &[OsString]) -> Command {
        if self.values.iter().any(|(key, _)| ALTERNATIVES.contains(&key.as_str())) {
            let given = leniently(&command, words);
            let is_given = |arg: &Arg| {
                let source = given.as_ref().and_then(|given| given.value_source(arg.get_id().as_str()));
                matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
            };
            let mut alternatives = command.get_arguments().filter(|arg| ALTERNATIVES.contains(&key(arg).as_str()));
            if alternatives.any(is_given) {
                self.values.retain(|(key, _)| !ALTERNATIVES.contains(&key.as_str()));
            }
        }
        command.mut_args(|arg| {
            let own = arg.get_long().is_some().then(|| key(&arg));
            match self.values.iter().find(|(key, _)| Some(key) == own.as_ref()) {
                Some((_, values)) => arg.default_values(values.clone()),
                None => arg,
            }
        })
    }
}

/// The command where a setting that a flag names sets aside what the environment says in the other way. `words`: all after
/// the command's name.
#[must_use]
pub fn set_aside(command: Command, words: &[OsString]) -> Command {
    let given = leniently(&command, words);
    let is_named = |arg: &Arg| {
        let source = given.as_ref().and_then(|given| given.value_source(arg.get_id().as_str()));
        ALTERNATIVES.contains(&key(arg).as_str()) && source == Some(ValueSource::CommandLine)
    };
    if !command.get_arguments().any(is_named) {
        return command;
    }
    command.mut_args(|arg| {
        if ALTERNATIVES.contains(&key(&arg).as_str()) && !is_named(&arg) { arg.env(Resettable::Reset) } else { arg }
    })
}

/// Whether a command takes a file of settings.
#[must_use]
pub fn is_taken_by(command: &Command) -> bool {
    command.get_arguments().any(|arg| arg.get_long() == Some(OWN_FLAG))
}

/// What a command line and the environment say, before either is checked.
fn leniently(command: &Command, words: &[OsString]) -> Option<ArgMatches> {
    let lenient = command.clone().ignore_errors(true).no_binary_name(true).disable_help_flag(true);
    lenient.try_get_matches_from(words).ok()
}

/// The file that a command line or the environment names, before either is checked, and the variable where it is that.
/// `words`: all after the subcommand's name.
#[must_use]
pub fn named(command: &Command, words: &[OsString]) -> Option<(PathBuf, Option<OsString>)> {
    let matches = leniently(command, words)?;
    let of = |id| matches.try_get_one::<PathBuf>(id).ok().flatten().cloned();
    if let Some(path) = of(POSITIONAL) {
        return Some((path, None));
    }
    let path = of(OWN_FLAG)?;
    let is_variable = matches.value_source(OWN_FLAG) == Some(ValueSource::EnvVariable);
    let own = command.get_arguments().find(|arg| arg.get_id() == OWN_FLAG);
    Some((path, own.and_then(Arg::get_env).filter(|_| is_variable).map(ToOwned::to_owned)))
}

/// The text of a file, within its bound.
///
/// # Errors
///
/// The file is too large, is no file, or cannot be read.
pub fn text(path: &Path) -> io::Result<String> {
    // It is looked at again and again.
    runledger_files::text(path, FILE_BYTES_MAX)
}

/// All settings of a server, as its flags.
#[must_use]
pub fn settings() -> Vec<Arg> {
    let command = ServeConfig::augment_args(Command::new("serve"));
    command.get_arguments().filter(|arg| arg.get_long().is_some_and(|long| long != OWN_FLAG)).cloned().collect()
}

/// The key of a flag in a file.
#[must_use]
pub fn key(arg: &Arg) -> String {
    arg.get_long().unwrap_or_default().replace('-', "_")
}

fn unknown(key: &str, settings: &[Arg]) -> String {
    // A key may hold anything, and is told on a terminal.
    let key = &key.escape_debug().to_string();
    let near = settings.iter().map(self::key).map(|own| (strsim::jaro_winkler(key, &own), own));
    match near.max_by(|(one, _), (other, _)| one.total_cmp(other)).filter(|(nearness, _)| *nearness > 0.7) {
        Some((_, nearest)) => format!("unknown key `{key}`: did you mean `{nearest}`?"),
        None => format!("unknown key `{key}`: `runledger serve --help` lists the settings, a key is a flag's name"),
    }
}

/// A value as a flag would be given it.
fn texts(value: &DeValue<'_>, arg: &Arg) -> Result<Vec<String>, String> {
    let is_list = arg.get_value_delimiter().is_some();
    if let DeValue::Array(values) = value {
        if !is_list {
            return Err("expected one value, not a list".to_owned());
        }
        let texts = values.iter().map(|value| one(value.get_ref())).collect::<Option<_>>();
        return texts.ok_or_else(|| "expected texts".to_owned());
    }
    one(value).map(|text| vec![text]).ok_or_else(|| "expected a text, a number, true or false".to_owned())
}

fn one(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.as_str().replace('_', "")),
        DeValue::Float(number) => Some(number.as_str().replace('_', "")),
        DeValue::Boolean(whether) => Some(whether.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// Whether a setting takes these values, by the rule of its flag.
fn try_values(arg: &Arg, texts: &[String]) -> Result<(), String> {
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        let is_flag = texts.iter().all(|text| text == "true" || text == "false");
        return if is_flag { Ok(()) } else { Err("expected true or false".to_owned()) };
    }
    let alone = arg.clone().env(Resettable::Reset).required(false);
    let words = texts.iter().map(|text| format!("--{}={text}", arg.get_long().unwrap_or_default()));
    match Command::new("serve").no_binary_name(true).arg(alone).try_get_matches_from(words) {
        Ok(_) => Ok(()),
        Err(error) => Err(expected(&error)),
    }
}

/// What clap expected, in a few words and without the value, which may be a secret.
fn expected(error: &clap::Error) -> String {
    if let Some(ContextValue::Strings(valid)) = error.get(ContextKind::ValidValue)
        && error.kind() == ErrorKind::InvalidValue
    {
        return format!("expected one of {}", valid.join(", "));
    }
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.kind().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_is_told_with_its_line_and_the_nearest_key() {
        let text = "listen = \"127.0.0.1:1\"\nlisten_adress = \"x\"\nconnections = 2\nlog_format = \"xml\"\n\
                    wait_max = [1]\n[tls]\ncert = \"c\"\n";
        let mistakes = ConfigFile::parse(text).unwrap_err();
        let wanted = [
            (2, "unknown key `listen_adress`: did you mean `listen`?"),
            (3, "`connections`: 2 is not in 3..=1000"),
            (4, "`log_format`: expected one of text, json"),
            (5, "`wait_max`: expected one value, not a list"),
            (6, "unknown key `tls`: did you mean `tls_key`?"),
        ];
        let lines: Vec<_> = mistakes.iter().map(|(line, text)| (*line, text.as_str())).collect();
        assert_eq!(lines, wanted);
    }

    #[test]
    fn a_text_that_is_not_toml_is_told_by_its_line() {
        let mistakes = ConfigFile::parse("listen = \"a:1\"\nlog = \n").unwrap_err();
        assert_eq!(mistakes[0].0, 2);
        assert!(mistakes[0].1.starts_with("not TOML"), "{mistakes:?}");
    }

    #[test]
    fn an_empty_text_is_not_taken_for_none() {
        for key in settings().iter().map(key) {
            for empty in ["\"\"", "[\"\"]"] {
                assert!(ConfigFile::parse(&format!("{key} = {empty}")).is_err(), "{key} = {empty}");
            }
        }
    }

    #[test]
    fn a_mistake_shows_no_value() {
        for text in ["store = [\"postgres://u:hunter2@h/d\"]", "memory_limit = \"hunter2\"", "hunter = 1"] {
            let mistakes = ConfigFile::parse(text).unwrap_err();
            assert!(!mistakes[0].1.contains("hunter2"), "{mistakes:?}");
        }
    }

    #[test]
    fn a_setting_takes_what_its_flag_takes() {
        let file = ConfigFile::parse(
            "listen = \"[::1]:0\"\ninsecure = true\nnotify = \"off\"\nconnections = 12\nauth = [\"token\", \"jwt\"]\n\
             trace_sample_ratio = 0.5\nwait_max = \"1h\"",
        );
        let command = file.unwrap().beneath(ServeConfig::augment_args(Command::new("serve")), &[]);
        let matches = command.no_binary_name(true).try_get_matches_from(["--wait-max=2h"]).unwrap();
        let config = <ServeConfig as clap::FromArgMatches>::from_arg_matches(&matches).unwrap();
        assert!(config.insecure && !config.store.notify);
        assert_eq!((config.store.connections, config.auth.len()), (12, 2));
        assert!((config.telemetry.trace_sample_ratio - 0.5).abs() < f64::EPSILON);
        assert_eq!(config.wait_max, std::time::Duration::from_hours(2), "a flag is above the file");
    }

    #[test]
    fn a_store_that_a_flag_names_sets_aside_the_files_however_either_names_it() {
        for (text, flag, values) in [
            ("store = \"memory\"", "--store-file=f", (None, Some("f"))),
            ("store_file = \"g\"", "--store=memory", (Some("memory"), None)),
            ("store_file = \"g\"", "--store-file=f", (None, Some("f"))),
            ("store_file = \"g\"", "--wait-max=1h", (None, Some("g"))),
        ] {
            let words = [OsString::from(flag)];
            let serve = ServeConfig::augment_args(Command::new("serve"));
            let command = ConfigFile::parse(text).unwrap().beneath(serve, &words).no_binary_name(true);
            let matches = command.try_get_matches_from(&words).unwrap();
            let of = |id| matches.get_raw(id).and_then(|mut raw| raw.next()).map(|raw| raw.to_str().unwrap());
            assert_eq!((of("location"), of("store_file")), values, "{text} {flag}");
        }
    }
}
