//! A kernel device that a daemon serves, whichever driver made it.

use super::nbd_device::{self, NbdDevice};
use super::ublk_device::UblkDevice;
use super::{AttachOptions, Found, Identifier, KernelDoor};
use anyhow::Result;
use live::doors::Export;
use live::kernel::Disk;
use live::kernel::ublk::Queue;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The doors of a daemon, as one volume is served there.
pub trait Serves {
    /// The volume as it is offered.
    ///
    /// # Errors
    /// If it is not.
    fn export(&self) -> Result<Export>;
    /// Takes sockets whose other ends are for the kernel, to serve the volume there; the volume as it is offered.
    ///
    /// # Errors
    /// If it is not.
    fn sockets(&self, sockets: Vec<OwnedFd>) -> Result<Export>;
    /// Takes queues of a ublk device, to serve the volume there.
    ///
    /// # Errors
    /// If it is not offered, or the door has no ring.
    fn queues(&self, queues: Vec<Queue>) -> Result<Export>;
}

/// A device.
pub enum KernelDevice {
    /// Of the nbd driver.
    Nbd(NbdDevice),
    /// Of the ublk driver.
    Ublk(UblkDevice),
}

impl KernelDevice {
    /// Makes a device.
    ///
    /// # Errors
    /// If the kernel makes none, with what to do about it.
    pub fn make(
        identifier: Identifier,
        options: &AttachOptions,
        serving: &dyn Serves,
    ) -> Result<KernelDevice> {
        Ok(match options.door {
            KernelDoor::Nbd => KernelDevice::Nbd(NbdDevice::make(identifier, options, serving)?),
            KernelDoor::Ublk => KernelDevice::Ublk(UblkDevice::make(&identifier, options, serving)?),
        })
    }

    /// A device that an earlier daemon has left. Nobody serves it yet.
    #[must_use]
    pub fn left(found: Found, name: &str) -> KernelDevice {
        match found {
            Found::Nbd(index, identifier) => KernelDevice::Nbd(NbdDevice::left(index, identifier)),
            Found::Ublk(index, _) => KernelDevice::Ublk(UblkDevice::left(index, name)),
        }
    }

    /// Its disk.
    #[must_use]
    pub fn disk(&self) -> Disk {
        match self {
            KernelDevice::Nbd(device) => device.disk(),
            KernelDevice::Ublk(device) => device.disk(),
        }
    }

    /// Sets its limits, and tells udev of it.
    ///
    /// # Errors
    /// If the kernel does not take them; the device works without.
    pub fn set_limits(&self) -> Result<()> {
        match self {
            KernelDevice::Nbd(device) => device.set_limits(),
            KernelDevice::Ublk(device) => device.set_limits(),
        }
    }

    /// Whether the kernel still has it.
    #[must_use]
    pub fn exists(&self) -> bool {
        match self {
            KernelDevice::Nbd(device) => device.exists(),
            KernelDevice::Ublk(device) => device.exists(),
        }
    }

    /// Serves it again, as far as it is not served.
    ///
    /// # Errors
    /// If the kernel does not let us: another daemon may serve the device.
    pub fn reconnect(&mut self, hold: Option<Duration>, serving: &dyn Serves) -> Result<()> {
        match self {
            KernelDevice::Nbd(device) => device.reconnect(hold, serving),
            KernelDevice::Ublk(device) => device.take_over(serving),
        }
    }

    /// Lets it end as soon as nobody uses it, which may be at once: `None`. Otherwise its users.
    ///
    /// # Errors
    /// If the kernel does not do so.
    pub fn end_when_unused(&self) -> Result<Option<String>> {
        match self {
            KernelDevice::Nbd(device) => {
                nbd_device::end_when_closed(device.disk().index, device.identifier())
            }
            KernelDevice::Ublk(device) => device.end_if_unused(),
        }
    }

    /// It has vanished without us: what we keep on it goes, too.
    pub fn forget(&self) {
        if let KernelDevice::Ublk(device) = self {
            device.forget();
        }
    }
}
