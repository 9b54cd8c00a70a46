//! The duties of slots and their records, besides those of every cache. H1 to H19 are the histories that the records
//! were designed against.

use crate::kinds::{Kind, SLOT_COUNT, SLOTS, TRANSACTIONS, with_slots};
use crate::steps::*;
use engine::effect::{Errno, RequestOp, Target, WriteMode};
use engine::format::COMMIT_RECORD_OFFSETS;
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind as Op;
use forebay_lab::world::{AtStake, IoView, Setup, SlotSetup, World};

const BY_PAGE: &[Kind] = &[Kind::SyncSector];
const BY_MAPPING: &[Kind] = &[Kind::Commit];
const BY_TREE: &[Kind] = &[Kind::BitTree];

crate::scenarios! {
    hazard_01_promotion_while_the_origin_is_written: FillDuringChange, large_around, on TRANSACTIONS;
    hazard_02_page_is_not_written_where_it_counts: PageInPlace, writeback, on TRANSACTIONS;
    hazard_03_recorded_before_the_answer: AckBeforeMapping, writeback, on SLOTS;
    hazard_03_data_is_flushed_before_its_record: RecordBeforeData, writeback, on BY_PAGE;
    hazard_03_data_is_flushed_before_its_mapping: TransactionUnflushed, writeback, on TRANSACTIONS;
    hazard_04_rewritten_after_it_went_home: CleanThoughRewritten, writeback, on SLOTS;
    hazard_04_marked_before_it_is_written: MarkAfterData, writeback, on BY_TREE;
    hazard_04_mark_that_is_on_its_way_away: MarkInFlight, writeback, on BY_TREE;
    hazard_04_mapping_and_mark_together: MappingBeforeMark, many, on BY_TREE;
    hazard_05_record_is_gone_before_the_slot_is_reused: RecordGoneUnflushed, writeback, on BY_PAGE;
    hazard_05_mapping_is_gone_before_the_slot_is_reused: ReuseBeforeRemoval, writeback, on TRANSACTIONS;
    hazard_06_marked_before_it_is_written_to_both: MarkAfterData, writethrough, on BY_TREE;
    hazard_07_record_is_gone_before_a_bypass: RecordGoneUnflushed, writeback, on BY_PAGE;
    hazard_07_mapping_is_gone_before_a_bypass: BypassBeforeRemoval, writearound, on TRANSACTIONS;
    hazard_10_cache_fails_before_a_record_is_gone: BypassBeforeAbandoned, writeback_alone, on BY_PAGE;
    hazard_11_copied_before_a_flush_that_fails: RottenStays, large_around, on BY_MAPPING;
    hazard_11_leaves_after_a_flush_that_fails: TellDoubted, large_around, on BY_MAPPING;
    hazard_11_read_beside_a_flush_that_fails: TellDoubted, large_around, on BY_MAPPING;
    hazard_12_who_waits_for_what_is_dirty_to_go_home: WaitersBlockDestage, writeback, on SLOTS;
    hazard_14_one_write_to_a_place_at_a_time: OverlapInSlot, writeback, on SLOTS;
    hazard_05_record_is_taken_back_before_the_slot_is_reused: RecordGoneUnwritten, writeback, on BY_PAGE;
    hazard_05_removal_counts_when_its_record_is_flushed: RecordUnflushed, writeback, on TRANSACTIONS;
    hazard_07_record_is_taken_back_before_a_bypass: RecordGoneUnwritten, writeback, on BY_PAGE;
    rule_02_fill_that_stays_clean_over_a_crash: KeepUnflushedFill, writearound, on BY_TREE;
    rule_06_start_flushes_what_it_found: StartUnflushed, writeback, on BY_PAGE;
    rule_06_page_that_was_cut_off_never_counts: KeepCutPages, writearound, on TRANSACTIONS;
    rule_06_record_is_durable_before_it_is_built_on: OverwriteUnflushedRecord, many, on BY_TREE;
}

/// Slots that are free beside the one that a world begins with, and the one under test.
const OTHERS: u64 = SLOT_COUNT as u64 - 2;

/// Slots of 64 KiB that whole pieces are copied to; the volume under test is in write-around mode.
fn large_around() -> Setup {
    let settings =
        [("slot_bytes", "65536"), ("persistence", "commit"), ("fetch", "frame"), ("waits", "false")];
    with_slots(writearound(), &settings)
}

