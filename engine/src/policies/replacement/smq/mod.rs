//! `smq`: frames in 64 levels of about equal length, clean and dirty apart.
//!
//! A hit moves a frame one level up, once in a cache period, and a frame from there takes its
//! place; each cache period levels are made equally long again. Two marks in each level tell which
//! frames were not used of late (see [`level_lists`](crate::table::level_lists)): one turns every
//! 10 s for dirty frames, every 60 s for clean ones. An access counts as a hit if the frame stands
//! in the upper quarter; admission judges the cache by that count, which begins anew each period.
//!
//! | | `version = 1` | `version = 2` (default) |
//! | --- | --- | --- |
//! | published | 1.0, Linux 4.5 | 2.0, Linux 4.12 and later |
//! | cache period | 10 s | 60 s |
//! | a new frame | level 0; at the end, or if it is temporary before the older mark | level 63, at the end |
//! | becomes clean or dirty | before the older mark of its level | at the end of its level |
//! | victim | the first old clean frame | the first clean frame of the lower 32 levels, old or not |
//! | goes home | old frames; while busy of level 0 only, unless few are clean | idle: all; busy: none; [`Urgency::Old`]: old ones |
//! | while it goes home | counts as clean, and is at the end | is in no list |
//! | who gives its place up for one that rises | before the older mark | clean: at the end; dirty: as old as it was |
//! | a level too long gives its last frames | to the front of the next | to the end of the next |
//! | after a crash | level 1, before the older mark | a level from the frame's number, at the front |
//!
//! Version 1 calls that mark the older one that turns next, and begins with the second one, so
//! until the first turn (60 s) nothing is old and nothing can leave. Version 2 makes a frame leave
//! only while fewer than [`FREE_TARGET_PERCENT`] are free or leaving, and does so in the
//! background: the newcomer that asked is not taken in.
//!
//! Time is looked at in ticks only. A version 2 frame on its way home or out counts in the
//! statistics when it is hit, but does not move.
//!
//! Where the kernel gives a promotion up because somebody is busy with the first victim, the
//! search here goes on to the next frame.
//!
//! Source: dm-cache's smq policy, 1.0 and 2.0, both read. Parameter: `version`.

use crate::number::{index, to_u16};
use crate::policies::replacement::{
    Access, Arrival, Policy, Shape, Standing, Urgency, VICTIM_LOOKS_MAX, Victim,
};
use crate::table::bits::Bits;
use crate::table::level_lists::{Displaced, End, LEVELS, LevelLists, Mark, Reach, TopShare};
use crate::units::{Frame, Nanos};
use core::cell::Cell;

/// An access to a frame of this level or a higher one is a hit.
pub const HIT_LEVEL: u32 = LEVELS * 3 / 4;
/// Version 1 sends dirty frames of any level home while busy if fewer frames than this are clean.
pub const CRITICAL_CLEAN_PERCENT: u32 = 5;
/// Version 2 makes frames leave while fewer than this are free.
pub const FREE_TARGET_PERCENT: u32 = 25;

/// The queue of clean frames.
const CLEAN: u32 = 0;
/// The queue of dirty frames.
const DIRTY: u32 = 1;
/// Period at which the marks of a queue turn.
const TURN_NS: [u64; 2] = [60 * Nanos::SECOND, 10 * Nanos::SECOND];

/// The version of smq.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SmqVersion {
    /// 1.0.
    One,
    /// 2.0.
    #[default]
    Two,
}

impl SmqVersion {
    fn period_ns(self) -> u64 {
        match self {
            SmqVersion::One => 10 * Nanos::SECOND,
            SmqVersion::Two => 60 * Nanos::SECOND,
        }
    }
}

/// The queues: about 9 bytes per frame.
///
/// * I1: a frame is listed or out, not both; it is neither exactly while it has no piece.
#[derive(Clone, Debug)]
pub struct Smq {
    version: SmqVersion,
    shape: Shape,
    queues: LevelLists,
    is_dirty: Bits,
    /// Victims, and version 2 frames on their way home.
    is_out: Bits,
    /// Hit in this cache period.
    was_hit: Bits,
    hits: u32,
    misses: u32,
    now: Nanos,
    /// The end of the cache period; none before the first tick, which ends the first one at once.
    period_ends: Nanos,
    /// The next turns of a queue's marks: the time and the mark.
    turns: [(Nanos, Mark); 2],
}

