//! Linked lists over a fixed number of entries, in one array that never grows.
//!
//! Entries lie in sets of equal size; each set has the same number of lists. An entry is in one
//! list of its set at most. A list is a ring through an anchor of its own, so an entry can be
//! taken out, and a whole list moved, without knowing which list it is.
//!
//! ```text
//! anchor ──► first ──► ... ──► last ──► anchor
//! ```
//!
//! Links are numbers within the set: 4 bytes for an entry where 16 bits hold them, else 8.
//!
//! * I1: `next` of `prev` and `prev` of `next` of a node are the node itself.
//! * I2: a node whose links are itself is an entry in no list, or the anchor of an empty list.

use crate::number::{index, to_u16, to_u32};
use alloc::vec;
use alloc::vec::Vec;

/// A list, counted over all sets: set number times lists of a set, plus the list of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List(pub u32);

/// The lists.
#[derive(Clone, Debug)]
pub struct FrameLists {
    set_entries: u32,
    set_lists: u32,
    links: Links,
}

/// The neighbours of each node: the entries of a set, then its anchors, then the next set.
#[derive(Clone, Debug)]
enum Links {
    Narrow(Vec<[u16; 2]>),
    Wide(Vec<[u32; 2]>),
}

/// A node: its set's first node, and its number within the set.
#[derive(Clone, Copy)]
struct Node {
    base: usize,
    local: u32,
}

impl Node {
    fn beside(self, local: u32) -> Node {
        Node { base: self.base, local }
    }
}

/// Index of the link to the node before.
const PREV: usize = 0;
/// Index of the link to the node after.
const NEXT: usize = 1;

impl FrameLists {
    /// Empty lists for `sets` sets of `set_entries` entries, `set_lists` lists each.
    #[must_use]
    pub fn new(sets: u32, set_entries: u32, set_lists: u32) -> FrameLists {
        assert!(sets > 0 && set_entries > 0 && set_lists > 0, "there is something to list");
        let set_nodes = set_entries.checked_add(set_lists).expect("a node has a number of 32 bits");
        let links = if set_nodes <= 1 << u16::BITS {
            let set: Vec<[u16; 2]> = (0..set_nodes).map(|local| [to_u16(local); 2]).collect();
            Links::Narrow(set.repeat(index(sets)))
        } else {
            let mut nodes = vec![[0; 2]; index(set_nodes) * index(sets)];
            for (number, node) in nodes.iter_mut().enumerate() {
                *node = [to_u32(number % index(set_nodes)); 2];
            }
            Links::Wide(nodes)
        };
        FrameLists { set_entries, set_lists, links }
    }

    /// Whether `entry` is in a list.
    #[must_use]
    pub fn is_listed(&self, entry: u32) -> bool {
        let node = self.entry(entry);
        self.link(node, NEXT) != node.local
    }

    /// Whether `list` has no entry.
    #[must_use]
    pub fn is_empty(&self, list: List) -> bool {
        self.first(list).is_none()
    }

    /// The first entry of `list`.
    #[must_use]
    pub fn first(&self, list: List) -> Option<u32> {
        self.follow(self.anchor(list), NEXT)
    }

    /// The last entry of `list`.
    #[must_use]
    pub fn last(&self, list: List) -> Option<u32> {
        self.follow(self.anchor(list), PREV)
    }

    /// The entry after `entry` in its list.
    #[must_use]
    pub fn next(&self, entry: u32) -> Option<u32> {
        self.follow(self.entry(entry), NEXT)
    }

    /// The entry before `entry` in its list.
    #[must_use]
    pub fn prev(&self, entry: u32) -> Option<u32> {
        self.follow(self.entry(entry), PREV)
    }

    /// Puts `entry`, which is in no list, at the end of a list of its set.
    pub fn push_back(&mut self, list: List, entry: u32) {
        let anchor = self.anchor(list);
        self.insert_before(anchor, entry);
    }

    /// Puts `entry`, which is in no list, at the front of a list of its set.
    pub fn push_front(&mut self, list: List, entry: u32) {
        let anchor = self.anchor(list);
        let first = anchor.beside(self.link(anchor, NEXT));
        self.insert_before(first, entry);
    }

    /// Puts `entry`, which is in no list, right before `listed`, which is in one of the same set.
    pub fn push_before(&mut self, listed: u32, entry: u32) {
        assert!(self.is_listed(listed), "there is a place before it");
        let node = self.entry(listed);
        self.insert_before(node, entry);
    }

    /// Takes `entry` out of the list it is in.
    pub fn remove(&mut self, entry: u32) {
        assert!(self.is_listed(entry), "who leaves a list is in one");
        let node = self.entry(entry);
        let (prev, next) = (self.link(node, PREV), self.link(node, NEXT));
        self.join(node.beside(prev), node.beside(next));
        self.join(node, node);
    }

