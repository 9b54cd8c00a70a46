//! Requests under way, which both halves of a client share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A read under way: its range, and the data that has come so far.
#[derive(Debug)]
pub(super) struct PendingRead {
    pub(super) offset_bytes: u64,
    pub(super) data: Vec<u8>,
}

/// All requests under way by cookie; `None` for those that bring no data.
pub(super) type Pending = Arc<Mutex<BTreeMap<u64, Option<PendingRead>>>>;

/// Locks the table of requests under way.
pub(super) fn lock(
    pending: &Mutex<BTreeMap<u64, Option<PendingRead>>>,
) -> std::sync::MutexGuard<'_, BTreeMap<u64, Option<PendingRead>>> {
    // No code panics while it holds the lock in a way that leaves the table half changed.
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}
