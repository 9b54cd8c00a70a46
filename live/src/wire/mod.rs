//! Wire formats: pure codecs and sessions. No sockets on the server side, no `unsafe`, no threads.
//!
//! Whatever comes from the other side is hostile until it was decoded here: any bytes at all give
//! a value or an error, never a panic and never an allocation whose size the other side chose.

pub mod nbd;
