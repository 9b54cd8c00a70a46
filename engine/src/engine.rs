//! The cache engine: five calls in, effects out.

pub use crate::effect::Busy;
use crate::effect::{Effect, Errno, IoId, Request};
use crate::format::{Superblock, VolumeRecord};
use crate::limits::Config;
use crate::machine::volume::Volume;
use crate::machine::{Machine, Start};
use crate::memory::Memory;
use crate::recovery::{Opened, OpenedStore};
use crate::status::Status;
use crate::store::Lookup;
use crate::store::log::LogStore;
use crate::store::slots::SlotStore;
use crate::units::{Nanos, VolumeIndex};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A running cache.
#[derive(Debug)]
pub struct Engine(Inner);

/// The machine over the store that the cache was formatted with.
#[derive(Debug)]
enum Inner {
    Log(Box<Machine<LogStore>>),
    Slots(Box<Machine<SlotStore>>),
}

impl Engine {
    /// An engine over the findings of recovery.
    #[must_use]
    pub fn new(opened: Opened, config: Config) -> Engine {
        let Opened { superblock, volumes, store, .. } = opened;
        Engine(match store {
            OpenedStore::Log(log) => {
                Inner::Log(Box::new(Machine::new(Start { superblock, volumes, store: log.store }, config)))
            }
            OpenedStore::Slots(store) => {
                Inner::Slots(Box::new(Machine::new(Start { superblock, volumes, store: *store }, config)))
            }
        })
    }

    /// Takes a request. `now` never goes back from one call to the next.
    ///
    /// # Errors
    /// [`Busy`], if too many requests are under way.
    pub fn submit<M: Memory>(&mut self, now: Nanos, request: Request, memory: &mut M) -> Result<(), Busy> {
        match &mut self.0 {
            Inner::Log(machine) => machine.submit(now, request, memory),
            Inner::Slots(machine) => machine.submit(now, request, memory),
        }
    }

    /// Names the volume that the next [`crate::effect::RequestOp::Add`] puts on the cache, and whether its origin can drop
    /// ranges. The engine gives it a number of its own, whatever `record` says.
    pub fn propose(&mut self, record: VolumeRecord, can_discard: bool) {
        match &mut self.0 {
            Inner::Log(machine) => machine.propose(record, can_discard),
            Inner::Slots(machine) => machine.propose(record, can_discard),
        }
    }

    /// Tells the time of day, in seconds since 1970: what changes a setting from now on is noted with it.
    pub fn tell_time(&mut self, unix_seconds: u64) {
        match &mut self.0 {
            Inner::Log(machine) => machine.unix_seconds = unix_seconds,
            Inner::Slots(machine) => machine.unix_seconds = unix_seconds,
        }
    }

    /// Takes a device's answer to operation `io`.
    pub fn complete<M: Memory>(&mut self, now: Nanos, io: IoId, result: Result<(), Errno>, memory: &mut M) {
        match &mut self.0 {
            Inner::Log(machine) => machine.complete(now, io, result, memory),
            Inner::Slots(machine) => machine.complete(now, io, result, memory),
        }
    }

    /// Lets time pass: call it when [`Engine::deadline`] was reached.
    pub fn advance<M: Memory>(&mut self, now: Nanos, memory: &mut M) {
        match &mut self.0 {
            Inner::Log(machine) => machine.advance(now, memory),
            Inner::Slots(machine) => machine.advance(now, memory),
        }
    }

    /// The next thing to do, until `None`. Call it until then after every group of the calls
    /// above: writes that wait for group commit are sent off when the driver has no more input.
    pub fn poll_effect<M: Memory>(&mut self, memory: &mut M) -> Option<Effect> {
        match &mut self.0 {
            Inner::Log(machine) => machine.poll_effect(memory),
            Inner::Slots(machine) => machine.poll_effect(memory),
        }
    }

    /// The time at which the engine wants [`Engine::advance`] called, if nothing else happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        match &self.0 {
            Inner::Log(machine) => machine.deadline(),
            Inner::Slots(machine) => machine.deadline(),
        }
    }

    /// A picture of the engine.
    #[must_use]
    pub fn status(&self) -> Status {
        match &self.0 {
            Inner::Log(machine) => machine.status(),
            Inner::Slots(machine) => machine.status(),
        }
    }

    /// The superblock as it is in memory: names, origins, sizes.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        match &self.0 {
            Inner::Log(machine) => &machine.superblock,
            Inner::Slots(machine) => &machine.superblock,
        }
    }

    /// The blocks that the cache holds of a volume, in rising order. Takes time and memory in proportion to
    /// the whole index.
    #[must_use]
    pub fn cached_blocks(&self, volume: VolumeIndex) -> Vec<u64> {
        match &self.0 {
            Inner::Log(machine) => machine.store.cached_blocks(volume),
            Inner::Slots(machine) => {
                let mut blocks = machine.store.cached_blocks(volume);
                // The last piece of a volume may be short.
                let end = machine.volumes[volume.at()].as_ref().map_or(0, Volume::blocks);
                blocks.retain(|block| *block < end);
                blocks
            }
        }
    }
}
