//! How far a miss reads beyond what was asked for, learned from what became of that.
//!
//! A hard disk reads a quarter of a mebibyte in less time than it takes to find a place. So blocks beside those that were
//! asked for are worth reading even if few of them are asked for later; but in a load that jumps about none is. There are
//! two rings around what was asked for: the aligned 64 KiB that it lies in, and the aligned 256 KiB around those. Each ring
//! is read as long as it saves enough requests before its blocks are dropped, for what those cost the origin ([`ReadCost`]); the
//! outer one only with the inner one. Of the misses that would read less, a few read one ring more, to learn.
//!
//! It is requests that cost a disk time, not blocks: long ones that follow each other save few, however many blocks they use.

use super::read_cost::ReadCost;

/// The sizes of the rings, in blocks.
const RING_BLOCKS: [u64; 2] = [16, 64];
/// The widest that is read.
pub(crate) const WIDTH_BLOCKS_MAX: u64 = RING_BLOCKS[1];
/// Parts of a request in which what is saved is counted.
const REQUEST_PARTS: u64 = 64;
/// A block that is asked for while it is being read counts so much less. The request would have been in the disk's queue beside
/// the one that reads it, where the way to it is short.
const AWAITED_ONE_IN: u64 = 4;
/// A ring is believed to pay until so many blocks of it were dropped unused.
const BELIEF_BLOCKS: u64 = 512;
/// Beyond so many blocks older outcomes count half.
const OUTCOME_BLOCKS_MAX: u64 = 8192;
/// One in so many misses reads one ring more than pays; and of an origin that is quick, where more bytes cost more time.
const TRIAL_EVERY: u32 = 32;
const TRIAL_EVERY_IN_QUICK: u32 = 512;

/// The outcome of reading blocks of a ring.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    dropped: u64,
    /// Saved by those, and by those that are kept: what a block saves is learned at once, not when it is dropped.
    saved_parts: u64,
}

impl Outcome {
    const BELIEF: Outcome =
        Outcome { dropped: BELIEF_BLOCKS, saved_parts: 2 * BELIEF_BLOCKS * REQUEST_PARTS / WIDTH_BLOCKS_MAX };

    /// Whether it saves a request for each so many of its blocks.
    fn pays(self, request_in_blocks: u64) -> bool {
        self.saved_parts * request_in_blocks >= self.dropped * REQUEST_PARTS
    }

    fn drop(&mut self, blocks: u64) {
        self.dropped += blocks;
        if self.dropped > OUTCOME_BLOCKS_MAX {
            (self.dropped, self.saved_parts) = (self.dropped / 2, self.saved_parts / 2);
        }
    }
}

/// The saving by a block of a request, in parts of a request: of one with n blocks an nth, and less if it is awaited.
pub(crate) fn saved_parts(request_blocks: u64, is_awaited: bool) -> u64 {
    let parts = REQUEST_PARTS / request_blocks.clamp(1, REQUEST_PARTS);
    if is_awaited { parts / AWAITED_ONE_IN } else { parts }
}

/// The lessons of one volume's reads.
#[derive(Clone, Debug)]
pub(crate) struct Neighbourhood {
    rings: [Outcome; 2],
    misses: u32,
}

impl Default for Neighbourhood {
    fn default() -> Neighbourhood {
        Neighbourhood { rings: [Outcome::BELIEF; 2], misses: 0 }
    }
}

impl Neighbourhood {
    /// The size of the aligned range that the next miss reads, in blocks; 1 where it reads what was asked for.
    pub fn next_blocks(&mut self, asked_blocks: u64, cost: &ReadCost, is_quick: bool) -> u64 {
        self.misses = self.misses.wrapping_add(1);
        if ReadCost::is_short(asked_blocks) && self.misses.is_multiple_of(cost.short_every()) {
            return 1;
        }
        let request_in_blocks = cost.request_in_blocks();
        let paying = self.rings.iter().take_while(|ring| ring.pays(request_in_blocks)).count();
        let trial_every = if is_quick { TRIAL_EVERY_IN_QUICK } else { TRIAL_EVERY };
        let trial = usize::from(self.misses.is_multiple_of(trial_every));
        let rings = (paying + trial).min(RING_BLOCKS.len());
        rings.checked_sub(1).map_or(1, |outermost| RING_BLOCKS[outermost])
    }

    /// The ring of a block beside one that was asked for.
    pub fn ring_of(block: u64, asked: u64) -> usize {
        usize::from(block / RING_BLOCKS[0] != asked / RING_BLOCKS[0])
    }

    /// Notes that a block of a ring saved so much ([`saved_parts`]).
    pub fn save(&mut self, ring: usize, parts: u64) {
        assert!(parts <= REQUEST_PARTS, "a block saves one request at the most");
        self.rings[ring].saved_parts += parts;
    }

