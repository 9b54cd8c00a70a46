//! Hazard 1 and rule 2's second half: what enters the cache as clean.

use crate::kinds::{ALL, Kind as Records, RINGS};
use crate::steps::*;
use engine::composition::Composition;
use engine::effect::WriteMode;
use engine::units::{BLOCK_BYTES, SECTORS_PER_BLOCK};
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::world::{IoView, Setup, VolumeSetup, World};

crate::scenarios! {
    hazard_01_fill_that_waits_is_read_while_it_holds: FillAfterChange, writearound, on GATHERING;
    hazard_01_fill_races_with_write_that_came_and_went: FillAfterChange, writearound, on ALL;
    hazard_01_write_overtakes_a_fill_that_gathers: FillAfterChange, writearound;
    hazard_01_neighbour_changes_in_memory: FillAfterChange, beside;
    hazard_01_neighbour_changes_before_it_enters: FillAfterChange, beside_with_room;
    hazard_01_read_ahead_changes_in_memory: StaleReadAhead, beside_written;
    hazard_01_warmed_while_it_is_written: FillAfterChange, writearound, on RINGS;
    hazard_01_fill_while_the_origin_is_written: FillDuringChange, writearound, on ALL;
    hazard_01_fill_published_behind_a_bypass: FillBehindBypass, writearound, on HELD_BACK;
    rule_11_warmed_beside_a_growth: GrowBeforeDurable, writearound, on KEPT_SOON;
    rule_02_fill_of_what_the_origin_may_lose: FillOverUnflushedOrigin, writearound, on RINGS;
    rule_02_fill_of_what_a_life_before_wrote: FillBeforeFirstFlush, writearound, on RINGS;
    rule_02_read_ahead_of_what_a_life_before_wrote: FillBeforeFirstFlush, beside;
}

/// Reads of the origin bring what lies beside, and keep it in memory.
fn beside() -> Setup {
    let mut composition = Composition::plain_log();
    composition.set("fetch", "neighbourhood").expect("a choice of that axis");
    Setup { composition: composition.text(), ..writearound_alone() }
}

/// The same, with room for all of the volume.
fn beside_with_room() -> Setup {
    let volumes = vec![VolumeSetup { sectors: 64 * 64 * 8, mode: WriteMode::Writearound }];
    Setup { segments: 512, volumes, ..beside() }
}

/// The same, where writes enter the cache.
fn beside_written() -> Setup {
    Setup { volumes: writeback_alone().volumes, ..beside() }
}

/// Where what was warmed is in the log within a moment.
const KEPT_SOON: &[Records] = &[Records::Inline, Records::Journal, Records::Mirror];

/// Where fills wait for each other.
const GATHERING: &[Records] = &[Records::Inline, Records::Frames];

/// A write waits until a copy is in the index; with frames the copy is forgotten instead.
const HELD_BACK: &[Records] = &[
    Records::Inline,
    Records::SyncSector,
    Records::Commit,
    Records::BitTree,
    Records::Journal,
    Records::Mirror,
];

fn hazard_01_fill_races_with_write_that_came_and_went(world: &mut World) -> Run {
    begin(world)?;
    make_known(world, 0, 10, 1)?;
    world.hold(|io| io.is_origin(0, Kind::Read));
    let early = world.read(0, blocks(10, 1));
    let fetch = world.until_pending(|io| io.is_origin(0, Kind::Read))?;
    world.land_op(fetch.id);
    write(world, 0, 10, 1)?;
    flush(world, 0)?;
    world.release();
    world.succeed(early)?;
    world.pass(50 * MS)?;
    read(world, 0, 10, 1)
}

fn hazard_01_fill_that_waits_is_read_while_it_holds(world: &mut World) -> Run {
    begin(world)?;
    read(world, 0, 10, 1)?;
    write(world, 0, 10, 1)?;
    read(world, 0, 10, 1)
}

fn hazard_01_warmed_while_it_is_written(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Read));
    let warm = world.warm(0, blocks(10, 1));
    let fetch = world.until_pending(|io| io.is_origin(0, Kind::Read))?;
    world.land_op(fetch.id);
    write(world, 0, 10, 1)?;
    flush(world, 0)?;
    world.release();
    world.succeed(warm)?;
    world.pass(50 * MS)?;
    read(world, 0, 10, 1)
}

