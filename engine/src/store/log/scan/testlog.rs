//! A device in memory that forgets, and a writer that fills it with a log as the engine would.

use super::{BatchRecord, Scan, ScanError, SegmentView, scan};
use crate::effect::Errno;
use crate::format::{
    BatchHeader, Entry, EntryKind, Geometry, Layout, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, SegmentHead,
    SummaryBuilder, SummaryFooter, Superblock, header_blocks_for,
};
use crate::image::{Image, ReadAt};
use crate::prng::splitmix;
use crate::units::{BLOCK_BYTES, SECTORS_PER_BLOCK, VolumeId, payload_checksum};
use std::collections::{BTreeMap, VecDeque};
use std::vec;
use std::vec::Vec;

const BLOCK: usize = BLOCK_BYTES as usize;
pub(crate) const GEOMETRY: Geometry = Geometry { segment_blocks: 32, segments: 64 };
pub(crate) const CACHE_BYTES: u64 = 9 << 20;

/// A repeatable source of choices (splitmix64).
pub(crate) struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        splitmix(&mut self.0)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A device with a volatile cache.
#[derive(Clone)]
pub(crate) struct Disk {
    pub bytes: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
    /// Where reads fail.
    pub bad_block: Option<u64>,
}

impl Disk {
    pub fn new() -> Disk {
        Disk { bytes: vec![0; CACHE_BYTES as usize], pending: Vec::new(), bad_block: None }
    }

    /// Power is cut: of each unflushed write any blocks may have arrived, in any order.
    pub fn crash(&mut self, dice: &mut Dice) {
        let mut pending = core::mem::take(&mut self.pending);
        let survival = dice.below(4);
        while !pending.is_empty() {
            // Overlapping writes are never in flight together, or their order is that of the commands.
            let (offset, bytes) = pending.remove(0);
            match (survival, dice.below(4)) {
                (0, _) | (1, 0..=2) | (2, 0) => (),
                (_, 1) if dice.one_in(3) => {
                    for (at, block) in bytes.chunks(BLOCK).enumerate() {
                        if !dice.one_in(3) {
                            self.put(offset + at * BLOCK, block);
                        }
                    }
                }
                _ => self.put(offset, &bytes),
            }
        }
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Makes durable only the pending writes chosen by their numbers; the others are lost.
    pub fn keep_only(&mut self, keep: impl Fn(usize) -> bool) {
        for (at, (offset, bytes)) in core::mem::take(&mut self.pending).into_iter().enumerate() {
            if keep(at) {
                self.put(offset, &bytes);
            }
        }
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }
}

impl Image for Disk {
    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_group(&mut self, reads: &mut [ReadAt]) {
        for read in reads {
            let offset = read.offset_bytes as usize;
            let end = offset + read.bytes.len();
            let bad = self.bad_block.map(|block| (block * BLOCK_BYTES) as usize);
            if bad.is_some_and(|bad| (offset..end).contains(&bad)) {
                read.result = Err(Errno::IO);
                continue;
            }
            read.bytes.copy_from_slice(&self.bytes[offset..end]);
            for (at, bytes) in &self.pending {
                let from = offset.max(*at);
                let to = end.min(at + bytes.len());
                if from < to {
                    read.bytes[from - offset..to - offset].copy_from_slice(&bytes[from - at..to - at]);
                }
            }
        }
    }

    /// The device is the slower of the two here: what is done beside a read must not need what it reads.
    fn read_group_beside(&mut self, reads: &mut [ReadAt], beside: &mut dyn FnMut()) {
        beside();
        self.read_group(reads);
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.pending.push((offset_bytes as usize, bytes.to_vec()));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.keep_only(|_| true);
        Ok(())
    }
}

/// Content of the batch that was appended under a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Appended {
    pub entries: Vec<Entry>,
    pub checksums: Vec<u32>,
    pub segment: u32,
    pub header_block: u32,
}

struct Open {
    segment: u32,
    next_block: u32,
    first_sequence: u64,
    generation: u64,
    summary: SummaryBuilder,
}

