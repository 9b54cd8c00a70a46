//! GroupCommit: how long a write waits for others, so that they share one header on the cache device.
//!
//! A batch costs a block for its header: if each write went alone, the device would write twice as much. So what
//! is pending may wait for a number of writes, half of what clients are seen to keep under way: then the other
//! half comes meanwhile, and nobody is held up.
//!
//! While batches are in flight, as many as are waited for make another one, or the device would do nothing while a
//! batch is answered and the next one gathers; the more of them are in flight, the longer the next one has to be.
//! Fewer wait until one of those has ended: they share its successor's header, and wait for nobody.
//!
//! Some doors bring all that clients have under way at once. If one batch took all of that, clients and the device would
//! take turns for ever: so half of it goes first, and the rest follows.
//!
//! How many clients keep under way is seen while batches are in flight. A fast device answers before they have sent
//! all, so it is tried out, too: now and then a batch waits for more. A client that keeps one write under way is kept
//! waiting by such a trial alone, and those become rare.

use crate::number::{to_u32, wide};
use crate::units::Nanos;

/// A batch waits for this many writes at the most: its header then is a sixteenth.
const WRITES_MAX: usize = 16;
/// A batch of this many blocks waits for no more: their header is a sixty-fourth.
const BLOCKS_ENOUGH: u64 = 64;
/// Writes of the smallest burst of which half goes first. It has twice as many as are waited for, too.
const BURST_MIN: usize = 16;
/// A trial waits for so many times what the batches before did; so many under way are known without one.
const TRIAL: usize = 4;
/// A wait that was in vain counts so many that were not, and from so much on it is believed. Clients that were held up
/// hardly are twice in a row.
const VAIN_WEIGHT: u8 = 8;
const VAIN_ENOUGH: u8 = 16;
/// Batches that have to show that clients keep a little more under way than was known.
const DEEPER_BATCHES: u8 = 8;
/// Batches between trials: after one that succeeded, and after many that did not.
const PAUSE_MIN: u32 = 4;
const PAUSE_MAX: u32 = 1024;
/// The mean of the time between writes follows the last so many.
const GAP_WEIGHT: u64 = 16;
/// No number of writes is enough for what waits for another reason.
const HELD: usize = usize::MAX;
/// A longer time between writes counts as this: clients that were idle are no measure.
const GAP_NS_MAX: u64 = 200_000;

/// Decides when what is pending goes.
#[derive(Debug)]
pub(in crate::store::log) struct GroupCommit {
    /// Writes that a batch waits for.
    wanted: usize,
    /// The writes that the batch that gathers now waits for, and the end of its wait.
    gathering: Option<Gathering>,
    /// The most writes that were seen under way since the last batch went.
    peak: usize,
    deeper: Deeper,
    /// Waits in vain of late, weighed against the others; those of trials apart.
    vain: u8,
    vain_trials: u8,
    /// The mean time between writes.
    gap_ns: u64,
    last_arrival: Nanos,
    /// Batches until the next trial.
    until_trial: u32,
    /// Batches between trials.
    pause: u32,
}

/// Appends that no batch has taken yet.
pub(super) struct Pending {
    pub writes: usize,
    pub blocks: u64,
}

/// Batches one after the other that had more under way than twice what is wanted, and the least of it.
#[derive(Debug, Default)]
struct Deeper {
    batches: u8,
    least: usize,
}

#[derive(Debug)]
struct Gathering {
    wanted: usize,
    until: Nanos,
}

impl Default for GroupCommit {
    fn default() -> GroupCommit {
        GroupCommit {
            wanted: 1,
            gathering: None,
            peak: 0,
            deeper: Deeper::default(),
            vain: 0,
            vain_trials: 0,
            gap_ns: GAP_NS_MAX,
            last_arrival: Nanos(0),
            until_trial: PAUSE_MIN,
            pause: PAUSE_MIN,
        }
    }
}

impl GroupCommit {
    /// A client's write came.
    pub(in crate::store::log) fn came(&mut self, now: Nanos) {
        let gap_ns = now.since(self.last_arrival).min(GAP_NS_MAX);
        self.last_arrival = now;
        self.gap_ns = (self.gap_ns * (GAP_WEIGHT - 1) + gap_ns) / GAP_WEIGHT;
    }

