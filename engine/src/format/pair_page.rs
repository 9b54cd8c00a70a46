//! The page of a half: what one device of a mirrored cache says of itself and of the other one.
//!
//! ```text
//!   0 .. 64        fields
//!   64 .. 2112     the names of both devices
//!   2112 .. 2128   from which segments on counts what one half alone has
//!   4096 .. 8192   a bit for each region whose copies may differ after a crash
//! ```

use super::bytes::{array, counter_at, put, seal, u8_at, u16_at, u32_at, u64_at, unseal};
use super::{FormatError, ORIGIN_BYTES_MAX, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, SetId, VERSION};
use crate::number::{to_u16, wide};
use alloc::boxed::Box;
use alloc::string::String;

const MAGIC: [u8; 8] = *b"FBAYPAIR";
/// Bytes of a page on the device.
pub const PAIR_PAGE_BYTES: usize = 8192;
/// Where the two copies of the page begin on each half; they are written in turn.
pub const PAIR_PAGE_OFFSETS: [u64; 2] = [128 * 1024, 640 * 1024];
/// Bytes of the marks of regions.
pub const PAIR_MARK_BYTES: usize = 4096;

const NAMES_AT: usize = 64;
const ONCE_AT: usize = NAMES_AT + 2 * ORIGIN_BYTES_MAX;
const MARKS_AT: usize = PAIR_PAGE_BYTES - PAIR_MARK_BYTES;
const _: () = assert!(ONCE_AT + 16 <= MARKS_AT);
const _: () = assert!(SUPERBLOCK_OFFSETS[0] + wide(SUPERBLOCK_BYTES) <= PAIR_PAGE_OFFSETS[0]);
const _: () = assert!(SUPERBLOCK_OFFSETS[1] + wide(SUPERBLOCK_BYTES) <= PAIR_PAGE_OFFSETS[1]);

/// The page of a half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairPage {
    /// The cache that it belongs to.
    pub set_id: SetId,
    /// 0 for the first half, 1 for the second.
    pub half: u8,
    /// Whether the other half does not count: it failed, and this one went on.
    pub is_other_out: bool,
    /// The update of the page that said first that the other half does not count; 0 while it counts.
    pub out_since_update: u64,
    /// Whether this half does not count: it is being brought up to date.
    pub is_behind: bool,
    /// Counts the writes of the page.
    pub update: u64,
    /// The part of each device that the cache has, in bytes.
    pub size_bytes: u64,
    /// The length of a region, in bytes; a power of two.
    pub region_bytes: u32,
    /// The devices as the operator named them, the first half's first; at most [`ORIGIN_BYTES_MAX`] bytes each.
    pub names: [String; 2],
    /// The generations of segments from which on counts what the first or the second half alone has: it had to be copied anew since,
    /// and what it had alone was overwritten.
    pub once_counts_from: [u64; 2],
    /// A bit for each region: set before it is written, so that its copies are compared after a crash.
    pub marks: Box<[u8; PAIR_MARK_BYTES]>,
}

impl PairPage {
    /// Writes the page to `bytes`, which are [`PAIR_PAGE_BYTES`].
    ///
    /// # Panics
    /// If `bytes` has another length, or a name is too long.
    pub fn encode(&self, bytes: &mut [u8]) {
        assert!(bytes.len() == PAIR_PAGE_BYTES);
        assert!(
            self.names.iter().all(|name| name.len() <= ORIGIN_BYTES_MAX),
            "names of devices are checked before"
        );
        bytes.fill(0);
        bytes[14] = self.half;
        bytes[15] = u8::from(self.is_other_out) | u8::from(self.is_behind) << 1;
        put(bytes, 16, &self.set_id);
        put(bytes, 32, &self.update.to_le_bytes());
        put(bytes, 40, &self.size_bytes.to_le_bytes());
        put(bytes, 48, &self.region_bytes.to_le_bytes());
        put(bytes, 56, &self.out_since_update.to_le_bytes());
        for (at, name) in self.names.iter().enumerate() {
            put(bytes, 52 + 2 * at, &to_u16(name.len()).to_le_bytes());
            put(bytes, NAMES_AT + at * ORIGIN_BYTES_MAX, name.as_bytes());
        }
        for (at, generation) in self.once_counts_from.iter().enumerate() {
            put(bytes, ONCE_AT + at * 8, &generation.to_le_bytes());
        }
        put(bytes, MARKS_AT, &self.marks[..]);
        seal(bytes, MAGIC, VERSION);
    }

