//! The cost of recovery: what a killed engine leaves on a modelled NVMe is opened again, by size and composition.
//!
//! Two times are told apart, for nobody knows the machine that this will run on: that in which the modelled device is waited
//! for, and that of the processor, which the caller's clock takes. A cache is served after both. What is computed while the
//! device reads is time of the processor alone.

use super::disk::{Disk, Latencies, RecoveredDisk};
use super::drive::{Trouble, Until};
use super::load::{Load, LoadOptions, Pattern};
use super::run::{Contents, LongRun, Remains, Setup, VolumeSetup};
use engine::composition::Composition;
use engine::effect::{Errno, WriteMode};
use engine::engine::Engine;
use engine::image::{Image, ReadAt};
use engine::recovery::OpenError;
use engine::units::{BLOCK_BYTES, Nanos};

/// Without a model: about a good network disk.
const ORIGIN_LATENCIES: Latencies = Latencies { read_ns: 500_000, write_ns: 500_000, flush_ns: 1_000_000 };
/// Blocks of a read that fills the cache: 128 KiB.
const READ_BLOCKS: u64 = 32;
/// Bytes that are written without a flush at the most, whatever the cache's size.
const DIRTY_BYTES_MAX: u64 = 100 << 30;

/// The cache at the time of the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// New.
    Empty,
    /// Reads of 128 KiB at random over an area of its size, half as much again as that area.
    Read,
    /// Writes of 4 KiB at random over an area of its size, a tenth of that and 100 GiB at the most, without a flush.
    Written,
}

impl State {
    /// All of them.
    pub const ALL: [State; 3] = [State::Empty, State::Read, State::Written];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "empty",
            State::Read => "read",
            State::Written => "written",
        }
    }
}

/// A recovery.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Time in which the modelled device was waited for.
    pub device_ns: u64,
    /// Time of the processor, by the caller's clock, without that of the model.
    pub processor_ns: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Records replayed; with slots their number is not told.
    pub entries: u64,
    /// Bytes cached afterwards.
    pub cached_bytes: u64,
    /// Of these, what the origin does not have.
    pub dirty_bytes: u64,
    /// Memory of the index, or of the tables of slots.
    pub index_bytes: u64,
}

/// Reason why there is no measurement.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The load before the kill came to no end.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// The cache cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Kills a cache in a state, and opens it again. `clock` tells nanoseconds from any beginning.
///
/// # Errors
/// [`Failure`].
///
/// # Panics
/// Never: the disk is built in.
pub fn measure(
    composition: &Composition,
    cache_bytes: u64,
    state: State,
    clock: &dyn Fn() -> u64,
) -> Result<Measured, Failure> {
    let mut run = prepare(composition, cache_bytes)?;
    let area_blocks = cache_bytes / BLOCK_BYTES / READ_BLOCKS * READ_BLOCKS;
    let load = LoadOptions { pattern: Pattern::Random, ..LoadOptions::reads(area_blocks) };
    let load = match state {
        State::Empty => None,
        State::Read => Some(LoadOptions {
            request_bytes: READ_BLOCKS * BLOCK_BYTES,
            // Few enough for the cache to take all that is read.
            depth: 2,
            requests: Some(area_blocks / READ_BLOCKS * 3 / 2),
            ..load
        }),
        State::Written => Some(LoadOptions {
            read_permille: 0,
            requests: Some((cache_bytes / 10).min(DIRTY_BYTES_MAX) / BLOCK_BYTES),
            ..load
        }),
    };
    if let Some(load) = load {
        run.run(&mut Load::new(load), Until::End)?;
    }
    let Remains { mut cache, recipe, now } = run.cut();
    let device = RecoveredDisk { disk: &mut cache, now };
    let (read_before, began) = (device.disk.traffic().read_bytes, device.now);
    let mut image = Timed { device, clock, modelled_ns: 0, hidden_ns: 0 };
    let began_ns = clock();
    let opened = recipe.recover(&mut image)?;
    let report = opened.report;
    let engine = Engine::new(opened, recipe.config);
    let processor_ns = clock() - began_ns - image.modelled_ns;
    let Timed { device, hidden_ns, .. } = image;
    let status = engine.status();
    let volume = &status.volumes[0];
    Ok(Measured {
        device_ns: device.now.since(began) - hidden_ns,
        processor_ns,
        read_bytes: device.disk.traffic().read_bytes - read_before,
        entries: report.entries,
        cached_bytes: volume.cached_bytes,
        dirty_bytes: volume.dirty_bytes,
        index_bytes: status.cache.index_bytes,
    })
}

/// A cache in front of an origin as large, ready to cache what is read.
fn prepare(composition: &Composition, cache_bytes: u64) -> Result<LongRun, Trouble> {
    let cache = Disk::modelled(&models::find("nvme").expect("a disk that is built in"), cache_bytes, 1);
    let origin = Disk::constant(cache_bytes, ORIGIN_LATENCIES);
    let volumes = vec![VolumeSetup { origin, mode: WriteMode::Writeback }];
    let mut run = LongRun::recoverable(Setup { cache, volumes, contents: Contents::Nothing }, composition)?;
    // Data read before the origin's first flush is not cached: the run waits for that.
    run.run(&mut Load::new(LoadOptions::once(READ_BLOCKS)), Until::End)?;
    run.idle(Nanos::SECOND)?;
    Ok(run)
}

/// A device that takes the time that its model needs of the processor.
struct Timed<'c, 'd> {
    device: RecoveredDisk<'d>,
    clock: &'c dyn Fn() -> u64,
    modelled_ns: u64,
    /// Time of the device in which the processor did something else.
    hidden_ns: u64,
}

impl<'d> Timed<'_, 'd> {
    fn timed<T>(&mut self, step: impl FnOnce(&mut RecoveredDisk<'d>) -> T) -> T {
        let began_ns = (self.clock)();
        let result = step(&mut self.device);
        self.modelled_ns += (self.clock)() - began_ns;
        result
    }
}

impl Image for Timed<'_, '_> {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn read_group(&mut self, reads: &mut [ReadAt]) {
        self.timed(|device| device.read_group(reads));
    }

    fn read_group_beside(&mut self, reads: &mut [ReadAt], beside: &mut dyn FnMut()) {
        let now = self.device.now;
        self.read_group(reads);
        let read_ns = self.device.now.since(now);
        let began_ns = (self.clock)();
        beside();
        self.hidden_ns += read_ns.min((self.clock)() - began_ns);
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.timed(|device| device.write(offset_bytes, bytes))
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.timed(RecoveredDisk::flush)
    }
}
