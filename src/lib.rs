//! Runledger: the lifecycle authority for runs.

pub mod auth;
pub mod clock;
pub mod domain;
pub mod proto;
pub mod store;
