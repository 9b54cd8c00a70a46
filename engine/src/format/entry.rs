//! One line of the log: a change of a range of a volume.

use super::bytes::{u8_at, u32_at, u64_at};
use super::{COUNTER_END, FormatError};
use crate::units::{Place, SECTORS_PER_BLOCK, SectorRange, VOLUME_BLOCKS_MAX, VolumeId};

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 32;

const VOLUME_SECTORS_MAX: u64 = VOLUME_BLOCKS_MAX * SECTORS_PER_BLOCK;

/// The statement of an entry about its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// The payload is the content, and the origin may not have it.
    Dirty,
    /// The payload is the content, and the origin has it.
    Clean,
    /// Zeroes are the content, and the origin may not have them. No payload.
    Zero,
    /// The log holds nothing for the range: the origin has the content. No payload.
    Tombstone,
    /// The copies of the range at consecutive places from `extra` on are clean now; a newer copy is
    /// not. No payload.
    Cleaned,
    /// The origin has the zeroes of the range that the header at `extra` recorded. A kind of its own: behind that header there
    /// is payload, and a newer copy may lie as far behind it as its block in the range. No payload.
    ZeroHome,
    /// The content was dirty and is lost. No payload.
    Lost,
    /// The blocks at consecutive places from `extra` on are the content, and the origin may not have it. The payload lies
    /// there and not behind the header.
    KeyDirty,
    /// The same, and the origin has it.
    KeyClean,
    /// A dirty key whose payload was durable before its batch was written: because it is a key once more, from a segment that
    /// is emptied, or because the cache was flushed in between.
    KeptDirty,
    /// The same of a clean one.
    KeptClean,
    /// The places from `extra` on, as many as the range has blocks, are to be written anew: what entries before this one
    /// say of them is void. The volume and the range's start say nothing. No payload.
    Freed,
    /// The copies of the range at consecutive places from `extra` on gave their places up; a copy elsewhere did not. No
    /// payload.
    Evicted,
    /// A volume that goes home in order begins another interval in this batch, and all of it up to sequence `extra` is home. The
    /// range says nothing. No payload.
    Interval,
    /// The payload is the content, and the origin has it; one half of a mirrored cache has it alone, the first one the first
    /// half of all such payload of the batch. It lies behind all other payload, at the same place on both halves.
    CleanOnce,
}

impl EntryKind {
    const ALL: [EntryKind; 15] = [
        EntryKind::Dirty,
        EntryKind::Clean,
        EntryKind::Zero,
        EntryKind::Tombstone,
        EntryKind::Cleaned,
        EntryKind::ZeroHome,
        EntryKind::Lost,
        EntryKind::KeyDirty,
        EntryKind::KeyClean,
        EntryKind::KeptDirty,
        EntryKind::KeptClean,
        EntryKind::Freed,
        EntryKind::Evicted,
        EntryKind::Interval,
        EntryKind::CleanOnce,
    ];

    /// Whether payload blocks belong to such an entry.
    #[must_use]
    pub fn has_payload(self) -> bool {
        matches!(self, EntryKind::Dirty | EntryKind::Clean | EntryKind::CleanOnce) || self.is_key()
    }

    /// Whether the payload lies at the entry's place.
    #[must_use]
    pub fn is_key(self) -> bool {
        matches!(self, EntryKind::KeyDirty | EntryKind::KeyClean) || self.is_kept()
    }

    /// Whether it is a key of data that was durable before: the present content of its place, whole or not, says
    /// nothing of its batch.
    #[must_use]
    pub fn is_kept(self) -> bool {
        matches!(self, EntryKind::KeptDirty | EntryKind::KeptClean)
    }

    /// The same key, of data that is durable already.
    #[must_use]
    pub fn kept(self) -> EntryKind {
        match self {
            EntryKind::KeyDirty => EntryKind::KeptDirty,
            EntryKind::KeyClean => EntryKind::KeptClean,
            other => other,
        }
    }

    /// Whether the payload is the content and the origin may not have it.
    #[must_use]
    pub fn is_dirty(self) -> bool {
        matches!(self, EntryKind::Dirty | EntryKind::KeyDirty | EntryKind::KeptDirty)
    }

    fn has_place(self) -> bool {
        let names_place =
            matches!(self, EntryKind::Cleaned | EntryKind::ZeroHome | EntryKind::Freed | EntryKind::Evicted);
        names_place || self.is_key()
    }

    /// The kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            EntryKind::Dirty => "dirty",
            EntryKind::Clean => "clean",
            EntryKind::Zero => "zero",
            EntryKind::Tombstone => "tombstone",
            EntryKind::Cleaned => "cleaned",
            EntryKind::ZeroHome => "zero-home",
            EntryKind::Lost => "lost",
            EntryKind::KeyDirty => "key-dirty",
            EntryKind::KeyClean => "key-clean",
            EntryKind::KeptDirty => "kept-dirty",
            EntryKind::KeptClean => "kept-clean",
            EntryKind::Freed => "freed",
            EntryKind::Evicted => "evicted",
            EntryKind::Interval => "interval",
            EntryKind::CleanOnce => "clean-once",
        }
    }

    fn code(self) -> u8 {
        match self {
            EntryKind::Dirty => 1,
            EntryKind::Clean => 2,
            EntryKind::Zero => 3,
            EntryKind::Tombstone => 4,
            EntryKind::Cleaned => 5,
            EntryKind::Lost => 6,
            EntryKind::ZeroHome => 7,
            EntryKind::KeyDirty => 8,
            EntryKind::KeyClean => 9,
            EntryKind::Freed => 10,
            EntryKind::KeptDirty => 11,
            EntryKind::KeptClean => 12,
            EntryKind::Evicted => 13,
            EntryKind::Interval => 14,
            EntryKind::CleanOnce => 15,
        }
    }
}

