//! What the reactors have to tell each other: each has a seat, where the others leave things for it.
//!
//! All of it is under the table's lock ([`crate::table::Table`]).

use crate::driver::Asker;
use crate::server::Answer;
use engine::effect::Errno;
use engine::units::Nanos;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Sleeps until somebody wakes it.
const FOR_EVER: Nanos = Nanos(u64::MAX);

/// What a door has to do because another reactor says so.
pub(crate) enum Order {
    /// Serve this client.
    Adopt(OwnedFd),
    /// Send away the clients of the export at this place.
    Disconnect { place: usize, receipt: Option<Arc<Receipt>> },
    /// Take no new clients, and send away those there are.
    Shut { receipt: Option<Arc<Receipt>> },
    /// Clients of another door get no memory: send away those that hold some and do nothing.
    Relieve,
    /// Look again whether it is time to end.
    Look,
}

/// Answers somebody in another thread when all who hold it have let go of it: when all have obeyed.
pub(crate) struct Receipt {
    answer: Answer<()>,
}

impl Receipt {
    pub(crate) fn new(answer: Answer<()>) -> Option<Arc<Receipt>> {
        Some(Arc::new(Receipt { answer }))
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        // Whoever asked may be gone.
        let _ = self.answer.send(Ok(()));
    }
}

/// One reactor, as the others see it.
#[derive(Default)]
struct Seat {
    /// Until when it sleeps, if nobody wakes it; `None` while it is awake, or has been called.
    sleeps: Option<Nanos>,
    /// Of one that sleeps while clients wait for memory: the pool's returns when it fell asleep.
    waits_since: Option<u64>,
    /// Clients that it serves, or has been told to.
    clients: usize,
    orders: VecDeque<Order>,
    replies: VecDeque<(Asker, Result<(), Errno>)>,
}

/// All reactors.
pub(crate) struct Seats {
    seats: Vec<Seat>,
    is_over: bool,
}

/// Sleeping reactors that have something to do now, one bit each.
#[derive(Clone, Copy)]
pub(crate) struct Calls(u32);

impl Calls {
    /// Which.
    pub(crate) fn each(self) -> impl Iterator<Item = usize> {
        (0..32).filter(move |seat| self.0 >> seat & 1 == 1)
    }
}

impl Seats {
    pub(crate) fn new(count: usize) -> Seats {
        assert!(0 < count && count <= 32, "a call has one bit for each");
        Seats { seats: (0..count).map(|_| Seat::default()).collect(), is_over: false }
    }

    // Work for others.

    /// Leaves an order at a seat.
    pub(crate) fn order(&mut self, seat: usize, order: Order) {
        self.seats[seat].orders.push_back(order);
    }

    /// Leaves an order at every seat.
    pub(crate) fn order_all(&mut self, mut order: impl FnMut() -> Order) {
        self.seats.iter_mut().for_each(|seat| seat.orders.push_back(order()));
    }

    /// Leaves an order at every seat but this one.
    pub(crate) fn order_others(&mut self, this: usize, mut order: impl FnMut() -> Order) {
        let others = self.seats.iter_mut().enumerate().filter(|(seat, _)| *seat != this);
        others.for_each(|(_, seat)| seat.orders.push_back(order()));
    }

    /// The next order at a seat.
    pub(crate) fn take_order(&mut self, seat: usize) -> Option<Order> {
        self.seats[seat].orders.pop_front()
    }

    /// Whether there is an order at a seat.
    pub(crate) fn has_orders(&self, seat: usize) -> bool {
        !self.seats[seat].orders.is_empty()
    }

    /// Leaves a reply of the core at the seat of whoever asked.
    pub(crate) fn reply(&mut self, asker: Asker, result: Result<(), Errno>) {
        let seat = match asker {
            Asker::Door { reactor, .. } => reactor,
            Asker::Control(_) => 0,
        };
        self.seats[seat].replies.push_back((asker, result));
    }

    /// The next reply at a seat.
    pub(crate) fn take_reply(&mut self, seat: usize) -> Option<(Asker, Result<(), Errno>)> {
        self.seats[seat].replies.pop_front()
    }

    /// All is done.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// Whether all is done.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    // Clients.

    /// The seat for a new client, which counts there from now on: where there are fewest.
    pub(crate) fn admit(&mut self) -> usize {
        let fewest = (0..self.seats.len()).min_by_key(|seat| self.seats[*seat].clients);
        let seat = fewest.expect("there is a seat");
        self.seats[seat].clients += 1;
        seat
    }