/// More slots than one transaction has pages for under way, and a volume that fills them.
fn many() -> Setup {
    let mut setup = with_slots(writeback(), &[("persistence", "bit-tree"), ("commit_ms", "60000")]);
    let composition = setup.slots.expect("slots").composition;
    setup.slots = Some(SlotSetup::new(MANY_SLOTS, composition));
    setup.volumes[1].sectors = u64::from(MANY_SLOTS) * 8;
    setup.index_budget_bytes = 16 << 20;
    setup
}

/// The first sector of the first slot.
fn data_sector(world: &World) -> u64 {
    let slots = world.setup().slots.expect("a world with slots");
    slots.layout().slot_offset_bytes(engine::units::Frame(0)) / 512
}

/// Whether an operation writes what is recorded of slots, checksums apart.
fn is_record(world: &World) -> impl Fn(&IoView) -> bool + Copy + 'static {
    let slots = world.setup().slots.expect("a world with slots");
    let checksums = slots.layout().checksums().offset_bytes / 512;
    move |io| io.is_cache(Op::Write) && io.first < checksums
}

/// Has the pages that are held written, and then the record that makes them count.
fn complete_pages_and_record(world: &mut World) -> Run {
    let is_record = is_record(world);
    for _page_and_record in 0..2 {
        for page in pending(world, is_record) {
            world.complete(page)?;
        }
        world.pass(10 * MS)?;
    }
    Ok(())
}

/// Whether an operation writes to a slot.
fn is_data(world: &World) -> impl Fn(&IoView) -> bool + Copy + 'static {
    let data = data_sector(world);
    move |io| io.is_cache(Op::Write) && io.first >= data
}

/// A power cut that the cache keeps these writes over, and nothing else; origins keep what they have.
fn keep_only(world: &mut World, filter: impl Fn(&AtStake) -> bool) -> Run {
    world.cut_power(|write| {
        let is_kept = write.target != Target::Cache || filter(write);
        if is_kept { Fate::Kept } else { Fate::Lost }
    });
    world.open()
}

fn hazard_01_promotion_while_the_origin_is_written(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Op::Write));
    let slow = world.write(0, blocks(18, 1));
    world.until_pending(|io| io.is_origin(0, Op::Write))?;
    read(world, 0, 20, 1)?;
    world.pass(20 * MS)?;
    world.release();
    world.succeed(slow)?;
    read(world, 0, 18, 1)
}

fn hazard_02_page_is_not_written_where_it_counts(world: &mut World) -> Run {
    begin(world)?;
    // After each start the places that count are those that were found.
    for block in [10, 12] {
        write_fua(world, 0, block, 1)?;
        world.kill(|_| true);
        world.open()?;
    }
    let is_record = is_record(world);
    world.hold(is_record);
    let _unfinished = world.write(0, blocks(20, 1));
    let page = world.until_pending(is_record)?;
    world.cut_power(|write| {
        let is_page = write.target == Target::Cache && write.first == page.first;
        if is_page { Fate::Torn((0..write.sectors()).map(|at| at < 1).collect()) } else { Fate::Kept }
    });
    world.open()?;
    world.verify_cut()
}

fn hazard_03_recorded_before_the_answer(world: &mut World) -> Run {
    begin(world)?;
    world.hold(is_record(world));
    let _not_recorded = world.write(0, blocks(10, 1));
    world.pass(10 * MS)?;
    world.kill(|_| false);
    world.open()?;
    world.verify_cut()
}

/// A write is answered; of what is unflushed by then a power cut leaves the records alone.
fn record_without_data(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    let data = data_sector(world);
    keep_only(world, |write| write.first < data)?;
    world.verify_cut()
}

fn hazard_03_data_is_flushed_before_its_record(world: &mut World) -> Run {
    record_without_data(world)
}

fn hazard_03_data_is_flushed_before_its_mapping(world: &mut World) -> Run {
    record_without_data(world)
}

fn hazard_04_rewritten_after_it_went_home(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    world.hold(|io| io.is_origin(0, Op::Flush));
    world.until_pending(|io| io.is_origin(0, Op::Flush))?;
    write(world, 0, 10, 1)?;
    world.release();
    world.pass(100 * MS)?;
    evict(world)
}

