//! The client's side of Runledger: makes calls, asks again where that is safe, and tells their result.
//!
//! No part of this crate prints, or decides how the process ends.
//!
//! # Examples
//!
#![doc = include_str!("../README.md")]

mod backoff;
mod calls;
mod client;
mod failure;
mod follow;
mod host_port;
pub mod worker;

pub use calls::Call;
pub use client::Client;
pub use failure::{Failure, Kind};
pub use follow::{News, Pass, RunWatch, RunsWatch, Watch, follow};
pub use host_port::HostPort;
