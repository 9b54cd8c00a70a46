//! A device of the kernel's ublk driver, whose queues a daemon serves.
//!
//! Requests to a device that no daemon serves wait without an end: the driver has no other choice than that or to let them
//! fail at once.

use super::kernel_device::Serves;
use super::{AttachOptions, Identifier, Link, users};
use crate::log::notice;
use crate::run_dir::RunDirectory;
use anyhow::{Context, Result, anyhow, bail};
use live::kernel::ublk::{Information, NewDevice, REQUESTS, State, UblkDriver};
use live::kernel::{Disk, sysfs};
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for others that have a device open for an instant, to look what is on it.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause between two looks for that.
const PAUSE: Duration = Duration::from_millis(20);

/// A device.
pub struct UblkDevice {
    index: u32,
    /// The name of its volume's link.
    name: String,
    /// The sequence number of its disk, by which it is told from a later one.
    sequence: Option<u64>,
    is_served: bool,
}

impl UblkDevice {
    /// Makes a device.
    ///
    /// # Errors
    /// If the kernel makes none, with what to do about it.
    pub fn make(
        identifier: &Identifier,
        options: &AttachOptions,
        serving: &dyn Serves,
    ) -> Result<UblkDevice> {
        clear_half_made(identifier);
        let mut driver = UblkDriver::open()?;
        let export = serving.export()?;
        let made = driver.add(&NewDevice {
            index: options.index,
            queues: u16::try_from(identifier.connections).context("too many connections")?,
            mark: identifier.mark(),
            size_bytes: export.announced_bytes(),
            block_bytes: export.min_block_bytes,
            is_read_only: export.read_only,
        })?;
        if let Err(error) = begin(&mut driver, &made, serving) {
            // The error says more than one on the way out could.
            let _ = driver.stop(made.index).and_then(|()| driver.delete(made.index));
            return Err(error);
        }
        Ok(UblkDevice { is_served: true, ..UblkDevice::left(made.index, &identifier.name) })
    }

    /// A device that an earlier daemon has left. Nobody serves it yet.
    #[must_use]
    pub fn left(index: u32, volume: &str) -> UblkDevice {
        let sequence = sysfs::sequence(Disk::ublk(index));
        UblkDevice { index, name: Link::of(volume).name().to_owned(), sequence, is_served: false }
    }

    /// Its disk.
    #[must_use]
    pub fn disk(&self) -> Disk {
        Disk::ublk(self.index)
    }

    /// Sets its limits, and lets udev know its name.
    ///
    /// # Errors
    /// If the kernel does not take them, or the note for udev cannot be written; the device works without.
    pub fn set_limits(&self) -> Result<()> {
        let noted = self.note().context("cannot write the note for udev");
        let set =
            sysfs::set_ublk_limits(self.index, REQUESTS.into()).and_then(|()| sysfs::announce(self.disk()));
        set.with_context(|| format!("cannot set the limits of {}", self.disk())).and(noted)
    }

    fn note(&self) -> Result<()> {
        let sequence = self.sequence.context("the kernel does not number disks")?;
        let directory = RunDirectory::find();
        directory.make(None)?;
        Ok(std::fs::write(directory.disk_note(sequence), format!("FOREBAY_NAME={}\n", self.name))?)
    }

    /// Whether the kernel still has it.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.sequence.is_some() && sysfs::sequence(self.disk()) == self.sequence
    }

    /// Removes the note for udev.
    pub fn forget(&self) {
        forget(self.sequence);
    }

    /// Serves the device in the place of a daemon that is dead.
    ///
    /// # Errors
    /// If that daemon lives, or has not ended yet.
    pub fn take_over(&mut self, serving: &dyn Serves) -> Result<()> {
        if self.is_served {
            return Ok(());
        }
        let mut driver = UblkDriver::open()?;
        let device = driver.information(self.index).with_context(|| format!("{} is gone", self.disk()))?;
        if device.state != State::Quiesced {
            bail!("{} is still served by somebody else", self.disk());
        }
        serving.export()?;
        driver.take_over(&device)?;
        let queues = driver.queues(&device)?;
        serving.queues(queues)?;
        driver.go_on(self.index)?;
        self.is_served = true;
        Ok(())
    }

    /// Ends it, if nobody uses it: `None`. Otherwise its users.
    ///
    /// # Errors
    /// If the kernel does not do so.
    pub fn end_if_unused(&self) -> Result<Option<String>> {
        match unused(self.disk())? {
            Ok(held) => end(&mut UblkDriver::open()?, self.index, Some(held)).map(|()| None),
            Err(users) => Ok(Some(users)),
        }
    }
}

