//! Memory that outlives the process, with what late headers will say.
//!
//! A late header is written behind the payload of its batch, and clients are answered before. Until it is on the device its
//! entries lie here: a driver that has such memory hands it to the next start, which writes the header in its place.
//!
//! ```text
//!   slot: │ magic, checksum, offset of the header, its fields │ part │ part │ ...
//!   part: │ entries, payload blocks (2 bytes each) │ entries │ checksums │ CRC-32C over the part, and over its batch │
//! ```
//!
//! A part is there as a whole or not at all: the process may end while it is stored. Behind the parts lies a note of how far the
//! log is flushed ([`super::flush_note`]).

use super::batch::{
    BatchHeader, HEADER_FIXED_BYTES, decode_lists, encode_checksums, header_blocks_for, lists_bytes,
};
use super::bytes::{CHECKSUM_AT, array, counter_at, put, seal, u16_at, u32_at, u64_at, unseal};
use super::entry::{ENTRY_BYTES, Entry};
use super::{FormatError, VERSION};
use crate::number::{to_u16, wide};
use crate::units::crc32c;
use alloc::vec::Vec;

const MAGIC: [u8; 8] = *b"FBAYLAST";
/// Bytes in front of the parts.
const FIXED_BYTES: usize = 96;
const PART_FIXED_BYTES: usize = 4;
const CRC_BYTES: usize = 4;
/// Late batches that memory has room for.
pub const LASTING_SLOTS: usize = 8;
/// Bytes for each of them.
pub const LASTING_SLOT_BYTES: usize = 8192;
/// Bytes of memory that an engine wants for all of them.
pub const LASTING_BYTES: usize = LASTING_SLOTS * LASTING_SLOT_BYTES;

/// A header that may not be on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateHeader {
    /// Its place on the device, in bytes.
    pub offset_bytes: u64,
    /// Its fixed fields.
    pub header: BatchHeader,
    /// Its entries, in order.
    pub entries: Vec<Entry>,
    /// The checksum of each payload block.
    pub checksums: Vec<u32>,
}

/// The beginning of a slot: a late batch begins, without parts.
pub(crate) fn encode_slot(header: &BatchHeader, offset_bytes: u64) -> [u8; FIXED_BYTES] {
    let mut bytes = [0; FIXED_BYTES];
    put(&mut bytes, 16, &header.set_id);
    put(&mut bytes, 32, &header.session.to_le_bytes());
    put(&mut bytes, 40, &header.generation.to_le_bytes());
    put(&mut bytes, 48, &header.sequence.to_le_bytes());
    put(&mut bytes, 56, &header.flushed_sequence.to_le_bytes());
    put(&mut bytes, 64, &header.floor_sequence.to_le_bytes());
    put(&mut bytes, 72, &header.oldest_dirty_sequence.to_le_bytes());
    put(&mut bytes, 80, &header.previous_checksum.to_le_bytes());
    put(&mut bytes, 88, &offset_bytes.to_le_bytes());
    seal(&mut bytes, MAGIC, VERSION);
    bytes
}

/// The first part of a slot that has none.
pub(crate) const FIRST_PART_AT: usize = FIXED_BYTES;

/// Writes a part of a late batch to `into`, without what was there: its entries, as they are encoded, and its checksums.
pub(crate) fn encode_part(batch: &BatchHeader, entries: &[u8], checksums: &[u32], into: &mut Vec<u8>) {
    let checksums_at = PART_FIXED_BYTES + entries.len();
    into.clear();
    into.resize(checksums_at + lists_bytes(0, checksums.len()), 0);
    put(into, 0, &to_u16(wide(entries.len() / ENTRY_BYTES)).to_le_bytes());
    put(into, 2, &to_u16(wide(checksums.len())).to_le_bytes());
    put(into, PART_FIXED_BYTES, entries);
    encode_checksums(checksums, &mut into[checksums_at..]);
    into.extend_from_slice(&part_crc(batch, into).to_le_bytes());
}

