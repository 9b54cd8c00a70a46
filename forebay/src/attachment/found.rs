//! Devices that are there: found by what the kernel's drivers say of them.

use super::{Identifier, nbd_device, ublk_device};
use anyhow::Result;
use live::kernel::ublk::{State, UblkDriver};
use live::kernel::{Disk, Maker, sysfs};

/// A device that a daemon has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// By the nbd driver, with its index.
    Nbd(u32, Identifier),
    /// By the ublk driver, with its index and its mark.
    Ublk(u32, u64),
}

impl Found {
    /// The device of a volume, if there is one.
    #[must_use]
    pub fn of(volume: &Identifier) -> Option<Found> {
        let nbd = sysfs::attached().into_iter().map(|device| device.index).map(Disk::nbd);
        let ublk = sysfs::ublk_indexes().into_iter().map(Disk::ublk);
        nbd.chain(ublk).filter_map(Found::at).find(|found| found.is_of(volume))
    }

    /// The device of a daemon that is there, if there is one.
    #[must_use]
    pub fn at(disk: Disk) -> Option<Found> {
        match disk.maker {
            Maker::Nbd => {
                let device = sysfs::attached().into_iter().find(|device| device.index == disk.index)?;
                Some(Found::Nbd(disk.index, Identifier::parse(&device.identifier)?))
            }
            Maker::Ublk => {
                // Who may not ask the driver has no devices either.
                let device = UblkDriver::open().ok()?.information(disk.index)?;
                let is_whole = device.is_recoverable() && device.state != State::Dead;
                is_whole.then_some(Found::Ublk(disk.index, device.mark))
            }
        }
    }

    /// Whether it is of that volume.
    #[must_use]
    pub fn is_of(&self, volume: &Identifier) -> bool {
        match self {
            Found::Nbd(_, identifier) => identifier.is_of(volume),
            Found::Ublk(_, mark) => *mark == volume.mark(),
        }
    }

    /// Its disk.
    #[must_use]
    pub fn disk(&self) -> Disk {
        match self {
            Found::Nbd(index, _) => Disk::nbd(*index),
            Found::Ublk(index, _) => Disk::ublk(*index),
        }
    }

    /// Ends it, if nobody uses it.
    ///
    /// # Errors
    /// If somebody uses it, with who; it stays as it was.
    pub fn end_if_unused(&self) -> Result<()> {
        match self {
            Found::Nbd(index, identifier) => nbd_device::end_if_unused(*index, identifier),
            Found::Ublk(index, _) => ublk_device::end_if_unused(*index),
        }
    }

    /// Ends it, if no daemon serves it and nobody uses it.
    ///
    /// # Errors
    /// If somebody uses it, with who.
    pub fn end_left_alone(&self) -> Result<()> {
        match self {
            Found::Nbd(index, _) => nbd_device::end_left_alone(*index),
            Found::Ublk(index, _) => ublk_device::end_left_alone(*index),
        }
    }
}
