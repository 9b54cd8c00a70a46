//! s3-fifo: two vectors.

use super::*;

/// Two queues, oldest first, with hits.
#[derive(Default)]
struct S3Model {
    small: Vec<u32>,
    main: Vec<u32>,
    hits: std::collections::BTreeMap<u32, u32>,
    was_main: Vec<u32>,
    has_filled: bool,
}

impl Model for S3Model {
    fn insert(&mut self, frame: u32, arrival: Arrival) {
        let is_first_fill = !self.has_filled && self.small.len() >= 4;
        if arrival.is_returning || is_first_fill { &mut self.main } else { &mut self.small }.push(frame);
        self.hits.insert(frame, 0);
    }

    fn hit(&mut self, frame: u32) {
        let hits = self.hits.entry(frame).or_default();
        *hits = (*hits + 1).min(3);
    }

    fn set_dirty(&mut self, _: u32, _: bool) {}

    fn remove(&mut self, frame: u32) {
        self.small.retain(|&other| other != frame);
        self.main.retain(|&other| other != frame);
    }

    fn victim(&mut self, _: u32, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
        let (mut small_refused, mut main_refused) = (0, 0);
        loop {
            let small_left = small_refused < self.small.len();
            let main_left = main_refused < self.main.len();
            if small_left && (self.small.len() >= 4 || !main_left) {
                let frame = self.small.remove(0);
                if self.hits[&frame] > 1 {
                    self.hits.insert(frame, 0);
                    self.main.push(frame);
                } else if may_leave(frame) {
                    self.was_main.retain(|&other| other != frame);
                    self.has_filled = true;
                    return Some(frame);
                } else {
                    self.small.push(frame);
                    small_refused += 1;
                }
            } else if main_left {
                let frame = self.main.remove(0);
                if self.hits[&frame] > 0 {
                    self.hits.insert(frame, self.hits[&frame] - 1);
                    self.main.push(frame);
                } else if may_leave(frame) {
                    self.was_main.push(frame);
                    self.has_filled = true;
                    return Some(frame);
                } else {
                    self.main.push(frame);
                    main_refused += 1;
                }
            } else {
                return None;
            }
        }
    }

    fn stays(&mut self, frame: u32, _: bool) {
        if self.was_main.contains(&frame) { &mut self.main } else { &mut self.small }.push(frame);
    }

    fn home(&self, _: u32, _: Urgency, may_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.small.iter().chain(&self.main).copied().find(|&frame| may_go(frame))
    }

    fn home_begins(&mut self, _: u32) {}
    fn home_ends(&mut self, _: u32, _: bool) {}
    fn tick(&mut self, _: Nanos) {}

    fn standing(&self, free: u32) -> Standing {
        plain_standing(FRAMES, free)
    }
}

#[test]
fn s3_fifo_is_two_vectors() {
    for seed in 0..5 {
        let choice = ReplacementChoice::S3Fifo { small_permille: 100 };
        compare(choice, Shape::whole(FRAMES), S3Model::default(), seed);
    }
}
