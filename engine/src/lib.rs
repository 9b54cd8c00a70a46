//! The cache engine of Forebay: it decides, and it does no I/O.
//!
//! The engine is handed requests, completions and the time, and answers with effects:
//! read this range of that device into this buffer, flush, reply to that request. The live
//! daemon carries the effects out with io_uring; a simulator carries them out in virtual
//! time. It is `no_std`, so that clocks, files and threads cannot be named here, and the same
//! input gives the same output on every machine.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod check;
pub mod composition;
pub mod effect;
pub mod engine;
pub mod format;
pub mod image;
pub mod limits;
pub mod memory;
pub mod mutation;
pub mod number;
pub mod pair;
pub mod policies;
pub mod prng;
pub mod recovery;
pub mod remote;
pub mod salvage;
pub mod status;
pub mod store;
pub mod table;
pub mod units;
pub mod warmth;

mod machine;

pub use machine::{fingerprint, lost_changes};
