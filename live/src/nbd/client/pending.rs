//! Requests under way, which both halves of a client share.

use engine::effect::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A read under way: its range, and the parts that have come so far.
#[derive(Debug)]
pub(super) struct PendingRead {
    pub(super) offset_bytes: u64,
    pub(super) data: Vec<u8>,
    /// The pieces that have come, as (start, end) within `data`.
    pub(super) pieces: Vec<(usize, usize)>,
    pub(super) error: Option<Errno>,
}

/// All requests under way by cookie; `None` for those that bring no data.
pub(super) type Pending = Arc<Mutex<BTreeMap<u64, Option<PendingRead>>>>;

impl PendingRead {
    /// Notes a piece and says where in the data it goes; `None` if it lies outside.
    pub(super) fn place(&mut self, offset_bytes: u64, len_bytes: u32) -> Option<(usize, usize)> {
        let start = usize::try_from(offset_bytes.checked_sub(self.offset_bytes)?).ok()?;
        let end = start.checked_add(len_bytes as usize)?;
        // An empty piece is not allowed; without this check a server could send them for ever.
        if start == end || end > self.data.len() {
            return None;
        }
        self.pieces.push((start, end));
        Some((start, end))
    }

    /// The data, if the pieces tile it.
    pub(super) fn into_data(mut self) -> Option<Vec<u8>> {
        self.pieces.sort_unstable();
        let mut end = 0;
        for (piece_start, piece_end) in self.pieces {
            if piece_start != end {
                return None;
            }
            end = piece_end;
        }
        (end == self.data.len()).then_some(self.data)
    }

    pub(super) fn take(&mut self) -> PendingRead {
        PendingRead {
            offset_bytes: self.offset_bytes,
            data: std::mem::take(&mut self.data),
            pieces: std::mem::take(&mut self.pieces),
            error: self.error,
        }
    }
}

/// Locks the table of requests under way.
pub(super) fn lock(
    pending: &Mutex<BTreeMap<u64, Option<PendingRead>>>,
) -> std::sync::MutexGuard<'_, BTreeMap<u64, Option<PendingRead>>> {
    // No code panics while it holds the lock in a way that leaves the table half changed.
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}
