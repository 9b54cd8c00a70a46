//! Promotion by smq's hotspot queue on cases worked through by hand, and against a naive model.

use super::super::testing::{asked, standing};
use super::*;
use crate::policies::replacement::Access::{Read, Write};
use alloc::collections::VecDeque;
use proptest::prelude::*;

/// Enough pieces for the largest regions.
const SIZES: Sizes = Sizes { frames: 4096, origin_pieces: 1 << 24 };
const NOT_YET: Verdict = Verdict::Pass(Reason::NotYet);

fn policy(version: SmqVersion) -> SmqHotspot {
    SmqHotspot::new(SmqHotspotChoice { version }, SIZES)
}

fn ask(policy: &mut SmqHotspot, asked: &Asked, standing: &Standing) -> Verdict {
    policy.seen(asked, false);
    policy.decide(asked, standing)
}

fn levels(policy: &SmqHotspot) -> (u32, u32) {
    (policy.read_level, policy.write_level)
}

/// 32 levels admit while frames are free, a quarter of them with a poor queue: 64 - 8 = 56. The second
/// smq takes 64: 64 - 16 = 48.
#[test]
fn the_first_tick_lets_the_first_regions_in() {
    let mut first = policy(SmqVersion::One);
    assert_eq!(levels(&first), (64, 64));
    assert_eq!(ask(&mut first, &asked(Read, 1), &standing(4096, 4096)), NOT_YET);
    first.tick(&standing(4096, 4096), Nanos(1));
    assert_eq!(levels(&first), (56, 58));
    let mut second = policy(SmqVersion::Two);
    second.tick(&standing(4096, 4096), Nanos(1));
    assert_eq!(levels(&second), (48, 48));
}

/// Of 256 accesses 15, 16, 31 and 32 foretold: poor, fair, fair, well.
#[test]
fn foresight_halves_the_levels_that_admit() {
    let at = |version, hits| {
        let mut policy = policy(version);
        (policy.hits, policy.misses) = (hits, 256 - hits);
        policy.choose_levels(&standing(4096, 1));
        levels(&policy)
    };
    assert_eq!(
        [15, 16, 31, 32].map(|hits| at(SmqVersion::One, hits)),
        [(56, 58), (48, 50), (48, 50), (32, 34)]
    );
    assert_eq!(
        [15, 16, 31, 32].map(|hits| at(SmqVersion::Two, hits)),
        [(48, 48), (32, 32), (32, 32), (0, 0)]
    );
}

/// 7 of 16 accesses were hits: the table says 8. All of them: 1. The second smq does not listen.
#[test]
fn a_full_cache_admits_most_when_it_does_neither_well_nor_badly() {
    let at = |version, level_hits, level_misses| {
        let mut policy = policy(version);
        (policy.hits, policy.misses) = (1, 0);
        policy.choose_levels(&Standing { level_hits, level_misses, ..standing(4096, 0) });
        policy.read_level
    };
    assert_eq!(at(SmqVersion::One, 7, 9), 64 - 8);
    assert_eq!(at(SmqVersion::One, 16, 0), 64 - 1);
    assert_eq!(at(SmqVersion::One, 0, 0), 64 - 1);
    assert_eq!(at(SmqVersion::One, 3, 13), 64 - 2);
    assert_eq!(at(SmqVersion::Two, 7, 9), 0);
}

/// Full, 3 of 16: the table says 2, a quarter of that is 0: level 64, which no region has.
#[test]
fn the_first_smq_may_admit_nothing_at_all() {
    let full = Standing { level_hits: 3, level_misses: 13, ..standing(4096, 0) };
    let mut policy = policy(SmqVersion::One);
    let mut admitted = 0;
    for number in 0..10_000u64 {
        policy.tick(&full, Nanos(number * 1_000_000));
        (policy.hits, policy.misses) = (0, 1);
        policy.choose_levels(&full);
        admitted += u32::from(ask(&mut policy, &asked(Read, number % 16), &full) != NOT_YET);
    }
    assert_eq!((policy.read_level, admitted), (64, 0));
    // Its one region stands as high as can be.
    assert_eq!(policy.queue.level(0), 63);
}

/// A miss in a region at the bottom enters when the second smq's queue does well.
#[test]
fn the_second_smq_admits_every_miss_when_its_queue_does_well() {
    let mut policy = policy(SmqVersion::Two);
    (policy.hits, policy.misses) = (32, 224);
    policy.choose_levels(&standing(4096, 0));
    assert_eq!(ask(&mut policy, &asked(Read, 5), &standing(4096, 0)), Verdict::ADMIT);
    assert_eq!(ask(&mut policy, &asked(Write, 5000), &standing(4096, 0)), Verdict::ADMIT);
}

