//! The end of a log: what its device tells of flushes, and what rot may therefore take.
//!
//! Recovery tells a flushed batch that has rotted from one that a power cut tore only where a durable record says that the batch
//! was flushed: a later header, or the superblock. Where none does, the log is cut at the rotten batch, and all that lies in it and
//! behind it is lost, flushed or not. That is the one loss that rot may bring without an error, and it is bounded:
//!
//! * never after a clean stop, whose superblock says where the log ends;
//! * nothing that was flushed [`TOLD_AFTER_NS`] before the crash, for by then the superblock says so at the latest.
//!
//! What lies in batches before the lowest rotten one stays. Everywhere else rot is an error there or the origin's content.

use crate::content::{SECTOR, Sector};
use crate::disk::{Content, Disk};
use crate::oracle::Moment;
use engine::format::{
    BatchHeader, DecodedBatch, SEGMENTS_OFFSET, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock,
};
use engine::units::SECTORS_PER_BLOCK;
use std::collections::VecDeque;
use std::ops::Range;

/// Time after a flush within which the device has to tell of it: a second until a batch or the superblock is written for that, and
/// a second for these writes and their flushes.
pub const TOLD_AFTER_NS: u64 = 2_000_000_000;

/// Writes without a header that are kept: a batch has no more parts than blocks.
const BARE_MAX: usize = 256;

/// A batch of the log, as its write was issued.
#[derive(Debug)]
struct Batch {
    sequence: u64,
    /// The checksum of its header. A life that a cut ended may have left another batch of the same sequence in its place.
    checksum: u32,
    /// The flushed sequence that its header states.
    states: u64,
    /// The life of its segment.
    generation: u64,
    /// Where its header is, in sectors.
    header: Range<u64>,
    /// The sectors that have to be whole for it to count: its write, and the data that its keys lead to, or that came before its
    /// header.
    sectors: Vec<Range<u64>>,
    is_empty: bool,
    /// When its first write was.
    issued: Moment,
    /// When it was first seen to be durable.
    durable_ns: Option<u64>,
}

/// The last batches of a log: those that nothing durable may tell to be flushed.
#[derive(Debug, Default)]
pub(super) struct LogEnd {
    batches: VecDeque<Batch>,
    /// The last writes without a header, each with the moment of its issue: parts of a batch with a late header are among them.
    bare: Vec<(Range<u64>, Moment)>,
    /// Sectors that rotted since the last start.
    rotten: Vec<u64>,
    /// The durable word of the superblock; none after it was written.
    told_by_superblock: Option<u64>,
    /// A write of the superblock was issued since the last flush.
    is_superblock_written: bool,
    /// The segment's life of the last batch that is told to be flushed.
    told_generation: u64,
    /// Nothing came behind a clean stop.
    is_stopped: bool,
}

impl LogEnd {
    /// A write of the cache is issued; it counts if it is a batch, or a part of one.
    pub fn issued(&mut self, first: u64, content: &Content, moment: Moment) {
        if first < SEGMENTS_OFFSET / SECTOR as u64 {
            self.told_by_superblock = None;
            self.is_superblock_written = true;
        }
        let Content::Data(sectors) = content else { return };
        self.wrote(first, sectors, moment);
    }

    /// A start wrote the block of a late header, of a batch whose payload was there.
    pub fn restored(&mut self, first: u64, cache: &Disk, moment: Moment) {
        self.wrote(first, cache.read(first, SECTORS_PER_BLOCK), moment);
    }

