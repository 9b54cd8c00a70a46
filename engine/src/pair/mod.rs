//! A mirrored cache: two devices, its halves, of which each can go on alone.
//!
//! Both halves have the same bytes, but for clean data that one of them has alone (`store/log/once.rs`). A change is answered
//! when both have it, or when the half that has it says durably, in its [`PairPage`], that the other
//! one does not count any more (RULE 20). A half that does not count is copied anew as a whole before it counts again.
//!
//! A crash may leave a write on one half alone. Either copy may be read then, as after any crash; but both must be the same, or
//! a later loss of one half would bring back what the other one said before. So the device is divided into regions, and a
//! region is marked durably on both halves before it is written. The next start copies what differs in marked regions and is
//! meant to be the same.
//!
//! [`Pair`] is what `create`, recovery and all that is done to a cache that does not run stand on; while it runs the machine
//! does the same with effects (`machine/halves/`).

mod image;
mod marks;

pub use image::{JoinError, Pair, page_of};
pub(crate) use marks::Marks;

use crate::effect::Target;
use crate::format::{PairPage, SetId};
use alloc::boxed::Box;
use alloc::string::String;

/// One of the two devices of a mirrored cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Half {
    /// The first one.
    First,
    /// The second one.
    Second,
}

impl Half {
    /// Both.
    pub const BOTH: [Half; 2] = [Half::First, Half::Second];

    /// 0 or 1.
    #[must_use]
    pub fn at(self) -> usize {
        usize::from(self == Half::Second)
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Half {
        match self {
            Half::First => Half::Second,
            Half::Second => Half::First,
        }
    }

    /// The device of its operations.
    #[must_use]
    pub fn target(self) -> Target {
        match self {
            Half::First => Target::Cache,
            Half::Second => Target::Mirror,
        }
    }
}

/// Whether a half counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It has everything.
    In,
    /// It failed, or was not there, and the other one went on.
    Out,
    /// It is being brought up to date.
    Behind,
}

impl Standing {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Standing::In => "in",
            Standing::Out => "out",
            Standing::Behind => "behind",
        }
    }
}

/// The words that the two halves have for each other: a start finds them, and an engine on both goes on with them.
#[derive(Clone, Debug)]
pub struct PairWords {
    pub(crate) set_id: SetId,
    pub(crate) standings: [Standing; 2],
    /// The update of the pages that said first that a half does not count.
    pub(crate) out_since: [u64; 2],
    /// See [`PairPage::once_counts_from`].
    pub(crate) once_counts_from: [u64; 2],
    /// The number of the last pages.
    pub(crate) update: u64,
    pub(crate) names: [String; 2],
    /// Regions in which the halves may differ after a crash.
    pub(crate) marks: Marks,
}

impl PairWords {
    /// Bytes of each half that the cache has.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.marks.size_bytes()
    }

    /// RULE 20: whether the last page is the first one that says that a half does not count. If it rots, the one before it counts, so
    /// another one has to follow at once.
    pub(crate) fn is_out_told_once(&self) -> bool {
        self.out_since.contains(&self.update)
    }

    /// The next page of a half, with these marks.
    pub(crate) fn page(&self, half: Half, marks: &Marks) -> PairPage {
        PairPage {
            set_id: self.set_id,
            half: u8::from(half == Half::Second),
            out_since_update: self.out_since[half.other().at()],
            is_other_out: self.standings[half.other().at()] != Standing::In,
            is_behind: self.standings[half.at()] == Standing::Behind,
            update: self.update,
            size_bytes: self.size_bytes(),
            region_bytes: marks.region_bytes(),
            names: self.names.clone(),
            once_counts_from: self.once_counts_from,
            marks: Box::new(*marks.bits()),
        }
    }
}

/// A half, as it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfStatus {
    /// Whether it counts.
    pub standing: Standing,
    /// Reads that it failed and the other one answered.
    pub read_errors: u64,
    /// Blocks on it that were wrong or could not be read, and were written again from the other one.
    pub mended_blocks: u64,
    /// While it is brought up to date: the bytes that it has.
    pub copied_bytes: u64,
    /// While it is brought up to date: the bytes that it is to have.
    pub to_copy_bytes: u64,
}

/// The two halves, as they are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairStatus {
    /// The first and the second one.
    pub halves: [HalfStatus; 2],
}
