//! Rule 10 in slots: a block whose only copy rotted stays lost over crashes, and is found again when it was written.
//! And hazard 11 there: what an origin may have dropped while it was written to both.

use crate::kinds::{Kind as Records, with_slots};
use crate::steps::*;
use engine::effect::{Errno, WriteMode};
use engine::format::LOST_TABLE_OFFSETS;
use forebay_lab::content::Sector;
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::{Kind as Broken, Violation};
use forebay_lab::world::{IoView, Setup, World};

crate::scenarios! {
    rule_10_lost_in_slots_over_a_kill: LostForgotten, by_page, on BY_PAGE;
    rule_10_lost_in_large_slots_over_a_power_cut: LostForgotten, by_transactions, on BY_TRANSACTIONS;
    rule_10_table_of_lost_blocks_rots: LostInOnePlace, by_page, on BY_PAGE;
    rule_10_found_again_when_flushed: FoundBeforeFlush, by_page, on BY_PAGE;
    rule_10_given_up_beside_a_write: RestoreBesideWrites, by_transactions, on BY_TRANSACTIONS;
    hazard_11_written_to_both_beside_a_flush_that_fails: TrustWrittenAround, through_transactions, on BY_TRANSACTIONS;
}

const BY_PAGE: &[Records] = &[Records::SyncSector];
const BY_TRANSACTIONS: &[Records] = &[Records::Commit];

/// Slots of 4 KiB, recorded by page.
fn by_page() -> Setup {
    with_slots(writeback_alone(), &[])
}

/// Slots of 64 KiB, recorded by transactions.
fn by_transactions() -> Setup {
    with_slots(writeback_alone(), &[("slot_bytes", "65536"), ("persistence", "commit")])
}

/// The same, written through.
fn through_transactions() -> Setup {
    by_transactions().with_modes(&[WriteMode::Writethrough, WriteMode::Writeback])
}

/// A write is durable; then a sector of it rots, and a read tells.
fn lose(world: &mut World, block: u64) -> Run {
    write_fua(world, 0, block, 1)?;
    let copies = world.copies_of(0, block * 8);
    assert!(!copies.is_empty(), "it is in the cache");
    for sector in copies {
        world.rot_cache(sector, 3);
    }
    cannot_read(world, block)
}

fn cannot_read(world: &mut World, block: u64) -> Run {
    let ticket = world.read(0, blocks(block, 1));
    match world.wait(ticket)? {
        Err(Errno::IO) => Ok(()),
        found => Err(Violation::new(Broken::Contract, format!("block {block} is lost, and reads {found:?}"))),
    }
}

/// Long enough for the table, not for a destage.
const SOON: u64 = 20 * MS;

fn rule_10_lost_in_slots_over_a_kill(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 9, 3)?;
    lose(world, 10)?;
    world.pass(SOON)?;
    world.kill(|_| true);
    world.open()?;
    cannot_read(world, 10)?;
    read(world, 0, 9, 1)?;
    read(world, 0, 11, 1)
}

fn rule_10_table_of_lost_blocks_rots(world: &mut World) -> Run {
    begin(world)?;
    lose(world, 10)?;
    world.pass(SOON)?;
    flush(world, 0)?;
    // The table of another loss, and then of both: the newer place is one or the other.
    for block in [30, 31] {
        lose(world, block)?;
        world.pass(SOON)?;
        flush(world, 0)?;
        world.kill(|_| true);
        let newer =
            LOST_TABLE_OFFSETS.map(|offset_bytes| (update_of_table(world, offset_bytes), offset_bytes));
        let (_, offset_bytes) = newer.into_iter().max().expect("two places");
        world.rot_record(offset_bytes / 512, 300);
        world.open()?;
        cannot_read(world, 10)?;
        cannot_read(world, block)?;
        world.pass(SOON)?;
    }
    Ok(())
}

/// The number of the table of lost blocks at one of its places.
fn update_of_table(world: &mut World, offset_bytes: u64) -> u64 {
    match &world.cache().read(offset_bytes / 512, 1)[0] {
        Sector::Bytes(bytes) => u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes")),
        _ => 0,
    }
}

