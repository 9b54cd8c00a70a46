//! The status of a running engine; see [`crate::status`].

use crate::effect::WriteMode;
use crate::machine::Machine;
use crate::machine::volume::{Standing, Volume};
use crate::status::{CacheStatus, Counters, Status, VolumeState, VolumeStatus};
use crate::store::Store;
use crate::units::{BLOCK_BYTES, SECTOR_BYTES};
use alloc::string::String;
use alloc::vec::Vec;

impl<S: Store> core::fmt::Debug for Machine<S> {
    /// Prints each request and what it waits for, for a test in which nothing goes on.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let stages: Vec<_> =
            self.requests.iter().map(|(key, active)| (key, active.stage, active.reserved_blocks)).collect();
        let destage: Vec<_> = self.volumes.iter().flatten().map(|volume| &volume.destage).collect();
        let shares: Vec<_> = (self.volumes.iter().flatten())
            .map(|volume| (volume.dirty_blocks, volume.reserved_blocks, volume.share_waiting))
            .collect();
        let mut picture = f.debug_struct("Machine");
        picture.field("now", &self.now).field("requests", &stages).field("barrier", &self.barrier);
        self.store.describe(&mut picture);
        picture.field("destage", &destage).field("dirty_reserved_waiting", &shares);
        picture.field("flights", &self.outbox.in_air()).finish_non_exhaustive()
    }
}

impl<S: Store> Machine<S> {
    /// A picture of the engine.
    pub(crate) fn status(&self) -> Status {
        let volumes = self.volumes.iter().flatten().map(|volume| self.volume_status(volume)).collect();
        let mut cache = CacheStatus {
            size_bytes: self.superblock.cache_bytes,
            latched: self.latched.is_some(),
            false_dirty_limit_bytes: self.config.false_dirty_blocks_max * BLOCK_BYTES,
            device: self.outbox.cache_bytes(),
            written: self.outbox.written(),
            wear: self.wear_status(),
            pace: self.slow_cache.status(self.now),
            pair: self.halves.as_ref().map(|halves| halves.status()),
            ..CacheStatus::default()
        };
        self.store.fill_status(&mut cache);
        Status { volumes, cache, session: self.superblock.session }
    }

    fn volume_status(&self, volume: &Volume) -> VolumeStatus {
        let name =
            self.superblock.volumes[volume.index.at()].as_ref().map_or(String::new(), |r| r.name.clone());
        let owes = volume.owes_origin();
        let is_draining =
            owes && volume.mode != WriteMode::Writeback || volume.is_dirty() && volume.destage.drains > 0;
        let state = match volume.standing {
            Standing::Uncached | Standing::Abandoning => VolumeState::Uncached,
            Standing::Failed => VolumeState::Failed,
            Standing::Detaching => VolumeState::Detaching,
            Standing::Cached if volume.origin.is_absent() => VolumeState::OriginAbsent,
            Standing::Cached if volume.origin.is_failing() => VolumeState::OriginFailing,
            Standing::Cached if is_draining => VolumeState::Draining,
            Standing::Cached => VolumeState::Active,
        };
        VolumeStatus {
            index: volume.index,
            id: volume.id,
            name,
            mode: if owes { WriteMode::Writeback } else { volume.mode },
            mode_target: volume.mode,
            state,
            size_bytes: volume.size_sectors * SECTOR_BYTES,
            dirty_bytes: (volume.dirty_blocks + volume.zero_blocks) * BLOCK_BYTES,
            dirty_limit_bytes: self
                .volumes
                .dirty_blocks_max(volume, &self.config)
                .map(|blocks| blocks * BLOCK_BYTES),
            lost_bytes: volume.lost_blocks * BLOCK_BYTES,
            cached_bytes: volume.cached_blocks * BLOCK_BYTES,
            origin_errors: volume.origin.errors,
            is_held_back: volume.is_dirty() && self.rests(volume),
            is_flooded: volume.destage.is_flood_under_way(self.now),
            order: self.order_status(volume),
            uncached: volume.standing == Standing::Uncached,
            counters: Counters { origin: self.outbox.origin_bytes(volume.index), ..volume.counters },
        }
    }
}
