//! A checkpoint on its way back: what of it counts, and where the replay of the log begins behind it.

use crate::format::{
    CHECKPOINT_RECORD_BYTES, CheckpointArea, CheckpointRecord, Chunk, ChunkCounts, ChunkExtent, FormatError,
    GROUP_ROW_WORDS, SINGLE_ROW_WORDS, Side, Superblock, rows_bytes,
};
use crate::image::{Image, ReadAt};
use crate::machine::volume::Volume;
use crate::mutation::{Mutation, Mutations};
use crate::number::index as to_index;
use crate::store::log::extents::{Extent, ExtentKind, Extents};
use crate::store::log::index::checkpoint::{LoadedGroup, LoadedSingle};
use crate::store::log::index::deferred::DeferredIndex;
use crate::store::log::index::sums::Sums;
use crate::store::log::index::{GROUP_BLOCKS, Index};
use crate::store::log::scan::{Span, Survey, fill_group};
use crate::units::{BlockKey, Place, VOLUMES_MAX};
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of chunks that are read at a time, about.
const GROUP_BYTES: u32 = 4 << 20;

/// A checkpoint whose record counts.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub side: Side,
    pub record: CheckpointRecord,
}

/// Reads the records of both sides, and finds which of them count with this log: the newest first.
pub fn candidates<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    area: &CheckpointArea,
    survey: &Survey,
    mutations: Mutations,
) -> Vec<Candidate> {
    let read = |side| {
        // One that cannot be read is none.
        let bytes = image.read(area.record_at(side), CHECKPOINT_RECORD_BYTES).ok()?;
        let record = CheckpointRecord::decode(&bytes).ok()?;
        // A start that was cut off may have written the number of its session.
        let is_believed = record.session == superblock.session
            || record.session == superblock.session + 1
            || mutations.has(Mutation::BelieveVoidCheckpoint);
        let is_whole =
            record.end_sequence <= survey.end.sequence || mutations.has(Mutation::BelieveCutCheckpoint);
        // HAZARD 15: room is made for as many rows as it names.
        let bytes = u64::from(record.chunks) * u64::from(area.chunk_bytes());
        let has_room = record.singles.max(record.groups) <= bytes / rows_bytes(1, 0, 0);
        let is_of_this = record.id.set_id == superblock.set_id && record.chunks <= area.chunks && has_room;
        (is_of_this && is_believed && is_whole).then_some(Candidate { side, record })
    };
    let mut candidates: Vec<Candidate> = Side::BOTH.into_iter().filter_map(read).collect();
    candidates.sort_by_key(|candidate| core::cmp::Reverse(candidate.record.id.start_sequence));
    candidates
}

/// RULE 22: writes into the record of a checkpoint that session `session` believes it, when the log that it is believed with is
/// durable.
pub fn believe<I: Image>(
    image: &mut I,
    area: &CheckpointArea,
    Candidate { side, record }: Candidate,
    session: u64,
) {
    let mut bytes = alloc::vec![0; CHECKPOINT_RECORD_BYTES];
    CheckpointRecord { session, ..record }.encode(&mut bytes);
    // If that fails, a start replays more.
    let _ = image.write(area.record_at(side), &bytes);
}

/// The worth of what a checkpoint says lies in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing: it is not in the log any more, or its present life is in the log behind the checkpoint.
    Gone,
    /// All.
    There,
    /// All, and it is home.
    Home,
}

/// The order of the parts of an index in chunks: each is in one chunk, and rises in that, first with groups, then with singles. So
/// no single is there before a group of its part.
#[derive(Default)]
struct PartOrder {
    count: u32,
    /// The first part that may be in this chunk.
    first: u32,
    /// The last part that was in it, and that of what came last.
    end: u32,
    at: u32,
}

impl PartOrder {
    fn begin_chunk(&mut self) {
        self.first = self.end;
        self.at = self.first;
    }

    fn begin_singles(&mut self) {
        self.at = self.first;
    }

    /// A row of a part comes; `None` if it should not.
    #[inline]
    fn next(&mut self, part: u32) -> Option<()> {
        let is_next = part >= self.at;
        self.at = part;
        self.end = self.end.max(part + 1);
        is_next.then_some(())
    }
}

