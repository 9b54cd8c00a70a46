//! Pace: how fast writes go to a cache device while clients read from it, too.
//!
//! An SSD that gets more writes than its flash takes lets reads wait behind them, for milliseconds each. With somewhat fewer
//! writes the reads are as fast as ever. Whether that is worth it depends on the clients: where reads and writes wait for each
//! other, all of them would wait longer.
//!
//! So it is tried out where reads are slow, and writes under way. In one window writes go slower than in the one before. If clients get more requests
//! answered in it than in the windows before and behind it, writes stay at that pace, and a slower one is tried, down to half of
//! what the device took. Now and then a faster one is tried, which stays unless they get fewer. Trials that fail become rare.
//!
//! Reads end the windows. Where nobody reads, or nobody writes, nothing is held back. What the device took may be all that
//! clients had: when far more waits than in the trial, others have come, and the pace ends.

use crate::limits::PaceBounds;
use crate::machine::slow_cache::LookedReads;
use crate::units::Nanos;

/// Paces that are tried, in thousandths of what the device took when nothing was held back.
const LEVELS_PERMILLE: [u64; 3] = [1000, 700, 500];
/// Reads are slow in a window if they are in one look of so many.
const SLOW_ONE_IN: u64 = 4;
/// So many such windows in a row are no chance: then a slower pace is tried.
const SLOW_WINDOWS: u32 = 2;
/// A slower pace stays with so many requests, in thousandths of what there were without; a faster one with so many.
const GAIN_PERMILLE: u64 = 1050;
const LOSS_PERMILLE: u64 = 980;
/// Windows of rest behind trials that fail: twice as many each time, up to this.
const REST_MAX: u32 = 32;

/// How fast writes go.
#[derive(Debug)]
pub(in crate::store::log) struct Pace {
    /// The pace that stays, by its number.
    level: usize,
    phase: Phase,
    /// Windows of rest behind the last trial that failed.
    rest: u32,
    /// Whether the next trial is of a faster pace, where there is one.
    is_faster_next: bool,
    window: Window,
    /// Windows with slow reads, up to now.
    slow_windows: u32,
    /// When reads were looked at last.
    looked: Nanos,
    /// A pace ends then, if nobody reads before.
    ends: Nanos,
    /// The time of a block when nothing is held back.
    full_block_ns: u64,
    /// The least time of a block now; none if nothing is held back.
    block_ns: u64,
    /// Blocks that may wait for it; with more, clients are others than those it was tried with.
    pending_max: u64,
    /// The next batch goes at this time or later.
    next: Nanos,
}

/// The device's work in a time.
#[derive(Debug, Default)]
struct Window {
    since: Nanos,
    reads: u64,
    writes: u64,
    blocks: u64,
    looks: u64,
    /// Looks at slow reads beside writes.
    slow_looks: u64,
    /// The most blocks that waited because of the pace.
    pending: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The trial comes after so many windows, and one to compare it with.
    Resting(u32),
    /// A pace is tried; so many requests a second were answered before.
    Trying { level: usize, before: u64 },
    /// The former pace once more; so many were answered before, and in the trial, where so many blocks waited.
    Checking { level: usize, before: u64, tried: u64, pending: u64 },
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            level: 0,
            phase: Phase::Resting(0),
            rest: 1,
            is_faster_next: false,
            window: Window::default(),
            slow_windows: 0,
            looked: Nanos(0),
            ends: Nanos(0),
            full_block_ns: 0,
            block_ns: 0,
            pending_max: u64::MAX,
            next: Nanos(0),
        }
    }
}

impl Pace {
    /// When what is pending, so many blocks, may go, if it has to wait.
    #[inline]
    pub(super) fn held_until(&mut self, pending_blocks: u64, now: Nanos) -> Option<Nanos> {
        if self.block_ns == 0 {
            return None;
        }
        if pending_blocks > self.pending_max {
            self.end();
            return None;
        }
        self.window.pending = self.window.pending.max(pending_blocks);
        let until = self.next.min(self.ends);
        (now < until).then_some(until)
    }

    /// Clients' writes went to the device.
    #[inline]
    pub(super) fn sent(&mut self, writes: u64, blocks: u64, now: Nanos) {
        self.window.writes += writes;
        self.window.blocks += blocks;
        if self.block_ns > 0 {
            self.next = self.next.max(now).plus(blocks * self.block_ns);
        }
    }

