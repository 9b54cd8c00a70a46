//! Mirrored caches: runs of the swarm in which halves fail, are lost, rot and come back.

use engine::effect::{Errno, RequestOp, Target, WriteMode};
use engine::format::{PAIR_PAGE_OFFSETS, SEGMENTS_OFFSET, SUPERBLOCK_OFFSETS};
use engine::pair::{Half, JoinError, Standing};
use engine::units::Nanos;
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::swarm::{Options, Totals, run};
use forebay_lab::violation::Violation;
use forebay_lab::world::halves::Failing;
use forebay_lab::world::{IoView, Refusal, Setup, VolumeSetup, World, blocks, sectors};

/// Seeds, all of them mirrored.
const SEEDS: u64 = 300;

#[test]
fn no_seed_loses_anything_with_one_of_two_devices() {
    let (mut totals, mut failures) = (Totals::default(), Vec::new());
    for seed in 0..SEEDS {
        let outcome = run(&Options::draw(seed).with_halves());
        totals.add(&outcome.counts, outcome.failure.is_some());
        failures.extend(outcome.failure.map(|failure| failure.to_string()));
    }
    assert!(failures.is_empty(), "{} seeds failed:\n{}", failures.len(), failures.join("\n"));
    assert!(totals.counts.cuts > SEEDS, "each seed has some cuts: {totals:?}");
}

/// A cache whose second half went out, and on which more was written then.
fn one_half_out() -> Result<World, Violation> {
    let mut world = World::new(Setup { is_mirrored: true, ..Setup::new(1) });
    world.run_dry()?;
    for (block, failing) in [(10, None), (20, Some(Failing::Once(Kind::Write))), (30, None)] {
        failing.into_iter().for_each(|failing| world.fail_half(Half::Second, failing));
        let written = world.write_fua(0, blocks(block, 4));
        world.succeed(written)?;
    }
    assert_eq!(world.standings(), [Standing::In, Standing::Out]);
    Ok(world)
}

/// Goal: where strict order begins after a half was lost, no write goes home past those before it. Method: the half fails while
/// the order waits for a write; behind it another one is answered although the origin takes nothing.
#[test]
fn an_order_that_begins_on_one_half_is_kept() -> Result<(), Violation> {
    let mut world = World::new(Setup { is_mirrored: true, ..Setup::new(1) });
    world.run_dry()?;
    world.fail_half(Half::Second, Failing::Once(Kind::Write));
    let _loses_a_half = world.write(0, blocks(10, 4));
    let begins = world.submit(0, RequestOp::SetOrder(true));
    world.succeed(begins)?;
    assert_eq!(world.standings(), [Standing::In, Standing::Out]);
    world.begin_order();
    world.hold(|io| io.is_origin(0, Kind::Write));
    let next = world.write(0, blocks(10, 4));
    world.succeed(next)?;
    world.release();
    world.run_dry()?;
    world.expect_order()
}

#[test]
fn an_old_half_alone_is_refused() {
    let mut world = one_half_out().expect("nothing is wrong");
    world.stop().expect("it stops");
    world.half(Half::First).faults.gone = Some(Errno::NODEV);
    let refused = world.try_open().expect("nothing is lost");
    assert!(matches!(refused, Err(Refusal::RolledBack)), "{refused:?}");
    world.half(Half::First).faults.heal();
    world.open().expect("the half that has everything is back");
    world.verify().expect("everything is there");
}

/// The second half went out and lacks what was written since. Both copies of its page rot, and the first half is lost.
#[test]
fn a_half_without_its_page_is_refused_alone() -> Result<(), Violation> {
    let mut world = one_half_out()?;
    world.kill(|_| true);
    world.half(Half::Second).flush_all();
    for offset in PAIR_PAGE_OFFSETS {
        assert!(world.half(Half::Second).rot(offset / 512, 300), "a page is there");
    }
    world.half(Half::First).faults.gone = Some(Errno::NODEV);
    let refused = world.try_open()?;
    assert!(matches!(refused, Err(Refusal::Pair(JoinError::PageLost))), "{refused:?}");
    world.half(Half::First).faults.heal();
    world.open()?;
    world.verify()
}

