//! A cache device that fails slowly under a load of many clients, and what is no such device.

use engine::effect::WriteMode;
use engine::units::Nanos;
use forebay_lab::disk::faults::{Fault, Kind};
use forebay_lab::world::{Latency, Setup, Ticket, World, blocks};

const MS: u64 = Nanos::MILLISECOND;
/// Clean blocks that are read.
const BLOCKS: u64 = 256;

/// A world with clean blocks in the cache, whose device is known.
fn known(setup: Setup) -> World {
    let mut world = World::new(setup);
    world.run_dry().unwrap();
    // What the origin holds unflushed does not enter.
    let write = world.write(0, blocks(1000, 1));
    world.succeed(write).unwrap();
    let drain = world.submit(0, engine::effect::RequestOp::Drain);
    world.succeed(drain).unwrap();
    for first in (0..BLOCKS).step_by(16) {
        let read = world.read(0, blocks(first, 16));
        world.succeed(read).unwrap();
        world.pass(20 * MS).unwrap();
    }
    reads(&mut world, 1, 10_000 * MS, 20 * MS);
    world
}

/// `clients` read a block each until that time is over; returns the longest times that reads took, longest first.
fn reads(world: &mut World, clients: u64, for_ns: u64, pause_ns: u64) -> Vec<u64> {
    let end_ns = world.now_ns() + for_ns;
    let mut waits: Vec<(u64, Ticket)> = Vec::new();
    let (mut took, mut next) = (Vec::new(), 0);
    while world.now_ns() < end_ns {
        while (waits.len() as u64) < clients {
            next = (next + 37) % BLOCKS;
            waits.push((world.now_ns(), world.read(0, blocks(next, 1))));
        }
        let before = waits.len();
        waits.retain(|(begin_ns, ticket)| {
            let is_answered = world.answer(*ticket).is_some();
            if is_answered {
                took.push(world.now_ns() - begin_ns);
            }
            !is_answered
        });
        if waits.len() < before && pause_ns > 0 {
            world.pass(pause_ns).unwrap();
        } else if waits.len() == before && !world.step().unwrap() {
            world.pass(MS).unwrap();
        }
    }
    waits.into_iter().for_each(|(_, ticket)| world.succeed(ticket).unwrap());
    took.sort_unstable_by(|one, other| other.cmp(one));
    took
}

fn is_passed_by(world: &World) -> bool {
    world.engine().expect("an engine runs").status().cache.pace.passed_for_ns.is_some()
}

fn passed_blocks(world: &World) -> u64 {
    let status = world.engine().expect("an engine runs").status();
    status.volumes[0].counters.read_bypasses.slow_cache_blocks
}

fn make_slow(world: &mut World, by_ns: u64) {
    for kind in [Kind::Read, Kind::Write, Kind::Flush] {
        world.cache().faults.plan(kind, Fault::Slow { by_ns }, u32::MAX);
    }
}

#[test]
fn a_device_that_hangs_for_a_second_with_each_read_is_left_to_itself() {
    let mut world = known(Setup::new(1).with_modes(&[WriteMode::Writeback]));
    make_slow(&mut world, 1000 * MS);
    reads(&mut world, 16, 4000 * MS, 0);
    assert!(is_passed_by(&world));
    let took = reads(&mut world, 16, 5000 * MS, 0);
    assert!(took[0] <= 2 * MS, "the origin takes 2 ms at the most, and a read took {} us", took[0] / 1000);
    world.cache().faults.heal();
    reads(&mut world, 16, 6000 * MS, 0);
    assert!(!is_passed_by(&world));
    let before = passed_blocks(&world);
    reads(&mut world, 16, 500 * MS, 0);
    assert_eq!(passed_blocks(&world), before);
    world.verify().unwrap();
}

/// The cache takes 20 ms more. The origin takes 100 ms, which a read a second finds out.
#[test]
fn an_origin_that_is_slower_still_is_not_asked() {
    let mut setup = Setup::new(1).with_modes(&[WriteMode::Writeback]);
    setup.origin_latency = Latency { least_ns: 90 * MS, most_ns: 100 * MS };
    let mut world = known(setup);
    make_slow(&mut world, 20 * MS);
    reads(&mut world, 8, 5000 * MS, 0);
    assert!(is_passed_by(&world));
    let took = reads(&mut world, 8, 10_000 * MS, 0);
    let long = took.iter().filter(|took| **took > 21 * MS).count();
    assert!(long <= 12, "{long} reads of {} took longer than from the cache", took.len());
    world.verify().unwrap();
}

/// A hundred reads at a time, each a hundred times as long as one alone: the device delivers more than ever.
#[test]
fn a_burst_is_no_slowness() {
    let mut world = known(Setup::new(1).with_modes(&[WriteMode::Writeback]));
    make_slow(&mut world, 6 * MS);
    reads(&mut world, 100, 3000 * MS, 0);
    assert!(!is_passed_by(&world));
    assert_eq!(passed_blocks(&world), 0);
}