fn part_crc(batch: &BatchHeader, part: &[u8]) -> u32 {
    // RULE 21: of an earlier batch in the same slot it is none. A session that lost its last batches has their numbers again.
    let mut name = [0; 16];
    put(&mut name, 0, &batch.sequence.to_le_bytes());
    put(&mut name, 8, &batch.session.to_le_bytes());
    crc32c(part) ^ crc32c(&name)
}

impl LateHeader {
    /// Reads the late header in a slot, if there is one with a part.
    #[must_use]
    pub fn decode(slot: &[u8]) -> Option<LateHeader> {
        let fixed = slot.get(..FIXED_BYTES)?;
        unseal(fixed, MAGIC, VERSION).ok()?;
        let mut late = decode_fields(fixed).ok()?;
        let mut rest = &slot[FIXED_BYTES..];
        while let Some((entries, checksums, bytes)) = decode_part(&late.header, rest) {
            late.entries.extend(entries);
            late.checksums.extend(checksums);
            rest = &rest[bytes..];
        }
        let is_there = !late.entries.is_empty();
        let fits = header_blocks_for(late.entries.len(), late.checksums.len()) == 1;
        (is_there && fits && late.header.validate().is_ok()).then_some(late)
    }
}

fn decode_fields(fixed: &[u8]) -> Result<LateHeader, FormatError> {
    let header = BatchHeader {
        set_id: array(fixed, 16)?,
        session: counter_at(fixed, 32, "session")?,
        generation: counter_at(fixed, 40, "generation")?,
        sequence: counter_at(fixed, 48, "sequence")?,
        flushed_sequence: u64_at(fixed, 56)?,
        floor_sequence: u64_at(fixed, 64)?,
        oldest_dirty_sequence: u64_at(fixed, 72)?,
        previous_checksum: u32_at(fixed, 80)?,
    };
    Ok(LateHeader { offset_bytes: u64_at(fixed, 88)?, header, entries: Vec::new(), checksums: Vec::new() })
}

/// The part that `bytes` begin with, and its length.
fn decode_part(batch: &BatchHeader, bytes: &[u8]) -> Option<(Vec<Entry>, Vec<u32>, usize)> {
    let counts = (usize::from(u16_at(bytes, 0).ok()?), usize::from(u16_at(bytes, 2).ok()?));
    let end = PART_FIXED_BYTES + lists_bytes(counts.0, counts.1);
    let part = bytes.get(..end).filter(|_| counts.0 > 0)?;
    if u32_at(bytes, end).ok()? != part_crc(batch, part) {
        return None;
    }
    let (entries, checksums) = decode_lists(&part[PART_FIXED_BYTES..], counts.0, counts.1).ok()?;
    Some((entries, checksums, end + CRC_BYTES))
}