    fn wrote(&mut self, first: u64, content: &[Sector], moment: Moment) {
        let written = first..first + content.len() as u64;
        // What lay there belongs to no batch any more.
        self.bare.retain(|(part, _)| part.end <= written.start || part.start >= written.end);
        if is_of_checkpoint(content) {
            return;
        }
        let Some((header, decoded)) = header_of(first, content) else {
            if self.bare.len() == BARE_MAX {
                self.bare.remove(0);
            }
            return self.bare.push((written, moment));
        };
        let payload = decoded.entries.iter().filter(|entry| !entry.kind.is_key());
        let payload_blocks: u64 = payload.map(|entry| u64::from(entry.payload_blocks)).sum();
        let end = header.end + payload_blocks * SECTORS_PER_BLOCK;
        // Parts of the next batch may be there, too.
        let is_part = |(part, _): &(Range<u64>, Moment)| part.start >= written.end && part.end <= end;
        let parts: Vec<_> = self.bare.extract_if(.., |write| is_part(write)).collect();
        let issued = parts.iter().map(|(_, moment)| *moment).min().unwrap_or(moment);
        // What was durable before its key says nothing of the key's batch.
        let keys = decoded.entries.iter().filter(|entry| entry.kind.is_key() && !entry.kind.is_kept());
        let led_to = keys.map(|entry| {
            let from = SEGMENTS_OFFSET / SECTOR as u64 + entry.extra * SECTORS_PER_BLOCK;
            from..from + u64::from(entry.payload_blocks) * SECTORS_PER_BLOCK
        });
        let parts = parts.into_iter().map(|(part, _)| part);
        let sectors = std::iter::once(written).chain(led_to).chain(parts).collect();
        self.batches.push_back(Batch {
            sequence: decoded.header.sequence,
            checksum: decoded.checksum,
            states: decoded.header.flushed_sequence,
            generation: decoded.header.generation,
            header,
            sectors,
            is_empty: decoded.entries.is_empty(),
            issued,
            durable_ns: None,
        });
    }

    /// A flush of the cache ended at `now_ns`. Returns the moment before which all that was acknowledged as durable is told to be so,
    /// whichever single record rots: nothing older can be lost any more.
    pub fn flushed(&mut self, cache: &Disk, now_ns: u64) -> Option<Moment> {
        // A flush behind a write of the superblock may be for that alone: the log does not tell of it.
        let is_of_log = !std::mem::take(&mut self.is_superblock_written);
        for batch in self.batches.iter_mut().filter(|batch| is_of_log && batch.durable_ns.is_none()) {
            if is_there(batch, |at| cache.durable(at)) {
                batch.durable_ns = Some(now_ns);
            }
        }
        let durable = self.batches.iter().rev().filter(|batch| batch.durable_ns.is_some());
        let by_header = durable.map(|batch| batch.states).nth(1).unwrap_or(0);
        let by_superblock =
            self.told_by_superblock.unwrap_or_else(|| told_by_superblock(|at| cache.durable(at)));
        let is_being_written =
            cache.unflushed().iter().any(|write| write.first < SEGMENTS_OFFSET / SECTOR as u64);
        self.told_by_superblock = (!is_being_written).then_some(by_superblock);
        let told = by_header.max(by_superblock);
        while self.batches.front().is_some_and(|batch| batch.sequence < told) {
            self.told_generation = self.batches.pop_front().map_or(0, |batch| batch.generation);
        }
        self.batches.iter().find(|batch| batch.sequence > told).map(|batch| batch.issued)
    }

    /// A sector rotted.
    pub fn rots(&mut self, sector: u64) {
        self.rotten.push(sector);
    }

    /// Whether a second header would rot whose batch nothing tells to be flushed: two of them can take the word of what the law
    /// relies on.
    pub fn is_second_header(&self, sector: u64) -> bool {
        let is_in = |at: &u64| self.batches.iter().any(|batch| batch.header.contains(at));
        is_in(&sector) && self.rotten.iter().any(is_in)
    }

    /// Whether the device tells of a sector that its batch was flushed, if the sector is of one: then rot of it takes nothing else.
    pub fn is_told(&self, sector: u64) -> bool {
        let bare = self.bare.iter().map(|(range, _)| range);
        !self.batches.iter().flat_map(|batch| &batch.sectors).chain(bare).any(|range| range.contains(&sector))
    }

    /// A sector of a batch of which the device may tell nothing, by `choose` of so many.
    pub fn draw(&self, choose: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
        let batch = self.batches.get(choose(self.batches.len().max(1) as u64) as usize)?;
        let range = &batch.sectors[choose(batch.sectors.len() as u64) as usize];
        Some(range.start + choose(range.end - range.start))
    }

