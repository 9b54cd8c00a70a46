//! fio's zipf distribution: Gray's approximation (SIGMOD 1994) with a capped sum, and ranks scattered by a
//! multiplication.
//!
//! The powers are those of the platform's mathematics library, as fio's are: another library may round another
//! way, and then once in a long while a block differs.

use super::tausworthe::Tausworthe;

/// More ranks than these are not summed up.
const SUMMED_MAX: u64 = 10_000_000;
/// By which a rank is multiplied, modulo 2^64.
const SCATTER: u64 = 0x61c8_8646_80b5_83eb;

/// Blocks from 0 to `blocks`.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    random: Tausworthe,
    blocks: u64,
    theta: f64,
    zeta: f64,
    shift: u64,
}

impl Zipf {
    /// `theta` is positive and not 1.
    pub(super) fn new(blocks: u64, theta: f64, seed: u32) -> Zipf {
        let mut random = Tausworthe::new(u64::from(seed));
        let shift = u64::from(random.next());
        let zeta = (0..blocks.min(SUMMED_MAX)).map(|rank| (1.0 / (rank + 1) as f64).powf(theta)).sum();
        Zipf { random, blocks, theta, zeta, shift }
    }

    pub(super) fn next(&mut self) -> u64 {
        let Zipf { theta, zeta, .. } = *self;
        let blocks = self.blocks as f64;
        let uniform = f64::from(self.random.next()) / f64::from(u32::MAX);
        let zeta2 = 1.0f64.powf(theta) + 0.5f64.powf(theta);
        let sum = uniform * zeta;
        let rank = if sum < 1.0 {
            0
        } else if sum < 1.0 + 0.5f64.powf(theta) {
            1
        } else {
            let eta = (1.0 - (2.0 / blocks).powf(1.0 - theta)) / (1.0 - zeta2 / zeta);
            (blocks * (eta * uniform - eta + 1.0).powf(1.0 / (1.0 - theta))) as u64
        };
        rank.wrapping_mul(SCATTER).wrapping_add(self.shift) % self.blocks
    }
}

/// The hash of a file's name from which the seed is made: Bob Jenkins' mixing as fio has it, which takes in only
/// every fourth byte of all but the last twelve.
pub(super) fn hash_of_name(name: &str) -> u32 {
    let mut bytes = name.as_bytes();
    let start = 0x61c8_8647u32.wrapping_add(bytes.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    while bytes.len() > 12 {
        a = a.wrapping_add(u32::from(bytes[0]));
        b = b.wrapping_add(u32::from(bytes[4]));
        c = c.wrapping_add(u32::from(bytes[8]));
        for (first, second, third) in [(4, 6, 8), (16, 19, 4)] {
            a = a.wrapping_sub(c) ^ c.rotate_left(first);
            c = c.wrapping_add(b);
            b = b.wrapping_sub(a) ^ a.rotate_left(second);
            a = a.wrapping_add(c);
            c = c.wrapping_sub(b) ^ b.rotate_left(third);
            b = b.wrapping_add(a);
        }
        bytes = &bytes[12..];
    }
    if bytes.is_empty() {
        return c;
    }
    for (at, byte) in bytes.iter().enumerate() {
        let word = [&mut a, &mut b, &mut c];
        let what = u32::from(*byte) << (at % 4 * 8);
        *word[at / 4] = word[at / 4].wrapping_add(what);
    }
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}
