//! The cache engine: five calls in, effects out. A sixth is for drivers that have time while effects are on their way.

pub use crate::effect::Busy;
use crate::effect::{Effect, Errno, IoId, Request};
use crate::format::{Superblock, VolumeRecord};
use crate::limits::Config;
use crate::machine::guard::Blocks;
pub use crate::machine::scrub::{Bad, Scrubbed};
use crate::machine::volume::Volume;
use crate::machine::volumes::Volumes;
pub use crate::machine::warm::{CachedRun, Cursor};
use crate::machine::{Machine, Start};
use crate::memory::Memory;
use crate::pair::{Half, PairWords};
use crate::recovery::{Opened, OpenedStore};
use crate::status::Status;
use crate::store::log::LogStore;
use crate::store::slots::SlotStore;
use crate::store::{Lookup, Reading};
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

    /// The losses of origins of which no FLUSH has told yet, by volume. Whoever puts another engine in the place of one that stopped
    /// or crashed gives them to that if the clients stay: their next FLUSH has to fail.
    #[must_use]
    pub fn untold_losses(&self) -> Vec<(VolumeIndex, Errno)> {
        match &self.0 {
            Inner::Log(machine) => machine.untold_losses(),
            Inner::Slots(machine) => machine.untold_losses(),
        }
    }

    /// Takes over what [`Engine::untold_losses`] of the engine before tells: before the first request.
    pub fn take_over_losses(&mut self, losses: &[(VolumeIndex, Errno)]) {
        match &mut self.0 {
            Inner::Log(machine) => machine.take_over_losses(losses),
            Inner::Slots(machine) => machine.take_over_losses(losses),
        }
    }

    /// Lets the cache run on the two devices of a pair: before its first request.
    pub fn set_pair(&mut self, pair: PairWords) {
        match &mut self.0 {
            Inner::Log(machine) => machine.set_pair(pair),
            Inner::Slots(machine) => machine.set_pair(pair),
        }
    }

    /// Gives the half of a mirrored cache another name, that of the device which is to take its place: before
    /// [`crate::effect::RequestOp::Rejoin`].
    pub fn rename_half(&mut self, half: Half, name: &str) {
        match &mut self.0 {
            Inner::Log(machine) => machine.rename_half(half, name),
            Inner::Slots(machine) => machine.rename_half(half, name),
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

    /// Does what devices need not wait for: call it, if you can, when the effects are on their way to them. What is left
    /// of it is done when they answer.
    pub fn catch_up<M: Memory>(&mut self, memory: &M) {
        if let Inner::Log(machine) = &mut self.0 {
            machine.take_owed_checksums(memory);
        }
    }

    /// The time at which the engine wants [`Engine::advance`] called, if nothing else happens before. Ask when all effects are
    /// drawn: what the last calls let go on may bring it forward.
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

    /// Whether a change of the volume's order waits until all is home.
    #[must_use]
    pub fn is_order_changing(&self, volume: VolumeIndex) -> bool {
        self.volumes()[volume.at()].as_ref().is_some_and(|volume| volume.destage.order_changes > 0)
    }

    /// Calls `visit` with cached blocks, from a place in the tables on: those of `steps` rows, or a few more. Returns where
    /// to go on; `None` at the end. Takes time in proportion to `steps`.
    pub fn visit_cached(&self, from: Cursor, steps: u32, visit: &mut dyn FnMut(CachedRun)) -> Option<Cursor> {
        match &self.0 {
            Inner::Log(machine) => machine.store.visit_cached(from, steps, visit),
            Inner::Slots(machine) => machine.store.visit_cached(from, steps, visit),
        }
    }

    /// The runs of `blocks` blocks from `first_block` on that the cache has nothing of, as first block and number. Takes time
    /// in proportion to `blocks`.
    #[must_use]
    pub fn absent(&self, volume: VolumeIndex, first_block: u64, blocks: u64) -> Vec<(u64, u64)> {
        let range = Blocks { first: first_block, count: blocks };
        let runs = match &self.0 {
            Inner::Log(machine) => machine.absent(volume, range),
            Inner::Slots(machine) => machine.absent(volume, range),
        };
        runs.into_iter().map(|run| (run.first, run.count)).collect()
    }

    /// Whether the cache has data of a block that the origin lacks, as far as it knows: what no flush of the origin covers counts. A
    /// cache that failed and was given up has nothing.
    #[must_use]
    pub fn is_dirty(&self, volume: VolumeIndex, block: u64) -> bool {
        let blocks = Blocks { first: block, count: 1 };
        match &self.0 {
            Inner::Log(machine) => machine.gives_back(volume, blocks),
            Inner::Slots(machine) => machine.gives_back(volume, blocks),
        }
    }

    /// Takes the bad blocks that [`RequestOp::Scrub`](crate::effect::RequestOp::Scrub) found since the last time; the first
    /// thousand, if nobody took them for long.
    pub fn take_scrubbed(&mut self) -> Vec<Scrubbed> {
        match &mut self.0 {
            Inner::Log(machine) => core::mem::take(&mut machine.scrubbed),
            Inner::Slots(machine) => core::mem::take(&mut machine.scrubbed),
        }
    }

    /// The runs of lost blocks of a volume, rising, as first block and number.
    #[must_use]
    pub fn lost_blocks(&self, volume: VolumeIndex) -> Vec<(u64, u64)> {
        let runs = match &self.0 {
            Inner::Log(machine) => machine.store.lost_blocks(volume),
            Inner::Slots(machine) => machine.store.lost_blocks(volume),
        };
        runs.into_iter().map(|run| (run.first, run.count)).collect()
    }

    /// Blocks that [`RequestOp::Warm`](crate::effect::RequestOp::Warm) may bring into the cache without pushing any other
    /// one out.
    #[must_use]
    pub fn warm_room_blocks(&self) -> u64 {
        match &self.0 {
            Inner::Log(machine) => LogStore::warm_room_blocks(machine),
            Inner::Slots(machine) => SlotStore::warm_room_blocks(machine),
        }
    }

    /// Whether blocks that were read from an origin are on their way into the cache.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        match &self.0 {
            Inner::Log(machine) => machine.store.is_filling(),
            Inner::Slots(machine) => machine.store.is_filling(),
        }
    }

    /// Clients' reads of a volume's origin that are under way.
    #[must_use]
    pub fn client_reads_under_way(&self, volume: VolumeIndex) -> u32 {
        self.volumes()[volume.at()].as_ref().map_or(0, |volume| volume.origin.client_reads)
    }

    fn volumes(&self) -> &Volumes {
        match &self.0 {
            Inner::Log(machine) => &machine.volumes,
            Inner::Slots(machine) => &machine.volumes,
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
