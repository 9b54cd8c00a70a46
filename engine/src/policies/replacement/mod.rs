//! Replacement: the choice of the frame that gives its place up, and of the dirty frame to destage next.
//!
//! A frame is a slot or a bucket. A policy is told what happens to frames and is asked for a
//! choice; it moves nothing itself, knows no keys, does no I/O and takes no memory after it was
//! made. The store keeps the free frames ([`free_frames`]) and asks for a victim when it wants one.
//!
//! | file | policy | published as |
//! | --- | --- | --- |
//! | `fifo.rs` | a pointer that goes round | flashcache's and EnhanceIO's default |
//! | `lru.rs` | least recently used of a set | EnhanceIO |
//! | `random.rs` | a shared counter, or chance | EnhanceIO's `rand` |
//! | `warm_hot_lru.rs` | two lists of fixed lengths | flashcache |
//! | `mq.rs` | 16 levels by hits | dm-cache, Linux 3.9 to 4.1 |
//! | `smq.rs` | 64 levels of equal length | dm-cache, Linux 4.2 (unverified) and later |
//! | `bucket_lru.rs` | by age and live content | bcache |
//! | `s3_fifo.rs` | small and main queue | Yang et al., SOSP 2023 |
//! | `fifo_reinsertion.rs` | the oldest segment of the log; what was hit is appended again | Yang et al., SOSP 2023 |
//! | `forebay/` | worth by age, learned; for a log with frames | ours, after EVA, LHD and LIRS |
//!
//! The last two are the log's: they choose no frame, so they are no [`Policy`].
//!
//! A new policy is one file with an `impl Policy`, its `mod` line, and an entry in the table of `policies!`; CONTRIBUTING.md
//! adds one as an example.

pub mod bucket_lru;
pub mod fifo;
pub mod fifo_reinsertion;
pub mod forebay;
pub mod free_frames;
pub mod lru;
pub mod mq;
pub mod random;
pub mod s3_fifo;
pub mod smq;
pub mod warm_hot_lru;

use crate::units::{Frame, Nanos};
use bucket_lru::{BucketKind, BucketLru};
use fifo::Fifo;
use fifo_reinsertion::Reinsertion;
use forebay::ForebayChoice;
use free_frames::FreeOrder;
use lru::Lru;
use mq::{Mq, MqEra};
use random::{Random, RandomKind};
use s3_fifo::S3Fifo;
use smq::{Smq, SmqVersion};
use warm_hot_lru::WarmHotLru;

/// Frames that one search for a victim looks at in the most. It is the largest set of a published
/// system (flashcache: 8 192 ways), so sets are always searched wholly; in a cache without sets a
/// search that meets only dirty or busy frames ends here.
pub const VICTIM_LOOKS_MAX: u32 = 8192;

/// The frames a policy chooses among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of frames: a whole number of sets.
    pub frames: u32,
    /// Frames of a set; all of them if a piece may lie anywhere.
    pub ways: u32,
}

impl Shape {
    /// A cache where a piece may lie anywhere.
    #[must_use]
    pub fn whole(frames: u32) -> Shape {
        Shape { frames, ways: frames }
    }

    /// The number of sets.
    #[must_use]
    pub fn sets(self) -> u32 {
        assert!(self.ways > 0 && self.frames.is_multiple_of(self.ways), "frames are in whole sets");
        self.frames / self.ways
    }

    /// The set of a frame.
    #[must_use]
    pub fn set_of(self, frame: Frame) -> u32 {
        assert!(frame.0 < self.frames);
        frame.0 / self.ways
    }

    /// Frame number `way` of a set.
    #[must_use]
    pub fn frame(self, set: u32, way: u32) -> Frame {
        assert!(way < self.ways && set < self.sets());
        Frame(set * self.ways + way)
    }

    /// The number of frames of a set that one search looks at.
    #[must_use]
    pub fn looks(self) -> u32 {
        self.ways.min(VICTIM_LOOKS_MAX)
    }
}

/// Whether a request reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// The way in which a frame comes to its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The request that brought it.
    pub access: Access,
    /// Whether the origin does not have the content.
    pub is_dirty: bool,
    /// Hits that admission has counted (mq); 1 where it does not count.
    pub hits: u32,
    /// Admitted because nothing had to be read, not because it was wanted: smq 1.0 lets it leave
    /// before others.
    pub is_temporary: bool,
    /// It was in the ghost history (s3-fifo).
    pub is_returning: bool,
}

impl Arrival {
    /// A piece that came for the first time.
    #[must_use]
    pub fn first(access: Access, is_dirty: bool) -> Arrival {
        Arrival { access, is_dirty, hits: 1, is_temporary: false, is_returning: false }
    }
}

