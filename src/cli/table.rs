//! Text in columns: as wide as its cells, and on a terminal no wider than that.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Between columns.
const GAP: &str = "  ";

/// A column, and the way in which it is made narrower where the terminal has no room for all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    name: &'static str,
    cut: Cut,
    /// The usual width of the cells, so that the lines of a watch stand under one another from the first.
    usual: usize,
    /// The width to which the column is narrowed before columns are left out.
    comfortable: usize,
    /// The order in which columns are left out: those with the greatest number first. 0: never.
    leaves: u8,
}

/// The place at which a cell is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Never: half a time or half a status would be another one.
    Never,
    /// In its middle: ids that a program made are alike where they begin, and differ at their end.
    Middle,
    /// At its end.
    End,
}

impl Cut {
    /// The smallest width of a column.
    fn least(self) -> usize {
        match self {
            Self::Never => usize::MAX,
            Self::Middle => 13,
            Self::End => 8,
        }
    }
}

impl Column {
    /// A column whose cells are shown whole.
    pub(super) const fn whole(name: &'static str) -> Self {
        Self { name, cut: Cut::Never, usual: 0, comfortable: usize::MAX, leaves: 0 }
    }

    /// A column of ids.
    pub(super) const fn ids(name: &'static str, comfortable: usize) -> Self {
        Self { name, cut: Cut::Middle, usual: 0, comfortable, leaves: 0 }
    }

    /// A column of texts.
    pub(super) const fn texts(name: &'static str) -> Self {
        Self { name, cut: Cut::End, usual: 0, comfortable: 12, leaves: 0 }
    }

    pub(super) const fn usual(self, usual: usize) -> Self {
        Self { usual, ..self }
    }

    /// The same, left out before those with a lesser number.
    pub(super) const fn leaves(self, leaves: u8) -> Self {
        Self { leaves, ..self }
    }
}

/// Rows under a header, a few at a time. Columns widen as wider cells come.
#[derive(Debug)]
pub(super) struct Table {
    columns: &'static [Column],
    widths: Vec<usize>,
    /// The columns in which nothing has stood yet.
    empty: Vec<bool>,
    /// Of the terminal; without one nothing is cut.
    width_max: Option<usize>,
}

impl Table {
    pub(super) fn new(columns: &'static [Column], width_max: Option<usize>) -> Self {
        let widths = columns.iter().map(|column| column.name.width().max(column.usual)).collect();
        Self { columns, widths, empty: vec![true; columns.len()], width_max }
    }

    /// The names of the columns, wide enough for these rows.
    pub(super) fn header(&mut self, rows: &[Vec<String>]) -> String {
        self.widen(rows);
        let names: Vec<_> = self.columns.iter().map(|column| column.name.to_owned()).collect();
        self.line(&names, &self.fitting())
    }

    /// A line for each row.
    pub(super) fn lines(&mut self, rows: &[Vec<String>]) -> Vec<String> {
        self.widen(rows);
        let widths = self.fitting();
        rows.iter().map(|row| self.line(row, &widths)).collect()
    }

    fn widen(&mut self, rows: &[Vec<String>]) {
        for row in rows {
            for ((width, empty), cell) in self.widths.iter_mut().zip(&mut self.empty).zip(row) {
                *width = (*width).max(shown(cell).width());
                *empty &= cell.is_empty();
            }
        }
    }

    /// The widths; none of a column that is left out. The widest give way first, then columns leave, and then ids and
    /// texts become as short as they may.
    fn fitting(&self) -> Vec<Option<usize>> {
        let mut widths: Vec<_> = self.widths.iter().copied().map(Some).collect();
        let Some(width_max) = self.width_max else { return widths };
        // Wider than all of it, none is shown.
        widths.iter_mut().flatten().for_each(|width| *width = (*width).min(width_max));
        loop {
            let mut narrower = widths.clone();
            if self.narrow(&mut narrower, width_max, |column| column.comfortable) {
                return narrower;
            }
            // An empty column is left out before all others.
            let order = self
                .columns
                .iter()
                .zip(&self.empty)
                .map(|(column, empty)| if *empty { u8::MAX } else { column.leaves });
            let there = order.zip(&mut widths).filter(|(leaves, width)| *leaves > 0 && width.is_some());
            match there.max_by_key(|(leaves, _)| *leaves) {
                Some((_, width)) => *width = None,
                None => break,
            }
        }
        self.narrow(&mut widths, width_max, |column| column.cut.least());
        widths
    }

    /// Makes the widest column narrower, and again, until the line fits. False when it never does.
    fn narrow(&self, widths: &mut [Option<usize>], width_max: usize, least: impl Fn(&Column) -> usize) -> bool {
        loop {
            let there = widths.iter().flatten().count();
            if widths.iter().flatten().sum::<usize>() + GAP.len() * there.saturating_sub(1) <= width_max {
                return true;
            }
            let give_way = self.columns.iter().zip(&mut *widths).filter_map(|(column, width)| {
                width.as_mut().filter(|width| **width > least(column)).map(|width| (column.cut, width))
            });
            // A text that is cut still says something, and an id cannot be copied.
            match give_way.max_by_key(|(cut, width)| (*cut == Cut::End, **width)) {
                Some((_, widest)) => *widest -= 1,
                None => return false,
            }
        }
    }

