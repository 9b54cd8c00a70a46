//! The world itself: small scripts in which what is promised is kept.

use engine::composition::Composition;
use engine::effect::{Errno, RequestOp, Target, WriteMode};
use engine::units::{BLOCK_BYTES, Nanos, VolumeIndex};
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::{Fault, Kind, Planned};
use forebay_lab::violation::Violation;
use forebay_lab::world::{HeldFlushes, IoView, Latency, Setup, VolumeSetup, World, blocks, sectors};

/// Where no client flushes the engine does, so that a crash leaves little to verify.
#[test]
fn a_log_is_flushed_in_time_without_clients_flushes() -> Result<(), Violation> {
    let mut setup = Setup::new(1);
    setup.config = |config| (config.unflushed_blocks_max, config.idle_ns) = (64, u64::MAX);
    let mut world = World::new(setup);
    for block in 0..200 {
        let ticket = world.write(0, blocks(block, 1));
        world.succeed(ticket)?;
    }
    world.cut_power(|_| Fate::Lost);
    world.open()?;
    let kept_bytes = world.engine().expect("an engine runs").status().volumes[0].dirty_bytes;
    assert!(kept_bytes >= (200 - 150) * BLOCK_BYTES, "{kept_bytes} bytes were flushed");
    world.verify_cut()
}

#[test]
fn a_flushed_write_survives_a_power_cut() -> Result<(), Violation> {
    for (mode, _) in WriteMode::ALL.into_iter().take(4) {
        let mut world = World::new(Setup::new(1).with_modes(&[mode]));
        let ticket = world.write(0, blocks(10, 4));
        world.succeed(ticket)?;
        let ticket = world.write(0, sectors(333, 5));
        world.succeed(ticket)?;
        let ticket = world.flush(0);
        world.succeed(ticket)?;
        let late = world.write(0, blocks(10, 1));
        world.succeed(late)?;
        world.cut_power(|_| Fate::Lost);
        world.open()?;
        world.verify_cut()?;
        world.expect_sound_image()?;
        let read = world.read(0, blocks(10, 1));
        world.succeed(read)?;
        let ticket = world.submit(0, RequestOp::Drain);
        world.succeed(ticket)?;
        world.expect_origin_equals_view(0)?;
        world.run_dry()?;
        world.stop()?;
    }
    Ok(())
}

/// Goal: what was read enters the cache though its neighbours are written while it waits for others.
/// Method: blocks of one region of the guard; a write in writeback takes what waits along, one of the block itself does not.
#[test]
fn what_waits_to_enter_is_void_by_its_own_blocks_alone() -> Result<(), Violation> {
    for (written, entered) in [(4, 4), (3, 0)] {
        let mut world = World::new(Setup::new(1));
        world.run_dry()?;
        let read = world.read(0, blocks(0, 4));
        world.succeed(read)?;
        let write = world.write(0, blocks(written, 1));
        world.succeed(write)?;
        world.run_dry()?;
        let counters = world.engine().expect("it runs").status().volumes[0].counters;
        assert_eq!((counters.fill_blocks, counters.fill_dropped_blocks), (entered, 4 - entered));
        world.verify()?;
    }
    Ok(())
}

/// Goal: a disk that ends no flush while it is given changes is imitated, and a client's flush waits for it.
/// Method: two writes under way at any time until the flush is answered, on such a disk and on another one.
#[test]
fn a_flush_goes_on_while_its_device_is_given_changes() -> Result<(), Violation> {
    for origins in [false, true] {
        let mut setup = Setup::new(1).with_modes(&[WriteMode::Passthrough]);
        setup.held_flushes = HeldFlushes { origins, ..HeldFlushes::default() };
        // Slow, so that the flush's answer is among the newest, which a world keeps.
        setup.origin_latency =
            Latency { least_ns: 10 * Nanos::MILLISECOND, most_ns: 20 * Nanos::MILLISECOND };
        let mut world = World::new(setup);
        world.run_dry()?;
        let write = world.write(0, blocks(2, 1));
        world.succeed(write)?;
        let flush = world.flush(0);
        let began_ns = world.now_ns();
        let mut under_way = [0, 1].map(|block| world.write(0, blocks(block, 1)));
        while world.answer(flush).is_none() {
            for (block, write) in (0..).zip(&mut under_way) {
                if world.answer(*write).is_some() {
                    *write = world.write(0, blocks(block, 1));
                }
            }
            world.step()?;
        }
        let took_ms = (world.now_ns() - began_ns) / Nanos::MILLISECOND;
        assert_eq!(took_ms >= 2000, origins, "the flush took {took_ms} ms");
        world.finish()?;
    }
    Ok(())
}

