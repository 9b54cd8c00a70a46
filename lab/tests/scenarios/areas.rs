//! Rot in slots after a start, and the checksums on the device that tell of it (S9).

use crate::kinds::{Kind, SLOTS};
use crate::steps::*;
use engine::effect::{Errno, Target};
use engine::recovery::OpenError;
use forebay_lab::content::{Sector, Source};
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind as Op;
use forebay_lab::violation::{Kind as Broken, Violation};
use forebay_lab::world::{AtStake, Refusal, Setup, World};

const TRANSACTIONS: &[Kind] = crate::kinds::TRANSACTIONS;

crate::scenarios! {
    hazard_10_rotten_slot_after_a_kill: ForgetSlotChecksums, quick, on SLOTS;
    hazard_10_rotten_slot_after_a_power_cut: ForgetSlotChecksums, quick, on SLOTS;
    hazard_10_rotten_clean_slot_after_a_stop: ForgetSlotChecksums, quick, on SLOTS;
    hazard_10_rotten_clean_slot_after_a_kill: ForgetSlotChecksums, quick, on TRANSACTIONS;
    invariant_9_rotten_checksums: TrustRottenChecksums, quick, on SLOTS;
    invariant_9_open_before_data: AreaOpenUnflushed, quick, on SLOTS;
    invariant_9_closed_after_data: AreaClosedUnflushed, quick, on SLOTS;
}

/// A cache whose areas close soon, long before anything goes home; bits rot in it.
fn quick() -> Setup {
    let mut setup = damaged().with_modes(&[engine::effect::WriteMode::Writeback]);
    setup.config = |config| config.area_idle_ns = 10 * MS;
    setup
}

/// Long enough for an area to close.
const CLOSED: u64 = 60 * MS;

/// Writes a block durably, and waits until its area is closed durably.
fn write_and_close(world: &mut World, block: u64) -> Run {
    write_fua(world, 0, block, 1)?;
    world.pass(CLOSED)?;
    flush(world, 0)
}

/// A dirty block that rotted gives an error, and never goes home.
fn is_lost(world: &mut World, block: u64) -> Run {
    let ticket = world.read(0, blocks(block, 1));
    match world.wait(ticket)? {
        Err(Errno::IO) => (),
        found => {
            return Err(Violation::new(
                Broken::Contract,
                format!("block {block} rotted, and reads {found:?}"),
            ));
        }
    }
    world.pass(1000 * MS)?;
    let home = world.origin(0).read(block * 8, 8);
    if home.iter().any(|sector| sector.tag().source() == Source::Garbage) {
        return Err(Violation::new(Broken::Physical, format!("block {block} rotted, and went home")));
    }
    Ok(())
}

/// A power cut that the cache keeps these writes over, and no others.
fn keep_only(world: &mut World, filter: impl Fn(&AtStake) -> bool) -> Run {
    world.cut_power(|write| {
        let is_kept = write.target != Target::Cache || filter(write);
        if is_kept { Fate::Kept } else { Fate::Lost }
    });
    world.open()
}

/// The first sector of the checksums, and that of the slots.
fn regions(world: &World) -> (u64, u64) {
    let layout = world.setup().slots.expect("a world with slots").layout();
    (layout.checksums().offset_bytes / 512, layout.data().offset_bytes / 512)
}

fn hazard_10_rotten_slot_after_a_kill(world: &mut World) -> Run {
    begin(world)?;
    write_and_close(world, 10)?;
    rot(world, 0, 10)?;
    world.kill(|_| true);
    world.open()?;
    is_lost(world, 10)
}

fn hazard_10_rotten_slot_after_a_power_cut(world: &mut World) -> Run {
    begin(world)?;
    write_and_close(world, 10)?;
    // Written again and closed again: the newest checksum counts.
    write_and_close(world, 10)?;
    world.cut_power(|_| Fate::Lost);
    rot(world, 0, 10)?;
    world.open()?;
    is_lost(world, 10)
}

fn hazard_10_rotten_clean_slot_after_a_stop(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    drain(world, 0)?;
    world.stop()?;
    rot(world, 0, 10)?;
    world.open()?;
    read(world, 0, 10, 1)?;
    world.verify()
}

fn hazard_10_rotten_clean_slot_after_a_kill(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    drain(world, 0)?;
    world.pass(CLOSED)?;
    world.kill(|_| true);
    rot(world, 0, 10)?;
    world.open()?;
    // Where a crash calls it dirty it is lost; else the origin has it.
    let ticket = world.read(0, blocks(10, 1));
    let _either = world.wait(ticket)?;
    Ok(())
}

fn invariant_9_rotten_checksums(world: &mut World) -> Run {
    begin(world)?;
    write_and_close(world, 10)?;
    world.stop()?;
    let (checksums, data) = regions(world);
    let written =
        (checksums..data).find(|sector| matches!(world.cache().read(*sector, 1)[0], Sector::Bytes(_)));
    world.rot_cache(written.expect("the checksums of a closed area"), 77);
    rot(world, 0, 10)?;
    match world.try_open()? {
        Err(Refusal::Cache(OpenError::ChecksumPage { .. })) => Ok(()),
        found => {
            Err(Violation::new(Broken::Contract, format!("the checksums rotted, and a start says {found:?}")))
        }
    }
}

fn invariant_9_open_before_data(world: &mut World) -> Run {
    begin(world)?;
    write_and_close(world, 10)?;
    world.hold(|io| io.is_cache(Op::Flush));
    let _waits_for_the_flush = world.write(0, blocks(10, 1));
    world.pass(5 * MS)?;
    let (_, data) = regions(world);
    keep_only(world, |write| write.first >= data)?;
    world.verify_cut()
}

fn invariant_9_closed_after_data(world: &mut World) -> Run {
    begin(world)?;
    write_and_close(world, 10)?;
    write(world, 0, 10, 1)?;
    world.hold(|io| io.is_cache(Op::Flush));
    world.pass(CLOSED)?;
    let (checksums, data) = regions(world);
    keep_only(world, |write| (checksums..data).contains(&write.first))?;
    world.verify_cut()
}
