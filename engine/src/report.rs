//! The engine's own picture of itself; see [`crate::status`].

use crate::effect::WriteMode;
use crate::engine::Engine;
use crate::status::{CacheStatus, Status, VolumeState, VolumeStatus};
use crate::units::{BLOCK_BYTES, SECTOR_BYTES};
use crate::volume::{Standing, Volume};
use alloc::string::String;
use alloc::vec::Vec;

impl core::fmt::Debug for Engine {
    /// Who waits for what: for a test that found nobody at work.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let stages: Vec<_> = self.requests.iter().map(|(key, active)| (key, active.stage)).collect();
        let destage: Vec<_> = self.volumes.iter().flatten().map(|volume| &volume.destage).collect();
        let ring: Vec<_> = self.segments.ring().take(6).map(|at| (at, self.segments.get(at))).collect();
        f.debug_struct("Engine")
            .field("now", &self.now)
            .field("requests", &stages)
            .field("log", &self.log)
            .field("barrier", &self.barrier)
            .field("reclaim", &self.reclaim)
            .field("destage", &destage)
            .field("tail", &ring)
            .field("flights", &self.flights_in_air())
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// A picture of the engine.
    #[must_use]
    pub fn status(&self) -> Status {
        let volumes = self.volumes.iter().flatten().map(|volume| self.volume_status(volume)).collect();
        let segment_bytes = u64::from(self.segments.segment_blocks()) * BLOCK_BYTES;
        let cache = CacheStatus {
            size_bytes: self.superblock.cache_bytes,
            used_bytes: self.segments.used_bytes(),
            segments: self.segments.count(),
            segments_free: self.segments.free(),
            segment_bytes,
            latched: self.latched.is_some(),
            index_bytes: self.index.allocated_bytes(),
            index_blocks: self.index.len(),
            false_dirty_limit_bytes: self.config.false_dirty_blocks_max * BLOCK_BYTES,
            device: self.cache_bytes,
            wraps: self.segments.wraps(),
        };
        Status { volumes, cache, session: self.superblock.session }
    }

    fn volume_status(&self, volume: &Volume) -> VolumeStatus {
        let name =
            self.superblock.volumes[volume.index.at()].as_ref().map_or(String::new(), |r| r.name.clone());
        let is_draining =
            volume.is_dirty() && (volume.mode != WriteMode::Writeback || volume.destage.drains > 0);
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
            mode: if volume.is_dirty() { WriteMode::Writeback } else { volume.mode },
            mode_target: volume.mode,
            state,
            size_bytes: volume.size_sectors * SECTOR_BYTES,
            dirty_bytes: (volume.dirty_blocks + volume.zero_blocks) * BLOCK_BYTES,
            dirty_limit_bytes: self.dirty_blocks_max(volume).map(|blocks| blocks * BLOCK_BYTES),
            lost_bytes: volume.lost_blocks * BLOCK_BYTES,
            cached_bytes: volume.cached_blocks * BLOCK_BYTES,
            origin_errors: volume.origin.errors,
            uncached: volume.standing == Standing::Uncached,
            counters: volume.counters,
        }
    }

    /// The superblock as it is in memory: names, origins, sizes.
    #[must_use]
    pub fn superblock(&self) -> &crate::format::Superblock {
        &self.superblock
    }
}
