//! A tree of bits over a volume: the leaves below which a piece may be dirty.
//!
//! A leaf's mark is durable before the first dirty byte below it is written, and stays until some later transaction
//! finds nothing dirty there. So a crash makes only the pieces below marked leaves suspect, and not all cached ones.
//! Leaves are fine where marks change rarely and coarse where they change often, so that the marks cost few
//! transactions: a tree begins with its root as the only leaf, and is adjusted every period.
//!
//! Marks and shape are committed together ([`crate::store::slots::records::persistence::commit`]), so a crash finds either tree as a
//! whole. While a transaction runs nobody knows which one: a piece is *covered* only if both mark it.
//!
//! * I1: counts are exact: of every node, the dirty pieces below it.
//! * I2: the wanted tree marks every leaf below which something is dirty.
//! * I3 (S7 of [`crate::store::slots`]): a write to a piece is issued only if its leaf is marked in the durable tree and in
//!   the one that is being committed. By I2 it then stays marked in all later ones while the piece is dirty.
//!
//! Source: MapperX (L. Yin et al., USENIX ATC 2021) and its authors' code: counts, the walk of the adjustment,
//! its figures. There a volume may have 8192 × 32 pieces; here leaves are doubled for larger ones. There marks
//! go into spare bits of dm-cache's mapping, and are cleared at once, before the origin was flushed.

use crate::format::{TreePlanes, TreeShape};
use crate::number::{index, to_u32};
use alloc::vec;
use alloc::vec::Vec;

/// The figures of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeTuning {
    /// Pieces below a finest leaf, unless the volume is too large for that; MapperX: 32.
    pub leaf_pieces: u32,
    /// Marks that requests may cost, for each 1000 requests; more of them make leaves coarser. MapperX: 1.
    pub sla_permille: u32,
    /// Leaves that are joined, or split, in one adjustment; MapperX: 5.
    pub steps: u32,
}

/// The transaction that a write to a dirty piece has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// The transaction that runs.
    Running,
    /// The next transaction that begins.
    Next,
}

/// The content that an older transaction commits at the place of a tree: that of the tree before, if there was one.
#[derive(Clone, Debug)]
struct Before(Option<TreePlanes>);

/// The tree of one volume.
#[derive(Clone, Debug)]
pub struct BitTree {
    tuning: TreeTuning,
    shape: TreeShape,
    /// The finest leaf of piece n is n >> this, once it was divided by `leaf_pieces`.
    doublings: u32,
    /// I1.
    counts: Vec<u32>,
    /// Marks of each node that requests caused in this period.
    writes: Vec<u32>,
    marks_written: u64,
    requests: u64,
    /// The tree that the next transaction commits.
    wanted: TreePlanes,
    /// The tree that the running one commits.
    running: Option<TreePlanes>,
    /// The content of this place in the running one, where that began before this tree.
    before: Option<Before>,
    /// The tree that the last one committed.
    durable: TreePlanes,
    /// The pages may hold the tree of another volume, which is gone.
    is_new: bool,
}

impl BitTree {
    /// The tree of a new volume of `pieces` pieces. It is to be committed before the first write.
    #[must_use]
    pub fn new(shape: TreeShape, tuning: TreeTuning, pieces: u64) -> BitTree {
        let mut planes = TreePlanes::new(shape);
        planes.set_leaf(0, true);
        BitTree {
            wanted: planes,
            is_new: true,
            ..BitTree::recovered(
                tuning,
                doublings(shape, tuning.leaf_pieces, pieces),
                TreePlanes::new(shape),
                [],
            )
        }
    }

    /// The same while a transaction runs, which goes on without it. `before` is the tree that was at its place when that
    /// one began: its pages may still be written. They mean nothing: it marks no piece of this volume, so no write goes by it.
    #[must_use]
    pub fn behind_transaction(self, before: Option<BitTree>) -> BitTree {
        let planes = before.and_then(|tree| tree.running.or(tree.before.and_then(|Before(planes)| planes)));
        BitTree { before: Some(Before(planes)), ..self }
    }

    /// Number of times that the pieces of a finest leaf are doubled, so that the tree is large enough for its volume. It stays
    /// what it was when the volume was new: what a volume grows by later lies below the last leaf.
    #[must_use]
    pub fn doublings(&self) -> u32 {
        self.doublings
    }

