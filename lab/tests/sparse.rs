//! Goal: who writes over few blocks all the time costs others nothing of what is cached, and the disk next to nothing. Method:
//! small caches on modelled disks, random writes to little of them and random reads, and what was hit and written.

use engine::composition::Composition;
use engine::effect::WriteMode;
use engine::prng::Prng;
use forebay_lab::replay::{Outcome, Pace, Plan, replay};
use forebay_lab::trace::{Reading, Survey, read};
use std::fmt::Write as _;

const CACHE_BYTES: u64 = 64 << 20;
const REQUESTS: u64 = 200_000;
/// The blocks that are read lie behind those that are written.
const READ_FROM: u64 = 100_000;

/// Requests of one block, 32 at a time: so many writes among a hundred, to the first blocks, and reads of others.
struct Load {
    write_percent: u32,
    written_blocks: u32,
    read_from: u64,
    read_blocks: u32,
}

impl Load {
    fn carry_out(&self) -> Outcome {
        let mut prng = Prng::new(1);
        let mut text = String::new();
        for _ in 0..REQUESTS {
            let (kind, block) = if prng.below(100) < self.write_percent {
                ('w', u64::from(prng.below(self.written_blocks)))
            } else {
                ('r', self.read_from + u64::from(prng.below(self.read_blocks)))
            };
            writeln!(text, "0,{},4096,{kind},0", block * 8).expect("a string takes all");
        }
        let source = || {
            let reading = Reading { format: None, unit_bytes: None };
            read("load.spc", text.as_bytes(), reading).expect("a trace")
        };
        let survey = Survey::of(source().as_mut(), &mut |_| ()).expect("well-formed");
        let model = |name| models::find(name).expect("a model that is built in");
        let (cache, origin) = (model("ssd"), model("hdd"));
        let plan = Plan {
            composition: &Composition::forebay(),
            cache: &cache,
            cache_bytes: CACHE_BYTES,
            origin: &origin,
            mode: WriteMode::Writeback,
        };
        replay(&plan, Pace::Depth(32), &survey, source().as_mut(), |_| (), &mut |_| ())
            .expect("nothing fails")
    }
}

#[test]
fn what_is_read_stays_beside_writes_over_few_blocks() {
    let load = Load { write_percent: 92, written_blocks: 1000, read_from: READ_FROM, read_blocks: 8000 };
    let outcome = load.carry_out();
    let reads = outcome.hits + outcome.misses;
    // Each of them has to be read once.
    let most = reads - u64::from(load.read_blocks);
    assert!(outcome.hits * 10 >= most * 8, "{} hits of {most} that there could be", outcome.hits);
    let (written_bytes, user_bytes) = (outcome.cache.written_bytes, outcome.client_written_bytes);
    assert!(written_bytes <= user_bytes * 9 / 4, "{written_bytes} bytes for {user_bytes}");
}

#[test]
fn what_is_read_once_does_not_wear_the_cache_device() {
    let load = Load { write_percent: 92, written_blocks: 1000, read_from: READ_FROM, read_blocks: 4_000_000 };
    let outcome = load.carry_out();
    let (written_bytes, user_bytes) = (outcome.cache.written_bytes, outcome.client_written_bytes);
    assert!(written_bytes <= user_bytes * 23 / 20, "{written_bytes} bytes for {user_bytes}");
}

#[test]
fn what_is_written_over_again_stays_in_the_cache() {
    let load = Load { write_percent: 80, written_blocks: 8000, read_from: 0, read_blocks: 8000 };
    let outcome = load.carry_out();
    let (home_bytes, user_bytes) = (outcome.origin.written_bytes, outcome.client_written_bytes);
    assert!(home_bytes * 4 <= user_bytes, "{home_bytes} bytes of {user_bytes} went home");
    let reads = outcome.hits + outcome.misses;
    assert!(outcome.misses * 10 <= reads, "{} of {reads} reads needed the disk", outcome.misses);
}

#[test]
fn what_is_written_over_again_stays_in_a_full_cache_too() {
    let load = Load { write_percent: 80, written_blocks: 6000, read_from: READ_FROM, read_blocks: 8000 };
    let outcome = load.carry_out();
    let (home_bytes, user_bytes) = (outcome.origin.written_bytes, outcome.client_written_bytes);
    assert!(home_bytes * 5 <= user_bytes, "{home_bytes} bytes of {user_bytes} went home");
}

#[test]
fn what_is_written_once_leaves_room_for_what_is_read() {
    let load =
        Load { write_percent: 30, written_blocks: 4_000_000, read_from: 5_000_000, read_blocks: 12_000 };
    let outcome = load.carry_out();
    let reads = outcome.hits + outcome.misses;
    assert!(outcome.misses * 100 <= reads * 27, "{} of {reads} reads needed the disk", outcome.misses);
}
