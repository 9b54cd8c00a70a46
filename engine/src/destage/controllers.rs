//! The published controllers of destage: when dirty blocks go home, in which order, how many at once.
//!
//! A controller is a plain value. It is given [`Pressure`], the facts it decides on, and answers with a
//! [`Budget`]; whoever asks it starts what the budget allows and says so. It moves nothing itself,
//! knows no device and no clock, and takes no memory after it was made.
//!
//! | file | controller | published as |
//! | --- | --- | --- |
//! | `pi.rs` | a rate that follows how far dirty data is from a target | bcache, three eras |
//! | `threshold.rs` | what a set has beyond its limit, few copies at a time | flashcache |
//! | `threshold_sets.rs` | whole sets, one at a time, when the cache or a set has too much | EnhanceIO |
//! | `idle.rs` | one frame a copy, as the policy says | dm-cache, three eras |
//! | `cleaner.rs` | everything, and nothing enters | dm-cache's cleaner |
//! | `mirror_fill.rs` | from memory, while nobody reads the origin, or because memory is full | gflash |

pub mod cleaner;
pub mod idle;
pub mod mirror_fill;
pub mod pi;
pub mod threshold;
pub mod threshold_sets;

use crate::replacement::Urgency;
use crate::units::Nanos;

/// The facts that controllers decide on. Each looks at a few of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// The time.
    pub now: Nanos,
    /// When a client's request last came.
    pub last_request: Nanos,
    /// When the origin last had a client's request.
    pub last_origin: Nanos,
    /// Dirty data of the volume, in sectors.
    pub dirty_sectors: u64,
    /// The cache, in sectors.
    pub cache_sectors: u64,
    /// The volume's origin, in sectors.
    pub origin_sectors: u64,
    /// All origins of the cache, in sectors.
    pub origins_sectors: u64,
    /// Frames of the cache.
    pub frames: u32,
    /// Frames that are not dirty, free ones too.
    pub clean_frames: u32,
    /// Sectors of a frame or bucket.
    pub frame_sectors: u32,
    /// Buckets that cannot be given away, percent of all, as it was when they were last counted (bcache).
    pub in_use_percent: u32,
    /// Buckets that are not available now.
    pub busy_buckets: u32,
    /// Copies under way: pieces on their way in, and runs on their way home.
    pub copies: u32,
    /// Of those, runs on their way home.
    pub runs: u32,
    /// Clients' requests under way.
    pub requests: u32,
    /// Of those, reads that the origin has to answer.
    pub origin_reads: u32,
    /// The memory for dirty data is full.
    pub is_memory_full: bool,
    /// A newcomer found no free frame, and none that could leave.
    pub wants_room: bool,
    /// Somebody waits until everything is home: a detach, a flush of the operator, a clean stop.
    pub is_draining: bool,
}

/// What may be started now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Runs.
    pub runs: u32,
    /// Runs, if each continues the one before on the origin; not fewer than `runs`.
    pub continuing: u32,
    /// Which.
    pub order: HomeOrder,
    /// What a run takes along.
    pub join: Join,
    /// When the answer may be another one although nothing happens.
    pub look_again: Option<Nanos>,
}

impl Budget {
    /// Nothing, until `look_again`.
    #[must_use]
    pub fn rest(look_again: Option<Nanos>) -> Budget {
        Budget { runs: 0, continuing: 0, order: HomeOrder::Address, join: Join::Nothing, look_again }
    }

    /// `runs` runs in this order, alone.
    #[must_use]
    pub fn runs(runs: u32, order: HomeOrder) -> Budget {
        Budget { runs, continuing: runs, order, join: Join::Nothing, look_again: None }
    }
}

/// Which dirty frames go home first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeOrder {
    /// Rising address, from where it stopped.
    Address,
    /// As replacement says.
    Policy(Urgency),
    /// Frames of one set.
    Set(u32, OfSet),
}

/// Which frames of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfSet {
    /// All that are dirty.
    All,
    /// In replacement's order.
    InOrder,
    /// Those that nobody used for long ([`threshold::Threshold::is_fallow`]).
    Fallow,
}

/// What a run takes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Nothing.
    Nothing,
    /// Dirty neighbours on the origin, up to so many sectors in all.
    Neighbours {
        /// Sectors at the most.
        sectors_max: u32,
    },
    /// Dirty neighbours on the origin that lie in the same set.
    NeighboursOfSet,
    /// Up to so many runs that continue one another are started together; none is added once they have so
    /// many sectors.
    Group {
        /// Runs at the most.
        runs_max: u32,
        /// Sectors that are enough.
        sectors_enough: u32,
    },
}
