//! Admission: whether a piece that is not in the cache enters it.
//!
//! A policy is a plain value: it is told of events and answers with a [`Decision`], on which the caller acts. It sees
//! no device and no clock, and takes no memory after it was made.
//!
//! | file | policy |
//! | --- | --- |
//! | `always.rs` | everything enters |
//! | `second_read.rs` | what is read for the second time (gflash) |
//! | `room_or_second_read.rs` | everything while there is room, then what is read for the second time |
//! | `mq.rs` | what was asked for often enough (dm-cache until 4.1) |
//! | `smq_hotspot.rs` | what lies in a region that is asked for often enough (dm-cache since) |
//!
//! | file | what they stand on, or behind |
//! | --- | --- |
//! | `cutoff.rs` | what passes by before a policy is asked: `runs.rs`, `congestion.rs` (bcache) |
//! | `run_detector.rs` | sequential phases (dm-cache) |
//! | `ghost.rs` | the ghost history |
//! | `recency.rs` | slots by key and age |
//!
//! Order of calls for each request, or each part of one that lies in one piece: [`Cutoff::decide`]
//! and, unless that passes it by, [`Admission::seen`]; on a miss [`Admission::decide`]; when the
//! request ended [`Admission::tick`].

pub mod always;
pub mod congestion;
pub mod cutoff;
pub mod ghost;
pub mod mq;
mod recency;
pub mod room_or_second_read;
pub mod run_detector;
pub mod runs;
pub mod second_read;
pub mod smq_hotspot;

pub use cutoff::{Cutoff, CutoffChoice};

use crate::policies::replacement::{Access, Standing};
use crate::units::{Nanos, PieceKey, SectorRange};
use always::{Always, AlwaysChoice};
use mq::{MqChoice, MqPromotion};
use room_or_second_read::RoomOrSecondRead;
use second_read::{SecondRead, SecondReadChoice};
use smq_hotspot::{SmqHotspot, SmqHotspotChoice};

/// A request, or the part of one that lies in one piece.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The piece it lies in; where nothing has pieces, the first block.
    pub piece: PieceKey,
    /// Whether the request reads or writes.
    pub access: Access,
    /// The client's stream; 0 if unknown.
    pub stream: u32,
    /// Where in the volume; not empty.
    pub range: SectorRange,
    /// A write of the whole piece: nothing of it has to be read.
    pub covers_piece: bool,
    /// The piece was discarded: nothing of it has to be read, either.
    pub is_discarded: bool,
    /// A write that its sender waits for, to a volume in writeback mode.
    pub is_sync_writeback: bool,
    /// A copy of this piece may begin now: it needs none, or those under way leave room for it
    /// (dm-cache's `migration_threshold`).
    pub may_promote: bool,
    /// The time.
    pub now: Nanos,
}

impl Asked {
    /// Whether a piece can be made of the request alone.
    #[must_use]
    pub fn is_fast(&self) -> bool {
        self.covers_piece || self.is_discarded
    }
}

/// The fate of a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Into the cache, if there is a place; with what replacement has to know.
    Admit {
        /// Counted requests for it, this one included; at least 1.
        hits: u32,
        /// It enters because nothing had to be read, not because it was wanted (smq 1).
        is_temporary: bool,
        /// It was in the ghost history (s3-fifo).
        is_returning: bool,
    },
    /// Past the cache, by the origin.
    Pass(Reason),
}

impl Verdict {
    /// Into the cache, by no more than its own merit.
    pub(crate) const ADMIT: Verdict = Verdict::Admit { hits: 1, is_temporary: false, is_returning: false };
}

/// Why a policy has a request bypass the cache; counted (`status::Bypasses`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Part of a long sequential run.
    Sequential,
    /// The cache device has been slow recently.
    Congested,
    /// Requested too seldom.
    NotYet,
    /// Admissible, but no more copies may be under way.
    CopiesInFlight,
    /// Too much of the cache is dirty or in use.
    InUse,
    /// It does not begin and end where the policy, or a slot, wants it to.
    Unaligned,
    /// Of several missing ranges of a read only the first one enters.
    LaterGap,
}

/// A policy's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The fate of the miss.
    pub verdict: Verdict,
    /// An access to a remembered piece was counted: replacement is told before it is asked for a
    /// place (mq's generations count both).
    pub is_ghost_hit: bool,
}

