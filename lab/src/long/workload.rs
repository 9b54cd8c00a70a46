//! Requests of clients, and their times: the border between a long run and its workloads.
//!
//! The run pulls. It asks a workload for its next request until the answer is no request, lets virtual
//! time go on to whatever comes first (a device, the engine's clock, the time the workload named), and
//! tells the workload of each answer. That serves all kinds:
//!
//! * closed loop (a depth, fio's jobs, iozone): a request while one of its slots is free, else
//!   [`Next::OnAnswer`]; a slot is free again in [`Workload::answered`];
//! * open loop (a trace by its time stamps): [`Next::At`] until the stamp is reached, and then the request
//!   with the stamp as [`Demand::due`], from which its latency counts;
//! * phases (write all, then flush, then read): [`Next::OnAnswer`] until the last answer of a phase.
//!
//! Virtual time goes on from one run to the next: a workload that counts from its own beginning takes
//! the time of its first [`Workload::next`].

use engine::effect::Errno;
use engine::units::{Nanos, SectorRange, VolumeIndex};

/// A request's action. Ranges are not empty and lie inside the volume; they may be of any length, the run cuts
/// them as a door does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the range.
    Read(SectorRange),
    /// Write the range.
    Write {
        /// Where to.
        range: SectorRange,
        /// Durable before the answer.
        fua: bool,
    },
    /// Make answered changes durable.
    Flush,
    /// The content is not needed any more.
    Discard(SectorRange),
    /// The range shall read as zeroes.
    WriteZeroes(SectorRange),
}

impl Action {
    /// The bytes it is about; 0 for a flush.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        match self {
            Action::Read(range)
            | Action::Write { range, .. }
            | Action::Discard(range)
            | Action::WriteZeroes(range) => range.sectors * engine::units::SECTOR_BYTES,
            Action::Flush => 0,
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The workload's own name for the request; comes back with the answer.
    pub job: u32,
    /// The volume.
    pub volume: VolumeIndex,
    /// The action.
    pub action: Action,
    /// When it came; not after the time at which it is handed over. Its latency counts from here.
    pub due: Nanos,
}

/// Next step of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A request, now.
    Demand(Demand),
    /// Nothing before this time, which has not come yet, unless an answer changes that.
    At(Nanos),
    /// Nothing before an answer; one is outstanding.
    OnAnswer,
    /// Nothing ever again. The run ends when all is answered.
    End,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request.
    pub demand: Demand,
    /// Now.
    pub answered: Nanos,
    /// How it went.
    pub result: Result<(), Errno>,
}

/// A source of requests. It must be a function of its own state and of these calls alone: no clock, no
/// randomness but from a seed.
pub trait Workload {
    /// The next thing to do at `now`. Called until it is no [`Next::Demand`].
    fn next(&mut self, now: Nanos) -> Next;
    /// A request was answered. [`Workload::next`] is called after it at the same time.
    fn answered(&mut self, answer: &Answer);
}

/// No request until a time: destage and reclaim go on.
pub(super) struct Idle {
    pub until: Nanos,
}

impl Workload for Idle {
    fn next(&mut self, now: Nanos) -> Next {
        if now < self.until { Next::At(self.until) } else { Next::End }
    }

    fn answered(&mut self, _: &Answer) {}
}
