//! The gRPC face of the authority: its services, health, and the listener with its bounds. Holds no SQL and no rules.

mod handlers;
pub mod health;
mod identity;
mod replica;
mod routes;
pub mod server;
mod shared;
pub mod transport;
mod watch;

pub use self::replica::memory_parts;
