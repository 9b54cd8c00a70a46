//! Strict order beside the scenarios: how far an origin may lag behind, and how the order changes while clients work.

use engine::composition::Composition;
use engine::effect::{Errno, RequestOp, WriteMode};
use engine::limits::OrderBounds;
use engine::units::{BLOCK_BYTES, Nanos};
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::Violation;
use forebay_lab::world::{IoView, Setup, Ticket, World, blocks, sectors};

const MS: u64 = 1_000_000;
/// The first sector behind both copies of the superblock.
const SUPERBLOCK_END: u64 = engine::format::SEGMENTS_OFFSET / 512;

type Run = Result<(), Violation>;

fn world(order: &str, bounds: OrderBounds) -> World {
    let mut composition = Composition::forebay();
    composition.set("order", order).expect("there is such an order");
    let mut setup = Setup { composition: composition.text(), ..Setup::new(7) };
    let mut config = engine::limits::Config::for_cache(setup.segments, setup.segment_blocks);
    config.order = (order == "strict").then_some(bounds);
    setup.bounds = Some(config);
    World::new(setup)
}

const WIDE: OrderBounds = OrderBounds { lag_ns: 30 * Nanos::SECOND, lag_blocks: 400 };

fn write(world: &mut World, block: u64) -> Run {
    let ticket = world.write(0, blocks(block, 1));
    world.succeed(ticket)
}

fn flush(world: &mut World) -> Run {
    let ticket = world.flush(0);
    world.succeed(ticket)
}

fn lag(world: &World) -> (u64, u64) {
    let status = world.engine().expect("an engine runs").status();
    let order = status.volumes[0].order.expect("its order is strict");
    (order.lag_bytes / BLOCK_BYTES, order.lag_ns)
}

fn sound(run: impl FnOnce() -> Run) {
    run().unwrap_or_else(|violation| panic!("{violation}"));
}

/// Goal: a write waits when more is not home than the bound allows, and goes on when something came home. Method: an origin
/// that takes nothing for a while.
#[test]
fn writes_wait_when_too_much_is_not_home() {
    sound(|| {
        let mut world = world("strict", OrderBounds { lag_blocks: 100, ..WIDE });
        world.run_dry()?;
        world.hold(|io| io.is_origin(0, Kind::Write));
        let tickets: Vec<Ticket> = (0..300).map(|step| world.write(0, blocks(step * 3, 1))).collect();
        world.pass(2000 * MS)?;
        let answered = tickets.iter().filter(|ticket| world.answer(**ticket).is_some()).count();
        assert!((90..=100).contains(&answered), "{answered} of 300 writes were answered");
        let (lag_blocks, lag_ns) = lag(&world);
        assert!(lag_blocks <= 100 && lag_ns >= 1900 * MS, "{lag_blocks} blocks, {lag_ns} ns");
        world.release();
        for ticket in tickets {
            world.succeed(ticket)?;
        }
        world.run_dry()?;
        assert_eq!(lag(&world), (0, 0), "an idle cache is home");
        world.expect_origin_equals_view(0)
    });
}

/// Goal: a write waits when an older one is not home for too long, however little there is.
#[test]
fn writes_wait_when_one_is_not_home_for_long() {
    sound(|| {
        let mut world = world("strict", OrderBounds { lag_ns: 500 * MS, ..WIDE });
        world.run_dry()?;
        world.hold(|io| io.is_origin(0, Kind::Write));
        write(&mut world, 10)?;
        world.pass(400 * MS)?;
        write(&mut world, 11)?;
        world.pass(200 * MS)?;
        let late = world.write(0, blocks(12, 1));
        world.pass(2000 * MS)?;
        assert!(world.answer(late).is_none(), "the first one is not home");
        world.release();
        world.succeed(late)?;
        world.run_dry()
    });
}

/// Goal: an overwritten block costs room until its versions are home, and the ring never stops for that. Method: the same few
/// blocks written and flushed, more often than the ring has room for.
#[test]
fn old_versions_leave_the_ring_when_they_are_home() {
    sound(|| {
        let mut world = world("strict", WIDE);
        world.run_dry()?;
        for step in 0..6000 {
            write(&mut world, step % 7)?;
            if step % 5 == 0 {
                flush(&mut world)?;
                world.expect_order()?;
            }
        }
        assert!(world.counts().wraps >= 2, "the ring went round");
        world.run_dry()?;
        world.expect_origin_equals_view(0)
    });
}