/// Serves a new device, and gives it its disk.
fn begin(driver: &mut UblkDriver, device: &Information, serving: &dyn Serves) -> Result<()> {
    serving.queues(driver.queues(device)?)?;
    Ok(driver.start(device.index)?)
}

/// Removes what is left of a device whose daemon died before it had a disk, or when it had none any more.
pub fn clear_half_made(volume: &Identifier) {
    let indexes = sysfs::ublk_indexes();
    if indexes.is_empty() {
        return;
    }
    let Ok(mut driver) = UblkDriver::open() else { return };
    for index in indexes {
        let device = driver.information(index);
        if device.is_some_and(|device| device.state == State::Dead && device.mark == volume.mark()) {
            // One that stays is in nobody's way.
            let _ = driver.delete(index);
        }
    }
}

/// The device opened so that nobody can mount it; or who uses it.
fn unused(disk: Disk) -> Result<Result<OwnedFd, String>> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let held = match rustix::fs::open(disk.path(), flags, Mode::empty()) {
        Err(rustix::io::Errno::BUSY) => {
            return Ok(Err(users::describe(disk).unwrap_or_else(|| "somebody holds it".to_owned())));
        }
        opened => opened.with_context(|| format!("cannot open {disk}"))?,
    };
    let until = Instant::now() + PATIENCE;
    loop {
        match users::describe(disk) {
            None => return Ok(Ok(held)),
            Some(users) if Instant::now() >= until => return Ok(Err(users)),
            Some(_) => thread::sleep(PAUSE),
        }
    }
}

/// Ends a device that nobody uses.
///
/// # Errors
/// If somebody uses it, with who; it stays as it was.
pub fn end_if_unused(index: u32) -> Result<()> {
    let mut driver = UblkDriver::open()?;
    let disk = Disk::ublk(index);
    if driver.information(index).is_none_or(|device| device.state != State::Live) {
        // To open it could mean waiting for a daemon.
        return end_left_alone(index);
    }
    let held = unused(disk)?.map_err(|users| anyhow!("{disk} is in use: {users}; end that first"))?;
    end(&mut driver, index, Some(held))
}

/// Ends a device that no daemon serves and nobody uses.
///
/// # Errors
/// If somebody uses it, with who.
pub fn end_left_alone(index: u32) -> Result<()> {
    let disk = Disk::ublk(index);
    if let Some(users) = users::describe(disk) {
        bail!("{disk} is in use: {users}; end that first");
    }
    end(&mut UblkDriver::open()?, index, None)
}

/// Ends a device, which is open here at the most.
fn end(driver: &mut UblkDriver, index: u32, held: Option<OwnedFd>) -> Result<()> {
    let disk = Disk::ublk(index);
    let sequence = sysfs::sequence(disk);
    if let Some(held) = &held
        && let Err(error) = rustix::fs::fsync(held)
    {
        // Whoever wrote and did not close had no promise, and would be told nothing new by a refusal.
        notice(format_args!("{disk} could not write all that it was given: {error}"));
    }
    driver.stop(index)?;
    // The device goes when its disk is closed and its queues are served no more.
    drop(held);
    driver.delete(index)?;
    forget(sequence);
    Ok(())
}

fn forget(sequence: Option<u64>) {
    if let Some(sequence) = sequence {
        // Without udev nobody reads it, and no later disk has the number.
        let _ = std::fs::remove_file(RunDirectory::find().disk_note(sequence));
    }
}
