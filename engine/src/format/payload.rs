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
use crate::pair::Half;

/// Blocks of an entry that lie in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadRun {
    /// Which of the entries.
    pub entry: usize,
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

/// The payload of entries whose lengths a header has room for, in their order; an entry may be in two runs. That of keys lies
/// elsewhere.
pub fn payload_runs(entries: &[Entry]) -> impl Iterator<Item = PayloadRun> {
    let (both, once) = totals(entries);
    let first_has = crate::number::low_u32(once.div_ceil(2));
    let behind = crate::number::low_u32(both);
    let (mut inline, mut seen) = (0, 0);
    entries.iter().enumerate().filter(|(_, entry)| !entry.kind.is_key()).flat_map(move |(at, entry)| {
        let blocks = entry.payload_blocks;
        let run = |skip, blocks, at_block, half| PayloadRun { entry: at, skip, blocks, at: at_block, half };
        let runs = if entry.kind == EntryKind::CleanOnce {
            let of_first = first_has.saturating_sub(seen).min(blocks);
            let of_second = (seen + of_first).saturating_sub(first_has);
            let runs = [
                run(0, of_first, behind + seen, Some(Half::First)),
                run(of_first, blocks - of_first, behind + of_second, Some(Half::Second)),
            ];
            seen += blocks;
            runs
        } else {
            let runs = [run(0, blocks, inline, None), run(0, 0, 0, None)];
            inline += blocks;
            runs
        };
        runs.into_iter().filter(|run| run.blocks > 0)
    })
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
        let run = |entry, skip, blocks, at, half| PayloadRun { entry, skip, blocks, at, half };
        let (first, second) = (Some(Half::First), Some(Half::Second));
        assert_eq!(
            payload_runs(&entries).collect::<Vec<_>>(),
            [run(0, 0, 3, 2, first), run(1, 0, 2, 0, None), run(2, 0, 1, 5, first), run(2, 1, 3, 2, second)]
        );
        assert_eq!(payload_span_blocks(&entries), 6);
        assert_eq!(payload_runs(&[once(1)]).collect::<Vec<_>>(), [run(0, 0, 1, 0, first)]);
    }
}
