//! The commands of the kernel's `nbd` driver. Source: Linux, `include/uapi/linux/nbd-netlink.h`.

use super::disk::{Disk, Maker};
use super::error::{BLOCK_BYTES_MAX, KernelError};
use super::netlink::{Attribute, Family};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

const CMD_CONNECT: u8 = 1;
const CMD_DISCONNECT: u8 = 2;
const CMD_RECONFIGURE: u8 = 3;

const ATTR_INDEX: u16 = 1;
const ATTR_SIZE_BYTES: u16 = 2;
const ATTR_BLOCK_SIZE_BYTES: u16 = 3;
const ATTR_TIMEOUT: u16 = 4;
const ATTR_SERVER_FLAGS: u16 = 5;
const ATTR_CLIENT_FLAGS: u16 = 6;
const ATTR_SOCKETS: u16 = 7;
const ATTR_DEAD_CONN_TIMEOUT: u16 = 8;
const ATTR_BACKEND_IDENTIFIER: u16 = 10;
const SOCK_ITEM: u16 = 1;
const SOCK_FD: u16 = 1;
/// The driver lets go of the device when the last who has it open closes it.
const CFLAG_DISCONNECT_ON_CLOSE: u64 = 1 << 1;

/// A device that is to be made.
#[derive(Clone, Debug)]
pub struct NewDevice<'a> {
    /// Its index; `None` for a free one.
    pub index: Option<u32>,
    /// A text that the driver keeps, and by which the device is found again.
    pub identifier: &'a str,
    /// Its size: whole blocks.
    pub size_bytes: u64,
    /// Its logical block.
    pub block_bytes: u32,
    /// NBD's transmission flags.
    pub flags: u16,
    /// Time for which requests wait while nobody serves.
    pub hold: Duration,
    /// Time after which a request goes to another connection; `None`: never while its connection lives.
    pub retry: Option<Duration>,
}

/// The driver, ready for commands.
pub struct NbdDriver {
    family: Family,
}

impl NbdDriver {
    /// Finds the driver.
    ///
    /// # Errors
    /// [`KernelError::NotLoaded`] and [`KernelError::NoModule`], or what the system says.
    pub fn open() -> Result<NbdDriver, KernelError> {
        match Family::open("nbd") {
            Ok(Some(family)) => Ok(NbdDriver { family }),
            Ok(None) => Err(KernelError::missing(Maker::Nbd)),
            Err(source) => Err(refused("be reached over netlink", source)),
        }
    }

    /// Makes a device of these sockets; its index. The device has references of its own to them.
    ///
    /// # Errors
    /// [`KernelError`]; then there is no device.
    pub fn connect(&mut self, device: &NewDevice<'_>, sockets: &[OwnedFd]) -> Result<u32, KernelError> {
        let block_bytes = device.block_bytes;
        if block_bytes > BLOCK_BYTES_MAX {
            return Err(KernelError::BlockSize { maker: Maker::Nbd, block_bytes });
        }
        let mut attributes = Vec::new();
        attributes.extend(device.index.map(|index| Attribute::number32(ATTR_INDEX, index)));
        attributes.push(Attribute::number64(ATTR_SIZE_BYTES, device.size_bytes));
        attributes.push(Attribute::number64(ATTR_BLOCK_SIZE_BYTES, block_bytes.into()));
        attributes.push(Attribute::number64(ATTR_SERVER_FLAGS, device.flags.into()));
        attributes.push(Attribute::number64(ATTR_CLIENT_FLAGS, 0));
        attributes.push(Attribute::number64(ATTR_DEAD_CONN_TIMEOUT, device.hold.as_secs()));
        attributes.extend(device.retry.map(|retry| Attribute::number64(ATTR_TIMEOUT, retry.as_secs())));
        attributes.push(Attribute::text(ATTR_BACKEND_IDENTIFIER, device.identifier));
        attributes.push(socket_list(sockets));
        let answer = self.family.ask(CMD_CONNECT, attributes);
        let answer = answer.map_err(|source| match (source.raw_os_error(), device.index) {
            (Some(libc::EPERM), _) => KernelError::NotPermitted,
            (Some(libc::EBUSY), Some(index)) => KernelError::IndexTaken { disk: Disk::nbd(index) },
            _ => refused("make a device", source),
        })?;
        answer
            .and_then(|answer| answer.find32(ATTR_INDEX))
            .or(device.index)
            .ok_or_else(|| refused("say which device it made", io::ErrorKind::InvalidData.into()))
    }

