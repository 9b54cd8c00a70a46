//! Effects on their way to the driver, and the operations that it has yet to complete.

use crate::effect::{Effect, Io, IoId, IoOp, Target};
use crate::machine::flight::Flight;
use crate::machine::request::RequestKey;
use crate::number::{high_u32, index, low_u32, wide};
use crate::status::{Content, DeviceBytes, WrittenBytes};
use crate::units::{Nanos, VOLUMES_MAX, VolumeIndex};
use alloc::collections::VecDeque;
use slab::Slab;

/// Effects that the driver has yet to fetch, and operations that it has yet to complete.
pub(crate) struct Outbox<T> {
    effects: VecDeque<Effect>,
    /// Operations under way, each with the serial number of its issue.
    flights: Slab<(u32, Flight<T>)>,
    serial: u32,
    cache_bytes: DeviceBytes,
    /// The content among what was written to the cache.
    content: WrittenBytes,
    origin_bytes: [DeviceBytes; VOLUMES_MAX],
}

impl<T> Outbox<T> {
    /// An empty one.
    pub fn new() -> Outbox<T> {
        Outbox {
            effects: VecDeque::new(),
            flights: Slab::new(),
            serial: 0,
            cache_bytes: DeviceBytes::default(),
            content: WrittenBytes::default(),
            origin_bytes: [DeviceBytes::default(); VOLUMES_MAX],
        }
    }

    /// Queues an operation; `flight` comes back by [`Outbox::land`] when a device answered it.
    #[inline]
    pub fn issue(&mut self, target: Target, op: IoOp, flight: Flight<T>) {
        self.count(target, &op);
        self.send(target, op, flight);
    }

    /// Counts an operation of a device. What goes to both halves of a mirrored cache is counted once.
    #[inline(always)]
    pub fn count(&mut self, target: Target, op: &IoOp) {
        let bytes = match target {
            Target::Cache => Some(&mut self.cache_bytes),
            Target::Origin(volume) => Some(&mut self.origin_bytes[volume.at()]),
            Target::Mirror | Target::State => None,
        };
        if let Some(bytes) = bytes {
            match op {
                IoOp::Read { into, .. } => bytes.read_bytes += into.len_bytes(),
                IoOp::Write { from, .. } => bytes.written_bytes += from.len_bytes(),
                IoOp::Flush => bytes.flushes += 1,
                IoOp::Discard { .. } | IoOp::WriteZeroes { .. } | IoOp::Abandon(_) => (),
            }
        }
    }

    /// Counts what a write of the second half of a mirrored cache has of its own.
    pub fn count_second(&mut self, bytes: u64) {
        self.cache_bytes.written_bytes += bytes;
    }

    /// Queues an operation that is not counted.
    #[inline]
    pub fn send(&mut self, target: Target, op: IoOp, flight: Flight<T>) {
        self.serial = self.serial.wrapping_add(1);
        let key = self.flights.insert((self.serial, flight));
        let id = IoId((u64::from(self.serial) << 32) | wide(key));
        self.effects.push_back(Effect::Io(Io { id, target, op }));
    }

    /// Counts content in the write to the cache that is issued now.
    #[inline]
    pub fn count_content(&mut self, why: Content, bytes: u64) {
        self.content.add(why, bytes);
    }

    /// Queues a reply or a notice.
    #[inline]
    pub fn push(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Whether the driver has fetched all effects.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }

    /// The next effect for the driver.
    #[inline]
    pub fn next(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Takes the completion of operation `io`, and returns its purpose.
    #[inline]
    pub fn land(&mut self, io: IoId) -> Flight<T> {
        let (serial, key) = (high_u32(io.0), index(low_u32(io.0)));
        assert!(
            self.flights.get(key).is_some_and(|(issued, _)| *issued == serial),
            "an operation is completed once, by the number it was issued with"
        );
        self.flights.remove(key).1
    }

    /// The times at which clients' reads of the cache that are under way were issued.
    pub fn cache_reads(&self) -> impl Iterator<Item = Nanos> {
        self.flights.iter().filter_map(|(_, (_, flight))| match flight {
            Flight::CacheRead { issued, .. } | Flight::Probe { issued, .. } => Some(*issued),
            Flight::AheadRead(read) => Some(read.issued),
            _ => None,
        })
    }

    /// The reads of origins that requests wait for, and when they were issued.
    pub fn origin_reads(&self) -> impl Iterator<Item = (RequestKey, Nanos)> {
        self.flights.iter().filter_map(|(_, (_, flight))| match flight {
            Flight::OriginRead { request, issued, .. } => Some((*request, *issued)),
            _ => None,
        })
    }

    /// The number of operations under way.
    pub fn in_air(&self) -> usize {
        self.flights.len()
    }

    /// Bytes that the cache device was asked for.
    pub fn cache_bytes(&self) -> DeviceBytes {
        self.cache_bytes
    }

    /// Bytes that the cache device was given to write, by reason.
    pub fn written(&self) -> WrittenBytes {
        self.content.with_headers(self.cache_bytes.written_bytes)
    }

    /// Counts an origin from zero: it is another one.
    pub fn count_anew(&mut self, volume: VolumeIndex) {
        self.origin_bytes[volume.at()] = DeviceBytes::default();
    }

    /// Bytes that the origin of a volume was asked for.
    pub fn origin_bytes(&self, volume: VolumeIndex) -> DeviceBytes {
        self.origin_bytes[volume.at()]
    }
}