/// The writing end of a log.
pub(crate) struct TestLog {
    pub disk: Disk,
    pub superblock: Superblock,
    /// The true history since the floor.
    pub history: BTreeMap<u64, Appended>,
    pub next_sequence: u64,
    pub flushed: u64,
    chain: u32,
    generation: u64,
    open: Option<Open>,
    /// Segments of the ring, oldest first, with their first sequence.
    ring: VecDeque<(u32, u64)>,
    floor: u64,
    next_segment: u32,
    /// The first header that carried each floor.
    carriers: VecDeque<(u64, u64)>,
    /// Segments that may be overwritten.
    free: u32,
    /// How many segments are kept.
    pub keep: usize,
}

pub(crate) fn new_superblock() -> Superblock {
    let new = Superblock::of_new_cache([7; 16], CACHE_BYTES, Layout::Log(GEOMETRY));
    Superblock { update: 1, session: 1, clean_stop: false, ..new }
}

impl TestLog {
    pub fn new() -> TestLog {
        let mut log = TestLog {
            disk: Disk::new(),
            superblock: new_superblock(),
            history: BTreeMap::new(),
            next_sequence: 1,
            flushed: 0,
            chain: 0,
            generation: 0,
            open: None,
            ring: VecDeque::new(),
            floor: 1,
            next_segment: 0,
            carriers: VecDeque::new(),
            free: GEOMETRY.segments,
            keep: 40,
        };
        log.write_superblock();
        log
    }

    pub fn write_superblock(&mut self) {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        self.superblock.encode(&mut bytes);
        for offset in SUPERBLOCK_OFFSETS {
            self.disk.write(offset, &bytes).unwrap();
            self.disk.flush().unwrap();
        }
    }

    pub fn segment_of(&self, sequence: u64) -> u32 {
        self.history[&sequence].segment
    }

    pub fn offset_of(&self, sequence: u64) -> usize {
        let appended = &self.history[&sequence];
        GEOMETRY.offset_bytes(appended.segment, appended.header_block) as usize
    }

    fn seal(&mut self) {
        let open = self.open.take().unwrap();
        let footer = SummaryFooter {
            set_id: self.superblock.set_id,
            ring: 0,
            generation: open.generation,
            session: self.superblock.session,
            first_sequence: open.first_sequence,
            last_sequence: self.next_sequence - 1,
            last_header_checksum: self.chain,
            flushed_sequence: self.flushed,
            floor_sequence: self.floor,
            oldest_dirty_sequence: self.floor,
        };
        let blocks = open.summary.blocks_needed();
        assert!(open.next_block + blocks <= GEOMETRY.segment_blocks);
        let mut bytes = vec![0; blocks as usize * BLOCK];
        open.summary.finish(&footer, &mut bytes);
        let offset = GEOMETRY.offset_bytes(open.segment, GEOMETRY.segment_blocks - blocks);
        self.disk.write(offset, &bytes).unwrap();
    }

    /// Appends a batch of that many payload blocks; the head of a new segment goes with it or, if `dice` say so, alone.
    pub fn append(&mut self, payload: u32, dice: &mut Dice) {
        let sequence = self.next_sequence;
        let needed = header_blocks_for(2, payload as usize) + payload + 2;
        if self.open.as_ref().is_some_and(|open| open.next_block + needed > GEOMETRY.segment_blocks) {
            self.seal();
        }
        let entry = |kind, start: u64, blocks: u32, payload_blocks| Entry {
            kind,
            ring: 0,
            volume: VolumeId(1),
            start_sector: start * SECTORS_PER_BLOCK,
            sectors: blocks * SECTORS_PER_BLOCK as u32,
            payload_blocks,
            extra: 0,
        };
        let mut entries = vec![entry(EntryKind::Tombstone, sequence, 1, 0)];
        if payload > 0 {
            entries.push(entry(EntryKind::Dirty, sequence * 64, payload, payload));
        }
        let behind: Vec<Vec<u8>> =
            (0..payload).map(|_| dice.roll().to_le_bytes().repeat(BLOCK / 8)).collect();
        let checksums = behind.iter().map(|block| payload_checksum(block)).collect();
        let is_head_with_it = self.open.is_none() && dice.one_in(2);
        self.put(entries, &behind, checksums, is_head_with_it);
        if self.carriers.back().is_none_or(|(floor, _)| *floor < self.floor) {
            self.carriers.push_back((self.floor, sequence));
        }
    }