#[test]
fn a_write_that_is_held_back_can_land_in_a_crash_of_the_process() -> Result<(), Violation> {
    for lands in [false, true] {
        let mut world = World::new(Setup::new(2));
        world.hold(|io| io.is_cache(Kind::Write));
        let ticket = world.write(0, blocks(7, 2));
        world.until_pending(|io| io.is_cache(Kind::Write))?;
        assert!(world.answer(ticket).is_none());
        world.kill(|write| {
            assert!(write.target == Target::Cache && write.is_in_flight);
            lands
        });
        world.open()?;
        world.verify_cut()?;
        let read = world.read(0, blocks(7, 1));
        world.succeed(read)?;
        let found = world.answer(read).expect("it was answered").found[0];
        assert_eq!(matches!(found.source(), forebay_lab::content::Source::Write { .. }), lands);
    }
    Ok(())
}

/// What was read waits for more to enter the cache with; who writes meanwhile does not write all of it.
#[test]
fn a_write_takes_few_fills_along() -> Result<(), Violation> {
    let mut world = World::new(Setup::new(3).with_modes(&[WriteMode::Writeback]));
    world.run_dry()?;
    for step in 0..4 {
        let read = world.read(0, blocks(step * 32, 6));
        world.succeed(read)?;
    }
    world.hold(|io| io.is_cache(Kind::Write));
    let _later = world.write(0, blocks(500, 1));
    let batch = world.until_pending(|io| io.is_cache(Kind::Write))?;
    // Its own block with a header and a segment's head, and 32 KiB of fills at the most.
    assert!(batch.sectors <= (3 + 8) * 8, "{} sectors", batch.sectors);
    world.release();
    world.finish()
}

fn cached(world: &World, block: u64) -> bool {
    world.engine().is_some_and(|engine| engine.cached_blocks(VolumeIndex(0)).contains(&block))
}

/// Blocks that lie side by side share an entry of the index, and not their hits.
#[test]
fn what_was_hit_outlives_its_segment() -> Result<(), Violation> {
    let mut world = World::new(Setup::new(3).with_modes(&[WriteMode::Writeback, WriteMode::Writeback]));
    world.run_dry()?;
    for block in [160, 320] {
        let read = world.read(0, blocks(block, 16));
        world.succeed(read)?;
        world.run_dry()?;
        assert!(cached(&world, block + 7), "it was read");
    }
    let hit = world.read(0, blocks(167, 1));
    world.succeed(hit)?;
    let mut step = 0;
    while cached(&world, 327) || cached(&world, 168) {
        assert!(step < 1000, "the log does not go round");
        let write = world.write(1, blocks(step * 16 % 1472, 16));
        world.succeed(write)?;
        step += 1;
    }
    assert!(cached(&world, 167), "it alone was read a second time");
    world.finish()
}

/// Laps in which nothing is hit say nothing of what was, however much is read; laps of hits do.
/// Goal: who overwrites the same blocks for ever does not wait for a device that takes long to flush. Method: the flushes of the
/// cache are held when the ring has gone round; an eighth of it is free by then, and clients get that.
#[test]
fn segments_without_anything_are_free_before_they_are_needed() -> Result<(), Violation> {
    let mut setup = Setup::new(1).with_modes(&[WriteMode::Writeback]);
    (setup.segments, setup.segment_blocks) = (128, 32);
    setup.config = |config| (config.idle_ns, config.unflushed_blocks_max) = (u64::MAX, u64::MAX);
    let mut world = World::new(setup);
    let mut least = u64::MAX;
    for round in 0..8 {
        for block in 0..500 {
            let ticket = world.write(0, blocks(block % 10, 1));
            world.succeed(ticket)?;
        }
        world.hold(|io| io.is_cache(Kind::Flush));
        let mut written = 0;
        while written < 1000 {
            let ticket = world.write(0, blocks(written % 10, 1));
            world.pass(5 * Nanos::MILLISECOND)?;
            if world.answer(ticket).is_none() {
                break;
            }
            written += 1;
        }
        if round > 1 {
            least = least.min(written);
        }
        world.release();
        world.pass(100 * Nanos::MILLISECOND)?;
    }
    assert!(least > 128, "{least} writes are answered while a flush is under way");
    world.verify()
}

