//! The cost of reads in time of an origin: of a request, and of the blocks beyond the first of a long one.
//!
//! An arm that has found its place reads a quarter of a mebibyte in passing. A disk without an arm, or one behind a network that
//! counts bytes, serves many requests in that time. So how far it pays to read beside a miss is a matter of the origin, and of how
//! much it has to do: from a full queue a request costs less, and blocks as much as ever. A read costs the time since the origin
//! answered the one before it, or since it was asked for if there was none.

use super::neighbourhood::WIDTH_BLOCKS_MAX;
use crate::units::Nanos;

/// A read of up to so many blocks is short, and of so many long.
const SHORT_BLOCKS_MAX: u64 = 8;
const LONG_BLOCKS_MIN: u64 = 16;
/// Reads of each kind from which something is concluded, and which a mean is of at the most; long ones of full width.
const EVIDENCE_READS: u64 = 16;
const SHORT_READS_MAX: u64 = 16;
const LONG_READS_MAX: u64 = 64;
/// A read costs no more than this, and than so many short ones: one that costs more waited for something else.
const COST_NS_MAX: u64 = Nanos::SECOND;
const OUTLIER_TIMES: i64 = 16;
/// One in so many short misses reads what was asked for, to learn what that costs; and until that is known.
const SHORT_EVERY: u32 = 251;
const SHORT_EVERY_AT_FIRST: u32 = 3;
/// The blocks of a request's cost below which an origin has no arm that passes by the others.
const ARM_BLOCKS_MIN: u64 = WIDTH_BLOCKS_MAX / 2;

/// A mean, in nanoseconds, in which what is older counts less.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    ns: i64,
    weight: u64,
}

impl Mean {
    fn add(&mut self, ns: i64, weight: u64, weight_max: u64) {
        self.weight = self.weight.saturating_add(weight);
        let [part, whole] = [weight, self.weight.min(weight_max)].map(u64::cast_signed);
        self.ns += (ns - self.ns) * part / whole;
    }
}

/// The costs of the reads of one volume's origin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadCost {
    short: Mean,
    /// Of [`WIDTH_BLOCKS_MAX`] blocks beyond the first one. A few reads may say that they cost less than nothing.
    width: Mean,
}

impl ReadCost {
    /// Takes in the cost of a read of so many blocks.
    pub fn learn(&mut self, blocks: u64, cost_ns: u64) {
        let mut cost_ns = cost_ns.min(COST_NS_MAX).cast_signed();
        if self.knows_short() {
            cost_ns = cost_ns.min(self.short.ns.max(1) * OUTLIER_TIMES);
        }
        if Self::is_short(blocks) {
            self.short.add(cost_ns, 1, SHORT_READS_MAX);
        } else if blocks >= LONG_BLOCKS_MIN && self.knows_short() {
            let beyond = (blocks - 1).min(WIDTH_BLOCKS_MAX);
            let [width, part] = [WIDTH_BLOCKS_MAX, beyond].map(u64::cast_signed);
            let of_width = (cost_ns - self.short.ns) * width / part;
            self.width.add(of_width, beyond, LONG_READS_MAX * WIDTH_BLOCKS_MAX);
        }
    }

    fn knows_short(&self) -> bool {
        self.short.weight >= EVIDENCE_READS
    }

    /// The cost of a short read in nanoseconds, if it is known.
    pub fn request_ns(&self) -> Option<u64> {
        self.knows_short().then(|| self.short.ns.max(0).unsigned_abs())
    }

    /// Whether blocks that are read in passing cost a good part of what requests for them would.
    pub fn is_armless(&self) -> bool {
        self.request_in_blocks() < ARM_BLOCKS_MIN
    }

    /// Whether what a read of so many blocks costs tells the cost of a request.
    pub fn is_short(blocks: u64) -> bool {
        blocks <= SHORT_BLOCKS_MAX
    }

    /// One in so many misses is to be short, for long ones to be compared with.
    pub fn short_every(&self) -> u32 {
        if self.knows_short() { SHORT_EVERY } else { SHORT_EVERY_AT_FIRST }
    }

    /// The number of blocks that cost as much as a request: of an origin of which nothing is known, and of one where they cost less,
    /// [`WIDTH_BLOCKS_MAX`].
    pub fn request_in_blocks(&self) -> u64 {
        let is_known = self.width.weight >= EVIDENCE_READS * WIDTH_BLOCKS_MAX;
        if !is_known || self.width.ns <= 0 {
            return WIDTH_BLOCKS_MAX;
        }
        let blocks = self.short.ns.max(0).unsigned_abs() * WIDTH_BLOCKS_MAX / self.width.ns.unsigned_abs();
        blocks.clamp(1, WIDTH_BLOCKS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    /// The costs learned from so many reads, short and long in turns: each costs so much, and each 64 blocks so much more.
    fn learned(reads: u64, request_us: u64, width_us: u64) -> ReadCost {
        let mut cost = ReadCost::default();
        for number in 0..reads {
            let blocks = if number % 2 == 0 { 1 } else { 64 };
            cost.learn(blocks, request_us * US + (blocks - 1) * width_us * US / 64);
        }
        cost
    }

    #[test]
    fn a_request_costs_as_much_as_its_origin_has_it() {
        let blocks = |request_us, width_us| learned(200, request_us, width_us).request_in_blocks();
        assert_eq!(blocks(8000, 1700), 64, "an arm, one read at a time");
        assert_eq!(blocks(2000, 1700), 64, "and from a full queue");
        assert_eq!(blocks(333, 2097), 10, "a network disk");
        assert_eq!(blocks(3, 82), 4, "flash with a full queue, as far as it counts");
        assert_eq!(blocks(0, 100), 1);
        assert_eq!(blocks(100, 0), 64);
    }

    #[test]
    fn little_is_concluded_from_little() {
        assert_eq!(
            learned(40, 10, 1000).request_in_blocks(),
            64,
            "there was nothing to compare the first long ones with"
        );
        assert_eq!(learned(66, 10, 1000).request_in_blocks(), 4);
        let mut long = ReadCost::default();
        (0..1000).for_each(|_| long.learn(64, US));
        assert_eq!(long.request_in_blocks(), 64);
        assert_eq!(
            (long.short_every(), learned(32, 1, 1).short_every()),
            (SHORT_EVERY_AT_FIRST, SHORT_EVERY)
        );
    }

    #[test]
    fn it_follows_the_load() {
        let mut cost = learned(200, 8000, 1700);
        (0..100).for_each(|_| cost.learn(1, 100 * US));
        assert_eq!(cost.request_in_blocks(), 4, "requests cost less than they did");
    }

    #[test]
    fn one_that_waited_for_something_else_says_little() {
        let mut cost = learned(1000, 8000, 1700);
        cost.learn(64, 500_000 * US);
        assert_eq!(cost.request_in_blocks(), 64);
        cost.learn(64, u64::MAX);
        cost.learn(1, u64::MAX);
        assert!(cost.request_in_blocks() >= 32);
    }
}
