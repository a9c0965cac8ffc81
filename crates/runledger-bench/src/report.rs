//! The report of a measurement: a table for people, or one JSON object for programs.

use std::fmt;
use std::time::Duration;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

pub use super::delays::Summary;

/// The outcome of a measurement. Every name has its unit in it.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The name of the measurement.
    pub bench: &'static str,
    /// The load, in one line.
    pub did: String,
    /// Whether the measurement was ended before its time: the numbers are then of the part that was done.
    pub interrupted: bool,
    /// Numbers by name.
    #[serde(serialize_with = "by_name")]
    pub numbers: Vec<(&'static str, Number)>,
    /// Delays by name.
    #[serde(serialize_with = "by_name")]
    pub delays_ms: Vec<(&'static str, Summary)>,
    /// The same of each round and each side, where there were several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Round>,
    /// The ratios to the other sides of the comparison.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<Ratio>,
    /// Notes for reading the numbers.
    pub notes: Vec<String>,
}

/// One round of a measurement that is made several times.
#[derive(Debug, Serialize)]
pub struct Round {
    /// The round's number, from 1.
    pub round: u32,
    /// The side that was measured in it.
    pub of: &'static str,
    /// Numbers by name.
    #[serde(serialize_with = "by_name")]
    pub numbers: Vec<(&'static str, Number)>,
    /// Delays by name.
    #[serde(serialize_with = "by_name")]
    pub delays_ms: Vec<(&'static str, Summary)>,
}

/// A measured number, divided by the same number of another side in the same round.
#[derive(Debug, Serialize)]
pub struct Ratio {
    /// The side whose number is divided.
    pub of: &'static str,
    /// The side whose number it is divided by.
    pub over: &'static str,
    /// The middle one; the mean of the two in the middle when they are even.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// By round.
    pub each: Vec<f64>,
}

impl Ratio {
    /// The ratio of all rounds; none when there is no round.
    pub(super) fn new(of: &'static str, over: &'static str, each: impl Iterator<Item = f64>) -> Option<Self> {
        let rounded = |ratio: f64| (ratio * 1e3).round() / 1e3;
        let each: Vec<f64> = each.map(rounded).collect();
        let mut sorted = each.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self { of, over, median: rounded(median), min, max, each })
    }
}

/// A number of a report.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Number {
    /// A count.
    Count(u64),
    /// A measure.
    Measure(f64),
}

impl From<u64> for Number {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Number {
    /// To three digits after the point: more would be noise.
    fn from(measure: f64) -> Self {
        Self::Measure((measure * 1e3).round() / 1e3)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Measure(measure) => write!(f, "{measure:.3}"),
        }
    }
}

impl Report {
    /// One JSON object, on one line.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("names are texts")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interrupted = if self.interrupted { " (interrupted)" } else { "" };
        writeln!(f, "{}{interrupted}: {}", self.bench, self.did)?;
        let names = self.numbers.iter().map(|(name, _)| name).chain(self.delays_ms.iter().map(|(name, _)| name));
        let width = names.map(|name| name.len()).max().unwrap_or(0).max("delays (ms)".len());
        for (name, number) in &self.numbers {
            writeln!(f, "  {:<width$}  {:>12}", spoken(name), number.to_string())?;
        }
        if !self.delays_ms.is_empty() {
            let heads = ["count", "p50", "p90", "p99", "p99.9", "max"];
            write!(f, "  {:<width$}", "delays (ms)")?;
            heads.iter().try_for_each(|head| write!(f, "  {head:>9}"))?;
            writeln!(f)?;
        }
        for (name, delays) in &self.delays_ms {
            let Summary { count, p50, p90, p99, p99_9, max } = delays;
            write!(f, "  {:<width$}  {count:>9}", spoken(name))?;
            [p50, p90, p99, p99_9, max].iter().try_for_each(|delay| write!(f, "  {delay:>9.3}"))?;
            writeln!(f)?;
        }
        self.rounds.iter().try_for_each(|round| writeln!(f, "  {round}"))?;
        self.ratios.iter().try_for_each(|ratio| writeln!(f, "  {ratio}"))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "  {note}"))
    }
}

/// 0 in no time.
pub(super) fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { real(count) / time.as_secs_f64() }
}

#[expect(clippy::cast_precision_loss, reason = "what is counted here is far below 2^52")]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round, of, numbers, delays_ms } = self;
        write!(f, "round {round}, {of}:")?;
        let rates = numbers.iter().filter(|(name, _)| name.ends_with("_per_second"));
        rates.enumerate().try_for_each(|(index, (name, rate))| {
            write!(f, "{} {rate} {}", if index == 0 { "" } else { "," }, spoken(name))
        })?;
        match delays_ms.iter().find(|(name, _)| *name == "all_calls") {
            Some((_, Summary { p50, p99, .. })) => write!(f, ", p50 {p50:.3} ms, p99 {p99:.3} ms"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, over, median, min, max, each } = self;
        let rounds = each.len();
        write!(f, "{} over {over}: {median:.3} x ({min:.3} to {max:.3} in {rounds} rounds)", spoken(of))
    }
}

fn spoken(name: &str) -> String {
    name.replace('_', " ")
}

fn by_name<S: Serializer, T: Serialize>(named: &[(&'static str, T)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(named.len()))?;
    named.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let delays = Summary { count: 3, p50: 0.5, p90: 1.0, p99: 2.0, p99_9: 2.0, max: 2.25 };
        Report {
            bench: "watch delay",
            did: "wrote three transitions".into(),
            interrupted: false,
            numbers: vec![("transitions", 3.into()), ("transitions_per_second", 1.23456.into())],
            delays_ms: vec![("commit_to_watcher", delays)],
            rounds: Vec::new(),
            ratios: Vec::new(),
            notes: vec!["A note.".into()],
        }
    }

    #[test]
    fn json_keeps_counts_whole_and_names_in_order() {
        let expected = concat!(
            r#"{"bench":"watch delay","did":"wrote three transitions","interrupted":false,"#,
            r#""numbers":{"transitions":3,"transitions_per_second":1.235},"#,
            r#""delays_ms":{"commit_to_watcher":{"count":3,"p50":0.5,"p90":1.0,"p99":2.0,"p99_9":2.0,"max":2.25}},"#,
            r#""notes":["A note."]}"#
        );
        assert_eq!(report().json(), expected);
    }

    #[test]
    fn a_ratio_has_the_middle_of_its_rounds_and_their_spread() {
        let ratio = Ratio::new("p50", "other", [3.0, 1.0, 2.0].into_iter()).unwrap();
        assert_eq!(ratio.to_string(), "p50 over other: 2.000 x (1.000 to 3.000 in 3 rounds)");
        let even = Ratio::new("p50", "other", [4.0, 1.0, 2.0, 3.0].into_iter()).unwrap();
        assert!((even.median - 2.5).abs() < 1e-9 && (even.each[0] - 4.0).abs() < 1e-9, "{even:?}");
        assert!(Ratio::new("p50", "other", std::iter::empty()).is_none());
    }

    #[test]
    fn a_table_has_a_line_for_each_number_and_its_columns_stand_under_one_another() {
        let text = report().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "watch delay: wrote three transitions");
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[1].len(), lines[2].len());
        assert_eq!(lines[3].len(), lines[4].len());
    }
}
