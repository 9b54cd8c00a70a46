//! Summaries, packed: a summary is a table of records that resemble each other, and a long run keeps one
//! for each segment of a cache of terabytes.
//!
//! Each word of four bytes gets a code of two bits; a word that none of the first three gives follows as it is.

/// As the word one entry (32 bytes) before: batches of many entries.
const AS_ENTRY: u8 = 0;
/// As the word one record, entry and checksum (60 bytes) before: batches of one block.
const AS_BATCH: u8 = 1;
const ZERO: u8 = 2;
const LITERAL: u8 = 3;

const ENTRY_WORDS: usize = 8;
const BATCH_WORDS: usize = 15;
const WORD: usize = 4;

/// Bytes, packed.
pub(super) struct Packed {
    words: usize,
    codes: Box<[u8]>,
    literals: Box<[u8]>,
}

fn word(bytes: &[u8], at: usize) -> [u8; WORD] {
    bytes[at * WORD..][..WORD].try_into().expect("a word")
}

fn word_before(bytes: &[u8], at: usize, distance: usize) -> [u8; WORD] {
    at.checked_sub(distance).map_or([0; WORD], |at| word(bytes, at))
}

impl Packed {
    /// Packs `bytes`, whose length is a multiple of 16.
    pub(super) fn pack(bytes: &[u8]) -> Packed {
        assert!(bytes.len().is_multiple_of(4 * WORD));
        let words = bytes.len() / WORD;
        let mut codes = vec![0; words / 4];
        let mut literals = Vec::new();
        for at in 0..words {
            let this = word(bytes, at);
            let code = if this == word_before(bytes, at, ENTRY_WORDS) {
                AS_ENTRY
            } else if this == word_before(bytes, at, BATCH_WORDS) {
                AS_BATCH
            } else if this == [0; WORD] {
                ZERO
            } else {
                literals.extend_from_slice(&this);
                LITERAL
            };
            codes[at / 4] |= code << (at % 4 * 2);
        }
        Packed { words, codes: codes.into(), literals: literals.into() }
    }

    /// Unpacks into `bytes`, which have the length that was packed.
    pub(super) fn unpack(&self, bytes: &mut [u8]) {
        assert!(bytes.len() == self.words * WORD, "a summary is read as it was written");
        let mut literals = self.literals.chunks_exact(WORD);
        for at in 0..self.words {
            let this = match self.codes[at / 4] >> (at % 4 * 2) & 3 {
                AS_ENTRY => word_before(bytes, at, ENTRY_WORDS),
                AS_BATCH => word_before(bytes, at, BATCH_WORDS),
                ZERO => [0; WORD],
                _ => {
                    literals.next().and_then(|bytes| bytes.try_into().ok()).expect("a literal for each code")
                }
            };
            bytes[at * WORD..][..WORD].copy_from_slice(&this);
        }
    }

    /// Memory that it takes.
    #[cfg(test)]
    fn len_bytes(&self) -> usize {
        self.codes.len() + self.literals.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::format::{Entry, EntryKind, SummaryBuilder, SummaryFooter};
    use engine::units::VolumeId;

    fn summary(entries_of_batch: usize, checksum: impl Fn(u32) -> u32) -> (Vec<u8>, usize) {
        let mut builder = SummaryBuilder::default();
        let mut block = 1;
        let mut blocks = 0;
        for sequence in 1..=2000 / entries_of_batch as u64 {
            let entries: Vec<Entry> = (0..entries_of_batch as u64)
                .map(|at| Entry {
                    kind: EntryKind::Dirty,
                    ring: 0,
                    volume: VolumeId(1),
                    start_sector: (sequence * 7919 + at * 104_729) % 1_000_003 * 8,
                    sectors: 8,
                    payload_blocks: 1,
                    extra: 0,
                })
                .collect();
            let checksums: Vec<u32> = (0..entries_of_batch as u32).map(|at| checksum(block + at)).collect();
            builder.push(sequence, block, block + 1, &entries, &checksums);
            block += 1 + entries_of_batch as u32;
            blocks += entries_of_batch;
        }
        let footer = SummaryFooter {
            set_id: [9; 16],
            ring: 0,
            generation: 3,
            session: 1,
            first_sequence: 1,
            last_sequence: 2000 / entries_of_batch as u64,
            last_header_checksum: 77,
            flushed_sequence: 0,
            floor_sequence: 1,
            oldest_dirty_sequence: 1,
        };
        let mut bytes = vec![0; builder.blocks_needed() as usize * 4096];
        builder.finish(&footer, &mut bytes);
        (bytes, blocks)
    }

    fn check(bytes: &[u8]) -> usize {
        let packed = Packed::pack(bytes);
        let mut again = vec![0xaa; bytes.len()];
        packed.unpack(&mut again);
        assert!(again == bytes);
        packed.len_bytes()
    }

    #[test]
    fn summaries_become_small() {
        let (bytes, blocks) = summary(40, |_| 0);
        assert!(check(&bytes) < 8 * blocks, "{} for {blocks} blocks", check(&bytes));
        let (bytes, blocks) = summary(40, |block| block.wrapping_mul(0x9e37_79b9));
        assert!(check(&bytes) < 12 * blocks, "{} for {blocks} blocks", check(&bytes));
        let (bytes, blocks) = summary(1, |_| 0);
        assert!(check(&bytes) < 24 * blocks, "{} for {blocks} blocks", check(&bytes));
    }

    #[test]
    fn any_bytes_come_back() {
        let noise: Vec<u8> =
            (0..8192u32).map(|at| (at.wrapping_mul(at).wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        check(&noise);
        check(&[0; 4096]);
        check(&[]);
    }
}