#[test]
fn a_half_comes_back_when_the_first_volume_is_off() -> Result<(), Violation> {
    let volumes = vec![VolumeSetup { sectors: 800 * 8, mode: WriteMode::Writeback }; 2];
    let mut world = World::new(Setup { is_mirrored: true, volumes, ..Setup::new(1) });
    world.run_dry()?;
    let detached = world.submit(0, RequestOp::Detach);
    world.succeed(detached)?;
    world.fail_half(Half::Second, Failing::Once(Kind::Write));
    let written = world.write_fua(1, blocks(10, 4));
    world.succeed(written)?;
    assert_eq!(world.standings(), [Standing::In, Standing::Out]);
    let rejoined = world.rejoin();
    world.succeed(rejoined)?;
    assert_eq!(world.standings(), [Standing::In; 2]);
    let again = world.rejoin();
    assert_eq!(world.wait(again)?, Err(Errno::INVAL), "there is nothing to bring up to date");
    Ok(())
}

#[test]
fn a_half_that_comes_back_counts_when_it_has_everything() {
    let mut world = one_half_out().expect("nothing is wrong");
    world.kill(|_| true);
    world.open().expect("one half is enough");
    assert_eq!(world.standings(), [Standing::In, Standing::Out], "an old half does not count");
    let rejoined = world.rejoin();
    world.succeed(rejoined).expect("it is copied");
    assert_eq!(world.standings(), [Standing::In; 2]);
    world.kill(|_| true);
    world.blank_half(Half::First);
    world.open().expect("the other half is enough");
    assert_eq!(world.standings(), [Standing::Out, Standing::In]);
    world.verify().expect("everything is there");
}

/// Lets the copy of the second half come to its end, but for the pages that say so: they are being written.
fn until_pages_tell_of_the_copy(world: &mut World) {
    let is_page = |view: &IoView| {
        let is_one = PAIR_PAGE_OFFSETS.iter().any(|at| view.touches(sectors(at / 512, 1)));
        view.target == Target::Mirror && view.kind == Kind::Write && is_one
    };
    let is_copied = |world: &World| {
        let pair = world.engine().and_then(|engine| engine.status().cache.pair).expect("it is mirrored");
        let half = pair.halves[Half::Second.at()];
        half.to_copy_bytes > 0 && half.copied_bytes == half.to_copy_bytes
    };
    while !is_copied(world) || world.pending(is_page).is_empty() {
        assert!(world.step().expect("nothing is wrong"), "the copy comes to its end");
    }
}

#[test]
fn a_half_is_not_told_to_count_before_that_is_durable() {
    let mut world = one_half_out().expect("nothing is wrong");
    world.rejoin();
    until_pages_tell_of_the_copy(&mut world);
    assert_eq!(world.standings(), [Standing::In, Standing::Behind]);
    // The first half's page gets through, the second one's does not.
    world.cut_power(|at_stake| match at_stake.target {
        Target::Mirror => Fate::Lost,
        _ => Fate::Kept,
    });
    world.half(Half::First).faults.gone = Some(Errno::NODEV);
    let refused = world.try_open().expect("nothing is lost");
    assert!(matches!(refused, Err(Refusal::Pair(JoinError::Behind))), "{refused:?}");
}

#[test]
fn a_half_that_fails_in_the_last_moment_of_its_copy_does_not_count() {
    let mut world = one_half_out().expect("nothing is wrong");
    let rejoined = world.rejoin();
    until_pages_tell_of_the_copy(&mut world);
    world.fail_half(Half::Second, Failing::Once(Kind::Flush));
    let answer = world.wait(rejoined).expect("nothing is lost");
    assert_eq!((answer, world.standings()), (Err(Errno::IO), [Standing::In, Standing::Out]));
    let rejoined = world.rejoin();
    world.succeed(rejoined).expect("it is copied again");
    world.verify().expect("everything is there");
}

/// Reads all of a volume, and tells how many blocks were cached.
fn hits_of_all(world: &mut World) -> u64 {
    let hits = |world: &World| world.engine().expect("it runs").status().volumes[0].counters.hit_blocks;
    let before = hits(world);
    for first in (0..BLOCKS).step_by(16) {
        let read = world.read(0, blocks(first, 16));
        world.succeed(read).expect("nothing is wrong");
    }
    world.run_dry().expect("nothing is wrong");
    hits(world) - before
}