/// Goal: order begins and ends while clients write, and counts from the answer on, over crashes. Method: writes without
/// end, the order changed and the process killed meanwhile.
#[test]
fn the_order_changes_while_clients_write() {
    sound(|| {
        let mut world = world("free", WIDE);
        world.run_dry()?;
        let mut step = 0;
        for round in 0..60 {
            let is_strict = round % 2 == 0;
            for _ in 0..40 {
                world.write(0, blocks(step * 37 % 900, 1));
                step += 1;
            }
            let change = world.submit(0, RequestOp::SetOrder(is_strict));
            for _ in 0..40 {
                world.write(0, blocks(step * 37 % 900, 1));
                step += 1;
            }
            world.succeed(change)?;
            if is_strict {
                world.begin_order();
            } else {
                world.end_order();
            }
            for _ in 0..20 {
                write(&mut world, step * 37 % 900)?;
                flush(&mut world)?;
                world.expect_order()?;
                step += 1;
            }
            if round % 3 == 0 {
                world.kill_by_chance();
                world.open()?;
            }
            let status = world.engine().expect("an engine runs").status();
            assert_eq!(status.volumes[0].order.is_some(), is_strict, "what was answered stays");
            world.verify_cut()?;
        }
        world.run_dry()?;
        // Something listed for ever would keep its segment for ever.
        for _ in 0..3000 {
            write(&mut world, step * 37 % 900)?;
            step += 1;
        }
        assert!(world.counts().wraps >= 2, "the ring goes round");
        world.run_dry()?;
        world.expect_origin_equals_view(0)
    });
}

/// Goal: an order ends when all that came before is in it, and nothing of that holds its segment for ever. Method: a batch is held
/// until the order could end; then the ring goes round.
#[test]
fn an_order_does_not_end_before_what_is_on_its_way() {
    sound(|| {
        let mut world = world("strict", WIDE);
        world.run_dry()?;
        world.hold(|io| io.is_cache(Kind::Write));
        let write_under_way = world.write(0, blocks(10, 1));
        let batch = world.until_pending(|io| io.is_cache(Kind::Write))?;
        assert!(batch.first >= SUPERBLOCK_END, "it is a batch");
        let change = world.submit(0, RequestOp::SetOrder(false));
        world.pass(100 * MS)?;
        assert!(world.answer(change).is_none(), "a write is on its way");
        world.release();
        world.succeed(write_under_way)?;
        world.succeed(change)?;
        world.end_order();
        go_round(&mut world)
    });
}

/// The ring goes round, and all comes home.
fn go_round(world: &mut World) -> Run {
    for step in 0..6000 {
        write(world, step * 37 % 900)?;
    }
    assert!(world.counts().wraps >= 2, "the ring goes round");
    world.run_dry()?;
    world.expect_origin_equals_view(0)
}

/// Goal: a write that reads the rest of its block while an order ends, and is in that order then, holds its segment no longer than
/// others do. Method: the read is held, and so is the superblock that ends the order; then the ring goes round.
#[test]
fn a_write_that_reads_while_an_order_ends_leaves_the_ring() {
    sound(|| {
        let mut world = world("strict", WIDE);
        world.run_dry()?;
        let is_superblock = |io: &IoView| io.is_cache(Kind::Write) && io.first < SUPERBLOCK_END;
        world.hold(move |io| is_superblock(io) || io.is_origin(0, Kind::Read));
        let part = world.write(0, sectors(81, 1));
        let rest = world.until_pending(|io| io.is_origin(0, Kind::Read))?;
        let change = world.submit(0, RequestOp::SetOrder(false));
        world.until_pending(is_superblock)?;
        world.complete(rest.id)?;
        world.succeed(part)?;
        world.release();
        world.succeed(change)?;
        world.end_order();
        go_round(&mut world)
    });
}

/// Goal: a write that was on its way when an order began is home in the end, and holds up nobody. Method: one whose header is
/// late, held back at the device while the order changes.
#[test]
fn an_order_begins_behind_what_is_on_its_way() {
    sound(|| {
        let setup = Setup { has_lasting_memory: true, segments: 64, segment_blocks: 1024, ..Setup::new(7) };
        let mut world = World::new(Setup { composition: Composition::forebay().text(), ..setup });
        world.run_dry()?;
        write(&mut world, 1)?;
        flush(&mut world)?;
        let drain = world.submit(0, RequestOp::Drain);
        world.succeed(drain)?;
        world.hold(|io| io.is_cache(Kind::Write));
        let on_its_way = world.write(0, blocks(10, 1));
        let payload = world.until_pending(|io| io.is_cache(Kind::Write))?;
        assert_eq!(payload.sectors * 512, BLOCK_BYTES, "its header is late");
        let change = world.submit(0, RequestOp::SetOrder(true));
        world.pass(MS)?;
        world.release();
        world.succeed(on_its_way)?;
        world.succeed(change)?;
        world.begin_order();
        for block in 20..40 {
            write(&mut world, block)?;
            flush(&mut world)?;
        }
        world.run_dry()?;
        assert_eq!(lag(&world), (0, 0), "all of it is home");
        world.expect_origin_equals_view(0)
    });
}