    /// Looks at reads of the device, and whether it has something to write.
    pub(in crate::store::log) fn looked(
        &mut self,
        reads: LookedReads,
        is_writing: bool,
        bounds: &PaceBounds,
        now: Nanos,
    ) {
        let since_ns = now.since(self.looked);
        (self.looked, self.ends) = (now, now.plus(bounds.pause_ns));
        self.window.reads += reads.answered;
        self.window.looks += 1;
        // Reads that find the device without writes do not wait for them.
        self.window.slow_looks += u64::from(is_writing && reads.are_slow(bounds.slow_ns));
        let (window_ns, has_paused) = (now.since(self.window.since), since_ns > bounds.pause_ns);
        if has_paused || window_ns >= bounds.window_ns {
            let window = core::mem::replace(&mut self.window, Window { since: now, ..Window::default() });
            let is_telling = !has_paused && window.reads.min(window.writes) >= bounds.requests_min;
            self.window_ended(is_telling.then_some(window), window_ns.max(1));
        }
    }

    fn window_ended(&mut self, telling: Option<Window>, window_ns: u64) {
        let Some(Window { reads, writes, blocks, looks, slow_looks, pending, .. }) = telling else {
            return self.end();
        };
        if self.block_ns == 0 {
            self.full_block_ns = window_ns / blocks.max(1);
        }
        let answered = (reads + writes) * Nanos::SECOND / window_ns;
        let is_slow = slow_looks * SLOW_ONE_IN >= looks;
        self.slow_windows = if is_slow { self.slow_windows.saturating_add(1) } else { 0 };
        self.phase = match self.phase {
            Phase::Resting(0) if self.level > 0 || self.slow_windows >= SLOW_WINDOWS => {
                let level = self.next_trial();
                self.go_at(level);
                Phase::Trying { level, before: answered }
            }
            Phase::Resting(windows) => Phase::Resting(windows.saturating_sub(1)),
            Phase::Trying { level, before } => {
                self.go_at(self.level);
                Phase::Checking { level, before, tried: answered, pending }
            }
            Phase::Checking { level, before, tried, pending }
                if self.is_better(level, before.max(answered), tried) =>
            {
                (self.level, self.rest) = (level, 1);
                self.pending_max = if level == 0 { u64::MAX } else { pending * 2 };
                self.go_at(level);
                Phase::Resting(0)
            }
            Phase::Checking { .. } => {
                self.rest = (self.rest * 2).min(REST_MAX);
                Phase::Resting(self.rest)
            }
        };
    }

    fn next_trial(&mut self) -> usize {
        let is_slowest = self.level + 1 == LEVELS_PERMILLE.len();
        let is_faster = self.level > 0 && (self.is_faster_next || is_slowest);
        self.is_faster_next = !is_faster;
        if is_faster { self.level - 1 } else { self.level + 1 }
    }

    /// Whether a pace that was tried stays: so many requests were answered with it, and so many without.
    fn is_better(&self, level: usize, without: u64, tried: u64) -> bool {
        let wanted_permille = if level > self.level { GAIN_PERMILLE } else { LOSS_PERMILLE };
        tried * 1000 >= without * wanted_permille
    }

    /// Nothing is held back until the next trial.
    fn end(&mut self) {
        (self.level, self.phase, self.slow_windows) = (0, Phase::Resting(self.rest), 0);
        self.pending_max = u64::MAX;
        self.go_at(0);
    }

