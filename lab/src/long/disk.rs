//! A disk in a long run: the times of operations and, if wanted, the content of blocks.

use super::buffers::Buffers;
use super::kept_metadata::KeptMetadata;
use super::packed::Packed;
use super::plug::Plug;
use super::scheduler::Scheduler;
use super::sparse::Sparse;
use super::statistics::Traffic;
use super::tag::{self, ZEROES, parts};
use engine::effect::{Errno, IoOp, Pieces};
use engine::format::{Geometry, SEGMENTS_OFFSET};
use engine::image::{Image, ReadAt};
use engine::units::{BLOCK_BYTES, Nanos, VolumeIndex};
use std::collections::VecDeque;
use std::iter;

/// Content of a block that was never written.
const UNTOUCHED: u64 = u64::MAX;

/// How long operations take, whatever their size, and however many are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// A read.
    pub read_ns: u64,
    /// A write, write-zeroes, or discard.
    pub write_ns: u64,
    /// A flush.
    pub flush_ns: u64,
}

/// Operations under way by constant latencies: each kind ends in the order in which it began.
struct Constant {
    latencies: Latencies,
    reads: VecDeque<(u64, u64)>,
    writes: VecDeque<(u64, u64)>,
    flushes: VecDeque<(u64, u64)>,
}

impl Constant {
    fn queues(&mut self) -> [&mut VecDeque<(u64, u64)>; 3] {
        [&mut self.reads, &mut self.writes, &mut self.flushes]
    }

    fn next_ns(&self) -> Option<u64> {
        let front = |queue: &VecDeque<(u64, u64)>| queue.front().map_or(u64::MAX, |&(due, _)| due);
        let next = front(&self.reads).min(front(&self.writes)).min(front(&self.flushes));
        (next < u64::MAX).then_some(next)
    }
}

enum Timing {
    Constant(Constant),
    Model(Box<models::Disk>),
    /// Behind a block layer, which joins neighbours and may have a scheduler.
    Plugged(Box<models::Disk>, Plug),
}

/// Operations that no request of the driver above waits for, as it tells the block layer.
#[derive(Clone, Copy)]
enum Asynchronous {
    Nothing,
    /// Writes of data; metadata are waited for.
    Data,
    Writes,
}

/// Content of the blocks.
pub(super) enum Blocks {
    /// No content.
    Nothing,
    /// A tag each; unwritten blocks of an origin have an image.
    Tags { tags: Sparse<u64>, image: Option<VolumeIndex> },
}

/// Metadata that are kept.
enum Metadata {
    Nothing,
    /// Those that a running engine reads back.
    Summaries(Summaries),
    /// Everything that recovery may read.
    All(KeptMetadata),
}

/// The summaries of a cache device's segments, by segment.
struct Summaries {
    geometry: Geometry,
    kept: Vec<Option<Packed>>,
}

impl Summaries {
    fn new(geometry: Geometry) -> Summaries {
        Summaries { geometry, kept: (0..geometry.segments).map(|_| None).collect() }
    }

    /// The segment whose end is at `end_bytes`: only a summary reaches it.
    fn segment_ending_at(&self, end_bytes: u64) -> Option<usize> {
        let behind = end_bytes.checked_sub(SEGMENTS_OFFSET)?;
        let segment_bytes = self.geometry.segment_bytes();
        let segment =
            (behind > 0 && behind.is_multiple_of(segment_bytes)).then(|| behind / segment_bytes - 1)?;
        // Behind the ring there are checkpoints.
        (segment < u64::from(self.geometry.segments)).then_some(segment as usize)
    }
}

/// A disk without faults.
pub struct Disk {
    size_bytes: u64,
    can_discard: bool,
    timing: Timing,
    blocks: Blocks,
    metadata: Metadata,
    traffic: Traffic,
    /// Operations under way, and since when there are any.
    under_way: u64,
    busy_since: Nanos,
    asynchronous: Asynchronous,
}

impl Disk {
    /// A disk of constant latencies.
    #[must_use]
    pub fn constant(size_bytes: u64, latencies: Latencies) -> Disk {
        let queue = || VecDeque::with_capacity(64);
        let constant = Constant { latencies, reads: queue(), writes: queue(), flushes: queue() };
        Disk::new(size_bytes, true, Timing::Constant(constant))
    }

    /// A modelled disk; `seed` decides random effects of a real one.
    #[must_use]
    pub fn modelled(parameters: &models::Parameters, size_bytes: u64, seed: u64) -> Disk {
        let disk = models::Disk::new(parameters, size_bytes, seed);
        Disk::new(size_bytes, disk.supports_discard(), Timing::Model(Box::new(disk)))
    }