    /// The moment since which what was acknowledged as durable may be lost to rot, if any may: the issue of the lowest rotten batch
    /// that nothing on `cache` tells to be flushed. The cache worked until `end_ns`.
    pub fn lost_since(&self, cache: &Disk, end_ns: u64) -> Option<Moment> {
        if self.is_stopped {
            return None;
        }
        let told = self.told_by_headers(cache).max(told_by_superblock(|at| &cache.read(at, 1)[0]));
        let is_rotten = |batch: &&Batch| {
            self.rotten.iter().any(|at| batch.sectors.iter().any(|range| range.contains(at)))
        };
        let lowest = self.batches.iter().filter(|batch| batch.sequence > told).find(is_rotten)?;
        let is_late = lowest.durable_ns.is_some_and(|at_ns| at_ns + TOLD_AFTER_NS <= end_ns);
        (!is_late || lowest.is_empty).then_some(lowest.issued)
    }

    /// The highest flushed sequence that headers on `cache` state. A start looks for them up to the first segment of which a power cut left none, or it
    /// would have to look at the whole cache.
    fn told_by_headers(&self, cache: &Disk) -> u64 {
        let batches: Vec<&Batch> = self.batches.iter().collect();
        batches
            .chunk_by(|one, other| one.generation == other.generation)
            .map(|segment| {
                let there = segment.iter().filter(|batch| is_there(batch, |at| &cache.read(at, 1)[0]));
                let states = there.map(|batch| batch.states).max();
                states.or((segment[0].generation == self.told_generation).then_some(0))
            })
            .map_while(|states| states)
            .max()
            .unwrap_or(0)
    }

    /// The cache was stopped cleanly: its superblock tells of all.
    pub fn stopped(&mut self) {
        self.is_stopped = true;
    }

    /// A start succeeded: the superblock tells of all that it found.
    pub fn started(&mut self) {
        *self = LogEnd::default();
    }
}

/// Whether a write is of a checkpoint, which is no part of the log.
fn is_of_checkpoint(sectors: &[Sector]) -> bool {
    let Some(first) = sectors.first().filter(|first| matches!(first, Sector::Bytes(_))) else { return false };
    let mut bytes = [0; SECTOR];
    first.expand(&mut bytes);
    bytes.starts_with(b"FBAYCKPT") || bytes.starts_with(b"FBAYCHNK")
}

/// The header of a batch, and where it is: the first block of the write or, where a segment begins, the second.
fn header_of(first: u64, sectors: &[Sector]) -> Option<(Range<u64>, DecodedBatch)> {
    (0..2).find_map(|block| {
        let from = block * SECTORS_PER_BLOCK;
        let decoded = decoded(sectors.get(from as usize..)?.iter())?;
        let end = from + u64::from(decoded.header_blocks) * SECTORS_PER_BLOCK;
        Some((first + from..first + end, decoded))
    })
}

fn decoded<'a>(sectors: impl Iterator<Item = &'a Sector>) -> Option<DecodedBatch> {
    let mut bytes = Vec::new();
    let mut sectors_max = SECTORS_PER_BLOCK as usize;
    for sector in sectors {
        if bytes.is_empty() && !matches!(sector, Sector::Bytes(_)) {
            return None;
        }
        let at = bytes.len();
        bytes.resize(at + SECTOR, 0);
        sector.expand(&mut bytes[at..]);
        if at == 0 {
            sectors_max = BatchHeader::peek_blocks(&bytes).ok()? as usize * SECTORS_PER_BLOCK as usize;
        }
        if bytes.len() == sectors_max * SECTOR {
            break;
        }
    }
    BatchHeader::decode(&bytes).ok()
}

/// Whether a batch's header is on the device, as it was written.
fn is_there<'a>(batch: &Batch, sector: impl Fn(u64) -> &'a Sector) -> bool {
    decoded(batch.header.clone().map(sector)).is_some_and(|found| found.checksum == batch.checksum)
}

fn told_by_superblock<'a>(sector: impl Fn(u64) -> &'a Sector) -> u64 {
    let copies = SUPERBLOCK_OFFSETS.iter().filter_map(|offset| {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        for (at, into) in (offset / SECTOR as u64..).zip(bytes.chunks_mut(SECTOR)) {
            sector(at).expand(into);
        }
        Superblock::decode(&bytes).ok()
    });
    copies
        .max_by_key(|superblock| superblock.update)
        .map_or(0, |superblock| superblock.cut_sequence.max(superblock.flushed_sequence))
}
