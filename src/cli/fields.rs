//! Values of flags: labels, JSON objects, and the words for the proto's enums. Times, durations and numbers are read by
//! [`crate::text`].

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use clap::ValueEnum;

use super::exit::Stop;
use crate::text::{count, object};
use runledger_proto::Struct;
use runledger_proto::{json::structure, v1};

/// Bytes of a file that are read as JSON: far more than the authority takes.
const JSON_READ_BYTES_MAX: u64 = 4 << 20;

/// The route by which a run is executed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Route {
    Mcp,
    Cli,
    Http,
}

impl From<Route> for v1::Route {
    fn from(route: Route) -> Self {
        match route {
            Route::Mcp => Self::Mcp,
            Route::Cli => Self::Cli,
            Route::Http => Self::Http,
        }
    }
}

/// The number of a route that may not be given.
pub(super) fn route(route: Option<Route>) -> i32 {
    route.map_or(v1::Route::Unspecified, v1::Route::from).into()
}

/// A run's status.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Status {
    Pending,
    Running,
    Completed,
    Aborted,
    Failed,
}

impl From<Status> for v1::RunStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Pending => Self::Pending,
            Status::Running => Self::Running,
            Status::Completed => Self::Completed,
            Status::Aborted => Self::Aborted,
            Status::Failed => Self::Failed,
        }
    }
}

/// A label. The value may hold more `=`, and may be empty.
#[derive(Clone, Debug)]
pub(super) struct Label(String, String);

impl FromStr for Label {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok(Self(key.to_owned(), value.to_owned())),
            Some(_) | None => Err("expected KEY=VALUE"),
        }
    }
}

/// The labels of a message: one value for each key.
pub(super) fn labels(given: Vec<Label>) -> Result<HashMap<String, String>, Stop> {
    let mut labels = HashMap::with_capacity(given.len());
    for Label(key, value) in given {
        if labels.contains_key(&key) {
            return Err(Stop::Usage(format!("--label: {key} is given twice")));
        }
        labels.insert(key, value);
    }
    Ok(labels)
}

/// The limit of runs with the same value of a label that may be running.
#[derive(Clone, Debug)]
pub(super) struct MaxRunning {
    label: String,
    limit: u32,
}

impl MaxRunning {
    pub(super) fn message(&self) -> v1::MaxRunning {
        v1::MaxRunning { label: self.label.clone(), limit: self.limit }
    }
}

impl FromStr for MaxRunning {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A key may hold more `=`, a number none.
        match text.rsplit_once('=').map(|(label, limit)| (label, count(limit))) {
            Some((label, Ok(limit))) if !label.is_empty() => Ok(Self { label: label.to_owned(), limit }),
            Some(_) | None => Err("expected LABEL=N with an N of 1 to 100, such as instance=1"),
        }
    }
}

/// A JSON object, or where it stands: in a file that is named behind `@`, or on standard input.
#[derive(Clone, Debug)]
pub(super) struct JsonSource(String);

impl FromStr for JsonSource {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl JsonSource {
    /// Reads the object for a flag.
    fn read(&self, flag: &str) -> Result<Struct, Stop> {
        let usage = |what: String| Stop::Usage(format!("{flag}: {what}"));
        let (name, text) = match (self.0.as_str(), self.0.strip_prefix('@')) {
            ("-", _) => ("standard input", text_of(std::io::stdin().lock())),
            (_, Some("")) => return Err(usage("expected the name of a file behind the @".to_owned())),
            (_, Some(path)) => {
                let text = runledger_files::text_once(path.as_ref(), JSON_READ_BYTES_MAX);
                (path, text.map_err(|error| format!("cannot be read: {error}")))
            }
            (text, None) => ("", Ok(text.to_owned())),
        };
        let text = text.map_err(|what| usage(format!("{name} {what}")))?;
        let object = object(&text).map_err(|error| {
            usage(match name {
                "" if is_file(&text) => format!("expected a JSON object, @FILE or -: @{text} names the file"),
                "" if !text.trim_start().starts_with(['{', '[', '"']) => {
                    format!("expected a JSON object, @FILE or -: {error}; a file is named as @FILE")
                }
                "" => format!("expected a JSON object, @FILE or -: {error}"),
                name => format!("{name} has no JSON object that can be kept as it is: {error}"),
            })
        })?;
        Ok(structure(&object))
    }
}

/// Reads the object that a flag may be given.
pub(super) fn json(flag: &str, source: Option<&JsonSource>) -> Result<Option<Struct>, Stop> {
    source.map(|source| source.read(flag)).transpose()
}

fn is_file(text: &str) -> bool {
    !text.trim_start().starts_with('{') && Path::new(text).is_file()
}

fn text_of(source: impl Read) -> Result<String, String> {
    let mut text = String::new();
    let read = source.take(JSON_READ_BYTES_MAX + 1).read_to_string(&mut text);
    let read = read.map_err(|error| format!("cannot be read: {error}"))?;
    if read as u64 > JSON_READ_BYTES_MAX { Err("is too large".to_owned()) } else { Ok(text) }
}

/// A kind of suspension, as the server takes it.
pub(super) fn suspension_kind(text: &str) -> Result<String, &'static str> {
    let is_one = text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    if is_one {
        Ok(text.to_owned())
    } else {
        Err("a kind is 1 to 64 characters of [A-Z0-9_], a letter first, such as HELP")
    }
}

/// A number of things, of which there must be some.
pub(super) fn at_least_one(text: &str) -> Result<u64, &'static str> {
    count(text).ok().filter(|number| *number > 0).ok_or("expected a number from 1")
}

/// Which runs a claim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Take {
    /// Runs that are pending.
    Pending,
    /// Runs that were suspended and are ready to go on.
    Ready,
    /// Both.
    Both,
}

impl Take {
    pub(super) fn message(self) -> i32 {
        let take = match self {
            Self::Pending => v1::ClaimTake::Pending,
            Self::Ready => v1::ClaimTake::Ready,
            Self::Both => v1::ClaimTake::Both,
        };
        take.into()
    }
}
