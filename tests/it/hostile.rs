//! Hostile and broken clients beside an honest one.

pub(crate) mod attacks;
mod bounds;
pub(crate) mod honest;
mod offered;
mod strict;
mod table;
