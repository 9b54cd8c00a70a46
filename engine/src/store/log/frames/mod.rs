//! `frames`: what clients write is appended inline; clean data lies in frames of one block behind the ring.
//!
//! A ring gives places up in its own order, so a block that is worth keeping has to be appended again, many times for each
//! one that leaves. Clean data needs no order: a frame is given to another block in place, and what stays costs nothing.
//! Dirty data keeps the ring, where a write is one device write with its header.
//!
//! ```text
//! fill:  origin → frame → index → its key in some later batch
//! write: batch in the ring → index → home → at the tail: into a frame if it is worth one, else dropped
//! frame: free → written → in the index → flushed → its key logged → leaving: `Evicted` durable → free
//! ```
//!
//! * A key says where a clean block lies. It is appended when the index has the block already, and nobody waits for it: a
//!   crash before forgets a clean copy. So what is logged is compared with the index once more: a block that changed
//!   meanwhile, or is about to, has no key (rule 3).
//! * A block that leaves stays in the index, readable, until its frame is free. So whatever goes around the cache still
//!   finds it there, and writes the tombstone that keeps it from coming back (hazard 7).
//! * A key is appended when its data is durable. So a missing or rotten clean block never makes a batch look torn, and
//!   recovery need not read what frames hold (hazard 2).
//! * A frame is written again when a durable record says that what was there is void (rule 1): until then recovery may
//!   find the old key.
//! * The keys of the oldest segment that still hold are appended again before it is reused.
//!
//! | file | subject |
//! | --- | --- |
//! | `places.rs` | the frames and their life |
//! | `worths.rs` | what blocks are worth, by the policy `forebay` |
//! | `arrive.rs` | from a fill, or the ring's tail, to a frame |
//! | `keys.rs` | keys are appended |
//! | `leave.rs` | frames are given up |
//! | `found.rs` | what recovery finds in them |

mod arrive;
pub(crate) mod found;
mod keys;
mod leave;
pub(super) mod places;
mod worths;

use super::inline::Inline;
use crate::composition::Composition;
use crate::policies::replacement::ReplacementChoice;
use crate::policies::replacement::forebay::SAMPLE_BLOCKS;
use crate::units::{BlockKey, Nanos, Place, VolumeIndex};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
pub(super) use arrive::Move;
use arrive::Part;
use found::FramesFound;
pub(super) use keys::KeysDue;
use keys::Unlogged;
use places::FramePlaces;
use worths::Worths;

/// The state of this way to append.
pub(crate) struct Frames {
    /// For what clients write, and for fills that wait for each other.
    pub inline: Inline,
    pub places: FramePlaces,
    pub worths: Worths,
    /// Data on its way to frames, by the number of its device write.
    writing: BTreeMap<u64, Vec<Part>>,
    next_write: u64,
    /// Blocks in the index whose keys no batch has.
    unlogged: VecDeque<Unlogged>,
    /// When to ask again whether their keys may go.
    until: Option<Nanos>,
}

impl Frames {
    /// Of what recovery found, with blocks that the index is not to have: see [`FramePlaces::new`].
    pub fn new(
        composition: &Composition,
        found: FramesFound,
        index: &super::index::Index,
        seed: u64,
    ) -> (Frames, Vec<BlockKey>) {
        let draw_blocks = match composition.replacement {
            ReplacementChoice::Forebay(choice) => choice.draw_blocks,
            _ => SAMPLE_BLOCKS,
        };
        let mut worths = Worths::new(&found.layout, draw_blocks, seed);
        index.for_each(|key, entry| worths.arrives(key, entry.place));
        let (places, shared) = FramePlaces::new(found, index);
        let frames = Frames {
            inline: Inline::default(),
            places,
            worths,
            writing: BTreeMap::new(),
            next_write: 0,
            unlogged: VecDeque::new(),
            until: None,
        };
        (frames, shared)
    }

    /// Clients ask for blocks.
    pub fn accessed(&mut self, first: BlockKey, blocks: u64, index: &super::index::Index) {
        (first.0..first.0 + blocks).for_each(|key| self.worths.accessed(BlockKey(key), index));
    }

    /// The index has no copy of a block at a place any more.
    pub fn lost(&mut self, key: BlockKey, place: Place) {
        if self.places.is_frame(place) {
            self.places.orphan(key, place);
        }
    }

    /// Whether the clean block at a place of the ring is worth a frame.
    pub fn is_worth_a_frame(&self, place: Place) -> bool {
        self.worths.is_worth_a_frame(place, &self.places)
    }

    /// Whether nothing is under way and no key waits.
    pub fn is_quiet(&self) -> bool {
        self.inline.gathering.is_empty() && self.writing.is_empty() && self.unlogged.is_empty()
    }

    /// Whether anything of a volume is on its way to a frame.
    pub fn concern(&self, volume: VolumeIndex) -> bool {
        self.inline.gathering.iter().any(|fill| fill.volume == volume)
            || self.writing.values().flatten().any(|part| part.first.volume() == volume)
    }
}

impl core::fmt::Debug for Frames {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Frames")
            .field("inline", &self.inline)
            .field("places", &self.places)
            .field("writing", &self.writing.len())
            .field("unlogged", &self.unlogged.len())
            .finish_non_exhaustive()
    }
}
