//! The origin of a volume: its flushes, counted in epochs, and whether it fails.

use crate::effect::Errno;
use crate::machine::lost_changes::ClientChanges;
use crate::policies::fetch::read_cost::ReadCost;
use crate::units::Nanos;

/// A kind of the engine's own operations on an origin: each fails and works for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginWork {
    /// A destage, or a write that goes into the cache if it fails.
    Write,
    /// A flush.
    Flush,
    /// A look at a well-known place, at a clean stop.
    Look,
}

/// Time after which nothing is known any more of how fast an origin answers; of one that was slower, or failed, after
/// as long as that took. It may have been slow for what it had to do.
const PACE_HOLDS_NS: u64 = Nanos::SECOND;
/// Time after a client's read during which an origin is left to clients.
const READ_OF_LATE_NS: u64 = 100 * Nanos::MILLISECOND;
/// Flushes that nobody waits for take at most one part in so many of an origin's time.
const FLUSH_ONE_IN: u64 = 8;
/// But there is one in this time, however slow they are.
const FLUSH_REST_NS_MAX: u64 = 60 * Nanos::SECOND;
/// For want of a flush so many reads could not enter the cache, before it is asked whether one costs less than they did.
const REFUSED_FILLS_MIN: u64 = 256;
/// An arm takes longer to find a place, even from a full queue.
const SEARCH_NS: u64 = 2 * Nanos::MILLISECOND;
/// The time that a read which failed counts as.
const FAILED_READ_NS: u64 = 10 * Nanos::SECOND;
/// Clients flush it as long as the last time was no longer ago.
const FLUSHED_OFTEN_NS: u64 = 10 * Nanos::SECOND;

/// How fast an origin answers clients' reads.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// The time of a read, the last ones counting most, and when it was renewed.
    read: Option<(u64, Nanos)>,
    /// The last time that it answered, or that it was asked while it had nothing to answer.
    heard: Nanos,
}

/// The kinds of work that failed last time, and since when.
#[derive(Clone, Copy, Debug)]
struct Failing {
    since: Nanos,
    /// In the order of [`OriginWork`].
    kinds: [bool; 3],
    /// The failure has lasted so long, or is so certain, that requests do not wait for the origin.
    is_absent: bool,
}

impl Failing {
    fn kind(&mut self, work: OriginWork) -> &mut bool {
        let [write, flush, look] = &mut self.kinds;
        match work {
            OriginWork::Write => write,
            OriginWork::Flush => flush,
            OriginWork::Look => look,
        }
    }
}

/// The outcome of an attempt to flush an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushTry {
    /// No flush is wanted, or one is under way.
    Nothing,
    /// The origin failed recently: no flush before this time.
    After(Nanos),
    /// The flush that ends this epoch is to be issued.
    Begun(u64),
}

/// The origin of a volume.
///
/// Time on an origin is counted in epochs: each flush ends one. A write that completed in
/// epoch e is durable once the flush that ended e, or a later one, succeeded.
pub(crate) struct Origin {
    /// The epoch that runs now.
    pub epoch: u64,
    /// The last epoch whose end was a successful flush.
    pub flushed_epoch: u64,
    /// The epoch that the flush under way ends.
    pub flushing: Option<u64>,
    /// All epochs up to this one are to be flushed.
    flush_wanted: u64,
    /// The time at which the last flush began.
    flush_began: Nanos,
    /// How long the last flush took, and when it ended.
    flush_ns: u64,
    flush_ended: Nanos,
    /// The last epoch in which a client's write to the origin completed.
    pub client_epoch: u64,
    /// The last time that a client asked for a flush.
    pub last_client_flush: Option<Nanos>,
    /// Changes of clients, and whether they have to be told of losses.
    pub changes: ClientChanges,
    /// Reads of which nothing may enter the cache before a flush.
    refused_fills: u64,
    /// Client reads of the origin under way.
    pub client_reads: u32,
    /// Reads ahead of streams under way.
    pub reads_ahead: u32,
    /// The time of the last read for a client, or ahead of one.
    pub last_client_read: Nanos,
    pace: Pace,
    pub read_cost: ReadCost,
    /// The last time that it answered anything.
    last_answer: Nanos,
    /// The last time that a client used it, or a run woke it.
    pub last_used: Option<Nanos>,
    /// The kinds of the engine's own work that failed last time, if any did.
    failing: Option<Failing>,
    pub errors: u64,
    /// The engine tries no work of its own before this.
    pub backoff_until: Nanos,
    pub can_discard: bool,
}

