//! Rule 14: an origin that goes from one flushed state to the next.

use crate::steps::*;
use engine::composition::Composition;
use engine::effect::{RequestOp, WriteMode};
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::world::{AtStake, IoView, Setup, World};

crate::scenarios! {
    rule_14_flush_by_flush: IntervalsJoined, strict;
    rule_14_the_version_of_its_interval: NewestGoesHome, strict;
    rule_14_origin_is_flushed_between: IntervalUnflushed, strict;
    rule_14_recorded_before_the_next: IntervalBeforeRecord, strict;
    rule_14_marked_in_the_log: IntervalUnmarked, strict;
    rule_14_discard_does_not_overtake: DiscardOvertakes, strict;
    rule_14_the_end_is_noted: ForgetOrderEnd, strict;
    rule_14_a_cut_before_the_end: OrderEndsBehindCut, strict;
}

/// One volume that goes home in strict order.
fn strict() -> Setup {
    let mut composition = Composition::plain_log();
    composition.set("order", "strict").expect("there is such an order");
    Setup { composition: composition.text(), ..writeback_alone() }
}

/// Writes a block, and flushes it.
fn write_flushed(world: &mut World, block: u64) -> Run {
    write(world, 0, block, 1)?;
    flush(world, 0)
}

/// Lets time pass in which everything goes home that may, and looks at the origin all the time.
fn go_home(world: &mut World) -> Run {
    for _ in 0..100 {
        world.pass(10 * MS)?;
        world.expect_order()?;
    }
    Ok(())
}

fn rule_14_flush_by_flush(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write) && io.first >= 800);
    write_flushed(world, 100)?;
    write_flushed(world, 10)?;
    go_home(world)?;
    world.release();
    go_home(world)?;
    world.expect_origin_equals_view(0)
}

fn rule_14_the_version_of_its_interval(world: &mut World) -> Run {
    begin(world)?;
    // While this one is under way, the others wait with both versions of block 10.
    world.hold(|io| io.is_origin(0, Kind::Write) && io.first >= 800);
    write_flushed(world, 300)?;
    let first = world.until_pending(|io| io.is_origin(0, Kind::Write))?;
    write(world, 0, 10, 1)?;
    write_flushed(world, 200)?;
    write_flushed(world, 10)?;
    world.complete(first.id)?;
    go_home(world)?;
    world.release();
    go_home(world)?;
    world.expect_origin_equals_view(0)
}

fn rule_14_origin_is_flushed_between(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Flush));
    write_flushed(world, 10)?;
    write_flushed(world, 20)?;
    go_home(world)?;
    let is_of_10 = |write: &AtStake| write.first == 80;
    world.cut_power(|write| if is_of_10(write) { Fate::Lost } else { Fate::Kept });
    world.open()?;
    go_home(world)
}

fn rule_14_recorded_before_the_next(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    write_flushed(world, 10)?;
    write_flushed(world, 10)?;
    write_flushed(world, 30)?;
    // What is written to the cache from now on is lost: the records above all.
    world.hold(is_batch);
    for _ in 0..20 {
        world.pass(50 * MS)?;
        world.complete_all(|io| io.is_origin(0, Kind::Write))?;
    }
    world.kill(|_| false);
    world.open()?;
    go_home(world)?;
    world.expect_origin_equals_view(0)
}

fn rule_14_marked_in_the_log(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    write_flushed(world, 100)?;
    write_flushed(world, 10)?;
    world.kill(|_| false);
    world.open()?;
    world.hold(|io| io.is_origin(0, Kind::Write) && io.first >= 800);
    go_home(world)?;
    world.release();
    go_home(world)?;
    world.expect_origin_equals_view(0)
}

fn rule_14_discard_does_not_overtake(world: &mut World) -> Run {
    begin(world)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    write_flushed(world, 10)?;
    let discard_all = |world: &mut World| -> Run {
        // A device may keep what is discarded.
        for first in (200..400).step_by(10) {
            let ticket = world.submit(0, RequestOp::Discard { range: blocks(first, 4), fua: false });
            world.succeed(ticket)?;
        }
        go_home(world)
    };
    discard_all(world)?;
    world.release();
    go_home(world)?;
    // When all is home, nothing is overtaken.
    discard_all(world)
}

fn rule_14_the_end_is_noted(world: &mut World) -> Run {
    begin(world)?;
    let ask = |world: &mut World, op| -> Run {
        let ticket = world.submit(0, op);
        world.succeed(ticket)
    };
    let zeroes = world.write_zeroes(0, blocks(10, 10));
    world.succeed(zeroes)?;
    flush(world, 0)?;
    ask(world, RequestOp::SetOrder(false))?;
    world.end_order();
    ask(world, RequestOp::SetMode(WriteMode::Writearound))?;
    write(world, 0, 12, 1)?;
    flush(world, 0)?;
    world.kill(|_| false);
    world.open()?;
    let read = world.read(0, blocks(10, 10));
    world.succeed(read)?;
    world.pass(10_000 * MS)?;
    world.expect_origin_equals_view(0)
}

fn rule_14_a_cut_before_the_end(world: &mut World) -> Run {
    begin(world)?;
    write_flushed(world, 100)?;
    go_home(world)?;
    // The log's last batches are not flushed.
    for first in [200, 240, 280, 320] {
        fill(world, 0, first, 4)?;
    }
    let is_superblock = |io: &IoView| io.is_cache(Kind::Write) && io.first < SEGMENTS_SECTOR;
    world.hold(is_superblock);
    let _ended_or_not = world.submit(0, RequestOp::SetOrder(false));
    world.until_pending(is_superblock)?;
    world.complete_all(is_superblock)?;
    world.end_order();
    world.cut_power(|write| if write.first < SEGMENTS_SECTOR { Fate::Kept } else { Fate::Lost });
    world.release();
    world.open()?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    write_flushed(world, 10)?;
    world.kill(|_| false);
    world.release();
    world.open()?;
    drain(world, 0)?;
    world.expect_origin_equals_view(0)
}
