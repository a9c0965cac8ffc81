//! What stands beside a run: its input, its results, its links.
//!
//! - The event that names a row writes it, in its commit and with its revision. A row changes no more, but for what a
//!   redaction takes out of it, and goes with its run.
//! - The run and its events have the sizes and hashes of inputs and results. Links are in the events whole, and the run
//!   has their number.
//! - So a reader reads the run first, and then takes the rows that the run says it has, by revision and number.

use std::collections::HashMap;

use super::side::{Applied, Side};
use crate::domain::{Command, Content, ContentDigest, Event, Hash, Link, Revision, Run, RunKey, RunWrite};

/// The tables of what stands beside runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentTable {
    /// `run_input`: one row a run.
    Input,
    /// `run_results`: one row for each revision that set a result.
    Result,
    /// `run_links`: one row a link.
    Link,
}

impl ContentTable {
    /// Every table.
    pub const ALL: [Self; 3] = [Self::Input, Self::Result, Self::Link];

    /// The table's name, in both stores.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "run_input",
            Self::Result => "run_results",
            Self::Link => "run_links",
        }
    }

    /// The number by which a commit's statement tells the tables apart.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Input => 1,
            Self::Result => 2,
            Self::Link => 3,
        }
    }
}

/// A row to be written, or as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRow {
    pub table: ContentTable,
    /// The run that it belongs to.
    pub key: RunKey,
    /// The revision that wrote it.
    pub revision: Revision,
    /// The place among the links of the run, from 1; 0 in the other tables.
    pub number: u32,
    /// The [key](Link::key) of a link; none in the other tables, and of a link that was taken out.
    pub link_key: Option<Hash>,
    /// The content, or the link as JSON.
    pub content: String,
}

impl ContentRow {
    /// The row of a link.
    #[must_use]
    pub fn of_link(key: &RunKey, revision: Revision, number: u32, link: &Link) -> Self {
        let (link_key, content) = (Some(link.key()), link.text());
        Self { table: ContentTable::Link, key: key.clone(), revision, number, link_key, content }
    }

    /// The row of an input or a result.
    #[must_use]
    pub fn of_content(table: ContentTable, key: &RunKey, revision: Revision, content: String) -> Self {
        Self { table, key: key.clone(), revision, number: 0, link_key: None, content }
    }
}

/// What the rows of an event must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentsOf<'a> {
    /// The input's digest.
    pub input: Option<ContentDigest>,
    /// The result's digest, also of a late report.
    pub result: Option<ContentDigest>,
    /// The links, with the number of the first.
    pub links: (u32, &'a [Link]),
}

impl<'a> ContentsOf<'a> {
    /// What an event says that stands beside its run, which is the run right after it.
    #[must_use]
    pub fn event(event: &'a Event, run: &Run) -> Self {
        let refinements = event.changes.refinements.as_deref();
        let late = event
            .changes
            .supervision
            .late_report
            .as_ref()
            .and_then(|report| report.result)
            .map(|result| result.content);
        let links = refinements.map_or(&[][..], |refinements| &refinements.attachments.links);
        let added = u32::try_from(links.len()).unwrap_or(u32::MAX);
        Self {
            input: refinements.and_then(|refinements| refinements.attachments.input),
            result: late.or_else(|| refinements.and_then(|refinements| refinements.attachments.result)),
            links: (run.all_links().saturating_sub(added) + 1, links),
        }
    }
}

/// The links of runs, and the rows to be written, as the commands of a batch leave them.
#[derive(Debug)]
pub struct Rows {
    links: HashMap<RunKey, Vec<Hash>>,
    /// None until an event has refinements.
    rows: Option<Vec<ContentRow>>,
}

impl Rows {
    pub(super) fn links(&self, command: &Command) -> &[Hash] {
        if !Self::is_read_for(command, None) {
            return &[];
        }
        self.links.get(&command.key).map_or(&[], Vec::as_slice)
    }
}

impl Side for Rows {
    type Key = RunKey;
    /// The [key](Link::key) of a link of a run.
    type Row = (RunKey, Hash);
    /// Rows that are new: inputs, results, links. None where no event has
    /// [refinements](crate::domain::RefinementsChange): only where one has may a run name other runs as well.
    type Writes = Option<Vec<ContentRow>>;

    fn wanted(command: &Command) -> Option<RunKey> {
        Self::is_read_for(command, None).then(|| command.key.clone())
    }

    fn is_read_for(command: &Command, _: Option<&Run>) -> bool {
        !command.ask.brought().added.is_empty()
    }

    fn of(rows: Vec<Self::Row>) -> Self {
        let mut links: HashMap<RunKey, Vec<Hash>> = HashMap::new();
        for (key, link) in rows {
            links.entry(key).or_default().push(link);
        }
        Self { links, rows: None }
    }

    fn apply(&mut self, Applied { command, event, run, .. }: &Applied<'_>) {
        if !is_refined(event) {
            return;
        }
        let rows = rows(command, event, run);
        for row in &rows {
            if let Some(link) = row.link_key {
                self.links.entry(row.key.clone()).or_default().push(link);
            }
        }
        self.rows.get_or_insert_default().extend(rows);
    }

    fn writes(self, _: &[RunWrite]) -> Self::Writes {
        self.rows
    }
}

fn is_refined(event: &Event) -> bool {
    let late = event.changes.supervision.late_report.as_ref();
    event.changes.refinements.as_ref().is_some_and(|refinements| refinements.has_rows())
        || late.is_some_and(|report| report.result.is_some())
}

/// The rows that a command's event writes; `run` is the run right after it.
#[must_use]
pub fn rows(command: &Command, event: &Event, run: &Run) -> Vec<ContentRow> {
    if !is_refined(event) {
        return Vec::new();
    }
    let (key, revision) = (&event.key, event.revision);
    let ContentsOf { input, result, links: (first, links) } = ContentsOf::event(event, run);
    let of = |table, content: &Content| ContentRow::of_content(table, key, revision, content.text().to_owned());
    let brought = command.ask.brought();
    let input = input.and_then(|_| Some(of(ContentTable::Input, brought.input?)));
    let result = result.and_then(|_| Some(of(ContentTable::Result, brought.result?)));
    let links = (first..).zip(links).map(|(number, link)| ContentRow::of_link(key, revision, number, link));
    input.into_iter().chain(result).chain(links).collect()
}