    fn go_at(&mut self, level: usize) {
        self.block_ns = if level == 0 { 0 } else { self.full_block_ns * 1000 / LEVELS_PERMILLE[level] };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const BOUNDS: PaceBounds = PaceBounds::USUAL;
    const LOOK_NS: u64 = 100 * Nanos::MILLISECOND;
    /// Writes of a block that the device takes in a second.
    const WRITES: u64 = 5000;

    /// Writes that went in each of so many seconds, of which the device takes [`WRITES`], where `reads` says how many are read in a
    /// second beside so many writes, two at a time.
    fn seconds(pace: &mut Pace, seconds: u64, reads: impl Fn(u64) -> u64) -> Vec<u64> {
        beside(pace, seconds, true, reads)
    }

    /// The same; a look finds writes under way, or not.
    fn beside(pace: &mut Pace, seconds: u64, is_writing: bool, reads: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut now = pace.looked;
        let write_ns = Nanos::SECOND / WRITES;
        let mut look = |pace: &mut Pace| {
            let end = now.plus(LOOK_NS);
            let mut writes = 0;
            while now < end {
                if let Some(until) = pace.held_until(2, now) {
                    now = until.min(end);
                } else {
                    pace.sent(1, 1, now);
                    (writes, now) = (writes + 1, now.plus(write_ns));
                }
            }
            now = end;
            let looks = Nanos::SECOND / LOOK_NS;
            let answered = reads(writes * looks) / looks;
            let looked = LookedReads { answered, under_way: 0, time_ns: 2 * LOOK_NS };
            pace.looked(looked, is_writing, &BOUNDS, now);
            writes
        };
        (0..seconds).map(|_| (0..Nanos::SECOND / LOOK_NS).map(|_| look(pace)).sum()).collect()
    }

    /// Reads that nobody's writes wait for: they are slow beside as many writes as the device takes.
    fn reads_alone(writes: u64) -> u64 {
        if writes * 10 > WRITES * 8 { 500 } else { 3000 + (WRITES - writes) / 2 }
    }

    fn started() -> Pace {
        let mut pace = Pace::default();
        pace.looked(LookedReads::default(), false, &BOUNDS, Nanos(Nanos::SECOND));
        pace
    }

    #[test]
    fn writes_go_slower_where_readers_get_more_by_it() {
        let mut pace = started();
        let found = seconds(&mut pace, 60, reads_alone);
        assert_eq!(pace.level, 1, "half as many writes would cost more than they bring");
        let slow = WRITES * LEVELS_PERMILLE[1] / 1000;
        let at_pace = found[20..].iter().filter(|&&writes| writes.abs_diff(slow) <= slow / 50).count();
        assert!(at_pace >= 30, "{found:?}");
    }

    #[test]
    fn they_go_on_where_reads_and_writes_wait_for_each_other() {
        let mut pace = started();
        let found = seconds(&mut pace, 200, |writes| writes / 6);
        assert_eq!(pace.level, 0);
        let held = found.iter().filter(|&&writes| writes < WRITES).count();
        assert!((4..=10).contains(&held), "trials that fail become rare: {held} of 200 seconds");
    }

    #[test]
    fn nothing_is_tried_where_reads_are_fast() {
        let found = seconds(&mut started(), 60, |writes| (WRITES + 3000).saturating_sub(writes));
        assert!(found.iter().all(|&writes| writes == WRITES), "{found:?}");
    }

    #[test]
    fn nothing_is_tried_where_reads_are_slow_without_writes() {
        let found = beside(&mut started(), 60, false, reads_alone);
        assert!(found.iter().all(|&writes| writes == WRITES), "{found:?}");
    }

    #[test]
    fn half_of_them_go_at_the_least() {
        let mut pace = started();
        let found = seconds(&mut pace, 60, |writes| WRITES.saturating_sub(writes) * 10 + 500);
        let half = WRITES / 2;
        assert!(found.iter().all(|&writes| writes * 51 >= half * 50), "{found:?}");
        assert!(found[30..].iter().filter(|&&writes| writes * 50 <= half * 51).count() > 20, "{found:?}");
    }

    #[test]
    fn nothing_is_held_back_when_the_readers_are_gone() {
        let mut pace = started();
        seconds(&mut pace, 60, reads_alone);
        let now = pace.looked;
        pace.sent(1, 10_000, now);
        let end = now.plus(BOUNDS.pause_ns);
        assert_eq!(pace.held_until(2, now), Some(end), "a reader may come until then");
        assert_eq!(pace.held_until(2, end), None, "no reader came");
        pace.looked(LookedReads::default(), true, &BOUNDS, now.plus(BOUNDS.pause_ns + 1));
        assert_eq!((pace.level, pace.block_ns), (0, 0));
    }

    #[test]
    fn who_comes_with_much_more_is_not_held_back() {
        let mut pace = started();
        seconds(&mut pace, 60, reads_alone);
        let now = pace.looked;
        pace.sent(1, 10_000, now);
        assert!(pace.held_until(4, now).is_some(), "twice as much as waited in the trial");
        assert_eq!(pace.held_until(5, now), None);
        assert_eq!((pace.level, pace.held_until(4, now)), (0, None), "until the next trial");
    }

    #[test]
    fn a_faster_pace_comes_back_when_it_costs_nothing_any_more() {
        let mut pace = started();
        seconds(&mut pace, 60, reads_alone);
        assert_eq!(pace.level, 1);
        seconds(&mut pace, 150, |_| 3000);
        assert_eq!(pace.level, 0);
    }
}
