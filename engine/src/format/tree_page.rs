//! A tree of dirty bits as it lies on the device.
//!
//! A tree is binary and complete: node 0 is the root, the children of node n are 2n + 1 and 2n + 2. It is
//! stored as two planes of bits in this order, one after the other:
//!
//! ```text
//! marks    one bit for each node: something below it may be dirty; counts for leaves only
//! leaves   one bit for each node that has children: it is a leaf at present, they are not used
//! ```
//!
//! A node without children is a leaf if no node above it is one. The tree of MapperX, 13 levels below the
//! root, fills three quarters of one page.

use super::bytes::put;
use super::paired_page::{CONTENT_AT, CONTENT_BYTES, Kind, PAIRED_PAGE_BYTES, seal, unseal};
use super::{FormatError, SetId};
use crate::number::{index, to_u32};
use alloc::vec;
use alloc::vec::Vec;

/// Levels below the root at the most.
pub const TREE_LEVELS_MAX: u8 = 16;

/// How large a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeShape {
    levels: u8,
}

impl TreeShape {
    /// A tree with `levels` levels below the root: 1 to [`TREE_LEVELS_MAX`].
    ///
    /// # Errors
    /// [`FormatError::Field`].
    pub fn new(levels: u8) -> Result<TreeShape, FormatError> {
        if (1..=TREE_LEVELS_MAX).contains(&levels) {
            Ok(TreeShape { levels })
        } else {
            Err(FormatError::Field("tree levels"))
        }
    }

    /// Levels below the root.
    #[must_use]
    pub fn levels(self) -> u8 {
        self.levels
    }

    /// Nodes without children.
    #[must_use]
    pub fn finest(self) -> u32 {
        1 << self.levels
    }

    /// Nodes with children.
    #[must_use]
    pub fn inner(self) -> u32 {
        self.finest() - 1
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(self) -> u32 {
        self.inner() + self.finest()
    }

    /// Pages of a tree.
    #[must_use]
    pub fn pages(self) -> u32 {
        (self.nodes() + self.inner()).div_ceil(to_u32(CONTENT_BYTES) * 8)
    }
}

/// The two planes of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreePlanes {
    shape: TreeShape,
    /// As on the device: bit n is bit n % 8 of byte n / 8; whole pages.
    bytes: Vec<u8>,
}

impl TreePlanes {
    /// A tree without any bit set.
    #[must_use]
    pub fn new(shape: TreeShape) -> TreePlanes {
        TreePlanes { shape, bytes: vec![0; index(shape.pages()) * CONTENT_BYTES] }
    }

    /// The tree whose pages are `pages`, in order.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if there are not as many as the shape asks for, [`FormatError::Field`] if a
    /// bit is set that is none of the planes'.
    pub fn from_pages<'a>(
        shape: TreeShape,
        pages: impl IntoIterator<Item = &'a TreePage>,
    ) -> Result<TreePlanes, FormatError> {
        let mut bytes = Vec::with_capacity(index(shape.pages()) * CONTENT_BYTES);
        for page in pages.into_iter().take(index(shape.pages())) {
            bytes.extend_from_slice(&page.content);
        }
        if bytes.len() != index(shape.pages()) * CONTENT_BYTES {
            return Err(FormatError::Truncated);
        }
        let planes = TreePlanes { shape, bytes };
        let used = shape.nodes() + shape.inner();
        let mut rest = planes.bytes[index(used / 8)..].iter().copied();
        let shared = rest.next().map_or(0, |byte| byte >> (used % 8));
        if shared != 0 || rest.any(|byte| byte != 0) {
            return Err(FormatError::Field("tree planes"));
        }
        Ok(planes)
    }

    /// How large the tree is.
    #[must_use]
    pub fn shape(&self) -> TreeShape {
        self.shape
    }

    /// Whether something below `node` may be dirty.
    #[must_use]
    pub fn is_marked(&self, node: u32) -> bool {
        assert!(node < self.shape.nodes());
        self.bit(node)
    }

    /// Marks `node`, or takes its mark away.
    pub fn mark(&mut self, node: u32, is_marked: bool) {
        assert!(node < self.shape.nodes());
        self.put_bit(node, is_marked);
    }

    /// Whether `node` is a leaf, if no node above it is one.
    #[must_use]
    pub fn is_leaf(&self, node: u32) -> bool {
        assert!(node < self.shape.nodes());
        node >= self.shape.inner() || self.bit(self.shape.nodes() + node)
    }

    /// Makes `node`, which has children, a leaf, or gives its children back.
    pub fn set_leaf(&mut self, node: u32, is_leaf: bool) {
        assert!(node < self.shape.inner(), "a node without children is a leaf of itself");
        self.put_bit(self.shape.nodes() + node, is_leaf);
    }

    /// The leaf above, or at, finest node number `finest`.
    #[must_use]
    pub fn leaf_of(&self, finest: u32) -> u32 {
        assert!(finest < self.shape.finest());
        let mut node = 0;
        let mut level = self.shape.levels;
        while !self.is_leaf(node) {
            level -= 1;
            node = 2 * node + 1 + (finest >> level & 1);
        }
        node
    }

    /// The bytes of page `page`, which is below [`TreeShape::pages`].
    #[must_use]
    pub fn page(&self, page: u32) -> &[u8] {
        let at = index(page) * CONTENT_BYTES;
        &self.bytes[at..at + CONTENT_BYTES]
    }

    fn bit(&self, bit: u32) -> bool {
        self.bytes[index(bit / 8)] >> (bit % 8) & 1 == 1
    }

    fn put_bit(&mut self, bit: u32, is_set: bool) {
        let byte = &mut self.bytes[index(bit / 8)];
        if is_set {
            *byte |= 1 << (bit % 8);
        } else {
            *byte &= !(1 << (bit % 8));
        }
    }
}

/// A page of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreePage {
    /// Its number among the pages of all trees.
    pub page: u32,
    /// The transaction that wrote it; not 0.
    pub transaction: u64,
    /// A part of the planes.
    content: Vec<u8>,
}

impl TreePage {
    /// Bytes of the planes in one page.
    pub const CONTENT_BYTES: usize = CONTENT_BYTES;

    /// Writes page number `page` to `bytes`: `content` is [`TreePlanes::page`].
    ///
    /// # Panics
    /// If `bytes` has another length than [`PAIRED_PAGE_BYTES`], or `transaction` is 0.
    pub fn encode(set_id: &SetId, page: u32, transaction: u64, content: &[u8], bytes: &mut [u8]) {
        assert!(bytes.len() == PAIRED_PAGE_BYTES && content.len() == CONTENT_BYTES);
        put(bytes, CONTENT_AT, content);
        seal(set_id, Kind::Tree, page, transaction, bytes);
    }

    /// Its part of the planes.
    #[must_use]
    pub fn into_content(self) -> Vec<u8> {
        self.content
    }

    /// Reads a page from the first [`PAIRED_PAGE_BYTES`] of `bytes`.
    ///
    /// # Errors
    /// Any [`FormatError`] but `Version`, which the superblock has.
    pub fn decode(set_id: &SetId, bytes: &[u8]) -> Result<TreePage, FormatError> {
        let (page, transaction, content) = unseal(set_id, Kind::Tree, bytes)?;
        Ok(TreePage { page, transaction, content: content.to_vec() })
    }

    /// The part of the planes that it holds.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.content
    }
}
