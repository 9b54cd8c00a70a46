//! Requests of the clients as a world keeps them.

use crate::content::Tag;
use crate::oracle::Moment;
use engine::effect::{Errno, RequestOp, WriteMode};
use engine::memory::Slice;
use engine::units::SectorRange;

/// A request that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The engine's result.
    pub result: Result<(), Errno>,
    /// Sectors that a read returned.
    pub found: Vec<Tag>,
}

/// A request that was not answered yet.
pub(super) struct Outstanding {
    pub volume: usize,
    pub op: RequestOp,
    pub at: Moment,
    /// The buffer of a read; the world has a reference of its own.
    pub buffer: Option<Slice>,
}

impl Outstanding {
    /// Whether it changes content.
    pub fn is_change(&self) -> bool {
        matches!(self.op, RequestOp::Write { .. } | RequestOp::Discard { .. } | RequestOp::WriteZeroes { .. })
    }
}

/// Whether writes in this mode go to the origin alone.
pub(super) fn bypasses(mode: WriteMode) -> bool {
    matches!(mode, WriteMode::Writearound | WriteMode::Passthrough)
}

/// Range that a request is about.
pub(super) fn range_of(op: RequestOp) -> Option<SectorRange> {
    match op {
        RequestOp::Read { range, .. }
        | RequestOp::Warm { range, .. }
        | RequestOp::Scrub(range)
        | RequestOp::Write { range, .. }
        | RequestOp::Discard { range, .. }
        | RequestOp::WriteZeroes { range, .. } => Some(range),
        _ => None,
    }
}

/// Name of a request in traces and violations.
pub(super) fn name_of(op: RequestOp) -> &'static str {
    match op {
        RequestOp::Read { .. } => "read",
        RequestOp::Warm { .. } => "warm",
        RequestOp::Scrub(_) => "scrub",
        RequestOp::Write { fua: false, .. } => "write",
        RequestOp::Write { fua: true, .. } => "write-fua",
        RequestOp::Flush => "flush",
        RequestOp::Discard { .. } => "discard",
        RequestOp::WriteZeroes { .. } => "write-zeroes",
        RequestOp::SetMode(_) => "set-mode",
        RequestOp::SetSize(_) => "set-size",
        RequestOp::Drain => "drain",
        RequestOp::CancelDrain => "cancel-drain",
        RequestOp::HoldDestage(_) => "hold-destage",
        RequestOp::SetOrder(_) => "set-order",
        RequestOp::SetRoom(_) => "set-room",
        RequestOp::SetWearBudget(_) => "set-wear-budget",
        RequestOp::ScrubSegment(_) => "scrub-segment",
        RequestOp::Rejoin => "rejoin",
        RequestOp::Detach => "detach",
        RequestOp::Add => "add",
        RequestOp::GiveUpLost => "give-up-lost",
        RequestOp::Stop => "stop",
    }
}
