//! The engine against the oracle: random requests, sizes, modes; crashes of the process and of
//! the power. Goal: whatever was promised is read again. Each case is one seed.

mod world;

use engine::effect::{RequestOp, WriteMode};
use engine::units::SectorRange;
use world::{Setup, World};

const CACHE_BYTES: usize = 32 << 20;

fn world(seed: u64, modes: &[WriteMode]) -> World {
    World::new(Setup {
        cache_bytes: CACHE_BYTES,
        volume_sectors: modes.iter().map(|_| 65536 * 2 + 3).collect(),
        modes: modes.to_vec(),
        seed,
    })
}

#[test]
fn a_write_is_read_again() {
    let mut world = world(1, &[WriteMode::Writeback]);
    world.write(0, SectorRange { start: 8, sectors: 8 }, false);
    world.finish();
    world.read(0, SectorRange { start: 0, sectors: 32 });
    world.finish();
    world.stop();
    world.open();
    world.verify_all(false, false);
    world.stop();
}

#[test]
fn random_requests_in_every_mode() {
    for (mode, name) in WriteMode::ALL {
        for seed in 0..3 {
            println!("mode {name} seed {seed}");
            let mut world = world(seed, &[mode]);
            world.run(6000, 24);
            world.finish();
            world.verify_all(false, false);
            world.stop();
            world.open();
            world.verify_all(false, false);
        }
    }
}

#[test]
fn power_cuts_and_kills_in_every_mode() {
    for (mode, name) in WriteMode::ALL {
        for seed in 100..104 {
            println!("mode {name} seed {seed}");
            let mut world = world(seed, &[mode]);
            for round in 0..6 {
                world.run(1500, 24);
                let power = round % 3 != 2;
                world.crash(power);
                world.open();
                world.verify_all(true, power);
            }
            world.finish();
            world.stop();
        }
    }
}

#[test]
fn detach_leaves_the_origin_equal_to_the_view() {
    let mut world = world(7, &[WriteMode::Writeback, WriteMode::Writethrough]);
    world.run(8000, 32);
    world.finish();
    for volume in 0..2 {
        world.ask(volume, RequestOp::Drain).expect("a drain ends");
        let status = world.engine.as_ref().unwrap().status();
        assert_eq!(status.volumes[volume].dirty_bytes, 0);
    }
    let views: Vec<Vec<u8>> = (0..2).map(|volume| world.origins[volume].bytes().to_vec()).collect();
    world.verify_all(true, false);
    for (volume, view) in views.iter().enumerate() {
        world.ask(volume, RequestOp::Detach).expect("a clean volume is detached");
        assert!(world.origins[volume].bytes() == view);
    }
}

#[test]
fn modes_change_while_running() {
    let mut world = world(11, &[WriteMode::Writeback, WriteMode::Writeback]);
    for round in 0..30u64 {
        world.run(700, 16);
        let volume = (round % 2) as usize;
        let (mode, _) = WriteMode::ALL[(round * 7 % 4) as usize];
        world.submit(volume, RequestOp::SetMode(mode));
        if round % 5 == 4 {
            world.crash(round % 2 == 0);
            world.open();
            world.verify_all(true, round % 2 == 0);
        }
    }
    world.finish();
    world.stop();
}
