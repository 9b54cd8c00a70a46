//! Stamps: the content that a test writes into a sector, from which a read recognises it.
//!
//! A sector is sixteen copies of one stamp: volume seed, sector number, version, checksum.

/// Bytes in a sector.
pub const SECTOR_BYTES: usize = 512;
const STAMP_BYTES: usize = 32;

/// What a sector holds that is what it should be in itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// All zeroes.
    Zeroes,
    /// This version of this sector.
    Version(u64),
}

/// Why a sector cannot be any version of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Parts of it are of different versions or places.
    Torn,
    /// It is a version of another sector.
    Misplaced {
        /// The sector it was written to.
        sector: u64,
        /// Which version of that.
        version: u64,
    },
    /// This was never written to this volume.
    Invented,
}

/// The bytes of a version of a sector.
pub fn encode(seed: u64, sector: u64, version: u64) -> [u8; SECTOR_BYTES] {
    let words = [seed, sector, version, checksum(seed, sector, version)];
    let mut stamp = [0; STAMP_BYTES];
    for (place, word) in stamp.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let mut bytes = [0; SECTOR_BYTES];
    bytes.chunks_exact_mut(STAMP_BYTES).for_each(|place| place.copy_from_slice(&stamp));
    bytes
}

/// What the bytes of a sector are.
pub fn decode(seed: u64, sector: u64, bytes: &[u8]) -> Result<Content, Damage> {
    let first = &bytes[..STAMP_BYTES];
    // All stamps are the same if each is the same as the one before.
    if bytes[STAMP_BYTES..] != bytes[..SECTOR_BYTES - STAMP_BYTES] {
        let whole_stamps = bytes.chunks_exact(STAMP_BYTES).all(|stamp| part(seed, stamp).is_some());
        return Err(if whole_stamps { Damage::Torn } else { Damage::Invented });
    }
    match part(seed, first) {
        None => Err(Damage::Invented),
        Some(None) => Ok(Content::Zeroes),
        Some(Some((written, version))) if written == sector => Ok(Content::Version(version)),
        Some(Some((sector, version))) => Err(Damage::Misplaced { sector, version }),
    }
}

/// A stamp's sector and version, `Some(None)` for zeroes, `None` for garbage.
fn part(seed: u64, stamp: &[u8]) -> Option<Option<(u64, u64)>> {
    let word = |at: usize| u64::from_le_bytes(stamp[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
    if stamp == [0; STAMP_BYTES] {
        return Some(None);
    }
    let (sector, version) = (word(1), word(2));
    (word(0) == seed && word(3) == checksum(seed, sector, version)).then_some(Some((sector, version)))
}

fn checksum(seed: u64, sector: u64, version: u64) -> u64 {
    // The finaliser of splitmix64: any change of any bit changes half of the result.
    [seed, sector, version].into_iter().fold(0x9e37_79b9_7f4a_7c15, |state: u64, word| {
        let mixed = (state ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}
