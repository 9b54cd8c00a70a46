//! A block enters when it is read for the second time; writes enter always.
//!
//! Source: gflash 14 of 2015, observed from outside: of three reading passes over 8 GB the first
//! writes next to nothing to the SSD, the second writes all of it, the third reads the SSD alone.
//! How many blocks gflash remembers, and whether a write makes it forget a read, is unverified.

use super::ghost::Ghost;
use super::{Asked, Reason, Verdict};
use crate::policies::replacement::Access;

/// The tunables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondReadChoice {
    /// First reads that are remembered; default 0: as many as the cache has frames. 0 to 4 294 967 294.
    pub ghost_pieces: u32,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct SecondRead {
    /// Read once and not admitted.
    ghost: Ghost,
}

impl SecondRead {
    /// A policy that has seen no read.
    #[must_use]
    pub fn new(choice: SecondReadChoice, frames: u32) -> SecondRead {
        SecondRead { ghost: Ghost::new(if choice.ghost_pieces == 0 { frames } else { choice.ghost_pieces }) }
    }

    /// Notes a request.
    pub fn seen(&mut self, asked: &Asked) {
        if asked.access == Access::Write {
            // A written block begins anew: its first read after it left the cache is a first read.
            self.ghost.take(asked.piece);
        }
    }

    /// Admits writes and second reads; remembers first ones.
    pub fn decide(&mut self, asked: &Asked) -> Verdict {
        if asked.access == Access::Write || self.ghost.take(asked.piece) {
            return Verdict::ADMIT;
        }
        self.ghost.push(asked.piece);
        Verdict::Pass(Reason::NotYet)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::asked;
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn admits(policy: &mut SecondRead, access: Access, piece: u64) -> bool {
        policy.seen(&asked(access, piece));
        policy.decide(&asked(access, piece)) == Verdict::ADMIT
    }

    /// The log that the policy was read from: three passes over n blocks fill 0, n and 0.
    #[test]
    fn the_second_pass_fills_and_the_third_hits() {
        let mut policy = SecondRead::new(SecondReadChoice::default(), 1000);
        let mut cached = BTreeSet::new();
        let fills: Vec<usize> = (0..3)
            .map(|_| {
                let before = cached.len();
                for piece in 0..1000 {
                    if !cached.contains(&piece) && admits(&mut policy, Access::Read, piece) {
                        cached.insert(piece);
                    }
                }
                cached.len() - before
            })
            .collect();
        assert_eq!(fills, [0, 1000, 0]);
    }

    #[test]
    fn more_first_reads_than_are_remembered_fill_nothing() {
        let mut policy = SecondRead::new(SecondReadChoice { ghost_pieces: 999 }, 1);
        assert!((0..3).all(|_| (0..1000).all(|piece| !admits(&mut policy, Access::Read, piece))));
    }

    #[test]
    fn a_write_enters_and_is_no_read() {
        let mut policy = SecondRead::new(SecondReadChoice::default(), 10);
        assert!(!admits(&mut policy, Access::Read, 5));
        assert!(admits(&mut policy, Access::Write, 5));
        assert!(!admits(&mut policy, Access::Read, 5));
        assert!(admits(&mut policy, Access::Read, 5));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Goal: which reads enter. Method: more memory than pieces, beside a count of reads since the last
        /// write or admission.
        #[test]
        fn behaves_as_a_count(steps in prop::collection::vec((any::<bool>(), 0u64..12), 1..200)) {
            let mut policy = SecondRead::new(SecondReadChoice { ghost_pieces: 1000 }, 1);
            let mut reads = [0; 12];
            for (writes, piece) in steps {
                let access = if writes { Access::Write } else { Access::Read };
                let count = &mut reads[piece as usize];
                *count = if writes { 0 } else { (*count + 1) % 2 };
                let expected = *count == 0;
                prop_assert_eq!(admits(&mut policy, access, piece), expected);
            }
        }
    }
}
