//! The block that makes a transaction count.
//!
//! There are two, written in turn by the parity of the transaction. Of the valid ones the higher transaction
//! counts: of each page's two places it chooses the newer one that is not newer than it.

use super::bytes::{array, counter_at, put, seal, u8_at, u32_at, u64_at, unseal};
use super::{COUNTER_END, FormatError, SetId, TREE_LEVELS_MAX, VERSION};
use crate::number::index_wide;
use crate::units::{BLOCK_BYTES, VOLUMES_MAX};

const MAGIC: [u8; 8] = *b"FBAYCMIT";
/// A volume has no more pieces than this power of two.
const DOUBLINGS_MAX: u8 = 40;

/// A commit record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitRecord {
    /// The cache it belongs to.
    pub set_id: SetId,
    /// The session that committed.
    pub session: u64,
    /// The transaction. 0 is written when a cache is formatted: no page was written yet.
    pub transaction: u64,
    /// Whether dirty flags and hints are exact: nothing happened since.
    pub clean_stop: bool,
    /// Levels of the trees of dirty bits below their roots; 0 without trees.
    pub tree_levels: u8,
    /// Pieces below the finest leaf of a tree of a volume that is not too large for it; 0 without trees.
    pub leaf_pieces: u32,
    /// How often they are doubled in the tree of each volume; 0 without trees.
    pub leaf_doublings: [u8; VOLUMES_MAX],
    /// A sum over the versions of all pages that count, by which a start notices that one of them rotted. Earlier versions wrote
    /// none; it stands behind a byte that is 1.
    pub versions_sum: Option<u64>,
}

impl CommitRecord {
    /// Bytes of a record on the device.
    pub const BYTES: usize = index_wide(BLOCK_BYTES);

    /// Which of the two places it is written to.
    #[must_use]
    pub fn place(transaction: u64) -> usize {
        index_wide(transaction & 1)
    }

    /// Whether all fields have values that may be written.
    fn validate(&self) -> Result<(), FormatError> {
        if self.tree_levels > TREE_LEVELS_MAX || (self.tree_levels == 0) != (self.leaf_pieces == 0) {
            return Err(FormatError::Field("tree_levels"));
        }
        let most = if self.tree_levels == 0 { 0 } else { DOUBLINGS_MAX };
        if self.leaf_doublings.iter().any(|&doublings| doublings > most) {
            return Err(FormatError::Field("leaf_doublings"));
        }
        Ok(())
    }

    /// Writes the record to `bytes`.
    ///
    /// # Panics
    /// If `bytes` has another length than [`CommitRecord::BYTES`], or a field has a value that is not allowed.
    pub fn encode(&self, bytes: &mut [u8]) {
        assert!(bytes.len() == CommitRecord::BYTES);
        assert!(self.session <= COUNTER_END && self.transaction <= COUNTER_END);
        assert_eq!(self.validate(), Ok(()));
        bytes.fill(0);
        bytes[14] = u8::from(self.clean_stop);
        bytes[15] = self.tree_levels;
        put(bytes, 16, &self.set_id);
        put(bytes, 32, &self.session.to_le_bytes());
        put(bytes, 40, &self.transaction.to_le_bytes());
        put(bytes, 48, &self.leaf_pieces.to_le_bytes());
        put(bytes, 52, &self.leaf_doublings);
        bytes[68] = u8::from(self.versions_sum.is_some());
        put(bytes, 72, &self.versions_sum.unwrap_or_default().to_le_bytes());
        seal(bytes, MAGIC, VERSION);
    }

    /// Reads a record from the first [`CommitRecord::BYTES`] of `bytes`.
    ///
    /// # Errors
    /// Any [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<CommitRecord, FormatError> {
        let bytes = bytes.get(..CommitRecord::BYTES).ok_or(FormatError::Truncated)?;
        unseal(bytes, MAGIC, VERSION)?;
        let record = CommitRecord {
            set_id: array(bytes, 16)?,
            session: counter_at(bytes, 32, "session")?,
            transaction: counter_at(bytes, 40, "transaction")?,
            clean_stop: match u8_at(bytes, 14)? {
                0 => false,
                1 => true,
                _ => return Err(FormatError::Field("clean_stop")),
            },
            tree_levels: u8_at(bytes, 15)?,
            leaf_pieces: u32_at(bytes, 48)?,
            leaf_doublings: array(bytes, 52)?,
            versions_sum: match (u8_at(bytes, 68)?, u64_at(bytes, 72)?) {
                (0, 0) => None,
                (1, sum) => Some(sum),
                _ => return Err(FormatError::Field("versions_sum")),
            },
        };
        record.validate()?;
        Ok(record)
    }
}
