//! What a hard disk keeps of what passed under its heads: what was read, and what came after it.
//!
//! The memory is divided among a few streams. After a read the head stays on its track and reads
//! on, into the stream of that read, until the arm is needed elsewhere or the stream has half
//! its memory ahead of the host. A sequential reader thus gets the rate of the medium with
//! one command at a time.

use super::geometry::Geometry;
use crate::ranges::Range;
use alloc::vec::Vec;

/// What is kept of one stream: a range, and when it was last of use.
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
    /// When the head was at `from_byte`, or will be.
    from_ns: u64,
    /// Where it stops for good.
    limit_byte: u64,
}

/// The memory.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    segments: Vec<Segment>,
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

    /// Brings what is read ahead up to `now_ns`. Every other call speaks of the time of the last
    /// `advance`.
    pub(super) fn advance(&mut self, geometry: &Geometry, now_ns: u64) {
        let Some(ahead) = self.ahead else { return };
        let passed_ns = now_ns.saturating_sub(ahead.from_ns);
        let reached = geometry.byte_at(geometry.place_ns(ahead.from_byte) + passed_ns);
        let range = &mut self.segments[ahead.segment].range;
        range.end = range.end.max(reached.min(ahead.limit_byte));
        range.start = range.start.max(range.end.saturating_sub(self.segment_bytes));
    }

    /// Whether the range is here. That is a use of its stream, and moves the window on.
    pub(super) fn use_range(&mut self, range: Range) -> bool {
        let held = |segment: &Segment| segment.range.start <= range.start && range.end <= segment.range.end;
        let Some(index) = self.segments.iter().position(held) else { return false };
        self.uses += 1;
        self.segments[index].used = self.uses;
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

    /// Keeps what was read, and returns the stream it belongs to.
    fn segment_of(&mut self, read: Range) -> usize {
        self.uses += 1;
        let joins = |segment: &Segment| segment.range.start <= read.start && read.start <= segment.range.end;
        let index = match self.segments.iter().position(joins) {
            Some(index) => index,
            None if (self.segments.len() as u64) < self.segments_max => {
                self.segments.push(Segment { range: read, used: 0 });
                self.segments.len() - 1
            }
            None => {
                let mut oldest = 0;
                for index in 1..self.segments.len() {
                    if self.segments[index].used < self.segments[oldest].used {
                        oldest = index;
                    }
                }
                self.segments[oldest].range = read;
                oldest
            }
        };
        let segment = &mut self.segments[index];
        segment.used = self.uses;
        // The head is at the end of `read`: whatever the stream had beyond is given up.
        segment.range.end = read.end;
        segment.range.start = segment.range.start.max(read.end.saturating_sub(self.segment_bytes));
        index
    }

    /// Whether the head may at this moment be reading on into the range.
    pub(super) fn is_ahead_in(&self, range: Range) -> bool {
        self.ahead.is_some_and(|ahead| {
            let start = self.segments[ahead.segment].range.start;
            range.overlaps(Range { start, end: ahead.limit_byte.max(start) })
        })
    }

    /// The host wrote the range: what is here of it is out of date. The head must not be in it.
    pub(super) fn forget(&mut self, written: Range) {
        for segment in &mut self.segments {
            if segment.range.overlaps(written) {
                segment.range.end = segment.range.start;
            }
        }
    }
}