/// No period ends at time 0, so jumps stay at 1. A region rises once a tick, on the 48th to level 48,
/// where the second smq admits with a poor queue.
#[test]
fn a_region_rises_once_in_a_tick() {
    let mut policy = policy(SmqVersion::Two);
    let standing = standing(4096, 4096);
    assert_eq!(ask(&mut policy, &asked(Read, 0), &standing), NOT_YET);
    for tick in 1..=48u32 {
        policy.tick(&standing, Nanos(0));
        for piece in [3, 15, 7] {
            let verdict = ask(&mut policy, &asked(Read, piece), &standing);
            assert_eq!(verdict, if tick < 48 { NOT_YET } else { Verdict::ADMIT });
            assert_eq!(policy.queue.level(0), tick);
        }
    }
    // Piece 16 lies in another region.
    assert_eq!(ask(&mut policy, &asked(Read, 16), &standing), NOT_YET);
}

/// Of 1024 regions 16 have a place in the top 8 levels, two in each. While there are fewer in all, the
/// levels below have a share of nothing: when a period ends, all stand at the top, from 56 on, where
/// the first smq admits with free frames. The poor queue makes jumps of 4.
#[test]
fn few_regions_stand_at_the_top() {
    let mut policy = policy(SmqVersion::One);
    let standing = standing(4096, 4096);
    for region in 0..5u64 {
        assert_eq!(ask(&mut policy, &asked(Read, region * 16), &standing), NOT_YET);
    }
    policy.tick(&standing, Nanos(1));
    assert_eq!([0, 1, 2, 3, 4].map(|entry| policy.queue.level(entry)), [56, 56, 57, 57, 58]);
    assert_eq!((policy.jump, levels(&policy)), (4, (56, 58)));
    assert_eq!(ask(&mut policy, &asked(Read, 0), &standing), Verdict::ADMIT);
    policy.tick(&standing, Nanos(PERIOD_NS));
    assert_eq!(policy.period_end, Nanos(PERIOD_NS + 1), "the next period ends a second later");
}

#[test]
fn hits_move_regions_in_the_first_smq_only() {
    for (version, level) in [(SmqVersion::One, 1), (SmqVersion::Two, 0)] {
        let mut policy = policy(version);
        policy.seen(&asked(Read, 0), false);
        policy.seen(&asked(Read, 0), true);
        assert_eq!(policy.queue.level(0), level);
    }
}

#[test]
fn a_fast_write_enters_while_frames_are_free() {
    let covers = Asked { covers_piece: true, ..asked(Write, 9) };
    let given = |version, asked: &Asked, free| ask(&mut policy(version), asked, &standing(4096, free));
    let temporary = Verdict::Admit { hits: 1, is_temporary: true, is_returning: false };
    assert_eq!(given(SmqVersion::One, &covers, 1), temporary);
    assert_eq!(given(SmqVersion::One, &Asked { is_discarded: true, ..asked(Write, 9) }, 1), temporary);
    assert_eq!(given(SmqVersion::Two, &covers, 1), Verdict::ADMIT);
    assert_eq!(given(SmqVersion::One, &covers, 0), NOT_YET);
    assert_eq!(given(SmqVersion::One, &Asked { access: Read, ..covers }, 1), NOT_YET);
    let gated = Asked { may_promote: false, ..covers };
    assert_eq!(given(SmqVersion::One, &gated, 1), Verdict::Pass(Reason::CopiesInFlight));
}

/// 1024 entries at the least. 1024 regions of 16, 8, 4 pieces are too much for 4096 pieces but 4 is not.
#[test]
fn regions_are_as_large_as_the_origin_allows() {
    let shape = |frames, origin_pieces| {
        let sizes = Sizes { frames, origin_pieces };
        let policy = SmqHotspot::new(SmqHotspotChoice { version: SmqVersion::Two }, sizes);
        (policy.regions.len(), 1 << policy.region_shift)
    };
    assert_eq!(shape(100, 1 << 20), (1024, 16));
    assert_eq!(shape(100, 4096), (1024, 4));
    assert_eq!(shape(100, 4095), (1024, 2));
    assert_eq!(shape(100, 10), (1024, 1));
    assert_eq!(shape(1 << 20, 1 << 30), (1 << 18, 16));
}

/// The 1025th region takes the entry, and the level, of the least recently used of the lowest level.
#[test]
fn a_new_region_takes_the_place_of_the_coldest() {
    let mut policy = policy(SmqVersion::Two);
    // Region 0 rises by 1 in its second access; the others come once.
    for region in (0..1024u64).chain([0]) {
        policy.seen(&asked(Read, region * 16), false);
    }
    policy.seen(&asked(Read, 5000 * 16), false);
    let remembered = |region: u64| policy.find(asked(Read, region * 16).piece);
    assert!(remembered(0).is_some() && remembered(1).is_none() && remembered(2).is_some());
    assert_eq!(remembered(5000), Some(1));
    // All accesses but one brought something new; that one was at level 0: none was foretold.
    assert_eq!((policy.hits, policy.misses), (0, 1026));
}

