//! The read buffer of a hard disk: data that passed under its heads, read for a request or after one.
//!
//! The memory is divided among a few streams. After a read the head stays on its track and reads
//! on, into the stream of that read, until the arm is needed elsewhere or the stream has half
//! its memory ahead of the host. A sequential reader thus gets the rate of the medium with
//! one command at a time.

use super::geometry::Geometry;
use crate::ranges::Range;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Buffered range of one stream, and when it was last of use.
#[derive(Debug)]
struct Segment {
    range: Range,
    used: u64,
}

/// Reading on while nothing else is asked for.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    segment: usize,
    from_byte: u64,
    /// The time when the head was at `from_byte`, or will be.
    from_ns: u64,
    /// The place where it stops for good.
    limit_byte: u64,
}

/// The memory.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    segments: Vec<Segment>,
    /// Start and number of each segment. None is longer than `segment_bytes`.
    starts: BTreeSet<(u64, usize)>,
    /// Numbers of the segments, the one unused for longest first.
    by_use: BTreeMap<u64, usize>,
    segments_max: u64,
    segment_bytes: u64,
    disk_bytes: u64,
    uses: u64,
    ahead: Option<Ahead>,
}

impl ReadBuffer {
    pub(super) fn new(buffer_bytes: u64, segments_max: u64, disk_bytes: u64) -> ReadBuffer {
        ReadBuffer {
            segments: Vec::new(),
            starts: BTreeSet::new(),
            by_use: BTreeMap::new(),
            segments_max,
            segment_bytes: buffer_bytes / segments_max,
            disk_bytes,
            uses: 0,
            ahead: None,
        }
    }

    fn window_bytes(&self) -> u64 {
        self.segment_bytes / 2
    }

    /// Brings the data read ahead up to `now_ns`. Every other call speaks of the time of the last `advance`.
    pub(super) fn advance(&mut self, geometry: &Geometry, now_ns: u64) {
        let Some(ahead) = self.ahead else { return };
        let passed_ns = now_ns.saturating_sub(ahead.from_ns);
        let reached = geometry.byte_at(geometry.place_ns(ahead.from_byte) + passed_ns);
        let mut range = self.segments[ahead.segment].range;
        range.end = range.end.max(reached.min(ahead.limit_byte));
        self.set_range(ahead.segment, range);
    }

    /// Gives a segment its range, or the end of it if it is too long.
    fn set_range(&mut self, index: usize, mut range: Range) {
        range.start = range.start.max(range.end.saturating_sub(self.segment_bytes));
        let old = core::mem::replace(&mut self.segments[index].range, range);
        if old.start != range.start {
            self.starts.remove(&(old.start, index));
            self.starts.insert((range.start, index));
        }
    }

    fn use_segment(&mut self, index: usize) {
        self.uses += 1;
        self.by_use.remove(&self.segments[index].used);
        self.by_use.insert(self.uses, index);
        self.segments[index].used = self.uses;
    }

    /// The segment of the lowest number that begins at or before the byte, and of which `is_meant`.
    fn find(&self, byte: u64, is_meant: impl Fn(Range) -> bool) -> Option<usize> {
        let near = self.starts.range((byte.saturating_sub(self.segment_bytes), 0)..=(byte, usize::MAX));
        near.map(|&(_, index)| index).filter(|&index| is_meant(self.segments[index].range)).min()
    }

    /// Whether the range is here. That is a use of its stream, and moves the window on.
    pub(super) fn use_range(&mut self, range: Range) -> bool {
        let Some(index) = self.find(range.start, |held| range.end <= held.end) else { return false };
        self.use_segment(index);
        self.move_window(index, range.end);
        true
    }

    /// Lets the head go on further, if it has not stopped yet.
    fn move_window(&mut self, segment: usize, used_end: u64) {
        let limit = self.disk_bytes.min(used_end + self.window_bytes());
        if let Some(ahead) = &mut self.ahead
            && ahead.segment == segment
            && self.segments[segment].range.end < ahead.limit_byte
        {
            ahead.limit_byte = ahead.limit_byte.max(limit);
        }
    }

