//! The common steps of the scripts.

use engine::effect::{RequestOp, WriteMode};
use engine::format::SEGMENTS_OFFSET;
use engine::limits::Config;
use forebay_lab::content::Source;
use forebay_lab::disk::faults::Kind;
use forebay_lab::disk::{Content, Fate};
use forebay_lab::violation::{Kind as Broken, Violation};
use forebay_lab::world::{AtStake, IoView, OpId, Setup, World};

pub use forebay_lab::world::{blocks, sectors};

/// A millisecond.
pub const MS: u64 = 1_000_000;
/// The first sector of the first segment.
pub const SEGMENTS_SECTOR: u64 = SEGMENTS_OFFSET / 512;
/// Sectors of a segment in the worlds here.
pub const SEGMENT_SECTORS: u64 = 32 * 8;

/// What a script returns.
pub type Run = Result<(), Violation>;

// ---- worlds ------------------------------------------------------------------------------------

/// Two volumes in writeback mode: the one under test, and one to fill the log with.
pub fn writeback() -> Setup {
    Setup::new(1).with_modes(&[WriteMode::Writeback, WriteMode::Writeback])
}

/// A write goes around the cache rather than wait.
pub fn without_waits() -> Setup {
    writeback().without_waits()
}

/// The same, where the script damages the cache: `check` has something to say then.
pub fn damaged() -> Setup {
    let mut setup = writeback();
    setup.is_checked_on_open = false;
    setup
}

/// The volume under test is in write-through mode.
pub fn writethrough() -> Setup {
    Setup::new(1).with_modes(&[WriteMode::Writethrough, WriteMode::Writeback])
}

/// The volume under test is in write-around mode.
pub fn writearound() -> Setup {
    Setup::new(1).with_modes(&[WriteMode::Writearound, WriteMode::Writeback])
}

/// A single volume in writeback mode.
pub fn writeback_alone() -> Setup {
    Setup::new(1).with_modes(&[WriteMode::Writeback])
}

/// A single volume in write-around mode.
pub fn writearound_alone() -> Setup {
    Setup::new(1).with_modes(&[WriteMode::Writearound])
}

/// The same, where nobody can note that a cache is given up.
pub fn writearound_unnoted() -> Setup {
    Setup { note_errors: 100, ..writearound_alone() }
}

/// The same in write-through.
pub fn writethrough_unnoted() -> Setup {
    Setup { note_errors: 100, ..writethrough() }
}

// ---- requests that succeed -----------------------------------------------------------------------

/// Lets the engine do what it does after a start: from then on fills are possible. In slots the area of the first ones is
/// open then, so that the page that says so, and its flush, do not come between what the script is about.
pub fn begin(world: &mut World) -> Run {
    world.run_dry()?;
    if has_slots(world) && crate::kinds::stays_open(world) {
        let volume = world.volumes() - 1;
        // None of the volume's well-known places, and no block of a script.
        let last = (world.volume_sectors(volume) / 8 / 16 - 1) * 16;
        let slot_blocks = world.setup().slots.map_or(1, |slots| slots.layout().slot_blocks());
        write(world, volume, last.min(1216), u64::from(slot_blocks))?;
        drain(world, volume)?;
        world.run_dry()?;
    }
    Ok(())
}

/// Reads whole blocks.
pub fn read(world: &mut World, volume: usize, first: u64, count: u64) -> Run {
    let ticket = world.read(volume, blocks(first, count));
    world.succeed(ticket)
}

/// Writes whole blocks.
pub fn write(world: &mut World, volume: usize, first: u64, count: u64) -> Run {
    let ticket = world.write(volume, blocks(first, count));
    world.succeed(ticket)
}

/// Writes whole blocks durably.
pub fn write_fua(world: &mut World, volume: usize, first: u64, count: u64) -> Run {
    let ticket = world.write_fua(volume, blocks(first, count));
    world.succeed(ticket)
}

