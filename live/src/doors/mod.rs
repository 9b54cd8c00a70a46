//! Doors: the transports by which clients connect.
//!
//! A door takes clients' requests off their transport, hands them to the core in [`pieces`], and brings the core's
//! replies back. Each reactor has one door of each kind. Another kind, say vhost-user, is one more folder beside [`nbd`]
//! and [`ublk`] that implements [`Door`], and one more line in [`Doors::open`].

mod export;
pub(crate) mod histogram;
pub(crate) mod latency;
pub mod limits;
#[expect(unsafe_code, reason = "the kernel reads and writes connections' memory")]
pub mod nbd;
pub(crate) mod offers;
pub(crate) mod pieces;
pub(crate) mod share;
pub(crate) mod traffic;
#[expect(unsafe_code, reason = "the kernel is given commands")]
pub(crate) mod ublk;

pub use export::{Export, NAME_BYTES_MAX};

use crate::kernel::KernelClient;
use crate::reactor::backend::Token;
use crate::reactor::driver::{Core, Piece, Turn};
use crate::reactor::tokens::Owner;
use crate::reactor::wakeups::Order;
use engine::effect::Errno;
use engine::units::Nanos;
use nbd::door::NbdDoor;
use nbd::listener::Listener;
use std::os::fd::OwnedFd;
use ublk::door::UblkDoor;

/// Place of a door among the doors of its reactor; a kind of door has the same place at every reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DoorNumber(u8);

/// The place of the NBD door.
const NBD: DoorNumber = DoorNumber(0);
/// The place of the ublk door.
const UBLK: DoorNumber = DoorNumber(1);

impl DoorNumber {
    /// The token of an operation of this door. `event` is the door's own name for it, below 2^48.
    pub(crate) fn token(self, event: u64) -> Token {
        Owner::Door { door: self.0, event }.token()
    }
}

/// A client that was accepted, on its way to the reactor that serves it.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub socket: OwnedFd,
    /// It is served over TLS alone.
    pub wants_tls: bool,
}

