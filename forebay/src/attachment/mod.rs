//! Attachments: volumes as block devices of this machine, made by the kernel's nbd driver.
//!
//! A device outlives the daemon: whoever uses it waits until a daemon serves it again, for a while. It carries an
//! [`Identifier`] by which the next daemon finds it, so nothing has to be remembered elsewhere.

mod identifier;
mod kernel_device;
mod link;
mod reclaim;
mod users;

pub use identifier::Identifier;
pub use kernel_device::{KernelDevice, end_if_unused, end_left_alone, end_when_closed};
pub use link::Link;
pub use reclaim::{flush_for_others, stay_in_memory};

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time for which requests wait for the next daemon, if nobody says another one.
const HOLD_DEFAULT: Duration = Duration::from_secs(60);

/// How a volume is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachOptions {
    /// The index of the device; absent for a free one.
    pub index: Option<u32>,
    /// Connections between kernel and daemon; absent for one.
    pub connections: Option<usize>,
    /// Seconds for which requests wait for the next daemon; absent for a minute, or what the device has.
    pub hold_seconds: Option<u32>,
}

impl AttachOptions {
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

/// The path of a device.
#[must_use]
pub fn device_path(index: u32) -> String {
    format!("/dev/nbd{index}")
}