/// Blocks of a volume that is read: more than a half of its cache has, but not more than both.
const BLOCKS: u64 = 5120;
/// Blocks of each half of its cache.
const HALF_BLOCKS: u64 = 64 * 64;

/// A mirrored cache that is full of clean data.
fn full_of_clean_data() -> World {
    let volumes = vec![VolumeSetup { sectors: BLOCKS * 8, mode: WriteMode::Writeback }];
    let setup = Setup { is_mirrored: true, segment_blocks: 64, volumes, ..Setup::new(1) };
    let mut world = World::new(setup);
    world.run_dry().expect("nothing is wrong");
    hits_of_all(&mut world);
    world
}

#[test]
fn clean_data_is_kept_once() {
    let mut world = full_of_clean_data();
    let hits = hits_of_all(&mut world);
    assert!(BLOCKS > HALF_BLOCKS && hits == BLOCKS, "{hits} hits, and each half has {HALF_BLOCKS} blocks");
    world.kill(|_| true);
    world.open().expect("nothing is wrong");
    assert_eq!(hits_of_all(&mut world), hits, "a start finds all of it");
    world.cut_power(|_| Fate::Lost);
    world.open().expect("nothing is wrong");
    assert_eq!(hits_of_all(&mut world), hits, "it was durable by then");
}

#[test]
fn a_half_takes_along_what_it_alone_had_and_never_brings_it_back() {
    let mut world = full_of_clean_data();
    let hits = hits_of_all(&mut world);
    world.fail_half(Half::Second, Failing::Gone);
    let written = world.write_fua(0, blocks(0, 16));
    world.succeed(written).expect("the other half has it");
    let left = hits_of_all(&mut world);
    assert!((1..hits * 2 / 3).contains(&left), "{left} of {hits} are left");
    // None is told as rotten.
    let corrupt =
        |world: &World| world.engine().expect("it runs").status().volumes[0].counters.corrupt_clean_blocks;
    assert_eq!(corrupt(&world), 0);
    let rejoined = world.rejoin();
    world.succeed(rejoined).expect("it is copied");
    for _crash in 0..2 {
        world.kill(|_| true);
        world.open().expect("both halves are there");
        let since = hits_of_all(&mut world);
        assert_eq!(corrupt(&world), 0, "nobody looks for what was overwritten");
        assert!(since < BLOCKS, "{since} hits: one half has less than all");
    }
    while hits_of_all(&mut world) < BLOCKS {}
    world.verify().expect("everything is there");
}

#[test]
fn what_a_crash_keeps_from_one_half_is_asked_of_the_origin() {
    let mut world = full_of_clean_data();
    // Blocks that were read before go, others come, and no flush follows.
    world.run_dry().expect("nothing is wrong");
    let dropped = world.discard(0, blocks(0, 64));
    world.succeed(dropped).expect("nothing is wrong");
    for first in (0..64).step_by(16) {
        let read = world.read(0, blocks(first, 16));
        world.succeed(read).expect("nothing is wrong");
    }
    world.pass(50 * Nanos::MILLISECOND).expect("nothing is wrong");
    world.cut_power(|write| if write.target == Target::Mirror { Fate::Lost } else { Fate::Kept });
    world.open().expect("nothing is wrong");
    let hits = hits_of_all(&mut world);
    assert!(hits < BLOCKS, "{hits} hits although one half has not got what it was to have alone");
    let counters = world.engine().expect("it runs").status().volumes[0].counters;
    assert_eq!(counters.corrupt_clean_blocks, 0, "it is missing, and not rotten");
    world.kill(|_| true);
    world.open().expect("nothing is wrong");
    world.verify().expect("nothing of it comes back");
}

