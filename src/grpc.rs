//! The gRPC face of the authority: its services, health, and the listener with its bounds. Holds no SQL and no rules.

pub mod health;
mod identity;
mod lifecycles;
mod namespaces;
mod replica;
mod routes;
mod runs;
pub mod server;
pub mod transport;
mod watch;

pub use self::replica::memory_parts;
