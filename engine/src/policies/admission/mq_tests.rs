//! Promotion by mq on traces worked through by hand, and against a naive model.

use super::super::testing::{asked, standing};
use super::*;
use crate::policies::replacement::Access::{Read, Write};
use proptest::prelude::*;

/// Far from the request before: no phase is sequential.
fn policy(choice: MqChoice) -> MqPromotion {
    MqPromotion::new(choice, 4)
}

fn ask(policy: &mut MqPromotion, asked: &Asked, standing: &Standing) -> Verdict {
    policy.tick();
    policy.seen(asked);
    policy.decide(asked, standing).verdict
}

fn admit(hits: u32) -> Verdict {
    Verdict::Admit { hits, is_temporary: false, is_returning: false }
}

/// The misses of one piece, each in a tick of its own, until it is admitted; and the hits it enters with.
fn misses(choice: MqChoice, access: Access, threshold: u32) -> (u32, u32) {
    let mut policy = policy(choice);
    let standing = Standing { threshold, ..standing(4, 4) };
    for misses in 0..100 {
        match ask(&mut policy, &asked(access, 9), &standing) {
            Verdict::Admit { hits, .. } => return (misses, hits),
            Verdict::Pass(reason) => assert_eq!(reason, Reason::NotYet),
        }
    }
    panic!("it is admitted in the end");
}

/// The first access remembers with 1 hit. The test comes before the access itself is counted: with 4
/// hits needed the 5th read enters, and takes 5 hits along.
#[test]
fn a_piece_enters_when_its_hits_reach_what_is_needed() {
    assert_eq!(misses(MqChoice::PUBLISHED, Read, 0), (4, 5));
    assert_eq!(misses(MqChoice::PUBLISHED, Write, 0), (8, 9));
    assert_eq!(misses(MqChoice::PUBLISHED, Read, 7), (11, 12));
}

/// 1.0 counts first: the 4th read has its 4 hits.
#[test]
fn the_first_mq_counts_before_it_tests() {
    let first = MqChoice { era: MqEra::Single, ..MqChoice::PUBLISHED };
    assert_eq!(misses(first, Read, 0), (3, 4));
    assert_eq!(misses(first, Write, 0), (7, 8));
}

/// geomflash-2015 takes 2 and 0 for the adjustments. With an empty cache every first write enters; with
/// a threshold of 2 a block has two misses (job 20: 65 420 misses, 32 288 promotions).
#[test]
fn without_an_adjustment_the_first_write_enters() {
    let geomflash =
        MqChoice { read_promote_adjustment: 2, write_promote_adjustment: 0, ..MqChoice::PUBLISHED };
    assert_eq!(misses(geomflash, Write, 0), (0, 1));
    assert_eq!(misses(geomflash, Write, 1), (0, 1));
    assert_eq!(misses(geomflash, Write, 2), (2, 3));
    // Job 20 in small: 100 writes for each of 1000 blocks, of which the first two miss.
    let mut policy = MqPromotion::new(geomflash, 1000);
    let standing = Standing { threshold: 2, ..standing(1000, 0) };
    let (mut misses, mut promotions) = (0, 0);
    for round in 0..3 {
        for piece in 0..1000 {
            match ask(&mut policy, &asked(Write, (piece * 7) % 1000), &standing) {
                Verdict::Admit { .. } => promotions += 1,
                Verdict::Pass(_) => misses += 1,
            }
        }
        assert!(round == 2 || promotions == 0);
    }
    assert_eq!((misses, promotions), (2000, 1000));
}

#[test]
fn two_accesses_in_one_tick_count_once() {
    let mut policy = policy(MqChoice::PUBLISHED);
    let standing = standing(4, 4);
    for tick in 0..4 {
        policy.tick();
        for access in 0..3 {
            policy.seen(&asked(Read, 9));
            let decision = policy.decide(&asked(Read, 9), &standing);
            let is_ghost_hit = tick > 0 && access == 0;
            assert_eq!(decision, Decision { verdict: Verdict::Pass(Reason::NotYet), is_ghost_hit });
        }
    }
    policy.tick();
    assert_eq!(policy.decide(&asked(Read, 9), &standing), Decision { verdict: admit(5), is_ghost_hit: true });
}