    /// Behind a block layer, which joins neighbours that are handed over together. A disk of constant latencies stays
    /// as it is.
    #[must_use]
    pub fn plugged(self) -> Disk {
        self.behind(Scheduler::None, Asynchronous::Nothing)
    }

    /// Behind CFQ on a disk that turns, for a driver that says of none of its writes that somebody waits for it: reads
    /// go before writes.
    #[must_use]
    pub fn scheduled(self) -> Disk {
        self.behind(Scheduler::turning(), Asynchronous::Writes)
    }

    /// Behind CFQ on an SSD, for a driver that says only of its metadata that somebody waits for them: writes of data
    /// wait while anything else is under way.
    #[must_use]
    pub fn yielding(self) -> Disk {
        self.behind(Scheduler::solid(), Asynchronous::Data)
    }

    fn behind(mut self, scheduler: Scheduler, asynchronous: Asynchronous) -> Disk {
        self.asynchronous = asynchronous;
        self.timing = match self.timing {
            Timing::Model(disk) => Timing::Plugged(disk, Plug::new(scheduler)),
            other => other,
        };
        self
    }

    /// Only its first bytes, as a partition; it stays the device that it is.
    ///
    /// # Panics
    /// If it does not have so many.
    #[must_use]
    pub fn part(mut self, size_bytes: u64) -> Disk {
        assert!(size_bytes > 0 && size_bytes <= self.size_bytes, "a part of the disk");
        self.size_bytes = size_bytes;
        self
    }

    fn new(size_bytes: u64, can_discard: bool, timing: Timing) -> Disk {
        let traffic = Traffic::default();
        let (blocks, asynchronous) = (Blocks::Nothing, Asynchronous::Nothing);
        let (under_way, busy_since) = (0, Nanos(0));
        let metadata = Metadata::Nothing;
        Disk {
            size_bytes,
            can_discard,
            timing,
            blocks,
            metadata,
            traffic,
            under_way,
            busy_since,
            asynchronous,
        }
    }