impl Origin {
    /// An origin at the start: writes of the process before count as written in epoch 1, so that nothing read from
    /// the origin enters the cache as clean before a first flush (rule 2).
    pub fn new() -> Origin {
        Origin {
            epoch: 2,
            flushed_epoch: 0,
            flushing: None,
            flush_wanted: 1,
            flush_began: Nanos(0),
            flush_ns: 0,
            flush_ended: Nanos(0),
            client_epoch: 1,
            last_client_flush: None,
            changes: ClientChanges::default(),
            refused_fills: 0,
            client_reads: 0,
            reads_ahead: 0,
            last_client_read: Nanos(0),
            pace: Pace::default(),
            read_cost: ReadCost::default(),
            last_answer: Nanos(0),
            last_used: None,
            failing: None,
            errors: 0,
            backoff_until: Nanos(0),
            can_discard: false,
        }
    }

    /// Asks for a flush that ends `epoch` or a later one; [`Origin::begin_flush`] begins it.
    pub fn want_flush(&mut self, epoch: u64) {
        self.flush_wanted = self.flush_wanted.max(epoch);
    }

    /// Begins a flush, if one is wanted, none is under way and no back-off is running.
    pub fn begin_flush(&mut self, now: Nanos) -> FlushTry {
        if self.flush_wanted <= self.flushed_epoch || self.flushing.is_some() {
            return FlushTry::Nothing;
        }
        if now < self.backoff_until {
            return FlushTry::After(self.backoff_until);
        }
        let epoch = self.epoch;
        self.epoch += 1;
        self.flushing = Some(epoch);
        self.flush_began = now;
        FlushTry::Begun(epoch)
    }

    /// Notes the answer to the flush that ends `epoch`.
    pub fn end_flush(&mut self, epoch: u64, is_good: bool, now: Nanos) {
        assert!(self.flushing == Some(epoch), "an origin has one flush under way at a time");
        self.flushing = None;
        self.note_answer(now);
        self.flush_ns = now.since(self.flush_began);
        self.flush_ended = now;
        if is_good {
            self.flushed_epoch = epoch;
        }
    }

    /// Counts a read of which nothing may enter the cache before a flush; true if the flush is worth its while by now. Where no arm
    /// moves it never is: a write of part of a block waits longer if that is cached, and the reads hardly less.
    pub fn fill_is_refused(&mut self, now: Nanos) -> bool {
        if self.is_quick(now) {
            return false;
        }
        self.refused_fills += 1;
        let cost_ns = self.read_cost.request_ns().unwrap_or(0) * self.refused_fills;
        let is_due = self.refused_fills >= REFUSED_FILLS_MIN
            && cost_ns >= self.flush_ns * FLUSH_ONE_IN
            && self.is_rested(now);
        if is_due {
            self.refused_fills = 0;
        }
        is_due
    }

    /// Whether it may be flushed again for nobody: a disk that has to empty its memory does nothing else meanwhile.
    pub fn is_rested(&self, now: Nanos) -> bool {
        let rest_ns = (self.flush_ns * (FLUSH_ONE_IN - 1)).min(FLUSH_REST_NS_MAX);
        self.flushing.is_none() && now.since(self.flush_ended) >= rest_ns
    }

    /// Whether clients flush it now and then. One whose writes wait for room may not ask for some seconds.
    pub fn is_flushed_often(&self, now: Nanos) -> bool {
        self.last_client_flush.is_some_and(|last| now.since(last) < FLUSHED_OFTEN_NS)
    }