    /// The tree that a start found, with the pieces that are dirty: those below its marked leaves that the
    /// cache holds. `doublings` is what [`BitTree::doublings`] told when the planes were written.
    #[must_use]
    pub fn recovered(
        tuning: TreeTuning,
        doublings: u32,
        planes: TreePlanes,
        dirty: impl IntoIterator<Item = u64>,
    ) -> BitTree {
        let shape = planes.shape();
        let mut tree = BitTree {
            tuning,
            shape,
            doublings,
            counts: vec![0; index(shape.nodes())],
            writes: vec![0; index(shape.nodes())],
            marks_written: 0,
            requests: 0,
            wanted: planes.clone(),
            running: None,
            before: None,
            durable: planes,
            is_new: false,
        };
        for piece in dirty {
            tree.count(piece, true);
        }
        for node in 0..shape.nodes() {
            tree.wanted.mark(node, tree.wanted.is_marked(node) && tree.counts[index(node)] > 0);
        }
        tree
    }

    /// Whether `piece`, which the cache holds, counts as dirty when its volume is recovered from `planes`.
    #[must_use]
    pub fn is_suspect(planes: &TreePlanes, leaf_pieces: u32, doublings: u32, piece: u64) -> bool {
        planes.is_marked(planes.leaf_of(finest(planes.shape(), leaf_pieces, doublings, piece)))
    }

    /// So many requests of clients went by; reads count too.
    pub fn requested(&mut self, requests: u64) {
        self.requests += requests;
    }

    /// A clean piece is about to be written: it counts as dirty from now on, before the write is issued. Who
    /// has to wait is told by [`BitTree::needs`].
    pub fn dirtied(&mut self, piece: u64) {
        self.count(piece, true);
        let leaf = self.wanted.leaf_of(self.finest(piece));
        if !self.wanted.is_marked(leaf) {
            self.wanted.mark(leaf, true);
            self.marks_written += 1;
            self.writes[index(leaf)] += 1;
        }
    }

    /// The transaction that a write to a dirty piece has to wait for (I3).
    #[must_use]
    pub fn needs(&self, piece: u64) -> Needs {
        let finest = self.finest(piece);
        let is_marked = |planes: &TreePlanes| planes.is_marked(planes.leaf_of(finest));
        match &self.running {
            Some(running) if !is_marked(running) => Needs::Next,
            None if !is_marked(&self.durable) => Needs::Next,
            Some(_) if !is_marked(&self.durable) => Needs::Running,
            _ => Needs::Nothing,
        }
    }

    /// Whether the durable tree marks the leaf of a piece. Not enough for a write: see [`BitTree::needs`].
    #[must_use]
    pub fn is_marked_durably(&self, piece: u64) -> bool {
        self.durable.is_marked(self.durable.leaf_of(self.finest(piece)))
    }

    /// The origin has a dirty piece durably. Its leaf loses its mark in whatever transaction comes next, if
    /// nothing else below it is dirty: then the answer is true.
    pub fn cleaned(&mut self, piece: u64) -> bool {
        self.count(piece, false);
        let leaf = self.wanted.leaf_of(self.finest(piece));
        self.mark_exactly(leaf);
        !self.wanted.is_marked(leaf)
    }

    /// The end of a period: leaves are joined if requests had to pay for more marks than they may, and split
    /// otherwise. Answers whether the tree is another one.
    pub fn adjust(&mut self) -> bool {
        let is_too_fine = self.marks_written * 1000 > u64::from(self.tuning.sla_permille) * self.requests;
        let mut changed = false;
        for _ in 0..self.tuning.steps {
            let node = if is_too_fine { self.joinable() } else { self.splittable() };
            let Some(node) = node else { break };
            changed = true;
            if is_too_fine {
                self.join(node);
            } else {
                self.split(node);
            }
        }
        self.writes.fill(0);
        self.marks_written = 0;
        self.requests = 0;
        changed
    }

    /// A transaction begins. Answers the pages of this tree that it has to write; their content is
    /// [`BitTree::page`].
    pub fn begin_commit(&mut self) -> Vec<u32> {
        assert!(self.running.is_none() && self.before.is_none(), "one transaction runs at a time");
        let is_changed = |page: &u32| self.is_new || self.wanted.page(*page) != self.durable.page(*page);
        let pages = (0..self.shape.pages()).filter(is_changed).collect();
        self.running = Some(self.wanted.clone());
        pages
    }

    /// The content of a page in the transaction that runs.
    #[must_use]
    pub fn page(&self, page: u32) -> &[u8] {
        let before = self.before.as_ref().and_then(|Before(planes)| planes.as_ref());
        self.running.as_ref().or(before).expect("a transaction runs").page(page)
    }

    /// The transaction is durable. One that is older than this tree says nothing of it.
    pub fn committed(&mut self) {
        if self.before.take().is_some() {
            return;
        }
        self.durable = self.running.take().expect("a transaction runs");
        self.is_new = false;
    }