#[test]
fn a_discarded_piece_enters_at_the_first_write() {
    let discarded = |access| Asked { is_discarded: true, ..asked(access, 9) };
    let verdict = |era, access, standing: &Standing| {
        ask(&mut policy(MqChoice { era, ..MqChoice::PUBLISHED }), &discarded(access), standing)
    };
    let not_yet = Verdict::Pass(Reason::NotYet);
    let full_of_dirty = Standing { clean: 0, ..standing(4, 0) };
    assert_eq!(verdict(MqEra::Split, Write, &standing(4, 1)), admit(1));
    assert_eq!(verdict(MqEra::Split, Write, &standing(4, 0)), admit(1));
    assert_eq!(verdict(MqEra::Split, Write, &full_of_dirty), not_yet);
    assert_eq!(verdict(MqEra::Split, Read, &standing(4, 4)), not_yet);
    assert_eq!(verdict(MqEra::Single, Write, &standing(4, 1)), admit(1));
    assert_eq!(verdict(MqEra::Single, Write, &standing(4, 0)), not_yet);
    // To cover the piece is not enough for mq.
    let covers = Asked { covers_piece: true, ..asked(Write, 9) };
    assert_eq!(ask(&mut policy(MqChoice::PUBLISHED), &covers, &standing(4, 4)), not_yet);
}

/// 513 requests in a row: the last one is sequential, so its piece is not even remembered.
#[test]
fn in_a_sequential_phase_nothing_enters_and_nothing_is_remembered() {
    let eager = MqChoice { read_promote_adjustment: 1, ..MqChoice::PUBLISHED };
    let mut policy = policy(eager);
    let row = |number: u64| Asked {
        range: crate::units::SectorRange { start: 4096 + number * 8, sectors: 8 },
        ..asked(Read, number / 64)
    };
    for number in 0..512 {
        assert_ne!(ask(&mut policy, &row(number), &standing(4, 4)), Verdict::Pass(Reason::Sequential));
    }
    let last = Asked { piece: asked(Read, 77).piece, ..row(512) };
    assert_eq!(ask(&mut policy, &last, &standing(4, 4)), Verdict::Pass(Reason::Sequential));
    assert!(policy.find(last.piece).is_none());
}

/// Four pieces fit. 1 is the least recently used with one hit when 5 comes; 2 has two hits then.
#[test]
fn the_fewest_hits_make_room() {
    let mut policy = policy(MqChoice::PUBLISHED);
    let standing = standing(4, 0);
    for piece in [2, 1, 3, 4, 2, 5] {
        ask(&mut policy, &asked(Read, piece), &standing);
    }
    let remembered = |policy: &MqPromotion| {
        (1..=9).filter(|&piece| policy.find(asked(Read, piece).piece).is_some()).collect::<Vec<u64>>()
    };
    assert_eq!(remembered(&policy), [2, 3, 4, 5]);
    // 3, 4, 5 go next; when the last with one hit goes, levels sink, and 2 is in line with new ones.
    for piece in [6, 7, 8, 9] {
        ask(&mut policy, &asked(Read, piece), &standing);
    }
    assert_eq!(remembered(&policy), [2, 7, 8, 9]);
}

#[test]
fn a_refused_piece_is_remembered_with_its_hits() {
    let mut policy = policy(MqChoice::PUBLISHED);
    let standing = standing(4, 0);
    let read = asked(Read, 9);
    (0..4).for_each(|_| assert_eq!(ask(&mut policy, &read, &standing), Verdict::Pass(Reason::NotYet)));
    for hits in [5, 6, 7] {
        assert_eq!(ask(&mut policy, &read, &standing), admit(hits));
        assert!(policy.find(read.piece).is_none());
        policy.refused(read.piece, hits);
    }
}

/// While copies fill their limit a wanted piece passes, and the split mq does not count it.
#[test]
fn the_gate_keeps_a_piece_wanted() {
    let hits_at_last = |era| {
        let mut policy = policy(MqChoice { era, ..MqChoice::PUBLISHED });
        let standing = standing(4, 4);
        let gated = Asked { may_promote: false, ..asked(Read, 9) };
        let gated_passes = (0..10)
            .filter(|_| ask(&mut policy, &gated, &standing) == Verdict::Pass(Reason::CopiesInFlight))
            .count();
        (gated_passes, ask(&mut policy, &asked(Read, 9), &standing))
    };
    assert_eq!(hits_at_last(MqEra::Split), (6, admit(5)));
    assert_eq!(hits_at_last(MqEra::Single), (7, admit(11)));
}

/// 1.0 with 4 frames has 8 entries for both: with 3 cached, 5 are remembered. What leaves begins again.
#[test]
fn the_first_mq_shares_its_entries_and_remembers_what_left() {
    let first = MqChoice { era: MqEra::Single, ..MqChoice::PUBLISHED };
    let mut policy = policy(first);
    for piece in 1..=6 {
        ask(&mut policy, &asked(Read, piece), &standing(4, 1));
    }
    let remembered = |policy: &MqPromotion| policy.pieces.len() - policy.free.len();
    assert_eq!(remembered(&policy), 5);
    policy.evicted(asked(Read, 50).piece);
    assert_eq!(remembered(&policy), 6);
    let again = (0..3).map(|_| ask(&mut policy, &asked(Read, 50), &standing(4, 2)));
    assert_eq!(
        again.collect::<Vec<_>>(),
        [Verdict::Pass(Reason::NotYet), Verdict::Pass(Reason::NotYet), admit(4)]
    );
    let mut second = MqPromotion::new(MqChoice::PUBLISHED, 4);
    second.evicted(asked(Read, 50).piece);
    assert!(second.find(asked(Read, 50).piece).is_none());
}

