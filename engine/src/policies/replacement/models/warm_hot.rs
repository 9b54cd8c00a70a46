//! flashcache's two lists.

use super::*;

/// Lists of warm and hot frames of each set.
struct WarmHotModel {
    shape: Shape,
    warm: Vec<Vec<u32>>,
    hot: Vec<Vec<u32>>,
    uses: Vec<u32>,
    reclaimed: Vec<u32>,
}

impl WarmHotModel {
    fn new(shape: Shape) -> WarmHotModel {
        let ways = |set: u32, ways: core::ops::Range<u32>| {
            ways.rev().map(|way| set * shape.ways + way).collect::<Vec<u32>>()
        };
        let half = shape.ways / 2;
        WarmHotModel {
            shape,
            warm: (0..shape.sets()).map(|set| ways(set, half..shape.ways)).collect(),
            hot: (0..shape.sets()).map(|set| ways(set, 0..half)).collect(),
            uses: vec![0; shape.frames as usize],
            reclaimed: Vec::new(),
        }
    }

    fn refresh(&mut self, frame: u32) {
        let set = (frame / self.shape.ways) as usize;
        for list in [&mut self.warm[set], &mut self.hot[set]] {
            if list.contains(&frame) {
                list.retain(|&other| other != frame);
                list.push(frame);
            }
        }
    }
}

impl Model for WarmHotModel {
    fn insert(&mut self, frame: u32, _: Arrival) {
        if !self.reclaimed.contains(&frame) {
            self.refresh(frame);
        }
        self.reclaimed.retain(|&other| other != frame);
    }

    fn hit(&mut self, frame: u32) {
        let set = (frame / self.shape.ways) as usize;
        if self.warm[set].contains(&frame) {
            self.uses[frame as usize] += 1;
            if self.uses[frame as usize] >= 2 {
                let cooled = self.hot[set].remove(0);
                self.warm[set].retain(|&other| other != frame);
                self.warm[set].push(cooled);
                self.hot[set].insert(0, frame);
                self.uses[frame as usize] = 0;
                return;
            }
        }
        self.refresh(frame);
    }

    fn set_dirty(&mut self, _: u32, _: bool) {}

    fn remove(&mut self, frame: u32) {
        self.reclaimed.retain(|&other| other != frame);
    }

    fn victim(&mut self, set: u32, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
        let set = set as usize;
        let frame = if let Some(at) = self.warm[set].iter().position(|&frame| may_leave(frame)) {
            self.warm[set].remove(at)
        } else {
            let at = self.hot[set].iter().position(|&frame| may_leave(frame))?;
            let frame = self.hot[set].remove(at);
            let heated = self.warm[set].remove(0);
            self.uses[heated as usize] = 0;
            self.hot[set].insert(0, heated);
            frame
        };
        self.warm[set].push(frame);
        self.uses[frame as usize] = 0;
        self.reclaimed.push(frame);
        Some(frame)
    }

    fn stays(&mut self, frame: u32, _: bool) {
        self.remove(frame);
    }

    fn home(&self, set: u32, _: Urgency, may_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        let set = set as usize;
        self.warm[set].iter().chain(&self.hot[set]).copied().find(|&frame| may_go(frame))
    }

    fn home_begins(&mut self, _: u32) {}
    fn home_ends(&mut self, _: u32, _: bool) {}
    fn tick(&mut self, _: Nanos) {}

    fn standing(&self, free: u32) -> Standing {
        plain_standing(self.shape.frames, free)
    }
}

#[test]
fn warm_hot_lru_is_two_vectors_for_each_set() {
    let shape = Shape { frames: FRAMES, ways: 10 };
    for seed in 0..5 {
        let choice = ReplacementChoice::WarmHotLru { hot_percent: 50, promote_hits: 2 };
        compare(choice, shape, WarmHotModel::new(shape), seed);
    }
}