fn hazard_04_marked_before_it_is_written(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    // It is mapped, and below no mark.
    world.run_dry()?;
    world.hold(is_record(world));
    let _waits_for_its_mark = world.write(0, blocks(10, 1));
    world.pass(10 * MS)?;
    world.kill(|_| false);
    world.open()?;
    verify_and_evict(world)
}

fn hazard_04_mark_that_is_on_its_way_away(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    write_fua(world, 0, 20, 1)?;
    // It goes home. The transaction that takes the only mark away begins.
    let is_record = is_record(world);
    world.hold(is_record);
    world.until_pending(is_record)?;
    let _waits_for_its_mark = world.write(0, blocks(10, 1));
    world.pass(10 * MS)?;
    complete_pages_and_record(world)?;
    world.kill(|_| false);
    world.open()?;
    verify_and_evict(world)
}

/// More than 16 pages of mappings, which are under way at a time.
const MANY_SLOTS: u32 = 9000;

fn hazard_04_mapping_and_mark_together(world: &mut World) -> Run {
    begin(world)?;
    let layout = world.setup().slots.expect("slots").layout();
    let filled = u64::from(layout.page_slots()) * 16 + 32;
    for step in 0..filled / 64 + 1 {
        fill(world, 1, step * 64, 64)?;
    }
    let is_record = is_record(world);
    world.hold(is_record);
    // A transaction begins because of this one, and has not room enough for all of its pages.
    let _first = world.write(1, blocks(filled + 100, 1));
    world.until_pending(is_record)?;
    let pages = pending(world, is_record);
    assert_eq!(pages.len(), 16, "pages wait for their turn");
    let _unfinished = world.write(0, blocks(10, 1));
    world.pass(10 * MS)?;
    for page in pages {
        world.complete(page)?;
    }
    complete_pages_and_record(world)?;
    world.kill(|_| false);
    world.open()?;
    verify_and_evict(world)
}

fn hazard_05_record_is_gone_before_the_slot_is_reused(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    world.hold(|io| io.is_cache(Op::Flush));
    // It goes home, and its record is taken back.
    world.pass(1000 * MS)?;
    crowd(world)?;
    let data = data_sector(world);
    keep_only(world, |write| write.first >= data)?;
    world.verify_cut()
}

fn hazard_05_mapping_is_gone_before_the_slot_is_reused(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    fill(world, 1, 0, OTHERS)?;
    // All slots are in use and mapped.
    world.run_dry()?;
    world.hold(|io| io.is_cache(Op::Flush));
    for step in 0..20 {
        fill(world, 1, 500 + step * 20, 1)?;
    }
    let data = data_sector(world);
    keep_only(world, |write| write.first >= data)?;
    world.verify_cut()
}

fn hazard_05_record_is_taken_back_before_the_slot_is_reused(world: &mut World) -> Run {
    hazard_05_record_is_gone_before_the_slot_is_reused(world)
}

/// A transaction removes mappings. Its record is written, and lost.
fn hazard_05_removal_counts_when_its_record_is_flushed(world: &mut World) -> Run {
    // The fills open their areas; a slot that was dirty before would bring transactions of its own.
    world.run_dry()?;
    fill(world, 0, 10, 1)?;
    fill(world, 1, 0, OTHERS + 1)?;
    // All slots are in use and mapped.
    world.run_dry()?;
    let is_record = is_record(world);
    world.hold(is_record);
    // There is no slot for these: others leave.
    for step in 0..4 {
        fill(world, 1, 500 + step * 20, 1)?;
    }
    for page in pending(world, is_record) {
        world.complete(page)?;
    }
    world.pass(10 * MS)?;
    world.hold(|io| io.is_cache(Op::Flush));
    for record in pending(world, is_record) {
        world.complete(record)?;
    }
    for step in 0..20 {
        fill(world, 1, 700 + step * 20, 1)?;
    }
    let data = data_sector(world);
    keep_only(world, |write| write.first >= data)?;
    world.verify_cut()
}

fn hazard_06_marked_before_it_is_written_to_both(world: &mut World) -> Run {
    crate::writes::hazard_06_writethrough_is_dirty_until_it_is_home(world)
}

