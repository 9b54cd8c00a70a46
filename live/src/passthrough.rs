//! A core without a cache: every volume is its origin.

use crate::buffers::Pool;
use crate::reactor::driver::Core;
use engine::effect::{Effect, Errno, Io, IoId, IoOp, Notice, Pieces, Request, RequestId, RequestOp, Target};
use engine::engine::Busy;
use engine::lost_changes::{ClientChanges, Group, Reached};
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
    is_change: bool,
}

/// An operation under way at an origin.
enum Flight {
    One(Passing),
    /// The only flush that its origin is asked for.
    Flush(VolumeIndex),
}

/// A request that is answered behind a flush.
#[derive(Clone, Copy)]
struct Waiting {
    id: RequestId,
    /// The group of calls in which it came.
    came_in: Group,
    /// A FLUSH, which speaks for what was answered before it came. Else a change that is to be durable, which the origin has.
    is_flush: bool,
}

/// The flushes of an origin. Those that come while one is under way are not covered by it, and share the next one.
#[derive(Default)]
struct Flushes {
    under_way: Vec<Waiting>,
    waiting: Vec<Waiting>,
    /// The changes that a flush which fails may lose (hazard 11).
    changes: ClientChanges,
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
    /// The group of calls behind which the effects are drawn next.
    group: Group,
}

impl Passthrough {
    /// A core for any number of volumes.
    #[must_use]
    pub fn new() -> Passthrough {
        Passthrough::after_losses(&[])
    }

    /// A core whose clients were not told of these losses of origins yet.
    #[must_use]
    pub fn after_losses(losses: &[(VolumeIndex, Errno)]) -> Passthrough {
        // What came before belongs to the group before the first.
        let mut core = Passthrough { group: Group(1), ..Passthrough::default() };
        for (volume, errno) in losses {
            core.flushes.entry(*volume).or_default().changes.lose(*errno);
        }
        core
    }

    /// The losses of origins of which no FLUSH has told yet.
    #[must_use]
    pub fn untold_losses(&self) -> Vec<(VolumeIndex, Errno)> {
        let untold = |(volume, flushes): (&VolumeIndex, &Flushes)| Some((*volume, flushes.changes.untold()?));
        self.flushes.iter().filter_map(untold).collect()
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
    fn flush(&mut self, id: RequestId, volume: VolumeIndex, is_flush: bool) {
        let flushes = self.flushes.entry(volume).or_default();
        flushes.waiting.push(Waiting { id, came_in: self.group, is_flush });
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
        let mut reached = Reached::Origin;
        if let Err(errno) = result {
            // What it lost may be what they are to cover, and a device tells of that once.
            ended.append(&mut flushes.waiting);
            let speaks = |one: &Waiting| one.is_flush && flushes.changes.are_spoken_for(one.came_in);
            if !ended.iter().any(speaks) {
                flushes.changes.lose(errno);
                reached = Reached::Lost;
                self.effects.push_back(Effect::Notice(Notice::ChangesLost { volume, errno }));
            }
        }
        let mut results = Vec::with_capacity(ended.len());
        for Waiting { id, came_in, is_flush } in ended {
            let mut told = result;
            if is_flush && result.is_ok() {
                told = flushes.changes.tell(came_in, true).map_or(Ok(()), Err);
            } else if !is_flush {
                flushes.changes.answered(reached, self.group);
            }
            results.push((id, told));
        }
        self.begin_flush(volume);
        if let Some((last, result)) = results.pop() {
            self.effects.extend(results.into_iter().map(|(id, result)| Effect::Reply { id, result }));
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
            is_change: !matches!(op, RequestOp::Read { .. }),
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
            RequestOp::Flush => self.flush(id, volume, true),
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
        let is_done = passing.is_change && result.is_ok();
        if is_done {
            self.flushes.entry(passing.volume).or_default().changes.begin();
        }
        if passing.flush_after && result.is_ok() {
            self.flush(passing.id, passing.volume, false);
        } else {
            self.reply(passing.id, result);
            if is_done {
                let flushes = self.flushes.entry(passing.volume).or_default();
                flushes.changes.answered(Reached::Origin, self.group);
            }
        }
    }

    fn advance(&mut self, _now: Nanos, _memory: &mut Pool) {}

    fn poll_effect(&mut self, _memory: &mut Pool) -> Option<Effect> {
        let effect = self.effects.pop_front();
        if effect.is_none() {
            self.group = Group(self.group.0 + 1);
        }
        effect
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
        /// Operations under way that are no flushes.
        others: Vec<IoId>,
    }

    impl Scene {
        fn new() -> Scene {
            Scene::with(Passthrough::new())
        }

        fn with(core: Passthrough) -> Scene {
            Scene { core, memory: Pool::new(1 << 20).expect("memory"), others: Vec::new() }
        }

        /// A change works, that is to be durable or not.
        fn zero(&mut self, id: u64, fua: bool) {
            self.ask(id, RequestOp::WriteZeroes { range: SectorRange { start: 0, sectors: 8 }, fua });
            self.news();
            let io = self.others.pop().expect("it goes to the origin");
            self.complete(io, Ok(()));
        }

        /// A FLUSH that the origin carries out works, or not.
        fn flush(&mut self, id: u64) -> bool {
            self.ask(id, RequestOp::Flush);
            let (flushes, _) = self.news();
            self.complete(flushes[0], Ok(()));
            self.news().1.contains(&(id, true))
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
                    Effect::Io(Io { id, .. }) => self.others.push(id),
                    Effect::Reply { id, result } => answers.push((id.0, result.is_ok())),
                    Effect::Notice(_) => {}
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
        assert!(scene.flush(4), "a later one has a flush of its own");
    }

    #[test]
    fn a_durable_change_that_fails_does_not_speak_for_others() {
        let mut scene = Scene::new();
        scene.zero(1, false);
        scene.zero(2, true);
        let (flushes, _) = scene.news();
        scene.complete(flushes[0], Err(Errno::IO));
        assert_eq!(scene.news().1, [(2, false)]);
        assert_eq!(scene.core.untold_losses(), [(VOLUME, Errno::IO)]);
        assert!(!scene.flush(3), "the first change may be lost, and nobody was told");
        assert!(scene.core.untold_losses().is_empty() && scene.flush(4), "once");
    }

    #[test]
    fn a_flush_that_fails_does_not_speak_for_what_came_meanwhile() {
        let mut scene = Scene::new();
        scene.ask(1, RequestOp::Flush);
        let (flushes, _) = scene.news();
        scene.zero(2, false);
        scene.news();
        scene.complete(flushes[0], Err(Errno::IO));
        assert_eq!(scene.news().1, [(1, false)]);
        assert!(!scene.flush(3) && scene.flush(4));
    }

    #[test]
    fn what_the_one_before_did_not_tell_is_told() {
        let mut scene = Scene::with(Passthrough::after_losses(&[(VOLUME, Errno::IO)]));
        assert!(!scene.flush(1) && scene.flush(2));
    }
}
