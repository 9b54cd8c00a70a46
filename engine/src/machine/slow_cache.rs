//! A cache device that fails slowly: clients' reads pass it by until it is well again.
//!
//! An SSD that is about to fail often does not say so; it answers, and takes ten or a hundred times as long. Then an
//! origin with a disk is the faster one. What is dirty is still read from the device, and everything is still written
//! to it: only it has the one, and a write that goes around it has to wait until it has noted that (RULE 7).
//!
//! What is usual is the median of its reads, which moves by a small part with each look at the reads of a tenth of a
//! second. A look is slow if most of the reads that were answered, or that have been under way for as long, took more
//! than ten times that. It is not if the device delivered much in that time: then they waited for each other. While it
//! is passed by, one small read at a time, which nobody waits for, tells how it is. Only a client's read brings a look,
//! so time without reads neither makes it ill nor well.

use crate::effect::{Effect, Notice};
use crate::limits::Slowness;
use crate::machine::Machine;
use crate::machine::flight::Flight;
use crate::machine::request::RequestKey;
use crate::machine::volume::Standing;
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::status::{Bypass, CachePace};
use crate::store::Store;
use crate::units::{BLOCK_BYTES, Nanos, Place};

/// How many times the usual latency is slow.
const SLOW_TIMES: u64 = 10;
/// The usual latency moves by this part of it with a look; by more of it with the first ones, which have no better
/// figure to keep.
const STEP_PARTS: u32 = 32;
const FIRST_STEP_PARTS: u32 = 4;
/// A device that delivers a byte in less than this is not slow, however long its queue: 50 MB/s.
const BUSY_BYTE_NS: u64 = 20;
/// A device that is slow again so soon has to be well for twice as long as last time.
const RELAPSE_NS: u64 = 60 * Nanos::SECOND;
const RELAPSES_MAX: u32 = 4;

/// The reads of the cache since the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    all: u64,
    /// Those that took longer than usual.
    long: u64,
    /// The time that those took, added up.
    long_sum_ns: u64,
    slow: u64,
    /// The time that the slow ones took, added up.
    slow_sum_ns: u64,
    longest_ns: u64,
}

/// The reads of the cache in the time before a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LookedReads {
    /// Those that were answered since the last look.
    pub answered: u64,
    /// Those that are under way.
    pub under_way: u64,
    /// About the time that all of them took, or have been under way, added up.
    pub time_ns: u64,
}

impl LookedReads {
    /// Whether they take more than `slow_ns` on the average.
    pub fn are_slow(&self, slow_ns: u64) -> bool {
        self.time_ns > (self.answered + self.under_way) * slow_ns
    }
}

/// A change that a look brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The device is passed by from now on.
    Slow,
    /// It is used again, after so long.
    Well { passed_ns: u64 },
}

/// How fast the cache device answers, and whether it is passed by.
#[derive(Clone, Debug)]
pub(crate) struct SlowCache {
    bounds: Slowness,
    /// Half of the reads take no longer.
    usual_ns: u64,
    /// A read that takes longer is slow.
    limit_ns: u64,
    answers: Answers,
    /// The reads before the last look.
    looked_reads: LookedReads,
    /// The next read that comes at this time or later is looked at, with all before it.
    look_at: Nanos,
    looked: Nanos,
    /// Bytes that the device had been asked for at the last look.
    read_bytes: u64,
    /// Looks with reads.
    looks: u32,
    /// Time for which it was slow, and lately not made up for.
    slow_for_ns: u64,
    /// Time for which it was well since it was slow.
    well_for_ns: u64,
    /// The time of a slow read at the last look that had any.
    slow_ns: u64,
    passed_since: Option<Nanos>,
    /// When it was last used again.
    well_since: Option<Nanos>,
    /// How often it was slow again soon.
    relapses: u32,
    is_probed: bool,
    next_probe: Nanos,
}

