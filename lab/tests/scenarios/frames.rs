//! Hazards 1 and 5, rules 1 and 3 where clean data lies in frames behind the ring.

use crate::kinds::{FRAME_LAYOUT as LAYOUT, Kind as Records};
use crate::steps::*;
use engine::units::VolumeIndex;
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::world::{AtStake, IoView, Setup, World, blocks};

crate::scenarios! {
    hazard_01_changed_on_its_way_to_a_frame: FillAfterChange, around, on FRAMES;
    hazard_05_block_that_left_is_forgotten: ForgetFreed, around, on FRAMES;
    rule_01_frame_written_again_before_a_flush: RefillBeforeFlush, frames, with SkipReadChecksum, on FRAMES;
    rule_03_key_of_a_block_that_changes: KeyBehindNewer, frames, on FRAMES;
}

const FRAMES: &[Records] = &[Records::Frames];

/// Two volumes in writeback mode over 128 frames.
fn frames() -> Setup {
    writeback().with_frames(LAYOUT)
}

/// The volume under test is in write-around mode.
fn around() -> Setup {
    writearound().with_frames(LAYOUT)
}

fn first_frame_sector() -> u64 {
    SEGMENTS_SECTOR + u64::from(LAYOUT.ring_blocks()) * 8
}

fn goes_to_a_frame(io: &IoView) -> bool {
    io.is_cache(Kind::Write) && io.first >= first_frame_sector()
}

fn is_in_a_frame(write: &AtStake) -> bool {
    write.first >= first_frame_sector()
}

fn is_cached(world: &World, block: u64) -> bool {
    world.engine().is_some_and(|engine| engine.cached_blocks(VolumeIndex(0)).contains(&block))
}

/// Reads eight blocks at a time, from the `from`th eight on, until `until`.
fn fill_frames(world: &mut World, from: u64, until: impl Fn(&World) -> bool) -> Run {
    for step in from..from + 60 {
        if until(world) {
            break;
        }
        read(world, 0, step * 8, 8)?;
        world.pass(20 * MS)?;
    }
    Ok(())
}

/// Fills all frames, and waits until their keys are durable.
fn fill_all(world: &mut World) -> Run {
    fill_frames(world, 0, |world| is_cached(world, 95))?;
    world.pass(2000 * MS)?;
    write_fua(world, 1, 500, 1)
}

/// A block is read, and changed while its copy is written to a frame.
fn hazard_01_changed_on_its_way_to_a_frame(world: &mut World) -> Run {
    begin(world)?;
    world.hold(goes_to_a_frame);
    read(world, 0, 10, 1)?;
    world.until_pending(goes_to_a_frame)?;
    write(world, 0, 10, 1)?;
    world.release();
    world.pass(50 * MS)?;
    read(world, 0, 10, 1)
}

/// A block left, and its frame holds it still when the power is cut; nothing of it was in the index when a write went around.
fn hazard_05_block_that_left_is_forgotten(world: &mut World) -> Run {
    begin(world)?;
    fill_all(world)?;
    fill_frames(world, 12, |world| (0..96).any(|block| !is_cached(world, block)))?;
    let gone: Vec<u64> = (0..96).filter(|&block| !is_cached(world, block)).collect();
    for block in gone {
        write_fua(world, 0, block, 1)?;
    }
    world.cut_power(|_| Fate::Kept);
    world.open()?;
    world.verify_cut()
}

/// Blocks leave, and nothing says so durably; their frames keep what they have.
fn rule_01_frame_written_again_before_a_flush(world: &mut World) -> Run {
    begin(world)?;
    fill_all(world)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    fill_frames(world, 12, |world| {
        world.at_stake().iter().filter(|write| is_in_a_frame(write)).count() > 12
    })?;
    world.cut_power(|write| if is_in_a_frame(write) { Fate::Kept } else { Fate::Lost });
    world.open()?;
    world.verify_cut()
}

/// The key of a clean block waits for company until the block is written: it comes with the newer version, and not behind it.
fn rule_03_key_of_a_block_that_changes(world: &mut World) -> Run {
    begin(world)?;
    read(world, 0, 10, 1)?;
    world.pass(20 * MS)?;
    assert!(is_cached(world, 10), "its frame has it");
    // Its data is durable now.
    write_fua(world, 1, 500, 1)?;
    let _newer = world.write_fua(0, blocks(10, 1));
    world.pass(20 * MS)?;
    world.cut_power(|write| if is_in_a_frame(write) { Fate::Kept } else { Fate::Lost });
    world.open()?;
    world.verify_cut()
}