fn hazard_07_record_is_gone_before_a_bypass(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Op::Write));
    write_fua(world, 0, 10, 1)?;
    assert_eq!(world.ask(0, RequestOp::SetMode(WriteMode::Writearound))?, Ok(()));
    world.until_pending(|io| io.is_origin(0, Op::Write))?;
    world.hold(|io| io.is_cache(Op::Flush));
    world.complete_all(|io| io.is_origin(0, Op::Write))?;
    world.pass(1000 * MS)?;
    let _waits = world.write_fua(0, blocks(10, 1));
    world.pass(10 * MS)?;
    world.complete_all(|io| io.is_origin(0, Op::Write))?;
    world.pass(10 * MS)?;
    keep_only(world, |_| false)?;
    world.verify_cut()
}

fn hazard_07_record_is_taken_back_before_a_bypass(world: &mut World) -> Run {
    hazard_07_record_is_gone_before_a_bypass(world)
}

fn hazard_07_mapping_is_gone_before_a_bypass(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 1)?;
    world.run_dry()?;
    world.hold(|io| io.is_cache(Op::Flush));
    let _waits = world.write_fua(0, blocks(10, 1));
    world.pass(100 * MS)?;
    keep_only(world, |_| false)?;
    verify_and_evict(world)
}

/// What is dirty is home, and its record is taken back but for a flush, when the cache fails.
fn hazard_10_cache_fails_before_a_record_is_gone(world: &mut World) -> Run {
    world.run_dry()?;
    write_fua(world, 0, 10, 1)?;
    world.hold(|io| io.kind == Op::Abandon);
    world.cache().faults.fail_next(Op::Flush, Errno::IO);
    world.until_pending(|io| io.kind == Op::Abandon)?;
    let _waits = world.write_fua(0, blocks(10, 1));
    world.pass(100 * MS)?;
    keep_only(world, |_| false)?;
    world.verify_cut()
}

/// First blocks of the slots that the scripts of failing flushes use: each of them loses something with a chance of a third.
const DOUBTED: [u64; 8] = [16, 48, 80, 112, 144, 176, 208, 240];

/// The origin has new data in each of these slots' places, and has not flushed it.
fn write_unflushed(world: &mut World) -> Run {
    begin(world)?;
    DOUBTED.iter().try_for_each(|first| write(world, 0, first + 2, 1))
}

/// A flush of the origin fails, and takes some of what it was given.
fn fail_flush(world: &mut World) -> Run {
    world.origin(0).faults.fail_next(Op::Flush, Errno::IO);
    let flush = world.flush(0);
    let _told = world.wait(flush)?;
    Ok(())
}

/// Reads what was written, as far as that is answered, and cuts the power: nothing is lost by that.
fn read_and_cut(world: &mut World) -> Run {
    for first in DOUBTED {
        let _whenever = world.read(0, blocks(first + 2, 1));
    }
    world.pass(20 * MS)?;
    keep_only(world, |_| true)?;
    world.verify_cut()
}

/// Slots have what the origin had before it lost that.
fn hazard_11_copied_before_a_flush_that_fails(world: &mut World) -> Run {
    write_unflushed(world)?;
    world.hold(is_data(world));
    let reads = DOUBTED.map(|first| world.read(0, blocks(first + 4, 1)));
    world.pass(20 * MS)?;
    fail_flush(world)?;
    world.release();
    for read in reads {
        world.succeed(read)?;
    }
    // They are mapped, if they do not leave.
    world.pass(3000 * MS)?;
    read_and_cut(world)
}

/// The same, where the slots are mapped by then, and leave.
fn hazard_11_leaves_after_a_flush_that_fails(world: &mut World) -> Run {
    write_unflushed(world)?;
    for first in DOUBTED {
        read(world, 0, first + 4, 1)?;
    }
    world.pass(3000 * MS)?;
    world.hold(is_record(world));
    fail_flush(world)?;
    read_and_cut(world)
}

/// The same, where the flush is under way: the origin has lost something, and no client was told.
fn hazard_11_read_beside_a_flush_that_fails(world: &mut World) -> Run {
    write_unflushed(world)?;
    let is_data = is_data(world);
    world.hold(move |io| is_data(io) || io.is_origin(0, Op::Flush));
    for first in DOUBTED {
        let _waits = world.read(0, blocks(first + 4, 1));
    }
    world.pass(20 * MS)?;
    world.origin(0).faults.fail_next(Op::Flush, Errno::IO);
    let _fails = world.flush(0);
    let flush = world.until_pending(|io| io.is_origin(0, Op::Flush))?;
    world.land_op(flush.id);
    for first in DOUBTED {
        let _whenever = world.read(0, blocks(first + 2, 1));
    }
    world.pass(20 * MS)?;
    world.complete_all(is_data)?;
    // The slots are mapped; nobody was told of the flush.
    world.pass(3000 * MS)?;
    keep_only(world, |_| true)?;
    world.verify_cut()
}

