//! Attachments: volumes as block devices of this machine, made by the kernel's nbd or ublk driver.
//!
//! A device outlives the daemon: whoever uses it waits until a daemon serves it again. It carries an [`Identifier`] by
//! which the next daemon finds it ([`Found`]), so nothing has to be remembered elsewhere.

mod found;
mod identifier;
mod kernel_device;
mod link;
mod nbd_device;
mod reclaim;
mod ublk_device;
mod users;

pub use found::Found;
pub use identifier::Identifier;
pub use kernel_device::{KernelDevice, Serves};
pub use link::Link;
pub use reclaim::{flush_for_others, stay_in_memory};
pub use ublk_device::clear_half_made;

use anyhow::{Result, bail};
use clap::ValueEnum;
use live::kernel::NbdDriver;
use live::kernel::ublk::UblkDriver;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time for which requests wait for the next daemon, if nobody says another one.
const HOLD_DEFAULT: Duration = Duration::from_secs(60);

/// The door by which the kernel asks: whose driver makes the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum KernelDoor {
    /// The nbd driver: sockets. It is in every kernel, and a device can grow.
    #[default]
    Nbd,
    /// The ublk driver: io_uring. Fewer steps for each request; Linux 6.5 or newer.
    Ublk,
}

/// How a volume is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachOptions {
    /// The door.
    #[serde(default)]
    pub door: KernelDoor,
    /// The index of the device; absent for a free one.
    pub index: Option<u32>,
    /// Connections between kernel and daemon; absent for one.
    pub connections: Option<usize>,
    /// Seconds for which requests wait for the next daemon; absent for a minute, or what the device has.
    pub hold_seconds: Option<u32>,
}

impl AttachOptions {
    /// Makes sure that the driver is there.
    ///
    /// # Errors
    /// If it is not, or something is wanted that it does not have.
    pub fn check(&self) -> Result<()> {
        match self.door {
            KernelDoor::Nbd => drop(NbdDriver::open()?),
            KernelDoor::Ublk if self.hold_seconds.is_some() => {
                bail!("a ublk device waits for the next daemon without an end; --hold is for --door nbd")
            }
            KernelDoor::Ublk => drop(UblkDriver::open()?),
        }
        Ok(())
    }

    /// Number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.unwrap_or(1)
    }

    /// Time for which requests wait at a new device.
    #[must_use]
    pub fn hold(&self) -> Duration {
        self.hold_seconds.map_or(HOLD_DEFAULT, |seconds| Duration::from_secs(seconds.into()))
    }
}

/// A volume as a device: what `attach` and `unattach` report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The volume.
    pub volume: String,
    /// The device.
    pub device: String,
    /// The name that is the volume's own, and leads to the device.
    pub link: String,
}
