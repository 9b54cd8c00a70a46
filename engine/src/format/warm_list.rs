//! A warm list: what of some volumes was worth caching, the most worth first. It lies in a file of its own, outside the cache.
//!
//! ```text
//!   0 .. 16   magic, CRC-32C, version, number of volumes
//!   16 .. 24  length of the whole list
//!   24 ..     each volume: length of its name (1 byte), name, length of its origin's identity (2), identity, blocks (8)
//!   ..        classes: worth, number of the volume, extents, a zero
//! ```
//!
//! The numbers of classes are of variable length, seven bits a byte, the low ones first. An extent is one number or two: the
//! blocks left out since the one before it, doubled, plus one if it has more than one block, plus one, so that none is zero;
//! and then the number of its blocks less two.

use super::bytes::{array, put, seal, u8_at, u16_at, u64_at, unseal};
use super::superblock::{IDENTITY_BYTES_MAX, NAME_BYTES_MAX};
use super::{FormatError, VERSION};
use crate::number::{to_u8, to_u16, wide};
use crate::units::{VOLUME_BLOCKS_MAX, VOLUMES_MAX};
use alloc::string::String;
use alloc::vec::Vec;

const MAGIC: [u8; 8] = *b"FBAYWARM";
/// Bytes of a list at the most.
pub const WARM_LIST_BYTES_MAX: usize = 64 << 20;
const VOLUMES_AT: usize = 14;
const LENGTH_AT: usize = 16;
const HEAD_BYTES: usize = 24;
/// Bytes of an extent and of the frame of a class at the most.
const EXTENT_BYTES_MAX: usize = 20;
const CLASS_BYTES_MAX: usize = 12;

/// A volume in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVolume {
    /// Its name; empty if the list is of whatever volume it is used for.
    pub name: String,
    /// The stable identity of its origin; empty if that is not known.
    pub identity: String,
    /// Its size in blocks, as a bound of the extents.
    pub blocks: u64,
}

/// Blocks in a row that are worth the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedExtent {
    /// Its worth: how often the blocks were asked for of late.
    pub worth: u32,
    /// The number of its volume in the list.
    pub volume: u16,
    /// The first block.
    pub first_block: u64,
    /// The number of blocks; not 0.
    pub blocks: u64,
}

/// A list that was read: its bytes, and what they were found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmList {
    volumes: Vec<ListedVolume>,
    classes: Vec<u8>,
    blocks: u64,
}

impl WarmList {
    /// Reads a list. What it says of extents is verified, too.
    ///
    /// # Errors
    /// Any [`FormatError`]; [`FormatError::Magic`] if it is no list at all.
    pub fn decode(bytes: &[u8]) -> Result<WarmList, FormatError> {
        if array::<8>(bytes, 0)? != MAGIC {
            return Err(FormatError::Magic);
        }
        // Before the checksum: a list that was cut short is told from a damaged one.
        let length = u64_at(bytes, LENGTH_AT)?;
        if wide(bytes.len()) < length {
            return Err(FormatError::Truncated);
        }
        unseal(bytes, MAGIC, VERSION)?;
        if wide(bytes.len()) != length || bytes.len() > WARM_LIST_BYTES_MAX {
            return Err(FormatError::Field("length"));
        }
        let count = u16_at(bytes, VOLUMES_AT)?;
        if usize::from(count) > VOLUMES_MAX {
            return Err(FormatError::Field("volumes"));
        }
        let (mut volumes, mut at) = (Vec::new(), HEAD_BYTES);
        for _ in 0..count {
            volumes.push(decode_volume(bytes, &mut at)?);
        }
        let classes = bytes.get(at..).ok_or(FormatError::Truncated)?.to_vec();
        let mut list = WarmList { volumes, classes, blocks: 0 };
        list.blocks = list.verify()?;
        Ok(list)
    }

    fn verify(&self) -> Result<u64, FormatError> {
        let (mut total, mut worth) = (0_u64, u32::MAX);
        for extent in self.read() {
            let extent = extent?;
            let volume = self.volumes.get(usize::from(extent.volume)).ok_or(FormatError::Field("volume"))?;
            let end = extent.first_block.checked_add(extent.blocks);
            if end.is_none_or(|end| end > volume.blocks) {
                return Err(FormatError::Field("extent"));
            }
            if extent.worth > worth {
                return Err(FormatError::Field("worth"));
            }
            worth = extent.worth;
            total = total.saturating_add(extent.blocks);
        }
        Ok(total)
    }

    /// The volumes.
    #[must_use]
    pub fn volumes(&self) -> &[ListedVolume] {
        &self.volumes
    }

    /// Blocks of all extents.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The extents, the most worth first.
    pub fn extents(&self) -> impl Iterator<Item = ListedExtent> + Clone + '_ {
        // All were verified.
        self.read().map_while(Result::ok)
    }

    fn read(&self) -> Reader<'_> {
        Reader { bytes: &self.classes, class: None, is_broken: false }
    }
}

