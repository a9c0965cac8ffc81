//! The parts of a run: each concept in a file of its own, with the state that a run has of it, the change of it by an event,
//! what an ask brings of it, the fold, the weight, what a redaction takes out, and the stored form.
//!
//! - A new field has its place in its part's file. The fold of a change, the weight, the stored form and what is
//!   shown take their struct apart whole, so that a field which is forgotten there does not compile. So does what a
//!   redaction takes out, in each part that has something of the kind.
//! - A run, its changes and an event are lists of parts, which are made in [`run`](super::run), in
//!   [`changes`](super::changes) and in [`evolve`](super::evolve::evolve).
//! - No part knows a run, an event or a command: these consist of parts.

pub mod attachments;
pub mod attempts;
pub mod bindings;
pub mod claim;
pub mod ending;
pub mod labels;
pub mod lease;
pub mod metadata;
pub mod origin;
pub mod position;
pub mod priority;
pub mod redaction;
pub mod rest;
pub(super) mod texts;
