//! Conversions between integers: each says by its name whether it can lose bits.
//!
//! `as` does not, so the engine uses it here alone. What might not fit is checked in release builds, too: a number
//! that was cut silently would name another block.

#![allow(clippy::as_conversions, reason = "here alone: each function says by its name what it may lose")]

const _: () =
    assert!(usize::BITS == 64, "the engine is built for 64-bit machines: lengths and offsets share a type");

/// A length as a number of 64 bits. Loses nothing.
#[inline]
#[must_use]
pub const fn wide(length: usize) -> u64 {
    length as u64
}

/// A number of 32 bits as an index. Loses nothing.
#[inline]
#[must_use]
pub const fn index(number: u32) -> usize {
    number as usize
}

/// A number of 64 bits as an index. Loses nothing on the 64-bit machines that the engine is built for.
#[inline]
#[must_use]
pub const fn index_wide(number: u64) -> usize {
    number as usize
}

/// A number that is known to fit into 32 bits.
///
/// # Panics
/// If it does not fit.
#[must_use]
#[track_caller]
#[inline]
pub fn to_u32(number: impl TryInto<u32>) -> u32 {
    number.try_into().ok().expect("the number fits into 32 bits")
}

/// A constant that fits into 32 bits, which is checked when it is made.
///
/// # Panics
/// If it does not fit.
#[inline]
#[must_use]
pub const fn const_u32(number: u64) -> u32 {
    assert!(number <= u32::MAX as u64, "the constant fits into 32 bits");
    number as u32
}

/// A number that is known to fit into 16 bits.
///
/// # Panics
/// If it does not fit.
#[must_use]
#[track_caller]
#[inline]
pub fn to_u16(number: impl TryInto<u16>) -> u16 {
    number.try_into().ok().expect("the number fits into 16 bits")
}

/// A number that is known to fit into 8 bits.
///
/// # Panics
/// If it does not fit.
#[must_use]
#[track_caller]
#[inline]
pub fn to_u8(number: impl TryInto<u8>) -> u8 {
    number.try_into().ok().expect("the number fits into 8 bits")
}

/// The lower half of a number, meant to lose the upper one: of hashes and packed fields.
#[inline]
#[must_use]
pub const fn low_u32(number: u64) -> u32 {
    number as u32
}

/// The upper half of a number.
#[inline]
#[must_use]
pub const fn high_u32(number: u64) -> u32 {
    (number >> 32) as u32
}

/// The upper half of a product: a number below `end`, if `number` may be any.
#[must_use]
#[inline]
pub const fn mul_high(number: u64, end: u64) -> u64 {
    ((number as u128 * end as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_make_the_whole() {
        let number = 0x0123_4567_89ab_cdef;
        assert_eq!(u64::from(high_u32(number)) << 32 | u64::from(low_u32(number)), number);
    }

    #[test]
    #[should_panic(expected = "fits into 32 bits")]
    fn what_does_not_fit_is_not_cut() {
        let _ = to_u32(1_u64 << 32);
    }
}
