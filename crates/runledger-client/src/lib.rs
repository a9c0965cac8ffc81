//! The client's side of Runledger: makes calls, asks again where that is safe, and tells their result.
//!
//! No part of this crate prints, or decides how the process ends.
//!
//! # Examples
//!
#![doc = include_str!("../README.md")]

mod backoff;
mod builder;
mod caller;
mod calls;
mod client;
mod command_buffer;
mod connector;
mod failure;
mod fault;
#[cfg(feature = "flags")]
pub mod flags;
mod follow;
mod health;
mod host_port;
mod races;
mod server_address;
mod tls;
mod token;
pub mod worker;

pub use builder::{Builder, Unusable};
pub use caller::Caller;
pub use client::Client;
pub use command_buffer::{CommandBuffer, QueuedCommand};
pub use failure::{Failure, Kind, Repetition};
pub use fault::Fault;
pub use follow::{News, Pass, RunWatch, RunsWatch, Watch, follow};
pub use health::Health;
pub use host_port::HostPort;
pub use runledger_proto::methods::Unary;
pub use server_address::{Scheme, ServerAddress};
pub use tls::{Tls, TlsFileError};
pub use token::{Token, TokenError};
