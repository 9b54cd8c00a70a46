//! A cache of buckets of many blocks, filled one after the other and given up as a whole.

use super::sample::SampledAccess;
use engine::policies::replacement::{Access, Arrival, Policy, Replacement, ReplacementChoice, Shape};
use engine::units::{BLOCK_BYTES, Frame, SECTOR_BYTES};

const NONE: u32 = u32::MAX;
const BLOCK_SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;

/// A log of buckets: a block that is written again goes to a new place, and its old one is dead.
pub(super) struct BucketCache {
    policy: Replacement,
    /// Blocks of a bucket.
    bucket_blocks: u32,
    place_of: Vec<u32>,
    piece_at: Vec<u32>,
    /// Blocks of each bucket that are not dead.
    live: Vec<u32>,
    /// Buckets that hold nothing.
    free: Vec<u32>,
    /// The bucket that is being filled, and how many of its places are.
    open: Option<(u32, u32)>,
}

impl BucketCache {
    /// An empty cache of `buckets` buckets for blocks with numbers below `pieces`.
    pub(super) fn new(
        choice: &ReplacementChoice,
        buckets: u32,
        bucket_blocks: u32,
        pieces: u32,
        seed: u64,
    ) -> BucketCache {
        BucketCache {
            policy: Replacement::new(choice, Shape::whole(buckets), seed),
            bucket_blocks,
            place_of: vec![NONE; pieces as usize],
            piece_at: vec![NONE; buckets as usize * bucket_blocks as usize],
            live: vec![0; buckets as usize],
            free: (0..buckets).rev().collect(),
            open: None,
        }
    }

    /// Whether it is a hit. Misses and writes are appended.
    pub(super) fn access(&mut self, SampledAccess { piece, access, at }: SampledAccess) -> bool {
        self.policy.advance(at);
        self.policy.served(BLOCK_SECTORS);
        let place = self.place_of[piece as usize];
        let is_hit = place != NONE;
        if is_hit {
            let bucket = place / self.bucket_blocks;
            if !self.is_open(bucket) {
                self.policy.hit(Frame(bucket), access);
            }
        } else {
            self.policy.miss();
        }
        if !is_hit || access == Access::Write {
            self.append(piece, access);
        }
        self.policy.tick();
        is_hit
    }

    fn is_open(&self, bucket: u32) -> bool {
        self.open.is_some_and(|(open, _)| open == bucket)
    }

    fn append(&mut self, piece: u32, access: Access) {
        self.kill(piece);
        let Some((bucket, filled)) = self.open.or_else(|| self.room().map(|bucket| (bucket, 0))) else {
            return;
        };
        let place = bucket * self.bucket_blocks + filled;
        self.place_of[piece as usize] = place;
        self.piece_at[place as usize] = piece;
        self.live[bucket as usize] += 1;
        self.open = Some((bucket, filled + 1));
        if filled + 1 == self.bucket_blocks {
            self.open = None;
            self.policy.insert(Frame(bucket), Arrival::first(access, false));
            self.tell_live(bucket);
        }
    }

    /// Notes that the block is no longer at its place.
    fn kill(&mut self, piece: u32) {
        let place = std::mem::replace(&mut self.place_of[piece as usize], NONE);
        if place == NONE {
            return;
        }
        self.piece_at[place as usize] = NONE;
        let bucket = place / self.bucket_blocks;
        self.live[bucket as usize] -= 1;
        if !self.is_open(bucket) {
            self.tell_live(bucket);
        }
    }

    fn tell_live(&mut self, bucket: u32) {
        let sectors = self.live[bucket as usize] * BLOCK_SECTORS as u32;
        self.policy.set_live(Frame(bucket), sectors);
    }

    /// An empty bucket.
    fn room(&mut self) -> Option<u32> {
        if let Some(bucket) = self.free.pop() {
            return Some(bucket);
        }
        let bucket = self.policy.victim(0, |_| true)?.frame.0;
        let first = bucket as usize * self.bucket_blocks as usize;
        for piece in &mut self.piece_at[first..first + self.bucket_blocks as usize] {
            if let Some(place) = self.place_of.get_mut(*piece as usize) {
                *place = NONE;
            }
            *piece = NONE;
        }
        self.live[bucket as usize] = 0;
        Some(bucket)
    }
}
