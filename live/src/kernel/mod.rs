//! Kernel devices: block devices of this machine that a driver of the kernel makes, and this process serves.
//!
//! The `nbd` driver is given one end of each of a few socket pairs, and speaks NBD's transmission phase over them without
//! a handshake; the NBD door serves the other ends ([`crate::server::Handle::serve_sockets`]). The `ublk` driver hands out
//! its requests by io_uring; the ublk door serves its queues ([`crate::server::Handle::serve_queues`]). Either device
//! outlives its server: requests wait until another one takes it over ([`NbdDriver::reconnect`],
//! [`ublk::UblkDriver::take_over`]), with nbd until the time for that is over.
//!
//! [`netlink`] is the conversation with the nbd driver, [`nbd`] what is said in it, [`ublk`] the other driver, [`sysfs`]
//! what the kernel shows of its devices.

mod disk;
mod error;
mod nbd;
mod netlink;
pub mod sysfs;
pub mod ublk;

pub use disk::{Disk, Maker};
pub use error::KernelError;
pub use nbd::{NbdDriver, NewDevice, socket_pairs};
use std::os::fd::OwnedFd;

/// The kernel as the client of a door.
#[derive(Debug)]
pub enum KernelClient {
    /// Of the NBD door: the driver has the other end of this socket.
    Socket(OwnedFd),
    /// Of the ublk door: the driver puts its requests here.
    Queue(ublk::Queue),
}
