//! smq: vectors of frames and marks by level.

use super::*;

/// Levels of frames and marks, clean and dirty. Marks are numbers from [`SmqModel::MARK`] on.
struct SmqModel {
    version: SmqVersion,
    queues: [Vec<Vec<u32>>; 2],
    dirty: Vec<bool>,
    /// Levels of frames, kept while they are in no list.
    levels: Vec<usize>,
    out: Vec<u32>,
    hit: Vec<u32>,
    counts: [u32; 2],
    period_ends: Nanos,
    turns: [(Nanos, u32); 2],
}

impl SmqModel {
    const MARK: u32 = 1000;

    fn new(version: SmqVersion) -> SmqModel {
        let first = if version == SmqVersion::One { Self::MARK + 1 } else { Self::MARK };
        let queue = vec![vec![Self::MARK, Self::MARK + 1]; 64];
        SmqModel {
            version,
            queues: [queue.clone(), queue],
            dirty: vec![false; FRAMES as usize],
            levels: vec![0; FRAMES as usize],
            out: Vec::new(),
            hit: Vec::new(),
            counts: [0; 2],
            period_ends: Nanos(0),
            turns: [(Nanos(60 * Nanos::SECOND), first), (Nanos(10 * Nanos::SECOND), first)],
        }
    }

    fn unlist(&mut self, frame: u32) {
        self.queues.iter_mut().flatten().for_each(|level| level.retain(|&other| other != frame));
    }

    fn push(&mut self, frame: u32, level: usize) {
        self.levels[frame as usize] = level;
        self.queues[usize::from(self.dirty[frame as usize])][level].push(frame);
    }

    fn push_before(&mut self, frame: u32, level: usize, mark: u32) {
        self.levels[frame as usize] = level;
        let list = &mut self.queues[usize::from(self.dirty[frame as usize])][level];
        let at = list.iter().position(|&node| node == mark).unwrap();
        list.insert(at, frame);
    }

    fn push_changed(&mut self, frame: u32) {
        let queue = usize::from(self.dirty[frame as usize]);
        let level = self.levels[frame as usize];
        match self.version {
            SmqVersion::One => self.push_before(frame, level, self.turns[queue].1),
            SmqVersion::Two => self.push(frame, level),
        }
    }

    fn frames(level: &[u32]) -> impl DoubleEndedIterator<Item = u32> {
        level.iter().copied().filter(|&node| node < Self::MARK)
    }

    fn old(level: &[u32]) -> impl Iterator<Item = u32> {
        level.iter().copied().take_while(|&node| node < Self::MARK)
    }

    fn redistribute(&mut self, queue: usize) {
        let total: usize = self.queues[queue].iter().map(|level| Self::frames(level).count()).sum();
        for level in 0..63 {
            let target = total / 64 + usize::from(level < total % 64);
            while Self::frames(&self.queues[queue][level]).count() < target {
                let above =
                    self.queues[queue][level + 1..].iter().flat_map(|level| Self::frames(level)).next();
                let Some(frame) = above else { break };
                self.unlist(frame);
                self.push(frame, level);
            }
            while Self::frames(&self.queues[queue][level]).count() > target {
                let frame = Self::frames(&self.queues[queue][level]).next_back().unwrap();
                self.unlist(frame);
                self.push(frame, level + 1);
                if self.version == SmqVersion::One {
                    self.queues[queue][level + 1].rotate_right(1);
                }
            }
        }
    }
}

impl Model for SmqModel {
    fn insert(&mut self, frame: u32, arrival: Arrival) {
        self.out.retain(|&other| other != frame);
        self.dirty[frame as usize] = arrival.is_dirty;
        self.levels[frame as usize] = if self.version == SmqVersion::One { 0 } else { 63 };
        if arrival.is_temporary || arrival.is_dirty {
            self.push_changed(frame);
        } else {
            self.push(frame, self.levels[frame as usize]);
        }
    }

