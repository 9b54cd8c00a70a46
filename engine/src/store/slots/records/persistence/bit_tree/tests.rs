//! The tree beside a naive model, and MapperX's adjustment.

use super::*;
use crate::prng::Prng;
use std::collections::BTreeSet;

const TUNING: TreeTuning = TreeTuning { leaf_pieces: 2, sla_permille: 1, steps: 5 };

fn shape(levels: u8) -> TreeShape {
    TreeShape::new(levels).unwrap()
}

/// A committed tree of 8 finest leaves of two pieces.
fn tree() -> BitTree {
    let mut tree = BitTree::new(shape(3), TUNING, 16);
    commit(&mut tree);
    tree
}

fn commit(tree: &mut BitTree) -> Vec<u32> {
    let pages = tree.begin_commit();
    tree.committed();
    pages
}

/// The leaves in the order of addresses, with an asterisk for a mark: the level of each.
fn leaves(planes: &TreePlanes) -> Vec<(u32, bool)> {
    let mut leaves: Vec<(u32, bool)> = Vec::new();
    let mut last = u32::MAX;
    for finest in 0..planes.shape().finest() {
        let leaf = planes.leaf_of(finest);
        if leaf != last {
            leaves.push((leaf, planes.is_marked(leaf)));
            last = leaf;
        }
    }
    leaves
}

/// Makes every leaf a finest one.
fn split_all(tree: &mut BitTree) {
    for piece in 0..16 {
        tree.dirtied(piece);
    }
    tree.requested(1000);
    while tree.adjust() {}
    for piece in 0..16 {
        tree.cleaned(piece);
    }
    commit(tree);
    assert_eq!(leaves(&tree.wanted), (7..15).map(|leaf| (leaf, false)).collect::<Vec<_>>());
}

#[test]
fn a_tree_begins_with_one_leaf_and_one_mark_covers_all() {
    let mut tree = tree();
    assert_eq!(leaves(&tree.durable), [(0, false)]);
    tree.dirtied(3);
    assert_eq!((tree.needs(3), tree.suspect_pieces()), (Needs::Next, 0));
    assert_eq!(commit(&mut tree), [0]);
    assert_eq!((tree.needs(3), tree.suspect_pieces()), (Needs::Nothing, 16));
    tree.dirtied(15);
    assert_eq!(tree.needs(15), Needs::Nothing, "the mark is there");
    assert_eq!(commit(&mut tree), [] as [u32; 0]);
    tree.cleaned(3);
    tree.cleaned(15);
    assert_eq!(tree.suspect_pieces(), 16, "a mark goes with the next transaction, whenever that is");
    assert_eq!(commit(&mut tree), [0]);
    assert_eq!((tree.suspect_pieces(), tree.dirty()), (0, 0));
}

#[test]
fn a_write_looks_at_both_trees_that_a_crash_may_find() {
    let mut tree = tree();
    tree.dirtied(0);
    assert_eq!(tree.needs(0), Needs::Next);
    tree.begin_commit();
    assert_eq!(tree.needs(0), Needs::Running, "the one that runs marks it");
    tree.committed();
    tree.cleaned(0);
    tree.begin_commit();
    // H10: the transaction that runs takes the mark away while the piece is dirtied again.
    tree.dirtied(0);
    assert!(tree.is_marked_durably(0));
    assert_eq!(tree.needs(0), Needs::Next);
    tree.committed();
    assert_eq!(tree.needs(0), Needs::Next);
    commit(&mut tree);
    assert_eq!(tree.needs(0), Needs::Nothing);
}

