//! Queues in front of the core, one for each volume: a volume whose origin is slow has so many requests in the core, and the
//! others find their places free.

use engine::effect::{Request, RequestOp};
use engine::limits::{RANGE_BYTES_MAX, REQUESTS_MAX};
use engine::units::{SECTOR_BYTES, VOLUMES_MAX, VolumeIndex};
use std::collections::VecDeque;

/// Requests of one volume in the core, at most. Of what the core takes, some are left for operators.
const REQUESTS_OF_VOLUME_MAX: u32 = 500;
/// Bytes of a volume's discards and write-zeroes in the core, at most: long ranges keep much else waiting.
const RANGES_OF_VOLUME_BYTES_MAX: u64 = 4 * RANGE_BYTES_MAX;

const _: () = assert!(
    VOLUMES_MAX * (REQUESTS_OF_VOLUME_MAX as usize) < REQUESTS_MAX,
    "all volumes together leave the core some places"
);

/// The place of a request in the core: what it takes of the share of its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    volume: VolumeIndex,
    range_bytes: u64,
}

impl Place {
    /// The place that a request takes.
    pub(crate) fn of(request: &Request) -> Place {
        let range_bytes = match request.op {
            RequestOp::Discard { range, .. } | RequestOp::WriteZeroes { range, .. } => {
                range.sectors * SECTOR_BYTES
            }
            _ => 0,
        };
        Place { volume: request.volume, range_bytes }
    }
}

#[derive(Debug, Default)]
struct Queue {
    /// Requests in the core, and the bytes of ranges among them.
    under_way: u32,
    range_bytes: u64,
    waiting: VecDeque<Request>,
    /// Discards and write-zeroes that wait: others may overtake them.
    ranges: VecDeque<Request>,
    /// The last one that had waited was no range.
    is_turn_of_range: bool,
}

impl Queue {
    fn has_place(&self) -> bool {
        self.under_way < REQUESTS_OF_VOLUME_MAX
    }

    fn has_place_for_range(&self) -> bool {
        self.has_place() && self.range_bytes < RANGES_OF_VOLUME_BYTES_MAX
    }

    fn next(&mut self) -> Option<Request> {
        if !self.has_place() {
            return None;
        }
        // By turns: who asks for much all the time must not keep ranges waiting for ever.
        let may_be_range = self.has_place_for_range() && !self.ranges.is_empty();
        let is_range = may_be_range && (self.is_turn_of_range || self.waiting.is_empty());
        self.is_turn_of_range = !is_range;
        if is_range { self.ranges.pop_front() } else { self.waiting.pop_front() }
    }
}

/// The queues of all volumes.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    volumes: [Queue; VOLUMES_MAX],
    /// The volume whose turn it is.
    turn: usize,
    waiting: usize,
}

impl Queues {
    /// Whether a request need not wait: its volume has a place for it, and nobody of its kind waits.
    #[inline]
    pub(crate) fn may_pass(&self, place: Place) -> bool {
        let queue = &self.volumes[place.volume.at()];
        match place.range_bytes {
            0 => queue.has_place() && queue.waiting.is_empty(),
            _ => queue.has_place_for_range() && queue.ranges.is_empty() && queue.waiting.is_empty(),
        }
    }

    /// Notes that a request is in the core.
    #[inline]
    pub(crate) fn begins(&mut self, place: Place) {
        let queue = &mut self.volumes[place.volume.at()];
        queue.under_way += 1;
        queue.range_bytes += place.range_bytes;
    }

    /// Notes that the core has answered a request.
    #[inline]
    pub(crate) fn ended(&mut self, place: Place) {
        let queue = &mut self.volumes[place.volume.at()];
        queue.under_way -= 1;
        queue.range_bytes -= place.range_bytes;
    }

    /// Puts a request behind the others of its volume.
    pub(crate) fn push(&mut self, request: Request) {
        self.line_of(&request).push_back(request);
        self.waiting += 1;
    }

    /// Puts a request back that was just taken.
    pub(crate) fn push_first(&mut self, request: Request) {
        self.line_of(&request).push_front(request);
        self.waiting += 1;
    }

    fn line_of(&mut self, request: &Request) -> &mut VecDeque<Request> {
        let place = Place::of(request);
        let Queue { waiting, ranges, .. } = &mut self.volumes[place.volume.at()];
        if place.range_bytes > 0 { ranges } else { waiting }
    }

    /// Takes the next request for which there is a place: of each volume in its turn.
    pub(crate) fn next(&mut self) -> Option<Request> {
        if self.waiting == 0 {
            return None;
        }
        for step in 0..VOLUMES_MAX {
            let at = (self.turn + step) % VOLUMES_MAX;
            if let Some(request) = self.volumes[at].next() {
                self.turn = (at + 1) % VOLUMES_MAX;
                self.waiting -= 1;
                return Some(request);
            }
        }
        None
    }