    /// Reads a page from the first [`PAIR_PAGE_BYTES`] of `bytes`.
    ///
    /// # Errors
    /// Any [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<PairPage, FormatError> {
        let bytes = bytes.get(..PAIR_PAGE_BYTES).ok_or(FormatError::Truncated)?;
        unseal(bytes, MAGIC, VERSION)?;
        let mut names = [String::new(), String::new()];
        for (at, name) in names.iter_mut().enumerate() {
            let len = usize::from(u16_at(bytes, 52 + 2 * at)?);
            let from = NAMES_AT + at * ORIGIN_BYTES_MAX;
            let text = bytes.get(from..from + len.min(ORIGIN_BYTES_MAX + 1)).ok_or(FormatError::Truncated)?;
            let is_allowed = len <= ORIGIN_BYTES_MAX;
            let text = core::str::from_utf8(text).ok().filter(|_| is_allowed);
            *name = String::from(text.ok_or(FormatError::Field("pair name"))?);
        }
        let (half, flags) = (u8_at(bytes, 14)?, u8_at(bytes, 15)?);
        let page = PairPage {
            set_id: array(bytes, 16)?,
            half,
            is_other_out: flags & 1 != 0,
            out_since_update: counter_at(bytes, 56, "pair update")?,
            is_behind: flags & 2 != 0,
            update: counter_at(bytes, 32, "pair update")?,
            size_bytes: u64_at(bytes, 40)?,
            region_bytes: u32_at(bytes, 48)?,
            names,
            once_counts_from: [
                counter_at(bytes, ONCE_AT, "pair generation")?,
                counter_at(bytes, ONCE_AT + 8, "pair generation")?,
            ],
            marks: Box::new(array(bytes, MARKS_AT)?),
        };
        if half > 1 || flags > 3 {
            return Err(FormatError::Field("pair half"));
        }
        let regions = page.size_bytes.div_ceil(u64::from(page.region_bytes.max(1)));
        if !page.region_bytes.is_power_of_two()
            || page.region_bytes < 4096
            || regions > wide(PAIR_MARK_BYTES) * 8
        {
            return Err(FormatError::Field("pair region_bytes"));
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    fn page() -> PairPage {
        let mut marks = Box::new([0; PAIR_MARK_BYTES]);
        marks[7] = 0x80;
        PairPage {
            set_id: [3; 16],
            half: 1,
            is_other_out: true,
            out_since_update: 8,
            is_behind: false,
            update: 9,
            size_bytes: 64 << 20,
            region_bytes: 64 << 10,
            names: ["/dev/nvme0n1".into(), "/dev/nvme1n1".into()],
            once_counts_from: [0, 77],
            marks,
        }
    }

    fn encoded(page: &PairPage) -> vec::Vec<u8> {
        let mut bytes = vec![0; PAIR_PAGE_BYTES];
        page.encode(&mut bytes);
        bytes
    }

    #[test]
    fn a_page_reads_back_what_was_written() {
        assert_eq!(PairPage::decode(&encoded(&page())), Ok(page()));
        let behind =
            PairPage { is_other_out: false, out_since_update: 0, is_behind: true, half: 0, ..page() };
        assert_eq!(PairPage::decode(&encoded(&behind)), Ok(behind));
    }

    proptest! {
        #[test]
        fn changed_bytes_with_the_right_checksum_give_an_answer(
            changes in prop::collection::vec((14..PAIR_PAGE_BYTES, any::<u8>()), 0..8),
        ) {
            let mut bytes = encoded(&page());
            changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
            seal(&mut bytes, MAGIC, VERSION);
            if let Ok(page) = PairPage::decode(&bytes) {
                prop_assert_eq!(PairPage::decode(&encoded(&page)), Ok(page));
            }
        }
    }
}
