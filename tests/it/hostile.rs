//! Hostile and broken clients beside an honest one.

pub(crate) mod attacks;
pub(crate) mod honest;
mod table;
