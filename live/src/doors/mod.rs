//! Doors: what clients connect to.

pub(crate) mod latency;
pub mod nbd;
pub(crate) mod offers;