#[test]
fn what_was_hit_stays_until_something_else_is() -> Result<(), Violation> {
    let mut world = World::new(Setup::new(3).with_modes(&[WriteMode::Writeback, WriteMode::Writeback]));
    world.run_dry()?;
    for _ in 0..2 {
        let read = world.read(0, blocks(160, 1));
        world.succeed(read)?;
        world.run_dry()?;
    }
    let wraps = |world: &World| world.engine().map_or(0, |engine| engine.status().cache.wraps);
    let mut step = 0;
    while wraps(&world) < 6 {
        let write = world.write(1, blocks(step * 16 % 1472, 16));
        world.succeed(write)?;
        let read = world.read(0, blocks(400 + step % 64 * 16, 16));
        world.succeed(read)?;
        // What hits keep gives way to who waits for room.
        world.run_dry()?;
        step += 1;
    }
    assert!(cached(&world, 160), "nothing else was hit");
    while cached(&world, 160) {
        assert!(wraps(&world) < 12, "others were hit for six laps");
        let write = world.write(1, blocks(step * 16 % 1472, 16));
        world.succeed(write)?;
        let read = world.read(0, blocks(400, 16));
        world.succeed(read)?;
        world.run_dry()?;
        step += 1;
    }
    world.finish()
}

/// Nothing is to be written that would tell.
#[test]
fn a_drain_learns_that_the_cache_is_gone() -> Result<(), Violation> {
    let mut world = World::new(Setup::new(3));
    let ticket = world.write_fua(0, blocks(7, 2));
    world.succeed(ticket)?;
    world.cache().faults.gone = Some(Errno::TIMEDOUT);
    assert_eq!(world.ask(0, RequestOp::Drain)?, Err(Errno::TIMEDOUT));
    assert!(world.engine().is_some_and(|engine| engine.status().cache.latched));
    world.kill(|_| true);
    world.open()?;
    world.verify_cut()
}

/// A sector of the cache that cannot be read any more takes one block with it, and holds up no request.
#[test]
fn a_dirty_block_that_stays_unreadable_is_lost() -> Result<(), Violation> {
    let mut world = World::new(Setup::new(4));
    let ticket = world.write_fua(0, blocks(10, 8));
    world.succeed(ticket)?;
    let sector = world.copies_of(0, 13 * 8)[0];
    let fault = Fault::Error(Errno::IO);
    let planned = Planned { on: Kind::Read, sector: Some(sector), fault, times: u32::MAX };
    world.cache().faults.planned.push_back(planned);
    assert_eq!(world.ask(0, RequestOp::Drain)?, Err(Errno::IO), "something is lost");
    let lost_bytes = world.engine().map(|engine| engine.status().volumes[0].lost_bytes);
    assert_eq!(lost_bytes, Some(4096));
    let lost = world.read(0, blocks(13, 1));
    assert_eq!(world.wait(lost)?, Err(Errno::IO));
    world.verify()?;
    let ticket = world.give_up_lost(0);
    world.succeed(ticket)?;
    let ticket = world.submit(0, RequestOp::Drain);
    world.succeed(ticket)?;
    // What was given up stays so.
    world.cache().faults.heal();
    world.cut_power(|_| Fate::Lost);
    world.open()?;
    let found = world.read(0, blocks(13, 1));
    world.succeed(found)?;
    world.verify_cut()
}

/// Goal: what was flushed is told durably within the stated time though nothing else happens.
/// Method: all is home when the note is due, so that no other event comes.
#[test]
fn a_note_of_a_flush_is_flushed_in_a_silence() -> Result<(), Violation> {
    let mut world = World::new(Setup::new(6));
    world.run_dry()?;
    let write = world.write(0, blocks(10, 4));
    world.succeed(write)?;
    let flush = world.flush(0);
    world.succeed(flush)?;
    world.pass(2 * Nanos::SECOND)?;
    assert!(world.at_stake().is_empty(), "the note was written and flushed: {:?}", world.at_stake());
    Ok(())
}

