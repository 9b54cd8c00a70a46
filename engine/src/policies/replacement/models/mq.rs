//! mq: vectors of frames by level.

use super::*;

/// Levels of frames, clean and dirty.
struct MqModel {
    era: MqEra,
    queues: [Vec<Vec<u32>>; 2],
    hits: Vec<u32>,
    dirty: Vec<bool>,
    ticks: Vec<u32>,
    tick: u32,
    ticks_begun: u32,
    is_exhausted: bool,
    counted: u32,
    threshold: u32,
}

impl MqModel {
    fn new(era: MqEra) -> MqModel {
        MqModel {
            era,
            queues: [vec![Vec::new(); 16], vec![Vec::new(); 16]],
            hits: vec![0; FRAMES as usize],
            dirty: vec![false; FRAMES as usize],
            ticks: vec![0; FRAMES as usize],
            tick: 0,
            ticks_begun: 0,
            is_exhausted: false,
            counted: 0,
            threshold: 0,
        }
    }

    fn queue(&self, frame: u32) -> usize {
        usize::from(self.dirty[frame as usize] && self.era != MqEra::Single)
    }

    fn push(&mut self, frame: u32) {
        let hits = self.hits[frame as usize];
        let level = (0..16).rev().find(|&level| hits >= 1 << level).unwrap();
        let queue = self.queue(frame);
        self.queues[queue][level].push(frame);
        self.ticks[frame as usize] = self.tick;
    }

    fn unlist(&mut self, frame: u32) {
        self.queues.iter_mut().flatten().for_each(|level| level.retain(|&other| other != frame));
    }

    fn pop(&mut self, frame: u32) {
        let queue = self.queue(frame);
        let had_bottom = !self.queues[queue][0].is_empty();
        self.unlist(frame);
        if self.queues[queue][0].is_empty() && (had_bottom || self.era == MqEra::Coldest) {
            self.queues[queue].remove(0);
            self.queues[queue].push(Vec::new());
        }
    }

    fn mean(&self) -> u32 {
        let mut seen: Vec<u32> = Vec::new();
        for level in 0..16 {
            if seen.len() < 20 {
                for queue in &self.queues {
                    for &frame in &queue[level] {
                        seen.push(self.hits[frame as usize]);
                        if seen.len() >= 20 {
                            break;
                        }
                    }
                }
            }
        }
        seen.iter().sum::<u32>().div_ceil(seen.len() as u32)
    }
}

impl Model for MqModel {
    fn insert(&mut self, frame: u32, arrival: Arrival) {
        self.hits[frame as usize] = arrival.hits;
        self.dirty[frame as usize] = arrival.is_dirty;
        self.push(frame);
    }

    fn hit(&mut self, frame: u32) {
        self.tick = self.ticks_begun;
        if self.ticks[frame as usize] != self.tick {
            self.hits[frame as usize] += 1;
            self.counted += 1;
            let listed = self.queues.iter().flatten().flatten().count();
            if self.counted >= 1024 && (self.is_exhausted || listed == FRAMES as usize) {
                self.counted = 0;
                self.threshold = self.mean();
            }
            self.unlist(frame);
            self.push(frame);
        }
    }

    fn set_dirty(&mut self, frame: u32, is_dirty: bool) {
        if self.era != MqEra::Single {
            self.unlist(frame);
            self.dirty[frame as usize] = is_dirty;
            self.push(frame);
        } else {
            self.dirty[frame as usize] = is_dirty;
        }
    }

    fn remove(&mut self, frame: u32) {
        if self.queues.iter().flatten().flatten().any(|&other| other == frame) {
            self.is_exhausted = false;
        }
        self.unlist(frame);
    }

    fn victim(&mut self, _: u32, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.is_exhausted = true;
        let frame = self.queues[0].iter().flatten().copied().find(|&frame| may_leave(frame))?;
        self.pop(frame);
        Some(frame)
    }

    fn stays(&mut self, frame: u32, is_dirty: bool) {
        self.dirty[frame as usize] = is_dirty;
        self.push(frame);
    }

    fn home(&self, _: u32, _: Urgency, may_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        let queue = if self.era == MqEra::Single { 0 } else { 1 };
        self.queues[queue].iter().flatten().copied().find(|&frame| may_go(frame))
    }

    fn home_begins(&mut self, frame: u32) {
        if self.era != MqEra::Single {
            self.pop(frame);
            self.dirty[frame as usize] = false;
            self.push(frame);
        } else {
            self.dirty[frame as usize] = false;
        }
    }

    fn home_ends(&mut self, frame: u32, is_dirty: bool) {
        self.set_dirty(frame, is_dirty);
    }

    fn tick(&mut self, _: Nanos) {
        self.ticks_begun += 1;
    }

    fn standing(&self, free: u32) -> Standing {
        let listed = self.queues.iter().flatten().flatten();
        let clean = listed.filter(|&&frame| !self.dirty[frame as usize]).count() as u32;
        let first = |queue: usize| {
            let mut frames = self.queues[queue].iter().flatten();
            frames.next().map(|&frame| self.hits[frame as usize])
        };
        let threshold = match (self.era, free) {
            (MqEra::Coldest, 0) => first(0).or(first(1).map(|hits| hits + 128)).unwrap_or(0),
            (MqEra::Coldest, _) => 0,
            _ => self.threshold,
        };
        Standing { clean, threshold, ..plain_standing(FRAMES, free) }
    }
}

#[test]
fn mq_is_vectors_by_level() {
    for era in [MqEra::Single, MqEra::Split, MqEra::Coldest] {
        for seed in 0..5 {
            compare(ReplacementChoice::Mq { era }, Shape::whole(FRAMES), MqModel::new(era), seed);
        }
    }
}
