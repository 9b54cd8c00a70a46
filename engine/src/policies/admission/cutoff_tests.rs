//! The cutoff on traces worked through by hand, and against a naive model.

use super::*;
use crate::units::{PieceKey, SectorRange, VolumeIndex};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proptest::prelude::*;

const MIB: u32 = 1 << 20;
/// No random bit set: no jitter.
fn still() -> u32 {
    0
}

fn asked(stream: u32, start: u64, sectors: u64, now_ms: u64) -> Asked {
    Asked {
        piece: PieceKey::new(VolumeIndex(0), start / 8),
        access: Access::Read,
        stream,
        range: SectorRange { start, sectors },
        covers_piece: false,
        is_discarded: false,
        is_sync_writeback: false,
        may_promote: true,
        now: Nanos(now_ms * Nanos::MILLISECOND),
    }
}

fn published() -> Cutoff {
    Cutoff::new(CutoffChoice { runs: Some(RunsChoice::PUBLISHED), ..CutoffChoice::default() })
}

/// Requests from `first` on, of `sectors` each, one after the other; which of them pass, counted from 1.
fn passed(cutoff: &mut Cutoff, first: u64, sectors: u64, count: u64) -> Vec<u64> {
    let reasons = (1..=count).filter(|number| {
        let reason = cutoff.decide(&asked(7, first + (number - 1) * sectors, sectors, 100), still);
        assert!(reason.is_none() || reason == Some(Reason::Sequential));
        reason.is_some()
    });
    reasons.collect()
}

/// 128 KiB each: 31 are 3.9 MiB, the 32nd makes 4 MiB.
#[test]
fn the_first_four_mebibytes_of_a_run_are_admitted() {
    let expected: Vec<u64> = (32..=100).collect();
    assert_eq!(passed(&mut published(), 1 << 20, 256, 100), expected);
}

/// After 100 MiB the average is 13 107 200, and loses an eighth with each random request:
/// 13 107 200 * (7/8)^8 = 4 503 695 still passes by, as the 9th request; * (7/8)^9 does not.
#[test]
fn a_sequential_past_is_forgotten_slowly() {
    let mut cutoff = published();
    passed(&mut cutoff, 0, 256, 800);
    let reasons: Vec<bool> = (0..12u64)
        .map(|number| cutoff.decide(&asked(7, (1 << 30) + number * 1000, 8, 200), still).is_some())
        .collect();
    assert_eq!(reasons.iter().filter(|&&passes| passes).count(), 9);
    assert!(reasons[..9].iter().all(|&passes| passes), "the 10th is the first admitted one");
    // Another sender has no such past.
    assert_eq!(cutoff.decide(&asked(8, 5000, 8, 200), still), None);
}

#[test]
fn a_run_ends_after_five_seconds_of_silence() {
    let mut cutoff = published();
    assert_eq!(cutoff.decide(&asked(1, 0, 8184, 0), still), None);
    assert_eq!(cutoff.decide(&asked(2, 8184, 8, 4999), still), Some(Reason::Sequential));
    let mut cutoff = published();
    assert_eq!(cutoff.decide(&asked(1, 0, 8184, 0), still), None);
    assert_eq!(cutoff.decide(&asked(2, 8184, 8, 5000), still), None);
}

/// The 129th run takes the place of the one that was extended least lately, here the second.
#[test]
fn a_volume_remembers_128_runs() {
    let mut cutoff = published();
    let run = |number: u64| number << 20;
    for number in 0..128 {
        assert_eq!(cutoff.decide(&asked(9, run(number), 8184, 0), still), None);
    }
    assert_eq!(cutoff.decide(&asked(1, run(0) + 8184, 8, 0), still), Some(Reason::Sequential));
    assert_eq!(cutoff.decide(&asked(2, run(500), 8, 0), still), None);
    assert_eq!(cutoff.decide(&asked(3, run(1) + 8184, 8, 0), still), None, "run 1 was forgotten");
    assert_eq!(cutoff.decide(&asked(4, run(3) + 8184, 8, 0), still), Some(Reason::Sequential));
    // Another volume has runs of its own.
    let elsewhere = Asked { piece: PieceKey::new(VolumeIndex(1), 0), ..asked(5, run(4) + 8184, 8, 0) };
    assert_eq!(cutoff.decide(&elsewhere, still), None);
}

