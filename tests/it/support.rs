//! Support for tests of every kind: commands in one line, the pure model, real Postgres.

pub(crate) mod authorities;
pub(crate) mod commands;
pub(crate) mod everywhere;
pub(crate) mod gate;
pub(crate) mod http2;
pub(crate) mod lifecycles;
pub(crate) mod lossy;
pub(crate) mod model;
pub(crate) mod mount;
pub(crate) mod patient;
pub(crate) mod postgres;
pub(crate) mod proxy;
pub(crate) mod random;
pub(crate) mod server;
pub(crate) mod tls;
pub(crate) mod wrapped;
