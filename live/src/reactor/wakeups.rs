//! Wake-ups: orders and replies that reactors leave for each other, and the sleep of each reactor.
//!
//! All of it is under the lock of the shared state ([`crate::reactor::shared::Shared`]).

use crate::devices::Device;
use crate::doors::{DoorNumber, Newcomer};
use crate::kernel::KernelClient;
use crate::reactor::driver::Asker;
use crate::server::{Answer, ControlError};
use engine::effect::Errno;
use engine::units::Nanos;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Deadline of a reactor that sleeps until another one wakes it.
const FOR_EVER: Nanos = Nanos(u64::MAX);

/// Order from one reactor to the doors of another.
pub(crate) enum Order {
    /// Serve this client, which the same kind of door has accepted elsewhere.
    Adopt { door: DoorNumber, client: Newcomer },
    /// Serve the kernel, which is a client of this kind, the export at this place.
    Serve { client: KernelClient, place: usize },
    /// Send away the clients of the export at this place.
    Disconnect { place: usize, receipt: Arc<Receipt> },
    /// Operations may name this file from now on.
    Learn { file: RawFd, receipt: Arc<Receipt> },
    /// No operation names the file of this device any more.
    Forget { device: Device, receipt: Arc<Receipt> },
    /// Take no new clients, and disconnect the present ones.
    Shut { receipt: Option<Arc<Receipt>> },
    /// Clients of another door get no memory: disconnect those that hold some and do nothing.
    Relieve,
    /// A client finds all places taken: disconnect some of those that have asked for nothing yet.
    MakeRoom,
    /// Look again whether it is time to end.
    Look,
}

/// Receipt of an order to several reactors: when the last of them has obeyed and dropped it, the thread that
/// gave the order gets its answer.
pub(crate) struct Receipt {
    answer: Answer<()>,
    /// The error of one that could not obey; 0 for none.
    errno: AtomicI32,
}

impl Receipt {
    pub(crate) fn new(answer: Answer<()>) -> Arc<Receipt> {
        Arc::new(Receipt { answer, errno: AtomicI32::new(0) })
    }

    /// Notes that a reactor could not obey.
    pub(crate) fn fail(&self, errno: Errno) {
        self.errno.store(errno.0, Ordering::Relaxed);
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        let result = match *self.errno.get_mut() {
            0 => Ok(()),
            errno => Err(ControlError::Engine(Errno(errno))),
        };
        // The thread that asked may be gone.
        let _ = self.answer.send(result);
    }
}

/// One reactor, as the others see it.
#[derive(Default)]
struct Peer {
    /// Deadline of its sleep; `None` while it is awake, or has been woken.
    sleeps_until: Option<Nanos>,
    /// The pool's count of returned buffers when it fell asleep, if its clients wait for memory.
    waits_since: Option<u64>,
    /// Clients that it serves, or was ordered to.
    clients: usize,
    orders: VecDeque<Order>,
    replies: VecDeque<(Asker, Result<(), Errno>)>,
}

/// All reactors, as they see each other.
pub(crate) struct WakeUps {
    peers: Vec<Peer>,
    is_over: bool,
}

/// Set of sleeping reactors that have something to do now, one bit each.
#[derive(Clone, Copy)]
pub(crate) struct Woken(u32);

impl Woken {
    /// The numbers of these reactors.
    pub(crate) fn each(self) -> impl Iterator<Item = usize> {
        (0..32).filter(move |reactor| self.0 >> reactor & 1 == 1)
    }
}

impl WakeUps {
    pub(crate) fn new(count: usize) -> WakeUps {
        assert!(0 < count && count <= 32, "a set of reactors has 32 bits, one each");
        WakeUps { peers: (0..count).map(|_| Peer::default()).collect(), is_over: false }
    }

    // Orders and replies.

    /// Leaves an order for a reactor.
    pub(crate) fn order(&mut self, reactor: usize, order: Order) {
        self.peers[reactor].orders.push_back(order);
    }

    /// Leaves an order for every reactor, this one included.
    pub(crate) fn order_all(&mut self, mut order: impl FnMut() -> Order) {
        self.peers.iter_mut().for_each(|peer| peer.orders.push_back(order()));
    }

    /// Leaves an order for every reactor but this one.
    pub(crate) fn order_others(&mut self, this: usize, mut order: impl FnMut() -> Order) {
        let others = self.peers.iter_mut().enumerate().filter(|(reactor, _)| *reactor != this);
        others.for_each(|(_, peer)| peer.orders.push_back(order()));
    }

    /// The next order for a reactor.
    pub(crate) fn take_order(&mut self, reactor: usize) -> Option<Order> {
        self.peers[reactor].orders.pop_front()
    }

    /// Whether there is an order for a reactor.
    pub(crate) fn has_orders(&self, reactor: usize) -> bool {
        !self.peers[reactor].orders.is_empty()
    }

    /// Leaves a reply of the core for the reactor whose client, or whose control thread, asked.
    pub(crate) fn reply(&mut self, asker: Asker, result: Result<(), Errno>) {
        let reactor = match asker {
            Asker::Door { reactor, .. } => reactor,
            Asker::Control(_) => 0,
        };
        self.peers[reactor].replies.push_back((asker, result));
    }

    /// The next reply for a reactor.
    pub(crate) fn take_reply(&mut self, reactor: usize) -> Option<(Asker, Result<(), Errno>)> {
        self.peers[reactor].replies.pop_front()
    }