#[test]
fn reads_do_without_a_half_that_hangs() {
    let mut world = full_of_clean_data();
    world.fail_half(Half::Second, Failing::Hangs);
    let first_reads: Vec<_> =
        (0..BLOCKS).step_by(512).map(|first| world.read(0, blocks(first, 16))).collect();
    world.pass(1100 * Nanos::MILLISECOND).expect("nothing is wrong");
    // Long before the device is given up.
    let began_ns = world.now_ns();
    for first in (16..BLOCKS).step_by(512) {
        let read = world.read(0, blocks(first, 16));
        world.succeed(read).expect("nothing is wrong");
    }
    let took_ns = world.now_ns() - began_ns;
    assert!(took_ns < Nanos::SECOND, "{took_ns} ns");
    assert_eq!(world.standings(), [Standing::In; 2], "it may come back");
    for read in first_reads {
        world.succeed(read).expect("they are answered when the device is given up");
    }
    assert_eq!(world.standings(), [Standing::In, Standing::Out]);
}

/// Its clients wait for that half, and neither for ever nor in a loop.
#[test]
fn what_a_half_that_hangs_has_alone_is_read_there_if_the_origin_fails() {
    let mut world = full_of_clean_data();
    world.fail_half(Half::Second, Failing::Hangs);
    let first_reads: Vec<_> =
        (0..BLOCKS).step_by(512).map(|first| world.read(0, blocks(first, 16))).collect();
    world.pass(1100 * Nanos::MILLISECOND).expect("nothing is wrong");
    world.origin(0).faults.gone = Some(Errno::NODEV);
    let reads: Vec<_> = (16..BLOCKS).step_by(512).map(|first| world.read(0, blocks(first, 16))).collect();
    world.pass(100 * Nanos::MILLISECOND).expect("nothing is wrong");
    let answered = reads.iter().filter(|read| world.answer(**read).is_some()).count();
    assert!(answered < reads.len(), "what the other half has alone cannot be answered yet");
    for read in reads.into_iter().chain(first_reads) {
        world.wait(read).expect("it is answered when the device is given up").ok();
    }
    assert_eq!(world.standings(), [Standing::In, Standing::Out]);
}

/// A cache with some full segments of dirty data, the number of which is returned.
fn with_full_segments() -> (World, u32) {
    let mut world = World::new(Setup { is_mirrored: true, is_checked_on_open: false, ..Setup::new(1) });
    world.run_dry().expect("nothing is wrong");
    for first in (0..256).step_by(16) {
        let written = world.write_fua(0, blocks(first, 16));
        world.succeed(written).expect("nothing is wrong");
    }
    (world, 256 / 32)
}

/// Scrubs the ends of segments, and tells which could not be mended.
fn scrub_segments(world: &mut World, segments: u32) -> Vec<u32> {
    let is_bad = |segment: &u32| {
        let scrubbed = world.scrub_segment(*segment);
        world.wait(scrubbed).expect("it is answered").is_err()
    };
    (0..segments).filter(is_bad).collect()
}

fn mended_blocks(world: &World) -> [u64; 2] {
    let pair = world.engine().and_then(|engine| engine.status().cache.pair).expect("it is mirrored");
    pair.halves.map(|half| half.mended_blocks)
}

#[test]
fn a_scrub_mends_the_ends_of_segments() {
    for half in Half::BOTH {
        let (mut world, segments) = with_full_segments();
        assert_eq!(scrub_segments(&mut world, segments), []);
        assert_eq!(mended_blocks(&world), [0; 2], "nothing is damaged");
        let struck: Vec<(u32, bool)> = (0..segments)
            .flat_map(|segment| [(segment, true), (segment, false)])
            .filter(|(segment, is_head)| world.rot_end(half, *segment, *is_head))
            .collect();
        assert!(struck.len() > 8, "{struck:?}");
        assert_eq!(scrub_segments(&mut world, segments), []);
        let mended = mended_blocks(&world);
        assert!(mended[half.at()] >= struck.len() as u64 && mended[half.other().at()] == 0, "{mended:?}");
        assert_eq!(scrub_segments(&mut world, segments), []);
        assert_eq!(mended_blocks(&world), mended, "nothing is mended twice");
        world.kill(|_| true);
        world.half(half.other()).faults.gone = Some(Errno::NODEV);
        world.open().expect("what was mended leads to everything");
        world.verify().expect("everything is there");
    }
}

