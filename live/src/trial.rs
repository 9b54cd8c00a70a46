//! The trial of a device that is to be a cache: what a flush costs, how fast it writes when its own write buffer is full, and how
//! long a read takes beside writes. Of its origin: how long a read takes.
//!
//! It overwrites the device, once at the most, so that its wear is known. Its data cannot be compressed.

use crate::clock;
use crate::devices::{BlockingDevice, Device};
use crate::doors::histogram::Histogram;
use crate::doors::latency::{Latency, summary};
use engine::effect::Errno;
use engine::units::Nanos;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of a small write, and of a read.
const SMALL_BYTES: u64 = 4096;
/// Bytes of a large write, as the log makes them.
const LARGE_BYTES: u64 = 512 << 10;
/// Threads that write at the same time.
const WRITERS: u64 = 4;
/// The rate of writes is known for each of so many parts of their time.
const SLOTS: usize = 60;
/// Writes beside reads keep to one in so many of what the device can take.
const BESIDE_ONE_IN: u64 = 2;

/// Findings about a device.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// The time that it took.
    pub took: Duration,
    /// Flushes behind one small write each.
    pub flush: Latency,
    /// The flush behind all large writes, in nanoseconds.
    pub full_flush_ns: u64,
    /// Whether the kernel knows of a write cache that a power cut empties; nothing if it does not say.
    pub has_volatile_cache: Option<bool>,
    /// Large writes, in bytes.
    pub written_bytes: u64,
    /// Their best rate in bytes a second.
    pub burst_bytes_per_second: u64,
    /// Their rate in the last third of their time.
    pub steady_bytes_per_second: u64,
    /// Small reads one after another, beside writes at half of the steady rate.
    pub read: Latency,
}

/// Tries a device for as long as `time`, or until it was written once. All that it holds is lost.
///
/// # Errors
/// The device's errno.
///
/// # Panics
/// If the device has less than a large write, or a thread cannot be started.
pub fn run(device: &Device, time: Duration) -> Result<Trial, Errno> {
    let began = clock::now();
    let total_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    assert!(device.size_bytes() >= LARGE_BYTES, "a cache is larger than one write");
    let data = Data::new();
    let flush = try_flushes(device, &data, began.plus(total_ns / 6))?;
    let writes = try_writes(device, &data, total_ns / 2)?;
    let full = clock::now();
    BlockingDevice::new(device).flush()?;
    let full_flush_ns = clock::now().since(full);
    let read = try_reads(device, &data, began.plus(total_ns), writes)?;
    // Its own cleaning begins with nothing. A file would lose the space that is reserved for it.
    if device.is_block_device() && device.supports_discard() {
        // A device that refuses it is none the worse.
        let _ = BlockingDevice::new(device).discard(0, device.size_bytes());
    }
    Ok(Trial {
        took: Duration::from_nanos(clock::now().since(began)),
        flush,
        full_flush_ns,
        has_volatile_cache: device.has_volatile_cache(),
        written_bytes: writes.bytes,
        burst_bytes_per_second: writes.burst,
        steady_bytes_per_second: writes.steady,
        read,
    })
}

/// Reads small places of a device, one after another, for as long as `time`. Nothing is written.
///
/// # Errors
/// The device's errno.
///
/// # Panics
/// If the device has less than a small place.
pub fn read(device: &Device, time: Duration) -> Result<Latency, Errno> {
    let total_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    assert!(device.size_bytes() >= SMALL_BYTES, "a device has a place to read");
    read_until(device, &Data::new(), device.size_bytes(), clock::now().plus(total_ns))
}

/// Random bytes, and places.
struct Data {
    bytes: Vec<u8>,
    state: AtomicU64,
}

impl Data {
    /// Data for a large write at each of many offsets, so that no two are alike.
    fn new() -> Data {
        let mut data = Data { bytes: Vec::new(), state: AtomicU64::new(clock::now().0 | 1) };
        let words = 2 * LARGE_BYTES / 8;
        data.bytes = (0..words).flat_map(|_| data.random().to_le_bytes()).collect();
        data
    }

