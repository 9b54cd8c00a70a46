//! The published controllers of destage: when dirty blocks go home, in which order, how many at once.
//!
//! A controller is a plain value. It is given [`Pressure`], the facts it decides on, and answers with a
//! [`Budget`]; the store that asks starts the runs that the budget allows and reports them. A controller moves
//! nothing itself, knows no device and no clock, and takes no memory after it was made.
//!
//! [`Destage`] is the one that a composition names, of the log as of the slots.
//!
//! | file | controller | published as |
//! | --- | --- | --- |
//! | `pi.rs` | a rate that follows how far dirty data is from a target | bcache, three eras |
//! | `threshold.rs` | what a set has beyond its limit, few copies at a time | flashcache |
//! | `threshold_sets.rs` | whole sets, one at a time, when the cache or a set has too much | EnhanceIO |
//! | `idle.rs` | one frame a copy, as the policy says | dm-cache, three eras |
//! | `cleaner.rs` | everything, and nothing enters | dm-cache's cleaner |
//! | `mirror_fill.rs` | from memory, while nobody reads the origin or writes, or because memory is full | gflash |

pub mod cleaner;
pub mod idle;
pub mod mirror_fill;
pub mod pi;
pub mod threshold;
pub mod threshold_sets;

use crate::composition::axes::DestageChoice;
use crate::policies::replacement::{Access, Shape, Urgency};
use crate::table::bits::Bits;
use crate::units::{Frame, Nanos, VOLUMES_MAX, VolumeIndex};
use alloc::vec;
use alloc::vec::Vec;
use cleaner::CleanerChoice;
use idle::IdleChoice;
use mirror_fill::MirrorFillChoice;
use pi::Pi;
use threshold::Threshold;
use threshold_sets::ThresholdSets;

/// The facts that controllers decide on. Each looks at a few of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// The time.
    pub now: Nanos,
    /// The time of the last client's request to the origin.
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
    /// Runs on their way home, among `copies`.
    pub runs: u32,
    /// Clients' requests under way.
    pub requests: u32,
    /// Reads that the origin has to answer, among `requests`.
    pub origin_reads: u32,
    /// The memory for dirty data is full.
    pub is_memory_full: bool,
    /// A newcomer found no free frame, and none that could leave.
    pub wants_room: bool,
    /// A request waits until everything is home: a detach, a flush of the operator, a clean stop.
    pub is_draining: bool,
}

/// The runs that may be started now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Runs.
    pub runs: u32,
    /// Runs, if each continues the one before on the origin; not fewer than `runs`.
    pub continuing: u32,
    /// Which.
    pub order: HomeOrder,
    /// Dirty neighbours that a run takes along.
    pub join: Join,
    /// The time when the answer may change although nothing happens.
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

/// The order in which dirty frames are destaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeOrder {
    /// Rising address, from where it stopped.
    Address,
    /// As replacement says.
    Policy(Urgency),
    /// Frames of one set.
    Set(u32, OfSet),
}

/// The frames of a set to destage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfSet {
    /// All that are dirty.
    All,
    /// In replacement's order.
    InOrder,
    /// Frames that have not been used for long ([`threshold::Threshold::is_fallow`]).
    Fallow,
}

/// Dirty neighbours that a run takes along.
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

/// The controller of a cache, with its state.
#[derive(Clone, Debug)]
pub enum Destage {
    /// None: the sweep goes round as the store needs room.
    Sweep,
    /// See [`pi`]; one for each volume.
    Pi(Vec<Pi>),
    /// See [`threshold`].
    Threshold(Threshold),
    /// See [`threshold_sets`].
    ThresholdSets {
        /// The controller.
        sets: ThresholdSets,
        /// The frames that it counts as dirty.
        dirty: Bits,
    },
    /// See [`idle`].
    Idle(IdleChoice),
    /// See [`cleaner`].
    Cleaner(CleanerChoice),
    /// See [`mirror_fill`]; with the time of the last write to each volume.
    MirrorFill {
        /// The controller.
        choice: MirrorFillChoice,
        /// The time of a client's last write, by volume.
        last_writes: [Option<Nanos>; VOLUMES_MAX],
    },
}

