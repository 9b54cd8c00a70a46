//! Helpers of the tests of the policies: requests and standings with little to say; and a test that all
//! policies pass.

use super::*;
use crate::policies::replacement::mq::MqEra;
use crate::policies::replacement::smq::SmqVersion;
use crate::prng::Prng;
use crate::units::VolumeIndex;
use alloc::vec::Vec;

/// A 4 KiB request at the beginning of a piece of 64 blocks of the first volume.
pub(super) fn asked(access: Access, piece: u64) -> Asked {
    Asked {
        piece: PieceKey::new(VolumeIndex(0), piece),
        access,
        stream: 0,
        range: SectorRange { start: piece * 512, sectors: 8 },
        covers_piece: false,
        is_discarded: false,
        is_sync_writeback: false,
        may_promote: true,
        now: Nanos(0),
    }
}

/// A cache of `frames` frames, `free` of them free, the others clean.
pub(super) fn standing(frames: u32, free: u32) -> Standing {
    Standing { free, frames, clean: frames - free, level_hits: 0, level_misses: 0, threshold: 0 }
}

/// A life of 20 000 requests with evictions, refusals and ticks; what was decided on each.
fn life(choice: &AdmissionChoice, seed: u64) -> Vec<Option<Decision>> {
    let mut prng = Prng::new(seed);
    let sizes = Sizes { frames: 64, origin_pieces: 4096 };
    let mut policy = Admission::new(choice, sizes);
    let mut cached: Vec<PieceKey> = Vec::new();
    let mut decisions = Vec::new();
    for number in 0..20_000u64 {
        let access = if prng.below(2) == 0 { Access::Read } else { Access::Write };
        let piece = u64::from(prng.below(4096) >> prng.below(8));
        let asked = Asked {
            piece: PieceKey::new(VolumeIndex(prng.below(2) as u8), piece),
            covers_piece: access == Access::Write && prng.below(8) == 0,
            is_discarded: prng.below(16) == 0,
            may_promote: prng.below(8) > 0,
            now: Nanos(number * Nanos::MILLISECOND),
            ..asked(access, piece)
        };
        let standing = Standing { threshold: prng.below(3), ..standing(64, 64 - cached.len() as u32) };
        let is_hit = cached.contains(&asked.piece);
        policy.seen(&asked, is_hit);
        let decision = (!is_hit).then(|| policy.decide(&asked, &standing));
        if let Some(Decision { verdict: Verdict::Admit { hits, .. }, .. }) = decision {
            assert!(hits > 0, "who enters was asked for");
            if cached.len() < 64 {
                cached.push(asked.piece);
            } else if prng.below(4) > 0 {
                policy.evicted(cached.swap_remove(prng.below(64) as usize));
                cached.push(asked.piece);
            } else {
                policy.refused(asked.piece, hits);
            }
        }
        decisions.push(decision);
        if prng.below(3) > 0 {
            policy.tick(&standing, asked.now);
        }
    }
    decisions
}

/// Goal: every policy decides the same on the same history, admits something, and survives all calls.
/// Method: one random life of each, twice.
#[test]
fn the_same_history_gives_the_same_decisions() {
    let mq = |era| AdmissionChoice::Mq(MqChoice { era, ..MqChoice::PUBLISHED });
    let smq = |version| AdmissionChoice::SmqHotspot(SmqHotspotChoice { version });
    let choices = [
        AdmissionChoice::Always(AlwaysChoice { ghost_pieces: 50 }),
        AdmissionChoice::SecondRead(SecondReadChoice::default()),
        AdmissionChoice::RoomOrSecondRead,
        mq(MqEra::Single),
        mq(MqEra::Split),
        mq(MqEra::Coldest),
        smq(SmqVersion::One),
        smq(SmqVersion::Two),
    ];
    for (choice, seed) in choices.iter().zip(1..) {
        let decisions = life(choice, seed);
        assert!(decisions == life(choice, seed), "{choice:?}");
        let admitted = decisions.iter().flatten().filter(|one| matches!(one.verdict, Verdict::Admit { .. }));
        assert!(admitted.count() > 100, "{choice:?}");
    }
}
