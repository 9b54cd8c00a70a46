//! The trees of dirty bits of a cache, one for each volume.
//!
//! Before a clean slot is written to, its piece counts as dirty already: it is *expected*. So no transaction takes
//! away the mark that the write waits for.

use crate::format::{SetId, SlotLayout, TreePage, TreePlanes, TreeShape};
use crate::number::{index, to_u8};
use crate::store::slots::records::persistence::bit_tree::{BitTree, Needs, TreeTuning};
use crate::units::{Frame, Nanos, PieceKey, VOLUMES_MAX, VolumeIndex};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The trees of all volumes.
pub(crate) struct Trees {
    tuning: TreeTuning,
    period_ns: u64,
    /// End of the period.
    adjust_at: Nanos,
    trees: [Option<BitTree>; VOLUMES_MAX],
    /// Clean slots that a write is about to make dirty.
    expected: BTreeSet<u32>,
    /// Requests of each volume that were counted.
    requests: [u64; VOLUMES_MAX],
}

impl Trees {
    pub fn new(tuning: TreeTuning, period_ns: u64, trees: [Option<BitTree>; VOLUMES_MAX]) -> Trees {
        let adjust_at = Nanos(period_ns);
        Trees { tuning, period_ns, adjust_at, trees, expected: BTreeSet::new(), requests: [0; VOLUMES_MAX] }
    }

    /// Gives a volume that comes to an empty place a tree of its own, which is committed before the first write. A
    /// transaction that runs goes on without it.
    pub fn begin_volume(&mut self, volume: VolumeIndex, shape: TreeShape, pieces: u64, is_running: bool) {
        let place = &mut self.trees[volume.at()];
        let before = place.take();
        let tree = BitTree::new(shape, self.tuning, pieces);
        *place = Some(if is_running { tree.behind_transaction(before) } else { tree });
        self.requests[volume.at()] = 0;
    }

    pub fn leaf_pieces(&self) -> u32 {
        self.tuning.leaf_pieces
    }

    /// Number of times that the leaves of each volume are doubled.
    pub fn doublings(&self) -> [u8; VOLUMES_MAX] {
        core::array::from_fn(|at| self.trees[at].as_ref().map_or(0, |tree| to_u8(tree.doublings())))
    }

    fn tree(&mut self, volume: VolumeIndex) -> &mut BitTree {
        self.trees[volume.at()].as_mut().expect("a volume has a tree")
    }

    /// Expects a write to a clean slot, and returns the marks that the write has to wait for.
    pub fn expect(&mut self, slot: Frame, piece: PieceKey) -> Needs {
        let is_new = self.expected.insert(slot.0);
        let tree = self.tree(piece.volume());
        if is_new {
            tree.dirtied(piece.piece());
        }
        tree.needs(piece.piece())
    }

    /// Whether the leaf of a piece is marked durably, whatever is under way.
    pub fn is_marked_durably(&self, piece: PieceKey) -> bool {
        self.trees[piece.volume().at()].as_ref().is_some_and(|tree| tree.is_marked_durably(piece.piece()))
    }

    /// Notes that a clean slot became dirty.
    pub fn dirtied(&mut self, slot: Frame, piece: PieceKey) {
        if !self.expected.remove(&slot.0) {
            self.tree(piece.volume()).dirtied(piece.piece());
        }
    }

    /// Notes that a clean slot is given up; true if a mark went with it.
    pub fn forget(&mut self, slot: Frame, piece: PieceKey) -> bool {
        self.expected.remove(&slot.0) && self.cleaned(piece)
    }

    /// Notes that a dirty slot became clean; true if a mark went with it.
    pub fn cleaned(&mut self, piece: PieceKey) -> bool {
        self.tree(piece.volume()).cleaned(piece.piece())
    }

    /// Joins and splits leaves, if the period is over. Returns the volumes whose trees changed.
    pub fn adjust(&mut self, requests: impl Fn(VolumeIndex) -> Option<u64>, now: Nanos) -> Vec<VolumeIndex> {
        let mut changed = Vec::new();
        if now < self.adjust_at {
            return changed;
        }
        self.adjust_at = now.plus(self.period_ns);
        for at in 0..VOLUMES_MAX {
            let Some(tree) = &mut self.trees[at] else { continue };
            let volume = VolumeIndex(to_u8(at));
            // A volume that was detached has nothing cached.
            let Some(requests) = requests(volume) else { continue };
            tree.requested(requests - self.requests[at]);
            self.requests[at] = requests;
            if tree.adjust() {
                changed.push(volume);
            }
        }
        changed
    }

    /// Begins a transaction, and returns the pages that it has to write, each with its volume.
    pub fn begin_commit(&mut self) -> Vec<(VolumeIndex, u32)> {
        let mut pages = Vec::new();
        for (at, tree) in self.trees.iter_mut().enumerate() {
            if let Some(tree) = tree {
                pages.extend(tree.begin_commit().into_iter().map(|page| (VolumeIndex(to_u8(at)), page)));
            }
        }
        pages
    }

    /// Notes that the transaction is durable.
    pub fn committed(&mut self) {
        for tree in self.trees.iter_mut().flatten() {
            tree.committed();
        }
    }

    /// Writes page `page` of all trees' to `bytes`, as the transaction that runs has it.
    pub fn encode(
        &self,
        (set_id, layout): (&SetId, &SlotLayout),
        page: u32,
        transaction: u64,
        bytes: &mut [u8],
    ) {
        let of_volume = layout.volume_tree_pages();
        match &self.trees[index(page / of_volume)] {
            Some(tree) => TreePage::encode(set_id, page, transaction, tree.page(page % of_volume), bytes),
            // The page of an absent volume is empty.
            None => TreePage::encode(set_id, page, transaction, &[0; TreePage::CONTENT_BYTES], bytes),
        }
    }
}

/// The tree of a volume as a start found it.
pub(in crate::store::slots) struct FoundTree {
    pub planes: TreePlanes,
    pub doublings: u32,
}

impl FoundTree {
    /// Whether a piece that the cache holds counts as dirty after a crash.
    pub fn is_suspect(&self, leaf_pieces: u32, piece: PieceKey) -> bool {
        BitTree::is_suspect(&self.planes, leaf_pieces, self.doublings, piece.piece())
    }
}
