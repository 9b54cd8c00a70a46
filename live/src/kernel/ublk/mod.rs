//! The kernel's `ublk` driver: its control commands, and the queues by which it hands out requests.
//!
//! A device has two ends: the disk `/dev/ublkbN`, and `/dev/ublkcN` for its server. A queue has tags; each carries one
//! request at a time. The server gives the driver a command for each tag, which comes back with a request, described in
//! memory that the driver shares. The data of a request is moved by reading and writing `/dev/ublkcN`
//! (`UBLK_F_USER_COPY`), straight between the pages of whoever asked and the buffer that the engine works with: one copy
//! in all. The answer and the command for the tag's next request are one command.
//!
//! Devices are made with `UBLK_F_USER_RECOVERY` and `UBLK_F_USER_RECOVERY_REISSUE`: when their server dies they hold all
//! requests, and give those that were under way to the next server again. What a request does twice is the same as once.
//! The driver does not let an unprivileged process have that, nor user copies; so only root makes devices.
//!
//! [`codec`] has the bytes, [`driver`] the commands of `/dev/ublk-control`, [`queue`] a queue as a server has it.

mod codec;
#[expect(unsafe_code, reason = "control commands name memory that the driver reads and writes")]
mod driver;
#[expect(unsafe_code, reason = "the driver shares memory with its server")]
mod queue;

pub use codec::{Asked, Information, Op, State};
pub use driver::{NewDevice, UblkDriver};
pub(crate) use queue::Order;
pub use queue::Queue;

/// Requests that a queue holds at a time.
pub const REQUESTS: u16 = 256;
/// Tags of a queue. One is never used, as long as the disk has at most [`REQUESTS`] at a time ([`super::sysfs`]): only by
/// a command without a request does a driver of Linux before 6.15 notice at once that its server is dead. Otherwise it
/// takes 30 seconds.
const TAGS: u16 = REQUESTS + 1;
/// The most bytes of one read or write.
pub const REQUEST_BYTES_MAX: u32 = 512 * 1024;
/// The most bytes of one discard or write-zeroes.
const RANGE_BYTES_MAX: u64 = 1 << 30;
