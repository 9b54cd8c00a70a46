//! Rule 19: a cache device that fails slowly is passed by, and no read gets anything else for it.

use crate::kinds::{ALL, BUT_MIRROR};
use crate::steps::*;
use engine::effect::Errno;
use forebay_lab::disk::faults::{Fault, Kind};
use forebay_lab::violation::Violation;
use forebay_lab::world::World;

crate::scenarios! {
    rule_19_reads_pass_a_slow_cache_by: SlowCacheKeepsReads, writeback, on ALL;
    rule_19_dirty_block_of_a_slow_cache: DirtyPassedBy, writeback, on BUT_MIRROR;
    rule_19_origin_fails_what_passed_by: PassedReadFails, writeback, on ALL;
}

/// Clean blocks.
const CLEAN: (u64, u64) = (10, 4);
/// Time between two reads.
const PAUSE_NS: u64 = 20 * MS;
/// What an origin of these worlds needs at the most, and what the engine may add.
const ORIGIN_NS: u64 = 2 * MS;

/// Reads clean blocks for some seconds; returns the longest time that one took.
fn longest(world: &mut World, seconds: u64) -> Result<u64, Violation> {
    let end_ns = world.now_ns() + seconds * 1000 * MS;
    let mut longest_ns = 0;
    while world.now_ns() < end_ns {
        let begin_ns = world.now_ns();
        read(world, 0, CLEAN.0, CLEAN.1)?;
        longest_ns = longest_ns.max(world.now_ns() - begin_ns);
        world.pass(PAUSE_NS)?;
    }
    Ok(longest_ns)
}

fn is_passed_by(world: &World) -> bool {
    world.engine().is_some_and(|engine| engine.status().cache.pace.passed_for_ns.is_some())
}

fn hits(world: &World) -> u64 {
    world.engine().map_or(0, |engine| engine.status().volumes[0].counters.hits)
}

/// The cache has clean blocks, and it is known how fast it is; then everything takes it 20 ms more, a hundred times as
/// long as usual.
fn until_passed_by(world: &mut World) -> Run {
    fill(world, 0, CLEAN.0, CLEAN.1)?;
    longest(world, 10)?;
    let before = hits(world);
    longest(world, 1)?;
    expect(hits(world) > before, "the blocks are cached")?;
    for kind in [Kind::Read, Kind::Write, Kind::Flush] {
        world.cache().faults.plan(kind, Fault::Slow { by_ns: 20 * MS }, u32::MAX);
    }
    // A read and a pause take 40 ms, so three looks of five have two.
    longest(world, 5)?;
    expect(is_passed_by(world), "the cache is slow, and that is seen")
}

fn rule_19_reads_pass_a_slow_cache_by(world: &mut World) -> Run {
    begin(world)?;
    until_passed_by(world)?;
    let longest_ns = longest(world, 60)?;
    expect(longest_ns <= ORIGIN_NS, &format!("a read took {} us beside a slow cache", longest_ns / 1000))?;
    let filled = world.engine().map(|engine| engine.status().volumes[0].counters.fill_blocks);
    read(world, 0, 300, 4)?;
    longest(world, 2)?;
    let filled_since = world.engine().map(|engine| engine.status().volumes[0].counters.fill_blocks);
    expect(filled == filled_since, "nothing enters a slow cache")?;
    world.cache().faults.heal();
    longest(world, 5)?;
    expect(!is_passed_by(world), "the cache is well again")?;
    let before = hits(world);
    longest(world, 1)?;
    expect(hits(world) > before, "and is used")?;
    world.verify()
}

fn rule_19_dirty_block_of_a_slow_cache(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    write_fua(world, 0, 40, 2)?;
    until_passed_by(world)?;
    // Clean, dirty and absent blocks in one read.
    fill(world, 0, 39, 1)?;
    read(world, 0, 38, 6)?;
    write_fua(world, 0, CLEAN.0 + 1, 1)?;
    read(world, 0, CLEAN.0, CLEAN.1)?;
    world.release();
    drain(world, 0)?;
    read(world, 0, 38, 6)?;
    read(world, 0, CLEAN.0, CLEAN.1)?;
    world.cache().faults.heal();
    longest(world, 5)?;
    world.verify()
}

fn rule_19_origin_fails_what_passed_by(world: &mut World) -> Run {
    begin(world)?;
    until_passed_by(world)?;
    world.origin(0).faults.fail_next(Kind::Read, Errno::IO);
    read(world, 0, CLEAN.0, CLEAN.1)?;
    // Such an origin is left alone for a while.
    world.origin(0).faults.fail_always(Kind::Read, Errno::IO);
    longest(world, 5)?;
    world.origin(0).faults.heal();
    longest(world, 15)?;
    let longest_ns = longest(world, 10)?;
    expect(longest_ns <= ORIGIN_NS, &format!("a read took {} us beside a slow cache", longest_ns / 1000))
}
