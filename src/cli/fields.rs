//! Values of flags: labels, metadata, times, durations, and the words for the proto's enums.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;

use super::ending::Stop;
use crate::config;
use crate::domain::Time;
use runledger_proto::Struct;
use runledger_proto::{json::structure, v1};

/// Bytes of a file that are read as metadata: far more than the authority takes.
const METADATA_READ_BYTES_MAX: u64 = 4 << 20;

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
        match text.rsplit_once('=').map(|(label, limit)| (label, limit.parse())) {
            Some((label, Ok(limit))) if !label.is_empty() => Ok(Self { label: label.to_owned(), limit }),
            Some(_) | None => Err("expected LABEL=N with an N of 1 to 100, such as instance=1"),
        }
    }
}

/// A JSON object, or where it stands.
#[derive(Clone, Debug)]
pub(super) struct MetadataSource(String);

impl FromStr for MetadataSource {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl MetadataSource {
    /// Reads the object.
    pub(super) fn read(&self) -> Result<Struct, Stop> {
        let usage = |what: String| Stop::Usage(format!("--metadata: {what}"));
        let text = match (self.0.as_str(), self.0.strip_prefix('@')) {
            ("-", _) => text_of(std::io::stdin().lock()).map_err(|what| usage(format!("standard input {what}")))?,
            (_, Some(path)) => {
                let file = File::open(path).map_err(|error| usage(format!("{path} cannot be read: {error}")))?;
                text_of(file).map_err(|what| usage(format!("{path} {what}")))?
            }
            (text, None) => text.to_owned(),
        };
        match serde_json::from_str::<serde_json::Map<_, _>>(&text) {
            Ok(map) => Ok(structure(&map)),
            Err(error) => Err(usage(format!("expected a JSON object, @FILE or -: {error}"))),
        }
    }
}

/// A file that has a JSON object, or `-`.
#[derive(Clone, Debug)]
pub(super) struct ContentSource(String);

impl FromStr for ContentSource {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl ContentSource {
    /// Reads the object for a flag.
    pub(super) fn read(&self, flag: &str) -> Result<Struct, Stop> {
        let usage = |what: String| Stop::Usage(format!("{flag}: {what}"));
        let (name, text) = if self.0 == "-" {
            ("standard input", text_of(std::io::stdin().lock()))
        } else {
            let file = File::open(&self.0).map_err(|error| usage(format!("{} cannot be read: {error}", self.0)))?;
            (self.0.as_str(), text_of(file))
        };
        let text = text.map_err(|what| usage(format!("{name} {what}")))?;
        let object = serde_json::from_str::<serde_json::Map<_, _>>(&text);
        object.map(|object| structure(&object)).map_err(|error| usage(format!("{name} is no JSON object: {error}")))
    }
}

fn text_of(source: impl Read) -> Result<String, String> {
    let mut text = String::new();
    let read = source.take(METADATA_READ_BYTES_MAX + 1).read_to_string(&mut text);
    let read = read.map_err(|error| format!("cannot be read: {error}"))?;
    if read as u64 > METADATA_READ_BYTES_MAX { Err("is too large".to_owned()) } else { Ok(text) }
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
    text.parse().ok().filter(|number| *number > 0).ok_or("expected a number from 1")
}

/// A time in RFC 3339.
pub(super) fn time(text: &str) -> Result<Time, String> {
    let time: jiff::Timestamp =
        text.parse().map_err(|error| format!("expected a time such as 2026-11-22T10:00:00Z: {error}"))?;
    Ok(Time::from_micros(time.as_microsecond()))
}

/// Seconds, or a number with a unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_no_number) => config::duration(text).map_err(|expected| format!("{expected}, or seconds")),
    }
}

/// The same, and more than nothing: for a time in which something is to be done.
pub(super) fn time_limit(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|it| if it.is_zero() { Err("expected more than 0".to_owned()) } else { Ok(it) })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_seconds_or_has_units_up_to_days() {
        for (text, seconds) in
            [("0", 0), ("90", 90), ("1500ms", 1), ("1h30m", 5_400), ("3d", 259_200), ("1d 12h", 129_600)]
        {
            assert_eq!(duration(text).unwrap().as_secs(), seconds, "{text}");
        }
        for text in ["", "soon", "-1", "-3d", "1month", "1y", "3 d 4"] {
            let said = duration(text).unwrap_err();
            assert_eq!(said, "expected a duration such as 500ms, 90s, 1m 30s, 2h or 3d, or seconds", "{text}");
        }
        assert!(time_limit("0s").is_err() && time_limit("1ms").is_ok());
    }
}
