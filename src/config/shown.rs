//! The settings of a server as they hold, and where each comes from; and the reference of all settings.

use std::fmt::Write as _;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

use super::file::{ConfigFile, key, settings};
use crate::store::open::Location;

/// A setting as it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its key in a file.
    pub key: String,
    /// Its values; none where it is not set.
    pub values: Vec<String>,
    /// Where it comes from.
    pub source: Source,
}

/// Where a setting comes from. The first that names a setting is the one that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// The file.
    File,
    /// Nobody named it.
    Default,
}

impl Source {
    /// The source's name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

/// The settings that a command line makes, with the file's beneath it. A password is not among them.
#[must_use]
pub fn shown(matches: &ArgMatches, file: &ConfigFile) -> Vec<Setting> {
    let of = |arg: Arg| {
        let (key, id) = (key(&arg), arg.get_id().as_str());
        let source = match matches.value_source(id) {
            Some(ValueSource::CommandLine) => Source::Flag,
            Some(ValueSource::EnvVariable) => Source::Environment,
            Some(_) | None if file.has(&key) => Source::File,
            Some(_) | None => Source::Default,
        };
        let values = if matches!(arg.get_action(), ArgAction::SetTrue) {
            vec![matches.get_flag(id).to_string()]
        } else {
            let raw = matches.get_raw(id).into_iter().flatten();
            raw.map(|value| without_password(&key, &value.to_string_lossy())).collect::<Vec<_>>()
        };
        if let (true, [], Some(shared)) =
            (key == "otlp_endpoint", values.as_slice(), super::telemetry::shared_endpoint())
        {
            return Setting { key, values: vec![shared], source: Source::Environment };
        }
        Setting { key, values, source }
    };
    settings().into_iter().map(of).collect()
}

fn without_password(key: &str, value: &str) -> String {
    if key != "store" {
        return value.to_owned();
    }
    value.parse().map_or_else(|_| "***".to_owned(), |location: Location| location.to_string())
}

/// Settings as a file that says the same.
#[must_use]
pub fn as_file(settings: &[Setting]) -> String {
    let mut text = String::new();
    for Setting { key, values, source } in settings {
        let line = match values.as_slice() {
            [] => format!("# {key} is not set"),
            [one] => format!("{key} = {}", literal(one)),
            several => {
                format!("{key} = [{}]", several.iter().map(|value| literal(value)).collect::<Vec<_>>().join(", "))
            }
        };
        let _written =
            if values.is_empty() { writeln!(text, "{line}") } else { writeln!(text, "{line:<60} # {}", source.name()) };
    }
    text
}

fn literal(value: &str) -> String {
    let is_plain = value == "true" || value == "false" || value.parse::<u64>().is_ok();
    if is_plain { value.to_owned() } else { toml::Value::String(value.to_owned()).to_string() }
}

/// The settings that hold from the next look at the file on; all others hold from the next start.
pub const RELOADED: &[&str] =
    &["caller_calls_per_second", "caller_open_calls", "log", "trace_sample_ratio", "wait_max"];

/// The reference of all settings, in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from(
        "| key | flag and variable | default | changes hold | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for arg in settings() {
        let key = key(&arg);
        let flag = format!("--{}", arg.get_long().unwrap_or_default());
        let variable = arg.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let default = match (defaults.join(","), arg.get_action()) {
            (_, ArgAction::SetTrue) => "`false`".to_owned(),
            (none, _) if none.is_empty() => String::new(),
            (default, _) => format!("`{default}`"),
        };
        let holds = if RELOADED.contains(&key.as_str()) { "at once" } else { "after a restart" };
        let mut meaning = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let valid: Vec<_> = arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
        if !valid.is_empty() && !matches!(arg.get_action(), ArgAction::SetTrue) {
            let _written = write!(meaning, ": {}", valid.join(", "));
        }
        let meaning = meaning.replace('|', "\\|");
        let _written = writeln!(text, "| `{key}` | `{flag}` `{variable}` | {default} | {holds} | {meaning} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::*;
    use crate::config::ServeConfig;

    #[test]
    fn what_is_shown_is_a_file_that_says_the_same_and_holds_no_password() {
        let command = ServeConfig::augment_args(Command::new("serve")).no_binary_name(true);
        let words = ["--store=postgres://u:hunter2@h/d", "--wait-max=1m 30s", "--auth=token,jwt", "--connections=9"];
        let settings = shown(&command.clone().try_get_matches_from(words).unwrap(), &ConfigFile::default());
        let text = as_file(&settings);
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("wait_max = \"1m 30s\""), "{text}");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shown.toml");
        std::fs::write(&path, &text).unwrap();
        let file = ConfigFile::read(&path).unwrap();
        let again = shown(&file.clone().beneath(command, &[]).try_get_matches_from(Vec::<&str>::new()).unwrap(), &file);
        let values = |settings: &[Setting]| -> Vec<_> {
            settings.iter().map(|setting| (setting.key.clone(), setting.values.clone())).collect()
        };
        assert_eq!(values(&again), values(&settings));
        assert!(again.iter().any(|setting| setting.source == Source::File));
    }

    #[test]
    fn every_setting_has_a_variable_of_its_own_and_a_meaning() {
        for arg in settings() {
            let key = key(&arg);
            assert_eq!(arg.get_env().unwrap().to_string_lossy(), format!("RUNLEDGER_{}", key.to_uppercase()));
            assert!(arg.get_help().is_some(), "{key}");
        }
        for reloaded in RELOADED {
            assert!(settings().iter().any(|arg| key(arg) == *reloaded), "{reloaded}");
        }
    }

    #[test]
    fn the_reference_in_the_docs_is_that_of_the_settings() {
        let docs = include_str!("../../docs/configuration.md");
        assert!(docs.contains(&reference()), "put this into docs/configuration.md:\n{}", reference());
    }
}
