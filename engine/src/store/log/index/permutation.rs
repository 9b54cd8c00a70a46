//! From a group's number to the hash of its entries, and back.
//!
//! The tables store a hash in place of the key, so it must be a permutation of the numbers
//! below 2^[`HASH_BITS`]; and its low bits choose the bucket, so neighbours, and numbers some
//! power of two apart, must differ in them. Multiplying by an odd number carries low bits up,
//! folding the upper half onto the lower one brings them down again; both can be undone.

use crate::store::log::index::GROUP_BLOCKS;
use crate::table::linear_hash::HASH_BITS;
use crate::units::BlockKey;

const MASK: u64 = (1 << HASH_BITS) - 1;
/// Folding by half of the bits or more is its own inverse.
const FOLD_BITS: u32 = HASH_BITS.div_ceil(2);
/// The upper bits of the golden ratio, and of a constant of the same family (from the
/// finaliser of `splitmix64`); any odd numbers without a pattern would do.
const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15 & MASK, 0xbf58_476d_1ce4_e5b9 & MASK];
const INVERSES: [u64; 2] = [inverse(FACTORS[0]), inverse(FACTORS[1])];

const _: () = assert!(BlockKey::END / GROUP_BLOCKS == 1 << HASH_BITS, "every group has a hash");

/// The hash of a group.
#[inline]
pub fn permute(group: u64) -> u64 {
    assert!(group <= MASK, "a group is of a volume");
    let mixed = fold(group.wrapping_mul(FACTORS[0]) & MASK);
    fold(mixed.wrapping_mul(FACTORS[1]) & MASK)
}

/// The group of a hash.
#[inline]
pub fn unpermute(hash: u64) -> u64 {
    let mixed = fold(hash).wrapping_mul(INVERSES[1]) & MASK;
    fold(mixed).wrapping_mul(INVERSES[0]) & MASK
}

#[inline]
fn fold(bits: u64) -> u64 {
    bits ^ (bits >> FOLD_BITS)
}

/// The number whose product with `odd` is 1, modulo 2^64: Newton's iteration, which doubles
/// the number of right bits each time, from the three that any odd number has of itself.
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut right_bits = 3;
    while right_bits < u64::BITS {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        right_bits *= 2;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_group_comes_back(group in 0..=MASK) {
            prop_assert!(permute(group) <= MASK);
            prop_assert_eq!(unpermute(permute(group)), group);
        }
    }

    #[test]
    fn regular_groups_spread_over_the_buckets() {
        // 2^16 groups in 2^12 buckets, 16 on average. Chance alone gives a variance of 16.
        for stride_bits in 0..=19 {
            for extra in [0, 1, 5] {
                let stride = (1_u64 << stride_bits) + if stride_bits < 19 { extra } else { 0 };
                let mut buckets = vec![0_u64; 1 << 12];
                for number in 0..1_u64 << 16 {
                    buckets[(permute((number * stride) & MASK) & 0xfff) as usize] += 1;
                }
                let squares: u64 = buckets.iter().map(|count| (count.abs_diff(16)).pow(2)).sum();
                assert!(squares < 40 << 12, "stride {stride}: variance {}", squares >> 12);
            }
        }
    }
}