/// A stop is of the whole cache: it does not matter that the volume it names is just taken off.
#[test]
fn a_stop_beside_a_detach_succeeds() -> Result<(), Violation> {
    let mut world = World::new(Setup::new(5));
    world.run_dry()?;
    let detach = world.submit(0, RequestOp::Detach);
    let stop = world.submit(0, RequestOp::Stop);
    world.succeed(detach)?;
    world.succeed(stop)?;
    world.stopped()
}

/// What was written around the cache cannot be made durable there: neither a detach nor a stop waits for that.
#[test]
fn a_detach_does_not_wait_for_an_origin_that_is_gone() -> Result<(), Violation> {
    for is_stopped in [false, true] {
        let mut world = World::new(Setup::new(7).with_modes(&[WriteMode::Writearound]));
        world.run_dry()?;
        let write = world.write(0, blocks(3, 1));
        world.succeed(write)?;
        world.origin(0).faults.gone = Some(Errno::NODEV);
        let detach = world.submit(0, RequestOp::Detach);
        if is_stopped {
            let stop = world.submit(0, RequestOp::Stop);
            world.succeed(stop)?;
        } else {
            world.pass(5 * Nanos::SECOND)?;
        }
        assert_eq!(world.answer(detach).map(|answer| answer.result), Some(Err(Errno::IO)));
        if !is_stopped {
            world.origin(0).faults.heal();
            let again = world.write(0, blocks(3, 1));
            world.succeed(again)?;
            // The origin is tried again once a second.
            world.pass(2 * Nanos::SECOND)?;
            let detach = world.submit(0, RequestOp::Detach);
            world.succeed(detach)?;
        }
    }
    Ok(())
}

/// Goal: a detach throws nothing away that was answered. Method: a write is on its way when it comes.
#[test]
fn a_detach_takes_no_write_along() -> Result<(), Violation> {
    let mut world = World::new(Setup::new(7));
    world.run_dry()?;
    world.hold(|io| io.is_cache(Kind::Write));
    let write = world.write(0, blocks(3, 1));
    world.until_pending(|io| io.is_cache(Kind::Write))?;
    let detach = world.submit(0, RequestOp::Detach);
    world.pass(Nanos::MILLISECOND)?;
    world.release();
    world.succeed(write)?;
    assert_eq!(world.wait(detach)?, Err(Errno::IO), "it is dirty by now");
    let again = world.write(0, blocks(4, 1));
    world.succeed(again)?;
    world.verify()
}

/// Goal: a read that fails behind a detach harms nobody. Method: blocks that were hit are being appended again when their volume is
/// taken off.
#[test]
fn blocks_that_are_appended_again_may_lose_their_volume() -> Result<(), Violation> {
    // What is written through is not read to go home.
    let volumes = vec![VolumeSetup { sectors: 8 * 16_384, mode: WriteMode::Writethrough }; 2];
    let composition = Composition::forebay().text();
    let mut world =
        World::new(Setup { volumes, composition, segments: 64, segment_blocks: 64, ..Setup::new(7) });
    world.run_dry()?;
    for _ in 0..6 {
        for block in 0..256 {
            let read = world.read(1, blocks(block, 1));
            world.succeed(read)?;
        }
        world.pass(Nanos::SECOND)?;
    }
    // Summaries lie at the ends of segments.
    let is_kept = |io: &IoView| {
        let is_end =
            |end: u64| end.saturating_sub(engine::format::SEGMENTS_OFFSET / 512).is_multiple_of(64 * 8);
        io.is_cache(Kind::Read) && !is_end(io.first + io.sectors)
    };
    let mut at = 0;
    world.cache().faults.fail_always(Kind::Read, Errno::IO);
    world.hold(is_kept);
    while world.pending(is_kept).is_empty() {
        assert!(at < 16_384, "the ring comes round");
        let write = world.write(0, blocks(at, 1));
        world.succeed(write)?;
        at += 1;
    }
    let detach = world.submit(1, RequestOp::Detach);
    world.succeed(detach)?;
    world.release();
    world.pass(Nanos::SECOND)
}

