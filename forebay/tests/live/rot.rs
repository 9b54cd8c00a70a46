//! Bits flip in a cache that is switched off: clients read what they wrote last, or an error, and never old data.
//!
//! Goal: the promise of a checksummed cache holds for the real files of a real daemon, whatever bit flips. Method: all
//! blocks of a volume are written in one generation after the other; the daemon is stopped or killed, bits flip where the cache has
//! anything, and the next daemon may refuse the cache, but not serve an earlier generation. A kill comes late enough for the cache
//! to have said durably what was flushed, as `ARCHITECTURE.md` bounds it; a stop comes at once.
//!
//! `FOREBAY_ROT_BITS` is the number of flipped bits for each profile (40), `FOREBAY_SEED` what they are drawn from,
//! `FOREBAY_PROFILES` whose caches they are.

use crate::daemon::{Daemon, Site};
use crate::settings::{number, profiles};
use live::nbd::client::{Address, Client};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;
const VOLUME_BYTES: u64 = 4 * MIB;
/// Twice the volume and more: both generations find room in a log.
const CACHE_BYTES: u64 = 32 * MIB;
/// Few enough that most rounds strike no record and the cache can be served.
const BITS_A_ROUND: u64 = 10;
/// Time after a flush by which the cache has said durably that it was flushed, and what its blocks are.
const TOLD_AFTER: Duration = Duration::from_millis(3500);

/// What came of the flipped bits.
#[derive(Debug, Default)]
struct Seen {
    bits: u64,
    refused: u64,
    errors: u64,
    right: u64,
}

struct Trial<'site> {
    site: &'site Site,
    profile: &'static str,
    cache: String,
    draw: Xoshiro256PlusPlus,
    seen: Seen,
    /// The generation that was written last.
    generation: u64,
}

impl Trial<'_> {
    fn serve(&self) -> Result<(Daemon, Client), String> {
        let daemon = Daemon::try_start(self.site, &self.cache, &[])?;
        let client = Client::connect(&Address::from(daemon.socket()), "vol").expect("the doors are open");
        Ok((daemon, client))
    }

    /// Writes all blocks anew, in pieces of one to sixteen blocks, and flushes.
    fn write_all(&mut self, client: &mut Client) {
        self.generation += 1;
        let mut block = 0;
        let blocks = VOLUME_BYTES / BLOCK_BYTES;
        while block < blocks {
            let count = self.draw.random_range(1..=16).min(blocks - block);
            let data: Vec<u8> = (block..block + count).flat_map(|at| stamped(at, self.generation)).collect();
            let result = client.write(block * BLOCK_BYTES, &data).expect("a connection");
            assert!(result.is_ok(), "{}: block {block} cannot be written: {result:?}", self.profile);
            block += count;
        }
        assert_eq!(client.flush().expect("a connection"), Ok(()), "{}: a flush fails", self.profile);
    }

    /// Flips bits in blocks of the cache that are not all zeroes; returns where, to take them back.
    fn rot(&mut self) -> Vec<(u64, u8)> {
        let file = File::options().read(true).write(true).open(&self.cache).expect("the cache's file");
        let mut flipped = Vec::new();
        let mut block = vec![0; BLOCK_BYTES as usize];
        while (flipped.len() as u64) < BITS_A_ROUND {
            let at = self.draw.random_range(0..CACHE_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
            file.read_exact_at(&mut block, at).expect("the cache is readable");
            if block.iter().all(|&byte| byte == 0) {
                continue;
            }
            let byte = self.draw.random_range(0..BLOCK_BYTES);
            let bit = 1 << self.draw.random_range(0..8_u32);
            flip(&file, at + byte, bit);
            flipped.push((at + byte, bit));
        }
        self.seen.bits += BITS_A_ROUND;
        flipped
    }

    /// Every block has its last generation, or is an error.
    fn read_all(&mut self, client: &mut Client) {
        for block in 0..VOLUME_BYTES / BLOCK_BYTES {
            let Ok(data) = client.read(block * BLOCK_BYTES, BLOCK_BYTES as u32).expect("a connection") else {
                self.seen.errors += 1;
                continue;
            };
            let wanted = stamped(block, self.generation);
            assert!(
                data == wanted,
                "{}: block {block} reads as {}, and generation {} was flushed",
                self.profile,
                name(&data, block),
                self.generation
            );
            self.seen.right += 1;
        }
    }

    fn round(&mut self, is_kill: bool) {
        let (daemon, mut client) = self.serve().expect("a sound cache is served");
        self.write_all(&mut client);
        // Now and then blocks are read, so that those come to the cache that enter when read.
        self.read_all(&mut client);
        self.write_all(&mut client);
        if is_kill {
            std::thread::sleep(TOLD_AFTER);
            daemon.kill();
        } else {
            daemon.stop();
        }
        let flipped = self.rot();
        match self.serve() {
            Ok((daemon, mut client)) => {
                self.read_all(&mut client);
                // What was lost is found again by writing it.
                self.write_all(&mut client);
                self.read_all(&mut client);
                daemon.stop();
            }
            Err(line) => {
                assert!(!line.contains("panicked"), "{}: {line}", self.profile);
                self.seen.refused += 1;
                let file =
                    File::options().read(true).write(true).open(&self.cache).expect("the cache's file");
                flipped.into_iter().for_each(|(at, bit)| flip(&file, at, bit));
            }
        }
    }
}

fn flip(file: &File, at: u64, bit: u8) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("the cache is readable");
    file.write_all_at(&[byte[0] ^ bit], at).expect("the cache is writable");
}

/// A block's content in a generation.
fn stamped(block: u64, generation: u64) -> Vec<u8> {
    [block ^ 0x5eed_0000_0000, generation]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .cycle()
        .take(4096)
        .collect()
}

fn name(data: &[u8], block: u64) -> String {
    let generation = u64::from_le_bytes(data[8..16].try_into().expect("eight bytes"));
    if data == stamped(block, generation) { format!("generation {generation}") } else { "garbage".to_owned() }
}

fn flip_bits(profile: &'static str) {
    let site = Site::new(&format!("rot-{profile}"));
    let cache = site.file("cache", CACHE_BYTES);
    let origin = site.file("origin", VOLUME_BYTES);
    let create = ["create", "--cache", &cache, "--origin", &origin, "--name", "vol", "--mode", "writeback"];
    site.run(&[&create[..], &["--profile", profile]].concat());
    let seed = number("FOREBAY_SEED", 20_261_122);
    let draw = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut trial = Trial { site: &site, profile, cache, draw, seen: Seen::default(), generation: 0 };
    let rounds = number("FOREBAY_ROT_BITS", 40).div_ceil(BITS_A_ROUND);
    for round in 0..rounds {
        trial.round(round % 4 == 3);
    }
    println!("{profile}, seed {seed}: {:?}", trial.seen);
    assert!(trial.seen.right > 0, "{profile}: nothing was read");
}

#[test]
fn a_flipped_bit_in_a_log_brings_nothing_old() {
    for profile in profiles(&["forebay", "bcache", "gflash"]) {
        flip_bits(profile);
    }
}

#[test]
fn a_flipped_bit_in_slots_brings_nothing_old() {
    for profile in profiles(&["flashcache", "enhanceio", "dm-cache", "mapperx"]) {
        flip_bits(profile);
    }
}
