//! Text in columns: as wide as its cells, and on a terminal no wider than that.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Between columns.
const GAP: &str = "  ";
/// What a column is not made narrower than.
const WIDTH_MIN: usize = 6;

/// Rows under a header, a few at a time. Columns widen as wider cells come.
#[derive(Debug)]
pub(super) struct Table {
    names: &'static [&'static str],
    widths: Vec<usize>,
    /// Of the terminal; without one nothing is cut.
    width_max: Option<usize>,
}

impl Table {
    pub(super) fn new(names: &'static [&'static str], width_max: Option<usize>) -> Self {
        Self { names, widths: names.iter().map(|name| name.width()).collect(), width_max }
    }

    /// The names of the columns, wide enough for these rows.
    pub(super) fn header(&mut self, rows: &[Vec<String>]) -> String {
        self.widen(rows);
        let names: Vec<_> = self.names.iter().map(|name| (*name).to_owned()).collect();
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
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(shown(cell).width());
            }
        }
    }

    /// The widths, of which the widest give way until the line fits.
    fn fitting(&self) -> Vec<usize> {
        let mut widths = self.widths.clone();
        let Some(width_max) = self.width_max else { return widths };
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > width_max {
            let Some(widest) = widths.iter_mut().max_by_key(|width| **width).filter(|width| **width > WIDTH_MIN) else {
                break;
            };
            *widest -= 1;
        }
        widths
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
            if index > 0 {
                line.push_str(GAP);
            }
            let cell = shown(cell);
            let cell = if self.width_max.is_some() { cut(&cell, *width) } else { cell };
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
/// direction of writing. They are shown as Rust writes them.
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

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &["ID", "WHAT"];

    fn rows(cells: &[[&str; 2]]) -> Vec<Vec<String>> {
        cells.iter().map(|row| row.map(str::to_owned).to_vec()).collect()
    }

    #[test]
    fn columns_stand_under_one_another_whatever_is_in_them() {
        let rows = rows(&[["a", "x"], ["run-1", "y"], ["日本", "z"], ["é\u{1b}[2J", "w"]]);
        let mut table = Table::new(NAMES, None);
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
            let mut table = Table::new(NAMES, Some(width_max));
            let header = table.header(&rows);
            for line in table.lines(&rows).iter().chain([&header]) {
                assert!(line.width() <= width_max, "{width_max}: {line}");
            }
        }
        let mut table = Table::new(NAMES, Some(20));
        assert_eq!(table.lines(&rows)[1], "run-1      日日日日…");
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
