//! Repeatable random numbers: the only randomness that policies have.
//!
//! Seeded from the set id, so that one history of requests makes the same decisions everywhere.
//! Not for secrets.
//!
//! Source: xorshift64*, S. Vigna, "An experimental exploration of Marsaglia's xorshift
//! generators, scrambled", 2016.

use crate::number::high_u32;

/// A generator. The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Prng {
    /// Never 0: xorshift would stay there.
    state: u64,
}

impl Prng {
    /// A generator for any seed, 0 too.
    #[must_use]
    pub fn new(seed: u64) -> Prng {
        let state = scatter(seed);
        Prng { state: if state == 0 { 1 } else { state } }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        assert!(self.state != 0, "the state of xorshift is never 0");
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// The next number; the upper bits, which are the better ones.
    pub fn next_u32(&mut self) -> u32 {
        high_u32(self.next_u64())
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u32) -> u32 {
        assert!(end > 0, "no number is below 0");
        high_u32(u64::from(self.next_u32()) * u64::from(end))
    }
}

/// Distance of two states of SplitMix64: 2^64 divided by the golden ratio.
const SPLITMIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The next number of SplitMix64 with this state, for seeds and for tests that need numbers without a pattern.
///
/// Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014.
pub fn splitmix(state: &mut u64) -> u64 {
    let number = scatter(*state);
    *state = state.wrapping_add(SPLITMIX_STEP);
    number
}

/// A number spread over all bits; different numbers stay different.
///
/// Source: one step and the finalizer of SplitMix64.
#[must_use]
#[inline]
pub fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(SPLITMIX_STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_is_xorshift64_star() {
        // State 1: 1 >> 12 = 0, then ^ 1 << 25, then ^ (1 << 25 | 1) >> 27 = 0.
        let mut prng = Prng { state: 1 };
        assert_eq!(prng.next_u64(), 0x0200_0001u64.wrapping_mul(0x2545_f491_4f6c_dd1d));
        assert_eq!(prng.state, 0x0200_0001);
    }

    #[test]
    fn the_seed_is_spread_as_splitmix64_does() {
        assert_eq!(scatter(0), 0xe220_a839_7b1d_cdaf);
        let mut state = 0;
        let row: [u64; 3] = core::array::from_fn(|_| splitmix(&mut state));
        assert_eq!(row, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    #[test]
    fn one_seed_gives_one_sequence_and_another_seed_another() {
        let mut first = Prng::new(7);
        let mut again = Prng::new(7);
        let mut other = Prng::new(8);
        let mut differ = 0;
        for _ in 0..1000 {
            let number = first.next_u64();
            assert_eq!(number, again.next_u64());
            differ += u32::from(number != other.next_u64());
        }
        assert_eq!(differ, 1000);
    }

    #[test]
    fn below_stays_below_and_reaches_every_number_about_equally() {
        let mut prng = Prng::new(0);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[prng.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert_eq!(prng.below(1), 0);
    }
}