/// One line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its statement.
    pub kind: EntryKind,
    /// For a tombstone the ring of the copy that it hides; else the entry's own ring. 0 while there is one ring.
    pub ring: u8,
    /// The volume; not 0.
    pub volume: VolumeId,
    /// The range's first sector.
    pub start_sector: u64,
    /// The range's length in sectors; not 0.
    pub sectors: u32,
    /// Blocks of payload: those that the range touches, or 0 if the kind has none. The payload of a
    /// batch's entries lies behind its header in the order of the entries, unless it lies at a place.
    pub payload_blocks: u32,
    /// The place, for the kinds that name one; the sequence, for an interval; else 0.
    pub extra: u64,
}

impl Entry {
    /// The range.
    #[must_use]
    pub fn range(&self) -> SectorRange {
        SectorRange { start: self.start_sector, sectors: u64::from(self.sectors) }
    }

    pub(super) fn validate(&self) -> Result<(), FormatError> {
        if self.volume.0 == 0 {
            return Err(FormatError::Field("entry volume"));
        }
        let end = self.start_sector.checked_add(u64::from(self.sectors));
        if self.sectors == 0 || end.is_none_or(|end| end > VOLUME_SECTORS_MAX) {
            return Err(FormatError::Field("entry range"));
        }
        let range = self.range();
        let touched = range.end_block() - range.first_block();
        let payload = if self.kind.has_payload() { touched } else { 0 };
        if u64::from(self.payload_blocks) != payload {
            return Err(FormatError::Field("entry payload_blocks"));
        }
        // What lies at places ends on the device; what was there once is only compared.
        let ends_on_device = self.kind.is_key() || matches!(self.kind, EntryKind::Freed | EntryKind::Evicted);
        let places = if ends_on_device { touched } else { 1 };
        let is_extra_allowed = if self.kind == EntryKind::Interval {
            self.extra <= COUNTER_END
        } else if self.kind.has_place() {
            self.extra <= u64::from(Place::END) && places <= u64::from(Place::END) - self.extra
        } else {
            self.extra == 0
        };
        if !is_extra_allowed {
            return Err(FormatError::Field("entry extra"));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn encode(&self, bytes: &mut [u8; ENTRY_BYTES]) {
        assert!(self.validate().is_ok(), "only allowed entries are written: {self:?}");
        *bytes = [0; ENTRY_BYTES];
        (bytes[0], bytes[1]) = (self.kind.code(), self.ring);
        bytes[4..8].copy_from_slice(&self.volume.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.start_sector.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.sectors.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.payload_blocks.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.extra.to_le_bytes());
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Entry, FormatError> {
        let code = u8_at(bytes, 0)?;
        let kind = EntryKind::ALL
            .into_iter()
            .find(|kind| kind.code() == code)
            .ok_or(FormatError::Field("entry kind"))?;
        let entry = Entry {
            kind,
            ring: u8_at(bytes, 1)?,
            volume: VolumeId(u32_at(bytes, 4)?),
            start_sector: u64_at(bytes, 8)?,
            sectors: u32_at(bytes, 16)?,
            payload_blocks: u32_at(bytes, 20)?,
            extra: u64_at(bytes, 24)?,
        };
        entry.validate()?;
        Ok(entry)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any entry that may be written.
    pub(crate) fn any_entry() -> impl Strategy<Value = Entry> {
        let kind = prop::sample::select(&EntryKind::ALL[..]);
        (kind, 1..9u32, 0..VOLUME_SECTORS_MAX - 4096, 1..4096u32, 0..Place::END - 4096).prop_map(
            |(kind, volume, start_sector, sectors, place)| {
                let range = SectorRange { start: start_sector, sectors: u64::from(sectors) };
                let touched = (range.end_block() - range.first_block()) as u32;
                Entry {
                    kind,
                    ring: 0,
                    volume: VolumeId(volume),
                    start_sector,
                    sectors,
                    payload_blocks: if kind.has_payload() { touched } else { 0 },
                    extra: if kind.has_place() { u64::from(place) } else { 0 },
                }
            },
        )
    }

    #[test]
    fn refuses_what_is_never_written() {
        let good = Entry {
            kind: EntryKind::Dirty,
            ring: 0,
            volume: VolumeId(1),
            start_sector: 7,
            sectors: 2,
            payload_blocks: 2,
            extra: 0,
        };
        assert_eq!(good.validate(), Ok(()));
        let bad = [
            Entry { volume: VolumeId(0), ..good },
            Entry { sectors: 0, payload_blocks: 0, ..good },
            Entry { start_sector: u64::MAX, ..good },
            Entry { start_sector: VOLUME_SECTORS_MAX - 1, ..good },
            Entry { payload_blocks: 1, ..good },
            Entry { extra: 1, ..good },
            Entry { kind: EntryKind::Zero, ..good },
            Entry { kind: EntryKind::Cleaned, payload_blocks: 0, extra: u64::from(Place::END), ..good },
        ];
        for entry in bad {
            assert!(entry.validate().is_err(), "{entry:?}");
        }
    }

    proptest! {
        #[test]
        fn reads_back_what_was_written(entry in any_entry()) {
            let mut bytes = [0xff; ENTRY_BYTES];
            entry.encode(&mut bytes);
            prop_assert_eq!(Entry::decode(&bytes), Ok(entry));
        }
    }
}