    /// Appends a batch of those entries; `behind` are the blocks behind its header, `checksums` one for each payload block.
    /// Returns its sequence.
    pub fn append_entries(&mut self, entries: Vec<Entry>, behind: &[Vec<u8>], checksums: Vec<u32>) -> u64 {
        self.put(entries, behind, checksums, false);
        self.next_sequence - 1
    }

    fn put(&mut self, entries: Vec<Entry>, behind: &[Vec<u8>], checksums: Vec<u32>, is_head_with_it: bool) {
        let sequence = self.next_sequence;
        let mut head_bytes = if self.open.is_none() { self.open_segment() } else { Vec::new() };
        let (segment, generation, block) = {
            let open = self.open.as_ref().unwrap();
            (open.segment, open.generation, open.next_block)
        };
        let header_blocks = header_blocks_for(entries.len(), checksums.len());
        let mut bytes = vec![0; header_blocks as usize * BLOCK];
        let header = BatchHeader {
            set_id: self.superblock.set_id,
            session: self.superblock.session,
            generation,
            sequence,
            previous_checksum: self.chain,
            flushed_sequence: self.flushed,
            floor_sequence: self.floor,
            oldest_dirty_sequence: self.floor,
        };
        self.chain = header.encode(&entries, &checksums, &mut bytes);
        behind.iter().for_each(|block| bytes.extend_from_slice(block));
        let open = self.open.as_mut().unwrap();
        open.summary.push(sequence, block, block + header_blocks, &entries, &checksums);
        open.next_block += header_blocks + behind.len() as u32;
        if is_head_with_it {
            head_bytes.append(&mut bytes);
            self.disk.write(GEOMETRY.offset_bytes(segment, 0), &head_bytes).unwrap();
        } else {
            if !head_bytes.is_empty() {
                self.disk.write(GEOMETRY.offset_bytes(segment, 0), &head_bytes).unwrap();
            }
            self.disk.write(GEOMETRY.offset_bytes(segment, block), &bytes).unwrap();
        }
        self.history.insert(sequence, Appended { entries, checksums, segment, header_block: block });
        self.next_sequence += 1;
    }

    fn open_segment(&mut self) -> Vec<u8> {
        while self.ring.len() > self.keep {
            self.ring.pop_front();
            self.floor = self.ring.front().unwrap().1;
        }
        if self.free == 0 {
            // A segment is reused only once the header that gives it up is flushed (rule 1).
            self.flush();
        }
        assert!(self.free > 0, "the ring is longer than what is kept");
        self.free -= 1;
        let segment = self.next_segment;
        self.next_segment = (segment + 1) % GEOMETRY.segments;
        self.generation += 1;
        self.ring.push_back((segment, self.next_sequence));
        let head = SegmentHead {
            set_id: self.superblock.set_id,
            ring: 0,
            generation: self.generation,
            session: self.superblock.session,
            first_sequence: self.next_sequence,
            previous_checksum: self.chain,
        };
        let mut bytes = vec![0; BLOCK];
        head.encode(&mut bytes);
        self.open = Some(Open {
            segment,
            next_block: 1,
            first_sequence: self.next_sequence,
            generation: self.generation,
            summary: SummaryBuilder::default(),
        });
        bytes
    }

    pub fn flush(&mut self) {
        self.disk.flush().unwrap();
        self.flushed = self.next_sequence - 1;
        let mut floor = None;
        while self.carriers.front().is_some_and(|(_, carrier)| *carrier <= self.flushed) {
            floor = self.carriers.pop_front().map(|(floor, _)| floor);
        }
        if let Some(floor) = floor {
            self.free =
                GEOMETRY.segments - self.ring.iter().filter(|(_, first)| *first >= floor).count() as u32;
            self.history.retain(|sequence, _| *sequence >= floor);
        }
    }

    /// Reads the log back.
    pub fn scan(&mut self, repair: bool) -> Result<(Scan, Vec<(SegmentView, BatchRecord)>), ScanError> {
        let mut visited = Vec::new();
        let found = scan(&mut self.disk, &self.superblock, repair, &mut |view, batch| {
            visited.push((view, batch.clone()));
        })?;
        Ok((found, visited))
    }