impl SlowCache {
    /// A device that has not answered yet.
    pub fn new(bounds: Slowness) -> SlowCache {
        SlowCache {
            bounds,
            usual_ns: 0,
            limit_ns: bounds.slow_ns_min,
            answers: Answers::default(),
            looked_reads: LookedReads::default(),
            look_at: Nanos(0),
            looked: Nanos(0),
            read_bytes: 0,
            looks: 0,
            slow_for_ns: 0,
            well_for_ns: 0,
            slow_ns: 0,
            passed_since: None,
            well_since: None,
            relapses: 0,
            is_probed: false,
            next_probe: Nanos(0),
        }
    }

    /// Notes how long a read of the device took.
    #[inline]
    pub fn answered(&mut self, latency_ns: u64) {
        self.answers.all += 1;
        if latency_ns > self.usual_ns {
            self.answered_late(latency_ns);
        }
    }

    #[inline]
    fn answered_late(&mut self, latency_ns: u64) {
        self.answers.long += 1;
        self.answers.long_sum_ns += latency_ns;
        if latency_ns > self.limit_ns {
            self.note_slow(latency_ns);
        } else if self.usual_ns == 0 {
            self.usual_ns = latency_ns;
        }
    }

    fn note_slow(&mut self, latency_ns: u64) {
        self.answers.slow += 1;
        self.answers.slow_sum_ns += latency_ns;
        self.answers.longest_ns = self.answers.longest_ns.max(latency_ns);
    }

    /// Whether a read that comes now is looked at.
    #[inline]
    pub fn is_looked_at(&self, now: Nanos) -> bool {
        now >= self.look_at
    }

    /// Whether reads pass the device by, where the origin is faster.
    #[inline]
    pub fn is_passed_by(&self) -> bool {
        self.passed_since.is_some()
    }

    /// How it is at `now`.
    pub fn status(&self, now: Nanos) -> CachePace {
        CachePace {
            usual_ns: self.usual_ns,
            passed_for_ns: self.passed_since.map(|since| now.since(since)),
            slow_ns: self.slow_ns,
        }
    }

    /// Judges the reads since the last look, and those under way since these times; the device was asked for
    /// `read_bytes` in all.
    fn look(&mut self, now: Nanos, read_bytes: u64, under_way: impl Iterator<Item = Nanos>) -> Option<Turn> {
        if now < self.looked.plus(self.bounds.look_ns) {
            return None;
        }
        let Answers { all, long, long_sum_ns, .. } = self.answers;
        // The others took no more than what is usual, and are half of all.
        let time_ns = long_sum_ns + (all - long) * self.usual_ns;
        let mut reads = LookedReads { answered: all, under_way: 0, time_ns };
        for issued in under_way {
            let age_ns = now.since(issued);
            reads.under_way += 1;
            reads.time_ns += age_ns;
            if age_ns > self.limit_ns {
                self.answers.all += 1;
                self.answers.long += 1;
                self.note_slow(age_ns);
            }
        }
        self.looked_reads = reads;
        let (answers, since_ns) = (core::mem::take(&mut self.answers), now.since(self.looked));
        let bytes = read_bytes - self.read_bytes;
        (self.looked, self.read_bytes) = (now, read_bytes);
        let turn = if answers.all > 0 { self.judge(answers, since_ns, bytes, now) } else { None };
        self.limit_ns = (self.usual_ns * SLOW_TIMES).max(self.bounds.slow_ns_min);
        self.look_at = now.plus(self.bounds.look_ns);
        if self.is_passed_by() {
            // Well is what is faster than needs be. Every read is looked at.
            self.limit_ns /= 2;
            self.look_at = Nanos(0);
        }
        turn
    }

