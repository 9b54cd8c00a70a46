//! Measurements of a long run, in virtual time.

use super::workload::{Action, Answer};
use engine::units::Nanos;
use hdrhistogram::Histogram;
use serde::Serialize;

/// The longest latency that is told from longer ones: an hour.
const LATENCY_NS_MAX: u64 = 3600 * Nanos::SECOND;
/// Decimal digits to which a latency is kept.
const LATENCY_DIGITS: u8 = 3;

/// Requests of one kind.
#[derive(Clone, Debug)]
pub struct Answers {
    /// Those that were answered, errors included.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that were answered with an error.
    pub errors: u64,
    /// Their latencies in nanoseconds, to three digits.
    pub latency_ns: Histogram<u64>,
}

impl Answers {
    fn new() -> Answers {
        let latency_ns =
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS).expect("bounds that are allowed");
        Answers { count: 0, bytes: 0, errors: 0, latency_ns }
    }

    fn clear(&mut self) {
        (self.count, self.bytes, self.errors) = (0, 0, 0);
        self.latency_ns.reset();
    }

    fn record(&mut self, answer: &Answer) {
        self.count += 1;
        self.bytes += answer.demand.action.len_bytes();
        self.errors += u64::from(answer.result.is_err());
        self.latency_ns.saturating_record(answer.answered.since(answer.demand.due));
    }
}

/// Traffic to and from a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Reads.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes, of zeroes too.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Time in which any operation was under way.
    pub busy_ns: u64,
}

impl Traffic {
    /// Traffic after `before`.
    pub(super) fn since(&self, before: &Traffic) -> Traffic {
        Traffic {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
            flushes: self.flushes - before.flushes,
            discards: self.discards - before.discards,
            busy_ns: self.busy_ns - before.busy_ns,
        }
    }
}

/// Measurements since the run began, or since [`super::LongRun::begin_measuring`].
#[derive(Clone, Debug)]
pub struct Statistics {
    /// The time of that.
    pub began: Nanos,
    /// The virtual time now.
    pub now: Nanos,
    /// Reads.
    pub reads: Answers,
    /// Writes.
    pub writes: Answers,
    /// Flushes.
    pub flushes: Answers,
    /// Discards and write-zeroes.
    pub trims: Answers,
    /// The cache device.
    pub cache: Traffic,
    /// The origins, in the order of the volumes.
    pub origins: Vec<Traffic>,
    /// Blocks read that were compared with the newest data.
    pub verified_blocks: u64,
    /// Blocks read that could not be: a change overlapped the read, or the range was not whole blocks.
    pub unverified_blocks: u64,
}

impl Statistics {
    pub(super) fn new(origins: usize) -> Statistics {
        Statistics {
            began: Nanos(0),
            now: Nanos(0),
            reads: Answers::new(),
            writes: Answers::new(),
            flushes: Answers::new(),
            trims: Answers::new(),
            cache: Traffic::default(),
            origins: vec![Traffic::default(); origins],
            verified_blocks: 0,
            unverified_blocks: 0,
        }
    }

    pub(super) fn clear(&mut self, now: Nanos) {
        (self.began, self.now) = (now, now);
        for answers in [&mut self.reads, &mut self.writes, &mut self.flushes, &mut self.trims] {
            answers.clear();
        }
    }

    /// The same with what the devices and the ledger did after `before`.
    pub(super) fn since(mut self, before: &Statistics) -> Statistics {
        self.cache = self.cache.since(&before.cache);
        for (now, before) in self.origins.iter_mut().zip(&before.origins) {
            *now = now.since(before);
        }
        self.verified_blocks -= before.verified_blocks;
        self.unverified_blocks -= before.unverified_blocks;
        self
    }

    pub(super) fn record(&mut self, answer: &Answer) {
        let answers = match answer.demand.action {
            Action::Read(_) => &mut self.reads,
            Action::Write { .. } => &mut self.writes,
            Action::Flush => &mut self.flushes,
            Action::Discard(_) | Action::WriteZeroes(_) => &mut self.trims,
        };
        answers.record(answer);
    }

    /// Virtual nanoseconds that it took.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.now.since(self.began)
    }

    /// Requests answered in all.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.reads.count + self.writes.count + self.flushes.count + self.trims.count
    }

    /// How many of `count` there were in a second of virtual time; 0 if no time passed.
    #[must_use]
    pub fn per_second(&self, count: u64) -> u64 {
        let product = u128::from(count) * u128::from(Nanos::SECOND);
        let rate = product.checked_div(u128::from(self.elapsed_ns())).unwrap_or(0);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}