impl Destage {
    /// The controller that was chosen, over clean frames of `frame_bytes`.
    #[must_use]
    pub fn new(choice: &DestageChoice, shape: Shape, frame_bytes: u32) -> Destage {
        match *choice {
            DestageChoice::Sweep(_) => Destage::Sweep,
            DestageChoice::Pi(choice) => Destage::Pi(vec![Pi::new(choice); VOLUMES_MAX]),
            DestageChoice::Threshold(choice) => Destage::Threshold(Threshold::new(choice, shape)),
            DestageChoice::ThresholdSets(choice) => Destage::ThresholdSets {
                sets: ThresholdSets::new(choice, shape, frame_bytes),
                dirty: Bits::new(shape.frames),
            },
            DestageChoice::Idle(choice) => Destage::Idle(choice),
            DestageChoice::Cleaner(choice) => Destage::Cleaner(choice),
            DestageChoice::MirrorFill(choice) => {
                Destage::MirrorFill { choice, last_writes: [None; VOLUMES_MAX] }
            }
        }
    }

    /// The runs of a volume that may be started now; of all volumes where the controller counts frames. `None`: it is the sweep's
    /// affair.
    pub fn budget(&mut self, volume: VolumeIndex, pressure: &Pressure) -> Option<Budget> {
        match self {
            Destage::Sweep => None,
            Destage::Pi(pi) => Some(pi[volume.at()].budget(pressure)),
            Destage::Threshold(threshold) => Some(threshold.budget(pressure)),
            Destage::ThresholdSets { sets, .. } => Some(sets.budget(pressure)),
            Destage::Idle(idle) => Some(idle.budget(pressure)),
            Destage::Cleaner(cleaner) => Some(cleaner.budget(pressure)),
            Destage::MirrorFill { choice, last_writes } => {
                Some(choice.budget(pressure, last_writes[volume.at()]))
            }
        }
    }

    /// Whether it decides for each volume by itself.
    #[must_use]
    pub fn is_by_volume(&self) -> bool {
        matches!(self, Destage::Pi(_) | Destage::MirrorFill { .. })
    }

    /// Whether the sweep alone takes dirty blocks home.
    #[must_use]
    pub fn is_sweep(&self) -> bool {
        matches!(self, Destage::Sweep)
    }

    /// Notes a client's request.
    pub fn client_request(&mut self, volume: VolumeIndex, access: Access, now: Nanos) {
        match self {
            Destage::Pi(pi) => pi[volume.at()].client_request(),
            Destage::MirrorFill { last_writes, .. } if access == Access::Write => {
                last_writes[volume.at()] = Some(now);
            }
            _ => (),
        }
    }

    /// A request missed in `set`, or wrote to it.
    pub fn touched(&mut self, set: u32) {
        if let Destage::Threshold(threshold) = self {
            threshold.touched(set);
        }
    }

    /// A request used `frame`.
    pub fn used(&mut self, frame: Frame) {
        if let Destage::Threshold(threshold) = self {
            threshold.used(frame);
        }
    }

    /// Marks `frame` of `set` as dirty, with content that the origin lacks, or as clean again.
    pub fn set_dirty(&mut self, frame: Frame, set: u32, is_dirty: bool, pressure: &Pressure) {
        match self {
            Destage::Threshold(threshold) => threshold.set_dirty(frame, is_dirty),
            Destage::ThresholdSets { sets, dirty } => match dirty.put(frame.0, is_dirty) {
                was_dirty if was_dirty == is_dirty => (),
                true => sets.cleaned(set),
                false => sets.dirtied(set, pressure),
            },
            _ => (),
        }
    }

    /// A run of a volume was started, because of a budget or not; these are its frames.
    pub fn started(&mut self, volume: VolumeIndex, frames: &[Frame], sectors: u64, now: Nanos) {
        match self {
            Destage::Pi(pi) => pi[volume.at()].started(now, sectors),
            Destage::Threshold(threshold) => frames.iter().for_each(|&frame| threshold.started(frame)),
            _ => (),
        }
    }

    /// Notes that a frame is no longer on its way, home or not.
    pub fn ended(&mut self, frame: Frame) {
        if let Destage::Threshold(threshold) = self {
            threshold.ended(frame);
        }
    }

    /// Nothing could be started of the last budget, or all that was found in one round over the volume has been.
    pub fn found_nothing(&mut self, volume: VolumeIndex, now: Nanos) {
        match self {
            Destage::Pi(pi) => pi[volume.at()].wrapped(now),
            Destage::Threshold(threshold) => threshold.found_nothing(now),
            _ => (),
        }
    }

    /// All that a budget for a set started has ended, or nothing could be started of it.
    pub fn set_ended(&mut self, now: Nanos) {
        if let Destage::ThresholdSets { sets, .. } = self {
            sets.ended(now);
        }
    }
}