impl Smq {
    /// Empty queues, at time 0.
    #[must_use]
    pub fn new(shape: Shape, version: SmqVersion) -> Smq {
        assert!(shape.sets() == 1, "smq knows no sets");
        let mark = match version {
            SmqVersion::One => Mark::Second,
            SmqVersion::Two => Mark::First,
        };
        Smq {
            version,
            shape,
            queues: LevelLists::new(shape.frames, 2, true, TopShare::default()),
            is_dirty: Bits::new(shape.frames),
            is_out: Bits::new(shape.frames),
            was_hit: Bits::new(shape.frames),
            hits: 0,
            misses: 0,
            now: Nanos(0),
            period_ends: Nanos(0),
            turns: TURN_NS.map(|turn_ns| (Nanos(turn_ns), mark)),
        }
    }

    fn queue_of(&self, frame: Frame) -> u32 {
        if self.is_dirty.get(frame.0) { DIRTY } else { CLEAN }
    }

    /// The mark of a queue that turns next.
    fn older(&self, queue: u32) -> Mark {
        self.turns[index(queue)].1
    }

    /// Puts `frame`, which is not listed, where one goes that becomes clean or dirty.
    fn push_changed(&mut self, frame: Frame, level: u32) {
        let queue = self.queue_of(frame);
        match self.version {
            SmqVersion::One => self.queues.push_before(queue, level, self.older(queue), frame.0),
            SmqVersion::Two => self.queues.push(queue, level, End::Back, frame.0),
        }
    }

    fn unlist(&mut self, frame: Frame) {
        self.queues.remove(self.queue_of(frame), frame.0);
    }

    /// The first frame of a queue within reach for which `accept` holds.
    fn first(
        &self,
        queue: u32,
        levels_end: u32,
        reach: Reach,
        accept: impl Fn(Frame) -> bool,
    ) -> Option<Frame> {
        let looks = Cell::new(0);
        let found = self.queues.first(queue, levels_end, reach, |frame| {
            looks.set(looks.get() + 1);
            looks.get() > VICTIM_LOOKS_MAX || accept(Frame(frame))
        });
        found.filter(|_| looks.get() <= VICTIM_LOOKS_MAX).map(Frame)
    }

    fn turn_marks(&mut self) {
        for queue in [DIRTY, CLEAN] {
            let (at, mark) = self.turns[index(queue)];
            if self.now > at {
                self.queues.turn(queue, mark);
                self.turns[index(queue)] = (self.now.plus(TURN_NS[index(queue)]), mark.other());
            }
        }
    }

    fn end_period(&mut self) {
        if self.now > self.period_ends {
            self.was_hit.clear();
            let surplus_to = match self.version {
                SmqVersion::One => End::Front,
                SmqVersion::Two => End::Back,
            };
            self.queues.redistribute(DIRTY, surplus_to);
            self.queues.redistribute(CLEAN, surplus_to);
            (self.hits, self.misses) = (0, 0);
            self.period_ends = self.now.plus(self.version.period_ns());
        }
    }
}

impl Policy for Smq {
    fn insert(&mut self, frame: Frame, arrival: Arrival) {
        self.is_out.put(frame.0, false);
        self.is_dirty.put(frame.0, arrival.is_dirty);
        match self.version {
            // A dirty one arrives clean and becomes dirty at once.
            SmqVersion::One if arrival.is_temporary || arrival.is_dirty => self.push_changed(frame, 0),
            SmqVersion::One => self.queues.push(CLEAN, 0, End::Back, frame.0),
            SmqVersion::Two => self.queues.push(self.queue_of(frame), LEVELS - 1, End::Back, frame.0),
        }
    }

    fn hit(&mut self, frame: Frame, _: Access) {
        if self.queues.level(frame.0) >= HIT_LEVEL {
            self.hits = self.hits.saturating_add(1);
        } else {
            self.misses = self.misses.saturating_add(1);
        }
        if self.is_out.get(frame.0) || self.was_hit.put(frame.0, true) {
            return;
        }
        let queue = self.queue_of(frame);
        let displaced = match (self.version, queue) {
            (SmqVersion::One, _) => Displaced::Before(self.older(queue)),
            (SmqVersion::Two, DIRTY) => Displaced::SameAge(self.older(queue)),
            (SmqVersion::Two, _) => Displaced::Back,
        };
        self.queues.rise(queue, frame.0, 1, displaced);
    }

    fn miss(&mut self) {
        self.misses = self.misses.saturating_add(1);
    }

