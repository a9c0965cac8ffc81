//! Identity: who is let in, and what each may do, on the real binary.

mod callers;
mod ends;
#[path = "../../src/auth/jwt/tests/key_server.rs"]
#[allow(dead_code, reason = "the server is that of the unit tests, which use all of it")]
mod key_server;
mod matrix;
mod older;
mod ownership;
mod page;
mod signed;
#[path = "../../src/auth/jwt/tests/signing.rs"]
#[allow(dead_code, reason = "the keys that sign are those of the unit tests, which use all of them")]
mod signing;
mod tokens;
mod whoami;