    fn judge(&mut self, answers: Answers, since_ns: u64, bytes: u64, now: Nanos) -> Option<Turn> {
        let Slowness { look_ns, slow_after_ns, well_after_ns, looks_min, .. } = self.bounds;
        let is_busy = bytes.saturating_mul(BUSY_BYTE_NS) > since_ns;
        let is_slow = answers.slow * 2 > answers.all && !is_busy;
        // Most of the time without reads tells nothing, and one read alone is no illness.
        let lasted_ns = since_ns.min(answers.longest_ns.max(look_ns)).min(slow_after_ns / 2);
        if is_slow {
            self.slow_ns = answers.slow_sum_ns / answers.slow;
            self.slow_for_ns += lasted_ns;
            self.well_for_ns = 0;
        } else {
            self.slow_for_ns = self.slow_for_ns.saturating_sub(lasted_ns);
            self.well_for_ns += lasted_ns;
        }
        if let Some(since) = self.passed_since {
            if self.well_for_ns < well_after_ns << self.relapses {
                return None;
            }
            (self.passed_since, self.well_since, self.slow_for_ns) = (None, Some(now), 0);
            return Some(Turn::Well { passed_ns: now.since(since) });
        }
        if !is_slow {
            self.learn(answers.long * 2 > answers.all);
        }
        if self.slow_for_ns < slow_after_ns || self.looks < looks_min {
            return None;
        }
        let is_relapse = self.well_since.is_some_and(|since| now.since(since) < RELAPSE_NS);
        self.relapses = if is_relapse { (self.relapses + 1).min(RELAPSES_MAX) } else { 0 };
        (self.passed_since, self.next_probe) = (Some(now), now);
        Some(Turn::Slow)
    }

    fn learn(&mut self, is_longer: bool) {
        let parts = self.looks.saturating_add(FIRST_STEP_PARTS).min(STEP_PARTS);
        let step_ns = self.usual_ns / u64::from(parts) + 1;
        // Zero is what nothing was learned of.
        self.usual_ns =
            if is_longer { self.usual_ns + step_ns } else { self.usual_ns.saturating_sub(step_ns).max(1) };
        self.looks = self.looks.saturating_add(1);
    }

    /// Whether a probe is due; then it is under way.
    fn begin_probe(&mut self, now: Nanos) -> bool {
        let is_due = !self.is_probed && now >= self.next_probe;
        if is_due {
            (self.is_probed, self.next_probe) = (true, now.plus(self.bounds.look_ns));
        }
        is_due
    }
}