/// Goal: a volume may come while a transaction runs. Method: it comes to a place whose tree is being committed, and to one
/// without a tree; it is written to at once, and the transaction ends.
#[test]
fn a_tree_that_comes_while_a_transaction_runs_waits_for_the_next_one() {
    let mut gone = tree();
    gone.dirtied(3);
    gone.begin_commit();
    let page = gone.page(0).to_vec();
    for before in [Some(gone), None] {
        let had_tree = before.is_some();
        let mut tree = BitTree::new(shape(3), TUNING, 16).behind_transaction(before);
        if had_tree {
            assert_eq!(tree.page(0), page, "the transaction is written as it began");
        }
        tree.dirtied(3);
        assert_eq!(tree.needs(3), Needs::Next, "the one that runs has no mark of it");
        tree.committed();
        assert_eq!((tree.needs(3), tree.suspect_pieces()), (Needs::Next, 0), "nor has it when it is durable");
        assert_eq!(commit(&mut tree), [0]);
        assert_eq!((tree.needs(3), tree.suspect_pieces()), (Needs::Nothing, 16));
    }
}

#[test]
fn few_marks_split_the_dirty_leaf_with_the_fewest_of_them() {
    let mut tree = BitTree::new(shape(3), TreeTuning { steps: 1, ..TUNING }, 16);
    assert!(!tree.adjust(), "nothing is dirty");
    tree.dirtied(3);
    for _ in 0..1000 {
        tree.requested(1);
    }
    // 1 mark of 1000 requests is what is allowed.
    assert!(tree.adjust());
    assert_eq!(leaves(&tree.wanted), [(1, true), (2, false)]);
    tree.dirtied(12);
    for _ in 0..1000 {
        tree.requested(1);
    }
    assert!(tree.adjust(), "node 2 was marked in this period, node 1 was not");
    assert_eq!(leaves(&tree.wanted), [(3, true), (4, false), (2, true)]);
}

#[test]
fn many_marks_join_leaves_and_first_the_coarsest() {
    let mut tree = tree();
    split_all(&mut tree);
    tree.dirtied(14);
    for _ in 0..999 {
        tree.requested(1);
    }
    // 1 mark of 999 requests: more than 1 of 1000. Four parents of finest leaves, none marked in this period:
    // in the order of the tree, and as soon as there is a coarser pair, that one.
    assert!(tree.adjust());
    let joined = leaves(&tree.wanted);
    // 3, 4, then 1 (which comes before 5), 5, 6.
    assert_eq!(joined, [(1, false), (5, false), (6, true)]);
}

#[test]
fn the_parent_that_was_marked_itself_is_joined_first() {
    let mut tree = BitTree::new(shape(3), TreeTuning { steps: 1, ..TUNING }, 16);
    split_all(&mut tree);
    // Node 6 becomes a leaf, has itself marked, and is split again, all in one period: so it is known that its
    // children are marked often.
    tree.join(6);
    tree.dirtied(14);
    tree.split(6);
    assert!(tree.adjust());
    assert_eq!(leaves(&tree.wanted).last(), Some(&(6, true)));
}

#[test]
fn mapperx_holds_64_gib_and_larger_volumes_have_larger_leaves() {
    let tuning = TreeTuning { leaf_pieces: 32, ..TUNING };
    let pieces_of = |gib: u64| (gib << 30) / (256 << 10);
    let leaf_of = |gib: u64, piece: u64| {
        let doublings = doublings(shape(13), tuning.leaf_pieces, pieces_of(gib));
        finest(shape(13), tuning.leaf_pieces, doublings, piece)
    };
    assert_eq!([leaf_of(64, 31), leaf_of(64, 32)], [0, 1]);
    assert_eq!(leaf_of(64, pieces_of(64) - 1), 8191);
    assert_eq!([leaf_of(65, 63), leaf_of(65, 64)], [0, 1]);
    assert_eq!(leaf_of(1024, pieces_of(1024) - 1), 8191);
    assert_eq!(leaf_of(1, pieces_of(1) - 1), 127);
    let tree = BitTree::new(shape(13), tuning, pieces_of(1024));
    assert_eq!((tree.doublings(), tree.finest(pieces_of(1024) - 1)), (4, 8191));
    assert_eq!(tree.finest(pieces_of(4096) - 1), 8191, "a volume that grew: below the last leaf");
}