fn rule_10_lost_in_large_slots_over_a_power_cut(world: &mut World) -> Run {
    begin(world)?;
    // The whole slot, so that it enters at once.
    write_fua(world, 0, 16, 16)?;
    lose(world, 20)?;
    world.pass(SOON)?;
    flush(world, 0)?;
    for _ in 0..2 {
        world.cut_power(|_| Fate::Lost);
        world.open()?;
        cannot_read(world, 20)?;
        read(world, 0, 16, 4)?;
        read(world, 0, 21, 11)?;
    }
    // What is written again is there again, and goes home with the rest.
    write_fua(world, 0, 20, 1)?;
    world.kill(|_| false);
    world.open()?;
    read(world, 0, 16, 16)?;
    drain(world, 0)?;
    world.expect_origin_equals_view(0)
}

fn rule_10_found_again_when_flushed(world: &mut World) -> Run {
    begin(world)?;
    lose(world, 10)?;
    world.pass(SOON)?;
    flush(world, 0)?;
    world.hold(|io| io.is_cache(Kind::Flush));
    let ticket = world.write(0, blocks(10, 1));
    world.pass(SOON)?;
    let is_answered = world.answer(ticket).is_some();
    // Of what is unflushed only the table survives.
    world.cut_power(|write| if write.sectors() == 128 { Fate::Kept } else { Fate::Lost });
    world.open()?;
    let ticket = world.read(0, blocks(10, 1));
    match world.wait(ticket)? {
        Ok(()) if is_answered => {
            Err(Violation::new(Broken::Contract, "it was answered before it was recorded"))
        }
        _ => Ok(()),
    }
}

/// A write waits for what is given up, and stays. So does the rest of the slot, over a power cut.
fn rule_10_given_up_beside_a_write(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 16, 16)?;
    lose(world, 20)?;
    lose(world, 29)?;
    world.hold(|io| io.is_origin(0, Kind::Read));
    let given_up = world.give_up_lost(0);
    world.until_pending(|io| io.is_origin(0, Kind::Read))?;
    let write = world.write(0, blocks(20, 1));
    // Before it could go home.
    world.pass(2 * MS)?;
    world.release();
    world.succeed(given_up)?;
    world.succeed(write)?;
    read(world, 0, 16, 16)?;
    flush(world, 0)?;
    world.cut_power(|_| Fate::Lost);
    world.open()?;
    read(world, 0, 16, 16)?;
    drain(world, 0)?;
    world.expect_origin_equals_view(0)
}

/// The origin has the writes and drops them, with a flush that fails; then the cache has them, and they are answered.
fn hazard_11_written_to_both_beside_a_flush_that_fails(world: &mut World) -> Run {
    begin(world)?;
    let slots = [1, 7, 13, 19, 25, 31, 37, 43].map(|slot| blocks(slot * 16, 16));
    for slot in slots {
        let ticket = world.write(0, slot);
        world.succeed(ticket)?;
    }
    flush(world, 0)?;
    let is_slot = |io: &IoView| io.is_cache(Kind::Write) && io.sectors == 128;
    world.hold(is_slot);
    let slow = slots.map(|slot| world.write(0, slot));
    world.until_pending(is_slot)?;
    world.pass(50 * MS)?;
    world.origin(0).faults.fail_next(Kind::Flush, Errno::IO);
    let early = world.flush(0);
    // It may fail or not: none of the writes was answered before it.
    let _ = world.wait(early)?;
    world.release();
    for ticket in slow {
        let _ = world.wait(ticket)?;
    }
    world.pass(3000 * MS)?;
    // The first may still tell of the flush that failed.
    let told = world.flush(0);
    let _ = world.wait(told)?;
    flush(world, 0)?;
    // The cache fails with nothing dirty in it: from now on the origin is all there is.
    world.cache().faults.fail_next(Kind::Write, Errno::IO);
    let last = world.write(0, slots[0]);
    let _ = world.wait(last)?;
    world.pass(3000 * MS)?;
    origins_lose(world)?;
    world.verify_cut()
}