#[test]
fn unaligned_requests_pass_by_and_leave_no_trace() {
    let choice = CutoffChoice {
        aligned_sectors: 8,
        runs: Some(RunsChoice::PUBLISHED),
        congestion: Some(CongestionChoice::PUBLISHED),
    };
    let mut cutoff = Cutoff::new(choice);
    assert_eq!(cutoff.decide(&asked(1, 4, 8, 0), still), Some(Reason::Unaligned));
    assert_eq!(cutoff.decide(&asked(1, 8, 4, 0), still), Some(Reason::Unaligned));
    assert_eq!(cutoff.decide(&asked(1, 16, 8184, 0), still), None);
    // Had it counted, the run would be 4 MiB long now.
    assert_eq!(cutoff.decide(&asked(1, 8200, 7, 0), still), Some(Reason::Unaligned));
    assert_eq!(cutoff.decide(&asked(1, 8200, 8, 0), still), Some(Reason::Sequential));
}

fn sync_write(start: u64) -> Asked {
    Asked { access: Access::Write, is_sync_writeback: true, ..asked(1, start, 256, 0) }
}

/// 3.10 to 4.9 let synchronous writes to a writeback cache in, however long their run, and do not
/// count them; today's counts them as any.
#[test]
fn synchronous_writes_were_exempt() {
    let old = RunsChoice { exempts_sync_writes: true, ..RunsChoice::PUBLISHED };
    let mut cutoff = Cutoff::new(CutoffChoice { runs: Some(old), ..CutoffChoice::default() });
    assert!((0..100).all(|number| cutoff.decide(&sync_write(number * 256), still).is_none()));
    // A read that continues them begins a run of its own.
    assert_eq!(cutoff.decide(&asked(1, 25_600, 256, 0), still), None);
    let mut cutoff = published();
    let admitted = (0..100).filter(|number| cutoff.decide(&sync_write(number * 256), still).is_none());
    assert_eq!(admitted.count(), 31);
}

fn congested(runs: RunsChoice, slow_reads: u32) -> Cutoff {
    let congestion = Some(CongestionChoice::PUBLISHED);
    let mut cutoff = Cutoff::new(CutoffChoice { runs: Some(runs), congestion, aligned_sectors: 0 });
    (0..slow_reads).for_each(|_| cutoff.device_answered(Access::Read, 500_000_000, Nanos(0)));
    cutoff
}

/// Two reads of 500 ms count 488 each: -976. 1024 - 976 = 48, so the limit is 1 + 48/64: 1 sector.
/// One read: -488, 536 = 8 * 64 + 24, 256 + 96 = 352 sectors.
#[test]
fn congestion_shortens_the_runs_that_may_enter() {
    // The studies of 2015: no cutoff of its own, congestion at its defaults.
    let runs = RunsChoice { cutoff_bytes: 0, ..RunsChoice::PUBLISHED };
    let mut cutoff = congested(runs, 2);
    assert_eq!(cutoff.decide(&asked(1, 0, 8, 0), still), Some(Reason::Congested));
    let mut cutoff = congested(runs, 1);
    assert_eq!(cutoff.decide(&asked(1, 0, 344, 0), still), None);
    assert_eq!(cutoff.decide(&asked(1, 344, 8, 0), still), Some(Reason::Congested));
    // 32 set bits take 32 sectors off.
    assert_eq!(cutoff.decide(&asked(2, 1 << 20, 312, 0), || u32::MAX), None);
    assert_eq!(cutoff.decide(&asked(3, 1 << 21, 320, 0), || u32::MAX), Some(Reason::Congested));
    // Half a second later nothing is left of it, and without a cutoff everything enters.
    assert_eq!(cutoff.decide(&asked(1, 352, 1 << 16, 500), still), None);
    // The cutoff of its own comes first.
    let mut cutoff = congested(RunsChoice::PUBLISHED, 1);
    assert_eq!(cutoff.decide(&asked(1, 0, 8192, 0), still), Some(Reason::Sequential));
}

/// In 3.10 chance works on the cutoff itself, and congestion's limit takes its place.
#[test]
fn the_first_bcache_jitters_the_cutoff() {
    let first = RunsChoice { jitters_cutoff: true, ..RunsChoice::PUBLISHED };
    let mut cutoff = Cutoff::new(CutoffChoice { runs: Some(first), ..CutoffChoice::default() });
    assert_eq!(cutoff.decide(&asked(1, 0, 8160, 0), || u32::MAX), Some(Reason::Sequential));
    assert_eq!(cutoff.decide(&asked(2, 1 << 20, 8160, 0), || u32::MAX >> 1), None);
    // 352 sectors by congestion, less 2.
    let mut cutoff = congested(first, 1);
    assert_eq!(cutoff.decide(&asked(1, 0, 344, 0), || 0b101), None);
    assert_eq!(cutoff.decide(&asked(2, 1 << 20, 350, 0), || 0b101), Some(Reason::Congested));
    // A limit of 1 less 1 stops everything, and exempt writes are exempt no more.
    let mut cutoff = congested(RunsChoice { exempts_sync_writes: true, ..first }, 3);
    assert_eq!(cutoff.decide(&sync_write(0), || 1), Some(Reason::Congested));
}