#[test]
fn a_new_tree_leaves_nothing_of_another_volume() {
    let mut tree = BitTree::new(shape(14), TUNING, 16);
    assert_eq!(commit(&mut tree), [0, 1], "all of its pages, whatever they hold");
    tree.dirtied(0);
    assert_eq!(commit(&mut tree), [0]);
}

#[test]
fn a_recovered_tree_has_the_marks_of_what_is_dirty() {
    let mut tree = tree();
    split_all(&mut tree);
    for piece in [0, 1, 9] {
        tree.dirtied(piece);
    }
    commit(&mut tree);
    let planes = tree.durable.clone();
    let suspect = |piece| BitTree::is_suspect(&planes, TUNING.leaf_pieces, 0, piece);
    assert_eq!((0..16).filter(|&piece| suspect(piece)).collect::<Vec<_>>(), [0, 1, 8, 9]);
    // The cache holds pieces 1, 5 and 9 of these.
    let mut recovered = BitTree::recovered(TUNING, 0, planes.clone(), [1, 9]);
    assert_eq!(recovered.dirty(), 2);
    assert_eq!(recovered.needs(1), Needs::Nothing);
    recovered.cleaned(1);
    recovered.cleaned(9);
    assert_eq!(commit(&mut recovered), [0]);
    assert_eq!(recovered.suspect_pieces(), 0);
}

/// A random history beside a set of dirty pieces.
#[test]
fn the_tree_marks_what_a_set_holds_and_nothing_else() {
    for seed in 0..60 {
        let mut prng = Prng::new(seed);
        let levels = 1 + (seed % 6) as u8;
        let tuning =
            TreeTuning { leaf_pieces: 1 + prng.below(3), sla_permille: 100, steps: 1 + prng.below(5) };
        let pieces = 1 + prng.below(200);
        let mut tree = BitTree::new(shape(levels), tuning, u64::from(pieces));
        let mut dirty = BTreeSet::new();
        let mut shapes = BTreeSet::new();
        for _ in 0..1500 {
            let piece = u64::from(prng.below(pieces));
            match prng.below(10) {
                0..=3 => {
                    if dirty.insert(piece) {
                        tree.dirtied(piece);
                    }
                    assert!(tree.needs(piece) != Needs::Nothing || tree.is_marked_durably(piece));
                }
                4..=6 => {
                    if dirty.remove(&piece) {
                        tree.cleaned(piece);
                    }
                }
                7 => tree.requested(u64::from(prng.below(30))),
                8 => {
                    tree.adjust();
                }
                _ if tree.running.is_none() => {
                    tree.begin_commit();
                }
                _ => {
                    let running = tree.running.clone();
                    tree.committed();
                    assert_eq!(Some(&tree.durable), running.as_ref());
                }
            }
            let finest: BTreeSet<u32> = dirty.iter().map(|&piece| tree.finest(piece)).collect();
            for (leaf, is_marked) in leaves(&tree.wanted) {
                let is_below = |&finest: &u32| tree.wanted.leaf_of(finest) == leaf;
                assert_eq!(
                    is_marked,
                    finest.iter().any(is_below),
                    "I2: a leaf is marked if something dirty is below it"
                );
            }
            let below = |node: u32| {
                let is_below = |piece: &&u64| {
                    let mut at = tree.shape.inner() + tree.finest(**piece);
                    while at > node {
                        at = (at - 1) / 2;
                    }
                    at == node
                };
                dirty.iter().filter(is_below).count() as u32
            };
            let node = prng.below(tree.shape.nodes());
            assert_eq!(
                (tree.counts[node as usize], tree.dirty()),
                (below(node), dirty.len() as u32),
                "I1: counts are exact"
            );
            shapes.insert(leaves(&tree.wanted).len());
        }
        assert!(levels < 3 || shapes.len() > 2, "the tree is adjusted");
    }
}
