//! What is true of runs, without a store, a clock or a transport. What the package is built of stands in one list, in
//! `tests/it/layering.rs`.
//!
//! | module | what it is |
//! |---|---|
//! | [`domain`] | the rules, pure: what a command does to a run, in the order of the contract's checks |
//! | [`declaration`] | declarations of lifecycles: read from YAML and JSON, checked, drawn; those that are built in |
//! | [`text`] | texts of people: times, durations, sizes, numbers |

#![expect(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "only the server depends on this package: a name that says all has no docs"
)]

pub mod declaration;
pub mod domain;
pub mod text;