/// An entry that changes hands in the tick it rose in may rise again: it is another region's now.
#[test]
fn a_new_region_has_not_risen_yet() {
    let mut policy = policy(SmqVersion::Two);
    (0..1024u64).for_each(|region| policy.seen(&asked(Read, region * 16), false));
    // As if others had pushed it down again in this tick.
    policy.raised_at[0] = policy.tick;
    policy.seen(&asked(Read, 5000 * 16), false);
    policy.seen(&asked(Read, 5000 * 16), false);
    assert_eq!((policy.find(asked(Read, 5000 * 16).piece), policy.queue.level(0)), (Some(0), 1));
}

/// Sixty-four queues of (region, tick of its last rise), oldest first. As slow as can be.
struct Model {
    levels: Vec<VecDeque<(u64, u32)>>,
    version: SmqVersion,
    entries: usize,
    top_entries: usize,
    jump: usize,
    tick: u32,
    hits: u32,
    misses: u32,
}

impl Model {
    fn seen(&mut self, region: u64) -> usize {
        let found = (0..64).find_map(|level| {
            let at = self.levels[level].iter().position(|entry| entry.0 == region)?;
            Some((level, at))
        });
        let Some((level, at)) = found else {
            self.misses += 1;
            let mut level = 0;
            if self.levels.iter().map(VecDeque::len).sum::<usize>() == self.entries {
                level = self.levels.iter().position(|level| !level.is_empty()).unwrap();
                self.levels[level].pop_front();
            }
            self.levels[level].push_back((region, 0));
            return level;
        };
        *(if level >= 48 { &mut self.hits } else { &mut self.misses }) += 1;
        let (_, tick) = self.levels[level].remove(at).unwrap();
        let to = if tick == self.tick { level } else { (level + self.jump).min(63) };
        if to > level
            && let Some(other) = self.levels[to].pop_front()
        {
            self.levels[level].push_back(other);
        }
        self.levels[to].push_back((region, self.tick));
        to
    }

    fn target(&self, level: usize) -> usize {
        let all: usize = self.levels.iter().map(VecDeque::len).sum();
        let share =
            |entries: usize, levels: usize, at: usize| entries / levels + usize::from(at < entries % levels);
        if level < 56 {
            share(all.saturating_sub(self.top_entries), 56, level)
        } else {
            share(self.top_entries, 8, level - 56)
        }
    }

    fn period(&mut self) {
        let foretold = (self.hits * 256).checked_div(self.hits + self.misses).unwrap_or(0);
        self.jump = if foretold < 16 {
            4
        } else if foretold < 32 {
            2
        } else {
            1
        };
        (self.hits, self.misses) = (0, 0);
        for level in 0..63 {
            let target = self.target(level);
            while self.levels[level].len() < target {
                let Some(above) = (level + 1..64).find(|&above| !self.levels[above].is_empty()) else {
                    break;
                };
                let entry = self.levels[above].pop_front().unwrap();
                self.levels[level].push_back(entry);
            }
            while self.levels[level].len() > target {
                let entry = self.levels[level].pop_back().unwrap();
                match self.version {
                    SmqVersion::One => self.levels[level + 1].push_front(entry),
                    SmqVersion::Two => self.levels[level + 1].push_back(entry),
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Goal: levels of regions. Method: skewed accesses to more regions than entries, ticks and periods,
    /// beside the model.
    #[test]
    fn behaves_as_the_model(
        is_first in any::<bool>(),
        steps in prop::collection::vec((0u64..1400, 0u32..8, 0u32..40), 1..4000),
    ) {
        let version = if is_first { SmqVersion::One } else { SmqVersion::Two };
        let mut policy = policy(version);
        let mut model = Model {
            levels: vec![VecDeque::new(); 64],
            version,
            entries: 1024,
            top_entries: 16,
            jump: 1,
            tick: 1,
            hits: 0,
            misses: 0,
        };
        // A full memory from the start.
        for region in 0..1024 {
            policy.seen(&asked(Read, region * 16), false);
            model.seen(region);
        }
        let mut now = Nanos(0);
        for (region, skew, what) in steps {
            let region = region >> skew;
            policy.seen(&asked(Read, region * 16 + u64::from(skew)), false);
            let level = model.seen(region);
            let entry = policy.find(asked(Read, region * 16).piece).expect("it was just seen");
            prop_assert_eq!(policy.queue.level(entry) as usize, level);
            if what < 20 {
                let ends = what == 0 || now == Nanos(0);
                now = now.plus(if ends { PERIOD_NS + 1 } else { 0 });
                policy.tick(&standing(4096, 1), now);
                model.tick += 1;
                if ends {
                    model.period();
                }
                prop_assert_eq!(policy.jump as usize, model.jump);
            }
        }
    }
}