    /// Pieces that would count as dirty after a crash now, if the cache held all of them: the sizes of the marked leaves.
    #[must_use]
    pub fn suspect_pieces(&self) -> u64 {
        let mut suspect = 0;
        self.walk(&self.durable, |node, level| {
            if self.durable.is_leaf(node) && self.durable.is_marked(node) {
                let finest = u64::from(self.shape.finest()) >> level;
                suspect += (finest * u64::from(self.tuning.leaf_pieces)) << self.doublings;
            }
        });
        suspect
    }

    /// Dirty pieces.
    #[must_use]
    pub fn dirty(&self) -> u32 {
        self.counts[0]
    }

    fn finest(&self, piece: u64) -> u32 {
        finest(self.shape, self.tuning.leaf_pieces, self.doublings, piece)
    }

    /// Counts a piece that became dirty or clean, in all nodes above it.
    fn count(&mut self, piece: u64, is_dirty: bool) {
        let mut node = self.shape.inner() + self.finest(piece);
        loop {
            let count = &mut self.counts[index(node)];
            *count = if is_dirty { *count + 1 } else { *count - 1 };
            if node == 0 {
                break;
            }
            node = (node - 1) / 2;
        }
    }

    fn mark_exactly(&mut self, leaf: u32) {
        self.wanted.mark(leaf, self.counts[index(leaf)] > 0);
    }

    /// Calls `visit` with every node down to the leaves, and its level; in no order that matters.
    fn walk(&self, planes: &TreePlanes, mut visit: impl FnMut(u32, u32)) {
        let mut left = vec![(0, 0)];
        while let Some((node, level)) = left.pop() {
            visit(node, level);
            if !planes.is_leaf(node) {
                left.extend([(2 * node + 1, level + 1), (2 * node + 2, level + 1)]);
            }
        }
    }

    /// The parent of two leaves that had itself marked most often; of equal ones the first in the tree's order.
    /// A node that was no leaf in this period was never marked.
    fn joinable(&self) -> Option<u32> {
        let mut best = None;
        self.walk(&self.wanted, |node, _| {
            let is_parent = |node| self.wanted.is_leaf(2 * node + 1) && self.wanted.is_leaf(2 * node + 2);
            if !self.wanted.is_leaf(node) && is_parent(node) {
                let rank = (core::cmp::Reverse(self.writes[index(node)]), node);
                best = Some(best.map_or(rank, |best: (_, u32)| best.min(rank)));
            }
        });
        best.map(|(_, node)| node)
    }

    /// The leaf with something dirty below it that was marked least often and can be split; of equal ones the
    /// first in the tree's order.
    fn splittable(&self) -> Option<u32> {
        let mut best = None;
        self.walk(&self.wanted, |node, _| {
            if node < self.shape.inner() && self.wanted.is_leaf(node) && self.counts[index(node)] > 0 {
                let rank = (self.writes[index(node)], node);
                best = Some(best.map_or(rank, |best: (u32, u32)| best.min(rank)));
            }
        });
        best.map(|(_, node)| node)
    }

    fn join(&mut self, node: u32) {
        for child in [2 * node + 1, 2 * node + 2] {
            self.wanted.mark(child, false);
            if child < self.shape.inner() {
                self.wanted.set_leaf(child, false);
            }
        }
        self.wanted.set_leaf(node, true);
        self.mark_exactly(node);
    }

    fn split(&mut self, node: u32) {
        self.wanted.set_leaf(node, false);
        self.wanted.mark(node, false);
        for child in [2 * node + 1, 2 * node + 2] {
            if child < self.shape.inner() {
                self.wanted.set_leaf(child, true);
            }
            self.mark_exactly(child);
        }
    }
}

/// Number of times that the pieces of a leaf are doubled until a tree is large enough for a volume.
fn doublings(shape: TreeShape, leaf_pieces: u32, pieces: u64) -> u32 {
    assert!(leaf_pieces > 0, "a leaf has pieces below it");
    let leaves = pieces.div_ceil(u64::from(leaf_pieces)).max(1);
    leaves.next_power_of_two().ilog2().saturating_sub(u32::from(shape.levels()))
}

/// The finest leaf above a piece.
fn finest(shape: TreeShape, leaf_pieces: u32, doublings: u32, piece: u64) -> u32 {
    let leaf = (piece / u64::from(leaf_pieces)) >> doublings;
    to_u32(leaf.min(u64::from(shape.finest() - 1)))
}

#[cfg(test)]
mod tests;
