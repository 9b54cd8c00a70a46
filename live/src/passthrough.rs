//! A core without a cache: every volume is its origin.

use crate::buffers::Pool;
use crate::reactor::driver::Core;
use engine::effect::{Effect, Errno, Io, IoId, IoOp, Pieces, Request, RequestId, RequestOp, Target};
use engine::engine::Busy;
use engine::memory::{Memory, Slice};
use engine::units::{Nanos, SECTOR_BYTES, SectorRange, VolumeIndex};
use slab::Slab;
use std::collections::VecDeque;

/// A request under way at its origin.
struct Passing {
    id: RequestId,
    volume: VolumeIndex,
    slice: Option<Slice>,
    /// A flush has to follow before the reply.
    flush_after: bool,
    /// An origin that cannot discard has done as it should: the content may stay.
    may_refuse: bool,
}

/// A server of origins as they are: for a volume whose cache is missing, and as the yardstick of measurements. Of the
/// operator's requests it knows [`RequestOp::Stop`], and [`RequestOp::Drain`] and [`RequestOp::CancelDrain`], which
/// have nothing to do.
#[derive(Default)]
pub struct Passthrough {
    passing: Slab<Passing>,
    effects: VecDeque<Effect>,
    stopping: Option<RequestId>,
}

impl Passthrough {
    /// A core for any number of volumes.
    #[must_use]
    pub fn new() -> Passthrough {
        Passthrough::default()
    }

    fn reply(&mut self, id: RequestId, result: Result<(), Errno>) {
        self.effects.push_back(Effect::Reply { id, result });
        if self.passing.is_empty()
            && let Some(id) = self.stopping.take()
        {
            self.effects.push_back(Effect::Reply { id, result: Ok(()) });
        }
    }

    fn pass(&mut self, passing: Passing, op: IoOp) {
        let target = Target::Origin(passing.volume);
        let id = IoId(self.passing.insert(passing) as u64);
        self.effects.push_back(Effect::Io(Io { id, target, op }));
    }
}

fn offset_bytes(range: SectorRange) -> u64 {
    range.start * SECTOR_BYTES
}

fn len_bytes(range: SectorRange) -> u64 {
    range.sectors * SECTOR_BYTES
}

impl Core for Passthrough {
    fn submit(&mut self, _now: Nanos, request: Request, memory: &mut Pool) -> Result<(), Busy> {
        let Request { id, volume, op } = request;
        let passing = |slice: Option<Slice>, flush_after: bool| Passing {
            id,
            volume,
            slice,
            flush_after,
            may_refuse: matches!(op, RequestOp::Discard { .. }),
        };
        match op {
            RequestOp::Read { range, into } => self.pass(
                passing(Some(into), false),
                IoOp::Read { offset_bytes: offset_bytes(range), into: Pieces::One(into) },
            ),
            RequestOp::Write { range, from, fua } => self.pass(
                passing(Some(from), fua),
                IoOp::Write { offset_bytes: offset_bytes(range), from: Pieces::One(from) },
            ),
            RequestOp::Warm { into, .. } => {
                memory.release(into.buffer);
                self.reply(id, Err(Errno::OPNOTSUPP));
            }
            RequestOp::Flush => self.pass(passing(None, false), IoOp::Flush),
            RequestOp::Discard { range, fua } => self.pass(
                passing(None, fua),
                IoOp::Discard { offset_bytes: offset_bytes(range), len_bytes: len_bytes(range) },
            ),
            RequestOp::WriteZeroes { range, fua } => self.pass(
                passing(None, fua),
                IoOp::WriteZeroes { offset_bytes: offset_bytes(range), len_bytes: len_bytes(range) },
            ),
            RequestOp::Drain
            | RequestOp::CancelDrain
            | RequestOp::HoldDestage(_)
            | RequestOp::SetOrder(_)
            | RequestOp::SetRoom(_)
            | RequestOp::SetWearBudget(_) => self.reply(id, Ok(())),
            RequestOp::Stop if self.passing.is_empty() => self.reply(id, Ok(())),
            RequestOp::Stop => self.stopping = Some(id),
            RequestOp::SetMode(_)
            | RequestOp::SetSize(_)
            | RequestOp::Detach
            | RequestOp::Add
            | RequestOp::Scrub(_)
            | RequestOp::ScrubSegment(_)
            | RequestOp::Rejoin
            | RequestOp::GiveUpLost => {
                self.reply(id, Err(Errno::OPNOTSUPP));
            }
        }
        Ok(())
    }

    fn complete(&mut self, _now: Nanos, io: IoId, result: Result<(), Errno>, memory: &mut Pool) {
        let passing = self.passing.remove(usize::try_from(io.0).expect("an id of ours"));
        let result = match result {
            Err(Errno::OPNOTSUPP) if passing.may_refuse => Ok(()),
            other => other,
        };
        if let Some(slice) = passing.slice {
            memory.release(slice.buffer);
        }
        if passing.flush_after && result.is_ok() {
            let flush = Passing { slice: None, flush_after: false, may_refuse: false, ..passing };
            self.pass(flush, IoOp::Flush);
        } else {
            self.reply(passing.id, result);
        }
    }

    fn advance(&mut self, _now: Nanos, _memory: &mut Pool) {}

    fn poll_effect(&mut self, _memory: &mut Pool) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }
}