    fn set_dirty(&mut self, frame: Frame, is_dirty: bool) {
        if self.is_dirty.get(frame.0) == is_dirty {
            return;
        }
        if self.is_out.get(frame.0) {
            self.is_dirty.put(frame.0, is_dirty);
        } else {
            self.unlist(frame);
            self.is_dirty.put(frame.0, is_dirty);
            self.push_changed(frame, self.queues.level(frame.0));
        }
    }

    fn remove(&mut self, frame: Frame) {
        if !self.is_out.put(frame.0, false) && self.queues.is_listed(frame.0) {
            self.unlist(frame);
        }
    }

    fn victim(&mut self, _: u32, may_leave: impl Fn(Frame) -> bool) -> Option<Victim> {
        let (levels_end, reach) = match self.version {
            SmqVersion::One => (LEVELS, Reach::Old),
            SmqVersion::Two => (LEVELS / 2, Reach::All),
        };
        let frame = self.first(CLEAN, levels_end, reach, may_leave)?;
        self.unlist(frame);
        self.is_out.put(frame.0, true);
        Some(Victim { frame, is_remembered: false })
    }

    fn stays(&mut self, frame: Frame, is_dirty: bool) {
        assert!(self.is_out.put(frame.0, false), "I1: a victim is out");
        self.is_dirty.put(frame.0, is_dirty);
        self.push_changed(frame, self.queues.level(frame.0));
    }

    fn next_home(&mut self, _: u32, urgency: Urgency, may_go: impl Fn(Frame) -> bool) -> Option<Frame> {
        let (levels_end, reach) = match (self.version, urgency) {
            (SmqVersion::One, Urgency::Busy { is_critical: false }) => (1, Reach::Old),
            (SmqVersion::One, _) | (SmqVersion::Two, Urgency::Old) => (LEVELS, Reach::Old),
            (SmqVersion::Two, Urgency::Busy { .. }) => return None,
            (SmqVersion::Two, Urgency::All) => (LEVELS, Reach::All),
        };
        self.first(DIRTY, levels_end, reach, may_go)
    }

    fn home_begins(&mut self, frame: Frame) {
        self.unlist(frame);
        match self.version {
            SmqVersion::One => {
                self.is_dirty.put(frame.0, false);
                self.queues.push(CLEAN, self.queues.level(frame.0), End::Back, frame.0);
            }
            SmqVersion::Two => {
                self.is_out.put(frame.0, true);
            }
        }
    }

    fn home_ends(&mut self, frame: Frame, is_dirty: bool) {
        match self.version {
            SmqVersion::One => self.unlist(frame),
            SmqVersion::Two => assert!(self.is_out.put(frame.0, false), "I1: it was on its way home"),
        }
        self.is_dirty.put(frame.0, is_dirty);
        // Version 1's kernel tells its policy that the frame is clean: it is moved once more.
        self.push_changed(frame, self.queues.level(frame.0));
    }

    fn wants_victim(&self, free: u32, leaving: u32) -> bool {
        let target = u64::from(self.shape.frames) * u64::from(FREE_TARGET_PERCENT) / 100;
        self.version == SmqVersion::One || u64::from(free) + u64::from(leaving) < target
    }

    fn tick(&mut self) {
        self.turn_marks();
        self.end_period();
    }

    fn advance(&mut self, now: Nanos) {
        assert!(now >= self.now, "time does not go back");
        self.now = now;
    }

    fn standing(&self, free: u32) -> Standing {
        Standing {
            free,
            frames: self.shape.frames,
            clean: self.queues.len(CLEAN),
            level_hits: self.hits,
            level_misses: self.misses,
            threshold: 0,
        }
    }

    fn hint(&self, frame: Frame) -> u16 {
        to_u16(self.queues.level(frame.0))
    }

    fn restore(&mut self, frame: Frame, hint: Option<u16>, is_dirty: bool) {
        self.is_dirty.put(frame.0, is_dirty);
        let saved = hint.map(|level| u32::from(level).min(LEVELS - 1));
        match self.version {
            SmqVersion::One => self.push_changed(frame, saved.unwrap_or(1)),
            SmqVersion::Two => {
                let level = saved.unwrap_or_else(|| level_of_number(frame));
                self.queues.push(self.queue_of(frame), level, End::Front, frame.0);
            }
        }
    }
}

/// A level from the frame's number: bits 23 to 28 of its product with the golden ratio of 2^32.
fn level_of_number(frame: Frame) -> u32 {
    (frame.0.wrapping_mul(0x61c8_8647) >> 23) % LEVELS
}

#[cfg(test)]
mod tests;