/// Three entries: piece 1 in level 1, pieces 2 and 3 in level 2. Piece 4, of level 1, takes the place of
/// piece 1, and then piece 5 that of the first in the lowest level. With `coldest` pieces 2 and 3
/// sank to level 1 when piece 1 went, although the bottom level had been empty before.
#[test]
fn the_last_mq_sinks_whenever_the_bottom_is_empty() {
    let kept = [MqEra::Split, MqEra::Coldest].map(|era| {
        let choice = MqChoice { era, ..MqChoice::PUBLISHED };
        let mut policy = MqPromotion::new(choice, 3);
        for (piece, hits) in [(1, 2), (2, 5), (3, 5)] {
            policy.refused(asked(Read, piece).piece, hits);
        }
        for (piece, hits) in [(4, 2), (5, 2)] {
            policy.refused(asked(Read, piece).piece, hits);
        }
        [1, 2, 3, 4, 5].map(|piece| policy.find(asked(Read, piece).piece).is_some())
    });
    assert_eq!(kept[0], [false, true, true, false, true], "4 has fewer hits than 2 and 3");
    assert_eq!(kept[1], [false, false, true, true, true], "2 and 3 sank to where 4 is, and are older");
}

/// Sixteen lists of (piece, hits, tick), oldest first. As slow as can be.
struct Model {
    levels: Vec<Vec<(u64, u32, u32)>>,
    tick: u32,
    entries: usize,
}

impl Model {
    fn push(&mut self, piece: u64, hits: u32) {
        self.levels[(hits.ilog2() as usize).min(15)].push((piece, hits, self.tick));
    }

    fn remember(&mut self, piece: u64, hits: u32) {
        if self.levels.iter().map(Vec::len).sum::<usize>() == self.entries {
            let lowest = self.levels.iter().position(|level| !level.is_empty()).unwrap();
            self.levels[lowest].remove(0);
            if lowest == 0 && self.levels[0].is_empty() {
                self.levels.rotate_left(1);
            }
        }
        self.push(piece, hits);
    }

    fn decide(&mut self, piece: u64, needed: u32) -> Option<u32> {
        let found = self.levels.iter_mut().find_map(|level| {
            let at = level.iter().position(|entry| entry.0 == piece)?;
            Some((level, at))
        });
        let Some((level, at)) = found else {
            if needed <= 1 {
                return Some(1);
            }
            self.remember(piece, 1);
            return None;
        };
        let (_, hits, tick) = level[at];
        if tick == self.tick {
            return None;
        }
        level.remove(at);
        if hits >= needed {
            return Some(hits + 1);
        }
        self.push(piece, hits + 1);
        None
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// Goal: counts, ticks, room, sinking levels. Method: more pieces than entries, all steps, beside the model.
    #[test]
    fn behaves_as_the_model(
        steps in prop::collection::vec((any::<bool>(), 0u64..14, 0u32..6, any::<bool>()), 1..600),
    ) {
        let choice = MqChoice { read_promote_adjustment: 1, ..MqChoice::PUBLISHED };
        let mut policy = MqPromotion::new(choice, 6);
        let mut model = Model { levels: vec![Vec::new(); 16], tick: 0, entries: 6 };
        for (ticks, piece, threshold, has_place) in steps {
            if ticks {
                policy.tick();
                model.tick += 1;
            }
            let asked = asked(Read, piece);
            policy.seen(&asked);
            let standing = Standing { threshold, ..standing(6, 0) };
            let found = match policy.decide(&asked, &standing).verdict {
                Verdict::Admit { hits, .. } => Some(hits),
                Verdict::Pass(_) => None,
            };
            prop_assert_eq!(found, model.decide(piece, threshold + 1));
            if let Some(hits) = found && !has_place {
                policy.refused(asked.piece, hits);
                model.remember(piece, hits);
            }
        }
    }
}

/// Two requests for one piece: the second misses while the first brings it in, and then there is no place.
#[test]
fn a_piece_that_is_refused_may_be_remembered_already() {
    let mut policy = policy(MqChoice { read_promote_adjustment: 3, ..MqChoice::PUBLISHED });
    let standing = standing(4, 4);
    let read = asked(Read, 9);
    let verdicts: std::vec::Vec<Verdict> = (0..5).map(|_| ask(&mut policy, &read, &standing)).collect();
    assert_eq!(verdicts[3], admit(4));
    assert_eq!(verdicts[4], Verdict::Pass(Reason::NotYet), "it is remembered anew");
    policy.refused(read.piece, 4);
    assert_eq!(ask(&mut policy, &read, &standing), admit(5), "with the hits that it had");
}
