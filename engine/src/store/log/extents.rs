//! Ranges of a volume whose state is not "a block with data": zeroes on their way home, and
//! dirty blocks that were lost.
//!
//! They are extents and never blocks in RAM, so that zeroing a terabyte costs one entry (rule 12).
//! Each extent remembers the place of the header that recorded it: that place says which segment keeps
//! it, and tells it from a later extent of the same range.

use crate::units::{BlockKey, Place};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Kinds of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Reads as zeroes; the origin does not have them yet.
    Zero,
    /// Dirty data that is gone; reads fail.
    Lost,
}

/// One extent: keys are consecutive within one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block.
    pub first: BlockKey,
    /// How many blocks.
    pub blocks: u64,
    /// The kind of the range.
    pub kind: ExtentKind,
    /// The place of the header that recorded it.
    pub place: Place,
}

impl Extent {
    fn end(&self) -> u64 {
        self.first.0 + self.blocks
    }
}

#[derive(Clone, Copy)]
struct Body {
    blocks: u64,
    kind: ExtentKind,
    place: Place,
}

/// All extents of all volumes. No two overlap.
#[derive(Default)]
pub struct Extents {
    map: BTreeMap<u64, Body>,
}

impl Extents {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// How many pieces there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// The extent that `key` is in.
    #[must_use]
    pub fn get(&self, key: BlockKey) -> Option<Extent> {
        let (&first, body) = self.map.range(..=key.0).next_back()?;
        let extent = extent(first, *body);
        (key.0 < extent.end()).then_some(extent)
    }

    /// The first extent that ends after `key`.
    #[must_use]
    pub fn next(&self, key: BlockKey) -> Option<Extent> {
        self.get(key).or_else(|| self.map.range(key.0..).next().map(|(&first, body)| extent(first, *body)))
    }

    /// Takes `blocks` blocks from `first` out of whatever extents they are in; `change` is told of
    /// each piece that went and of each rest that stays.
    pub fn cut(&mut self, first: BlockKey, blocks: u64, mut change: impl FnMut(Change)) {
        if self.map.is_empty() || blocks == 0 {
            return;
        }
        let end = first.0 + blocks;
        let mut hit: Vec<Extent> = Vec::new();
        let mut at = first;
        while let Some(found) = self.next(at) {
            if found.first.0 >= end {
                break;
            }
            hit.push(found);
            if found.end() >= end || found.end() >= BlockKey::END {
                break;
            }
            at = BlockKey(found.end());
        }
        for old in hit {
            self.map.remove(&old.first.0);
            change(Change::Removed(old));
            for (from, to) in [(old.first.0, first.0), (end, old.end())] {
                if from < to && from >= old.first.0 {
                    let left = Extent { first: BlockKey(from), blocks: to - from, ..old };
                    self.insert_piece(left);
                    change(Change::Added(left));
                }
            }
        }
    }

    /// Adds an extent where there is none now ([`Extents::cut`] comes first).
    pub fn insert(&mut self, extent: Extent) {
        assert!(extent.blocks > 0, "an extent has blocks");
        assert!(
            self.next(extent.first).is_none_or(|next| next.first.0 >= extent.end()),
            "extents do not overlap"
        );
        self.insert_piece(extent);
    }

    fn insert_piece(&mut self, extent: Extent) {
        let body = Body { blocks: extent.blocks, kind: extent.kind, place: extent.place };
        let old = self.map.insert(extent.first.0, body);
        assert!(old.is_none(), "extents do not overlap");
    }

    /// All extents in order.
    pub fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.map.iter().map(|(&first, body)| extent(first, *body))
    }
}

fn extent(first: u64, body: Body) -> Extent {
    Extent { first: BlockKey(first), blocks: body.blocks, kind: body.kind, place: body.place }
}

/// A piece that [`Extents::cut`] took away, or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// This piece is not there any more.
    Removed(Extent),
    /// This piece is there now, a rest of a removed one.
    Added(Extent),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zero(first: u64, blocks: u64) -> Extent {
        Extent { first: BlockKey(first), blocks, kind: ExtentKind::Zero, place: Place(7) }
    }

    #[test]
    fn a_cut_in_the_middle_leaves_two_pieces() {
        let mut extents = Extents::default();
        extents.insert(zero(10, 100));
        let mut changes = Vec::new();
        extents.cut(BlockKey(50), 10, |change| changes.push(change));
        assert_eq!(
            changes,
            [Change::Removed(zero(10, 100)), Change::Added(zero(10, 40)), Change::Added(zero(60, 50))]
        );
        assert_eq!(extents.get(BlockKey(49)), Some(zero(10, 40)));
        assert_eq!(extents.get(BlockKey(50)), None);
        assert_eq!(extents.get(BlockKey(60)), Some(zero(60, 50)));
        assert_eq!(extents.next(BlockKey(50)), Some(zero(60, 50)));
    }

    #[test]
    fn a_cut_spans_several() {
        let mut extents = Extents::default();
        extents.insert(zero(0, 10));
        extents.insert(zero(10, 10));
        extents.insert(zero(30, 10));
        extents.cut(BlockKey(5), 30, |_| ());
        let left: Vec<_> = extents.iter().collect();
        assert_eq!(left, [zero(0, 5), zero(35, 5)]);
        extents.cut(BlockKey(0), 100, |_| ());
        assert!(extents.is_empty());
    }
}
