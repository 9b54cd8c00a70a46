//! NBD, both sides: what the door that serves it and the device that uses it have in common.
//!
//! [`wire`] is the protocol's bytes, pure. [`client`] is a blocking client, [`replies`]
//! its ear, which the device has, too. [`uri`] reads the names of exports. TLS is in `tls`, and for those who serve in
//! `acceptor`.

pub(crate) mod acceptor;
pub mod client;
pub mod replies;
pub(crate) mod tls;
pub mod uri;
pub mod wire;
