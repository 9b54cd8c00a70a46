//! The queues beside a model of plain deques, and what redistribution comes to.

use super::*;
use crate::prng::Prng;
use std::collections::VecDeque;

/// An entry or a mark of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Entry(u32),
    Mark(Mark),
}

/// One queue, the obvious way: written from the description, without counts and links.
struct Model {
    levels: Vec<VecDeque<Node>>,
    top: TopShare,
}

impl Model {
    fn new(has_marks: bool, top: TopShare) -> Model {
        let level: VecDeque<Node> = match has_marks {
            true => [Node::Mark(Mark::First), Node::Mark(Mark::Second)].into(),
            false => VecDeque::new(),
        };
        Model { levels: vec![level; LEVELS as usize], top }
    }

    fn entries(level: &VecDeque<Node>) -> Vec<u32> {
        let entry = |node: &Node| match node {
            Node::Entry(entry) => Some(*entry),
            Node::Mark(_) => None,
        };
        level.iter().filter_map(entry).collect()
    }

    fn level_of(&self, entry: u32) -> usize {
        self.levels.iter().position(|level| level.contains(&Node::Entry(entry))).unwrap()
    }

    fn remove(&mut self, entry: u32) {
        self.levels.iter_mut().for_each(|level| level.retain(|node| *node != Node::Entry(entry)));
    }

    fn push_before(&mut self, level: usize, mark: Mark, entry: u32) {
        let at = self.levels[level].iter().position(|node| *node == Node::Mark(mark)).unwrap();
        self.levels[level].insert(at, Node::Entry(entry));
    }

    fn rise(&mut self, entry: u32, jump: u32, displaced: Displaced) {
        let level = self.level_of(entry);
        let to = (level + jump as usize).min(LEVELS as usize - 1);
        let first = self.levels[to].iter().position(|node| matches!(node, Node::Entry(_)));
        if let (true, Some(marks)) = (to != level, first) {
            let Some(Node::Entry(swapped)) = self.levels[to].remove(marks) else { unreachable!() };
            match displaced {
                Displaced::Before(mark) => self.push_before(level, mark, swapped),
                Displaced::SameAge(mark) if marks == 0 => self.push_before(level, mark, swapped),
                Displaced::SameAge(mark) if marks == 1 => self.push_before(level, mark.other(), swapped),
                _ => self.levels[level].push_back(Node::Entry(swapped)),
            }
        }
        self.remove(entry);
        self.levels[to].push_back(Node::Entry(entry));
    }

    fn target(&self, level: u32) -> usize {
        let total: usize = self.levels.iter().map(|level| Self::entries(level).len()).sum();
        let top = self.top.entries as usize;
        let (share, of) = if level >= LEVELS - self.top.levels {
            (top, LEVELS - self.top.levels..LEVELS)
        } else {
            (total.saturating_sub(top), 0..LEVELS - self.top.levels)
        };
        // Dealt out one by one, from the bottom.
        (0..share).filter(|number| number % of.len() == (level - of.start) as usize).count()
    }

    fn redistribute(&mut self, surplus_to: End) {
        for level in 0..LEVELS as usize - 1 {
            let target = self.target(level as u32);
            while Self::entries(&self.levels[level]).len() < target {
                let above = self.levels[level + 1..].iter().flat_map(Self::entries).next();
                let Some(entry) = above else { break };
                self.remove(entry);
                self.levels[level].push_back(Node::Entry(entry));
            }
            while Self::entries(&self.levels[level]).len() > target {
                let entry = *Self::entries(&self.levels[level]).last().unwrap();
                self.remove(entry);
                match surplus_to {
                    End::Front => self.levels[level + 1].push_front(Node::Entry(entry)),
                    End::Back => self.levels[level + 1].push_back(Node::Entry(entry)),
                }
            }
        }
    }

    fn old(&self, levels_end: u32) -> Vec<u32> {
        let before_marks = |level: &VecDeque<Node>| {
            let old = level.iter().take_while(|node| matches!(node, Node::Entry(_)));
            Self::entries(&old.copied().collect())
        };
        self.levels[..levels_end as usize].iter().flat_map(before_marks).collect()
    }

    fn all(&self, levels_end: u32) -> Vec<u32> {
        self.levels[..levels_end as usize].iter().flat_map(Self::entries).collect()
    }
}