fn hazard_12_who_waits_for_what_is_dirty_to_go_home(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    let zeroes = world.write_zeroes(0, blocks(10, 1));
    world.succeed(zeroes)?;
    read(world, 0, 10, 1)
}

fn hazard_14_one_write_to_a_place_at_a_time(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    let is_data = is_data(world);
    world.hold(is_data);
    let (one, other) = (world.write(0, blocks(10, 1)), world.write(0, blocks(10, 1)));
    world.pass(5 * MS)?;
    let under_way = pending(world, is_data);
    // They land in one order, and are answered in the other.
    for &write in under_way.iter().rev() {
        world.land_op(write);
    }
    for &write in &under_way {
        world.complete(write)?;
    }
    world.release();
    world.succeed(one)?;
    world.succeed(other)?;
    read(world, 0, 10, 1)
}

fn rule_02_fill_that_stays_clean_over_a_crash(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    fill(world, 0, 10, 1)?;
    // Its mapping is committed.
    world.pass(3000 * MS)?;
    origins_lose(world)?;
    verify_and_evict(world)
}

/// A process dies when a record was taken back, and that was not flushed. Its successor finds the slot free.
fn rule_06_start_flushes_what_it_found(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    world.hold(|io| io.is_cache(Op::Flush));
    // It goes home, and its record is taken back.
    world.pass(1000 * MS)?;
    world.kill(|_| true);
    world.open()?;
    crowd(world)?;
    let data = data_sector(world);
    keep_only(world, |write| write.first >= data)?;
    world.verify_cut()
}

/// A page is written, the record of its transaction is not.
fn rule_06_page_that_was_cut_off_never_counts(world: &mut World) -> Run {
    begin(world)?;
    let is_record = is_record(world);
    world.hold(is_record);
    fill(world, 0, 10, 1)?;
    world.until_pending(is_record)?;
    for page in pending(world, is_record) {
        world.complete(page)?;
    }
    world.kill(|_| false);
    world.open()?;
    // Nothing in memory tells that it is cached.
    write_fua(world, 0, 10, 1)?;
    world.kill(|_| true);
    world.open()?;
    verify_and_evict(world)
}

/// A transaction has a tree whose mark the next start takes back: what it marks went home, and left before the page that has
/// its mapping was written.
fn rule_06_record_is_durable_before_it_is_built_on(world: &mut World) -> Run {
    begin(world)?;
    let layout = world.setup().slots.expect("slots").layout();
    let filled = u64::from(layout.page_slots()) * 16 + 32;
    for step in 0..filled / 64 + 1 {
        fill(world, 1, step * 64, 64)?;
    }
    world.run_dry()?;
    world.hold(|io| io.is_origin(0, Op::Write));
    write_fua(world, 0, 10, 1)?;
    // The tree is split, and nobody waits for that.
    world.pass(5000 * MS)?;
    let is_record = is_record(world);
    world.hold(is_record);
    let discarded = RequestOp::Discard { range: blocks(0, filled), fua: false };
    let _waits = world.submit(1, discarded);
    world.until_pending(is_record)?;
    let pages = pending(world, is_record);
    assert_eq!(pages.len(), 16, "pages wait for their turn");
    let _waits_too = world.discard(0, blocks(10, 1));
    world.complete_all(|io| io.is_origin(0, Op::Write))?;
    world.pass(1000 * MS)?;
    for page in pages {
        world.complete(page)?;
    }
    world.pass(10 * MS)?;
    for page in pending(world, is_record) {
        world.complete(page)?;
    }
    world.pass(10 * MS)?;
    world.hold(|io| io.is_cache(Op::Flush));
    for record in pending(world, is_record) {
        world.complete(record)?;
    }
    world.kill(|_| false);
    let records = COMMIT_RECORD_OFFSETS.map(|offset_bytes| offset_bytes / 512);
    let is_cut = world
        .open_and_cut(1, |write| if records.contains(&write.first) { Fate::Lost } else { Fate::Kept })?;
    assert!(is_cut, "a start writes something");
    world.open()?;
    world.verify_cut()
}