#[test]
fn without_merging_each_request_counts_for_itself() {
    let alone = RunsChoice { merges: false, ..RunsChoice::PUBLISHED };
    let mut cutoff = Cutoff::new(CutoffChoice { runs: Some(alone), ..CutoffChoice::default() });
    assert!((0..1000).all(|number| cutoff.decide(&asked(1, number * 256, 256, 0), still).is_none()));
    // Only its eighth enters the average: 8 requests of 8 MiB make (1 - (7/8)^8) * 8 MiB = 5.2 MiB;
    // six make 4.4 MiB, five 3.9 MiB.
    let mut cutoff = Cutoff::new(CutoffChoice { runs: Some(alone), ..CutoffChoice::default() });
    let passes = (0..8).map(|number| cutoff.decide(&asked(1, number << 30, 16_384, 0), still).is_some());
    assert_eq!(passes.collect::<Vec<bool>>(), [false, false, false, false, false, true, true, true]);
}

/// Blocks of 4 KiB against a threshold of 16 KiB: the first four are 16 KiB, the fifth is more.
#[test]
fn flashcache_passes_what_is_longer_than_its_threshold() {
    let runs = Some(RunsChoice::flashcache(16));
    let mut cutoff = Cutoff::new(CutoffChoice { runs, ..CutoffChoice::default() });
    assert_eq!(passed(&mut cutoff, 800, 8, 7), [5, 6, 7]);
    // No sender has a past, and a run is never too old.
    assert_eq!(cutoff.decide(&asked(7, 80_000, 8, 200), still), None);
    assert_eq!(cutoff.decide(&asked(7, 856, 8, 9_000_000), still), Some(Reason::Sequential));
    let off = CutoffChoice { runs: Some(RunsChoice::flashcache(0)), ..CutoffChoice::default() };
    assert_eq!(passed(&mut Cutoff::new(off), 0, 256, 1000), []);
}

/// Runs as a list, newest last; averages as a map. As slow as can be.
struct Model {
    runs: Vec<(u64, u32, u64)>,
    senders: BTreeMap<u32, (u32, u32)>,
}

impl Model {
    fn decide(&mut self, asked: &Asked, cutoff_bytes: u32, runs_max: usize) -> bool {
        let (now, bytes) = (asked.now.0, asked.range.sectors as u32 * 512);
        let found = self.runs.iter().rposition(|run| run.0 == asked.range.start && now < run.2);
        let sender = self.senders.entry(asked.stream).or_default();
        let before = match found {
            Some(at) => self.runs.remove(at).1,
            None => {
                if self.runs.len() == runs_max {
                    self.runs.remove(0);
                }
                *sender = (0, ((u64::from(sender.1) * 7 + u64::from(sender.0)) / 8) as u32);
                0
            }
        };
        self.runs.push((asked.range.end(), before + bytes, now + 5_000_000_000));
        sender.0 = before + bytes;
        sender.0.max(sender.1) >> 9 >= cutoff_bytes >> 9
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// Goal: runs, their end, their places, averages. Method: few sectors, senders and places, so that
    /// runs meet and are pushed out, beside the naive model.
    #[test]
    fn behaves_as_the_model(
        steps in prop::collection::vec((0u32..3, 0u64..40, 1u64..6, 0u64..1500), 1..300),
    ) {
        let choice = RunsChoice { cutoff_bytes: MIB / 64, runs: 4, ..RunsChoice::PUBLISHED };
        let mut cutoff = Cutoff::new(CutoffChoice { runs: Some(choice), ..CutoffChoice::default() });
        let mut model = Model { runs: Vec::new(), senders: BTreeMap::new() };
        let mut now_ms = 0;
        for (stream, start, blocks, pause_ms) in steps {
            now_ms += pause_ms;
            let asked = asked(stream, start * 8, blocks * 8, now_ms);
            let expected = model.decide(&asked, MIB / 64, 4);
            let found = cutoff.decide(&asked, still);
            prop_assert_eq!(found, expected.then_some(Reason::Sequential));
        }
    }
}
