//! Caches that may be gone at any start, and that are warmed, on each way to keep records: random histories with power cuts and
//! kills, on devices that work and on devices that fail; and what warming brings.

use crate::histories::run_any;
use engine::composition::Composition;
use engine::effect::{Errno, WriteMode};
use engine::engine::{CachedRun, Cursor};
use engine::format::{Geometry, KeyLayout};
use engine::units::VolumeIndex;
use forebay_lab::swarm::{Knob, Options};
use forebay_lab::world::{Setup, SlotSetup, World, blocks};

const SEEDS: u64 = 120;
const CUTS_MIN: u64 = 700;

/// Each way to keep records.
fn kinds() -> [fn(Options) -> Options; 7] {
    [
        |options| options,
        Options::with_slots,
        |options| options.with_transactions(false),
        |options| options.with_transactions(true),
        Options::with_buckets,
        Options::with_mirror,
        Options::with_frames,
    ]
}

fn blank_and_warmed(mut options: Options, is_faulty: bool) -> Options {
    options.set(Knob::early, 0);
    options.set(Knob::safe, 1);
    options.set(Knob::blank_caches, 50);
    options.set(Knob::warms, 40);
    if !is_faulty {
        options.set(Knob::faulty, 0);
    }
    options
}

/// Goal: what was promised outlives any number of caches that are gone, and no older one is ever served. Method: half of all
/// starts find a blank device, which is formatted where the notes allow it, and is cut while it is.
#[test]
fn caches_that_are_gone_take_nothing_with_them() {
    for kind in kinds() {
        run_any(SEEDS, CUTS_MIN, |options| blank_and_warmed(kind(options), false));
    }
}

#[test]
fn nor_on_devices_that_fail() {
    for kind in kinds() {
        run_any(SEEDS, CUTS_MIN / 2, |options| blank_and_warmed(kind(options), true));
    }
}

/// Worlds with each way to keep records, and room for 32 neighbouring blocks.
fn worlds() -> Vec<(&'static str, World)> {
    let setup = || Setup::new(3).with_modes(&[WriteMode::Writethrough]);
    let geometry = Geometry { segments: 64, segment_blocks: 32 };
    let with_slots = |persistence: &str| {
        let mut composition = Composition::plain_slots();
        composition.set("ways", "0").expect("a tunable");
        composition.set("persistence", persistence).expect("a choice");
        Setup { slots: Some(SlotSetup::new(128, composition)), ..setup() }
    };
    let buckets = KeyLayout { geometry, bucket_blocks: 32, buckets: 8 };
    let frames = KeyLayout { geometry, bucket_blocks: 16, buckets: 16 };
    [
        ("inline", setup()),
        ("sync-sector", with_slots("sync-sector")),
        ("commit", with_slots("commit")),
        ("bit-tree", with_slots("bit-tree")),
        ("journal", setup().with_buckets(buckets, &[], true)),
        ("mirror", setup().with_mirror(512, true)),
        ("frames", setup().with_frames(frames)),
    ]
    .map(|(name, setup)| (name, World::new(setup)))
    .into()
}

fn absent(world: &World, first: u64, count: u64) -> u64 {
    let engine = world.engine().expect("it runs");
    engine.absent(VolumeIndex(0), first, count).iter().map(|(_, blocks)| blocks).sum()
}

fn cached(world: &World) -> Vec<CachedRun> {
    let engine = world.engine().expect("it runs");
    let (mut runs, mut from) = (Vec::new(), Some(Cursor::default()));
    while let Some(at) = from {
        from = engine.visit_cached(at, 3, &mut |run| runs.push(run));
    }
    runs
}

/// Goal: what is asked for enters without a second read, is hit afterwards, and is told of, and nothing is read twice. Method: the
/// origin's reads are counted while a range is warmed, warmed again, and read.
#[test]
fn what_is_warmed_is_cached_and_hit() {
    for (name, mut world) in worlds() {
        world.run_dry().expect("sound");
        assert_eq!(absent(&world, 100, 32), 32, "{name}");
        let warm = world.warm(0, blocks(100, 32));
        world.succeed(warm).expect("it is read");
        world.pass(3_000_000_000).expect("sound");
        assert_eq!(absent(&world, 100, 32), 0, "{name}");
        let told: u64 = cached(&world).iter().map(|run| u64::from(run.blocks)).sum();
        assert_eq!(told, 32, "{name}: all that is cached is told of");
        // From now on the origin answers nobody.
        world.origin(0).faults.gone = Some(Errno::NODEV);
        let again = world.warm(0, blocks(100, 32));
        world.succeed(again).expect("there is nothing to read");
        let read = world.read(0, blocks(100, 32));
        world.succeed(read).expect("the cache has it");
    }
}

/// Goal: nothing is read in vain at a start. Method: a range is warmed at once, while the first flush of the origin is under way,
/// without which nothing is clean; who is refused asks again.
#[test]
fn what_is_warmed_at_once_is_cached() {
    for (name, mut world) in worlds() {
        let mut warm = world.warm(0, blocks(100, 32));
        while world.wait(warm).expect("it is answered") == Err(Errno::NOSPC) {
            world.pass(20_000_000).expect("sound");
            warm = world.warm(0, blocks(100, 32));
        }
        world.pass(3_000_000_000).expect("sound");
        assert_eq!(absent(&world, 100, 32), 0, "{name}");
    }
}

/// Goal: warming pushes nothing out. Method: far more is asked for than there is room, then the first of it again.
#[test]
fn without_room_nothing_enters_and_nothing_leaves() {
    for (name, mut world) in worlds() {
        world.run_dry().expect("sound");
        let count = 32;
        for first in (0..1400).step_by(count as usize) {
            for _ in 0..20 {
                let warm = world.warm(0, blocks(first, count));
                let result = world.wait(warm).expect("it is answered");
                world.pass(20_000_000).expect("sound");
                if result != Err(Errno::NOSPC) {
                    break;
                }
            }
        }
        world.pass(3_000_000_000).expect("sound");
        assert_eq!(absent(&world, 0, 16), 0, "{name}: what came first is still there");
        world.verify().expect("all reads as it should");
    }
}

/// Goal: what is hit is worth more. Method: two blocks are warmed, one is read.
#[test]
fn hits_are_told_of_where_they_are_counted() {
    for (name, mut world) in worlds().into_iter().filter(|(name, _)| ["inline", "mirror"].contains(name)) {
        world.run_dry().expect("sound");
        for first in [3, 90] {
            let warm = world.warm(0, blocks(first, 1));
            world.succeed(warm).expect("it is read");
        }
        world.pass(100_000_000).expect("sound");
        for _ in 0..2 {
            let read = world.read(0, blocks(90, 1));
            world.succeed(read).expect("it is cached");
        }
        let hits = |block| cached(&world).iter().find(|run| run.first_block == block).map(|run| run.hits);
        assert_eq!((hits(3), hits(90)), (Some(0), Some(2)), "{name}");
    }
}