const _: () = assert!(FIXED_BYTES >= CHECKSUM_AT + 4 && FIXED_BYTES <= HEADER_FIXED_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::flush_note::FLUSH_NOTE_BYTES;
    use crate::format::{EncodedEntries, EntryKind};
    use crate::units::VolumeId;
    use proptest::prelude::*;
    use std::vec;

    fn header(sequence: u64) -> BatchHeader {
        BatchHeader {
            set_id: [7; 16],
            session: 3,
            generation: 5,
            sequence,
            previous_checksum: 0x1234_5678,
            flushed_sequence: sequence - 2,
            floor_sequence: 1,
            oldest_dirty_sequence: 2,
        }
    }

    fn entry(first: u64, blocks: u32) -> Entry {
        Entry {
            kind: EntryKind::Dirty,
            ring: 0,
            volume: VolumeId(1),
            start_sector: first * 8,
            sectors: blocks * 8,
            payload_blocks: blocks,
            extra: 0,
        }
    }

    /// A slot of a batch with parts of so many blocks each.
    fn slot(sequence: u64, parts: &[u32], slot: &mut [u8]) -> LateHeader {
        slot_of(header(sequence), parts, slot)
    }

    fn slot_of(header: BatchHeader, parts: &[u32], slot: &mut [u8]) -> LateHeader {
        let mut late = LateHeader { offset_bytes: 1 << 20, header, entries: vec![], checksums: vec![] };
        slot[..FIXED_BYTES].copy_from_slice(&encode_slot(&late.header, late.offset_bytes));
        let (mut at, mut part) = (FIRST_PART_AT, vec![]);
        for (number, &blocks) in (0u32..).zip(parts) {
            let entries = [entry(u64::from(number) * 100, blocks)];
            let checksums: Vec<u32> = (0..blocks).map(|block| number * 1000 + block).collect();
            let mut encoded = EncodedEntries::default();
            encoded.extend(&entries);
            encode_part(&late.header, encoded.bytes_of(0..1), &checksums, &mut part);
            slot[at..at + part.len()].copy_from_slice(&part);
            at += part.len();
            late.entries.extend(entries);
            late.checksums.extend(checksums);
        }
        late
    }

    #[test]
    fn a_slot_reads_back_what_was_stored() {
        let mut bytes = vec![0; LASTING_SLOT_BYTES];
        let late = slot(9, &[1, 16, 2], &mut bytes);
        assert_eq!(LateHeader::decode(&bytes), Some(late));
        let mut empty = vec![0; LASTING_SLOT_BYTES];
        slot(9, &[], &mut empty);
        assert_eq!(LateHeader::decode(&empty), None, "nobody was answered");
        assert_eq!(LateHeader::decode(&bytes[..50]), None);
    }

    #[test]
    fn parts_of_the_batch_before_do_not_count() {
        let mut bytes = vec![0; LASTING_SLOT_BYTES];
        slot(9, &[1, 1, 1], &mut bytes);
        let late = slot(10, &[1], &mut bytes);
        assert_eq!(LateHeader::decode(&bytes), Some(late));
        // A session that does not have the last batch uses its number again.
        let late = slot_of(BatchHeader { session: 4, ..header(10) }, &[], &mut bytes);
        assert_eq!(LateHeader::decode(&bytes), None, "{late:?}");
        slot_of(header(10), &[1, 1, 1], &mut bytes);
        let late = slot_of(BatchHeader { session: 4, ..header(10) }, &[1], &mut bytes);
        assert_eq!(LateHeader::decode(&bytes), Some(late));
    }

    #[test]
    fn a_part_that_was_cut_off_is_none() {
        let mut bytes = vec![0; LASTING_SLOT_BYTES];
        let whole = slot(9, &[2, 3], &mut bytes);
        let end = bytes.iter().rposition(|byte| *byte != 0).expect("there are parts") + 1;
        for cut in FIRST_PART_AT..end {
            let mut torn = vec![0; LASTING_SLOT_BYTES];
            torn[..cut].copy_from_slice(&bytes[..cut]);
            let parts = LateHeader::decode(&torn).map_or(0, |late| late.entries.len());
            assert!(parts < whole.entries.len(), "cut at {cut}");
        }
    }

    /// As many parts as a late batch may have fit a slot.
    #[test]
    fn a_slot_has_room_for_a_full_batch() {
        let mut bytes = vec![0; LASTING_SLOT_BYTES - FLUSH_NOTE_BYTES];
        let late = slot(9, &[2; 96], &mut bytes);
        assert_eq!(LateHeader::decode(&bytes), Some(late));
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer(
            changes in prop::collection::vec((0..FIRST_PART_AT + 200, any::<u8>()), 0..8),
            garbage in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            prop_assert_eq!(LateHeader::decode(&garbage), None);
            let mut bytes = vec![0; LASTING_SLOT_BYTES];
            slot(9, &[1, 2], &mut bytes);
            changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
            if let Some(late) = LateHeader::decode(&bytes) {
                let mut block = vec![0; 4096];
                late.header.encode(&late.entries, &late.checksums, &mut block);
            }
        }
    }
}
