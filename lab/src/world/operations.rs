//! Device operations as a world keeps them, and as a scenario sees them.

use crate::disk::faults::{Fault, Kind};
use crate::disk::{Content, FlushTicket};
use crate::oracle::Moment;
use engine::effect::{Errno, IoId, Pieces, Target};
use engine::units::{SectorRange, VolumeIndex};
use std::collections::BTreeMap;

/// Number of a device operation in a world, in the order of issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// A device operation as a scenario sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoView {
    /// Its number.
    pub id: OpId,
    /// The device.
    pub target: Target,
    /// Its kind.
    pub kind: Kind,
    /// The first sector; 0 for a flush.
    pub first: u64,
    /// How many sectors; 0 for a flush.
    pub sectors: u64,
    /// Whether it had its effect and only its answer is missing.
    pub has_landed: bool,
}

impl IoView {
    /// Whether it is an operation of that kind on the cache.
    #[must_use]
    pub fn is_cache(&self, kind: Kind) -> bool {
        self.target == Target::Cache && self.kind == kind
    }

    /// Whether it is an operation of that kind on that volume's origin.
    #[must_use]
    pub fn is_origin(&self, volume: usize, kind: Kind) -> bool {
        self.target == Target::Origin(VolumeIndex(volume as u8)) && self.kind == kind
    }

    /// Whether it touches the range.
    #[must_use]
    pub fn touches(&self, range: SectorRange) -> bool {
        self.first < range.end() && range.start < self.first + self.sectors
    }
}

/// Choice of operations that are held back.
pub(super) type Filter = Box<dyn Fn(&IoView) -> bool>;

/// Sectors that an origin lost with a flush that failed.
pub(super) struct Loss {
    pub volume: usize,
    /// The flush, and changes that their server had answered for. While one of them is under way, or the effects of its answer are not
    /// drawn, clients may be answered whose changes are lost.
    pub ops: Vec<u64>,
    /// The sectors, and when they were lost.
    pub sectors: BTreeMap<u64, Moment>,
}

/// An operation that is not answered.
pub(super) struct InFlight {
    pub view: IoView,
    pub io: IoId,
    /// Destination of a read.
    pub into: Option<Pieces>,
    /// Source of a write.
    pub from: Option<Pieces>,
    /// Content of a change when it was issued.
    pub content: Option<Content>,
    pub ticket: Option<FlushTicket>,
    /// The time when it was issued.
    pub begun_ns: u64,
    /// The write's serial once it landed.
    pub landed: Option<u64>,
    /// Serials of what a server carried out of it.
    pub carried_out: Vec<u64>,
    pub fault: Option<Fault>,
    pub result: Result<(), Errno>,
    /// A scenario decides when it goes on.
    pub is_held: bool,
    /// The volume of an abandonment.
    pub volume: Option<VolumeIndex>,
}