/// Goal: a volume is not gone while the origin answers a flush that nobody waits for any more.
/// Method: a growth asks for a flush beyond the one that a run home waits for, and goes on when that one is answered.
#[test]
fn a_detach_waits_for_a_flush_under_way() -> Result<(), Violation> {
    let is_flush = |io: &IoView| io.is_origin(0, Kind::Flush);
    let mut world = World::new(Setup::new(7));
    world.run_dry()?;
    let last = world.volume_sectors(0) / 8 - 1;
    let write = world.write(0, blocks(last, 1));
    world.succeed(write)?;
    world.hold(is_flush);
    let drain = world.submit(0, RequestOp::Drain);
    let first = world.until_pending(is_flush)?;
    let growth = world.grow(0, 80);
    world.pass(Nanos::MILLISECOND)?;
    world.release();
    world.hold(move |io| is_flush(io) && io.id != first.id);
    world.succeed(drain)?;
    world.succeed(growth)?;
    let detach = world.submit(0, RequestOp::Detach);
    world.pass(100 * Nanos::MILLISECOND)?;
    world.release();
    world.succeed(detach)?;
    world.run_dry()
}

/// Goal: nothing cached hides what is behind an end of a volume that grew twice.
/// Method: two growths are asked for at once; the block at the end of the first is read, and cached, when that is done.
#[test]
fn two_growths_at_once_hold_the_end_of_each() -> Result<(), Violation> {
    let is_superblock = |io: &IoView| io.is_cache(Kind::Write) && io.first < 2048;
    let mut world = World::new(Setup::new(7));
    world.run_dry()?;
    let end = world.volume_sectors(0);
    world.hold(is_superblock);
    let first = world.grow(0, 3);
    let second = world.grow(0, 80);
    world.until_pending(is_superblock)?;
    while world.answer(first).is_none() {
        let step = world.until_pending(is_superblock)?;
        world.complete(step.id)?;
    }
    for _ in 0..2 {
        let short = world.read(0, sectors(end, 3));
        world.succeed(short)?;
        world.pass(50 * Nanos::MILLISECOND)?;
    }
    world.release();
    world.succeed(second)?;
    let whole = world.read(0, sectors(end, 83));
    world.succeed(whole)?;
    world.run_dry()
}

/// Goal: volumes that are added at once are both there, and take what is written to them. Method: the superblock with the first one
/// is held back until the second one is entered.
#[test]
fn two_volumes_are_added_at_once() -> Result<(), Violation> {
    let is_superblock = |io: &IoView| io.is_cache(Kind::Write) && io.first < 2048;
    let mut world = World::new(Setup::new(8).with_modes(&[WriteMode::Writeback; 3]));
    world.run_dry()?;
    for volume in [1, 2] {
        let detach = world.submit(volume, RequestOp::Detach);
        world.succeed(detach)?;
    }
    world.hold(is_superblock);
    let first = world.add(1, WriteMode::Writeback);
    world.until_pending(is_superblock)?;
    let second = world.add(2, WriteMode::Writearound);
    world.release();
    for (volume, add) in [(1, first), (2, second)] {
        world.succeed(add)?;
        let write = world.write(volume, blocks(10, 1));
        world.succeed(write)?;
        let flush = world.flush(volume);
        world.succeed(flush)?;
    }
    world.cut_power(|_| Fate::Lost);
    world.open()?;
    world.verify_cut()?;
    world.run_dry()
}

/// Goal: many small zeroes hold up nobody, as long ones do. Method: the origin of a volume takes nothing, more ranges of it are
/// zeroed than the table of extents has room for, and then another volume is written to.
#[test]
fn small_zeroes_beyond_the_table_of_extents_hold_up_nobody() -> Result<(), Violation> {
    let mut setup = Setup::new(3).with_modes(&[WriteMode::Writeback, WriteMode::Writeback]);
    setup.config = |config| config.extents_max = 16;
    let mut world = World::new(setup);
    let is_of_first = |io: &IoView| io.target == Target::Origin(VolumeIndex(0)) && io.kind != Kind::Read;
    world.hold(is_of_first);
    for at in 0..40 {
        let zeroes = world.write_zeroes(0, blocks(at * 5, 3));
        world.succeed(zeroes)?;
    }
    let other = world.write(1, blocks(10, 1));
    world.succeed(other)?;
    for at in 0..9 {
        let _long = world.write_zeroes(0, blocks(300 + at * 20, 17));
        world.pass(Nanos::MILLISECOND)?;
    }
    let held_up = world.write(1, blocks(10, 1));
    world.pass(10 * Nanos::MILLISECOND)?;
    assert!(world.answer(held_up).is_none(), "half of the table is for those, and is full");
    world.kill(|_| true);
    world.open()?;
    world.verify()
}