    /// Takes out the requests of a volume that wait and that nobody wants any more.
    pub(crate) fn withdraw(
        &mut self,
        volume: VolumeIndex,
        is_unwanted: impl Fn(&Request) -> bool,
    ) -> Vec<Request> {
        let mut withdrawn = Vec::new();
        let Queue { waiting, ranges, .. } = &mut self.volumes[volume.at()];
        for queue in [waiting, ranges] {
            let (unwanted, wanted): (VecDeque<_>, _) =
                std::mem::take(queue).into_iter().partition(|request| is_unwanted(request));
            *queue = wanted;
            withdrawn.extend(unwanted);
        }
        self.waiting -= withdrawn.len();
        withdrawn
    }

    /// How many requests wait.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::effect::RequestId;
    use engine::units::SectorRange;

    fn flush(id: u64, volume: u8) -> Request {
        Request { id: RequestId(id), volume: VolumeIndex(volume), op: RequestOp::Flush }
    }

    fn discard(id: u64, volume: u8) -> Request {
        let range = SectorRange { start: 0, sectors: RANGE_BYTES_MAX / 512 };
        Request {
            id: RequestId(id),
            volume: VolumeIndex(volume),
            op: RequestOp::Discard { range, fua: false },
        }
    }

    /// Hands a request over, as the driver does.
    fn ask(queues: &mut Queues, request: Request) -> bool {
        let place = Place::of(&request);
        let passes = queues.may_pass(place);
        if passes {
            queues.begins(place)
        } else {
            queues.push(request)
        }
        passes
    }

    fn next(queues: &mut Queues) -> Option<u64> {
        let request = queues.next()?;
        queues.begins(Place::of(&request));
        Some(request.id.0)
    }

    #[test]
    fn a_volume_that_hangs_keeps_the_places_of_no_other() {
        let mut queues = Queues::default();
        let passed = (0..10_000).filter(|&id| ask(&mut queues, flush(id, 0))).count();
        assert_eq!(passed, REQUESTS_OF_VOLUME_MAX as usize);
        assert!(ask(&mut queues, flush(10_000, 1)), "the other volume's places are free");
        assert_eq!(next(&mut queues), None);
        queues.ended(Place::of(&flush(0, 0)));
        assert_eq!((next(&mut queues), next(&mut queues)), (Some(500), None), "in their order");
    }

    #[test]
    fn volumes_take_turns() {
        let mut queues = Queues::default();
        for id in 0..3 {
            queues.push(flush(id, 3));
            queues.push(flush(10 + id, 5));
        }
        let order: Vec<u64> = std::iter::from_fn(|| next(&mut queues)).collect();
        assert_eq!(order, [0, 10, 1, 11, 2, 12]);
        assert_eq!(queues.waiting(), 0);
    }

    #[test]
    fn long_ranges_are_few_and_keep_nothing_else_waiting() {
        let mut queues = Queues::default();
        let passed = (0..100).filter(|&id| ask(&mut queues, discard(id, 0))).count();
        assert_eq!(passed, 4);
        assert!(ask(&mut queues, flush(100, 0)), "a flush overtakes them");
        assert_eq!(next(&mut queues), None);
        queues.ended(Place::of(&discard(0, 0)));
        assert_eq!(next(&mut queues), Some(4));
    }

    /// A client that never lets its queue run empty must not keep its own discards, or another client's, waiting for ever.
    #[test]
    fn ranges_have_their_turn_while_others_wait() {
        let mut queues = Queues::default();
        for id in 0..600 {
            ask(&mut queues, flush(id, 0));
        }
        assert!(!ask(&mut queues, discard(1_000, 0)));
        let went = (1_001..1_005).position(|id| {
            assert!(!ask(&mut queues, flush(id, 0)));
            queues.ended(Place::of(&flush(0, 0)));
            next(&mut queues) == Some(1_000)
        });
        assert_eq!(went, Some(1), "one that waited longer goes before it");
    }

    #[test]
    fn what_nobody_wants_is_withdrawn() {
        let mut queues = Queues::default();
        (0..6).for_each(|id| queues.push(if id < 3 { flush(id, 0) } else { discard(id, 0) }));
        queues.push(flush(6, 1));
        let withdrawn = queues.withdraw(VolumeIndex(0), |request| request.id.0 % 2 == 0);
        assert_eq!(withdrawn.iter().map(|request| request.id.0).collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!(queues.waiting(), 4);
    }
}
