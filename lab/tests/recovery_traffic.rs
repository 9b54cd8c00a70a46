//! The cost of a crash: dm-cache counts all cached data as dirty, MapperX the pieces below the marked leaves of its
//! tree. The same histories for both, and the data that then really goes home.

use engine::composition::Composition;
use engine::effect::RequestOp;
use engine::units::Nanos;
use forebay_lab::world::{Setup, SlotSetup, VolumeSetup, World};
use std::collections::BTreeSet;

/// Blocks of a slot: 256 KiB.
const SLOT_BLOCKS: u64 = 64;
const SLOTS: u64 = 256;
/// Pieces of the volume: four times what the cache holds.
const PIECES: u64 = 4 * SLOTS;
const DIRTY: usize = 40;
/// Pieces below a finest leaf of MapperX.
const LEAF_PIECES: u64 = 32;
/// How long clients read before the power fails, so that the tree may become fine.
const READS_NS: u64 = 20 * Nanos::SECOND;

/// What a crash came to, in pieces.
#[derive(Debug, PartialEq, Eq)]
struct Recovery {
    /// What the next start took for dirty.
    suspect: u64,
    /// What it wrote home.
    written_home: u64,
    /// How long that took.
    millis: u64,
}

fn world(persistence: &str) -> World {
    let mut composition = Composition::plain_slots();
    let slot_bytes = (SLOT_BLOCKS * 4096).to_string();
    for (name, value) in [("slot_bytes", &*slot_bytes), ("ways", "0"), ("persistence", persistence)] {
        composition.set(name, value).expect("it is possible");
    }
    composition.validate().expect("it is possible");
    let mut setup = Setup::new(1);
    setup.slots = Some(SlotSetup::new(SLOTS as u32, composition));
    setup.volumes = vec![VolumeSetup { sectors: PIECES * SLOT_BLOCKS * 8, ..setup.volumes[0] }];
    World::new(setup)
}

fn range(piece: u64, blocks: u64) -> engine::units::SectorRange {
    forebay_lab::world::blocks(piece * SLOT_BLOCKS, blocks)
}

/// Fills the cache with clean pieces, writes 4 KiB to each of `dirty`, reads for a while, and cuts the power.
fn crash(persistence: &str, dirty: &[u64]) -> Recovery {
    let mut world = world(persistence);
    for piece in 0..SLOTS {
        let ticket = world.write(0, range(piece, SLOT_BLOCKS));
        world.succeed(ticket).expect("written");
    }
    world.ask(0, RequestOp::Drain).expect("sound").expect("all goes home");
    for &piece in dirty {
        let ticket = world.write(0, range(piece, 1));
        world.succeed(ticket).expect("written");
    }
    let ticket = world.flush(0);
    world.succeed(ticket).expect("flushed");
    let until = world.now_ns() + READS_NS;
    while world.now_ns() < until {
        let ticket = world.read(0, range(0, 1));
        world.succeed(ticket).expect("read");
        world.pass(Nanos::MILLISECOND / 2).expect("sound");
    }
    world.cut_power(|_| forebay_lab::disk::Fate::Lost);
    let before = world.counts_so_far().destaged_blocks;
    world.open().expect("opened");
    let report = *world.reports().last().expect("a start");
    let start = world.now_ns();
    world.ask(0, RequestOp::Drain).expect("sound").expect("all goes home");
    let millis = (world.now_ns() - start) / Nanos::MILLISECOND;
    world.verify().expect("all is there");
    let destaged = world.counts().destaged_blocks - before;
    let slot_bytes = SLOT_BLOCKS * 4096;
    Recovery { suspect: report.redestage_bytes / slot_bytes, written_home: destaged / SLOT_BLOCKS, millis }
}

/// Pieces that share a finest leaf with one of these, and are in the cache.
fn below_leaves(dirty: &[u64]) -> u64 {
    let leaves: BTreeSet<u64> = dirty.iter().map(|piece| piece / LEAF_PIECES).collect();
    leaves.iter().map(|leaf| (SLOTS - leaf * LEAF_PIECES).min(LEAF_PIECES)).sum()
}

/// Goal: the traffic of a recovery, measured, for the same histories. Method: 256 slots of 256 KiB, 40 of them dirty, a
/// power cut; what goes home afterwards is counted on the device.
#[test]
fn dm_cache_and_mapperx_on_the_same_histories() {
    let sequential: Vec<u64> = (8..8 + DIRTY as u64).collect();
    let local: Vec<u64> = (0..DIRTY as u64).map(|at| at / 8 * 48 + at % 8).collect();
    // Every sixth: all over the cache.
    let sparse: Vec<u64> = (0..DIRTY as u64).map(|at| at * 6 + at % 5).collect();
    println!("history      dirty | dm-cache: suspect, home, ms | mapperx: suspect, home, ms");
    for (name, dirty) in [("sequential", sequential), ("local", local), ("sparse", sparse)] {
        let all = crash("commit", &dirty);
        let tree = crash("bit-tree", &dirty);
        println!(
            "{name:<12} {:>5} | {:>17} {:>5} {:>5} | {:>16} {:>5} {:>5}",
            dirty.len(),
            all.suspect,
            all.written_home,
            all.millis,
            tree.suspect,
            tree.written_home,
            tree.millis
        );
        assert_eq!((all.suspect, all.written_home), (SLOTS, SLOTS), "{name}: all that is cached");
        let expected = below_leaves(&dirty);
        assert_eq!((tree.suspect, tree.written_home), (expected, expected), "{name}: whole leaves");
        assert!(tree.suspect >= dirty.len() as u64);
    }
}