    /// Moves all entries of `from` to the end of `to`, a list of the same set.
    pub fn append(&mut self, to: List, from: List) {
        assert!(to != from && to.0 / self.set_lists == from.0 / self.set_lists);
        if self.is_empty(from) {
            return;
        }
        let (to, from) = (self.anchor(to), self.anchor(from));
        let (first, last) = (self.link(from, NEXT), self.link(from, PREV));
        self.join(to.beside(self.link(to, PREV)), to.beside(first));
        self.join(to.beside(last), to);
        self.join(from, from);
    }

    fn insert_before(&mut self, node: Node, entry: u32) {
        assert!(!self.is_listed(entry), "an entry is in one list at most");
        let added = self.entry(entry);
        assert!(added.base == node.base, "a list is of one set");
        let prev = node.beside(self.link(node, PREV));
        self.join(prev, added);
        self.join(added, node);
    }

    fn entry(&self, entry: u32) -> Node {
        let set = index(entry / self.set_entries);
        Node { base: set * self.set_nodes(), local: entry % self.set_entries }
    }

    fn anchor(&self, list: List) -> Node {
        let set = index(list.0 / self.set_lists);
        Node { base: set * self.set_nodes(), local: self.set_entries + list.0 % self.set_lists }
    }

    fn set_nodes(&self) -> usize {
        index(self.set_entries + self.set_lists)
    }

    /// The entry that a link of `node` leads to; none if it leads to the anchor.
    fn follow(&self, node: Node, link: usize) -> Option<u32> {
        let local = self.link(node, link);
        let set = to_u32(node.base / self.set_nodes());
        (local < self.set_entries).then(|| set * self.set_entries + local)
    }

    fn link(&self, node: Node, link: usize) -> u32 {
        let at = node.base + index(node.local);
        match &self.links {
            Links::Narrow(nodes) => u32::from(nodes[at][link]),
            Links::Wide(nodes) => nodes[at][link],
        }
    }

    fn set_link(&mut self, node: Node, link: usize, local: u32) {
        let at = node.base + index(node.local);
        match &mut self.links {
            Links::Narrow(nodes) => {
                nodes[at][link] = u16::try_from(local).expect("a narrow set has narrow numbers");
            }
            Links::Wide(nodes) => nodes[at][link] = local,
        }
    }

    fn join(&mut self, node: Node, next: Node) {
        self.set_link(node, NEXT, next.local);
        self.set_link(next, PREV, node.local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use std::collections::VecDeque;

    fn forwards(lists: &FrameLists, list: List) -> VecDeque<u32> {
        core::iter::successors(lists.first(list), |&entry| lists.next(entry)).collect()
    }

    fn backwards(lists: &FrameLists, list: List) -> VecDeque<u32> {
        core::iter::successors(lists.last(list), |&entry| lists.prev(entry)).collect()
    }

    /// Random steps on `sets` sets beside one deque for each list.
    fn compare(sets: u32, set_entries: u32, set_lists: u32, seed: u64) {
        let mut prng = Prng::new(seed);
        let mut lists = FrameLists::new(sets, set_entries, set_lists);
        let mut model = vec![VecDeque::new(); (sets * set_lists) as usize];
        for _ in 0..4000 {
            let set = prng.below(sets);
            let entry = set * set_entries + prng.below(set_entries.min(20));
            let list = List(set * set_lists + prng.below(set_lists));
            let holder = model.iter().position(|list| list.contains(&entry));
            assert_eq!(lists.is_listed(entry), holder.is_some());
            match (prng.below(4), holder) {
                (3, _) => {
                    let from = List(set * set_lists + prng.below(set_lists));
                    if from != list {
                        lists.append(list, from);
                        let moved = core::mem::take(&mut model[from.0 as usize]);
                        model[list.0 as usize].extend(moved);
                    }
                }
                (_, Some(holder)) => {
                    lists.remove(entry);
                    model[holder].retain(|&other| other != entry);
                }
                (0, None) => {
                    lists.push_back(list, entry);
                    model[list.0 as usize].push_back(entry);
                }
                (1, None) => {
                    lists.push_front(list, entry);
                    model[list.0 as usize].push_front(entry);
                }
                (_, None) => {
                    let deque = &mut model[list.0 as usize];
                    if let Some(at) = deque.len().checked_sub(1).map(|most| prng.below(most as u32 + 1)) {
                        lists.push_before(deque[at as usize], entry);
                        deque.insert(at as usize, entry);
                    }
                }
            }
            for (number, expected) in model.iter().enumerate() {
                let list = List(number as u32);
                assert_eq!(forwards(&lists, list), *expected);
                assert_eq!(lists.is_empty(list), expected.is_empty());
                assert!(backwards(&lists, list).iter().eq(expected.iter().rev()));
            }
        }
    }

    #[test]
    fn lists_behave_like_deques_in_narrow_and_in_wide_numbers() {
        compare(1, 20, 3, 1);
        compare(4, 6, 2, 2);
        compare(1, 70_000, 3, 3);
        compare(2, 65_535, 2, 4);
    }

    #[test]
    fn the_last_narrow_set_has_65536_nodes() {
        assert!(matches!(FrameLists::new(1, 65_534, 2).links, Links::Narrow(_)));
        assert!(matches!(FrameLists::new(1, 65_535, 2).links, Links::Wide(_)));
    }
}
