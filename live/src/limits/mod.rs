//! Limits of the requests and bytes that a volume's clients may have carried out in a second.
//!
//! They hold before the core, where the requests of all doors come together: the core knows nothing of them, and what
//! is held back takes none of its places. A brake for each limited volume keeps those requests in order until their
//! time has come. So a volume never waits for another one; and what is not counted (a flush, whatever the operator
//! asks for) goes past.

mod bucket;

use bucket::Bucket;
pub use bucket::Rate;
use engine::effect::RequestOp;
use engine::units::{BLOCK_BYTES, Nanos, SECTOR_BYTES, VOLUMES_MAX, VolumeIndex};
use std::collections::VecDeque;

/// The limits of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests a second. One of more than 256 KiB counts as several.
    pub iops: Option<Rate>,
    /// Bytes a second, read and written.
    pub bandwidth: Option<Rate>,
}

/// Requests that were held back since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// Pieces of requests.
    pub requests: u64,
    /// The time that they waited, added up.
    pub wait_ns: u64,
}

/// A request that waits for its time.
#[derive(Debug)]
struct Waiting<T> {
    item: T,
    bytes: u64,
    since: Nanos,
}

/// The brake of one volume.
#[derive(Debug)]
struct Brake<T> {
    limits: Limits,
    iops: Option<Bucket>,
    bandwidth: Option<Bucket>,
    waiting: VecDeque<Waiting<T>>,
    /// Memory of those, in whole blocks.
    waiting_bytes: u64,
    held_back: HeldBack,
}

/// The brakes of all volumes.
#[derive(Debug)]
pub(crate) struct Brakes<T> {
    brakes: [Brake<T>; VOLUMES_MAX],
    /// Volumes with limits, or with requests that wait.
    on: u32,
}

/// The bytes that count of an operation of a client; `None` if it is not limited.
pub(crate) fn counted_bytes(op: &RequestOp) -> Option<u64> {
    match op {
        RequestOp::Read { range, .. } | RequestOp::Write { range, .. } => Some(range.sectors * SECTOR_BYTES),
        // They bring no data.
        RequestOp::Discard { .. } | RequestOp::WriteZeroes { .. } => Some(0),
        _ => None,
    }
}

/// The memory of so many bytes of a request.
fn memory(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES)
}

impl<T> Brake<T> {
    fn new() -> Brake<T> {
        Brake {
            limits: Limits::default(),
            iops: None,
            bandwidth: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            held_back: HeldBack::default(),
        }
    }

    fn ready_at(&self, bytes: u64, now: Nanos) -> Nanos {
        let iops = self.iops.map_or(now, |bucket| bucket.ready_at(1, now));
        let bandwidth = self.bandwidth.map_or(now, |bucket| bucket.ready_at(bytes, now));
        iops.max(bandwidth)
    }

    fn take(&mut self, bytes: u64, now: Nanos) {
        if let Some(bucket) = &mut self.iops {
            bucket.take(1, now);
        }
        if let Some(bucket) = &mut self.bandwidth {
            bucket.take(bytes, now);
        }
    }

    fn is_on(&self) -> bool {
        self.limits != Limits::default() || !self.waiting.is_empty()
    }
}

impl<T> Brakes<T> {
    /// Brakes without limits.
    pub(crate) fn new() -> Brakes<T> {
        Brakes { brakes: std::array::from_fn(|_| Brake::new()), on: 0 }
    }

    /// Whether any volume has limits, or requests that wait.
    #[inline]
    pub(crate) fn are_any_on(&self) -> bool {
        self.on > 0
    }

    fn note(&mut self, volume: VolumeIndex) {
        let bit = 1 << volume.at();
        if self.brakes[volume.at()].is_on() {
            self.on |= bit;
        } else {
            self.on &= !bit;
        }
    }

    /// Sets the limits of a volume. A rate that stays as it is remembers what it has let through.
    pub(crate) fn set(&mut self, volume: VolumeIndex, limits: Limits, now: Nanos) {
        let brake = &mut self.brakes[volume.at()];
        if limits.iops != brake.limits.iops {
            brake.iops = limits.iops.map(|rate| Bucket::new(rate, now));
        }
        if limits.bandwidth != brake.limits.bandwidth {
            brake.bandwidth = limits.bandwidth.map(|rate| Bucket::new(rate, now));
        }
        brake.limits = limits;
        self.note(volume);
    }

    /// Gives a request back that may go on now, or keeps it until its time comes.
    pub(crate) fn pass(&mut self, volume: VolumeIndex, bytes: u64, item: T, now: Nanos) -> Option<T> {
        let brake = &mut self.brakes[volume.at()];
        if brake.waiting.is_empty() && brake.ready_at(bytes, now) <= now {
            brake.take(bytes, now);
            return Some(item);
        }
        brake.waiting.push_back(Waiting { item, bytes, since: now });
        brake.waiting_bytes += memory(bytes);
        brake.held_back.requests += 1;
        None
    }

    /// The next request whose time has come.
    pub(crate) fn take_due(&mut self, now: Nanos) -> Option<T> {
        for at in 0..VOLUMES_MAX {
            let brake = &mut self.brakes[at];
            let Some(first) = brake.waiting.front() else { continue };
            let bytes = first.bytes;
            if brake.ready_at(bytes, now) > now {
                continue;
            }
            brake.take(bytes, now);
            let Waiting { item, since, .. } = brake.waiting.pop_front()?;
            brake.waiting_bytes -= memory(bytes);
            brake.held_back.wait_ns = brake.held_back.wait_ns.saturating_add(now.since(since));
            self.note(VolumeIndex(at as u8));
            return Some(item);
        }
        None
    }

    /// Takes out the requests of a volume that wait and that nobody wants any more.
    pub(crate) fn withdraw(&mut self, volume: VolumeIndex, is_unwanted: impl Fn(&T) -> bool) -> Vec<T> {
        let brake = &mut self.brakes[volume.at()];
        let mut withdrawn = Vec::new();
        for waiting in std::mem::take(&mut brake.waiting) {
            if is_unwanted(&waiting.item) {
                brake.waiting_bytes -= memory(waiting.bytes);
                withdrawn.push(waiting.item);
            } else {
                brake.waiting.push_back(waiting);
            }
        }
        self.note(volume);
        withdrawn
    }

    /// The number of requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.brakes.iter().map(|brake| brake.waiting.len()).sum()
    }

    /// The time of the next request that waits; `None` if none does.
    pub(crate) fn deadline(&self, now: Nanos) -> Option<Nanos> {
        let firsts = self.brakes.iter().filter_map(|brake| Some((brake, brake.waiting.front()?)));
        firsts.map(|(brake, first)| brake.ready_at(first.bytes, now)).min()
    }

    /// Whether a volume's requests that wait hold their share of `bytes`: each limited volume has an equal one.
    pub(crate) fn is_full(&self, volume: VolumeIndex, bytes: u64) -> bool {
        self.are_any_on() && self.brakes[volume.at()].waiting_bytes * u64::from(self.on.count_ones()) >= bytes
    }

    /// Requests of a volume that were held back since the start.
    pub(crate) fn held_back(&self, volume: VolumeIndex) -> HeldBack {
        self.brakes[volume.at()].held_back
    }
}

#[cfg(test)]
mod tests;