    /// Notes that so many blocks of a ring are kept no longer.
    pub fn drop(&mut self, ring: usize, blocks: u64) {
        self.rings[ring].drop(blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Neighbourhood {
        /// Takes in blocks that were read, saved so much in all, and were dropped.
        fn learn(&mut self, ring: usize, read: u64, saved_parts: u64) {
            self.rings[ring].saved_parts += saved_parts;
            self.drop(ring, read);
        }
    }

    fn widths(neighbourhood: &mut Neighbourhood) -> [usize; 3] {
        let mut counts = [0; 3];
        for _ in 0..TRIAL_EVERY {
            let blocks = neighbourhood.next_blocks(64, &ReadCost::default(), false);
            counts[[1, 16, 64].iter().position(|width| *width == blocks).expect("one of the widths")] += 1;
        }
        counts
    }

    #[test]
    fn the_widest_is_read_until_it_proves_useless() {
        let mut neighbourhood = Neighbourhood::default();
        assert_eq!(widths(&mut neighbourhood), [0, 0, 32]);
        neighbourhood.learn(1, 600, 0);
        assert_eq!(widths(&mut neighbourhood), [0, 31, 1]);
        neighbourhood.learn(0, 600, 0);
        assert_eq!(widths(&mut neighbourhood), [31, 1, 0]);
    }

    #[test]
    fn a_quick_origin_is_tried_less_often() {
        let mut neighbourhood = Neighbourhood::default();
        for ring in 0..2 {
            neighbourhood.learn(ring, 5000, 0);
        }
        let trials = |neighbourhood: &mut Neighbourhood, is_quick: bool| {
            (0..512).filter(|_| neighbourhood.next_blocks(64, &ReadCost::default(), is_quick) > 1).count()
        };
        assert_eq!((trials(&mut neighbourhood, false), trials(&mut neighbourhood, true)), (16, 1));
    }

    #[test]
    fn what_a_quick_origin_reads_beside_has_to_save_more() {
        let mut neighbourhood = Neighbourhood::default();
        for _ in 0..1000 {
            // A request for 12 blocks each.
            neighbourhood.learn(0, 12, saved_parts(1, false));
            neighbourhood.learn(1, 48, 4 * saved_parts(1, false));
        }
        assert_eq!(widths(&mut neighbourhood), [0, 0, 32]);
        let mut cost = ReadCost::default();
        for number in 0..200 {
            let blocks = if number % 2 == 0 { 1 } else { 64 };
            cost.learn(blocks, 333_000 + blocks * 33_000);
        }
        assert_eq!(neighbourhood.next_blocks(64, &cost, true), 1);
    }

    #[test]
    fn short_misses_stay_short_until_their_cost_is_known() {
        let (mut neighbourhood, mut cost) = (Neighbourhood::default(), ReadCost::default());
        let mut short = |asked, cost: &ReadCost| {
            (0..753).filter(|_| neighbourhood.next_blocks(asked, cost, false) == 1).count()
        };
        assert_eq!((short(1, &cost), short(32, &cost)), (251, 0));
        (0..16).for_each(|_| cost.learn(1, 1));
        assert_eq!(short(1, &cost), 3);
    }

    #[test]
    fn what_pays_again_is_found_by_trials() {
        let mut neighbourhood = Neighbourhood::default();
        for ring in 0..2 {
            neighbourhood.learn(ring, 5000, 0);
        }
        let mut misses = 0;
        while widths(&mut neighbourhood)[2] < 32 {
            misses += TRIAL_EVERY;
            let tried = usize::from(neighbourhood.rings[0].pays(WIDTH_BLOCKS_MAX));
            neighbourhood.learn(tried, 48, 12 * saved_parts(1, false));
            assert!(misses < 5000, "a quarter of them is used");
        }
    }

    #[test]
    fn one_of_few_is_enough() {
        let mut neighbourhood = Neighbourhood::default();
        for _ in 0..1000 {
            neighbourhood.learn(1, 48, saved_parts(1, false));
            neighbourhood.learn(0, 15, 0);
        }
        assert_eq!(widths(&mut neighbourhood), [31, 1, 0], "there is no outer ring without the inner one");
        for _ in 0..1000 {
            neighbourhood.learn(0, 15, saved_parts(1, false));
        }
        assert_eq!(widths(&mut neighbourhood), [0, 0, 32]);
    }

    #[test]
    fn requests_count_not_their_blocks() {
        let mut neighbourhood = Neighbourhood::default();
        for _ in 0..1000 {
            // Half of a ring is used by what would have been a tenth of a request each, and was in the queue already.
            neighbourhood.learn(1, 48, 24 * saved_parts(10, true));
            neighbourhood.learn(0, 15, 15 * saved_parts(10, false));
        }
        assert_eq!(widths(&mut neighbourhood), [0, 31, 1]);
        assert_eq!([1, 16, 64, 500].map(|blocks| saved_parts(blocks, false)), [64, 4, 1, 1]);
    }

    #[test]
    fn rings_are_aligned() {
        let rings = [(17, 16), (31, 16), (15, 16), (32, 31)]
            .map(|(block, asked)| Neighbourhood::ring_of(block, asked));
        assert_eq!(rings, [0, 0, 1, 1]);
    }
}
