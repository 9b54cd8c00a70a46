//! The volatile write cache of a disk: what has been taken from the host and is not yet on the
//! medium.
//!
//! Data moves through four places: *waiting* with the host for room, *on the wire* (room is reserved),
//! *held*, and *being written* in batches. Held data is in one of two sets: what a flush under
//! way waits for, and what came later. They may overlap: a newer version must not replace the
//! one that the flush has promised.
//!
//! Invariant: held, being written and reserved bytes together never exceed the capacity.

use crate::commands::Command;
use crate::ranges::{Range, RangeSet};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// A write longer than this comes over the wire in parts, so that the disk begins to write it,
/// and others get their turn. By taste.
const PART_BYTES_MAX: u64 = 256 << 10;

/// The cache.
#[derive(Debug)]
pub(crate) struct WriteBuffer {
    capacity_bytes: u64,
    runs_max: u64,
    /// Held, and not covered by the flush under way.
    fresh: RangeSet,
    /// Held, and covered by the flush under way.
    flushing: RangeSet,
    batches: BTreeMap<u64, Batch>,
    batches_begun: u64,
    batches_owed: u64,
    being_written_bytes: u64,
    /// Transfers for which there is room, behind the numbers of their writes.
    on_wire: VecDeque<(u64, Range)>,
    on_wire_bytes: u64,
    waiting: VecDeque<Intake>,
    /// Writes that have come.
    came: u64,
}

/// A write that waits for room, wholly or for its rest.
#[derive(Debug)]
struct Intake {
    command: Command,
    number: u64,
    moved_bytes: u64,
}

/// Data on its way to the medium.
#[derive(Debug)]
struct Batch {
    ranges: Vec<Range>,
    /// The flush under way waits for it.
    owed: bool,
}

/// A part of a write for which there is room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) command: Command,
    /// Number of the write; writes are numbered as they come.
    pub(crate) number: u64,
    pub(crate) range: Range,
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
}

impl WriteBuffer {
    /// A cache of `capacity_bytes` that can hold data for at most `runs_max` separate places.
    pub(crate) fn new(capacity_bytes: u64, runs_max: u64) -> WriteBuffer {
        WriteBuffer {
            capacity_bytes,
            runs_max,
            fresh: RangeSet::default(),
            flushing: RangeSet::default(),
            batches: BTreeMap::new(),
            batches_begun: 0,
            batches_owed: 0,
            being_written_bytes: 0,
            on_wire: VecDeque::new(),
            on_wire_bytes: 0,
            waiting: VecDeque::new(),
            came: 0,
        }
    }

    /// Whether there is no cache at all.
    pub(crate) fn is_off(&self) -> bool {
        self.capacity_bytes == 0
    }

    /// Queues a write for its room.
    pub(crate) fn queue(&mut self, command: Command) {
        assert!(!self.is_off(), "a cache that is off takes no writes");
        self.came += 1;
        self.waiting.push_back(Intake { command, number: self.came, moved_bytes: 0 });
    }

    /// The next part of the oldest waiting write, if there is room for it, which is reserved.
    pub(crate) fn next_part(&mut self) -> Option<Part> {
        let runs =
            self.fresh.runs() + self.flushing.runs() + self.batches.len() as u64 + self.on_wire.len() as u64;
        let used_bytes = self.held_bytes() + self.being_written_bytes + self.on_wire_bytes;
        let intake = self.waiting.front_mut()?;
        let left_bytes = intake.command.len_bytes - intake.moved_bytes;
        let part_bytes = left_bytes.min(PART_BYTES_MAX).min(self.capacity_bytes);
        if runs >= self.runs_max || used_bytes + part_bytes > self.capacity_bytes {
            return None;
        }
        let start = intake.command.offset_bytes + intake.moved_bytes;
        let part = Part {
            command: intake.command,
            number: intake.number,
            range: Range { start, end: start + part_bytes },
            is_first: intake.moved_bytes == 0,
            is_last: part_bytes == left_bytes,
        };
        intake.moved_bytes += part_bytes;
        if part.is_last {
            self.waiting.pop_front();
        }
        self.on_wire.push_back((part.number, part.range));
        self.on_wire_bytes += part_bytes;
        Some(part)
    }

