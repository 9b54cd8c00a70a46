//! ublk door of a reactor: its queues, and what happens to them.

use super::request::Request;
use crate::doors::{Door, DoorNumber, Newcomer};
use crate::kernel::KernelClient;
use crate::kernel::ublk::{Order as Command, Queue};
use crate::reactor::backend::Operation;
use crate::reactor::driver::{Core, Piece, Turn};
use crate::reactor::wakeups::Order;
use engine::effect::Errno;
use engine::units::Nanos;
use slab::Slab;
use std::collections::VecDeque;

/// Longest wait of a queue for its first memory; then clients that do nothing have to give up theirs.
const STARVING_NS_MAX: u64 = Nanos::SECOND;
/// Bits of a tag in the name of one, beside its queue's key.
const TAG_BITS: u32 = 16;

/// A tag of a queue of this door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub queue: usize,
    pub tag: u16,
}

impl Place {
    /// Its name in a piece of a request, and in an event.
    pub(super) fn name(self) -> usize {
        self.queue << TAG_BITS | usize::from(self.tag)
    }

    pub(super) fn of(name: usize) -> Place {
        let tag = u16::try_from(name & ((1 << TAG_BITS) - 1)).expect("sixteen bits");
        Place { queue: name >> TAG_BITS, tag }
    }
}

/// A queue that is served.
pub(super) struct Served {
    pub queue: Queue,
    /// The place of its export.
    pub place: usize,
    /// Requests by tag.
    pub requests: Box<[Option<Request>]>,
    /// Tags whose requests are not handed on wholly, in order; all but the first wait for it.
    pub waiting: VecDeque<u16>,
    /// Tags whose commands are at the driver.
    pub commands: usize,
    /// Requests that the core has not answered wholly, or that wait.
    pub under_way: usize,
    /// Memory of the pool that they hold.
    pub held_bytes: u64,
    /// The server stops: nothing more is answered.
    pub is_closed: bool,
    /// Its export is offered no longer: all that comes fails, whatever is offered at the same place later.
    pub is_gone: bool,
    /// It does not count as a client any more.
    has_left: bool,
}

/// ublk door of one reactor.
pub(crate) struct UblkDoor {
    pub(super) queues: Slab<Served>,
    pub(super) number: DoorNumber,
    is_open: bool,
    /// Time since which some queue waits for its first memory, or of the last relief by others' memory.
    starving: Option<Nanos>,
    /// Whether a request came since [`Door::expects_bytes_soon`].
    pub(super) has_moved: bool,
}

impl UblkDoor {
    pub(crate) fn new(number: DoorNumber) -> UblkDoor {
        UblkDoor { queues: Slab::new(), number, is_open: true, starving: None, has_moved: false }
    }

    /// Gives the driver a command for a tag.
    pub(super) fn command<C>(&mut self, place: Place, command: Command, turn: &mut Turn<'_, C>) {
        self.queues[place.queue].commands += 1;
        let token = self.number.token(place.name() as u64);
        // SAFETY: a command of a queue points to no memory. Its file stays open until it is started at least: the queue
        // has it, and is kept until all its commands have come back.
        unsafe { turn.backend.push(token, Operation::Queue(command)) };
    }

    /// Lets go of a queue that is at its end.
    pub(super) fn bury<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        let served = &mut self.queues[key];
        if served.under_way > 0 || !(served.is_closed || served.commands == 0) {
            return;
        }
        if !std::mem::replace(&mut served.has_left, true) {
            turn.driver.wakeups.left(turn.reactor);
        }
        // Of a queue that is left to the next server, the commands go with the ring.
        if served.commands == 0 {
            self.queues.remove(key);
        }
    }

    /// Closes connections that hold memory and do nothing, at all doors, while a queue can get no memory at all.
    fn relieve_starving<C: Core>(&mut self, turn: &mut Turn<'_, C>) {
        let starves = |served: &Served| !served.waiting.is_empty() && served.held_bytes == 0;
        if !self.queues.iter().any(|(_, served)| starves(served)) {
            self.starving = None;
            return;
        }
        let now = turn.driver.now;
        if now.since(*self.starving.get_or_insert(now)) >= STARVING_NS_MAX {
            self.starving = Some(now);
            turn.driver.wakeups.order_all(|| Order::Relieve);
        }
    }
}

impl<C: Core> Door<C> for UblkDoor {
    fn tick(&mut self, turn: &mut Turn<'_, C>) {
        let waits = |served: &Served| !served.waiting.is_empty();
        let waiting: Vec<usize> =
            self.queues.iter().filter(|(_, served)| waits(served)).map(|(key, _)| key).collect();
        if !waiting.is_empty() || self.starving.is_some() {
            waiting.into_iter().for_each(|key| self.advance(key, turn));
            self.relieve_starving(turn);
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        self.starving.map(|since| since.plus(STARVING_NS_MAX))
    }

    fn finished(&mut self, event: u64, result: i32, turn: &mut Turn<'_, C>) {
        let place = Place::of(usize::try_from(event).expect("a name of ours"));
        self.has_moved = true;
        self.came_back(place, result, turn);
    }

    fn answered(&mut self, piece: Piece, result: Result<(), Errno>, turn: &mut Turn<'_, C>) {
        self.take_answer(piece, result, turn);
    }

    /// Answers are sent with everything else that the ring is given.
    fn send(&mut self, _: &mut Turn<'_, C>) {}

    fn adopt(&mut self, _: Newcomer, turn: &mut Turn<'_, C>) {
        turn.driver.wakeups.left(turn.reactor);
    }

    fn serve(&mut self, client: KernelClient, place: usize, turn: &mut Turn<'_, C>) {
        let (true, KernelClient::Queue(queue)) = (self.is_open, client) else {
            return turn.driver.wakeups.left(turn.reactor);
        };
        let tags = queue.tags();
        let served = Served {
            queue,
            place,
            requests: (0..tags).map(|_| None).collect(),
            waiting: VecDeque::with_capacity(tags.into()),
            commands: 0,
            under_way: 0,
            held_bytes: 0,
            is_closed: false,
            is_gone: false,
            has_left: false,
        };
        let key = self.queues.insert(served);
        for tag in 0..tags {
            let command = self.queues[key].queue.fetch(tag);
            self.command(Place { queue: key, tag }, command, turn);
        }
    }

    /// A queue ends with its device alone. It may stay if the export has only changed, as it is asked for with each
    /// request.
    fn disconnect(&mut self, place: usize, turn: &mut Turn<'_, C>) {
        if turn.driver.offers.exports()[place].is_some() {
            return;
        }
        let concerned = self.queues.iter().filter(|(_, served)| served.place == place);
        let keys: Vec<usize> = concerned.map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.forsake(key, turn));
    }

    fn relieve(&mut self, _: &mut Turn<'_, C>) {}

    fn make_room(&mut self, _: &mut Turn<'_, C>) {}

    fn shut(&mut self, turn: &mut Turn<'_, C>) {
        self.is_open = false;
        let keys: Vec<usize> = self.queues.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.close(key, turn));
    }

    fn is_blocked(&self) -> bool {
        self.queues.iter().any(|(_, served)| !served.waiting.is_empty())
    }

    fn expects_bytes_soon(&mut self) -> bool {
        let has_moved = std::mem::take(&mut self.has_moved);
        let mut queues = self.queues.iter();
        let (Some((_, only)), None) = (queues.next(), queues.next()) else { return false };
        has_moved && only.under_way <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_back_from_its_name() {
        for place in [Place { queue: 0, tag: 0 }, Place { queue: 255, tag: 256 }] {
            assert_eq!(Place::of(place.name()), place);
        }
    }
}