fn rule_11_warmed_beside_a_growth(world: &mut World) -> Run {
    let is_superblock = |io: &IoView| io.is_cache(Kind::Write) && io.first < SEGMENTS_SECTOR;
    begin(world)?;
    let end = world.volume_sectors(0) / SECTORS_PER_BLOCK;
    // The growth holds what lies beside the old end.
    let behind = blocks(end + 20, 4);
    world.hold(is_superblock);
    let _never_answered = world.grow(0, 320);
    world.until_pending(is_superblock)?;
    // Who warms looks how large the volume is.
    let status = world.engine().expect("an engine runs").status();
    if status.volumes[0].size_bytes > end * BLOCK_BYTES {
        let warm = world.warm(0, behind);
        world.succeed(warm)?;
    }
    world.pass(50 * MS)?;
    flush(world, 0)?;
    world.cut_power(|_| Fate::Lost);
    assert!(world.begin_changes(), "nothing is broken");
    world.write_behind(0, behind);
    let refusal = world.start_changed()?;
    assert!(refusal.is_none(), "nothing of the volume was changed");
    let grown = world.grow(0, 80);
    world.succeed(grown)?;
    world.cut_power(|_| Fate::Lost);
    world.open()?;
    read(world, 0, end + 20, 4)
}

fn hazard_01_neighbour_changes_in_memory(world: &mut World) -> Run {
    begin(world)?;
    read(world, 0, 10, 1)?;
    write(world, 0, 12, 1)?;
    read(world, 0, 12, 1)
}

fn hazard_01_neighbour_changes_before_it_enters(world: &mut World) -> Run {
    begin(world)?;
    let region = |number: u64| number * 64;
    for at in 0..10 * 32 {
        // Each region is missed again and again: neighbours are worth their room.
        read(world, 0, region(at * 7 % 32) + at / 32 * 6, 1)?;
    }
    // Of two in a row one enters at the least.
    for number in [40, 41] {
        read(world, 0, region(number) + 10, 1)?;
        write(world, 0, region(number) + 12, 1)?;
    }
    flush(world, 0)?;
    // Memory gives up what was read before the writes.
    for number in 42..50 {
        read(world, 0, region(number) + 10, 1)?;
    }
    world.pass(50 * MS)?;
    let status = world.engine().expect("an engine runs").status();
    assert!(status.volumes[0].counters.warm_up_blocks > 1000, "neighbours enter");
    read(world, 0, region(40) + 12, 1)?;
    read(world, 0, region(41) + 12, 1)
}

fn hazard_01_read_ahead_changes_in_memory(world: &mut World) -> Run {
    begin(world)?;
    for _ in 0..2 {
        for at in 0..12 {
            read(world, 0, at * 8, 8)?;
        }
        world.pass(300 * MS)?;
    }
    // The stream stopped short of what is cached.
    for at in 0..8 {
        read(world, 0, at * 8, 8)?;
    }
    world.pass(MS)?;
    let status = world.engine().expect("an engine runs").status();
    assert!(status.volumes[0].counters.ahead_blocks > 0, "a stream is read ahead of");
    // It enters the cache, and the cached copy is hit.
    write(world, 0, 66, 1)?;
    read(world, 0, 64, 8)
}

fn hazard_01_write_overtakes_a_fill_that_gathers(world: &mut World) -> Run {
    begin(world)?;
    read(world, 0, 10, 1)?;
    // It is answered, and waits for others to enter the cache with.
    write(world, 0, 10, 1)?;
    world.pass(20 * MS)?;
    read(world, 0, 10, 1)
}

fn hazard_01_fill_while_the_origin_is_written(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write) && io.touches(blocks(10, 1)));
    let slow = world.write(0, blocks(10, 1));
    world.until_pending(|io| io.is_origin(0, Kind::Write))?;
    // A flush of the origin meanwhile: it covers the write's beginning and not its end.
    write(world, 0, 500, 1)?;
    flush(world, 0)?;
    fill(world, 0, 10, 1)?;
    world.release();
    world.succeed(slow)?;
    read(world, 0, 10, 1)
}

fn hazard_01_fill_published_behind_a_bypass(world: &mut World) -> Run {
    begin(world)?;
    make_known(world, 0, 10, 1)?;
    world.hold(is_batch);
    read(world, 0, 10, 1)?;
    world.until_pending(is_batch)?;
    let around = world.write(0, blocks(10, 1));
    world.pass(10 * MS)?;
    world.release();
    world.succeed(around)?;
    world.pass(5 * MS)?;
    read(world, 0, 10, 1)
}

fn rule_02_fill_of_what_the_origin_may_lose(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    fill(world, 0, 10, 1)?;
    origins_lose(world)?;
    verify_and_evict(world)
}

fn rule_02_fill_of_what_a_life_before_wrote(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    world.kill(|_| true);
    world.open()?;
    world.hold(|io| io.is_origin(0, Kind::Flush));
    fill(world, 0, 10, 1)?;
    origins_lose(world)?;
    verify_and_evict(world)
}

fn rule_02_read_ahead_of_what_a_life_before_wrote(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 60, 1)?;
    world.kill(|_| true);
    world.open()?;
    world.hold(|io| io.is_origin(0, Kind::Flush));
    // What a stream asks for next is read before it does.
    for step in 0..20 {
        read(world, 0, step * 4, 4)?;
    }
    world.pass(50 * MS)?;
    origins_lose(world)?;
    verify_and_evict(world)
}
