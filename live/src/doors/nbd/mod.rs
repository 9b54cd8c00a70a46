//! The NBD door: a server of the NBD protocol on unix and TCP sockets.
//!
//! [`wire`] is the protocol's bytes, pure; [`client`] is the protocol's other side, for tests and tools. The rest
//! serves: [`listener`] has the addresses, `door` the connections, and a request goes from `input` by `receiving` and
//! `handing` to the core, and from there by `replies` into the `outbox`.

pub mod client;
mod connection;
pub(crate) mod door;
mod handing;
mod input;
pub(crate) mod listener;
mod outbox;
mod receiving;
mod replies;
mod requests;
pub mod wire;
