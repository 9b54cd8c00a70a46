//! Where the payload of a batch lies behind its header.
//!
//! ```text
//!   first half  │ header │ payload of both halves │ once: 0 .. h │
//!   second half │ header │ payload of both halves │ once: h ..   │
//! ```
//!
//! A device alone has no payload that one half has alone. Of `n` such blocks, in the order of the entries, the first half has the first
//! `h`, which is half of `n`, rounded up.

use super::entry::{Entry, EntryKind};
use crate::number::low_u32;
use crate::pair::Half;

/// Blocks of an entry that lie in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadRun {
    /// Blocks of the entry before these.
    pub skip: u32,
    /// How many.
    pub blocks: u32,
    /// Where they begin, in blocks from the end of the header.
    pub at: u32,
    /// The half that alone has them.
    pub half: Option<Half>,
}

/// Blocks that are on both halves, or on the only device, and blocks that one half has alone.
fn totals(entries: &[Entry]) -> (u64, u64) {
    entries.iter().filter(|entry| !entry.kind.is_key()).fold((0, 0), |(both, once), entry| {
        let blocks = u64::from(entry.payload_blocks);
        if entry.kind == EntryKind::CleanOnce { (both, once + blocks) } else { (both + blocks, once) }
    })
}

/// The blocks behind a header that the payload of its entries takes.
#[must_use]
pub fn payload_span_blocks(entries: &[Entry]) -> u64 {
    let (both, once) = totals(entries);
    both + once.div_ceil(2)
}

/// Where the next entry of a batch has its payload; the entries are taken in their order.
#[derive(Clone, Copy, Debug)]
pub struct PayloadCursor {
    /// Blocks on both halves before the entry.
    both: u32,
    /// Blocks that one half has alone before the entry; how many of all the first half has, and where they begin.
    once: u32,
    first_has: u32,
    once_at: u32,
}

impl PayloadCursor {
    /// The first of the entries, whose lengths a header has room for.
    #[must_use]
    pub fn new(entries: &[Entry]) -> PayloadCursor {
        let (both, once) = totals(entries);
        PayloadCursor { both: 0, once: 0, first_has: low_u32(once.div_ceil(2)), once_at: low_u32(both) }
    }

    /// Goes on behind an entry whose payload lies in one row, on both halves: where that begins, in blocks from the end of the
    /// header. Keys have none there.
    #[must_use]
    pub fn pass(&mut self, entry: &Entry) -> u32 {
        assert!(entry.kind != EntryKind::CleanOnce, "it lies on both halves");
        let at = self.both;
        if !entry.kind.is_key() {
            self.both += entry.payload_blocks;
        }
        at
    }

    /// Goes on behind an entry whose payload one half has alone: its parts, of which one may have no blocks.
    #[must_use]
    pub fn pass_once(&mut self, entry: &Entry) -> [PayloadRun; 2] {
        assert!(entry.kind == EntryKind::CleanOnce, "one half has it alone");
        let (blocks, before) = (entry.payload_blocks, self.once);
        let of_first = self.first_has.saturating_sub(before).min(blocks);
        let of_second = (before + of_first).saturating_sub(self.first_has);
        self.once += blocks;
        let run =
            |skip, blocks, at, half| PayloadRun { skip, blocks, at: self.once_at + at, half: Some(half) };
        [run(0, of_first, before, Half::First), run(of_first, blocks - of_first, of_second, Half::Second)]
    }
}

/// The payload of entries whose lengths a header has room for, in their order, each with which of the entries has it; an entry
/// may be in two runs. That of keys lies elsewhere.
pub fn payload_runs(entries: &[Entry]) -> impl Iterator<Item = (usize, PayloadRun)> {
    let mut cursor = PayloadCursor::new(entries);
    let runs =
        entries.iter().enumerate().filter(|(_, entry)| !entry.kind.is_key()).flat_map(move |(at, entry)| {
            let runs = if entry.kind == EntryKind::CleanOnce {
                cursor.pass_once(entry)
            } else {
                let run = |blocks, at| PayloadRun { skip: 0, blocks, at, half: None };
                [run(entry.payload_blocks, cursor.pass(entry)), run(0, 0)]
            };
            runs.map(|run| (at, run))
        });
    runs.filter(|(_, run)| run.blocks > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::VolumeId;
    use std::vec::Vec;

    fn entry(kind: EntryKind, blocks: u32) -> Entry {
        let (volume, sectors) = (VolumeId(1), blocks * 8);
        Entry { kind, ring: 0, volume, start_sector: 0, sectors, payload_blocks: blocks, extra: 0 }
    }

    #[test]
    fn what_one_half_has_alone_lies_behind_the_rest_side_by_side() {
        let once = |blocks| entry(EntryKind::CleanOnce, blocks);
        let entries = [once(3), entry(EntryKind::Dirty, 2), once(4)];
        let run = |entry: usize, skip, blocks, at, half| (entry, PayloadRun { skip, blocks, at, half });
        let (first, second) = (Some(Half::First), Some(Half::Second));
        assert_eq!(
            payload_runs(&entries).collect::<Vec<_>>(),
            [run(0, 0, 3, 2, first), run(1, 0, 2, 0, None), run(2, 0, 1, 5, first), run(2, 1, 3, 2, second)]
        );
        assert_eq!(payload_span_blocks(&entries), 6);
        assert_eq!(payload_runs(&[once(1)]).collect::<Vec<_>>(), [run(0, 0, 1, 0, first)]);
    }
}