    fn random(&self) -> u64 {
        // splitmix64: one step of a counter, so that threads share it.
        let mut z = self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn piece(&self, len_bytes: u64) -> &[u8] {
        let at = to_usize(self.random() % LARGE_BYTES);
        &self.bytes[at..at + to_usize(len_bytes)]
    }

    /// The start of a place of that length on a device.
    fn place(&self, len_bytes: u64, end_bytes: u64) -> u64 {
        self.random() % (end_bytes / len_bytes) * len_bytes
    }
}

fn to_usize(len_bytes: u64) -> usize {
    usize::try_from(len_bytes).expect("the length of a piece in memory")
}

/// Writes small places and flushes behind each.
fn try_flushes(device: &Device, data: &Data, until: Nanos) -> Result<Latency, Errno> {
    let mut image = BlockingDevice::new(device);
    let mut waited = Histogram::new();
    while clock::now() < until {
        image.write_at(data.place(SMALL_BYTES, device.size_bytes()), data.piece(SMALL_BYTES))?;
        let start = clock::now();
        image.flush()?;
        waited.record(clock::now().since(start));
    }
    Ok(summary(&waited))
}

/// Findings about large writes.
#[derive(Clone, Copy)]
struct Writes {
    bytes: u64,
    burst: u64,
    steady: u64,
}

/// Writes from the start to the end, several at a time.
fn try_writes(device: &Device, data: &Data, time_ns: u64) -> Result<Writes, Errno> {
    let end_bytes = device.size_bytes() / LARGE_BYTES * LARGE_BYTES;
    let next = AtomicU64::new(0);
    let slots = [const { AtomicU64::new(0) }; SLOTS];
    let slot_ns = (time_ns / SLOTS as u64).max(1);
    let began = clock::now();
    let write = || {
        let mut image = BlockingDevice::new(device);
        while clock::now().since(began) < time_ns {
            let offset_bytes = next.fetch_add(LARGE_BYTES, Ordering::Relaxed);
            if offset_bytes >= end_bytes {
                break;
            }
            image.write_at(offset_bytes, data.piece(LARGE_BYTES))?;
            let slot = to_usize(clock::now().since(began) / slot_ns).min(SLOTS - 1);
            slots[slot].fetch_add(LARGE_BYTES, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(write)).collect();
        writers.into_iter().try_for_each(joined)
    })?;
    let took_ns = clock::now().since(began).clamp(1, time_ns);
    let slots: Vec<u64> = slots.into_iter().map(AtomicU64::into_inner).collect();
    Ok(rates(&slots, slot_ns, took_ns))
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T, Errno>>) -> Result<T, Errno> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The rates of what was written in each slot, of which the last ones may never have come.
fn rates(slots: &[u64], slot_ns: u64, took_ns: u64) -> Writes {
    let used = to_usize(took_ns.div_ceil(slot_ns)).clamp(1, slots.len());
    let slots = &slots[..used];
    let per_second = |bytes: u64, ns: u64| {
        let rate = u128::from(bytes) * u128::from(Nanos::SECOND) / u128::from(ns.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    };
    let last = used.div_ceil(3);
    let last_ns = took_ns - (used - last) as u64 * slot_ns;
    let steady = per_second(slots[used - last..].iter().sum(), last_ns);
    let burst = slots[..used - 1].iter().map(|bytes| per_second(*bytes, slot_ns)).max();
    Writes { bytes: slots.iter().sum(), burst: burst.unwrap_or(0).max(steady), steady }
}

/// Reads small places of what was written, while others are written at half of the rate.
fn try_reads(device: &Device, data: &Data, until: Nanos, writes: Writes) -> Result<Latency, Errno> {
    let written_bytes = writes.bytes.max(LARGE_BYTES);
    let is_over = AtomicBool::new(false);
    let write = || {
        let mut image = BlockingDevice::new(device);
        let rate = (writes.steady / BESIDE_ONE_IN).max(1);
        let pause = Nanos::SECOND.saturating_mul(LARGE_BYTES) / rate;
        let mut due = clock::now();
        while !is_over.load(Ordering::Relaxed) && clock::now() < until {
            image.write_at(data.place(LARGE_BYTES, written_bytes), data.piece(LARGE_BYTES))?;
            due = due.plus(pause).max(clock::now());
            let rest_ns = due.since(clock::now()).min(until.since(clock::now()));
            std::thread::sleep(Duration::from_nanos(rest_ns));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(write);
        let result = read_until(device, data, written_bytes, until);
        is_over.store(true, Ordering::Relaxed);
        joined(writer).and(result)
    })
}

/// Reads small places before `end_bytes`, one after another.
fn read_until(device: &Device, data: &Data, end_bytes: u64, until: Nanos) -> Result<Latency, Errno> {
    let mut image = BlockingDevice::new(device);
    let mut bytes = [0; SMALL_BYTES as usize];
    let mut waited = Histogram::new();
    while clock::now() < until {
        let start = clock::now();
        image.read_at(data.place(SMALL_BYTES, end_bytes), &mut bytes)?;
        waited.record(clock::now().since(start));
    }
    Ok(summary(&waited))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{Access, open, parse};

    fn tried(spec: &str) -> Trial {
        let device = open(&parse(spec).expect("a device's name"), Access::Exclusive).expect("it opens");
        run(&device, Duration::from_millis(600)).expect("it works")
    }

    #[test]
    fn a_hard_disk_is_told_from_an_ssd() {
        let disk = tried("model:hdd?size=64M&write_cache=0");
        let ssd = tried("model:nvme?size=64M");
        assert!(disk.read.p50_ns > 10 * ssd.read.p50_ns, "{disk:?} {ssd:?}");
        assert!(disk.steady_bytes_per_second < ssd.steady_bytes_per_second, "{disk:?} {ssd:?}");
        assert!(disk.written_bytes <= 64 << 20 && ssd.written_bytes <= 64 << 20);
    }

    #[test]
    fn reads_alone_take_the_time_of_a_turn() {
        let spec = parse("model:hdd?size=64M").expect("a device's name");
        let device = open(&spec, Access::ReadOnlyExclusive).expect("it opens");
        let read = read(&device, Duration::from_millis(300)).expect("it works");
        assert!(read.count > 10 && read.p50_ns > Nanos::SECOND / 1000, "{read:?}");
    }

    #[test]
    fn the_steady_rate_is_that_of_the_end() {
        let writes = rates(&[90, 90, 30, 10, 10, 10, 0], Nanos::SECOND, 6 * Nanos::SECOND);
        assert_eq!((writes.bytes, writes.burst, writes.steady), (240, 90, 10));
        // The device was full before the first slot was over.
        let writes = rates(&[500, 0, 0], Nanos::SECOND, Nanos::SECOND / 2);
        assert_eq!((writes.bytes, writes.burst, writes.steady), (500, 1000, 1000));
    }
}