impl Decision {
    fn plain(verdict: Verdict) -> Decision {
        Decision { verdict, is_ghost_hit: false }
    }
}

/// The sizes that policies are made for.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Frames of the cache.
    pub frames: u32,
    /// Pieces of all volumes together.
    pub origin_pieces: u64,
}

/// A policy with its tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionChoice {
    /// See [`always`].
    Always(AlwaysChoice),
    /// See [`second_read`].
    SecondRead(SecondReadChoice),
    /// See [`room_or_second_read`].
    RoomOrSecondRead,
    /// See [`mq`].
    Mq(MqChoice),
    /// See [`smq_hotspot`].
    SmqHotspot(SmqHotspotChoice),
}

/// A policy with its state.
#[derive(Clone, Debug)]
pub enum Admission {
    /// See [`always`].
    Always(Always),
    /// See [`second_read`].
    SecondRead(SecondRead),
    /// See [`room_or_second_read`].
    RoomOrSecondRead(RoomOrSecondRead),
    /// See [`mq`].
    Mq(MqPromotion),
    /// See [`smq_hotspot`].
    SmqHotspot(SmqHotspot),
}

impl Admission {
    /// The chosen policy, with nothing seen.
    #[must_use]
    pub fn new(choice: &AdmissionChoice, sizes: Sizes) -> Admission {
        match *choice {
            AdmissionChoice::Always(choice) => Admission::Always(Always::new(choice)),
            AdmissionChoice::SecondRead(choice) => {
                Admission::SecondRead(SecondRead::new(choice, sizes.frames))
            }
            AdmissionChoice::RoomOrSecondRead => {
                Admission::RoomOrSecondRead(RoomOrSecondRead::new(sizes.frames))
            }
            AdmissionChoice::Mq(choice) => Admission::Mq(MqPromotion::new(choice, sizes.frames)),
            AdmissionChoice::SmqHotspot(choice) => Admission::SmqHotspot(SmqHotspot::new(choice, sizes)),
        }
    }

    /// Notes a request that passed the cutoff. Called for each, hit or miss, before anything else.
    pub fn seen(&mut self, asked: &Asked, is_hit: bool) {
        match self {
            Admission::Always(_) | Admission::RoomOrSecondRead(_) => {}
            Admission::SecondRead(policy) => policy.seen(asked),
            Admission::Mq(policy) => policy.seen(asked),
            Admission::SmqHotspot(policy) => policy.seen(asked, is_hit),
        }
    }

    /// Decides on a miss, after [`Admission::seen`].
    pub fn decide(&mut self, asked: &Asked, standing: &Standing) -> Decision {
        match self {
            Admission::Always(policy) => Decision::plain(policy.decide(asked)),
            Admission::SecondRead(policy) => Decision::plain(policy.decide(asked)),
            Admission::RoomOrSecondRead(policy) => Decision::plain(policy.decide(asked, standing)),
            Admission::Mq(policy) => policy.decide(asked, standing),
            Admission::SmqHotspot(policy) => Decision::plain(policy.decide(asked, standing)),
        }
    }

    /// Notes that a piece that was admitted with `hits` found no place.
    pub fn refused(&mut self, piece: PieceKey, hits: u32) {
        match self {
            Admission::Mq(policy) => policy.refused(piece, hits),
            Admission::Always(_)
            | Admission::SecondRead(_)
            | Admission::RoomOrSecondRead(_)
            | Admission::SmqHotspot(_) => {}
        }
    }

    /// Remembers a piece that left ([`Victim::is_remembered`](crate::policies::replacement::Victim::is_remembered)).
    pub fn evicted(&mut self, piece: PieceKey) {
        match self {
            Admission::Always(policy) => policy.evicted(piece),
            Admission::Mq(policy) => policy.evicted(piece),
            Admission::SecondRead(_) | Admission::RoomOrSecondRead(_) | Admission::SmqHotspot(_) => {}
        }
    }

    /// Notes that a request ended, or a second went by: dm-cache's tick.
    pub fn tick(&mut self, standing: &Standing, now: Nanos) {
        match self {
            Admission::Always(_) | Admission::SecondRead(_) | Admission::RoomOrSecondRead(_) => {}
            Admission::Mq(policy) => policy.tick(),
            Admission::SmqHotspot(policy) => policy.tick(standing, now),
        }
    }
}

#[cfg(test)]
mod testing;
