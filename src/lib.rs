//! Runledger: the lifecycle authority for runs.

pub mod clock;
pub mod domain;
pub mod store;