    /// Asserts that a scan found exactly the history from its floor up to its end.
    pub fn assert_matches(&self, found: &Scan, visited: &[(SegmentView, BatchRecord)]) {
        let sequences: Vec<u64> = visited.iter().map(|(_, batch)| batch.sequence).collect();
        let expected: Vec<u64> = (found.floor_sequence..found.end.next_sequence).collect();
        assert_eq!(sequences, expected, "each sequence is visited once and in order");
        for (view, batch) in visited {
            let truth = &self.history[&batch.sequence];
            let seen = Appended {
                entries: batch.entries.clone(),
                checksums: batch.checksums.clone(),
                segment: view.segment,
                header_block: batch.header_block,
            };
            assert_eq!(&seen, truth, "sequence {}", batch.sequence);
        }
        for pair in found.segments.windows(2) {
            assert_eq!(pair[0].last_sequence + 1, pair[1].first_sequence);
            assert_eq!((pair[0].segment + 1) % GEOMETRY.segments, pair[1].segment);
        }
        if let Some(last) = found.segments.last() {
            assert_eq!(last.last_sequence + 1, found.end.next_sequence);
            assert_eq!(found.end.open.is_some(), !last.sealed);
        }
    }

    /// Whether the batch is on the device as it was written.
    pub fn is_intact(&mut self, sequence: u64) -> bool {
        let Some(truth) = self.history.get(&sequence) else { return false };
        let header_blocks = header_blocks_for(truth.entries.len(), truth.checksums.len()) as usize;
        let from = GEOMETRY.offset_bytes(truth.segment, truth.header_block) as usize;
        let bytes = &self.disk.bytes[from..from + (header_blocks + truth.checksums.len()) * BLOCK];
        let head = &self.disk.bytes[GEOMETRY.offset_bytes(truth.segment, 0) as usize..][..BLOCK];
        let Ok(batch) = BatchHeader::decode(bytes) else { return false };
        let payload = bytes[header_blocks * BLOCK..].chunks(BLOCK).map(payload_checksum);
        batch.header.sequence == sequence
            && batch.entries == truth.entries
            && payload.eq(truth.checksums.iter().copied())
            && SegmentHead::decode(head).is_ok_and(|head| head.generation == batch.header.generation)
    }

    /// Begins the next session over what a scan found, as recovery does: first what must be wiped, then the superblock,
    /// each step durable. With `stop_after` steps done the power is cut, and false is returned.
    pub fn recover(&mut self, found: Scan, stop_after: u64, dice: &mut Dice) -> bool {
        for offset in &found.stale_blocks {
            self.disk.write(*offset, &[0; BLOCK]).unwrap();
        }
        if stop_after == 0 {
            self.disk.crash(dice);
            return false;
        }
        self.disk.flush().unwrap();
        let mut next = self.superblock.clone();
        next.update += 1;
        next.session += 1;
        next.cut_sequence = found.end.next_sequence - 1;
        next.base_sequence = found.base_sequence;
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        next.encode(&mut bytes);
        if stop_after == 1 {
            return false;
        }
        self.superblock = next;
        self.disk.write(SUPERBLOCK_OFFSETS[0], &bytes).unwrap();
        self.disk.flush().unwrap();
        if stop_after == 2 {
            return false;
        }
        self.disk.write(SUPERBLOCK_OFFSETS[1], &bytes).unwrap();
        self.disk.flush().unwrap();
        self.go_on(found);
        true
    }

    fn go_on(&mut self, found: Scan) {
        self.next_sequence = found.end.next_sequence;
        self.flushed = self.next_sequence - 1;
        self.history.split_off(&self.next_sequence);
        self.chain = found.end.last_header_checksum;
        self.generation = found.end.last_generation;
        self.floor = found.floor_sequence;
        self.history.retain(|sequence, _| *sequence >= found.floor_sequence);
        self.ring = found.segments.iter().map(|span| (span.segment, span.first_sequence)).collect();
        self.free = GEOMETRY.segments - self.ring.len() as u32;
        self.next_segment = found.segments.last().map_or(0, |span| (span.segment + 1) % GEOMETRY.segments);
        self.carriers.clear();
        self.open = found.end.open.map(|open| {
            let span = found.segments.last().unwrap();
            Open {
                segment: open.segment,
                next_block: open.next_block,
                first_sequence: span.first_sequence,
                generation: span.generation,
                summary: open.summary,
            }
        });
    }
}