/// A frame that was chosen to give its place up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The frame.
    pub frame: Frame,
    /// Whether admission's history shall keep its piece: s3-fifo's ghosts, and mq 1.0, where it
    /// begins again with one hit.
    pub is_remembered: bool,
}

/// The dirty frames that may go home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Frames that were not used recently. A policy that does not tell age takes all.
    Old,
    /// The same, but of the lowest level only, unless too few frames are clean (smq 1.0).
    Busy {
        /// Fewer clean frames than [`smq::CRITICAL_CLEAN_PERCENT`].
        is_critical: bool,
    },
    /// All.
    All,
}

/// The state of replacement, as far as admission may know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Frames that hold nothing.
    pub free: u32,
    /// All frames.
    pub frames: u32,
    /// Frames that mq or smq holds as clean; 0 with other policies.
    pub clean: u32,
    /// Requests that smq counted as hits in this period; 0 with other policies.
    pub level_hits: u32,
    /// Requests that smq counted as misses in this period; 0 with other policies.
    pub level_misses: u32,
    /// Hits that a newcomer has to have with mq, before admission adds its own; else 0.
    pub threshold: u32,
}

/// A replacement policy. A method that a policy has no use for does nothing unless the policy has its own.
pub trait Policy {
    /// `frame` was given to a piece: it was free, or it was a victim.
    fn insert(&mut self, frame: Frame, arrival: Arrival);

    /// A request found the piece of `frame`.
    fn hit(&mut self, frame: Frame, access: Access) {
        let _ = (frame, access);
    }

    /// A request found nothing.
    fn miss(&mut self) {}

    /// Admission's history was hit and counted it (mq's generations run on both).
    fn ghost_hit(&mut self) {}

    /// Marks `frame` as dirty, with content that the origin lacks, or as clean again.
    fn set_dirty(&mut self, frame: Frame, is_dirty: bool) {
        let _ = (frame, is_dirty);
    }

    /// `frame` is free: its piece went for another reason than `victim`, or it was a victim and
    /// nothing was put into it.
    fn remove(&mut self, frame: Frame);

    /// Chooses a frame of `set` for which `may_leave` holds and takes it out of the lists.
    ///
    /// Next the frame is given to another piece (`insert`), freed (`remove`), or it could not
    /// leave after all (`stays`).
    fn victim(&mut self, set: u32, may_leave: impl Fn(Frame) -> bool) -> Option<Victim>;

    /// Notes that the victim keeps its piece: a step before its removal failed.
    fn stays(&mut self, frame: Frame, is_dirty: bool);

    /// The frame of `set` that goes home next, of those for which `may_go` holds: dirty and not
    /// busy. It stays where it is until `home_begins`.
    fn next_home(&mut self, set: u32, urgency: Urgency, may_go: impl Fn(Frame) -> bool) -> Option<Frame>;

    /// The content of `frame` goes home.
    fn home_begins(&mut self, frame: Frame) {
        let _ = frame;
    }

    /// The content of `frame` is home, or it is still dirty.
    fn home_ends(&mut self, frame: Frame, is_dirty: bool) {
        let _ = (frame, is_dirty);
    }

    /// Whether a newcomer that finds no free frame makes another one leave, with `free` frames
    /// free and `leaving` victims on their way out.
    fn wants_victim(&self, free: u32, leaving: u32) -> bool {
        let _ = (free, leaving);
        true
    }

    /// One request has gone through (dm-cache's tick).
    fn tick(&mut self) {}

    /// The time is `now`.
    fn advance(&mut self, now: Nanos) {
        let _ = now;
    }

    /// `sectors` of a client's request went through the cache (bcache's clock).
    fn served(&mut self, sectors: u64) {
        let _ = sectors;
    }

    /// The sectors that a bucket still holds (bcache).
    fn set_live(&mut self, frame: Frame, sectors: u32) {
        let _ = (frame, sectors);
    }

    /// The state that admission may know, with `free` frames free.
    fn standing(&self, free: u32) -> Standing;

    /// The hint that a clean stop saves for `frame`.
    fn hint(&self, frame: Frame) -> u16 {
        let _ = frame;
        0
    }

    /// `frame` held a piece when the cache was opened. Without a hint a crash came between.
    fn restore(&mut self, frame: Frame, hint: Option<u16>, is_dirty: bool) {
        let _ = hint;
        self.insert(frame, Arrival::first(Access::Read, is_dirty));
    }
}

