//! Doors: what clients connect to.

pub(crate) mod connection;
mod handing;
pub(crate) mod input;
pub(crate) mod listener;
pub(crate) mod nbd;
pub(crate) mod offers;
pub(crate) mod outbox;
mod replies;
pub(crate) mod requests;
