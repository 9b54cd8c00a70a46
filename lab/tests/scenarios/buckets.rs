//! Hazard 5, rules 1, 5 and 7 where data lies in buckets and the ring has keys alone.

use crate::kinds::{KEY_LAYOUT as LAYOUT, Kind as Records};
use crate::steps::*;
use engine::effect::{RequestOp, Target, WriteMode};
use engine::units::VolumeIndex;
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::world::{AtStake, IoView, Setup, World, blocks};

crate::scenarios! {
    hazard_05_bucket_given_up_is_forgotten: ForgetFreed, around, on BUCKETS;
    rule_01_bucket_refilled_before_a_flush: RefillBeforeFlush, buckets, with SkipReadChecksum, on BUCKETS;
    rule_05_bucket_refilled_before_a_header_tells: RefillBeforeStated, buckets, on BUCKETS;
    rule_07_bypass_of_what_a_bucket_had: BypassBeforeFreed, around, on BUCKETS;
    hazard_07_key_before_its_tombstone: RecordsBeforeKeys, early, on BUCKETS;
    hazard_05_tail_keeps_keys_that_hold: DropTailKeys, buckets, on BUCKETS;
    hazard_02_key_of_torn_data: SkipPayloadAtRecovery, buckets, on BUCKETS;
    hazard_02_key_of_data_between_two_flushes: KeptUnflushed, buckets, on BUCKETS;
    rule_05_key_of_what_has_rotted_is_kept: DoubtKeptKeys, rotten, on BUCKETS;
    rule_05_key_of_what_rotted_before_it: DoubtKeptKeys, rotten, on BUCKETS;
}

const BUCKETS: &[Records] = &[Records::Journal];

/// Two volumes in writeback mode over 24 buckets of four blocks.
fn buckets() -> Setup {
    writeback().with_buckets(LAYOUT, &[], true)
}

/// The same, where `check` will find damage.
fn rotten() -> Setup {
    damaged().with_buckets(LAYOUT, &[], true)
}

/// The volume under test is in write-around mode.
fn around() -> Setup {
    writearound().with_buckets(LAYOUT, &[], true)
}

/// Writes are answered before their keys are in the ring.
fn early() -> Setup {
    writeback().with_buckets(LAYOUT, &[], false)
}

/// Whether a write goes to the first bucket, which is filled first.
fn is_first_bucket(write: &AtStake) -> bool {
    let first = SEGMENTS_SECTOR + u64::from(LAYOUT.ring_blocks()) * 8;
    (first..first + u64::from(LAYOUT.bucket_blocks) * 8).contains(&write.first)
}

fn is_cached(world: &World, volume: usize, block: u64) -> bool {
    let volume = VolumeIndex(volume as u8);
    world.engine().is_some_and(|engine| engine.cached_blocks(volume).contains(&block))
}

/// Reads a bucket's worth at a time, from the `from`th on, until `until`.
fn fill_buckets(world: &mut World, from: u64, until: impl Fn(&World) -> bool) -> Run {
    for step in from..from + 60 {
        if until(world) {
            break;
        }
        fill(world, 0, step * 4, 4)?;
    }
    Ok(())
}

/// Fills the first bucket with the first blocks; it is durable that this is durable.
fn fill_first(world: &mut World) -> Run {
    for step in 0..2 {
        fill(world, 0, step * 4, 4)?;
        flush(world, 0)?;
    }
    Ok(())
}

fn hazard_05_bucket_given_up_is_forgotten(world: &mut World) -> Run {
    begin(world)?;
    fill_first(world)?;
    fill_buckets(world, 2, |world| !is_cached(world, 0, 0))?;
    world.pass(10 * MS)?;
    // v0 lies in the bucket still.
    write_fua(world, 0, 0, 1)?;
    world.cut_power(|_| Fate::Kept);
    world.open()?;
    world.verify_cut()
}

fn rule_01_bucket_refilled_before_a_flush(world: &mut World) -> Run {
    begin(world)?;
    fill_first(world)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    fill_buckets(world, 2, |world| world.at_stake().iter().any(is_first_bucket))?;
    world.cut_power(|write| if is_first_bucket(write) { Fate::Kept } else { Fate::Lost });
    world.open()?;
    world.verify_cut()
}

