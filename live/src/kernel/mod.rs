//! Kernel devices: block devices of this machine that the kernel's `nbd` driver makes, and this process serves.
//!
//! The driver is given one end of each of a few socket pairs, and speaks NBD's transmission phase over them without a
//! handshake; the door serves the other ends ([`crate::server::Handle::serve_sockets`]). Such a device outlives its server:
//! requests wait until another one hands over new sockets ([`NbdDriver::reconnect`]), or the time for that is over.
//!
//! [`netlink`] is the conversation with the driver, [`nbd`] what is said in it, [`sysfs`] what the kernel shows of its
//! devices.

mod nbd;
mod netlink;
pub mod sysfs;

pub use nbd::{KernelError, NbdDriver, NewDevice, socket_pairs};
