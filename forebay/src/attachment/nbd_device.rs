//! A device of the kernel's nbd driver, and the connections by which a daemon serves it.

use super::kernel_device::Serves;
use super::{AttachOptions, Identifier, users};
use crate::log::notice;
use anyhow::{Context, Result, anyhow, bail};
use live::kernel::{Disk, NbdDriver, NewDevice, socket_pairs, sysfs};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// With one connection the kernel looks so often whether a request that went to a dead connection can go to a new one.
const POLL_MS: u32 = 2_000;
/// With several connections a request goes to another one after this time, and its own is given up. A disk that is
/// merely busy must not take so long.
const RETRY: Duration = Duration::from_secs(10);
/// Longest wait for a device to end after it was closed.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause between two looks for that.
const PAUSE: Duration = Duration::from_millis(20);

/// A device, and our ends of its connections.
pub struct NbdDevice {
    index: u32,
    identifier: Identifier,
    /// Our ends once more: a door has the others. They tell which connections are dead.
    ends: Vec<OwnedFd>,
}

impl NbdDevice {
    /// Makes a device.
    ///
    /// # Errors
    /// If the kernel makes none, with what to do about it.
    pub fn make(identifier: Identifier, options: &AttachOptions, serving: &dyn Serves) -> Result<NbdDevice> {
        let mut driver = NbdDriver::open()?;
        let connections = Connections::open(identifier.connections)?;
        // The door listens before the kernel may ask: some of what follows waits for answers.
        let export = serving.sockets(connections.ours)?;
        let is_one = identifier.connections == 1;
        let index = driver.connect(
            &NewDevice {
                index: options.index,
                identifier: &identifier.to_string(),
                size_bytes: export.announced_bytes(),
                block_bytes: export.min_block_bytes,
                flags: export.transmission_flags(),
                hold: options.hold(),
                retry: (!is_one).then_some(RETRY),
            },
            &connections.kernels,
        )?;
        Ok(NbdDevice { index, identifier, ends: connections.watched })
    }

    /// A device that an earlier daemon has left. It has no connections yet.
    #[must_use]
    pub fn left(index: u32, identifier: Identifier) -> NbdDevice {
        NbdDevice { index, identifier, ends: Vec::new() }
    }

    /// Its disk.
    #[must_use]
    pub fn disk(&self) -> Disk {
        Disk::nbd(self.index)
    }

    /// The identifier.
    #[must_use]
    pub fn identifier(&self) -> &Identifier {
        &self.identifier
    }

    /// Sets its limits.
    ///
    /// # Errors
    /// If the kernel does not take them; the device works without.
    pub fn set_limits(&self) -> Result<()> {
        let poll_ms = (self.identifier.connections == 1).then_some(POLL_MS);
        sysfs::set_limits(self.index, poll_ms)
            .and_then(|()| sysfs::announce(self.disk()))
            .with_context(|| format!("cannot set the limits of {}", self.disk()))
    }

    /// Whether the kernel still has it.
    #[must_use]
    pub fn exists(&self) -> bool {
        sysfs::is_attached(self.index, &self.identifier.to_string())
    }

    /// Makes new connections in the place of dead ones.
    ///
    /// # Errors
    /// If the kernel takes none: another daemon may serve the device.
    pub fn reconnect(&mut self, hold: Option<Duration>, serving: &dyn Serves) -> Result<()> {
        self.ends.retain(|end| !is_dead(end));
        let missing = self.identifier.connections.saturating_sub(self.ends.len());
        if missing == 0 {
            return Ok(());
        }
        let mut driver = NbdDriver::open()?;
        let connections = Connections::open(missing)?;
        let export = serving.sockets(connections.ours)?;
        let identifier = self.identifier.to_string();
        let size_bytes = export.announced_bytes();
        driver.reconnect(self.index, &identifier, size_bytes, hold, &connections.kernels)?;
        // The kernel has its own references to those that it took.
        drop(connections.kernels);
        self.ends.extend(connections.watched.into_iter().filter(|end| !is_dead(end)));
        if self.ends.is_empty() {
            bail!("{} is still served by somebody else", self.disk());
        }
        Ok(())
    }
}