/// Makes a volume's writes durable.
pub fn flush(world: &mut World, volume: usize) -> Run {
    let ticket = world.flush(volume);
    world.succeed(ticket)
}

/// Brings everything of a volume home.
pub fn drain(world: &mut World, volume: usize) -> Run {
    let ticket = world.submit(volume, RequestOp::Drain);
    world.succeed(ticket)
}

/// Reads blocks that are not cached, so that they are then.
pub fn fill(world: &mut World, volume: usize, first: u64, count: u64) -> Run {
    make_known(world, volume, first, count)?;
    read(world, volume, first, count)?;
    let is_grouped = world.setup().memory_blocks > 0;
    world.pass(if is_grouped { 50 * MS } else { 20 * MS })?;
    if has_frames(world) {
        // Keys wait a second for company.
        world.pass(2000 * MS)?;
        flush(world, world.volumes() - 1)?;
    }
    Ok(())
}

/// Whether clean data lies in frames, which has keys of its own.
pub fn has_frames(world: &World) -> bool {
    world.setup().composition.contains("\npersistence = frames\n")
}

/// The next read of these blocks brings them into the cache, also where the first one does not.
pub fn make_known(world: &mut World, volume: usize, first: u64, count: u64) -> Run {
    let is_second_read = world.setup().memory_blocks > 0;
    if is_second_read { read(world, volume, first, count) } else { Ok(()) }
}

/// Where memory has another copy of what is dirty: not after a start.
pub fn forget_memory(world: &mut World) -> Run {
    if world.setup().memory_blocks > 0 {
        world.kill(|_| true);
        world.open()?;
    }
    Ok(())
}

/// Whether blocks lie in slots.
pub fn has_slots(world: &World) -> bool {
    world.setup().slots.is_some()
}

// ---- the ring --------------------------------------------------------------------------------------

/// Writes to a volume until the log went round four times: nothing of before is cached any more but what was hit, if nothing
/// was since.
pub fn wrap(world: &mut World, volume: usize) -> Run {
    go_round(world, volume, |_, _| Ok(()))
}

/// The same, and after each write does something with its first block.
fn go_round(world: &mut World, volume: usize, after: impl Fn(&mut World, u64) -> Run) -> Run {
    let until = world.counts().wraps + 4;
    for step in 0..2000 {
        if world.counts().wraps >= until {
            return Ok(());
        }
        let first = 1000 + step * 16 % 480;
        write(world, volume, first, 16)?;
        after(world, first)?;
    }
    Err(Violation::new(Broken::Liveness, "the log does not go round"))
}

/// Segments that may be written.
pub fn free_segments(world: &World) -> u32 {
    world.engine().map_or(0, |engine| engine.status().cache.segments_free)
}

/// Fills the log by writes to a volume until one more segment would make it reclaim the oldest, then brings the volume's
/// data home.
pub fn fill_log(world: &mut World, volume: usize) -> Run {
    let low = Config::for_cache(64, 32).segments_low;
    let mut step = 0;
    while free_segments(world) > low + 1 {
        write(world, volume, step * 16 % 1472, 16)?;
        step += 1;
    }
    drain(world, volume)
}

/// Submits writes of 16 blocks each, and lets some time pass: they may or may not be answered.
pub fn press(world: &mut World, volume: usize, writes: u64, ns: u64) -> Run {
    for step in 0..writes {
        let _whenever = world.write(volume, blocks(step * 16 % 1472, 16));
    }
    world.pass(ns)
}

/// Fills all slots with what another volume has.
pub fn crowd(world: &mut World) -> Run {
    for step in 0..u64::from(crate::kinds::SLOT_COUNT) / 16 + 4 {
        fill(world, 1, step * 16, 16)?;
    }
    Ok(())
}

// ---- devices ---------------------------------------------------------------------------------------