    /// A part has come over the wire.
    pub(crate) fn landed(&mut self, part: &Part) {
        let at = self.on_wire.iter().position(|on_wire| *on_wire == (part.number, part.range));
        self.on_wire.remove(at.expect("a part lands that was on the wire"));
        self.on_wire_bytes -= part.range.bytes();
        self.fresh.insert(part.range);
        assert!(
            self.held_bytes() + self.being_written_bytes + self.on_wire_bytes <= self.capacity_bytes,
            "the write cache holds no more than it has room for"
        );
    }

    /// The number of the last write that has come, touches the range, and is not here as a whole.
    pub(crate) fn coming(&self, range: Range) -> Option<u64> {
        let waiting = self.waiting.iter().map(|intake| {
            let Intake { command, number, .. } = intake;
            (*number, Range { start: command.offset_bytes, end: command.end_bytes() })
        });
        let all = self.on_wire.iter().copied().chain(waiting);
        all.filter(|(_, written)| range.overlaps(*written)).map(|(number, _)| number).max()
    }

    /// Whether a write waits for room.
    pub(crate) fn is_starved(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Bytes that are not being written to the medium yet.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.fresh.bytes() + self.flushing.bytes()
    }

    /// Whether the cache is half full, in bytes or in places.
    pub(crate) fn is_half_full(&self) -> bool {
        self.held_bytes() * 2 >= self.capacity_bytes
            || (self.fresh.runs() + self.flushing.runs()).saturating_mul(2) >= self.runs_max
    }

    /// Up to `count` places at which [`WriteBuffer::take`] may be told to begin, in the order of an elevator that is at
    /// `cursor`.
    pub(crate) fn places(&self, cursor: u64, count: u64) -> impl Iterator<Item = u64> {
        let source = if self.flushing.is_empty() { &self.fresh } else { &self.flushing };
        source.starts(cursor).take(count as usize)
    }

    /// Begins to write up to `bytes_max` of what is held, from `cursor` on, in at most `runs_max`
    /// ranges; what a flush waits for goes first. Returns the batch's number and its first range.
    pub(crate) fn take(&mut self, cursor: u64, bytes_max: u64, runs_max: u64) -> Option<(u64, Range)> {
        let owed = !self.flushing.is_empty();
        let source = if owed { &mut self.flushing } else { &mut self.fresh };
        let mut ranges: Vec<Range> = Vec::new();
        let (mut cursor, mut bytes) = (cursor, 0);
        while bytes < bytes_max && (ranges.len() as u64) < runs_max {
            let Some(range) = source.take(cursor, bytes_max - bytes) else { break };
            cursor = range.end;
            bytes += range.bytes();
            ranges.push(range);
        }
        let first = *ranges.first()?;
        let batch = self.batches_begun;
        self.batches_begun += 1;
        self.batches_owed += u64::from(owed);
        self.being_written_bytes += bytes;
        self.batches.insert(batch, Batch { ranges, owed });
        Some((batch, first))
    }

    /// The ranges of a batch that is being written.
    pub(crate) fn ranges(&self, batch: u64) -> &[Range] {
        self.batches.get(&batch).map_or(&[], |batch| &batch.ranges)
    }

    /// A batch is on the medium.
    pub(crate) fn written(&mut self, batch: u64) {
        let Some(batch) = self.batches.remove(&batch) else { panic!("a batch is written once") };
        self.being_written_bytes -= batch.ranges.iter().map(|range| range.bytes()).sum::<u64>();
        self.batches_owed -= u64::from(batch.owed);
    }

    /// From now on [`WriteBuffer::is_flushed`] speaks of all that is in the cache now. Not before
    /// the flush before is done.
    pub(crate) fn begin_flush(&mut self) {
        assert!(self.is_flushed(), "one flush at a time");
        self.fresh.empty_into(&mut self.flushing);
        for batch in self.batches.values_mut() {
            batch.owed = true;
        }
        self.batches_owed = self.batches.len() as u64;
    }

    /// Whether all that the last flush covers is on the medium.
    pub(crate) fn is_flushed(&self) -> bool {
        self.flushing.is_empty() && self.batches_owed == 0
    }

    /// Whether a read of the range can be answered from here alone.
    pub(crate) fn holds(&self, range: Range) -> bool {
        self.fresh.covers(range) || self.flushing.covers(range)
    }

    /// The range need not be written any more.
    pub(crate) fn forget(&mut self, range: Range) {
        self.fresh.remove(range);
        self.flushing.remove(range);
    }