    fn line(&self, cells: &[String], widths: &[Option<usize>]) -> String {
        let mut line = String::new();
        for ((column, cell), width) in self.columns.iter().zip(cells).zip(widths) {
            let Some(width) = *width else { continue };
            if !line.is_empty() {
                line.push_str(GAP);
            }
            let cell = shown(cell);
            let cell = match column.cut {
                _ if self.width_max.is_none() => cell,
                Cut::Never => cell,
                Cut::Middle => cut_middle(&cell, width),
                Cut::End => cut(&cell, width),
            };
            line.push_str(&cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.width())));
        }
        line.truncate(line.trim_end().len());
        // Columns at their narrowest may still be too many for the terminal: a line that wraps would break the picture.
        match self.width_max {
            Some(width_max) => cut(&line, width_max).into_owned(),
            None => line,
        }
    }
}

/// A text without anything that a terminal obeys or hides: control characters, line breaks, marks that turn the
/// direction of writing. Such characters are shown as Rust's escapes.
pub(super) fn shown(text: &str) -> Cow<'_, str> {
    let plain = |character: char| matches!(character, ' '..='~');
    if text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if plain(character) {
            shown.push(character);
        } else {
            shown.extend(character.escape_debug());
        }
    }
    Cow::Owned(shown)
}

/// The beginning of a text that fits, and a mark where it was cut.
pub(super) fn cut(text: &str, width_max: usize) -> Cow<'_, str> {
    if text.width() <= width_max {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    let mut width = 1;
    for character in text.chars() {
        width += character.width().unwrap_or(0);
        if width > width_max {
            break;
        }
        shown.push(character);
    }
    if width_max > 0 {
        shown.push('…');
    }
    Cow::Owned(shown)
}

/// The beginning and the end of a text that fits, more of its end, and a mark between them.
fn cut_middle(text: &str, width_max: usize) -> Cow<'_, str> {
    if text.width() <= width_max {
        return Cow::Borrowed(text);
    }
    let mut end = String::new();
    let mut width = 0;
    for character in text.chars().rev() {
        width += character.width().unwrap_or(0);
        if width > width_max.saturating_sub(1) * 2 / 3 {
            break;
        }
        end.insert(0, character);
    }
    let mut shown = cut(text, width_max.saturating_sub(end.width())).into_owned();
    shown.push_str(&end);
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[Column::ids("ID", 20), Column::texts("WHAT")];

    fn rows(cells: &[[&str; 2]]) -> Vec<Vec<String>> {
        cells.iter().map(|row| row.map(str::to_owned).to_vec()).collect()
    }

    #[test]
    fn columns_stand_under_one_another_whatever_is_in_them() {
        let rows = rows(&[["a", "x"], ["run-1", "y"], ["日本", "z"], ["é\u{1b}[2J", "w"]]);
        let mut table = Table::new(COLUMNS, None);
        assert_eq!(table.header(&rows), "ID          WHAT");
        let lines = table.lines(&rows);
        assert_eq!(lines[..3], ["a           x", "run-1       y", "日本        z"]);
        assert_eq!(lines[3], "é\\u{1b}[2J  w");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let long = "日".repeat(300);
        let rows = rows(&[[&long, "short"], ["run-1", &long]]);
        for width_max in [0, 1, 2, 5, 10, 14, 40, 80, 1_000] {
            let mut table = Table::new(COLUMNS, Some(width_max));
            let header = table.header(&rows);
            for line in table.lines(&rows).iter().chain([&header]) {
                assert!(line.width() <= width_max, "{width_max}: {line}");
            }
        }
        let mut table = Table::new(COLUMNS, Some(26));
        assert_eq!(table.lines(&rows)[1], "run-1             日日日…");
    }

    #[test]
    fn times_and_statuses_are_shown_whole_and_ids_by_their_ends() {
        const COLUMNS: &[Column] = &[
            Column::ids("ID", 20),
            Column::whole("STATUS"),
            Column::ids("AGENT", 13).leaves(2),
            Column::whole("AGE").leaves(1),
        ];
        let row = ["0199ab00-0000-7000-8000-000000012345", "running → completed", "agent-of-all", "12d03h"];
        let rows = [row.map(str::to_owned).to_vec()];
        for (width_max, line) in [
            (80, "0199ab00-0000-7000-8000-000000012345  running → completed  agent-of-all  12d03h"),
            (78, "0199ab00-000…7000-8000-000000012345  running → completed  agent-of-all  12d03h"),
            (60, "0199ab00-0…00-8000-000000012345  running → completed  12d03h"),
            (45, "0199ab00…00-000000012345  running → completed"),
            (36, "0199a…000012345  running → completed"),
        ] {
            let lines = Table::new(COLUMNS, Some(width_max)).lines(&rows);
            assert!(lines[0].width() <= width_max, "{}", lines[0]);
            assert_eq!(lines[0], line, "{width_max}");
        }
    }

    #[test]
    fn a_column_in_which_nothing_stands_goes_before_all_others() {
        let rows = rows(&[["0123456789012", ""]]);
        assert_eq!(Table::new(COLUMNS, Some(16)).lines(&rows), ["0123456789012"]);
        assert_eq!(Table::new(COLUMNS, Some(16)).header(&rows), "ID");
        assert_eq!(Table::new(COLUMNS, Some(40)).header(&rows), "ID             WHAT");
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_shown() {
        for character in (0..=0x10_ffff).filter_map(char::from_u32) {
            let text = character.to_string();
            let shown = shown(&text);
            assert!(!shown.chars().any(char::is_control), "{character:?}");
        }
        for hostile in ["\u{1b}]0;title\u{7}", "\r\n", "\u{9b}2J", "\u{202e}", "\u{2066}", "\u{200b}", "\u{feff}"] {
            assert!(shown(hostile).is_ascii(), "{hostile:?}");
        }
        assert_eq!(shown("plain \"quotes\" \\ and ümlaut 🦀"), "plain \"quotes\" \\ and ümlaut 🦀");
    }
}
