//! First reads that enter a full cache although they might be the last.
//!
//! A cache that asks every block for a second read is a round late when clients turn to something else. So two kinds of
//! first reads are tried:
//!
//! - Short ones, which cost a disk the most for each block, while they are few: an allowance of a sixteenth of the cache,
//!   which grows by one block for 64 that were asked about. A flood of them has to prove its worth, a trickle has not.
//! - All, when nobody reads what the cache holds: after a large copy what leaves is worth no more than what comes. But a
//!   load that jumps about hits nothing either, and should not wear the device. So there is one such block for each hit
//!   that there was before, and for each block that came in a long write: of a copy, what is read is worth as much as what
//!   is written.

/// The allowance is one in so many blocks of the cache.
const ALLOWANCE_ONE_IN: u64 = 16;
/// It grows by one block for so many that were asked about.
const GROWS_ONE_IN: u64 = 64;
/// The longest read that is short, in blocks.
const SHORT_BLOCKS_MAX: u64 = 16;
/// Nobody reads what a cache holds in which fewer than one in so many of the oldest blocks were hit.
const READ_ONE_IN: u64 = 32;
/// Beyond so many segments, what left earlier counts half.
const SEGMENTS_REMEMBERED: u64 = 16;

/// The state.
#[derive(Debug)]
pub(crate) struct Trials {
    cache_blocks: u64,
    /// Short first reads that may enter, in parts of a block.
    short_parts: u64,
    /// Blocks that the ring came round to of late: those that nobody had hit, and those that were hit and stayed.
    left_blocks: u64,
    stayed_blocks: u64,
    /// Hits and blocks of long writes so far, and first reads that they are good for.
    evidence: u64,
    earned_blocks: u64,
}

impl Trials {
    /// No read was seen yet of a cache of so many blocks.
    pub fn new(cache_blocks: u64) -> Trials {
        Trials {
            cache_blocks,
            short_parts: Trials::short_parts_max(cache_blocks),
            left_blocks: 0,
            stayed_blocks: 0,
            evidence: 0,
            earned_blocks: 0,
        }
    }

    fn short_parts_max(cache_blocks: u64) -> u64 {
        cache_blocks * GROWS_ONE_IN / ALLOWANCE_ONE_IN
    }

    /// Notes that admission is about to be asked about so many blocks, after so many hits and blocks of long writes.
    pub fn asked(&mut self, blocks: u64, evidence: u64) {
        self.short_parts = (self.short_parts + blocks).min(Trials::short_parts_max(self.cache_blocks));
        let earned = self.earned_blocks + evidence.saturating_sub(self.evidence);
        self.earned_blocks = earned.min(self.cache_blocks);
        self.evidence = evidence;
    }

    /// Whether a block that was read for the first time, by a read of so many, may enter; if so, that is taken off.
    pub fn may_enter(&mut self, read_blocks: u64) -> bool {
        if read_blocks <= SHORT_BLOCKS_MAX && self.short_parts >= GROWS_ONE_IN {
            self.short_parts -= GROWS_ONE_IN;
            return true;
        }
        if self.is_read() || self.earned_blocks == 0 {
            return false;
        }
        self.earned_blocks -= 1;
        true
    }

    /// Whether clients read what the cache holds.
    pub fn is_read(&self) -> bool {
        self.stayed_blocks * READ_ONE_IN >= self.left_blocks + self.stayed_blocks
    }

    /// The oldest segment was emptied: so many blocks nobody had hit, and so many had been hit and stay elsewhere.
    pub fn tail_left(&mut self, left_blocks: u64, stayed_blocks: u64, segment_blocks: u32) {
        self.left_blocks += left_blocks;
        self.stayed_blocks += stayed_blocks;
        if self.left_blocks + self.stayed_blocks > SEGMENTS_REMEMBERED * u64::from(segment_blocks) {
            (self.left_blocks, self.stayed_blocks) = (self.left_blocks / 2, self.stayed_blocks / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(trials: &mut Trials, reads: u64, blocks: u64) -> u64 {
        let mut entered = 0;
        for _ in 0..reads {
            trials.asked(blocks, 0);
            entered += (0..blocks).filter(|_| trials.may_enter(blocks)).count() as u64;
        }
        entered
    }

    #[test]
    fn a_trickle_of_short_reads_enters_and_a_flood_does_not() {
        let mut trials = Trials::new(16_000);
        assert_eq!(entered(&mut trials, 250, 4), 1000, "a sixteenth of the cache at once");
        assert!((100..=120).contains(&entered(&mut trials, 1600, 4)), "then one in 64");
        assert_eq!(entered(&mut trials, 1000, 17), 0, "long reads are no trickle");
        trials.asked(64 * 500, 0);
        assert_eq!(entered(&mut trials, 100, 1), 100, "time gives back what was used");
    }

    #[test]
    fn of_a_copy_as_much_enters_as_is_written() {
        let mut trials = Trials::new(16_000);
        trials.tail_left(10_000, 0, 1024);
        for written_blocks in [1000, 2000, 3000] {
            trials.asked(0, written_blocks);
            assert_eq!((0..1500).filter(|_| trials.may_enter(64)).count(), 1000, "{written_blocks}");
        }
        trials.asked(0, 1 << 20);
        assert_eq!((0..1 << 20).filter(|_| trials.may_enter(64)).count(), 16_000, "a cache at the most");
    }

    #[test]
    fn long_reads_enter_where_nobody_reads_the_cache_but_did() {
        let mut trials = Trials::new(16_000);
        trials.tail_left(10_000, 0, 1024);
        assert_eq!(entered(&mut trials, 10, 32), 0, "nobody ever hit");
        trials.asked(0, 100);
        assert_eq!((0..200).filter(|_| trials.may_enter(32)).count(), 100, "one for each hit");
        trials.asked(0, 200);
        (0..16).for_each(|_| trials.tail_left(900, 100, 1024));
        assert!(!trials.may_enter(32), "what is cached is read");
    }
}
