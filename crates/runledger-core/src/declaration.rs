//! Declarations: the text form of a [lifecycle](crate::domain::lifecycle), YAML or JSON. This module reads it, tells
//! what is wrong with it and where, and draws it.
//!
//! A text is read in three passes. `tree` makes marked nodes of it, `read` makes a lifecycle of the nodes, and `check`
//! holds the lifecycle against the rules that no single value can break. Each pass collects everything that is wrong
//! and goes on, so that an author sees all mistakes at once; none tells a mistake that only follows from another.
//!
//! A text comes from whoever may put a lifecycle. So its bytes and its depth are bounded, nothing in it refers to
//! anything else, and a finding shows no more than a few characters of it.

mod built_in;
mod check;
mod draw;
mod finding;
mod notes;
mod read;
#[cfg(test)]
mod tests;
mod tree;

pub use self::built_in::{built_in, built_ins};
pub use self::draw::draw;
pub use self::finding::{At, Finding};
pub use self::notes::notes;
use crate::domain::lifecycle::Lifecycle;

/// Reads a declaration. White space at the end of the text is of no account, but for the bound on its bytes.
///
/// # Errors
///
/// Everything that is wrong with it, in the order of the text.
pub fn read(source: &str) -> Result<Lifecycle, Vec<Finding>> {
    let (tree, mut findings) = tree::parse(source);
    let lifecycle = tree.map(|tree| {
        let read = read::lifecycle(&tree);
        findings.extend(check::check(&read));
        findings.extend(read.findings);
        read.lifecycle
    });
    findings.sort_by(|one, other| (one.at, &one.path, &one.message).cmp(&(other.at, &other.path, &other.message)));
    match lifecycle {
        Some(lifecycle) if findings.is_empty() => Ok(lifecycle),
        Some(_) | None => Err(findings),
    }
}