    /// Hands sockets to a device in the place of dead ones; those that find no dead one in their place are let go of.
    /// The device has this size from now on, and stays when it is closed.
    ///
    /// # Errors
    /// [`KernelError`], most often since the device is not the one with this identifier any more.
    pub fn reconnect(
        &mut self,
        index: u32,
        identifier: &str,
        size_bytes: u64,
        hold: Option<Duration>,
        sockets: &[OwnedFd],
    ) -> Result<(), KernelError> {
        let mut attributes = vec![
            Attribute::number32(ATTR_INDEX, index),
            Attribute::text(ATTR_BACKEND_IDENTIFIER, identifier),
            Attribute::number64(ATTR_SIZE_BYTES, size_bytes),
            Attribute::number64(ATTR_CLIENT_FLAGS, 0),
        ];
        attributes.extend(hold.map(|hold| Attribute::number64(ATTR_DEAD_CONN_TIMEOUT, hold.as_secs())));
        attributes.push(socket_list(sockets));
        self.reconfigure("take new sockets", attributes)
    }

    /// Whether the device is to end when the last who has it open closes it.
    ///
    /// # Errors
    /// [`KernelError`], most often since the device is not the one with this identifier any more.
    pub fn end_on_close(&mut self, index: u32, identifier: &str, ends: bool) -> Result<(), KernelError> {
        let flags = if ends { CFLAG_DISCONNECT_ON_CLOSE } else { 0 };
        let attributes = vec![
            Attribute::number32(ATTR_INDEX, index),
            Attribute::text(ATTR_BACKEND_IDENTIFIER, identifier),
            Attribute::number64(ATTR_CLIENT_FLAGS, flags),
        ];
        self.reconfigure("change the device", attributes)
    }

    /// Ends a device at once, whoever uses it.
    ///
    /// # Errors
    /// [`KernelError`]
    pub fn disconnect(&mut self, index: u32) -> Result<(), KernelError> {
        match self.family.ask(CMD_DISCONNECT, vec![Attribute::number32(ATTR_INDEX, index)]) {
            Ok(_) => Ok(()),
            Err(source) => Err(refused("end the device", source)),
        }
    }

    fn reconfigure(&mut self, step: &'static str, attributes: Vec<Attribute>) -> Result<(), KernelError> {
        match self.family.ask(CMD_RECONFIGURE, attributes) {
            Ok(_) => Ok(()),
            Err(source) if source.raw_os_error() == Some(libc::EPERM) => Err(KernelError::NotPermitted),
            Err(source) => Err(refused(step, source)),
        }
    }
}

fn refused(step: &'static str, source: io::Error) -> KernelError {
    KernelError::Refused { maker: Maker::Nbd, step, source }
}

fn socket_list(sockets: &[OwnedFd]) -> Attribute {
    let items = sockets.iter().map(|socket| {
        let number = u32::try_from(socket.as_raw_fd()).expect("a descriptor is not negative");
        Attribute::nest(SOCK_ITEM, &[Attribute::number32(SOCK_FD, number)])
    });
    Attribute::nest(ATTR_SOCKETS, &items.collect::<Vec<_>>())
}

/// Pairs of connected sockets: the server's ends, and the kernel's.
///
/// # Errors
/// If the process may have no more descriptors.
pub fn socket_pairs(count: usize) -> io::Result<(Vec<OwnedFd>, Vec<OwnedFd>)> {
    let pair =
        || rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    Ok((0..count).map(|_| pair()).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_pairs_are_connected() {
        let (ours, kernels) = socket_pairs(2).unwrap();
        for (ours, kernels) in ours.iter().zip(&kernels) {
            rustix::io::write(kernels, b"x").unwrap();
            let mut byte = [0];
            assert_eq!(rustix::io::read(ours, &mut byte).unwrap(), 1);
        }
    }
}
