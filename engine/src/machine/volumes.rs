//! The volumes of a cache, and what each may hold dirty.

use crate::limits::{Config, REQUEST_BYTES_MAX};
use crate::machine::volume::Volume;
use crate::number::{index, to_u8, wide};
use crate::units::{BLOCK_BYTES, VOLUMES_MAX, VolumeIndex};
use core::ops::{Index, IndexMut};

/// Lower bound of a share: the most that one request may need.
pub(crate) const SHARE_BLOCKS_MIN: u64 = wide(index(REQUEST_BYTES_MAX)) / BLOCK_BYTES;

/// The volumes of a cache, by their index.
pub(crate) struct Volumes {
    slots: [Option<Volume>; VOLUMES_MAX],
    /// One more than the highest index that ever had a volume.
    end: usize,
}

impl Index<usize> for Volumes {
    type Output = Option<Volume>;
    #[inline]
    fn index(&self, at: usize) -> &Option<Volume> {
        &self.slots[at]
    }
}

impl IndexMut<usize> for Volumes {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut Option<Volume> {
        &mut self.slots[at]
    }
}

impl Volumes {
    /// The volumes that recovery found.
    pub fn new(slots: [Option<Volume>; VOLUMES_MAX]) -> Volumes {
        let end = slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        Volumes { slots, end }
    }

    /// One more than the highest index that ever had a volume.
    #[inline]
    pub fn end(&self) -> usize {
        self.end
    }

    /// Every index with or without a volume, up to the highest with one.
    #[inline]
    pub fn indices(&self) -> impl Iterator<Item = VolumeIndex> + use<> {
        (0..self.end).map(|at| VolumeIndex(to_u8(at)))
    }

    /// The places for volumes, by rising index.
    #[inline]
    pub fn iter(&self) -> core::slice::Iter<'_, Option<Volume>> {
        self.slots[..self.end].iter()
    }

    /// The places for volumes, to be changed.
    pub fn iter_mut(&mut self) -> core::slice::IterMut<'_, Option<Volume>> {
        self.slots[..self.end].iter_mut()
    }

    /// Puts a volume at its place, where none is.
    pub fn enter(&mut self, volume: Volume) {
        let at = volume.index.at();
        assert!(self.slots[at].is_none(), "one volume at a place");
        self.slots[at] = Some(volume);
        self.end = self.end.max(at + 1);
    }

    /// The volume that a request under way is for.
    #[inline]
    pub fn of(&self, index: VolumeIndex) -> &Volume {
        self.slots[index.at()].as_ref().expect("the volume of a request under way exists")
    }

    /// The volume that a request under way is for.
    #[inline]
    pub fn of_mut(&mut self, index: VolumeIndex) -> &mut Volume {
        self.slots[index.at()].as_mut().expect("the volume of a request under way exists")
    }

    /// A volume that a request names, if there is one.
    #[inline]
    pub fn get_mut(&mut self, index: VolumeIndex) -> Option<&mut Volume> {
        self.slots.get_mut(index.at())?.as_mut()
    }

    /// Dirty blocks that `volume` may hold now; `None` if only the log's room limits it.
    #[inline]
    pub fn dirty_blocks_max(&self, volume: &Volume, config: &Config) -> Option<u64> {
        let others = || self.iter().flatten();
        if volume.origin.is_failing() {
            let part = config.failing_dirty_blocks_max / wide(others().count());
            Some(part.max(SHARE_BLOCKS_MIN))
        } else if self.end > 1 && others().nth(1).is_some() {
            Some(config.shared_dirty_blocks_max.max(SHARE_BLOCKS_MIN))
        } else {
            None
        }
    }

    /// Blocks that were hit since the start.
    pub fn hit_blocks(&self) -> u64 {
        self.iter().flatten().map(|volume| volume.counters.hit_blocks).sum()
    }

    /// Whether so much data cannot go home that a lap of the ring would gain next to nothing: appending it again
    /// would only wear the device out.
    pub fn is_ring_stuck(&self, config: &Config) -> bool {
        let stuck = self.iter().flatten().filter(|volume| volume.origin.is_failing());
        stuck.map(|volume| volume.dirty_blocks).sum::<u64>() > config.shared_dirty_blocks_max
    }
}
