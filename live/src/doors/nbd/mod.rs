//! The NBD door: a server of the NBD protocol on unix and TCP sockets.
//!
//! The protocol's bytes are in [`crate::nbd::wire`]. [`listener`] has the addresses, `door` the connections, and a
//! request goes from `input` by `receiving` and `handing` to the core, and from there by `replies` into the `outbox`.
//! Where clients come over TLS, `secured` stands between the socket and both.

mod channel;
mod connection;
pub(crate) mod door;
mod handing;
mod input;
pub(crate) mod listener;
mod outbox;
mod receiving;
mod replies;
mod requests;
mod secured;
