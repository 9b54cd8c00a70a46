//! Content of a sector.
//!
//! Client data is a *tag*: a number that says which write brought it, or that the sector was
//! there from the start. A tag stands for 512 bytes: its own 8 bytes, little-endian, 64 times. Metadata is
//! real bytes. Tag 0 is a sector of zeroes, so both forms of it are the same.

mod checksum;

pub use checksum::checksum;
use std::rc::Rc;

/// Bytes of a sector.
pub const SECTOR: usize = 512;

/// The content of a sector of client data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// Where a tag comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Zeroes.
    Zero,
    /// There from the start.
    Initial {
        /// The volume.
        volume: usize,
        /// The sector.
        sector: u64,
    },
    /// The sector at `offset` of the write with this number.
    Write {
        /// The write's number, from 1.
        number: u64,
        /// Sectors from the write's start.
        offset: u64,
    },
    /// Nothing that a client ever wrote: rotten data, metadata, a buffer that nobody filled.
    Garbage,
}

const GARBAGE: u64 = 1 << 63;
const INITIAL: u64 = 1 << 62;
const OFFSET_BITS: u32 = 12;

impl Tag {
    /// Zeroes.
    pub const ZERO: Tag = Tag(0);
    /// A buffer that nobody filled.
    pub const UNDEFINED: Tag = Tag(GARBAGE | 0xdb);

    /// Content that is there from the start.
    #[must_use]
    pub fn initial(volume: usize, sector: u64) -> Tag {
        Tag(INITIAL | (volume as u64) << 48 | sector)
    }

    /// The sector at `offset` of write `number`.
    #[must_use]
    pub fn written(number: u64, offset: u64) -> Tag {
        assert!(offset < 1 << OFFSET_BITS && number < 1 << 48);
        Tag(number << OFFSET_BITS | offset)
    }

    /// Where it comes from.
    #[must_use]
    pub fn source(self) -> Source {
        match self.0 {
            0 => Source::Zero,
            tag if tag & GARBAGE != 0 => Source::Garbage,
            tag if tag & INITIAL != 0 => {
                Source::Initial { volume: (tag >> 48 & 0x3fff) as usize, sector: tag & ((1 << 48) - 1) }
            }
            tag => Source::Write { number: tag >> OFFSET_BITS, offset: tag & ((1 << OFFSET_BITS) - 1) },
        }
    }
}

/// The content of a sector of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sector {
    /// The bytes that the tag stands for.
    Tag(Tag),
    /// Bytes that no tag stands for.
    Bytes(Rc<[u8; SECTOR]>),
}

impl Default for Sector {
    fn default() -> Sector {
        Sector::Tag(Tag::ZERO)
    }
}

impl Sector {
    /// The sector with these 512 bytes.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Sector {
        let bytes: &[u8; SECTOR] = bytes.try_into().expect("a sector has 512 bytes");
        let (words, _) = bytes.as_chunks::<8>();
        if words.iter().all(|word| *word == words[0]) {
            return Sector::Tag(Tag(u64::from_le_bytes(words[0])));
        }
        Sector::Bytes(Rc::new(*bytes))
    }

    /// Whether it is the sector with these 512 bytes.
    #[must_use]
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        match self {
            Sector::Tag(tag) => bytes.as_chunks::<8>().0.iter().all(|word| *word == tag.0.to_le_bytes()),
            Sector::Bytes(own) => own[..] == *bytes,
        }
    }

    /// Writes the 512 bytes.
    pub fn expand(&self, into: &mut [u8]) {
        match self {
            Sector::Tag(Tag::ZERO) => into.fill(0),
            Sector::Tag(tag) => {
                let word = tag.0.to_le_bytes();
                let (words, rest) = into.as_chunks_mut::<8>();
                assert!(rest.is_empty());
                words.fill(word);
            }
            Sector::Bytes(bytes) => into.copy_from_slice(&bytes[..]),
        }
    }

    /// The tag that a client sees: bytes that no tag stands for are garbage with a tag of their own.
    #[must_use]
    pub fn tag(&self) -> Tag {
        match self {
            Sector::Tag(tag) => *tag,
            Sector::Bytes(bytes) => {
                let mut hash = crate::clock::EventHash::default();
                for word in bytes.as_chunks::<8>().0 {
                    hash.add(u64::from_le_bytes(*word));
                }
                Tag(hash.value() | GARBAGE)
            }
        }
    }

    /// The same with one bit flipped.
    #[must_use]
    pub fn rotten(&self, bit: usize) -> Sector {
        let mut bytes = [0; SECTOR];
        self.expand(&mut bytes);
        bytes[bit / 8 % SECTOR] ^= 1 << (bit % 8);
        Sector::of_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_say_where_they_come_from() {
        assert_eq!(Tag::written(77, 511).source(), Source::Write { number: 77, offset: 511 });
        assert_eq!(Tag::initial(15, 12345).source(), Source::Initial { volume: 15, sector: 12345 });
        assert_eq!(Tag::ZERO.source(), Source::Zero);
        assert_eq!(Tag::UNDEFINED.source(), Source::Garbage);
    }

    #[test]
    fn bytes_and_tags_are_the_same_content() {
        let mut bytes = [0; SECTOR];
        Sector::Tag(Tag::written(3, 4)).expand(&mut bytes);
        assert_eq!(Sector::of_bytes(&bytes), Sector::Tag(Tag::written(3, 4)));
        let rotten = Sector::of_bytes(&bytes).rotten(1000);
        assert!(Sector::of_bytes(&bytes).is_of(&bytes) && !rotten.is_of(&bytes));
        bytes[125] ^= 1;
        assert!(rotten.is_of(&bytes) && !rotten.rotten(7).is_of(&bytes));
        assert!(!Sector::Tag(Tag::written(3, 4)).is_of(&bytes));
        bytes[125] ^= 1;
        assert!(matches!(rotten, Sector::Bytes(_)));
        assert_eq!(rotten.tag().source(), Source::Garbage);
        assert_eq!(rotten.rotten(1000), Sector::of_bytes(&bytes));
    }
}