/// The memory that a checkpoint is loaded into.
pub struct Loading<'l> {
    index: &'l mut Index,
    extents: &'l mut Extents,
    /// Over what is in the index.
    pub sums: Sums,
    volumes: &'l mut [Option<Volume>; VOLUMES_MAX],
    standings: Vec<Standing>,
    segment_bits: u32,
    /// Blocks of the ring: no place is behind them.
    places: u32,
    /// Blocks of each volume, 0 where keys name none that there is.
    volume_blocks: [u64; VOLUMES_MAX],
    parts: PartOrder,
    /// Whether the index is so near its budget that each clean block asks for room.
    is_near_budget: bool,
}

/// Loads a checkpoint.
///
/// # Errors
/// [`FormatError`]; then the index and the extents have a part of it.
pub fn load<I: Image>(
    image: &mut I,
    area: &CheckpointArea,
    Candidate { side, record }: &Candidate,
    into: &mut Loading<'_>,
) -> Result<(), FormatError> {
    let in_group = GROUP_BYTES / area.chunk_bytes();
    let mut reads: [Vec<ReadAt>; 2] = [Vec::new(), Vec::new()];
    let mut before: Range<u32> = 0..0;
    let mut result = Ok(());
    loop {
        let next = before.end..record.chunks.min(before.end + in_group);
        let [done, reading] = &mut reads;
        let pieces = next.clone().map(|chunk| (area.chunk_at(*side, chunk), to_index(area.chunk_bytes())));
        fill_group(pieces, reading);
        image.read_group_beside(reading, &mut || {
            let mut chunks = before.clone().zip(done.iter());
            result = chunks.try_for_each(|(number, read)| {
                // What cannot be read is as good as damaged.
                read.result.map_err(|_| FormatError::Truncated)?;
                into.chunk(&Chunk::decode(&record.id, number, &read.bytes)?)
            });
        });
        result?;
        if next.is_empty() {
            return Ok(());
        }
        before = next;
        reads.swap(0, 1);
    }
}