    /// Its size.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn can_discard(&self) -> bool {
        self.can_discard
    }

    /// Gives the blocks tags; `image` is the volume whose origin it is, if it is one.
    pub(super) fn keep_tags(&mut self, image: Option<VolumeIndex>) {
        self.blocks =
            Blocks::Tags { tags: Sparse::new(self.size_bytes.div_ceil(BLOCK_BYTES), UNTOUCHED), image };
    }

    /// Keeps what is written as summaries of segments of this geometry.
    pub(super) fn keep_summaries(&mut self, geometry: Geometry) {
        self.metadata = Metadata::Summaries(Summaries::new(geometry));
    }

    /// Keeps all metadata: the device can be recovered from.
    pub(super) fn keep_all_metadata(&mut self) {
        self.metadata = Metadata::All(KeptMetadata::new(self.size_bytes.div_ceil(BLOCK_BYTES)));
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Begins an operation of the engine's.
    pub(super) fn submit(&mut self, now: Nanos, token: u64, op: &IoOp, buffers: &Buffers) {
        let is_data = |from: &Pieces| !from.as_slice().iter().any(|slice| buffers.is_metadata(slice.buffer));
        let is_async = match (self.asynchronous, op) {
            (Asynchronous::Data, IoOp::Write { from, .. }) => is_data(from),
            (Asynchronous::Writes, IoOp::Write { .. } | IoOp::WriteZeroes { .. }) => true,
            _ => false,
        };
        let (op, offset_bytes, len_bytes) = match op {
            IoOp::Read { offset_bytes, into } => (models::Op::Read, *offset_bytes, into.len_bytes()),
            IoOp::Write { offset_bytes, from } => (models::Op::Write, *offset_bytes, from.len_bytes()),
            IoOp::WriteZeroes { offset_bytes, len_bytes } => (models::Op::Write, *offset_bytes, *len_bytes),
            IoOp::Discard { offset_bytes, len_bytes } => (models::Op::Discard, *offset_bytes, *len_bytes),
            IoOp::Flush => (models::Op::Flush, 0, 0),
            IoOp::Abandon(_) => unreachable!("a note is not for a disk"),
        };
        self.start(now, token, models::Submit { op, offset_bytes, len_bytes }, is_async);
    }

    /// Begins an operation.
    pub(super) fn begin(
        &mut self,
        now: Nanos,
        token: u64,
        op: models::Op,
        offset_bytes: u64,
        len_bytes: u64,
    ) {
        self.start(now, token, models::Submit { op, offset_bytes, len_bytes }, false);
    }

    fn start(&mut self, now: Nanos, token: u64, submit: models::Submit, is_async: bool) {
        let models::Submit { op, offset_bytes, len_bytes } = submit;
        let traffic = &mut self.traffic;
        match op {
            models::Op::Read => {
                traffic.reads += 1;
                traffic.read_bytes += len_bytes;
            }
            models::Op::Write => {
                traffic.writes += 1;
                traffic.written_bytes += len_bytes;
            }
            models::Op::Discard => traffic.discards += 1,
            models::Op::Flush => traffic.flushes += 1,
        }
        assert!(
            offset_bytes + len_bytes <= self.size_bytes && (len_bytes > 0 || op == models::Op::Flush),
            "{len_bytes} bytes at {offset_bytes} are not in a disk of {} bytes",
            self.size_bytes
        );
        if self.under_way == 0 {
            self.busy_since = now;
        }
        self.under_way += 1;
        match &mut self.timing {
            Timing::Constant(constant) => {
                let Latencies { read_ns, write_ns, flush_ns } = constant.latencies;
                match op {
                    models::Op::Read => constant.reads.push_back((now.0 + read_ns, token)),
                    models::Op::Flush => constant.flushes.push_back((now.0 + flush_ns, token)),
                    _ => constant.writes.push_back((now.0 + write_ns, token)),
                }
            }
            Timing::Model(disk) => {
                disk.submit(now.0, token, submit);
            }
            Timing::Plugged(_, plug) => {
                plug.submit(token, submit, is_async);
            }
        }
    }

    /// All that is handed over at this instant has been.
    pub(super) fn unplug(&mut self, now: Nanos) {
        if let Timing::Plugged(disk, plug) = &mut self.timing {
            plug.release(now, disk);
        }
    }

    /// When to poll next.
    pub(super) fn next_ns(&self) -> Option<u64> {
        match &self.timing {
            Timing::Constant(constant) => constant.next_ns(),
            Timing::Model(disk) => disk.next_ns(),
            Timing::Plugged(disk, plug) => plug.next_ns(disk),
        }
    }

    /// The next operation that is done by now.
    pub(super) fn poll(&mut self, now: Nanos) -> Option<u64> {
        let done = self.next_done(now)?;
        self.under_way -= 1;
        if self.under_way == 0 {
            self.traffic.busy_ns += now.since(self.busy_since);
        }
        Some(done)
    }

    fn next_done(&mut self, now: Nanos) -> Option<u64> {
        match &mut self.timing {
            Timing::Constant(constant) => constant
                .queues()
                .into_iter()
                .find(|queue| queue.front().is_some_and(|&(due, _)| due <= now.0))
                .and_then(VecDeque::pop_front)
                .map(|(_, token)| token),
            Timing::Model(disk) => disk.poll(now.0).map(|completion| completion.token),
            Timing::Plugged(disk, plug) => plug.poll(now, disk),
        }
    }

    /// Moves the data of an operation that is done.
    pub(super) fn settle(&mut self, op: &IoOp, buffers: &mut Buffers) -> Result<(), Errno> {
        match op {
            IoOp::Discard { .. } if !self.can_discard => return Err(Errno::OPNOTSUPP),
            IoOp::Discard { offset_bytes, len_bytes } | IoOp::WriteZeroes { offset_bytes, len_bytes } => {
                self.overwrite_metadata(*offset_bytes, *len_bytes);
                if let Blocks::Tags { tags, image } = &mut self.blocks {
                    for part in parts(*offset_bytes, *len_bytes) {
                        put(tags, *image, &part, ZEROES);
                    }
                }
            }
            IoOp::Read { offset_bytes, into } => {
                let mut offset_bytes = *offset_bytes;
                for &slice in into.as_slice() {
                    if buffers.is_metadata(slice.buffer) {
                        self.read_metadata(offset_bytes, buffers.bytes_mut(slice));
                    } else if let Blocks::Tags { tags, image } = &self.blocks {
                        for part in parts(offset_bytes, u64::from(slice.len_bytes)) {
                            let tag = get(tags, *image, part.block);
                            buffers.put(slice, part.at_bytes, part.to_byte - part.from_byte, tag);
                        }
                    }
                    offset_bytes += u64::from(slice.len_bytes);
                }
            }
            IoOp::Write { offset_bytes, from } => {
                let mut offset_bytes = *offset_bytes;
                for &slice in from.as_slice() {
                    if buffers.is_metadata(slice.buffer) {
                        self.write_metadata(offset_bytes, buffers.bytes(slice));
                    } else {
                        self.overwrite_metadata(offset_bytes, u64::from(slice.len_bytes));
                        if let Blocks::Tags { tags, image } = &mut self.blocks {
                            for part in parts(offset_bytes, u64::from(slice.len_bytes)) {
                                put(tags, *image, &part, buffers.tag(slice, part.at_bytes));
                            }
                        }
                    }
                    offset_bytes += u64::from(slice.len_bytes);
                }
            }
            IoOp::Flush | IoOp::Abandon(_) => (),
        }
        Ok(())
    }

    fn write_metadata(&mut self, offset_bytes: u64, bytes: &[u8]) {
        match &mut self.metadata {
            Metadata::Nothing => (),
            Metadata::Summaries(summaries) => {
                if let Some(segment) = summaries.segment_ending_at(offset_bytes + bytes.len() as u64) {
                    summaries.kept[segment] = Some(Packed::pack(bytes));
                }
            }
            Metadata::All(kept) => kept.write(offset_bytes, bytes),
        }
    }

    fn read_metadata(&self, offset_bytes: u64, bytes: &mut [u8]) {
        let kept = match &self.metadata {
            Metadata::Nothing => None,
            Metadata::Summaries(summaries) => summaries
                .segment_ending_at(offset_bytes + bytes.len() as u64)
                .and_then(|segment| summaries.kept[segment].as_ref()),
            Metadata::All(kept) => return kept.read(offset_bytes, bytes),
        };
        let kept = kept.expect("of metadata a running engine reads back only the summaries that it wrote");
        kept.unpack(bytes);
    }

    /// Data, or zeroes, were written where metadata may have been.
    fn overwrite_metadata(&mut self, offset_bytes: u64, len_bytes: u64) {
        if let Metadata::All(kept) = &mut self.metadata {
            kept.forget(offset_bytes / BLOCK_BYTES, len_bytes.div_ceil(BLOCK_BYTES));
        }
    }

    /// Forgets the operations under way; returns when the device is idle.
    pub(super) fn abandon(&mut self, now: Nanos) -> Nanos {
        self.unplug(now);
        let mut now = now;
        while let Some(next_ns) = self.next_ns() {
            now = Nanos(now.0.max(next_ns));
            while self.poll(now).is_some() {}
        }
        now
    }

    /// Carries out operations that were begun together, alone on the device; returns when all are done.
    fn carry_out(&mut self, now: Nanos, submits: impl Iterator<Item = models::Submit>) -> Nanos {
        let mut left = 0;
        for submit in submits {
            self.start(now, 0, submit, false);
            left += 1;
        }
        self.unplug(now);
        let mut now = now;
        while left > 0 {
            while self.poll(now).is_some() {
                left -= 1;
            }
            if left > 0 {
                let next_ns = self.next_ns().expect("operations under way end");
                now = Nanos(now.0.max(next_ns));
            }
        }
        now
    }
}

