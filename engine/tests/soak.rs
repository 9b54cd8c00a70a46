//! Seeds without end: `SEEDS=first..end cargo test -p engine --release --test soak -- --nocapture`.
//! Without the variable a few seeds run. Each draws its modes, sizes and cuts, and prints them.

mod world;

use engine::effect::{RequestOp, WriteMode};
use world::disk::Random;
use world::{Setup, World};

/// Seeds that found something, with what it was.
#[test]
fn seeds_that_once_failed() {
    // A FLUSH that came while the origin was being flushed was never answered.
    one(1193);
    // A flush of the cache was under way when a clean stop was answered.
    one(1054);
}

#[test]
fn seeds() {
    let text = std::env::var("SEEDS").unwrap_or_else(|_| "0..4".into());
    let (first, end) = text.split_once("..").expect("SEEDS is first..end");
    for seed in first.parse::<u64>().unwrap()..end.parse::<u64>().unwrap() {
        one(seed);
    }
}

fn one(seed: u64) {
    let mut random = Random::new(seed ^ 0x5eed);
    let volumes = 1 + random.below(3);
    let modes: Vec<WriteMode> =
        (0..volumes)
            .map(|_| {
                if random.one_in(2) {
                    WriteMode::Writeback
                } else {
                    WriteMode::ALL[random.below(5) as usize].0
                }
            })
            .collect();
    let sizes: Vec<u64> = (0..volumes).map(|_| 8000 + random.below(100_000)).collect();
    let cache_mib = 32 + random.below(3) as usize * 8;
    let depth = 1 + random.below(40) as usize;
    let steps = 200 + random.below(3000);
    println!(
        "seed {seed}: modes {modes:?} sizes {sizes:?} cache {cache_mib} MiB depth {depth} steps {steps}"
    );
    let mut world = World::new(Setup { cache_bytes: cache_mib << 20, volume_sectors: sizes, modes, seed });
    for _ in 0..3 + random.below(6) {
        world.run(steps, depth);
        if random.one_in(3) {
            let volume = random.below(volumes) as usize;
            let (mode, _) = WriteMode::ALL[random.below(4) as usize];
            if world.modes[volume] != WriteMode::Readonly {
                world.submit(volume, RequestOp::SetMode(mode));
                world.run(steps / 4, depth);
            }
        }
        if random.one_in(4) {
            world.finish();
            world.stop();
            world.open();
            world.verify_all(false, false);
            continue;
        }
        let power = !random.one_in(3);
        world.crash(power);
        // A second crash soon after the first.
        if random.one_in(3) {
            world.open();
            world.run(random.below(60), depth);
            world.crash(power);
        }
        world.open();
        world.verify_all(true, power);
    }
    world.finish();
    world.stop();
}
