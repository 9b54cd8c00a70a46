//! Faults of a device: by plan and by rate.

use crate::random::Random;
use engine::effect::Errno;
use std::collections::VecDeque;

/// The kind of a device operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
    /// Zeroes.
    WriteZeroes,
    /// The driver's durable note that a volume's cache is given up.
    Abandon,
}

impl Kind {
    /// Whether it changes the device.
    #[must_use]
    pub fn is_change(self) -> bool {
        matches!(self, Kind::Write | Kind::Discard | Kind::WriteZeroes)
    }
}

/// A fault of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It fails. Any part of a write may have landed.
    Error(Errno),
    /// It takes that much longer.
    Slow {
        /// In nanoseconds.
        by_ns: u64,
    },
    /// It is never answered; the driver's timeout makes the device count as gone.
    Hang,
    /// A write goes to another place; the device reports success.
    Misdirect {
        /// The first sector there.
        to: u64,
    },
}

/// A fault that was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// The kind of operation.
    pub on: Kind,
    /// The sector that the operation must touch; `None`: any.
    pub sector: Option<u64>,
    /// The fault.
    pub fault: Fault,
    /// How many operations it hits yet; `u32::MAX` is for ever.
    pub times: u32,
}

/// Faults by chance, in a million operations of the kind concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Reads that fail.
    pub read_error: u32,
    /// Writes that fail.
    pub write_error: u32,
    /// Flushes that fail.
    pub flush_error: u32,
    /// Operations that take a hundred times as long.
    pub slow: u32,
    /// Operations that are never answered.
    pub hang: u32,
    /// Writes after which a sector of client data rots.
    pub rot: u32,
    /// Writes after which a sector of metadata rots.
    pub metadata_rot: u32,
    /// Writes that go elsewhere.
    pub misdirect: u32,
    /// Writes for which there is no space.
    pub no_space: u32,
}

/// Faults of one device.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Planned faults; the first that matches counts.
    pub planned: VecDeque<Planned>,
    /// By chance.
    pub rates: Rates,
    /// Every operation fails with this error: the device is gone.
    pub gone: Option<Errno>,
}

impl Faults {
    /// Makes the next operation of the kind fail.
    pub fn fail_next(&mut self, on: Kind, errno: Errno) {
        self.plan(on, Fault::Error(errno), 1);
    }

    /// Makes all operations of the kind fail until [`Faults::heal`].
    pub fn fail_always(&mut self, on: Kind, errno: Errno) {
        self.plan(on, Fault::Error(errno), u32::MAX);
    }

    /// Gives the next `times` operations of the kind this fault.
    pub fn plan(&mut self, on: Kind, fault: Fault, times: u32) {
        self.planned.push_back(Planned { on, sector: None, fault, times });
    }

    /// Ends all faults; operations that hang go on hanging.
    pub fn heal(&mut self) {
        self.planned.clear();
        self.rates = Rates::default();
        self.gone = None;
    }

    /// Whether no fault is planned or drawn.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.planned.is_empty() && self.rates == Rates::default() && self.gone.is_none()
    }

    /// Draws the fault of an operation that begins now.
    pub fn draw(&mut self, kind: Kind, first: u64, sectors: u64, random: &mut Random) -> Option<Fault> {
        if let Some(errno) = self.gone {
            return Some(Fault::Error(errno));
        }
        let hits = |planned: &Planned| {
            let is_there =
                planned.sector.is_none_or(|sector| (first..first + sectors.max(1)).contains(&sector));
            planned.on == kind && is_there
        };
        if let Some(at) = self.planned.iter().position(hits) {
            let planned = &mut self.planned[at];
            let fault = planned.fault;
            if planned.times != u32::MAX {
                planned.times -= 1;
                if planned.times == 0 {
                    self.planned.remove(at);
                }
            }
            return Some(fault);
        }
        let rates = self.rates;
        if rates == Rates::default() {
            return None;
        }
        let error = match kind {
            Kind::Read => rates.read_error,
            Kind::Flush => rates.flush_error,
            _ => rates.write_error,
        };
        if random.chance(error) {
            return Some(Fault::Error(Errno::IO));
        }
        if kind.is_change() && random.chance(rates.no_space) {
            return Some(Fault::Error(Errno::NOSPC));
        }
        if random.chance(rates.hang) {
            return Some(Fault::Hang);
        }
        if random.chance(rates.slow) {
            return Some(Fault::Slow { by_ns: 20_000_000 });
        }
        None
    }
}
