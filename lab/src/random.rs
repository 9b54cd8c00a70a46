//! The one generator of the lab: the same numbers for a seed on every machine and in every
//! version, pinned by a test, so that a seed sent in a report replays years later.

use engine::prng::splitmix;

/// xoshiro256++, seeded by splitmix64.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The generator of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        let mut mix = seed;
        Random { state: std::array::from_fn(|_| splitmix(&mut mix)) }
    }

    /// A generator of its own for one purpose, so that more draws for one purpose do not change those for another.
    #[must_use]
    pub fn fork(&mut self, purpose: u64) -> Random {
        Random::new(self.next_u64() ^ purpose.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let t = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= t;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is no number below 0");
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `first` to `last`, both included.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// True `per_million` times in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// One of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let mut random = Random::new(1);
        let first: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(
            first,
            [14_971_601_782_005_023_387, 13_781_649_495_232_077_965, 1_847_458_086_238_483_744]
        );
    }

    #[test]
    fn numbers_stay_in_their_bounds_and_reach_both_ends() {
        let mut random = Random::new(7);
        let drawn: Vec<u64> = (0..1000).map(|_| random.between(3, 6)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&6)));
        assert_eq!((0..1000).filter(|_| random.chance(0)).count(), 0);
    }
}
