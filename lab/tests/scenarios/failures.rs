//! Hazard 10, rules 10 and 11: devices that return garbage, die, and come back.

use crate::kinds::{ALL, Kind as Records, RINGS, TRANSACTIONS};
use crate::steps::*;
use engine::effect::{Errno, RequestOp, Target, WriteMode};
use engine::format::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS};
use engine::recovery::load_superblock;
use engine::units::payload_checksum;
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::{Kind as Broken, Violation};
use forebay_lab::world::{AtStake, CutImage, IoView, Setup, World};

crate::scenarios! {
    hazard_10_clean_block_rots: SkipReadChecksum, writeback, on ALL;
    hazard_10_dirty_block_rots: RottenDirtyFromOrigin, writeback, on ALL;
    rule_10_lost_is_recorded: LostNotRecorded, writeback;
    hazard_10_cache_fails_and_comes_back: BypassBeforeAbandoned, writearound_alone, on KEEPING_CLEAN;
    hazard_10_note_of_a_failed_cache_fails: BypassUnnoted, writearound_unnoted, on KEEPING_CLEAN;
    hazard_10_flush_beside_a_cache_that_fails: FlushBeforeAbandoned, writethrough, on TRANSACTIONS;
    hazard_10_flush_beside_a_note_that_fails: BypassUnnoted, writethrough_unnoted, on TRANSACTIONS;
    hazard_10_cache_fails_behind_a_new_mode: OwingGivenUp, writeback, on TAKING_NEW;
    hazard_10_cache_fails_before_an_old_mode_ends: OwingGivenUp, writeback, on RINGS;
    hazard_09_well_known_place_is_written: KeepFingerprint, writeback, on ALL;
    rule_11_place_is_written_while_a_stop_reads_it: RecordChangedPlace, few_zeroes, on RINGS;
    rule_11_written_beside_a_growth: ForgetTakenBack, writearound, on ALL;
    rule_11_detach_is_durable: DetachBeforeDurable, writeback, on ALL;
    rule_11_added_when_that_is_durable: AddBeforeDurable, writeback, on ALL;
    rule_11_no_number_is_given_twice: ReuseVolumeId, writeback, on RINGS;
}

/// Where a crash does not forget all that is clean.
const KEEPING_CLEAN: &[Records] =
    &[Records::Inline, Records::Commit, Records::BitTree, Records::Journal, Records::Mirror, Records::Frames];

/// Where the cache takes a block at its first write, and fails with it.
const TAKING_NEW: &[Records] = &[
    Records::Inline,
    Records::SyncSector,
    Records::Commit,
    Records::Journal,
    Records::Mirror,
    Records::Frames,
];

fn hazard_10_clean_block_rots(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    write_fua(world, 0, 500, 1)?;
    rot(world, 0, 10)?;
    read(world, 0, 10, 1)
}

fn hazard_10_dirty_block_rots(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    forget_memory(world)?;
    rot(world, 0, 10)?;
    let ticket = world.read(0, blocks(10, 1));
    let _an_error_and_never_old_data = world.wait(ticket)?;
    Ok(())
}

fn rule_10_lost_is_recorded(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    rot(world, 0, 10)?;
    wrap(world, 1)
}

fn hazard_10_cache_fails_and_comes_back(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    flush(world, 0)?;
    if has_slots(world) {
        // It is mapped durably.
        world.run_dry()?;
    }
    world.hold(|io| io.kind == Kind::Abandon);
    world.cache().faults.gone = Some(Errno::IO);
    let _waits = world.write_fua(0, blocks(10, 1));
    world.pass(50 * MS)?;
    world.cut_power(|_| Fate::Lost);
    world.cache().faults.heal();
    world.open()?;
    world.verify_cut()
}

fn hazard_10_note_of_a_failed_cache_fails(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    flush(world, 0)?;
    if has_slots(world) {
        // It is mapped durably.
        world.run_dry()?;
    }
    world.cache().faults.gone = Some(Errno::IO);
    let write = world.write_fua(0, blocks(10, 1));
    let _refused = world.wait(write)?;
    world.cut_power(|_| Fate::Lost);
    world.cache().faults.heal();
    world.open()?;
    world.verify_cut()
}