    /// Tells all reactors to end.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// Whether the reactors are to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    // Clients.

    /// Chooses the reactor with the fewest clients for a new one, which counts there from now on.
    pub(crate) fn admit(&mut self) -> usize {
        let fewest = (0..self.peers.len()).min_by_key(|reactor| self.peers[*reactor].clients);
        let reactor = fewest.expect("there is at least one reactor");
        self.peers[reactor].clients += 1;
        reactor
    }

    /// A client is gone for good.
    pub(crate) fn left(&mut self, reactor: usize) {
        self.peers[reactor].clients -= 1;
        if self.clients() == 0 && reactor != 0 {
            self.order(0, Order::Look);
        }
    }

    /// Clients of all reactors.
    pub(crate) fn clients(&self) -> usize {
        self.peers.iter().map(|peer| peer.clients).sum()
    }

    /// Whether no other reactor has a client.
    pub(crate) fn is_alone(&self, this: usize) -> bool {
        self.clients() == self.peers[this].clients
    }

    // Sleep.

    /// Puts a reactor to sleep; the deadline of its sleep. `own` is a deadline that it alone keeps. `shared` is
    /// one that any reactor may keep: this one need not if another is awake, or sleeps no longer than that.
    /// `waits_since` is the pool's count of returned buffers, if its clients wait for memory.
    pub(crate) fn sleep(
        &mut self,
        this: usize,
        own: Option<Nanos>,
        shared: Option<Nanos>,
        waits_since: Option<u64>,
    ) -> Option<Nanos> {
        let shared = shared.filter(|deadline| {
            let mut others = self.peers.iter().enumerate().filter(|(reactor, _)| *reactor != this);
            !others.any(|(_, peer)| peer.sleeps_until.is_none_or(|until| until <= *deadline))
        });
        let until = [own, shared].into_iter().flatten().min();
        let peer = &mut self.peers[this];
        assert!(
            peer.orders.is_empty() && peer.replies.is_empty(),
            "a reactor sleeps only when it has no orders and no replies"
        );
        peer.sleeps_until = Some(until.unwrap_or(FOR_EVER));
        peer.waits_since = waits_since;
        until
    }

    /// Notes that a reactor is awake.
    pub(crate) fn wake(&mut self, this: usize) {
        self.peers[this].sleeps_until = None;
    }

    /// The other reactors that sleep and have something to do now; the caller wakes them. `returns` is the pool's
    /// count of returned buffers.
    pub(crate) fn take_woken(&mut self, this: usize, returns: u64) -> Woken {
        let mut woken = 0;
        for (number, peer) in self.peers.iter_mut().enumerate().filter(|(reactor, _)| *reactor != this) {
            let is_wanted = self.is_over
                || !peer.orders.is_empty()
                || !peer.replies.is_empty()
                || peer.waits_since.is_some_and(|since| since != returns);
            if is_wanted && peer.sleeps_until.take().is_some() {
                woken |= 1 << number;
            }
        }
        Woken(woken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(wakeups: &mut WakeUps, this: usize) -> Vec<usize> {
        wakeups.take_woken(this, 0).each().collect()
    }

    #[test]
    fn new_clients_go_where_there_are_fewest() {
        let mut wakeups = WakeUps::new(2);
        assert_eq!((wakeups.admit(), wakeups.admit(), wakeups.admit()), (0, 1, 0));
        assert!(!wakeups.is_alone(0));
        wakeups.left(1);
        assert!(wakeups.is_alone(0) && !wakeups.is_alone(1));
        assert_eq!((wakeups.admit(), wakeups.clients()), (1, 3));
    }

    #[test]
    fn one_reactor_keeps_a_shared_deadline() {
        let mut wakeups = WakeUps::new(2);
        // The other one is awake and will see to it.
        assert_eq!(wakeups.sleep(0, None, Some(Nanos(5)), None), None);
        // Now no reactor is.
        assert_eq!(wakeups.sleep(1, None, Some(Nanos(5)), None), Some(Nanos(5)));
        wakeups.wake(0);
        // Reactor 1 wakes soon enough for 5, but not for 4.
        assert_eq!(wakeups.sleep(0, Some(Nanos(9)), Some(Nanos(5)), None), Some(Nanos(9)));
        wakeups.wake(0);
        assert_eq!(wakeups.sleep(0, Some(Nanos(9)), Some(Nanos(4)), None), Some(Nanos(4)));
    }

    #[test]
    fn only_sleepers_with_something_to_do_are_woken_and_once() {
        let mut wakeups = WakeUps::new(3);
        wakeups.order(1, Order::Look);
        assert_eq!(woken(&mut wakeups, 0), [], "awake, it sees its orders by itself");
        wakeups.take_order(1);
        for reactor in 0..3 {
            wakeups.sleep(reactor, None, None, None);
        }
        wakeups.order(1, Order::Look);
        assert_eq!(woken(&mut wakeups, 0), [1]);
        assert_eq!(woken(&mut wakeups, 0), []);
        wakeups.reply(Asker::Control(7), Ok(()));
        assert_eq!(woken(&mut wakeups, 1), [0]);
        wakeups.take_order(1);
        wakeups.sleep(1, None, None, Some(3));
        assert!(wakeups.take_woken(0, 3).each().eq([]));
        assert!(wakeups.take_woken(0, 4).each().eq([1]), "memory came back");
        wakeups.end();
        assert_eq!(woken(&mut wakeups, 0), [2]);
    }
}