/// A device whose metadata are all kept, as recovery sees it, in virtual time.
pub(super) struct RecoveredDisk<'d> {
    pub disk: &'d mut Disk,
    pub now: Nanos,
}

impl Image for RecoveredDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes
    }

    fn read_group(&mut self, reads: &mut [ReadAt]) {
        let submits = reads.iter().map(|read| models::Submit {
            op: models::Op::Read,
            offset_bytes: read.offset_bytes,
            len_bytes: read.bytes.len() as u64,
        });
        self.now = self.disk.carry_out(self.now, submits);
        for read in reads {
            self.disk.read_metadata(read.offset_bytes, &mut read.bytes);
            read.result = Ok(());
        }
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        let (op, len_bytes) = (models::Op::Write, bytes.len() as u64);
        let submit = models::Submit { op, offset_bytes, len_bytes };
        self.now = self.disk.carry_out(self.now, iter::once(submit));
        self.disk.write_metadata(offset_bytes, bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        let submit = models::Submit { op: models::Op::Flush, offset_bytes: 0, len_bytes: 0 };
        self.now = self.disk.carry_out(self.now, iter::once(submit));
        Ok(())
    }
}

fn get(tags: &Sparse<u64>, image: Option<VolumeIndex>, block: u64) -> u64 {
    match (tags.get(block), image) {
        (UNTOUCHED, Some(volume)) => tag::of_image(volume, block),
        (UNTOUCHED, None) => ZEROES,
        (tag, _) => tag,
    }
}

fn put(tags: &mut Sparse<u64>, image: Option<VolumeIndex>, part: &tag::Part, new: u64) {
    let old = get(tags, image, part.block);
    *tags.get_mut(part.block) = tag::blend(old, new, part);
}
