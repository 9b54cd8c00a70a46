//! The checksum of a block of tags, without its 4096 bytes.
//!
//! A CRC is linear: the checksum of a block is that of a block of zeroes, changed by what each single byte of
//! each of its eight tags brings along. What each byte brings is computed once.

use super::{SECTOR, Sector, Tag};
use engine::units::{BLOCK_BYTES, payload_checksum};
use std::sync::LazyLock;

/// Tags of a block.
const TAGS: usize = BLOCK_BYTES as usize / SECTOR;

struct Table {
    of_zeroes: u32,
    /// By sector of the block, byte of the tag, value of the byte.
    of_byte: [[[u32; 256]; 8]; TAGS],
}

static TABLE: LazyLock<Box<Table>> = LazyLock::new(|| {
    let mut bytes = [0; BLOCK_BYTES as usize];
    let of_zeroes = payload_checksum(&bytes);
    let mut table = Box::new(Table { of_zeroes, of_byte: [[[0; 256]; 8]; TAGS] });
    for sector in 0..TAGS {
        for byte in 0..8 {
            for value in 1..256usize {
                let low = value & value.wrapping_neg();
                table.of_byte[sector][byte][value] = if low == value {
                    let tag = Tag((value as u64) << (8 * byte));
                    let range = sector * SECTOR..(sector + 1) * SECTOR;
                    Sector::Tag(tag).expand(&mut bytes[range.clone()]);
                    let brought = payload_checksum(&bytes) ^ of_zeroes;
                    bytes[range].fill(0);
                    brought
                } else {
                    let known = &table.of_byte[sector][byte];
                    known[value ^ low] ^ known[low]
                };
            }
        }
    }
    table
});

/// The checksum of the bytes that the tags stand for.
#[must_use]
pub fn checksum(tags: &[Tag]) -> u32 {
    if tags.len() != TAGS {
        let mut bytes = vec![0; tags.len() * SECTOR];
        for (tag, bytes) in tags.iter().zip(bytes.chunks_mut(SECTOR)) {
            Sector::Tag(*tag).expand(bytes);
        }
        return payload_checksum(&bytes);
    }
    let table = &**TABLE;
    let mut checksum = table.of_zeroes;
    for (tag, of_byte) in tags.iter().zip(&table.of_byte) {
        for (byte, of_value) in tag.0.to_le_bytes().into_iter().zip(of_byte) {
            checksum ^= of_value[usize::from(byte)];
        }
    }
    checksum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn equals_the_checksum_of_the_bytes() {
        let mut random = Random::new(3);
        for count in [TAGS; 20].into_iter().chain([1, 3, 16]) {
            let tags: Vec<Tag> = (0..count).map(|_| Tag(random.next_u64())).collect();
            let mut bytes = vec![0; count * SECTOR];
            for (tag, bytes) in tags.iter().zip(bytes.chunks_mut(SECTOR)) {
                Sector::Tag(*tag).expand(bytes);
            }
            assert_eq!(checksum(&tags), payload_checksum(&bytes));
        }
    }
}