impl<'l> Loading<'l> {
    /// Makes the memory ready for a checkpoint, which the log of `survey` goes on behind.
    pub fn new(
        superblock: &Superblock,
        survey: &Survey,
        record: &CheckpointRecord,
        volumes: &'l mut [Option<Volume>; VOLUMES_MAX],
        index: &'l mut DeferredIndex,
        extents: &'l mut Extents,
        mutations: Mutations,
    ) -> Loading<'l> {
        let geometry = superblock.geometry();
        let mut standings = alloc::vec![Standing::Gone; to_index(geometry.segments)];
        for span in &survey.spans {
            let span = &span.span;
            let is_older = span.first_sequence <= record.id.start_sequence
                || mutations.has(Mutation::CheckpointInNewSegments);
            if is_older && span.first_sequence >= survey.floor_sequence {
                let is_home = span.last_sequence < survey.oldest_dirty_sequence;
                standings[to_index(span.segment)] = if is_home { Standing::Home } else { Standing::There };
            }
        }
        let volume_blocks = core::array::from_fn(|at| {
            let same = |volume: &&Volume| {
                volume.id.0 == record.volumes[at] || mutations.has(Mutation::CheckpointOfOtherVolume)
            };
            volumes[at].as_ref().filter(same).map_or(0, Volume::blocks)
        });
        let index = index.prepare(record.singles, record.groups);
        Loading {
            index,
            extents,
            sums: Sums::new(geometry.segments, geometry.segment_blocks),
            volumes,
            standings,
            segment_bits: geometry.segment_blocks.trailing_zeros(),
            places: geometry.segments * geometry.segment_blocks,
            volume_blocks,
            parts: PartOrder { count: record.parts, ..PartOrder::default() },
            is_near_budget: false,
        }
    }

    fn chunk(&mut self, chunk: &Chunk<'_>) -> Result<(), FormatError> {
        // RULE 15: clean blocks leave that have no room; dirty ones go in.
        let ChunkCounts { singles, groups, .. } = chunk.counts();
        self.is_near_budget = self.index.is_tight(u64::from(singles) + u64::from(groups) * GROUP_BLOCKS);
        self.parts.begin_chunk();
        for (key, row) in chunk.groups() {
            self.group(key, row).ok_or(FormatError::Field("group"))?;
        }
        self.parts.begin_singles();
        for (key, row) in chunk.singles() {
            self.single(key, row).ok_or(FormatError::Field("single"))?;
        }
        for extent in chunk.extents() {
            self.extent(extent).ok_or(FormatError::Field("extent"))?;
        }
        Ok(())
    }

    /// The worth of what lies at a place; `None` if no segment has it.
    #[inline]
    fn standing(&self, place: Place) -> Option<Standing> {
        (place.0 < self.places).then(|| self.standings[to_index(place.0 >> self.segment_bits)])
    }

    #[inline]
    fn single(&mut self, key: u64, row: [u32; SINGLE_ROW_WORDS]) -> Option<()> {
        let single = LoadedSingle::read(key, row)?;
        self.parts.next(single.part(self.parts.count))?;
        self.block(single)
    }

    fn block(&mut self, mut single: LoadedSingle) -> Option<()> {
        match self.standing(single.entry.place)? {
            Standing::Gone => return Some(()),
            Standing::Home => single.entry.dirty = false,
            Standing::There => (),
        }
        let is_in_volume = single.key.block() < self.volume_blocks[single.key.volume().at()];
        if !is_in_volume {
            return Some(());
        }
        if !single.entry.dirty && self.is_near_budget && self.index.is_tight(1) {
            self.index.leave_out();
            return Some(());
        }
        let LoadedSingle { key, entry, .. } = single;
        self.counts(key, 1, entry.place, entry.dirty);
        self.index.load_single(&single).then_some(())
    }

    #[inline]
    fn counts(&mut self, first: BlockKey, blocks: u32, place: Place, dirty: bool) {
        self.sums.put(first, blocks, place, dirty);
        if dirty && let Some(volume) = &mut self.volumes[first.volume().at()] {
            volume.destage.map.mark(first.block(), u64::from(blocks));
        }
    }

    fn group(&mut self, key: u64, row: [u32; GROUP_ROW_WORDS]) -> Option<()> {
        let mut group = LoadedGroup::read(key, row)?;
        self.parts.next(group.part(self.parts.count))?;
        let [(_, first), (last_key, last)] = group.ends();
        let standing = self.standing(first)?;
        self.standing(last)?;
        let is_one = first.0 >> self.segment_bits == last.0 >> self.segment_bits
            && last_key.block() < self.volume_blocks[last_key.volume().at()]
            && !self.is_near_budget;
        if !is_one {
            // Each for itself.
            return group.singles().try_for_each(|single| self.block(single));
        }
        match standing {
            Standing::Gone => return Some(()),
            Standing::Home => group.clean(),
            Standing::There => (),
        }
        group.for_each_run(|key, blocks, place, dirty| self.counts(key, blocks, place, dirty));
        self.index.load_group(&group).then_some(())
    }

    fn extent(&mut self, extent: ChunkExtent) -> Option<()> {
        let ChunkExtent { key, blocks, is_lost, place } = extent;
        let place = Place(place);
        let first = (key < BlockKey::END).then_some(BlockKey(key))?;
        if self.standing(place)? == Standing::Gone {
            return Some(());
        }
        let of_volume = self.volume_blocks[first.volume().at()];
        if of_volume == 0 {
            return Some(());
        }
        let is_there = self.extents.next(first).is_some_and(|next| next.first.0 < key.saturating_add(blocks));
        if blocks == 0 || is_there {
            return None;
        }
        if first.block().checked_add(blocks)? > of_volume {
            return Some(());
        }
        let kind = if is_lost { ExtentKind::Lost } else { ExtentKind::Zero };
        self.extents.insert(Extent { first, blocks, kind, place });
        Some(())
    }
}

