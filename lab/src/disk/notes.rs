//! Notes of earlier flushes in durable records.
//!
//! A log cuts at a batch of which no header says that it was flushed and whose payload is not whole. Before such a header is
//! durable, rot and a torn write are the same to it; so sectors rot only after [`Notes`] have come behind them.

use super::content::Content;
use crate::content::{SECTOR, Sector};
use engine::format::{BatchHeader, HEADER_BLOCKS_MAX};
use engine::units::{BLOCK_BYTES, SECTORS_PER_BLOCK};

/// A counter of the records that note flushes.
#[derive(Debug)]
pub(super) enum Notes {
    /// Any record of the cache's own that is newer than the flush before.
    Records {
        /// Their number.
        count: u64,
    },
    /// A header with a higher flushed sequence than those before it. A superblock has none.
    Headers {
        /// Their number.
        count: u64,
        /// The flushed sequence in the last of them.
        said: u64,
    },
}

impl Notes {
    pub fn count(&self) -> u64 {
        match self {
            Notes::Records { count } | Notes::Headers { count, .. } => *count,
        }
    }

    /// Counts records that a flush made durable, and that landed after the flush before; together they count once.
    pub fn add<'a>(&mut self, mut durable: impl Iterator<Item = &'a Content>) {
        match self {
            Notes::Records { count } => *count += u64::from(durable.any(has_record)),
            Notes::Headers { count, said } => {
                let most = durable.filter_map(says_flushed).max();
                if let Some(most) = most.filter(|most| *most > *said) {
                    (*count, *said) = (*count + 1, most);
                }
            }
        }
    }
}

/// Whether any of it is a record of the cache's own.
fn has_record(content: &Content) -> bool {
    match content {
        Content::Data(sectors) => sectors.iter().any(|sector| matches!(sector, Sector::Bytes(_))),
        Content::Zeroes(_) => false,
    }
}

/// The flushed sequence in the header of a batch. A batch is one write, and its header is the first block of it or,
/// where a segment begins, the second.
fn says_flushed(content: &Content) -> Option<u64> {
    let Content::Data(sectors) = content else { return None };
    (0..2).find_map(|block| {
        let sectors = sectors.get(block * SECTORS_PER_BLOCK as usize..)?;
        if !matches!(sectors.first(), Some(Sector::Bytes(_))) {
            return None;
        }
        let mut bytes = vec![0; HEADER_BLOCKS_MAX as usize * BLOCK_BYTES as usize];
        for (sector, into) in sectors.iter().zip(bytes.chunks_mut(SECTOR)) {
            sector.expand(into);
        }
        BatchHeader::decode(&bytes).ok().map(|batch| batch.header.flushed_sequence)
    })
}
