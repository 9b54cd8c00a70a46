//! A core without a cache: every volume is its origin.

use crate::buffers::Pool;
use crate::reactor::driver::Core;
use engine::effect::{Effect, Errno, Io, IoId, IoOp, Pieces, Request, RequestId, RequestOp, Target};
use engine::engine::Busy;
use engine::memory::{Memory, Slice};
use engine::units::{Nanos, SECTOR_BYTES, SectorRange, VolumeIndex};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};

/// A request under way at its origin, which is no flush.
struct Passing {
    id: RequestId,
    volume: VolumeIndex,
    slice: Option<Slice>,
    /// A flush has to follow before the reply.
    flush_after: bool,
    /// An origin that cannot discard has done as it should: the content may stay.
    may_refuse: bool,
}

/// An operation under way at an origin.
enum Flight {
    One(Passing),
    /// The only flush that its origin is asked for.
    Flush(VolumeIndex),
}

/// The flushes of an origin. Those that come while one is under way are not covered by it, and share the next one.
#[derive(Default)]
struct Flushes {
    under_way: Vec<RequestId>,
    waiting: Vec<RequestId>,
}

/// A server of origins as they are: for a volume whose cache is missing, and as the yardstick of measurements. Of the
/// operator's requests it knows [`RequestOp::Stop`], and [`RequestOp::Drain`] and [`RequestOp::CancelDrain`], which
/// have nothing to do.
#[derive(Default)]
pub struct Passthrough {
    flights: Slab<Flight>,
    flushes: BTreeMap<VolumeIndex, Flushes>,
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
        if self.flights.is_empty()
            && let Some(id) = self.stopping.take()
        {
            self.effects.push_back(Effect::Reply { id, result: Ok(()) });
        }
    }

    fn pass(&mut self, passing: Passing, op: IoOp) {
        let target = Target::Origin(passing.volume);
        let id = IoId(self.flights.insert(Flight::One(passing)) as u64);
        self.effects.push_back(Effect::Io(Io { id, target, op }));
    }

    /// Answers a request when a flush has ended that begins from now on.
    fn flush(&mut self, id: RequestId, volume: VolumeIndex) {
        let flushes = self.flushes.entry(volume).or_default();
        flushes.waiting.push(id);
        if flushes.under_way.is_empty() {
            self.begin_flush(volume);
        }
    }

    /// Begins a flush for all that wait for one.
    fn begin_flush(&mut self, volume: VolumeIndex) {
        let flushes = self.flushes.entry(volume).or_default();
        flushes.under_way = std::mem::take(&mut flushes.waiting);
        if !flushes.under_way.is_empty() {
            let id = IoId(self.flights.insert(Flight::Flush(volume)) as u64);
            self.effects.push_back(Effect::Io(Io { id, target: Target::Origin(volume), op: IoOp::Flush }));
        }
    }

    fn end_flush(&mut self, volume: VolumeIndex, result: Result<(), Errno>) {
        let flushes = self.flushes.entry(volume).or_default();
        let mut ended = std::mem::take(&mut flushes.under_way);
        if result.is_err() {
            // What it lost may be what they are to cover, and a device tells of that once.
            ended.append(&mut flushes.waiting);
        }
        self.begin_flush(volume);
        if let Some(last) = ended.pop() {
            let replies = ended.into_iter().map(|id| Effect::Reply { id, result });
            self.effects.extend(replies);
            self.reply(last, result);
        }
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
            RequestOp::Flush => self.flush(id, volume),
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
            RequestOp::Stop if self.flights.is_empty() => self.reply(id, Ok(())),
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
        let passing = match self.flights.remove(usize::try_from(io.0).expect("an id of ours")) {
            Flight::One(passing) => passing,
            Flight::Flush(volume) => return self.end_flush(volume, result),
        };
        let result = match result {
            Err(Errno::OPNOTSUPP) if passing.may_refuse => Ok(()),
            other => other,
        };
        if let Some(slice) = passing.slice {
            memory.release(slice.buffer);
        }
        if passing.flush_after && result.is_ok() {
            self.flush(passing.id, passing.volume);
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

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeIndex = VolumeIndex(0);

    struct Scene {
        core: Passthrough,
        memory: Pool,
    }

    impl Scene {
        fn new() -> Scene {
            Scene { core: Passthrough::new(), memory: Pool::new(1 << 20).expect("memory") }
        }

        fn ask(&mut self, id: u64, op: RequestOp) {
            let request = Request { id: RequestId(id), volume: VOLUME, op };
            self.core.submit(Nanos(0), request, &mut self.memory).expect("it takes all");
        }

        fn complete(&mut self, io: IoId, result: Result<(), Errno>) {
            self.core.complete(Nanos(0), io, result, &mut self.memory);
        }

        /// The flushes that are begun now, and the answers that are given.
        fn news(&mut self) -> (Vec<IoId>, Vec<(u64, bool)>) {
            let (mut flushes, mut answers) = (Vec::new(), Vec::new());
            while let Some(effect) = self.core.poll_effect(&mut self.memory) {
                match effect {
                    Effect::Io(Io { id, op: IoOp::Flush, .. }) => flushes.push(id),
                    Effect::Reply { id, result } => answers.push((id.0, result.is_ok())),
                    _ => {}
                }
            }
            (flushes, answers)
        }
    }

    #[test]
    fn flushes_that_wait_share_the_next_one() {
        let mut scene = Scene::new();
        for id in 1..=4 {
            scene.ask(id, RequestOp::Flush);
        }
        let (flushes, answers) = scene.news();
        assert_eq!((flushes.len(), answers.len()), (1, 0), "an origin has one flush at a time");
        scene.complete(flushes[0], Ok(()));
        let (flushes, answers) = scene.news();
        assert_eq!(answers, [(1, true)], "the others came after it had begun");
        assert_eq!(flushes.len(), 1, "they share one");
        scene.ask(5, RequestOp::Stop);
        scene.complete(flushes[0], Ok(()));
        assert_eq!(scene.news(), (vec![], vec![(2, true), (3, true), (4, true), (5, true)]));
    }

    #[test]
    fn a_flush_that_fails_is_told_to_all_that_wait() {
        let mut scene = Scene::new();
        for id in 1..=3 {
            scene.ask(id, RequestOp::Flush);
        }
        let (flushes, _) = scene.news();
        scene.complete(flushes[0], Err(Errno::IO));
        let (flushes, mut answers) = scene.news();
        answers.sort_unstable();
        assert_eq!(answers, [(1, false), (2, false), (3, false)], "an origin tells of its loss once");
        assert!(flushes.is_empty(), "nobody waits for another one");
        scene.ask(4, RequestOp::Flush);
        assert_eq!(scene.news().0.len(), 1, "a later one has a flush of its own");
    }
}
