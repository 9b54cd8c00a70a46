//! How far a miss reads beyond what was asked for, learned from what became of that.
//!
//! A disk reads a quarter of a mebibyte in less time than it takes to find a place. So blocks beside those that were
//! asked for are worth reading even if few of them are asked for later; but in a load that jumps about none is. There are
//! two rings around what was asked for: the aligned 64 KiB that it lies in, and the aligned 256 KiB around those. Each ring
//! is read as long as enough of its blocks are used before they are dropped, the outer one only with the inner one. Of the
//! misses that would read less, a few read one ring more, to learn.

/// The sizes of the rings, in blocks.
const RING_BLOCKS: [u64; 2] = [16, 64];
/// The widest that is read.
pub(crate) const WIDTH_BLOCKS_MAX: u64 = RING_BLOCKS[1];
/// A ring pays if one in so many of its blocks is used. On a hard disk, where a block takes 27 us to read, one in 300 would
/// pay for itself if a place takes 8 ms to find, and one in 80 if a full queue makes that 2 ms. The rest is for the memory
/// that they take from each other, and for faster origins.
const PAYS_ONE_IN: u64 = 16;
/// A ring is believed to pay until so many blocks of it were dropped unused.
const BELIEF_BLOCKS: u64 = 512;
/// Beyond so many blocks older outcomes count half.
const OUTCOME_BLOCKS_MAX: u64 = 8192;
/// One in so many misses reads one ring more than pays.
const TRIAL_EVERY: u32 = 32;

/// The outcome of reading blocks of a ring.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    read: u64,
    used: u64,
}

impl Outcome {
    const BELIEF: Outcome = Outcome { read: BELIEF_BLOCKS, used: 2 * BELIEF_BLOCKS / PAYS_ONE_IN };

    fn pays(self) -> bool {
        self.used * PAYS_ONE_IN >= self.read
    }

    fn add(&mut self, read: u64, used: u64) {
        assert!(used <= read, "what is used was read");
        self.read += read;
        self.used += used;
        if self.read > OUTCOME_BLOCKS_MAX {
            (self.read, self.used) = (self.read / 2, self.used / 2);
        }
    }
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
    pub fn next_blocks(&mut self) -> u64 {
        self.misses = self.misses.wrapping_add(1);
        let paying = self.rings.iter().take_while(|ring| ring.pays()).count();
        let trial = usize::from(self.misses.is_multiple_of(TRIAL_EVERY));
        let rings = (paying + trial).min(RING_BLOCKS.len());
        rings.checked_sub(1).map_or(1, |outermost| RING_BLOCKS[outermost])
    }

    /// The ring of a block beside one that was asked for.
    pub fn ring_of(block: u64, asked: u64) -> usize {
        usize::from(block / RING_BLOCKS[0] != asked / RING_BLOCKS[0])
    }

    /// Takes in what became of blocks of a ring: so many were read, and so many of those were used.
    pub fn learn(&mut self, ring: usize, read: u64, used: u64) {
        self.rings[ring].add(read, used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widths(neighbourhood: &mut Neighbourhood) -> [usize; 3] {
        let mut counts = [0; 3];
        for _ in 0..TRIAL_EVERY {
            let blocks = neighbourhood.next_blocks();
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
    fn what_pays_again_is_found_by_trials() {
        let mut neighbourhood = Neighbourhood::default();
        for ring in 0..2 {
            neighbourhood.learn(ring, 5000, 0);
        }
        let mut misses = 0;
        while widths(&mut neighbourhood)[2] < 32 {
            misses += TRIAL_EVERY;
            let tried = usize::from(neighbourhood.rings[0].pays());
            neighbourhood.learn(tried, 48, 12);
            assert!(misses < 5000, "a quarter of them is used");
        }
    }

    #[test]
    fn one_of_few_is_enough() {
        let mut neighbourhood = Neighbourhood::default();
        for _ in 0..1000 {
            neighbourhood.learn(1, 48, 4);
            neighbourhood.learn(0, 15, 0);
        }
        assert_eq!(widths(&mut neighbourhood), [31, 1, 0], "there is no outer ring without the inner one");
        for _ in 0..1000 {
            neighbourhood.learn(0, 15, 2);
        }
        assert_eq!(widths(&mut neighbourhood), [0, 0, 32]);
    }

    #[test]
    fn rings_are_aligned() {
        let rings = [(17, 16), (31, 16), (15, 16), (32, 31)]
            .map(|(block, asked)| Neighbourhood::ring_of(block, asked));
        assert_eq!(rings, [0, 0, 1, 1]);
    }
}
