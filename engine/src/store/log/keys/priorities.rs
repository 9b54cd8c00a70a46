//! Priorities: what bcache writes before it hands out more buckets.
//!
//! A bucket may be begun when its generation is on the device. So buckets are handed out in rounds: for each round, all
//! priorities and generations are written, which takes a bucket; a few buckets of the round before are left meanwhile,
//! and then writes wait, and fills pass by. In a small cache that is much: with 2048 buckets one for seven.
//!
//! Nothing here needs them: generations of buckets are in the ring. They are written for what they cost.
//!
//! Source: bcache's `bch_allocator_thread`, `bch_prio_write` and the sizes of its lists in `cache_alloc` (read), which
//! takes no cache of fewer than 1024 buckets: such a one writes none here. Only one of the buckets that very large caches
//! need for them is written.

use super::super::{LogFlight, LogStore};
use crate::effect::{Errno, IoOp, Pieces, Target};
use crate::machine::{Flight, Machine};
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::number::to_u32;
use crate::store::Lookup;
use crate::units::{BLOCK_BYTES, BlockKey};

/// Bytes of the buffer that is written again and again.
const PIECE_BYTES: u32 = 64 << 10;
/// Bytes that are written at the most.
const WRITE_BYTES_MAX: u32 = 1 << 20;

/// The rounds in which buckets are handed out.
#[derive(Debug)]
pub(super) struct Priorities {
    /// Buckets of a round; 0 if there are no rounds.
    round: u32,
    /// With so many of the last round left the next one is prepared.
    ahead: u32,
    /// Buckets that may be begun.
    granted: u32,
    is_writing: bool,
}

impl Priorities {
    /// The rounds of a cache of so many buckets.
    pub fn new(part: u32, buckets: u32) -> Priorities {
        let ahead = buckets.next_power_of_two().checked_div(part).unwrap_or(0);
        let listed = ahead * 4;
        // A list of more than four has a power of two less one.
        let round = if listed > 4 { listed.next_power_of_two() - 1 } else { listed };
        Priorities { round, ahead, granted: round + ahead, is_writing: false }
    }

    /// Whether the next round has to be prepared.
    fn is_due(&self) -> bool {
        self.round > 0 && !self.is_writing && self.granted <= self.ahead
    }

    /// A bucket is begun.
    fn begun(&mut self) {
        self.granted = self.granted.saturating_sub(1);
    }
}

impl Machine<LogStore> {
    /// Whether an extent may be placed, in a bucket that was begun or in one of this round, which counts as begun then.
    /// Otherwise it waits for priorities. Prepares the next round where it is due.
    pub(super) fn has_place_in_round<M: Memory>(&mut self, first: BlockKey, memory: &mut M) -> bool {
        let keys = self.store.appender.keys();
        if keys.priorities.round == 0 {
            return true;
        }
        if keys.priorities.is_due() {
            self.write_priorities(memory);
        }
        let keys = self.store.appender.keys_mut();
        if keys.buckets.has_begun(first) {
            return true;
        }
        let waits = keys.priorities.is_writing && (keys.priorities.granted == 0 || keys.buckets.free() == 0);
        if !waits && keys.buckets.free() > 0 {
            keys.priorities.begun();
        }
        !waits
    }

    /// Writes priorities into a free bucket. Without one, or without memory, clients need not wait for them.
    fn write_priorities<M: Memory>(&mut self, memory: &mut M) {
        if self.is_stopping || self.latched.is_some() || self.store.appender.keys().buckets.free() < 2 {
            return;
        }
        let Some(buffer) = self.allocate(Purpose::Payload, PIECE_BYTES, memory) else { return };
        memory.zero(Slice { buffer, offset_bytes: 0, len_bytes: PIECE_BYTES });
        let keys = self.store.appender.keys_mut();
        let bucket = keys.buckets.take_for_priorities().expect("some are free");
        keys.priorities.is_writing = true;
        let (place, blocks) = keys.buckets.run_of(bucket);
        let mut left = (blocks * to_u32(BLOCK_BYTES)).min(WRITE_BYTES_MAX);
        let mut pieces = alloc::vec::Vec::new();
        while left > 0 {
            let len_bytes = left.min(PIECE_BYTES);
            pieces.push(Slice { buffer, offset_bytes: 0, len_bytes });
            left -= len_bytes;
        }
        let op = IoOp::Write { offset_bytes: self.store.offset_bytes(place), from: Pieces::Many(pieces) };
        self.issue(Target::Cache, op, Flight::Store(LogFlight::Priorities { bucket, buffer }));
    }

    /// The device has the priorities: the next round may be begun.
    pub(in crate::store::log) fn priorities_written<M: Memory>(
        &mut self,
        bucket: u32,
        buffer: BufferId,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        memory.release(buffer);
        let keys = self.store.appender.keys_mut();
        keys.buckets.return_priorities(bucket);
        keys.priorities.is_writing = false;
        keys.priorities.granted += keys.priorities.round;
        if let Err(errno) = result {
            self.latch(errno, memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_those_of_the_lists_of_free_buckets() {
        let rounds = |buckets| {
            let priorities = Priorities::new(1024, buckets);
            (priorities.round, priorities.ahead)
        };
        assert_eq!(rounds(1000), (4, 1), "as many as the next power of two says");
        assert_eq!(rounds(2010), (7, 2));
        assert_eq!(rounds(400_000), (2047, 512));
        assert_eq!(rounds(512), (0, 0), "too small a cache for bcache");
        assert_eq!(Priorities::new(0, 2010).round, 0);
    }
}
