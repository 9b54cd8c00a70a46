//! `attach` and `unattach`: volumes as block devices of this machine.

use super::{Places, Report};
use crate::attachment::{AttachOptions, KernelDoor};
use clap::Args;
use live::devices::{self, DeviceSpec};

/// The most connections of one device.
const CONNECTIONS_MAX: u16 = 16;
/// The highest index that the kernel takes.
const INDEX_MAX: i64 = 32_767;

/// `attach`.
#[derive(Debug, Args)]
pub struct Attach {
    /// The cache device, as given to create. A daemon must serve it.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// The volume; may be left out if there is only one.
    #[arg(value_name = "VOLUME")]
    pub volume: Option<String>,
    /// Make /dev/nbdN or /dev/ublkbN [default: a free one; /dev/forebay/VOLUME leads to it].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=INDEX_MAX))]
    pub index: Option<u32>,
    /// Door, connections and patience of the device.
    #[command(flatten)]
    pub connection: Connection,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}

/// Door, connections and patience of a device.
#[derive(Clone, Copy, Debug, Args)]
pub struct Connection {
    /// The kernel's driver that makes the device [default: nbd].
    #[arg(long, value_name = "nbd|ublk", value_enum, hide_possible_values = true)]
    pub door: Option<KernelDoor>,
    /// Connections between kernel and daemon, 1 to 16, which are queues with ublk; with several of nbd, a request that
    /// takes 10 seconds is sent again [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(CONNECTIONS_MAX)))]
    pub connections: Option<u16>,
    /// Requests to an nbd device that no daemon serves fail after so long [default: 60].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub hold: Option<u32>,
}

impl Connection {
    /// The same as the daemon is told.
    #[must_use]
    pub fn options(&self, index: Option<u32>) -> AttachOptions {
        AttachOptions {
            door: self.door.unwrap_or_default(),
            index,
            connections: self.connections.map(usize::from),
            hold_seconds: self.hold,
        }
    }
}

/// `unattach`.
#[derive(Debug, Args)]
pub struct Unattach {
    /// The cache device, as given to create.
    #[arg(value_name = "CACHE", value_parser = devices::parse)]
    pub cache: DeviceSpec,
    /// The volume; may be left out if there is only one.
    #[arg(value_name = "VOLUME")]
    pub volume: Option<String>,
    /// Where notes are.
    #[command(flatten)]
    pub places: Places,
    /// How to print.
    #[command(flatten)]
    pub report: Report,
}
