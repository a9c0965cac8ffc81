//! Whole declarations.

mod many;
mod properties;
mod rules;

use super::*;

/// The findings of a text, each as it is shown.
fn found(source: &str) -> Vec<String> {
    read(source).map_or_else(|findings| findings.iter().map(Finding::to_string).collect(), |_| Vec::new())
}