/// Goal: what went home in order is home. Method: the order ends, and the cache stops.
#[test]
fn what_went_home_in_order_is_clean_after_a_stop() {
    sound(|| {
        let mut world = world("strict", WIDE);
        world.run_dry()?;
        for block in 0..50 {
            write(&mut world, block * 3)?;
        }
        flush(&mut world)?;
        let change = world.submit(0, RequestOp::SetOrder(false));
        world.succeed(change)?;
        world.end_order();
        world.stop()?;
        world.open()?;
        let status = world.engine().expect("an engine runs").status();
        assert_eq!((status.volumes[0].dirty_bytes, status.volumes[0].cached_bytes), (0, 50 * BLOCK_BYTES));
        world.verify()
    });
}

/// Goal: a mode or a volume that strict order does not go with does not come while an order begins. Method: the origin is held
/// back, so that the order waits.
#[test]
fn nothing_slips_in_while_an_order_begins() {
    sound(|| {
        let setup = Setup { composition: Composition::forebay().text(), ..Setup::new(8) };
        let mut world = World::new(setup.with_modes(&[WriteMode::Writeback, WriteMode::Writeback]));
        world.run_dry()?;
        let detach = world.submit(1, RequestOp::Detach);
        world.succeed(detach)?;
        world.hold(|io| io.is_origin(0, Kind::Write));
        write(&mut world, 10)?;
        let change = world.submit(0, RequestOp::SetOrder(true));
        let mode = world.submit(0, RequestOp::SetMode(WriteMode::Writearound));
        assert_eq!(world.wait(mode)?, Err(Errno::INVAL));
        let add = world.add(1, WriteMode::Writeback);
        assert_eq!(world.wait(add)?, Err(Errno::INVAL));
        world.release();
        world.succeed(change)?;
        world.begin_order();
        write(&mut world, 11)?;
        flush(&mut world)
    });
}

/// Goal: a change of order that cannot be keeps clients waiting no longer than an origin counts as failing. Method: one that takes
/// nothing for a minute.
#[test]
fn a_change_of_order_does_not_wait_for_an_origin_that_is_absent() {
    sound(|| {
        for (before, is_strict) in [("free", true), ("strict", false)] {
            let mut world = world(before, WIDE);
            world.run_dry()?;
            for kind in [Kind::Write, Kind::Flush] {
                world.origin(0).faults.fail_always(kind, Errno::IO);
            }
            write(&mut world, 10)?;
            let change = world.submit(0, RequestOp::SetOrder(is_strict));
            let beside = world.write(0, blocks(11, 1));
            world.pass(60_000 * MS)?;
            assert_eq!(world.answer(change).map(|answer| answer.result), Some(Err(Errno::IO)), "{before}");
            let answer = world.answer(beside).map(|answer| answer.result);
            assert!(answer.is_some(), "{before}: it waits for a change that cannot be");
            world.origin(0).faults.heal();
            world.run_dry()?;
            let change = world.submit(0, RequestOp::SetOrder(is_strict));
            world.succeed(change)?;
            write(&mut world, 12)?;
            flush(&mut world)?;
            world.run_dry()?;
            world.expect_origin_equals_view(0)?;
        }
        Ok(())
    });
}

/// Goal: what strict order cannot have is refused.
#[test]
fn what_does_not_go_with_strict_order_is_refused() {
    sound(|| {
        let mut world = world("strict", WIDE);
        world.run_dry()?;
        let mode = world.submit(0, RequestOp::SetMode(WriteMode::Writearound));
        assert_eq!(world.wait(mode)?, Err(Errno::INVAL));
        let mut setup = Setup::new(8);
        setup.composition = Composition::forebay().text();
        let setup = setup.with_modes(&[WriteMode::Writeback, WriteMode::Writeback]);
        let mut shared = World::new(setup);
        shared.run_dry()?;
        let order = shared.submit(0, RequestOp::SetOrder(true));
        assert_eq!(shared.wait(order)?, Err(Errno::INVAL), "it would hold up the other volume");
        Ok(())
    });
}

/// Goal: a volume that takes the place of one in strict order goes home in that order, too, and comes in no other mode.
#[test]
fn a_volume_that_is_added_goes_home_in_order() {
    sound(|| {
        let mut world = world("strict", WIDE);
        write(&mut world, 10)?;
        world.run_dry()?;
        let detach = world.submit(0, RequestOp::Detach);
        world.succeed(detach)?;
        let around = world.add(0, WriteMode::Writearound);
        assert_eq!(world.wait(around)?, Err(Errno::INVAL));
        let add = world.add(0, WriteMode::Writeback);
        world.succeed(add)?;
        world.hold(|io| io.is_origin(0, Kind::Write));
        write(&mut world, 20)?;
        assert_eq!(lag(&world).0, 1);
        world.release();
        world.run_dry()?;
        world.expect_origin_equals_view(0)
    });
}