    /// A client is gone for good.
    pub(crate) fn left(&mut self, seat: usize) {
        self.seats[seat].clients -= 1;
        if self.clients() == 0 && seat != 0 {
            self.order(0, Order::Look);
        }
    }

    /// Clients of all seats.
    pub(crate) fn clients(&self) -> usize {
        self.seats.iter().map(|seat| seat.clients).sum()
    }

    /// Whether no other seat has a client.
    pub(crate) fn is_alone(&self, this: usize) -> bool {
        self.clients() == self.seats[this].clients
    }

    // Sleep.

    /// A reactor falls asleep, and learns until when. `own`: what only it waits for. `shared`: what
    /// somebody has to wake for; whoever is awake will see to that, or somebody sleeps no longer than
    /// that already. `waits_since`: the pool's returns, if its clients wait for memory.
    pub(crate) fn sleep(
        &mut self,
        this: usize,
        own: Option<Nanos>,
        shared: Option<Nanos>,
        waits_since: Option<u64>,
    ) -> Option<Nanos> {
        let shared = shared.filter(|deadline| {
            let mut others = self.seats.iter().enumerate().filter(|(seat, _)| *seat != this);
            !others.any(|(_, seat)| seat.sleeps.is_none_or(|until| until <= *deadline))
        });
        let until = [own, shared].into_iter().flatten().min();
        let seat = &mut self.seats[this];
        assert!(seat.orders.is_empty() && seat.replies.is_empty(), "nobody sleeps on what is there for it");
        seat.sleeps = Some(until.unwrap_or(FOR_EVER));
        seat.waits_since = waits_since;
        until
    }

    /// A reactor is awake.
    pub(crate) fn wake(&mut self, this: usize) {
        self.seats[this].sleeps = None;
    }

    /// Who sleeps and has something to do now: whoever asks wakes them. `returns` is the pool's count.
    pub(crate) fn take_calls(&mut self, this: usize, returns: u64) -> Calls {
        let mut calls = 0;
        for (number, seat) in self.seats.iter_mut().enumerate().filter(|(seat, _)| *seat != this) {
            let is_wanted = self.is_over
                || !seat.orders.is_empty()
                || !seat.replies.is_empty()
                || seat.waits_since.is_some_and(|since| since != returns);
            if is_wanted && seat.sleeps.take().is_some() {
                calls |= 1 << number;
            }
        }
        Calls(calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(seats: &mut Seats, this: usize) -> Vec<usize> {
        seats.take_calls(this, 0).each().collect()
    }

    #[test]
    fn new_clients_go_where_there_are_fewest() {
        let mut seats = Seats::new(2);
        assert_eq!((seats.admit(), seats.admit(), seats.admit()), (0, 1, 0));
        assert!(!seats.is_alone(0));
        seats.left(1);
        assert!(seats.is_alone(0) && !seats.is_alone(1));
        assert_eq!((seats.admit(), seats.clients()), (1, 3));
    }

    #[test]
    fn somebody_keeps_the_time() {
        let mut seats = Seats::new(2);
        // The other one is awake and will see to it.
        assert_eq!(seats.sleep(0, None, Some(Nanos(5)), None), None);
        // Now nobody is.
        assert_eq!(seats.sleep(1, None, Some(Nanos(5)), None), Some(Nanos(5)));
        seats.wake(0);
        // Seat 1 wakes soon enough for 5, but not for 4.
        assert_eq!(seats.sleep(0, Some(Nanos(9)), Some(Nanos(5)), None), Some(Nanos(9)));
        seats.wake(0);
        assert_eq!(seats.sleep(0, Some(Nanos(9)), Some(Nanos(4)), None), Some(Nanos(4)));
    }

    #[test]
    fn only_sleepers_with_something_to_do_are_called_and_once() {
        let mut seats = Seats::new(3);
        seats.order(1, Order::Look);
        assert_eq!(calls(&mut seats, 0), [], "awake, it sees its orders by itself");
        seats.take_order(1);
        for seat in 0..3 {
            seats.sleep(seat, None, None, None);
        }
        seats.order(1, Order::Look);
        assert_eq!(calls(&mut seats, 0), [1]);
        assert_eq!(calls(&mut seats, 0), []);
        seats.reply(Asker::Control(7), Ok(()));
        assert_eq!(calls(&mut seats, 1), [0]);
        seats.take_order(1);
        seats.sleep(1, None, None, Some(3));
        assert!(seats.take_calls(0, 3).each().eq([]));
        assert!(seats.take_calls(0, 4).each().eq([1]), "memory came back");
        seats.end();
        assert_eq!(calls(&mut seats, 0), [2]);
    }
}