/// Makes the choices of a composition, and the policy of a cache, from the table of policies.
macro_rules! policies {
    ($(
        $(#[doc = $doc:literal])+
        $variant:ident($policy:ty): $name:literal, $meaning:literal,
        tunables { $($(#[doc = $field_doc:literal])+ $field:ident: $field_type:ty = $start:expr,)* },
        new |$shape:ident, $seed:ident| $new:expr,
        free_order $free_order:expr;
    )+
    ring {$(
        $(#[doc = $ring_doc:literal])+
        $ring:ident($ring_type:ty): $ring_name:literal, $ring_meaning:literal, $ring_start:expr;
    )+}) => {
        /// A replacement policy with its parameters: plain data.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ReplacementChoice {
            $($(#[doc = $doc])+ $variant { $($(#[doc = $field_doc])+ $field: $field_type,)* },)+
            $($(#[doc = $ring_doc])+ $ring($ring_type),)+
        }

        impl ReplacementChoice {
            /// All of them, with name and meaning. Tunables get their defaults elsewhere.
            pub const ALL: &[(&str, &str, ReplacementChoice)] =
                &[
                    $(($name, $meaning, ReplacementChoice::$variant { $($field: $start,)* }),)+
                    $(($ring_name, $ring_meaning, ReplacementChoice::$ring($ring_start)),)+
                ];

            /// Its name.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(ReplacementChoice::$variant { .. } => $name,)+
                    $(ReplacementChoice::$ring(_) => $ring_name,)+
                }
            }

            /// The order in which free frames are used where the published system lays frames out so.
            #[must_use]
            #[allow(unused_variables, reason = "most look at none of their parameters")]
            pub fn free_order(&self) -> FreeOrder {
                match *self {
                    $(ReplacementChoice::$variant { $($field,)* } => $free_order,)+
                    $(ReplacementChoice::$ring(_) => FreeOrder::Lowest,)+
                }
            }
        }

        /// The policy of a cache.
        #[derive(Clone, Debug)]
        pub enum Replacement {
            $($(#[doc = $doc])+ $variant($policy),)+
        }

        impl Replacement {
            /// The policy of `choice` over no content yet. Takes all the memory it will ever have.
            ///
            /// Policies without sets ask for one set: all but `fifo`, `lru`, `random` and `warm-hot-lru`.
            #[must_use]
            #[allow(unused_variables, reason = "most need no chance, some no parameter")]
            pub fn new(choice: &ReplacementChoice, shape: Shape, seed: u64) -> Replacement {
                match *choice {
                    $(ReplacementChoice::$variant { $($field,)* } => {
                        let ($shape, $seed) = (shape, seed);
                        Replacement::$variant($new)
                    })+
                    $(ReplacementChoice::$ring(_) => unreachable!("a policy of the ring chooses no frames"),)+
                }
            }
        }

        impl Policy for Replacement {
            fn insert(&mut self, frame: Frame, arrival: Arrival) {
                match self {
                    $(Replacement::$variant(policy) => policy.insert(frame, arrival),)+
                }
            }

            fn hit(&mut self, frame: Frame, access: Access) {
                match self {
                    $(Replacement::$variant(policy) => policy.hit(frame, access),)+
                }
            }

            fn miss(&mut self) {
                match self {
                    $(Replacement::$variant(policy) => policy.miss(),)+
                }
            }

            fn ghost_hit(&mut self) {
                match self {
                    $(Replacement::$variant(policy) => policy.ghost_hit(),)+
                }
            }

            fn set_dirty(&mut self, frame: Frame, is_dirty: bool) {
                match self {
                    $(Replacement::$variant(policy) => policy.set_dirty(frame, is_dirty),)+
                }
            }

            fn remove(&mut self, frame: Frame) {
                match self {
                    $(Replacement::$variant(policy) => policy.remove(frame),)+
                }
            }

            fn victim(&mut self, set: u32, may_leave: impl Fn(Frame) -> bool) -> Option<Victim> {
                match self {
                    $(Replacement::$variant(policy) => policy.victim(set, may_leave),)+
                }
            }

            fn stays(&mut self, frame: Frame, is_dirty: bool) {
                match self {
                    $(Replacement::$variant(policy) => policy.stays(frame, is_dirty),)+
                }
            }

            fn next_home(&mut self, set: u32, urgency: Urgency, may_go: impl Fn(Frame) -> bool) -> Option<Frame> {
                match self {
                    $(Replacement::$variant(policy) => policy.next_home(set, urgency, may_go),)+
                }
            }

            fn home_begins(&mut self, frame: Frame) {
                match self {
                    $(Replacement::$variant(policy) => policy.home_begins(frame),)+
                }
            }

            fn home_ends(&mut self, frame: Frame, is_dirty: bool) {
                match self {
                    $(Replacement::$variant(policy) => policy.home_ends(frame, is_dirty),)+
                }
            }

            fn wants_victim(&self, free: u32, leaving: u32) -> bool {
                match self {
                    $(Replacement::$variant(policy) => policy.wants_victim(free, leaving),)+
                }
            }

            fn tick(&mut self) {
                match self {
                    $(Replacement::$variant(policy) => policy.tick(),)+
                }
            }

            fn advance(&mut self, now: Nanos) {
                match self {
                    $(Replacement::$variant(policy) => policy.advance(now),)+
                }
            }

            fn served(&mut self, sectors: u64) {
                match self {
                    $(Replacement::$variant(policy) => policy.served(sectors),)+
                }
            }

            fn set_live(&mut self, frame: Frame, sectors: u32) {
                match self {
                    $(Replacement::$variant(policy) => policy.set_live(frame, sectors),)+
                }
            }

            fn standing(&self, free: u32) -> Standing {
                match self {
                    $(Replacement::$variant(policy) => policy.standing(free),)+
                }
            }

            fn hint(&self, frame: Frame) -> u16 {
                match self {
                    $(Replacement::$variant(policy) => policy.hint(frame),)+
                }
            }

            fn restore(&mut self, frame: Frame, hint: Option<u16>, is_dirty: bool) {
                match self {
                    $(Replacement::$variant(policy) => policy.restore(frame, hint, is_dirty),)+
                }
            }
        }
    };
}

policies! {
    /// See [`fifo`].
    Fifo(Fifo): "fifo", "a pointer that goes round",
    tunables {
        /// The order in which free frames are used.
        free_order: FreeOrder = FreeOrder::Lowest,
    },
    new |shape, seed| Fifo::new(shape),
    free_order free_order;

    /// See [`lru`].
    Lru(Lru): "lru", "the least recently used of a set",
    tunables {},
    new |shape, seed| Lru::new(shape),
    // EnhanceIO looks for the first invalid block of the set.
    free_order FreeOrder::Lowest;

    /// See [`random`].
    Random(Random): "random", "a shared counter, or chance",
    tunables {
        /// The source of chance.
        kind: RandomKind = RandomKind::SharedCounter,
    },
    new |shape, seed| Random::new(shape, kind, seed),
    free_order FreeOrder::Lowest;

    /// See [`warm_hot_lru`].
    WarmHotLru(WarmHotLru): "warm-hot-lru", "two lists of fixed lengths for each set",
    tunables {
        /// Share of the hot list, percent of the frames of a set: 50, 0 to 100.
        hot_percent: u32 = 0,
        /// Hits that bring a warm frame into the hot list: 2, 1 to 255.
        promote_hits: u32 = 1,
    },
    new |shape, seed| WarmHotLru::new(shape, hot_percent, promote_hits),
    free_order FreeOrder::LastFreed;

    /// See [`mq`].
    Mq(Mq): "mq", "16 levels by the logarithm of hits",
    tunables {
        /// The version of mq.
        era: MqEra = MqEra::Split,
    },
    new |shape, seed| Mq::new(shape, era),
    free_order if era == MqEra::Single { FreeOrder::NearLast } else { FreeOrder::LastFreed };

    /// See [`smq`].
    Smq(Smq): "smq", "64 levels of even lengths",
    tunables {
        /// The version of smq.
        version: SmqVersion = SmqVersion::Two,
    },
    new |shape, seed| Smq::new(shape, version),
    free_order if version == SmqVersion::Two { FreeOrder::FirstFreed } else { FreeOrder::LastFreed };

    /// See [`bucket_lru`].
    BucketLru(BucketLru): "bucket-lru", "whole buckets by age and live content",
    tunables {
        /// The order in which buckets leave.
        kind: BucketKind = BucketKind::Lru,
        /// Sectors in a bucket: 1 024, 8 to 65 536.
        bucket_sectors: u32 = 8,
    },
    new |shape, seed| BucketLru::new(shape, kind, bucket_sectors, seed),
    free_order FreeOrder::Lowest;

    /// See [`s3_fifo`].
    S3Fifo(S3Fifo): "s3-fifo", "a small queue, a main queue and a history",
    tunables {
        /// Share of the small queue, permille of all frames: 100, 1 to 999.
        small_permille: u32 = 1,
    },
    new |shape, seed| S3Fifo::new(shape, small_permille),
    free_order FreeOrder::Lowest;

    ring {
        /// See [`fifo_reinsertion`].
        FifoReinsertion(Reinsertion): "fifo-reinsertion",
            "the oldest segment of the log; blocks of it that were hit are appended again",
            Reinsertion::NONE;
        /// See [`forebay`].
        Forebay(ForebayChoice): "forebay",
            "the block that is worth least, by when blocks like it came back",
            ForebayChoice { draw_blocks: 1 };
    }
}

#[cfg(test)]
mod models;
#[cfg(test)]
mod tests;