/// Connections that are being made.
struct Connections {
    ours: Vec<OwnedFd>,
    watched: Vec<OwnedFd>,
    kernels: Vec<OwnedFd>,
}

impl Connections {
    fn open(count: usize) -> Result<Connections> {
        let make = || {
            let (ours, kernels) = socket_pairs(count)?;
            let watched = ours.iter().map(OwnedFd::try_clone).collect::<Result<_, _>>()?;
            Ok::<_, std::io::Error>(Connections { ours, watched, kernels })
        };
        make().context("cannot make the connections of a device")
    }
}

/// Whether the other side of a connection, or the door, has closed it.
fn is_dead(end: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(end, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let asked = poll(&mut polled, Some(&at_once));
    asked.is_ok() && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Ends a device that nobody uses.
///
/// # Errors
/// If somebody uses it, with who; it stays as it was.
pub fn end_if_unused(index: u32, identifier: &Identifier) -> Result<()> {
    let disk = Disk::nbd(index);
    let in_use = || {
        let users = users::describe(disk).unwrap_or_else(|| "somebody has it open".to_owned());
        anyhow!("{disk} is in use: {users}; end that first")
    };
    // As long as this is open, nobody can mount it.
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let device = match rustix::fs::open(disk.path(), flags, Mode::empty()) {
        Err(rustix::io::Errno::BUSY) => return Err(in_use()),
        opened => opened.with_context(|| format!("cannot open {disk}"))?,
    };
    if let Err(error) = rustix::fs::fsync(&device) {
        // Whoever wrote and did not close had no promise, and would be told nothing new by a refusal.
        notice(format_args!("{disk} could not write all that it was given: {error}"));
    }
    let mut driver = NbdDriver::open()?;
    driver.end_on_close(index, &identifier.to_string(), true)?;
    drop(device);
    if has_ended(index, identifier) {
        sysfs::restore_limits(index);
        return Ok(());
    }
    let users = in_use();
    driver.end_on_close(index, &identifier.to_string(), false)?;
    Err(users)
}

/// Ends a device that no daemon serves and nobody uses.
///
/// # Errors
/// If somebody uses it, with who.
pub fn end_left_alone(index: u32) -> Result<()> {
    // Opening it to be sure could mean waiting for a daemon.
    let disk = Disk::nbd(index);
    if let Some(users) = users::describe(disk) {
        bail!("{disk} is in use: {users}; end that first");
    }
    NbdDriver::open()?.disconnect(index)?;
    sysfs::restore_limits(index);
    Ok(())
}

/// Lets a device end as soon as nobody uses it, which may be at once: true. Otherwise `Some` of its users.
///
/// # Errors
/// If the kernel does not do so.
pub fn end_when_closed(index: u32, identifier: &Identifier) -> Result<Option<String>> {
    NbdDriver::open()?.end_on_close(index, &identifier.to_string(), true)?;
    // The kernel looks when somebody closes it. What is mounted from it would only make that wait.
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let opened = rustix::fs::open(Disk::nbd(index).path(), flags, Mode::empty());
    let is_held = matches!(opened, Err(rustix::io::Errno::BUSY));
    drop(opened);
    if !is_held && has_ended(index, identifier) {
        sysfs::restore_limits(index);
        return Ok(None);
    }
    Ok(Some(users::describe(Disk::nbd(index)).unwrap_or_else(|| "in use".to_owned())))
}

/// Whether the device ends within a moment. Others may have it open for an instant, to look what is on it.
fn has_ended(index: u32, identifier: &Identifier) -> bool {
    let (text, until) = (identifier.to_string(), Instant::now() + PATIENCE);
    while sysfs::is_attached(index, &text) {
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(PAUSE);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_dead_when_either_side_has_closed_it() {
        let Connections { ours, watched, mut kernels } = Connections::open(2).unwrap();
        assert!(watched.iter().all(|end| !is_dead(end)));
        drop(kernels.pop());
        assert!(!is_dead(&watched[0]) && is_dead(&watched[1]));
        rustix::net::shutdown(&ours[0], rustix::net::Shutdown::Both).unwrap();
        assert!(is_dead(&watched[0]), "the door closes so");
    }
}
