//! The log of a mirrored cache: what one half has alone, and where the halves may differ.

use super::Replay;
use crate::format::{Entry, Layout, PayloadRun, Superblock};
use crate::image::Image;
use crate::machine::volume::Volume;
use crate::mutation::Mutation;
use crate::number;
use crate::pair::Half;
use crate::store::log::index::Run;
use crate::store::log::once::Doubtful;
use crate::store::log::scan::SegmentView;
use crate::units::{BLOCK_BYTES, BlockKey, Place, SECTORS_PER_BLOCK, VolumeIndex};

impl Replay {
    /// Asks a device that is kept twice where its halves may differ, and what each may have alone.
    pub(super) fn look_at_halves<I: Image>(&mut self, image: &I, superblock: &Superblock) {
        let Some(once_counts_from) = image.once_counts_from() else { return };
        let geometry = superblock.geometry();
        let len_bytes = u64::from(geometry.segment_blocks) * BLOCK_BYTES;
        let may_differ = |at| image.may_differ(geometry.offset_bytes(at, 0), len_bytes);
        self.may_differ = (0..geometry.segments).map(may_differ).collect();
        let blocks = u64::from(geometry.segments) * u64::from(geometry.segment_blocks);
        if matches!(superblock.layout, Layout::Log(_)) && blocks <= u64::from(Place::HALF_END) {
            self.once_counts_from = Some(once_counts_from);
            self.index.settled().name_halves();
        }
    }

    fn may_differ_in(&self, view: SegmentView) -> bool {
        self.may_differ.get(number::index(view.segment)).is_some_and(|may| *may)
    }

    /// RULE 20: a power cut may take what was written since, and then this counts.
    pub(super) fn note_checksums(&mut self, view: SegmentView, place: Place, checksums: &[u32]) {
        let is_off = self.mutations.has(Mutation::OverwrittenForgotten);
        if !is_off && self.may_differ_in(view) {
            let offsets = (self.offset_bytes(place)..).step_by(number::index_wide(BLOCK_BYTES));
            self.checksums.extend(offsets.zip(checksums.iter().copied()));
        }
    }

    /// RULE 20: where each half has something of its own, as the first half tells, which has no less: it lies in a row.
    pub(super) fn note_own(&mut self, run: PayloadRun, place: Place, view: SegmentView) {
        if self.may_differ_in(view) && run.half == Some(Half::First) {
            self.differing.insert(self.offset_bytes(place), u64::from(run.blocks) * BLOCK_BYTES);
        }
    }

    /// Clean blocks that one half has alone.
    pub(super) fn once(
        &mut self,
        volume: VolumeIndex,
        (entry, run): (&Entry, PayloadRun),
        place: Place,
        checksums: &[u32],
        view: SegmentView,
    ) {
        let first_block = entry.start_sector / SECTORS_PER_BLOCK + u64::from(run.skip);
        let blocks = u64::from(run.blocks);
        let volume_blocks = self.volumes[volume.at()].as_ref().map_or(0, Volume::blocks);
        if first_block + blocks > volume_blocks {
            // As in `entry`.
            return;
        }
        let first = BlockKey::new(volume, first_block);
        self.extents.cut(first, blocks, |_| ());
        // RULE 20: what a half had alone before it was copied anew is not there any more, and nobody has an older copy that counts.
        // Nor is there one where nobody was asked about halves: dirty data alone is looked for then.
        let counts =
            |half: &Half| self.once_counts_from.is_some_and(|from| view.generation >= from[half.at()]);
        let Some(half) = run.half.filter(counts) else {
            self.drop_range(first, blocks);
            return;
        };
        let place = place.of_half(half);
        self.index.insert(Run { first, place, dirty: false, hits: 0, checksums });
        if self.sequence > view.flushed_sequence {
            self.doubtful.push(Doubtful { first, place, checksums: checksums.to_vec() });
        }
    }
}
