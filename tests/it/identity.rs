//! Identity: who is let in, and what each may do, on the real binary.

mod callers;
mod ends;
mod matrix;
mod ownership;
mod tokens;
