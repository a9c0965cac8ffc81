//! What a run is made of, on the wire. A file for each concept, of the same name as in `domain` and in the command line:
//! its fields in requests, the requests that are about it, and how answers show it and its changes.

pub mod archive;
pub mod attachments;
pub(super) mod attempts;
pub(super) mod bindings;
pub(super) mod deadlines;
pub mod ending;
pub(super) mod labels;
pub mod lease;
pub(super) mod metadata;
pub(super) mod origin;
pub(super) mod position;
pub(super) mod priority;
pub mod redaction;
pub mod rest;
