//! Doors: what clients connect to.

pub mod nbd;
pub(crate) mod offers;