impl<S: Store> Machine<S> {
    /// Looks at how fast the cache is, and lets a client's read pass it by if it is slow, and the origin faster. The store may have
    /// use for the look, too.
    pub(crate) fn pass_slow_cache_by<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let now = self.now;
        let read_bytes = self.outbox.cache_bytes().read_bytes;
        let looked = self.slow_cache.looked;
        let turn = match &self.halves {
            None => self.slow_cache.look(now, read_bytes, self.outbox.cache_reads()),
            Some(halves) => self.slow_cache.look(now, read_bytes, halves.cache_reads()),
        };
        if self.slow_cache.looked != looked {
            S::looked(self, self.slow_cache.looked_reads);
        }
        match turn {
            Some(Turn::Slow) => {
                let SlowCache { usual_ns, slow_ns, .. } = self.slow_cache;
                let (usual_us, slow_us) = (usual_ns / 1000, slow_ns / 1000);
                self.push(Effect::Notice(Notice::CacheSlow { usual_us, slow_us }));
            }
            Some(Turn::Well { passed_ns }) => {
                let passed_ms = passed_ns / Nanos::MILLISECOND;
                self.push(Effect::Notice(Notice::CacheWell { passed_ms }));
            }
            None => (),
        }
        let active = &self.requests[key];
        let volume = self.volume(active.volume);
        let is_in_use = volume.standing == Standing::Cached && self.latched.is_none();
        if !self.slow_cache.is_passed_by() || !is_in_use {
            return;
        }
        let first = volume.key(active.blocks.first);
        let is_faster = volume.origin.answers_within(self.slow_cache.slow_ns, now);
        if let Some(cached) = self.store.lookup(first) {
            self.probe(cached.place, memory);
        }
        if is_faster && !self.is_mutated(Mutation::SlowCacheKeepsReads) {
            self.requests[key].passes = Some(Some(Bypass::SlowCache));
        }
    }

    /// Reads a block of the cache that nobody waits for, if it is time to. Its content does not count, so the place may be
    /// reused meanwhile.
    fn probe<M: Memory>(&mut self, place: Place, memory: &mut M) {
        if !self.slow_cache.begin_probe(self.now) {
            return;
        }
        let Some(buffer) = memory.allocate(Purpose::Payload, to_u32(BLOCK_BYTES)) else {
            self.slow_cache.is_probed = false;
            return;
        };
        let slice = Slice { buffer, offset_bytes: 0, len_bytes: to_u32(BLOCK_BYTES) };
        self.read_cache(place, slice, Flight::Probe { buffer, issued: self.now }, None);
    }

    /// Takes the answer to a probe: how long it took is all that counts, a device that is gone apart.
    pub(crate) fn probe_done<M: Memory>(&mut self, buffer: BufferId, issued: Nanos, memory: &mut M) {
        memory.release(buffer);
        self.slow_cache.is_probed = false;
        self.slow_cache.answered(self.now.since(issued));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MS: u64 = Nanos::MILLISECOND;
    const SECOND: u64 = Nanos::SECOND;

    /// A device with a client that has one read under way at a time.
    struct Load {
        device: SlowCache,
        now: Nanos,
        read_bytes: u64,
        turns: Vec<Turn>,
    }

    impl Load {
        fn new() -> Load {
            Load { device: SlowCache::new(Slowness::USUAL), now: Nanos(7), read_bytes: 0, turns: Vec::new() }
        }

        /// Reads for `seconds`; each begins `pause_ns` after the one before it.
        fn reads(&mut self, seconds: u64, bytes: u64, latency_ns: u64, pause_ns: u64) {
            let end = self.now.plus(seconds * SECOND);
            while self.now < end {
                self.look(&[]);
                self.read_bytes += bytes;
                self.now = self.now.plus(latency_ns);
                self.device.answered(latency_ns);
                self.now = self.now.plus(pause_ns);
            }
        }

        /// `depth` reads of 4 KiB at a time, all answered together.
        fn rows(&mut self, seconds: u64, depth: u64, latency_ns: u64) {
            let end = self.now.plus(seconds * SECOND);
            while self.now < end {
                (0..depth).for_each(|_| self.look(&[]));
                self.read_bytes += depth * 4096;
                self.now = self.now.plus(latency_ns);
                (0..depth).for_each(|_| self.device.answered(latency_ns));
            }
        }

        fn look(&mut self, under_way: &[Nanos]) {
            if self.device.is_looked_at(self.now) {
                let turn = self.device.look(self.now, self.read_bytes, under_way.iter().copied());
                self.turns.extend(turn);
            }
        }

        fn is_passed_by(&self) -> bool {
            self.device.is_passed_by()
        }
    }

    /// A device with a usual latency of 200 us.
    fn known() -> Load {
        let mut load = Load::new();
        load.reads(10, 4096, 200_000, MS);
        load
    }

    #[test]
    fn few_reads_are_not_slow_for_being_few() {
        let mut load = known();
        load.reads(2, 4096, 200_000, 30 * MS);
        let few = load.device.looked_reads;
        assert!(few.answered < 5 && !few.are_slow(MS), "{few:?}");
        load.reads(2, 4096, 3 * MS, 30 * MS);
        assert!(load.device.looked_reads.are_slow(2 * MS), "{:?}", load.device.looked_reads);
        load.now = load.now.plus(SECOND);
        load.look(&[Nanos(load.now.0 - SECOND / 2)]);
        let hanging = load.device.looked_reads;
        assert!(hanging.answered <= 1 && hanging.are_slow(100 * MS), "{hanging:?}");
    }

    #[test]
    fn what_is_usual_is_near_the_median() {
        let mut load = Load::new();
        // Begins with outliers, and others come.
        load.reads(1, 4096, 4 * MS, 0);
        for _ in 0..100 {
            load.reads(1, 4096, 150_000, MS);
            (0..200).for_each(|_| load.device.answered(3 * MS));
        }
        let usual_ns = load.device.usual_ns;
        assert!((140_000..=160_000).contains(&usual_ns), "{usual_ns} ns");
        assert!(load.turns.is_empty());
    }

    #[test]
    fn a_device_that_is_slow_for_seconds_is_passed_by_and_comes_back() {
        let mut load = known();
        load.reads(1, 4096, 8 * MS, MS);
        assert!(!load.is_passed_by(), "a second is not long");
        load.reads(2, 4096, 8 * MS, MS);
        assert_eq!(load.turns, [Turn::Slow]);
        assert!((7 * MS..9 * MS).contains(&load.device.slow_ns));
        load.reads(60, 4096, 3 * MS, MS);
        assert!(
            load.is_passed_by(),
            "it is used again when it is well, and not when it is not quite so slow"
        );
        load.reads(2, 4096, 200_000, MS);
        assert!(load.is_passed_by());
        load.reads(2, 4096, 200_000, MS);
        assert!(matches!(load.turns[..], [Turn::Slow, Turn::Well { passed_ns }] if passed_ns > 60 * SECOND));
    }

    #[test]
    fn a_device_that_is_slow_again_soon_has_to_be_well_for_longer() {
        let mut load = known();
        for needed in [3, 6, 12, 24, 48, 48] {
            load.reads(4, 4096, 50 * MS, MS);
            assert!(load.is_passed_by());
            load.reads(needed - 1, 4096, 200_000, MS);
            assert!(load.is_passed_by(), "{needed} s");
            load.reads(2, 4096, 200_000, MS);
            assert!(!load.is_passed_by(), "{needed} s");
        }
        load.reads(60, 4096, 200_000, MS);
        load.reads(4, 4096, 50 * MS, MS);
        load.reads(4, 4096, 200_000, MS);
        assert!(!load.is_passed_by(), "after a minute it is as if nothing had been");
    }

    #[test]
    fn a_device_that_hangs_answers_nothing_and_is_slow() {
        let mut load = known();
        let issued = load.now;
        for step in 1..40 {
            load.now = issued.plus(step * 100 * MS);
            load.look(&[issued, issued.plus(step * 99 * MS)]);
        }
        assert!(load.is_passed_by());
        // A client that waits for each read brings a look at its end alone.
        let mut load = known();
        load.reads(4, 4096, 900 * MS, MS);
        assert!(load.is_passed_by());
    }

    #[test]
    fn jitter_queues_and_idle_time_are_no_illness() {
        let mut load = Load::new();
        load.reads(10, 4096, 60_000, MS);
        // Seventy times as long, and still fast.
        load.reads(20, 4096, 4 * MS, 0);
        // A hundred reads under way, of a SATA SSD.
        load.reads(20, 4096, 60_000, MS);
        load.rows(20, 128, 9 * MS);
        // Long reads at the device's speed.
        load.reads(20, 4096, 60_000, MS);
        load.reads(20, 1 << 20, 15 * MS, 0);
        // One slow read in an hour; less than half of the reads.
        load.reads(20, 4096, 60_000, MS);
        (0..19).for_each(|_| load.reads(1, 4096, 30 * MS, 3600 * SECOND));
        load.reads(20, 4096, 60_000, MS);
        for _ in 0..100 {
            load.reads(1, 4096, 60_000, 100 * MS);
            (0..9).for_each(|_| load.device.answered(30 * MS));
        }
        assert_eq!(load.turns, []);
    }

    #[test]
    fn nothing_is_judged_before_it_is_known_what_is_usual() {
        let mut load = Load::new();
        load.reads(60, 4096, 80 * MS, MS);
        assert_eq!(load.turns, []);
    }
}