/// What was written through to both is in the origin alone when the cache comes back, and a FLUSH said that it is durable.
fn hazard_10_flush_beside_a_cache_that_fails(world: &mut World) -> Run {
    begin(world)?;
    write_through_over_a_copy(world)?;
    world.hold(|io| io.kind == Kind::Abandon);
    flush_until_the_cache_is_back(world)
}

/// The same where that it is given up cannot be noted: the FLUSH fails.
fn hazard_10_flush_beside_a_note_that_fails(world: &mut World) -> Run {
    begin(world)?;
    write_through_over_a_copy(world)?;
    flush_until_the_cache_is_back(world)
}

fn write_through_over_a_copy(world: &mut World) -> Run {
    fill(world, 0, 10, 1)?;
    flush(world, 0)?;
    // It is mapped durably.
    world.run_dry()?;
    write(world, 0, 10, 1)
}

fn flush_until_the_cache_is_back(world: &mut World) -> Run {
    world.cache().faults.gone = Some(Errno::IO);
    let _waits_or_fails = world.flush(0);
    world.pass(50 * MS)?;
    world.cut_power(|_| Fate::Lost);
    world.cache().faults.heal();
    world.open()?;
    world.verify_cut()
}

fn hazard_10_cache_fails_behind_a_new_mode(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write) && io.first < 200 * 8);
    write_fua(world, 0, 10, 1)?;
    assert_eq!(world.ask(0, RequestOp::SetMode(WriteMode::Writethrough))?, Ok(()));
    let _under_way = world.write(0, blocks(600, 1));
    world.pass(50 * MS)?;
    read_without_cache(world)
}

fn hazard_10_cache_fails_before_an_old_mode_ends(world: &mut World) -> Run {
    begin(world)?;
    let is_batch = |io: &IoView| io.is_cache(Kind::Write) && io.first >= SEGMENTS_SECTOR;
    world.hold(is_batch);
    let write = world.write(0, blocks(10, 1));
    world.until_pending(is_batch)?;
    // It began before the mode changed, and is answered after that.
    let mode = world.submit(0, RequestOp::SetMode(WriteMode::Writethrough));
    world.succeed(mode)?;
    world.pass(50 * MS)?;
    world.complete_all(is_batch)?;
    world.release();
    world.hold(|io| io.is_origin(0, Kind::Write));
    world.succeed(write)?;
    read_without_cache(world)
}

/// Reads block 10, which the cache alone has, when the cache is gone and a write has told of it.
fn read_without_cache(world: &mut World) -> Run {
    world.cache().faults.gone = Some(Errno::IO);
    let _fails = world.write(0, blocks(700, 1));
    world.pass(50 * MS)?;
    let read = world.read(0, blocks(10, 1));
    let _an_error_and_never_old_data = world.wait(read)?;
    Ok(())
}

fn hazard_09_well_known_place_is_written(world: &mut World) -> Run {
    begin(world)?;
    // A clean stop leaves fingerprints.
    world.stop()?;
    world.open()?;
    write_fua(world, 0, 0, 1)?;
    world.pass(2000 * MS)?;
    world.cut_power(|_| Fate::Kept);
    compare_places(world)?;
    world.open()?;
    world.verify_cut()
}

/// Compares the well-known places of volume 0 with its origin, as a start does.
fn compare_places(world: &mut World) -> Run {
    let (superblock, _) = load_superblock(&mut CutImage::whole(world.cache())).expect("it is whole");
    let record = superblock.volumes[0].as_ref().expect("the volume is there");
    for place in record.fingerprint.iter().flatten() {
        let mut bytes = vec![0; 4096];
        for (sector, into) in
            world.origin(0).read(place.offset_bytes / 512, 8).iter().zip(bytes.chunks_mut(512))
        {
            sector.expand(into);
        }
        if payload_checksum(&bytes) != place.checksum {
            let what = format!("the volume's own origin is refused for its byte {}", place.offset_bytes);
            return Err(Violation::new(Broken::Contract, what));
        }
    }
    Ok(())
}

