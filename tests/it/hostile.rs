//! Hostile and broken clients beside an honest one.

pub(crate) mod attacks;
mod bounds;
mod greedy;
pub(crate) mod honest;
mod offered;
mod shared;
mod strict;
mod table;