fn rule_05_bucket_refilled_before_a_header_tells(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 0, 4)?;
    write(world, 1, 10, 1)?;
    world.hold(|io| io.is_origin(1, Kind::Write) || io.is_cache(Kind::Flush));
    fill_buckets(world, 1, |world| !is_cached(world, 0, 0))?;
    world.pass(10 * MS)?;
    let flush = world.flush(1);
    world.pass(MS)?;
    world.release();
    world.succeed(flush)?;
    // From here on nothing becomes durable that says so.
    world.hold(|io| io.is_origin(1, Kind::Write) || io.is_cache(Kind::Flush));
    fill_buckets(world, 100, |world| world.at_stake().iter().any(is_first_bucket))?;
    world.cut_power(|write| if is_first_bucket(write) { Fate::Kept } else { Fate::Lost });
    world.open()?;
    world.verify_cut()
}

fn rule_07_bypass_of_what_a_bucket_had(world: &mut World) -> Run {
    begin(world)?;
    fill_first(world)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    fill_buckets(world, 2, |world| !is_cached(world, 0, 0))?;
    let _waits = world.write_fua(0, blocks(0, 1));
    world.pass(100 * MS)?;
    world.cut_power(|write| {
        let is_cache = write.target == Target::Cache;
        if is_cache { Fate::Lost } else { Fate::Kept }
    });
    world.open()?;
    world.verify_cut()
}

fn hazard_07_key_before_its_tombstone(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    let discard = world.discard(0, blocks(10, 1));
    world.succeed(discard)?;
    let mode = world.submit(0, RequestOp::SetMode(WriteMode::Writearound));
    world.succeed(mode)?;
    write_fua(world, 0, 10, 1)?;
    world.cut_power(|_| Fate::Kept);
    world.open()?;
    world.verify_cut()
}

fn hazard_05_tail_keeps_keys_that_hold(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    write_fua(world, 0, 10, 1)?;
    let until = world.counts().wraps + 2;
    for step in 0..8000 {
        if world.counts().wraps >= until {
            break;
        }
        write_fua(world, 1, step % 40, 1)?;
    }
    assert!(world.counts().wraps >= until, "the ring does not go round");
    world.cut_power(|write| if write.target == Target::Cache { Fate::Kept } else { Fate::Lost });
    world.open()?;
    world.verify_cut()
}

/// The block is on its way home and rots; then its key leaves the tail, and the power is cut while nothing says that the batch
/// with that key was flushed.
fn rule_05_key_of_what_has_rotted_is_kept(world: &mut World) -> Run {
    let ring_end = SEGMENTS_SECTOR + u64::from(LAYOUT.ring_blocks()) * 8;
    let is_of_tail = move |io: &IoView| io.is_cache(Kind::Read) && io.first < ring_end;
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    write_fua(world, 0, 10, 1)?;
    world.until_pending(|io| io.is_origin(0, Kind::Write))?;
    rot(world, 0, 10)?;
    world.hold(is_of_tail);
    for step in 0..8000 {
        if !pending(world, is_of_tail).is_empty() {
            break;
        }
        write_fua(world, 1, step % 40, 1)?;
    }
    world.hold(|io| io.is_cache(Kind::Flush));
    world.complete_all(is_of_tail)?;
    write(world, 0, 500, 1)?;
    let flush = world.flush(0);
    world.pass(MS)?;
    world.complete_all(|io| io.is_cache(Kind::Flush))?;
    world.succeed(flush)?;
    world.cut_power(|write| if write.target == Target::Cache { Fate::Kept } else { Fate::Lost });
    world.open()?;
    read(world, 0, 500, 1)
}

/// A write is answered; of what is unflushed by then a power cut leaves its key alone.
fn hazard_02_key_of_torn_data(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    world.cut_power(|write| if is_first_bucket(write) { Fate::Lost } else { Fate::Kept });
    world.open()?;
    world.verify_cut()
}

/// The same with a flush before the data, which says nothing of it.
fn hazard_02_key_of_data_between_two_flushes(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    hazard_02_key_of_torn_data(world)
}

/// A key waits for an older one, whose data is slow; its own data is flushed and rots meanwhile. Then both are flushed, and
/// the power is cut while nothing says so.
fn rule_05_key_of_what_rotted_before_it(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    world.hold(|io| io.is_cache(Kind::Write));
    let slow = world.write(0, blocks(500, 1));
    let slow_data = world.until_pending(|io| io.is_cache(Kind::Write))?;
    let quick = world.write(0, blocks(20, 1));
    let quick_data = world.until_pending(move |io| io.is_cache(Kind::Write) && io.id != slow_data.id)?;
    world.complete(quick_data.id)?;
    flush(world, 0)?;
    assert!(world.rot_cache(quick_data.first, 77), "its data is durable");
    world.release();
    world.succeed(slow)?;
    world.succeed(quick)?;
    flush(world, 0)?;
    world.cut_power(|write| if write.target == Target::Cache { Fate::Kept } else { Fate::Lost });
    world.open()?;
    read(world, 0, 500, 1)
}
