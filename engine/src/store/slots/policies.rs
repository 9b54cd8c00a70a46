//! The choices of a composition for slots, and the policies that it names. Replacement stands beside them in the store,
//! because it is asked while other parts are looked at.

use crate::composition::Composition;
use crate::composition::axes::{PersistenceChoice, SlotWrites, WritesChoice};
use crate::policies::admission::{Admission, Cutoff, Sizes};
use crate::policies::fetch::Fetch;
use crate::policies::replacement::Shape;
use crate::prng::Prng;

/// Treatment of a write that does not cover its piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partial {
    /// It is written in the slot that has the piece.
    InPlace,
    /// The slot gives the piece up, and the origin is written.
    Invalidate,
    /// In the slot if that is dirty; else in the slot and on the origin.
    BothIfClean,
}

/// The choices and the policies with their state.
#[derive(Debug)]
pub(crate) struct Policies {
    pub admission: Admission,
    pub cutoff: Cutoff,
    pub prng: Prng,
    pub fetch: Fetch,
    pub partial: Partial,
    pub writes: SlotWrites,
    /// Each block of a cleaned set has its own record, instead of one record for all.
    pub cleans_per_block: bool,
    /// A promise of the published system that is weaker than a disk's is kept as a disk's.
    pub is_safe: bool,
}

impl Policies {
    pub fn new(composition: &Composition, shape: Shape, origin_pieces: u64, seed: u64) -> Policies {
        let (partial, writes) = match composition.writes {
            WritesChoice::InPlace(writes) => (Partial::InPlace, writes),
            WritesChoice::Invalidate(writes) => (Partial::Invalidate, writes),
            WritesChoice::BothIfClean(writes) => (Partial::BothIfClean, writes),
            WritesChoice::Merge | WritesChoice::MergeOrBypass | WritesChoice::Extents(_) => {
                unreachable!("slots have writes of their own")
            }
        };
        Policies {
            admission: Admission::new(&composition.admission, Sizes { frames: shape.frames, origin_pieces }),
            cutoff: Cutoff::new(composition.cutoff),
            prng: Prng::new(seed),
            fetch: composition.fetch,
            partial,
            writes,
            cleans_per_block: matches!(
                composition.persistence,
                PersistenceChoice::SyncSector { cleans_per_block: true }
            ),
            is_safe: composition.safe,
        }
    }
}
