//! Modelled disks: what a hard disk or an SSD would have taken, as a function of time and history.
//!
//! A [`Disk`] holds no data. It is told which operation begins when, and says when each one is
//! done. It has no clock: the driver brings the time, so the same disk runs in virtual time
//! and in real time. The same parameters, seed and calls give the same times on every machine:
//! all arithmetic is in integers, all times are nanoseconds.
//!
//! ```
//! use forebay_models::{Disk, Op, Submit};
//!
//! let parameters = forebay_models::find("hdd").unwrap();
//! let mut disk = Disk::new(&parameters, 8 << 30, 1);
//! disk.submit(0, 42, Submit { op: Op::Read, offset_bytes: 1 << 30, len_bytes: 4096 });
//! let mut now_ns = 0;
//! let done = loop {
//!     if let Some(completion) = disk.poll(now_ns) {
//!         break completion;
//!     }
//!     now_ns = disk.next_ns().unwrap();
//! };
//! assert_eq!(done.token, 42);
//! assert!(done.done_ns > 100_000);
//! ```
//!
//! [`parameters`] says what describes a disk, [`mod@catalogue`] which disks are built in (one file
//! each in `models/devices`), [`hdd`] and [`ssd`] what is modelled and what is left out. Faults
//! and the content of a disk are not the business of this crate; what a power cut would take is
//! ([`Disk::is_volatile`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod catalogue;
mod commands;
mod disk;
pub mod hdd;
mod link;
mod operation;
pub mod parameters;
mod parse;
mod ranges;
pub mod ssd;
mod timeline;
mod write_buffer;

pub use catalogue::{catalogue, find};
pub use disk::Disk;
pub use operation::{Completion, Op, Submit};
pub use parameters::{Described, Kind, Media, ParameterError, Parameters, Value};
pub use parse::{ParseError, ParseErrorKind};