fn decode_volume(bytes: &[u8], at: &mut usize) -> Result<ListedVolume, FormatError> {
    let name_bytes = usize::from(u8_at(bytes, *at)?);
    *at += 1;
    let name = take_text(bytes, at, name_bytes, NAME_BYTES_MAX, "volume name")?;
    let identity_bytes = usize::from(u16_at(bytes, *at)?);
    *at += 2;
    let identity = take_text(bytes, at, identity_bytes, IDENTITY_BYTES_MAX, "volume identity")?;
    let blocks = u64_at(bytes, *at)?;
    *at += 8;
    if blocks > VOLUME_BLOCKS_MAX {
        return Err(FormatError::Field("volume blocks"));
    }
    Ok(ListedVolume { name, identity, blocks })
}

fn take_text(
    bytes: &[u8],
    at: &mut usize,
    length: usize,
    max: usize,
    field: &'static str,
) -> Result<String, FormatError> {
    if length > max {
        return Err(FormatError::Field(field));
    }
    let end = *at + length;
    let text = bytes.get(*at..end).ok_or(FormatError::Truncated)?;
    *at = end;
    let text = core::str::from_utf8(text).map_err(|_| FormatError::Field(field))?;
    if text.contains(char::is_control) { Err(FormatError::Field(field)) } else { Ok(String::from(text)) }
}

/// Reads extents; ends behind the first error.
#[derive(Clone)]
struct Reader<'a> {
    bytes: &'a [u8],
    /// Worth and volume of the class, and the end of the extent before.
    class: Option<(u32, u16, u64)>,
    is_broken: bool,
}

impl Reader<'_> {
    fn number(&mut self) -> Result<u64, FormatError> {
        let mut number = 0_u64;
        for step in 0..10 {
            let (&byte, rest) = self.bytes.split_first().ok_or(FormatError::Truncated)?;
            self.bytes = rest;
            let bits = u64::from(byte & 0x7f);
            if step == 9 && bits > 1 {
                break;
            }
            number |= bits << (7 * step);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(FormatError::Field("number"))
    }

    fn extent(&mut self) -> Result<Option<ListedExtent>, FormatError> {
        loop {
            let Some((worth, volume, end)) = self.class else {
                if self.bytes.is_empty() {
                    return Ok(None);
                }
                let worth = u32::try_from(self.number()?).map_err(|_| FormatError::Field("worth"))?;
                let volume = u16::try_from(self.number()?).map_err(|_| FormatError::Field("volume"))?;
                self.class = Some((worth, volume, 0));
                continue;
            };
            let Some(word) = self.number()?.checked_sub(1) else {
                self.class = None;
                continue;
            };
            let more = if word & 1 == 0 { 0 } else { self.number()?.saturating_add(1) };
            let (first_block, blocks) = (end.saturating_add(word >> 1), more.saturating_add(1));
            self.class = Some((worth, volume, first_block.saturating_add(blocks)));
            return Ok(Some(ListedExtent { worth, volume, first_block, blocks }));
        }
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<ListedExtent, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_broken {
            return None;
        }
        let extent = self.extent();
        self.is_broken = extent.is_err();
        extent.transpose()
    }
}

/// A list being written, up to a number of bytes.
#[derive(Debug)]
pub struct WarmListWriter {
    bytes: Vec<u8>,
    bytes_max: usize,
    class: Option<(u32, u16, u64)>,
}

impl WarmListWriter {
    /// An empty list of these volumes, which takes `bytes_max` at the most, or what the volumes need.
    ///
    /// # Panics
    /// If there are too many volumes, or a text of one is too long.
    #[must_use]
    pub fn new(volumes: &[ListedVolume], bytes_max: usize) -> WarmListWriter {
        assert!(volumes.len() <= VOLUMES_MAX, "a cache has no more volumes");
        let mut bytes = alloc::vec![0; HEAD_BYTES];
        put(&mut bytes, VOLUMES_AT, &to_u16(volumes.len()).to_le_bytes());
        for ListedVolume { name, identity, blocks } in volumes {
            assert!(name.len() <= NAME_BYTES_MAX && identity.len() <= IDENTITY_BYTES_MAX);
            bytes.push(to_u8(name.len()));
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(&to_u16(identity.len()).to_le_bytes());
            bytes.extend_from_slice(identity.as_bytes());
            bytes.extend_from_slice(&blocks.to_le_bytes());
        }
        WarmListWriter { bytes, bytes_max: bytes_max.min(WARM_LIST_BYTES_MAX), class: None }
    }

    /// Adds an extent: one that is worth no more than the one before, and of extents with one worth and volume rising. False
    /// if there is no room for it.
    ///
    /// # Panics
    /// If it is out of order.
    pub fn push(&mut self, extent: ListedExtent) -> bool {
        if self.bytes.len() + EXTENT_BYTES_MAX + CLASS_BYTES_MAX > self.bytes_max {
            return false;
        }
        let ListedExtent { worth, volume, first_block, blocks } = extent;
        let end = match self.class {
            Some((of, at, end)) if (of, at) == (worth, volume) => end,
            before => {
                if let Some((of, ..)) = before {
                    assert!(worth <= of, "the most worth comes first");
                    self.bytes.push(0);
                }
                self.number(u64::from(worth));
                self.number(u64::from(volume));
                0
            }
        };
        assert!(first_block >= end && blocks > 0, "extents rise");
        self.number((first_block - end) * 2 + u64::from(blocks > 1) + 1);
        if blocks > 1 {
            self.number(blocks - 2);
        }
        self.class = Some((worth, volume, first_block + blocks));
        true
    }