#[test]
fn an_end_that_both_halves_have_wrong_is_told() {
    let (mut world, segments) = with_full_segments();
    assert!(Half::BOTH.into_iter().all(|half| world.rot_end(half, 1, false)));
    assert!(world.rot_end(Half::First, 2, true));
    assert_eq!(scrub_segments(&mut world, segments), [1]);
    assert_eq!(mended_blocks(&world), [1, 0]);
    world.kill(|_| true);
    world.open().expect("headers say what a summary says");
    world.verify().expect("everything is there");
}

#[test]
fn a_half_that_fails_to_take_what_it_has_wrong_does_not_count() {
    let (mut world, _) = with_full_segments();
    assert!(world.rot_end(Half::Second, 1, true));
    world.fail_half(Half::Second, Failing::Once(Kind::Write));
    assert_eq!(scrub_segments(&mut world, 3), [1]);
    assert_eq!(world.standings(), [Standing::In, Standing::Out]);
    world.verify().expect("everything is there");
}

/// What a power cut left on one half alone is on the other one before that half stops to count, because it fails to take the
/// head of a segment that it has wrong.
#[test]
fn a_start_takes_along_what_a_failing_half_alone_has() {
    for half in Half::BOTH {
        let (mut world, _) = with_full_segments();
        let written = world.write(0, blocks(300, 2));
        world.succeed(written).expect("nothing is wrong");
        world.cut_power(|write| if write.target == half.target() { Fate::Kept } else { Fate::Lost });
        assert!(world.rot_end(half, 1, true));
        world.fail_half(half, Failing::Once(Kind::Write));
        world.open().expect("the other half is well");
        assert_eq!(world.standings()[half.at()], Standing::Out);
        world.verify_cut().expect("everything that was flushed is there, and nothing is half there");
    }
}

#[test]
fn a_scrub_of_one_device_tells_of_damage() {
    let mut world = World::new(Setup { is_checked_on_open: false, ..Setup::new(1) });
    world.run_dry().expect("nothing is wrong");
    for first in (0..128).step_by(16) {
        let written = world.write_fua(0, blocks(first, 16));
        world.succeed(written).expect("nothing is wrong");
    }
    assert_eq!(scrub_segments(&mut world, 64), []);
    assert!(world.rot_end(Half::First, 1, false));
    assert_eq!(scrub_segments(&mut world, 64), [1]);
    world.verify().expect("nothing is lost: headers say what a summary says");
}

/// The first write of a segment may be on its way when the segment is full and its summary is there.
#[test]
fn an_end_that_is_being_written_is_not_damaged() {
    let mut world = World::new(Setup::new(1));
    world.run_dry().expect("nothing is wrong");
    let segment_sectors = u64::from(world.setup().segment_blocks) * 8;
    world.hold(move |io: &IoView| {
        let in_ring = io.first.checked_sub(SEGMENTS_OFFSET / 512);
        io.is_cache(Kind::Write) && in_ring.is_some_and(|at| at.is_multiple_of(segment_sectors))
    });
    for first in (0..128).step_by(16) {
        world.write(0, blocks(first, 16));
    }
    world.pass(Nanos::SECOND).expect("nothing is wrong");
    assert_eq!(scrub_segments(&mut world, 8), []);
    world.release();
    world.finish().expect("all is answered");
    assert_eq!(scrub_segments(&mut world, 8), []);
}

#[test]
fn each_half_may_rot_somewhere_else() {
    for (is_head, seed) in [(true, 0), (false, 0), (true, 1), (false, 1)] {
        let (mut world, segments) = with_full_segments();
        world.kill(|_| true);
        for segment in 1..segments - 1 {
            let half = if (segment + seed).is_multiple_of(2) { Half::First } else { Half::Second };
            assert!(world.rot_end(half, segment, is_head), "segment {segment} is full");
        }
        world.open().expect("what one half has wrong the other one has");
        world.verify().expect("everything is there");
        for half in Half::BOTH {
            scrub_segments(&mut world, segments);
            world.kill(|_| true);
            world.half(half).faults.gone = Some(Errno::NODEV);
            world.open().expect("either half is enough");
            world.verify().expect("everything is there");
            world.half(half).faults.heal();
            let rejoined = world.rejoin();
            world.succeed(rejoined).expect("it is copied");
        }
    }
}