    /// Whether a flush is under way.
    pub fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    /// Whether it is the turn of clients who read from it: for as long as the last flush took, in which they could not.
    pub fn is_turn_of_readers(&self, now: Nanos) -> bool {
        self.was_read(now) && self.flushing.is_none() && now.since(self.flush_ended) < self.flush_ns
    }

    /// Notes that an operation for a client's request changed it, or may have; `is_first` of that request.
    pub fn note_change(&mut self, is_first: bool) {
        self.client_epoch = self.epoch;
        if is_first {
            self.changes.begin();
        }
    }

    /// Whether clients wrote to it after its last flush.
    pub fn is_unflushed(&self) -> bool {
        self.client_epoch > self.flushed_epoch
    }

    /// Notes that it answered.
    pub fn note_answer(&mut self, now: Nanos) {
        self.last_answer = now;
    }

    /// Notes that a client's read of it begins.
    pub fn begin_read(&mut self, now: Nanos) {
        if self.client_reads == 0 {
            self.pace.heard = now;
        }
        self.client_reads += 1;
        self.last_client_read = now;
    }

    /// Notes that a client's read of it ended, which was issued at `issued`, and how many blocks it brought, if it was good.
    pub fn end_read(&mut self, issued: Nanos, now: Nanos, brought: Option<u64>) {
        self.client_reads -= 1;
        if let Some(blocks) = brought {
            self.read_cost.learn(blocks, now.since(self.last_answer.max(issued)));
        }
        self.note_answer(now);
        self.pace.heard = now;
        let read_ns = if brought.is_some() { now.since(issued) } else { FAILED_READ_NS };
        let before_ns = self.read_ns(now).unwrap_or(read_ns);
        self.pace.read = Some((before_ns - before_ns / 4 + read_ns / 4, now));
    }

    /// Whether a client reads from it, or did a moment ago: then it is left to clients.
    pub fn was_read(&self, now: Nanos) -> bool {
        self.client_reads > 0 || now.since(self.last_client_read) < READ_OF_LATE_NS
    }

    fn read_ns(&self, now: Nanos) -> Option<u64> {
        let (read_ns, at) = self.pace.read?;
        (now.since(at) < PACE_HOLDS_NS.max(read_ns)).then_some(read_ns)
    }

    /// Whether it is likely to answer a read in less than that time. Of an origin of which nothing is known one read at
    /// a time finds out.
    pub fn answers_within(&self, limit_ns: u64, now: Nanos) -> bool {
        let is_silent = self.client_reads > 0 && now.since(self.pace.heard) >= limit_ns;
        let is_fast = self.read_ns(now).map_or(self.client_reads == 0, |read_ns| read_ns < limit_ns);
        is_fast && !is_silent && !self.is_failing()
    }

    /// Whether it finds a place in less time than an arm does.
    pub fn is_quick(&self, now: Nanos) -> bool {
        self.answers_within(SEARCH_NS, now) || self.read_cost.is_armless()
    }

    /// Whether that is known from what it answered, and not only likely.
    pub fn is_known_as_quick(&self, now: Nanos) -> bool {
        self.read_ns(now).is_some_and(|read_ns| read_ns < SEARCH_NS) || self.read_cost.is_armless()
    }

    /// Whether the engine's own work on it fails.
    pub fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// Whether it fails and requests do not wait for it.
    pub fn is_absent(&self) -> bool {
        self.failing.is_some_and(|failing| failing.is_absent)
    }

    /// Notes a failure of the engine's own work at `now`. Only a failure makes an origin absent, never time alone: an
    /// origin not tried again may work.
    pub fn note_failure(&mut self, work: OriginWork, errno: Errno, now: Nanos, absent_after_ns: u64) {
        let failing = self.failing.get_or_insert(Failing { since: now, kinds: [false; 3], is_absent: false });
        *failing.kind(work) = true;
        failing.is_absent |= errno == Errno::NODEV || now.since(failing.since) >= absent_after_ns;
    }