    /// The bytes of the list.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        if self.class.is_some() {
            self.bytes.push(0);
        }
        let length = wide(self.bytes.len());
        put(&mut self.bytes, LENGTH_AT, &length.to_le_bytes());
        seal(&mut self.bytes, MAGIC, VERSION);
        self.bytes
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(to_u8(number & 0x7f) | 0x80);
            number >>= 7;
        }
        self.bytes.push(to_u8(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str, blocks: u64) -> ListedVolume {
        ListedVolume { name: name.into(), identity: "serial 1".into(), blocks }
    }

    fn extent(worth: u32, volume: u16, first_block: u64, blocks: u64) -> ListedExtent {
        ListedExtent { worth, volume, first_block, blocks }
    }

    fn list(volumes: &[ListedVolume], extents: &[ListedExtent]) -> Vec<u8> {
        let mut writer = WarmListWriter::new(volumes, 1 << 20);
        extents.iter().for_each(|extent| assert!(writer.push(*extent)));
        writer.finish()
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let volumes = [volume("a", 1 << 35), volume("b", 500)];
        let extents = [
            extent(900, 1, 0, 1),
            extent(3, 0, 7, 1),
            extent(3, 0, 8, 2),
            extent(3, 0, (1 << 35) - 300, 300),
            extent(3, 1, 100, 17),
            extent(0, 0, 0, 1 << 30),
        ];
        let read = WarmList::decode(&list(&volumes, &extents)).unwrap();
        assert_eq!(read.volumes(), volumes);
        assert_eq!(read.extents().collect::<Vec<_>>(), extents);
        assert_eq!(read.blocks(), extents.iter().map(|extent| extent.blocks).sum::<u64>());
        let empty = WarmList::decode(&list(&volumes[..1], &[])).unwrap();
        assert_eq!((empty.blocks(), empty.extents().count()), (0, 0));
    }

    #[test]
    fn a_list_takes_no_more_bytes_than_it_may() {
        let volumes = [volume("a", 1 << 35)];
        let mut writer = WarmListWriter::new(&volumes, 1000);
        let taken = (0..1000).take_while(|at| writer.push(extent(1, 0, at * 3, 1))).count();
        let bytes = writer.finish();
        assert!((900..1000).contains(&bytes.len()) && taken > 800, "{taken} extents in {}", bytes.len());
        assert_eq!(WarmList::decode(&bytes).unwrap().extents().count(), taken);
    }

    #[test]
    fn a_list_that_was_cut_short_is_told_from_a_damaged_one() {
        let bytes = list(&[volume("a", 500)], &[extent(3, 0, 7, 9), extent(1, 0, 0, 1)]);
        for length in 24..bytes.len() {
            assert_eq!(WarmList::decode(&bytes[..length]).unwrap_err(), FormatError::Truncated, "{length}");
        }
        assert_eq!(WarmList::decode(b"").unwrap_err(), FormatError::Truncated);
        assert_eq!(WarmList::decode(&[7; 100]).unwrap_err(), FormatError::Magic);
        for at in 8..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(WarmList::decode(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn extents_beyond_their_volume_are_refused() {
        let volumes = [volume("a", 500)];
        let of = |extent| WarmList::decode(&list(&volumes, &[extent]));
        assert!(of(extent(1, 0, 499, 1)).is_ok());
        assert_eq!(of(extent(1, 0, 499, 2)).unwrap_err(), FormatError::Field("extent"));
        assert_eq!(of(extent(1, 0, u64::MAX >> 2, 1)).unwrap_err(), FormatError::Field("extent"));
        assert_eq!(of(extent(1, 1, 0, 1)).unwrap_err(), FormatError::Field("volume"));
    }

    #[test]
    fn any_bytes_behind_a_right_head_are_an_error_or_a_list() {
        let mut numbers = crate::prng::Prng::new(5);
        for _ in 0..20_000 {
            let mut bytes = list(&[volume("a", 5000)], &[]);
            let more = numbers.next_u64() % 40;
            bytes.extend((0..more).map(|_| to_u8(numbers.next_u64() & 0xff) & 0x9f));
            let length = wide(bytes.len());
            put(&mut bytes, LENGTH_AT, &length.to_le_bytes());
            seal(&mut bytes, MAGIC, VERSION);
            if let Ok(list) = WarmList::decode(&bytes) {
                let ends = list.extents().all(|extent| extent.first_block + extent.blocks <= 5000);
                assert!(ends && list.extents().map(|extent| extent.blocks).sum::<u64>() == list.blocks());
            }
        }
    }
}