fn few_zeroes() -> Setup {
    let mut setup = writeback();
    setup.config = |config| config.extents_max = 2;
    setup
}

fn rule_11_place_is_written_while_a_stop_reads_it(world: &mut World) -> Run {
    begin(world)?;
    let ticket = world.write_zeroes(0, blocks(0, 1));
    world.succeed(ticket)?;
    let is_place = |io: &IoView| io.is_origin(0, Kind::Read) && io.first == 0 && io.sectors == 8;
    world.hold(is_place);
    let stop = world.submit(0, RequestOp::Stop);
    let place = world.until_pending(is_place)?;
    // The read has the old content; its answer comes when the zeroes are home, which leave a log that may hold no more of them
    // even beside a stop.
    world.land_op(place.id);
    world.pass(5000 * MS)?;
    world.release();
    world.succeed(stop)?;
    world.stopped()?;
    compare_places(world)?;
    world.open()?;
    read(world, 0, 0, 1)
}

fn rule_11_written_beside_a_growth(world: &mut World) -> Run {
    begin(world)?;
    // A clean stop leaves fingerprints.
    world.stop()?;
    world.open()?;
    begin(world)?;
    let is_superblock = |io: &IoView| io.is_cache(Kind::Write) && io.first < SEGMENTS_SECTOR;
    world.hold(is_superblock);
    world.grow(0, 80);
    world.until_pending(is_superblock)?;
    let _not_answered = world.write(0, blocks(0, 1));
    world.pass(100 * MS)?;
    world.kill(|write| matches!(write.target, Target::Origin(_)));
    compare_places(world)?;
    world.open()?;
    world.verify_cut()
}

fn rule_11_detach_is_durable(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_cache(Kind::Write) && io.first < SEGMENTS_SECTOR);
    let detach = world.submit(0, RequestOp::Detach);
    world.pass(100 * MS)?;
    let is_answered = world.answer(detach).is_some();
    world.cut_power(|_| Fate::Lost);
    let (superblock, _) = load_superblock(&mut CutImage::whole(world.cache())).expect("it is whole");
    if is_answered && superblock.volumes[0].is_some() {
        return Err(Violation::new(Broken::Contract, "a detached volume is back"));
    }
    Ok(())
}

fn rule_11_added_when_that_is_durable(world: &mut World) -> Run {
    begin(world)?;
    take_off(world, 0)?;
    let is_superblock = |io: &IoView| io.is_cache(Kind::Write) && is_copy(io.first, io.sectors);
    world.hold(is_superblock);
    let add = world.add(0, WriteMode::Writeback);
    world.until_pending(is_superblock)?;
    world.pass(100 * MS)?;
    if world.answer(add).is_none() {
        // It has to wait.
        world.release();
        world.succeed(add)?;
    }
    let write = world.write_fua(0, blocks(10, 1));
    world.pass(100 * MS)?;
    world.release();
    if world.answer(write).is_none() {
        world.succeed(write)?;
    }
    let is_lost = |write: &AtStake| write.is_in_flight || is_copy(write.first, write.sectors());
    world.cut_power(|write| if is_lost(write) { Fate::Lost } else { Fate::Kept });
    world.open()?;
    world.verify_cut()
}

fn rule_11_no_number_is_given_twice(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    // The log tells of the copy durably.
    write_fua(world, 1, 500, 1)?;
    take_off(world, 0)?;
    // The origin is a plain disk again, and somebody writes to it.
    world.write_behind(0, blocks(10, 1));
    let add = world.add(0, WriteMode::Writeback);
    world.succeed(add)?;
    world.kill(|_| true);
    world.open()?;
    world.verify_cut()
}

/// Whether a write is one of a copy of the superblock.
fn is_copy(first: u64, sectors: u64) -> bool {
    sectors * 512 == SUPERBLOCK_BYTES as u64 && SUPERBLOCK_OFFSETS.contains(&(first * 512))
}

/// Takes a volume off the cache.
fn take_off(world: &mut World, volume: usize) -> Run {
    drain(world, volume)?;
    let detach = world.submit(volume, RequestOp::Detach);
    world.succeed(detach)
}
