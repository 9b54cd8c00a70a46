//! A device for one synchronous job (format, recovery, check), and a power cut in the middle of it.

use crate::content::{SECTOR, Sector};
use crate::disk::faults::{Fault, Kind};
use crate::disk::{Content, Disk};
use crate::random::Random;
use engine::effect::Errno;
use engine::image::{Image, ReadAt};
use std::cell::Cell;

/// A device that stops after a number of changes.
pub struct CutImage<'a> {
    disk: &'a mut Disk,
    /// Writes and flushes until the cut.
    left: Option<u64>,
    done: u64,
    /// Writes and flushes of this device and of others, where they count together.
    all: Option<&'a Cell<u64>>,
    random: Option<&'a mut Random>,
    faults: u64,
}

impl<'a> CutImage<'a> {
    /// A device that does not stop.
    pub fn whole(disk: &'a mut Disk) -> CutImage<'a> {
        CutImage { disk, left: None, done: 0, all: None, random: None, faults: 0 }
    }

    /// A device on which the power fails instead of the change after the first `changes`. That one
    /// may be on the device, volatile.
    pub fn cut_after(disk: &'a mut Disk, changes: u64) -> CutImage<'a> {
        CutImage { disk, left: Some(changes), done: 0, all: None, random: None, faults: 0 }
    }

    /// The same, which counts its changes together with those of other devices.
    #[must_use]
    pub fn counting(self, all: &'a Cell<u64>) -> CutImage<'a> {
        CutImage { all: Some(all), ..self }
    }

    fn count(&mut self) {
        self.done += 1;
        if let Some(all) = self.all {
            all.set(all.get() + 1);
        }
    }

    /// The same with the device's faults.
    #[must_use]
    pub fn with_faults(self, random: &'a mut Random) -> CutImage<'a> {
        CutImage { random: Some(random), ..self }
    }

    /// Does `body` without the device's faults.
    pub fn without_faults<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        let random = self.random.take();
        let result = body(self);
        self.random = random;
        result
    }

    /// Whether the cut came.
    #[must_use]
    pub fn was_cut(&self) -> bool {
        self.left.is_some_and(|left| self.all.map_or(self.done, Cell::get) > left)
    }

    /// Writes and flushes that were asked for.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.done
    }

    /// Faults that happened.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults
    }

    fn draw(&mut self, kind: Kind, first: u64, sectors: u64) -> Result<(), Errno> {
        let Some(random) = &mut self.random else { return Ok(()) };
        match self.disk.faults.draw(kind, first, sectors, random) {
            Some(Fault::Error(errno)) => {
                self.faults += 1;
                Err(errno)
            }
            // The driver's timeout.
            Some(Fault::Hang) => {
                self.faults += 1;
                Err(Errno::TIMEDOUT)
            }
            _ => Ok(()),
        }
    }
}

impl Image for CutImage<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.sectors() * SECTOR as u64
    }

    fn read_group(&mut self, reads: &mut [ReadAt]) {
        for read in reads {
            let (first, sectors) = (read.offset_bytes / 512, read.bytes.len() as u64 / 512);
            if first + sectors > self.disk.sectors() {
                read.result = Err(Errno::INVAL);
                continue;
            }
            read.result = self.draw(Kind::Read, first, sectors);
            if self.was_cut() {
                read.result = Err(Errno::IO);
            }
            if read.result.is_ok() {
                let cells = self.disk.read(first, sectors);
                for (cell, bytes) in cells.iter().zip(read.bytes.chunks_mut(SECTOR)) {
                    cell.expand(bytes);
                }
            }
        }
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        let (first, sectors) = (offset_bytes / 512, bytes.len() as u64 / 512);
        if first + sectors > self.disk.sectors() {
            return Err(Errno::INVAL);
        }
        if self.was_cut() {
            return Err(Errno::IO);
        }
        self.count();
        self.draw(Kind::Write, first, sectors)?;
        let content: Vec<Sector> = bytes.chunks(SECTOR).map(Sector::of_bytes).collect();
        let serial = self.disk.land(first, Content::Data(content.into()));
        if self.was_cut() {
            return Err(Errno::IO);
        }
        self.disk.answered(serial);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        if self.was_cut() {
            return Err(Errno::IO);
        }
        self.count();
        if self.was_cut() {
            return Err(Errno::IO);
        }
        self.draw(Kind::Flush, 0, 0)?;
        self.disk.flush_all();
        Ok(())
    }
}
