//! The format of the cache device, byte for byte.
//!
//! ```text
//!   0         64 KiB     512 KiB    576 KiB       1 MiB
//!   │ superblock │  unused  │ superblock │  unused  │ segment 0 │ segment 1 │ ...
//!
//!   segment:  │ head │ header payload │ header payload │ ... free ... │ summary: body │ footer │
//! ```
//!
//! A device of a mirrored cache has a [`PairPage`] in each unused part. Behind the last segment of a large one there is room for
//! checkpoints of the index: see [`CheckpointArea`].
//!
//! A cache with slots is divided otherwise: see [`SlotLayout`]; one with keys and buckets: see [`KeyLayout`].
//!
//! All numbers are little-endian; all structures begin at a block of 4 KiB. Everything that is
//! read alone begins with a magic of 8 bytes, its CRC-32C (4 bytes, over the whole structure with this
//! field zero) and the format's version (2 bytes); pages of slots, of which there are millions, have less,
//! and their superblock has the version. Decoders take any bytes: they answer with an
//! error, do not panic, and allocate in proportion to their input only. Encoders assert what
//! decoders check.
//!
//! The offsets are pinned by a test (`layout.rs`): a change of the format is a visible diff.

mod batch;
mod bytes;
mod checkpoint;
mod checksum_page;
mod commit_page;
mod commit_record;
mod entry;
mod flush_note;
mod geometry;
mod head;
mod history;
mod key_layout;
mod lasting;
mod lost_table;
mod pair_page;
mod paired_page;
mod payload;
mod slot_layout;
mod slot_page;
mod slot_record;
mod succession;
mod summary;
mod superblock;
mod tree_page;
mod warm_list;

#[cfg(test)]
mod layout;
#[cfg(test)]
mod slot_tests;

use crate::number::wide;
pub(crate) use batch::EncodedEntries;
pub use batch::{BatchHeader, DecodedBatch, HEADER_BLOCKS_MAX, HEADER_FIXED_BYTES, header_blocks_for};
pub use checkpoint::{
    CHECKPOINT_RECORD_BYTES, CheckpointArea, CheckpointId, CheckpointRecord, Chunk, ChunkCounts, ChunkExtent,
    ChunkWriter, GROUP_ROW_WORDS, SINGLE_ROW_WORDS, Side, rows_bytes,
};
pub use checksum_page::{CHECKSUM_PAGE_RECORDS, ChecksumPage, ChecksumSector};
pub use commit_page::{COMMIT_PAGE_RECORDS, CommitPage};
pub use commit_record::CommitRecord;
pub use entry::{ENTRY_BYTES, Entry, EntryKind};
pub(crate) use flush_note::FLUSH_NOTES_AT;
pub use flush_note::FlushNote;
pub use geometry::{CACHE_BYTES_MIN, CHECKPOINT_CACHE_BYTES_MIN, Geometry, GeometryError};
pub use head::SegmentHead;
pub use history::{CHANGES_MAX, Change, History};
pub use key_layout::{KEY_LAYOUT_BYTES, KeyLayout, KeyLayoutError};
pub(crate) use lasting::{FIRST_PART_AT, encode_part, encode_slot};
pub use lasting::{LASTING_BYTES, LASTING_SLOT_BYTES, LASTING_SLOTS, LateHeader};
pub use lost_table::{LOST_RANGES_MAX, LostRange, LostTable};
pub use pair_page::{PAIR_MARK_BYTES, PAIR_PAGE_BYTES, PAIR_PAGE_OFFSETS, PairPage};
pub use paired_page::PAIRED_PAGE_BYTES;
pub use payload::{PayloadCursor, PayloadRun, payload_runs, payload_span_blocks};
pub use slot_layout::{
    COMMIT_RECORD_OFFSETS, LOST_TABLE_OFFSETS, Region, SLOT_BLOCKS_MAX, SLOT_LAYOUT_BYTES, SlotLayout,
    SlotLayoutError, SlotPersistence,
};
pub use slot_page::{SLOT_PAGE_RECORDS, SlotPage};
pub use slot_record::SlotRecord;
pub use succession::{Line, Succession};
pub(crate) use summary::DecodedFooter;
pub use summary::{Summary, SummaryBatch, SummaryBuilder, SummaryFooter};
pub use superblock::{
    COMPOSITION_BYTES_MAX, FINGERPRINTS_MAX, Fingerprint, IDENTITY_BYTES_MAX, Layout, NAME_BYTES_MAX,
    ORIGIN_BYTES_MAX, Superblock, VolumeRecord,
};
pub use tree_page::{TREE_LEVELS_MAX, TreePage, TreePlanes, TreeShape};
pub use warm_list::{ListedExtent, ListedVolume, WARM_LIST_BYTES_MAX, WarmList, WarmListWriter};

/// Tells one formatted cache from all others; never used twice.
pub type SetId = [u8; 16];

/// The version of this format.
pub const VERSION: u16 = 2;
/// Where the two copies of the superblock begin on the device, in bytes.
pub const SUPERBLOCK_OFFSETS: [u64; 2] = [0, 512 * 1024];
/// The highest sequence, session, generation and update number that is read: never reached, but far enough below
/// [`COUNTER_END`] that a hostile device cannot make anybody count to there.
pub const COUNTER_MAX: u64 = 1 << 62;
/// The highest of these numbers that may be written.
pub(crate) const COUNTER_END: u64 = (1 << 63) - 1;
/// The length of one copy of the superblock.
pub const SUPERBLOCK_BYTES: usize = 64 * 1024;
/// Where the first segment begins on the device, in bytes.
pub const SEGMENTS_OFFSET: u64 = 1 << 20;

const _: () = assert!(SUPERBLOCK_OFFSETS[0] + wide(SUPERBLOCK_BYTES) <= SUPERBLOCK_OFFSETS[1]);
const _: () = assert!(SUPERBLOCK_OFFSETS[1] + wide(SUPERBLOCK_BYTES) <= SEGMENTS_OFFSET);

/// Reason why bytes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The first bytes are something else.
    #[error("It is not there")]
    Magic,
    /// The checksum does not match: torn or rotten.
    #[error("Its checksum does not match")]
    Checksum,
    /// It was written by another version of the format.
    #[error("It has format version {found}, this program knows version {supported}")]
    Version {
        /// The version on the device.
        found: u16,
        /// The version of this program.
        supported: u16,
    },
    /// It is longer than the given bytes.
    #[error("It is longer than the bytes that are there")]
    Truncated,
    /// The checksum matches, but a field has a value that is never written.
    #[error("Its field {0} has a value that is not allowed")]
    Field(&'static str),
}