    /// Notes that work of a kind succeeded; true if the origin was failing and is not any more.
    pub fn note_success(&mut self, work: OriginWork) -> bool {
        let Some(failing) = &mut self.failing else { return false };
        *failing.kind(work) = false;
        let is_over = failing.kinds == [false; 3];
        if is_over {
            self.failing = None;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = Nanos::SECOND;

    fn fail(origin: &mut Origin, work: OriginWork, second: u64) {
        origin.note_failure(work, Errno::IO, Nanos(second * SECOND), 30 * SECOND);
    }

    #[test]
    fn only_a_failure_that_comes_late_makes_an_origin_absent() {
        let mut origin = Origin::new();
        assert!(!origin.is_failing());
        fail(&mut origin, OriginWork::Write, 5);
        fail(&mut origin, OriginWork::Write, 34);
        assert!(origin.is_failing() && !origin.is_absent());
        fail(&mut origin, OriginWork::Write, 35);
        assert!(origin.is_absent());
        assert!(origin.note_success(OriginWork::Write));
        fail(&mut origin, OriginWork::Write, 100);
        assert!(!origin.is_absent(), "the time begins anew");
    }

    #[test]
    fn flushes_for_nobody_take_an_eighth_of_the_time() {
        let mut origin = Origin::new();
        assert!(origin.is_rested(Nanos(0)));
        let mut flush = |began: u64, ended: u64| {
            origin.want_flush(origin.epoch);
            let FlushTry::Begun(epoch) = origin.begin_flush(Nanos(began * SECOND)) else {
                panic!("none began")
            };
            assert!(!origin.is_rested(Nanos(ended * SECOND)), "one is under way");
            origin.end_flush(epoch, true, Nanos(ended * SECOND));
            (0..100).find(|&rest| origin.is_rested(Nanos((ended + rest) * SECOND)))
        };
        assert_eq!(flush(100, 102), Some(14));
        assert_eq!(flush(200, 220), Some(60), "one a minute, however slow");
    }

    #[test]
    fn a_success_of_another_kind_heals_nothing() {
        let mut origin = Origin::new();
        fail(&mut origin, OriginWork::Write, 0);
        fail(&mut origin, OriginWork::Flush, 1);
        assert!(!origin.note_success(OriginWork::Write));
        fail(&mut origin, OriginWork::Flush, 30);
        assert!(origin.is_absent(), "writes that are never flushed are not home");
        assert!(origin.note_success(OriginWork::Flush));
        assert!(!origin.is_failing());
    }

    #[test]
    fn how_fast_it_answers_is_found_out_by_one_read() {
        const MS: u64 = Nanos::MILLISECOND;
        let mut origin = Origin::new();
        let at = |ms: u64| Nanos(ms * MS);
        assert!(origin.answers_within(50 * MS, at(0)));
        origin.begin_read(at(0));
        assert!(!origin.answers_within(50 * MS, at(1)), "the first read has not told yet");
        origin.end_read(at(0), at(10), Some(1));
        origin.begin_read(at(20));
        assert!(origin.answers_within(50 * MS, at(69)));
        assert!(!origin.answers_within(50 * MS, at(70)), "it is silent");
        origin.end_read(at(20), at(220), Some(1));
        assert!(!origin.answers_within(50 * MS, at(220)), "it takes 57 ms by now");
        assert!(origin.answers_within(50 * MS, at(1220)), "that is long ago");
        origin.begin_read(at(2000));
        origin.end_read(at(2000), at(2001), None);
        assert!(!origin.answers_within(SECOND, at(12_000)), "it failed");
        assert!(origin.answers_within(SECOND, at(12_001)));
    }

    #[test]
    fn an_origin_without_a_device_is_absent_at_once() {
        let mut origin = Origin::new();
        origin.note_failure(OriginWork::Write, Errno::NODEV, Nanos(1), 30 * SECOND);
        assert!(origin.is_absent());
    }
}