fn step(queues: &mut LevelLists, models: &mut [Model], has_marks: bool, entries: u32, prng: &mut Prng) {
    let entry = prng.below(entries);
    let level = prng.below(LEVELS);
    let queue = prng.below(models.len() as u32) as usize;
    let mark = if prng.below(2) == 0 { Mark::First } else { Mark::Second };
    let end = if prng.below(2) == 0 { End::Front } else { End::Back };
    let holder = models.iter().position(|model| model.all(LEVELS).contains(&entry));
    assert_eq!(queues.is_listed(entry), holder.is_some());
    match (prng.below(40), holder) {
        (0, _) => {
            queues.redistribute(queue as u32, end);
            models[queue].redistribute(end);
        }
        (1, _) if has_marks => {
            queues.turn(queue as u32, mark);
            for level in &mut models[queue].levels {
                level.retain(|node| *node != Node::Mark(mark));
                level.push_back(Node::Mark(mark));
            }
        }
        (2..=8, Some(holder)) => {
            queues.remove(holder as u32, entry);
            models[holder].remove(entry);
        }
        (9..=12, _) => {
            let expected = models[queue].all(LEVELS).first().copied();
            assert_eq!(queues.pop(queue as u32), expected);
            expected.into_iter().for_each(|entry| models[queue].remove(entry));
        }
        (_, Some(holder)) => {
            let displaced = match prng.below(if has_marks { 3 } else { 1 }) {
                0 => Displaced::Back,
                1 => Displaced::Before(mark),
                _ => Displaced::SameAge(mark),
            };
            let jump = prng.below(5);
            queues.rise(holder as u32, entry, jump, displaced);
            models[holder].rise(entry, jump, displaced);
            assert_eq!(queues.level(entry) as usize, models[holder].level_of(entry));
        }
        (choice, None) if has_marks && choice % 2 == 0 => {
            queues.push_before(queue as u32, level, mark, entry);
            models[queue].push_before(level as usize, mark, entry);
        }
        (_, None) => {
            queues.push(queue as u32, level, end, entry);
            let deque = &mut models[queue].levels[level as usize];
            match end {
                End::Front => deque.push_front(Node::Entry(entry)),
                End::Back => deque.push_back(Node::Entry(entry)),
            }
        }
    }
}

#[test]
fn queues_behave_like_deques_with_marks_in_them() {
    let shares = [TopShare::default(), TopShare { levels: 8, entries: 3 }];
    for (has_marks, top) in [(true, shares[0]), (false, shares[1]), (true, shares[1])] {
        let mut prng = Prng::new(11);
        let entries = 150;
        let mut queues = LevelLists::new(entries, 2, has_marks, top);
        let mut models = [Model::new(has_marks, top), Model::new(has_marks, top)];
        for _ in 0..3000 {
            step(&mut queues, &mut models, has_marks, entries, &mut prng);
            let levels_end = prng.below(LEVELS + 1);
            for (queue, model) in models.iter().enumerate() {
                let odd = |entry: &u32| entry % 2 == 1;
                let mut seen = Vec::new();
                queues.first(queue as u32, levels_end, Reach::All, |entry| {
                    seen.push(entry);
                    false
                });
                assert_eq!(seen, model.all(levels_end));
                assert_eq!(
                    queues.first(queue as u32, levels_end, Reach::Old, |entry| odd(&entry)),
                    model.old(levels_end).into_iter().find(odd)
                );
                assert_eq!(queues.len(queue as u32) as usize, model.all(LEVELS).len());
                assert_eq!(queues.is_empty(queue as u32), model.all(LEVELS).is_empty());
            }
        }
    }
}

#[test]
fn levels_get_equal_shares_and_the_lowest_the_rest() {
    let mut queues = LevelLists::new(130, 1, true, TopShare::default());
    for entry in 0..130 {
        queues.push(0, 63, End::Back, entry);
    }
    queues.redistribute(0, End::Back);
    let counts: Vec<u32> = (0..LEVELS).map(|level| queues.count(0, level)).collect();
    assert_eq!(counts[..2], [3, 3]);
    assert!(counts[2..].iter().all(|&count| count == 2));
    assert_eq!([queues.level(0), queues.level(3), queues.level(129)], [0, 1, 63]);
}

#[test]
fn top_levels_may_be_kept_short() {
    // 16 entries in the top 8 levels, 1 008 in the 56 below them: 2 and 18 in each.
    let mut queues = LevelLists::new(1024, 1, false, TopShare { levels: 8, entries: 16 });
    for entry in 0..1024 {
        queues.push(0, 0, End::Back, entry);
    }
    queues.redistribute(0, End::Front);
    for level in 0..LEVELS {
        assert_eq!(queues.count(0, level), if level < 56 { 18 } else { 2 });
    }
}