    /// If the head is reading on and the range begins in what it has read: when it will have passed
    /// the end of the range. It then goes on from there, so the arm is not free before.
    pub(super) fn follow(&self, geometry: &Geometry, range: Range) -> Option<u64> {
        let ahead = self.ahead?;
        let read = self.segments[ahead.segment].range;
        let is_reading = read.end < ahead.limit_byte;
        if !is_reading || range.start < read.start || range.start > read.end || range.end <= read.end {
            return None;
        }
        Some(ahead.from_ns + (geometry.place_ns(range.end) - geometry.place_ns(ahead.from_byte)))
    }

    /// Whether the head has stopped because the host had enough, and now has too little: then
    /// the byte from which to read on.
    pub(super) fn hungry_at(&self, used_end: u64) -> Option<u64> {
        let ahead = self.ahead?;
        let read = self.segments[ahead.segment].range;
        let has_stopped = read.end >= ahead.limit_byte && read.end < self.disk_bytes;
        let is_used = (read.start..=read.end).contains(&used_end);
        (has_stopped && is_used && read.end - used_end < self.window_bytes() / 2).then_some(read.end)
    }

    /// The head is at the end of `read`, just read for the host, at `now_ns`, and goes on.
    pub(super) fn begin_ahead(&mut self, read: Range, now_ns: u64) {
        if self.segment_bytes == 0 {
            return;
        }
        let segment = self.segment_of(read);
        let limit_byte = self.disk_bytes.min(read.end + self.window_bytes());
        self.ahead = Some(Ahead { segment, from_byte: read.end, from_ns: now_ns, limit_byte });
    }

    /// The head goes on at `from_byte`, where it stopped before, from `now_ns` on.
    pub(super) fn resume_ahead(&mut self, from_byte: u64, used_end: u64, now_ns: u64) {
        let limit_byte = self.disk_bytes.min(used_end + self.window_bytes());
        if let Some(ahead) = &mut self.ahead {
            *ahead = Ahead { from_byte, from_ns: now_ns, limit_byte, ..*ahead };
        }
    }

    /// The arm is needed elsewhere. Returns the byte that the head had reached, if it was reading on.
    pub(super) fn stop_ahead(&mut self) -> Option<u64> {
        let ahead = self.ahead.take()?;
        Some(self.segments[ahead.segment].range.end)
    }

    /// Keeps read data, and returns the stream it belongs to.
    fn segment_of(&mut self, read: Range) -> usize {
        let index = match self.find(read.start, |held| read.start <= held.end) {
            Some(index) => index,
            None if (self.segments.len() as u64) < self.segments_max => {
                self.segments.push(Segment { range: read, used: 0 });
                self.starts.insert((read.start, self.segments.len() - 1));
                self.segments.len() - 1
            }
            None => {
                let oldest = *self.by_use.first_entry().expect("every segment was used").get();
                self.set_range(oldest, read);
                oldest
            }
        };
        self.use_segment(index);
        // The head is at the end of `read`: whatever the stream had beyond is given up.
        self.set_range(index, Range { start: self.segments[index].range.start, end: read.end });
        index
    }

    /// Whether the head may at this moment be reading on into the range.
    pub(super) fn is_ahead_in(&self, range: Range) -> bool {
        self.ahead.is_some_and(|ahead| {
            let start = self.segments[ahead.segment].range.start;
            range.overlaps(Range { start, end: ahead.limit_byte.max(start) })
        })
    }

    /// The host wrote the range. What holds all of it has the new data now; what holds a part is out of date. The
    /// head must not be in it.
    pub(super) fn wrote(&mut self, written: Range) {
        let from = written.start.saturating_sub(self.segment_bytes);
        let near = self.starts.range((from, 0)..(written.end, 0));
        let parted: Vec<usize> = near
            .map(|&(_, index)| index)
            .filter(|&index| {
                let held = self.segments[index].range;
                held.overlaps(written) && !(held.start <= written.start && written.end <= held.end)
            })
            .collect();
        for index in parted {
            let start = self.segments[index].range.start;
            self.set_range(index, Range { start, end: start });
        }
    }
}