    /// When the last of them came.
    pub(super) fn last_arrival(&self) -> Nanos {
        self.last_arrival
    }

    /// Of so many writes that go now, while no batch is in flight, those that the first batch takes. The others must not have
    /// to wait for it.
    pub(super) fn first_of(&self, writes: usize, wait_ns_max: u64) -> u32 {
        let is_burst = writes >= BURST_MIN && writes >= self.wanted * 2 && wait_ns_max > 0;
        if is_burst { to_u32(wide(writes.div_ceil(2))) } else { u32::MAX }
    }

    /// When to ask again whether a batch may go, if nothing else happens before.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.gathering.as_ref().map(|gathering| gathering.until)
    }

    /// Whether so many pending writes may go while batches are in flight, with so many writes in them. Where none waits for
    /// company, all that is pending follows when they have ended.
    #[inline]
    pub(super) fn may_follow(
        &mut self,
        pending: usize,
        batches: usize,
        in_flight: usize,
        wait_ns_max: u64,
    ) -> bool {
        if wait_ns_max == 0 {
            return false;
        }
        self.peak = self.peak.max(pending + in_flight);
        let is_trial = self.until_trial == 0;
        let wanted = if is_trial { self.wanted * TRIAL } else { self.wanted };
        let may_go = pending >= wanted * batches;
        if may_go {
            self.goes(is_trial, true);
        }
        may_go
    }

    /// A batch goes, with the writes that it waited for or without.
    fn goes(&mut self, is_trial: bool, is_success: bool) {
        if is_trial {
            let teaches = is_success && self.wanted < WRITES_MAX;
            self.pause = if teaches { PAUSE_MIN } else { (self.pause * 2).min(PAUSE_MAX) };
        }
        self.learn_depth();
        self.until_trial = if is_trial { self.pause } else { self.until_trial.saturating_sub(1) };
    }

    /// Wants half of what clients were seen to have under way, if that is more: of far more soon, of a little more when
    /// several batches have shown it.
    fn learn_depth(&mut self) {
        let under_way = core::mem::take(&mut self.peak);
        if under_way >= self.wanted * TRIAL {
            self.wanted = (self.wanted * 2).min(WRITES_MAX);
            self.deeper = Deeper::default();
        } else if under_way / 2 > self.wanted && self.wanted < WRITES_MAX {
            let Deeper { batches, least } = &mut self.deeper;
            *least = if *batches == 0 { under_way } else { under_way.min(*least) };
            *batches += 1;
            if *batches == DEEPER_BATCHES {
                self.wanted = (*least / 2).min(WRITES_MAX);
                *batches = 0;
            }
        } else {
            self.deeper = Deeper::default();
        }
    }

    /// Whether what is pending may go now, while no batch is in flight; it waits for `wait_ns_max` at the most.
    pub(super) fn may_go(&mut self, now: Nanos, pending: Pending, wait_ns_max: u64) -> bool {
        let Pending { writes, blocks } = pending;
        if wait_ns_max == 0 {
            return true;
        }
        let gathering = match &self.gathering {
            Some(gathering) => gathering,
            // All that is waited for is there already.
            None if self.until_trial > 0 && writes >= self.wanted => {
                self.vain = self.vain.saturating_sub(1);
                self.peak = self.peak.max(writes);
                self.goes(false, true);
                return true;
            }
            None => {
                let is_trial = self.until_trial == 0;
                let wanted = if is_trial { self.wanted * TRIAL } else { self.wanted };
                let patience_ns = (wide(wanted) * self.gap_ns * 3 / 2).min(wait_ns_max);
                self.gathering.insert(Gathering { wanted, until: now.plus(patience_ns) })
            }
        };
        let is_trial = gathering.wanted > self.wanted;
        let is_success = writes >= gathering.wanted;
        if is_success {
            self.vain = self.vain.saturating_sub(1);
            self.peak = self.peak.max(writes);
        } else if now >= gathering.until {
            // All that clients have under way is here, and they wait for it; or they were held up.
            self.waited_in_vain(writes, is_trial);
        } else if is_trial || blocks < BLOCKS_ENOUGH {
            return false;
        }
        self.goes(is_trial, is_success);
        self.gathering = None;
        true
    }

    /// A batch goes with fewer writes than it waited for.
    fn waited_in_vain(&mut self, writes: usize, is_trial: bool) {
        let vain = if is_trial { &mut self.vain_trials } else { &mut self.vain };
        if writes >= self.wanted * 2 {
            self.wanted = (writes / 2).min(WRITES_MAX);
            *vain = 0;
            return;
        }
        *vain += VAIN_WEIGHT;
        if *vain >= VAIN_ENOUGH {
            self.wanted = (writes / 2).max(self.wanted / 4).max(1);
            *vain = 0;
        }
    }

    /// No write waits for others: there is none, or it goes or stays for another reason.
    #[inline]
    pub(super) fn clear_deadline(&mut self) {
        self.gathering = None;
    }

    /// Has what is pending stay for another reason until then, or for none any more.
    pub(super) fn hold(&mut self, until: Option<Nanos>) {
        if let Some(until) = until {
            self.gathering = Some(Gathering { wanted: HELD, until });
        } else if self.gathering.as_ref().is_some_and(|gathering| gathering.wanted == HELD) {
            self.gathering = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT_NS_MAX: u64 = 500_000;
    /// A client sends a write each so many nanoseconds while it may.
    const SEND_NS: u64 = 6_000;
    /// A batch takes so long until its writes are acknowledged.
    const BATCH_NS: u64 = 8_000;

    struct Outcome {
        batches: usize,
        took_ns: u64,
    }

    /// A client that keeps `depth` writes of `blocks` under way until `writes` are acknowledged.
    fn closed_loop(group: &mut GroupCommit, depth: usize, blocks: u64, writes: usize) -> Outcome {
        held_up_loop(group, depth, blocks, writes, usize::MAX)
    }

    /// The same; each time it has sent `stall_every` writes, the client is held up for a millisecond.
    fn held_up_loop(
        group: &mut GroupCommit,
        depth: usize,
        blocks: u64,
        writes: usize,
        stall_every: usize,
    ) -> Outcome {
        let mut sent = 0;
        let (mut now, mut next_send) = (1_000_000_000, 1_000_000_000);
        let (mut pending, mut credits, mut done, mut batches) = (0, depth, 0, 0);
        let start = now;
        while done < writes {
            while credits > 0 && next_send <= now {
                group.came(Nanos(next_send));
                (pending, credits) = (pending + 1, credits - 1);
                sent += 1;
                next_send += if sent % stall_every == 0 { 1_000_000 } else { SEND_NS };
            }
            let waiting = Pending { writes: pending, blocks: wide(pending) * blocks };
            if pending > 0 && group.may_go(Nanos(now), waiting, WAIT_NS_MAX) {
                now += BATCH_NS;
                batches += 1;
                done += pending;
                if credits == 0 {
                    next_send = next_send.max(now + SEND_NS);
                }
                (pending, credits) = (0, credits + pending);
                continue;
            }
            let deadline = group.deadline().filter(|_| pending > 0).map(|until| until.0);
            let send = (credits > 0).then_some(next_send);
            now = [deadline, send].into_iter().flatten().min().expect("one of both comes").max(now);
        }
        Outcome { batches, took_ns: now - start }
    }

    #[test]
    fn many_writes_under_way_share_headers_and_lose_no_time() {
        let outcome = closed_loop(&mut GroupCommit::default(), 32, 1, 100_000);
        assert!(outcome.batches * 14 < 100_000, "{} batches", outcome.batches);
        // Sending and the device's work take turns here: a sixteenth of the device's time for each write.
        let least_ns = 100_000 * (SEND_NS + BATCH_NS / 16);
        assert!(outcome.took_ns < least_ns * 102 / 100, "{} of {least_ns} ns", outcome.took_ns);
    }

    #[test]
    fn of_a_burst_half_goes_first() {
        let mut group = GroupCommit::default();
        closed_loop(&mut group, 32, 1, 10_000);
        assert_eq!([32, 33, 64].map(|writes| group.first_of(writes, WAIT_NS_MAX)), [16, 17, 32]);
        assert_eq!(group.first_of(31, WAIT_NS_MAX), u32::MAX, "the rest would be no batch of its own");
        assert_eq!(group.first_of(32, 0), u32::MAX, "without group commit the rest would wait");
        assert_eq!(GroupCommit::default().first_of(15, WAIT_NS_MAX), u32::MAX, "headers would cost too much");
    }

    #[test]
    fn a_client_that_is_held_up_now_and_then_shares_headers_all_the_same() {
        let outcome = held_up_loop(&mut GroupCommit::default(), 32, 1, 100_000, 331);
        assert!(outcome.batches * 14 < 100_000, "{} batches", outcome.batches);
    }

    #[test]
    fn depths_between_powers_of_two_are_found() {
        let outcome = closed_loop(&mut GroupCommit::default(), 24, 1, 100_000);
        assert!((7_900..8_700).contains(&outcome.batches), "{} batches", outcome.batches);
    }

    #[test]
    fn a_few_writes_under_way_wait_for_half_of_them() {
        let outcome = closed_loop(&mut GroupCommit::default(), 8, 1, 100_000);
        assert!((22_000..27_000).contains(&outcome.batches), "{} batches", outcome.batches);
    }

    #[test]
    fn one_write_under_way_hardly_waits() {
        let outcome = closed_loop(&mut GroupCommit::default(), 1, 1, 100_000);
        assert_eq!(outcome.batches, 100_000);
        let least_ns = 100_000 * (SEND_NS + BATCH_NS);
        assert!(outcome.took_ns < least_ns * 101 / 100, "{} of {least_ns} ns", outcome.took_ns);
    }

    #[test]
    fn who_keeps_no_more_under_way_than_was_wanted_waits_for_half_of_it_again() {
        let mut group = GroupCommit::default();
        closed_loop(&mut group, 32, 1, 10_000);
        closed_loop(&mut group, 16, 1, 100_000);
        let outcome = closed_loop(&mut group, 16, 1, 100_000);
        assert!((12_000..13_000).contains(&outcome.batches), "{} batches", outcome.batches);
    }

    #[test]
    fn the_more_are_in_flight_the_longer_is_the_next_batch() {
        let mut group = GroupCommit { wanted: 4, until_trial: 100, ..GroupCommit::default() };
        let mut follows = |pending, batches| group.may_follow(pending, batches, 4 * batches, WAIT_NS_MAX);
        assert!(!follows(3, 1) && follows(4, 1));
        assert!(!follows(7, 2) && follows(8, 2));
    }

    #[test]
    fn long_writes_are_committed_in_twos() {
        let outcome = closed_loop(&mut GroupCommit::default(), 8, 32, 10_000);
        assert!((4_900..5_300).contains(&outcome.batches), "{} batches", outcome.batches);
    }

    #[test]
    fn who_was_busy_and_works_alone_now_waits_a_few_times_only() {
        let mut group = GroupCommit::default();
        closed_loop(&mut group, 32, 1, 10_000);
        let outcome = closed_loop(&mut group, 1, 1, 1_000);
        assert!(outcome.took_ns < 1_000 * (SEND_NS + BATCH_NS) + 10 * WAIT_NS_MAX, "{}", outcome.took_ns);
    }

    #[test]
    fn what_is_held_asks_again_when_it_may_go() {
        let mut group = GroupCommit::default();
        group.hold(Some(Nanos(70)));
        assert_eq!(group.deadline(), Some(Nanos(70)), "nothing else may happen until then");
        group.hold(Some(Nanos(90)));
        assert_eq!(group.deadline(), Some(Nanos(90)), "more was sent meanwhile");
        group.hold(None);
        assert_eq!(group.deadline(), None, "or the driver would wake for it for ever");
        let mut group = GroupCommit { wanted: 4, ..GroupCommit::default() };
        assert!(!group.may_go(Nanos(0), Pending { writes: 1, blocks: 1 }, WAIT_NS_MAX));
        let company = group.deadline();
        group.hold(None);
        assert!(company.is_some() && group.deadline() == company, "a wait for others goes on");
    }

    #[test]
    fn nobody_waits_where_waiting_is_off() {
        let mut group = GroupCommit::default();
        for writes in 1..100 {
            group.came(Nanos(wide(writes)));
            assert!(group.may_go(Nanos(wide(writes)), Pending { writes, blocks: 1 }, 0));
            assert_eq!(group.deadline(), None);
        }
    }
}
