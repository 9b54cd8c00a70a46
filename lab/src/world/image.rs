//! A device for one synchronous job (format, recovery, check), and a power cut in the middle of it.

use crate::content::{SECTOR, Sector};
use crate::disk::faults::{Fault, Kind};
use crate::disk::{Content, Disk};
use crate::random::Random;
use engine::effect::Errno;
use engine::format::FlushNote;
use engine::image::{Image, ReadAt};
use std::cell::{Cell, RefCell};

/// A device that stops after a number of changes.
pub struct CutImage<'a> {
    disk: &'a mut Disk,
    /// Writes and flushes until the cut.
    left: Option<u64>,
    done: u64,
    /// Writes and flushes of this device and of others, where they count together.
    all: Option<&'a Cell<u64>>,
    faulty: Option<&'a Faulty<'a>>,
}

/// The faults of devices while a job is done, and how many happened.
pub struct Faulty<'a> {
    pub random: RefCell<&'a mut Random>,
    pub is_off: Cell<bool>,
    pub faults: Cell<u64>,
}

impl Faulty<'_> {
    /// Does `body` without the devices' faults.
    pub fn without<R>(&self, body: impl FnOnce() -> R) -> R {
        let was_off = self.is_off.replace(true);
        let result = body();
        self.is_off.set(was_off);
        result
    }
}

impl<'a> CutImage<'a> {
    /// A device that does not stop.
    pub fn whole(disk: &'a mut Disk) -> CutImage<'a> {
        CutImage { disk, left: None, done: 0, all: None, faulty: None }
    }

    /// A device on which the power fails instead of the change after the first `changes`. That one
    /// may be on the device, volatile.
    pub fn cut_after(disk: &'a mut Disk, changes: u64) -> CutImage<'a> {
        CutImage { disk, left: Some(changes), done: 0, all: None, faulty: None }
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
    pub fn with_faults(self, faulty: &'a Faulty<'a>) -> CutImage<'a> {
        CutImage { faulty: Some(faulty), ..self }
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

    fn draw(&mut self, kind: Kind, first: u64, sectors: u64) -> Result<(), Errno> {
        let Some(faulty) = self.faulty.filter(|faulty| !faulty.is_off.get()) else { return Ok(()) };
        match self.disk.faults.draw(kind, first, sectors, &mut faulty.random.borrow_mut()) {
            Some(Fault::Error(errno)) => {
                faulty.faults.set(faulty.faults.get() + 1);
                Err(errno)
            }
            // The driver's timeout.
            Some(Fault::Hang) => {
                faulty.faults.set(faulty.faults.get() + 1);
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

    fn flush_note(&self) -> Option<FlushNote> {
        self.disk.flush_note
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
