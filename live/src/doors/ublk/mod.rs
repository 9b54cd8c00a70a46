//! The ublk door: the kernel's `ublk` driver as a client, which brings the requests of a disk of this machine.
//!
//! The bytes and the driver are in [`crate::kernel::ublk`]. A queue belongs to the thread that gave it its first commands, so
//! each is served by one reactor to its end. `door` has the queues, `serving` leads a request from its tag to the core
//! and back, `request` judges it.
//!
//! The data of a request is copied once, between the pages of who asked and a buffer of the pool, by a system call in the
//! reactor's turn. That is what the driver's way with buffers of its own would cost, too; those would have to be as many as
//! there are tags, and as large as the largest request. One system call brings the requests of all tags and takes all
//! answers ([`crate::reactor::backend`]).
//!
//! When the server stops, what has not been answered is left to the next one: the driver gives it those requests again.

pub(crate) mod door;
mod request;
mod serving;
#[cfg(test)]
mod tests;