    fn hit(&mut self, frame: u32) {
        let level = self.levels[frame as usize];
        self.counts[usize::from(level < 48)] += 1;
        if self.out.contains(&frame) || self.hit.contains(&frame) {
            return;
        }
        self.hit.push(frame);
        let queue = usize::from(self.dirty[frame as usize]);
        let to = (level + 1).min(63);
        let up_there = self.queues[queue][to].clone();
        if let (true, Some(swapped)) = (to > level, Self::frames(&up_there).next()) {
            let marks = up_there.iter().position(|&node| node == swapped).unwrap();
            self.unlist(swapped);
            let older = self.turns[queue].1;
            let newer = 2 * Self::MARK + 1 - older;
            match (self.version, queue, marks) {
                (SmqVersion::One, ..) | (SmqVersion::Two, 1, 0) => self.push_before(swapped, level, older),
                (SmqVersion::Two, 1, 1) => self.push_before(swapped, level, newer),
                _ => self.push(swapped, level),
            }
        }
        self.unlist(frame);
        self.push(frame, to);
    }

    fn set_dirty(&mut self, frame: u32, is_dirty: bool) {
        self.unlist(frame);
        self.dirty[frame as usize] = is_dirty;
        self.push_changed(frame);
    }

    fn remove(&mut self, frame: u32) {
        self.unlist(frame);
        self.out.retain(|&other| other != frame);
    }

    fn victim(&mut self, _: u32, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
        let asked: Vec<u32> = match self.version {
            SmqVersion::One => self.queues[0].iter().flat_map(|level| Self::old(level)).collect(),
            SmqVersion::Two => self.queues[0][..32].iter().flat_map(|level| Self::frames(level)).collect(),
        };
        let frame = asked.into_iter().find(|&frame| may_leave(frame))?;
        self.unlist(frame);
        self.out.push(frame);
        Some(frame)
    }

    fn stays(&mut self, frame: u32, is_dirty: bool) {
        self.home_ends(frame, is_dirty);
    }

    fn home(&self, _: u32, urgency: Urgency, may_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        let queue = &self.queues[1];
        let asked: Vec<u32> = match (self.version, urgency) {
            (SmqVersion::One, Urgency::Busy { is_critical: false }) => Self::old(&queue[0]).collect(),
            (SmqVersion::Two, Urgency::Busy { .. }) => Vec::new(),
            (SmqVersion::Two, Urgency::All) => queue.iter().flat_map(|level| Self::frames(level)).collect(),
            _ => queue.iter().flat_map(|level| Self::old(level)).collect(),
        };
        asked.into_iter().find(|&frame| may_go(frame))
    }

    fn home_begins(&mut self, frame: u32) {
        self.unlist(frame);
        match self.version {
            SmqVersion::One => {
                self.dirty[frame as usize] = false;
                self.push(frame, self.levels[frame as usize]);
            }
            SmqVersion::Two => self.out.push(frame),
        }
    }

    fn home_ends(&mut self, frame: u32, is_dirty: bool) {
        self.remove(frame);
        self.dirty[frame as usize] = is_dirty;
        self.push_changed(frame);
    }

    fn tick(&mut self, now: Nanos) {
        for (queue, turn_ns) in [(0, 60 * Nanos::SECOND), (1, 10 * Nanos::SECOND)] {
            let (at, mark) = self.turns[queue];
            if now > at {
                for level in &mut self.queues[queue] {
                    level.retain(|&node| node != mark);
                    level.push(mark);
                }
                self.turns[queue] = (now.plus(turn_ns), 2 * Self::MARK + 1 - mark);
            }
        }
        if now > self.period_ends {
            let period_s = if self.version == SmqVersion::One { 10 } else { 60 };
            self.period_ends = now.plus(period_s * Nanos::SECOND);
            self.hit.clear();
            self.counts = [0; 2];
            self.redistribute(1);
            self.redistribute(0);
        }
    }

    fn standing(&self, free: u32) -> Standing {
        let clean = self.queues[0].iter().flat_map(|level| Self::frames(level)).count() as u32;
        let [level_hits, level_misses] = self.counts;
        Standing { clean, level_hits, level_misses, ..plain_standing(FRAMES, free) }
    }
}

#[test]
fn smq_is_vectors_with_marks_in_them() {
    for version in [SmqVersion::One, SmqVersion::Two] {
        for seed in 0..5 {
            compare(ReplacementChoice::Smq { version }, Shape::whole(FRAMES), SmqModel::new(version), seed);
        }
    }
}