/// Whether an operation writes the summary of a segment: nothing else reaches a segment's end.
pub fn is_summary(io: &IoView) -> bool {
    io.is_cache(Kind::Write)
        && io.first >= SEGMENTS_SECTOR
        && (io.first + io.sectors - SEGMENTS_SECTOR).is_multiple_of(SEGMENT_SECTORS)
}

/// Whether an operation writes to the segments what is no summary.
pub fn is_batch(io: &IoView) -> bool {
    io.is_cache(Kind::Write) && io.first >= SEGMENTS_SECTOR && !is_summary(io)
}

/// The same of a ring that buckets follow.
pub fn is_batch_of_ring(io: &IoView) -> bool {
    let end = SEGMENTS_SECTOR + u64::from(crate::kinds::KEY_LAYOUT.ring_blocks()) * 8;
    is_batch(io) && io.first < end
}

/// The segment that a sector of the cache is in.
pub fn segment_of(sector: u64) -> Option<u64> {
    sector.checked_sub(SEGMENTS_SECTOR).map(|sector| sector / SEGMENT_SECTORS)
}

/// Whether a write carries data of clients.
pub fn has_client_data(write: &AtStake) -> bool {
    match &write.content {
        Content::Data(sectors) => {
            sectors.iter().any(|sector| matches!(sector.tag().source(), Source::Write { .. }))
        }
        Content::Zeroes(_) => false,
    }
}

/// What must have come to pass by now.
pub fn expect(is_so: bool, what: &str) -> Run {
    if is_so { Ok(()) } else { Err(Violation::new(Broken::Liveness, what)) }
}

/// The operations of that kind under way, oldest first.
pub fn pending(world: &World, filter: impl Fn(&IoView) -> bool) -> Vec<OpId> {
    world.pending(filter).iter().map(|io| io.id).collect()
}

/// Bytes of the cache device.
pub fn cache_bytes(world: &mut World, first: u64, sectors: u64) -> Vec<u8> {
    let mut bytes = vec![0; sectors as usize * 512];
    for (sector, into) in world.cache().read(first, sectors).iter().zip(bytes.chunks_mut(512)) {
        sector.expand(into);
    }
    bytes
}

/// A bit of the cached copy of a block rots.
pub fn rot(world: &mut World, volume: usize, block: u64) -> Run {
    for sector in world.copies_of(volume, block * 8) {
        assert!(world.rot_cache(sector, 77), "the script made the copy durable");
    }
    Ok(())
}

/// Everything that no flush covers is lost.
pub fn lose_all(world: &mut World) -> Run {
    world.cut_power(|_| Fate::Lost);
    world.open()
}

/// The cache keeps everything, origins keep what was flushed.
pub fn origins_lose(world: &mut World) -> Run {
    world.cut_power(|write| match write.target {
        engine::effect::Target::Cache => Fate::Kept,
        _ => Fate::Lost,
    });
    world.open()
}

/// Origins keep everything, the cache keeps what was flushed.
pub fn cache_loses(world: &mut World) -> Run {
    world.cut_power(|write| match write.target {
        engine::effect::Target::Cache => Fate::Lost,
        _ => Fate::Kept,
    });
    world.open()
}

/// Every block reads as it must, and goes on doing so when the cache has forgotten it.
pub fn verify_and_evict(world: &mut World) -> Run {
    world.verify_cut()?;
    evict(world)
}

/// Every block reads as it must when the cache has forgotten it: our own log goes round; of other caches the origin is asked
/// when nothing in them is dirty.
pub fn evict(world: &mut World) -> Run {
    let setup = world.setup();
    if setup.slots.is_none() && setup.composition.is_empty() {
        // What was hit stays until other things are.
        go_round(world, 1, |world, first| read(world, 1, first, 16))?;
        return world.verify();
    }
    // What is read after a flush is certain.
    flush(world, 0)?;
    world.verify()?;
    drain(world, 0)?;
    world.expect_origin_equals_view(0)?;
    world.verify()
}