    /// Whether some byte of the range is here and not on the medium.
    pub(crate) fn is_volatile(&self, range: Range) -> bool {
        let mut being_written = self.batches.values().flat_map(|batch| &batch.ranges);
        self.fresh.overlaps(range)
            || self.flushing.overlaps(range)
            || being_written.any(|written| written.overlaps(range))
    }

    /// Bytes that are here and not on the medium.
    pub(crate) fn volatile_bytes(&self) -> u64 {
        self.held_bytes() + self.being_written_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{PART_BYTES_MAX, WriteBuffer};
    use crate::commands::Command;
    use crate::operation::Op;
    use crate::ranges::Range;

    fn write(offset_bytes: u64, len_bytes: u64) -> Command {
        Command { token: 0, op: Op::Write, offset_bytes, len_bytes }
    }

    fn fill(buffer: &mut WriteBuffer, command: Command) {
        buffer.queue(command);
        while let Some(part) = buffer.next_part() {
            buffer.landed(&part);
        }
    }

    #[test]
    fn a_write_waits_for_room() {
        let mut buffer = WriteBuffer::new(8192, u64::MAX);
        fill(&mut buffer, write(0, 8192));
        fill(&mut buffer, write(16384, 4096));
        assert!(buffer.is_starved());
        let (batch, range) = buffer.take(0, 4096, 1).unwrap();
        assert_eq!(range, Range { start: 0, end: 4096 });
        assert!(buffer.next_part().is_none());
        buffer.written(batch);
        let part = buffer.next_part().unwrap();
        assert!(part.is_first && part.is_last && !buffer.is_starved());
        buffer.landed(&part);
        assert_eq!(buffer.volatile_bytes(), 8192);
    }

    #[test]
    fn a_write_larger_than_the_cache_goes_through_in_parts() {
        let mut buffer = WriteBuffer::new(4096, u64::MAX);
        buffer.queue(write(0, 10_000));
        let mut parts = 0;
        while let Some(part) = buffer.next_part() {
            buffer.landed(&part);
            parts += 1;
            let (batch, _) = buffer.take(0, PART_BYTES_MAX, 1).unwrap();
            buffer.written(batch);
        }
        assert_eq!((parts, buffer.is_starved(), buffer.volatile_bytes()), (3, false, 0));
    }

    #[test]
    fn separate_places_are_limited() {
        let mut buffer = WriteBuffer::new(1 << 20, 2);
        fill(&mut buffer, write(0, 4096));
        fill(&mut buffer, write(8192, 4096));
        fill(&mut buffer, write(16384, 4096));
        assert!(buffer.is_starved());
        assert!(buffer.is_half_full());
    }

    #[test]
    fn a_flush_covers_what_came_before_it_and_nothing_else() {
        let mut buffer = WriteBuffer::new(1 << 20, u64::MAX);
        fill(&mut buffer, write(0, 4096));
        let (early, _) = buffer.take(0, 4096, 1).unwrap();
        fill(&mut buffer, write(8192, 4096));
        buffer.begin_flush();
        // A newer version of data that the flush covers does not replace it.
        fill(&mut buffer, write(8192, 4096));
        buffer.written(early);
        assert!(!buffer.is_flushed());
        let (covered, range) = buffer.take(0, 1 << 20, 8).unwrap();
        assert_eq!(range, Range { start: 8192, end: 12288 });
        buffer.written(covered);
        assert!(buffer.is_flushed());
        assert!(buffer.is_volatile(Range { start: 8192, end: 8193 }));
        assert!(!buffer.is_volatile(Range { start: 0, end: 8192 }));
        assert!(buffer.holds(range));
    }

    #[test]
    fn a_page_gathers_scattered_ranges() {
        let mut buffer = WriteBuffer::new(1 << 20, u64::MAX);
        for place in 0..5 {
            fill(&mut buffer, write(place * 65536, 4096));
        }
        let (batch, _) = buffer.take(0, 16384, u64::MAX).unwrap();
        assert_eq!(buffer.held_bytes(), 4096);
        assert!(buffer.is_volatile(Range { start: 65536, end: 65537 }));
        buffer.written(batch);
        buffer.forget(Range { start: 0, end: 1 << 20 });
        assert_eq!(buffer.volatile_bytes(), 0);
    }
}