/// Both pages of a half say soon that the other one is out, whether it fails or is not there at a start. If one rots, nothing
/// counts that the other half had alone and that was written around the cache since.
#[test]
fn both_pages_say_who_is_out() -> Result<(), Violation> {
    for is_away in [false, true] {
        let modes = [WriteMode::Writearound, WriteMode::Writeback];
        let volumes = modes.map(|mode| VolumeSetup { sectors: 800 * 8, mode }).to_vec();
        let mut world = World::new(Setup { is_mirrored: true, volumes, ..Setup::new(1) });
        world.run_dry()?;
        let old = world.write(0, blocks(0, 16));
        world.succeed(old)?;
        let fill = world.read(0, blocks(0, 16));
        world.succeed(fill)?;
        world.pass(20 * Nanos::MILLISECOND)?;
        let written = world.write_fua(1, blocks(9, 1));
        world.succeed(written)?;
        if is_away {
            world.kill(|_| true);
            world.take_half_away(Half::Second);
            world.open()?;
        } else {
            world.fail_half(Half::Second, Failing::Once(Kind::Write));
            let written = world.write_fua(1, blocks(9, 1));
            world.succeed(written)?;
        }
        let new = world.write(0, blocks(0, 16));
        world.succeed(new)?;
        world.kill(|_| true);
        world.half(Half::Second).faults.heal();
        assert!(world.rot_newest_page(Half::First), "it has a page");
        assert_eq!(world.standings(), [Standing::In, Standing::Out], "not there: {is_away}");
        world.open()?;
        world.verify()?;
    }
    Ok(())
}

fn writes_at(view: &IoView, offsets: &[u64]) -> bool {
    view.kind == Kind::Write && offsets.iter().any(|at| view.first == at / 512)
}

/// A power cut leaves the newest page on the second half alone, and the one before rots on the first half, which is no older copy
/// for that: what the second half lost, it has.
#[test]
fn a_half_whose_page_rots_is_no_older_copy() -> Result<(), Violation> {
    let mut world = World::new(Setup { is_mirrored: true, ..Setup::new(1) });
    world.run_dry()?;
    let written = world.write_fua(0, blocks(10, 16));
    world.succeed(written)?;
    world.pass(50 * Nanos::MILLISECOND)?;
    world.hold(|io| io.target == Target::Cache && writes_at(io, &PAIR_PAGE_OFFSETS));
    let mut block = 32;
    while world.pending(|io| writes_at(io, &PAIR_PAGE_OFFSETS)).is_empty() {
        world.write(0, blocks(block, 16));
        block += 16;
        world.pass(5 * Nanos::MILLISECOND)?;
    }
    world.pass(5 * Nanos::MILLISECOND)?;
    world.cut_power(|write| if write.target == Target::Cache { Fate::Lost } else { Fate::Kept });
    assert!(world.rot_newest_page(Half::First), "it has two");
    for draw in 0..64 {
        world.rot_half(Half::Second, true, draw * 7);
    }
    assert_eq!(world.standings(), [Standing::In; 2]);
    world.open()?;
    world.verify()
}

/// A crash leaves one copy of the newest superblock on each half. That of the first half rots.
#[test]
fn the_newest_superblock_of_either_half_counts() -> Result<(), Violation> {
    let volumes = vec![VolumeSetup { sectors: 800 * 8, mode: WriteMode::Writeback }; 2];
    let mut world = World::new(Setup { is_mirrored: true, volumes, ..Setup::new(1) });
    world.run_dry()?;
    let [first_copy, second_copy] = SUPERBLOCK_OFFSETS.map(|offset| offset / 512);
    world.submit(0, RequestOp::Detach);
    let is_first = |io: &IoView| io.kind == Kind::Write && io.first == first_copy;
    world.until_pending(is_first)?;
    world.hold(move |io| io.kind == Kind::Write && io.first == second_copy);
    world.until_pending(move |io| io.kind == Kind::Write && io.first == second_copy)?;
    world.kill(|_| false);
    let newest = world.update_of_pair();
    assert!(world.half(Half::First).rot(first_copy, 300), "it is durable");
    assert_eq!(world.update_of_pair(), newest);
    world.open()?;
    world.verify()
}