/// The first segment of the log that has to be replayed behind a checkpoint, of the order of the log.
///
/// What lies before tells nothing new. Segments without a summary are replayed all the same, for they get one.
pub fn replayed_from(survey: &Survey, record: &CheckpointRecord) -> usize {
    let is_new = |span: &Span| span.span.last_sequence > record.id.start_sequence || span.footer.is_none();
    survey.spans.iter().position(is_new).unwrap_or(survey.spans.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{CheckpointId, ChunkWriter, Geometry, Layout, SegmentHead, VolumeRecord};
    use crate::recovery::volumes_of;
    use crate::store::log::scan::SegmentSpan;
    use crate::store::log::scan::testlog::{Disk, new_superblock};
    use crate::store::log::scan::{End, Span};
    use crate::units::VolumeId;
    use alloc::format;
    use alloc::vec;
    use proptest::prelude::*;

    /// A ring of 64 segments on a device of 9 MiB: the area is what it leaves.
    const GEOMETRY: Geometry = Geometry { segment_blocks: 32, segments: 62 };
    const START: u64 = 100;

    /// The segments of a log: every third is newer than the checkpoint, every fifth is not in the log, the first ten are home.
    fn survey() -> Survey {
        let spans = (0..GEOMETRY.segments).filter(|segment| segment % 5 != 4).map(|segment| {
            let first_sequence = if segment % 3 == 2 { START + 1 } else { 1 + u64::from(segment) };
            let head = SegmentHead {
                set_id: [0; 16],
                ring: 0,
                generation: 1,
                session: 1,
                first_sequence,
                previous_checksum: 0,
            };
            let span = SegmentSpan {
                segment,
                generation: 1,
                first_sequence,
                last_sequence: first_sequence,
                sealed: false,
                used_blocks: 0,
                summary_blocks: 0,
                floor_sequence: 0,
                oldest_dirty_sequence: 0,
            };
            Span { span, head, footer: None }
        });
        Survey {
            spans: spans.collect(),
            end: End { sequence: 1000, checksum: 0 },
            last_generation: 1,
            seen_sequence: 1000,
            flushed_sequence: 1000,
            floor_sequence: 0,
            oldest_dirty_sequence: 11,
            base_sequence: 1,
            stale_blocks: Vec::new(),
            repaired: None,
        }
    }

    fn any_key() -> impl Strategy<Value = u64> {
        prop_oneof![20 => 0..400_u64, 2 => (0..400_u64).prop_map(|block| (1 << 35) + block), 1 => any::<u64>()]
    }

    fn any_place() -> impl Strategy<Value = u32> {
        prop_oneof![20 => 0..62 * 32_u32, 1 => any::<u32>()]
    }

    type Rows = (Vec<(u64, u32, u32)>, Vec<(u64, u32, u32, u32)>, Vec<(u64, u64, bool, u32)>);

    /// Rows that may be anything, most of them possible.
    fn rows() -> impl Strategy<Value = Rows> {
        let singles = proptest::collection::vec((any_key(), any_place(), any::<u32>()), 0..100);
        let masks = prop_oneof![8 => any::<u16>().prop_map(u32::from), 4 => Just(0xffff), 1 => any::<u32>()];
        let key = any_key().prop_map(|key| key / 16);
        let groups = proptest::collection::vec((key, any_place(), masks, any::<u32>()), 0..20);
        let extents = proptest::collection::vec((any_key(), 0..40_u64, any::<bool>(), any_place()), 0..4);
        (singles, groups, extents)
    }

    proptest! {
        #[test]
        fn rows_are_loaded_or_refused_and_what_is_loaded_is_counted(
            (mut singles, mut groups, extents) in rows(),
            parts in prop_oneof![Just(1_u32), Just(4), Just(1 << 20)],
            is_sorted in any::<bool>(),
            chunks in 1..4_usize,
        ) {
            let superblock = superblock_of(GEOMETRY);
            let area = CheckpointArea::of(&GEOMETRY, superblock.cache_bytes).expect("there is room");
            if is_sorted {
                singles.sort_by_key(|(key, ..)| LoadedSingle::read(*key, [0; 2]).map(|single| single.part(parts)));
                let row = |valid: u32| core::array::from_fn(|at| if at == 1 { valid } else { 0 });
                groups.sort_by_key(|(key, _, valid, _)| LoadedGroup::read(*key, row(valid & 0xffff)).map(|group| group.part(parts)));
            }
            let id = CheckpointId { set_id: superblock.set_id, session: 1, start_sequence: START };
            let mut disk = Disk::new();
            for number in 0..chunks {
                let mut bytes = vec![0; area.chunk_bytes() as usize];
                let mut writer = ChunkWriter::new(&mut bytes);
                for &(key, place, valid, hits) in groups.iter().skip(number).step_by(chunks) {
                    let mut row = [7; GROUP_ROW_WORDS];
                    (row[0], row[1], row[2]) = (place, valid, hits);
                    let _ = writer.push_group(key, &row);
                }
                for &(key, place, checksum) in singles.iter().skip(number).step_by(chunks) {
                    let _ = writer.push_single(key, &[place, checksum]);
                }
                for &(key, blocks, is_lost, place) in extents.iter().skip(number).step_by(chunks) {
                    let _ = writer.push_extent(ChunkExtent { key, blocks, is_lost, place });
                }
                writer.finish(&id, number as u32);
                disk.write(area.chunk_at(Side::First, number as u32), &bytes).unwrap();
            }
            let mut record = CheckpointRecord {
                id, session: 1, end_sequence: START, chunks: chunks as u32, parts, singles: u64::MAX, groups: 3,
                volumes: [0; VOLUMES_MAX],
            };
            for (id, volume) in record.volumes.iter_mut().zip(&superblock.volumes) {
                *id = volume.as_ref().map_or(0, |volume| volume.id.0);
            }
            let mut volumes = volumes_of(&superblock);
            let (mut index, mut extents) = (DeferredIndex::new(1 << 20, true), Extents::default());
            let mut into = Loading::new(
                &superblock, &survey(), &record, &mut volumes, &mut index, &mut extents, Mutations::NONE,
            );
            let loaded = load(&mut disk, &area, &Candidate { side: Side::First, record }, &mut into);
            let sums = into.sums;
            let mut expected = Sums::new(GEOMETRY.segments, GEOMETRY.segment_blocks);
            let mut is_right = true;
            index.settled().for_each(|key, entry| {
                expected.put(key, 1, entry.place, entry.dirty);
                let segment = entry.place.0 / GEOMETRY.segment_blocks;
                is_right &= segment % 5 != 4 && segment % 3 != 2 && (segment >= 10 || !entry.dirty);
            });
            prop_assert!(is_right, "what is in no segment of the log, or in a newer one, does not count");
            if loaded.is_ok() {
                prop_assert_eq!(sums, expected);
            }
        }
    }

    /// A superblock with two volumes and this ring.
    fn superblock_of(geometry: Geometry) -> Superblock {
        let mut superblock = Superblock { layout: Layout::Log(geometry), session: 5, ..new_superblock() };
        for (at, volume) in superblock.volumes.iter_mut().take(2).enumerate() {
            *volume = Some(VolumeRecord::new(VolumeId(at as u32 + 3), &format!("{at}"), "o", 300 * 8));
        }
        superblock
    }

    #[test]
    fn what_does_not_tell_of_this_log_is_no_candidate() {
        let superblock = superblock_of(GEOMETRY);
        let area = CheckpointArea::of(&GEOMETRY, superblock.cache_bytes).unwrap();
        let (session, survey) = (superblock.session, survey());
        let id = CheckpointId { set_id: superblock.set_id, session, start_sequence: START };
        let record = CheckpointRecord {
            id,
            session,
            end_sequence: 1000,
            chunks: 1,
            parts: 1,
            singles: 0,
            groups: 0,
            volumes: [0; VOLUMES_MAX],
        };
        let found = |record: CheckpointRecord| {
            let mut disk = Disk::new();
            let mut bytes = vec![0; CHECKPOINT_RECORD_BYTES];
            record.encode(&mut bytes);
            disk.write(area.record_at(Side::Second), &bytes).unwrap();
            candidates(&mut disk, &superblock, &area, &survey, Mutations::NONE).len()
        };
        assert_eq!(found(record), 1);
        assert_eq!(
            found(CheckpointRecord { session: session + 1, ..record }),
            1,
            "of a start that was cut off"
        );
        assert_eq!(found(CheckpointRecord { session: session + 2, ..record }), 0);
        assert_eq!(found(CheckpointRecord { session: session - 1, ..record }), 0, "nobody believed it since");
        assert_eq!(found(CheckpointRecord { end_sequence: 1001, ..record }), 0, "the log ends before");
        assert_eq!(found(CheckpointRecord { chunks: area.chunks + 1, ..record }), 0);
        let rows = u64::from(area.chunk_bytes()) / rows_bytes(1, 0, 0);
        assert_eq!(found(CheckpointRecord { singles: rows, groups: rows, ..record }), 1);
        assert_eq!(found(CheckpointRecord { singles: rows + 1, ..record }), 0, "more than its chunks have");
        assert_eq!(found(CheckpointRecord { groups: u64::MAX, ..record }), 0);
        let id = CheckpointId { set_id: [9; 16], ..id };
        assert_eq!(found(CheckpointRecord { id, ..record }), 0, "another cache");
    }
}