/// One kind of door, as one reactor has it.
pub(crate) trait Door<C> {
    /// Does the work that is due, and goes on with requests that waited for memory or for replies.
    fn tick(&mut self, turn: &mut Turn<'_, C>);
    /// Deadline of the next [`Door::tick`], should nothing happen before.
    fn deadline(&self) -> Option<Nanos>;
    /// Takes the result of an operation that this door gave to the backend, by the event in its token.
    fn finished(&mut self, event: u64, result: i32, turn: &mut Turn<'_, C>);
    /// Takes the core's reply to a piece of a request.
    fn answered(&mut self, piece: Piece, result: Result<(), Errno>, turn: &mut Turn<'_, C>);
    /// Begins to send all replies that are ready; called once a round.
    fn send(&mut self, turn: &mut Turn<'_, C>);
    /// Serves a client that the same kind of door at another reactor has accepted.
    fn adopt(&mut self, client: Newcomer, turn: &mut Turn<'_, C>);
    /// Serves the export at this place to a client that needs no handshake: the kernel.
    fn serve(&mut self, client: KernelClient, place: usize, turn: &mut Turn<'_, C>);
    /// Closes the connections to the export at this place.
    fn disconnect(&mut self, place: usize, turn: &mut Turn<'_, C>);
    /// Closes the connections that hold memory and do nothing: other clients get none.
    fn relieve(&mut self, turn: &mut Turn<'_, C>);
    /// Closes some connections whose clients have asked for nothing: all places are taken, and another client waits.
    fn make_room(&mut self, turn: &mut Turn<'_, C>);
    /// Accepts no new clients and closes the connections there are.
    fn shut(&mut self, turn: &mut Turn<'_, C>);
    /// Ends listeners and connections at once, without the driver: the door is not used any more, but its memory may be.
    fn hang_up(&mut self) {}
    /// Whether a client waits for memory or for replies.
    fn is_blocked(&self) -> bool;
    /// Whether the next bytes of a client can be expected within microseconds, so that spinning may pay. Asked again,
    /// it needs new bytes to say so again.
    fn expects_bytes_soon(&mut self) -> bool;
}

/// All doors of one reactor.
pub(crate) struct Doors<C> {
    doors: Vec<Box<dyn Door<C>>>,
    /// The kernel uses none of their memory any more.
    pub has_let_go: bool,
}

impl<C> Drop for Doors<C> {
    /// Keeps the memory that the kernel may still use: a device or a client hangs, or the reactor has failed.
    fn drop(&mut self) {
        if !self.has_let_go {
            self.doors.iter_mut().for_each(|door| door.hang_up());
            #[expect(clippy::mem_forget, reason = "the kernel may still write into buffers of a door")]
            std::mem::forget(std::mem::take(&mut self.doors));
        }
    }
}

impl<C: Core + 'static> Doors<C> {
    /// Opens one door of each kind. Only the first reactor's doors get listeners.
    pub(crate) fn open(listeners: Vec<Listener>) -> Doors<C> {
        let doors: Vec<Box<dyn Door<C>>> =
            vec![Box::new(NbdDoor::new(NBD, listeners)), Box::new(UblkDoor::new(UBLK))];
        Doors { doors, has_let_go: false }
    }

    /// As [`Door::tick`].
    pub(crate) fn tick(&mut self, turn: &mut Turn<'_, C>) {
        self.doors.iter_mut().for_each(|door| door.tick(turn));
    }

    /// As [`Door::deadline`]: the earliest.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.doors.iter().filter_map(|door| door.deadline()).min()
    }

    /// As [`Door::finished`], by the place of the door.
    pub(crate) fn finished(&mut self, door: u8, event: u64, result: i32, turn: &mut Turn<'_, C>) {
        self.doors[usize::from(door)].finished(event, result, turn);
    }

    /// As [`Door::answered`], by the place of the door.
    pub(crate) fn answered(
        &mut self,
        door: DoorNumber,
        piece: Piece,
        result: Result<(), Errno>,
        turn: &mut Turn<'_, C>,
    ) {
        self.doors[usize::from(door.0)].answered(piece, result, turn);
    }

    /// As [`Door::send`].
    pub(crate) fn send(&mut self, turn: &mut Turn<'_, C>) {
        self.doors.iter_mut().for_each(|door| door.send(turn));
    }

    /// Carries out an order of another reactor.
    pub(crate) fn obey(&mut self, order: Order, turn: &mut Turn<'_, C>) {
        match order {
            Order::Adopt { door, client } => self.doors[usize::from(door.0)].adopt(client, turn),
            Order::Serve { client, place } => {
                let door = match client {
                    KernelClient::Socket(_) => NBD,
                    KernelClient::Queue(_) => UBLK,
                };
                self.doors[usize::from(door.0)].serve(client, place, turn);
            }
            Order::Disconnect { place, receipt } => {
                self.doors.iter_mut().for_each(|door| door.disconnect(place, turn));
                drop(receipt);
            }
            Order::Learn { file, receipt } => {
                if let Err(error) = turn.backend.learn(file) {
                    receipt.fail(Errno(error.raw_os_error().unwrap_or(Errno::IO.0)));
                }
            }
            Order::Forget { device, receipt } => {
                if let Some(file) = device.raw_fd() {
                    turn.backend.forget(file);
                }
                // Who asked may open the device again: the file is closed before the answer.
                drop(device);
                drop(receipt);
            }
            Order::Shut { receipt } => {
                self.shut(turn);
                drop(receipt);
            }
            Order::MakeRoom => self.doors.iter_mut().for_each(|door| door.make_room(turn)),
            Order::Relieve => self.doors.iter_mut().for_each(|door| door.relieve(turn)),
            Order::Look => {}
        }
    }

    /// As [`Door::shut`].
    pub(crate) fn shut(&mut self, turn: &mut Turn<'_, C>) {
        self.doors.iter_mut().for_each(|door| door.shut(turn));
    }

    /// As [`Door::is_blocked`]: of any door.
    pub(crate) fn is_blocked(&self) -> bool {
        self.doors.iter().any(|door| door.is_blocked())
    }

    /// As [`Door::expects_bytes_soon`]: at any door.
    pub(crate) fn expects_bytes_soon(&mut self) -> bool {
        let mut any = false;
        for door in &mut self.doors {
            // Each is asked, as asking makes it forget the bytes that have come.
            any |= door.expects_bytes_soon();
        }
        any
    }
}
