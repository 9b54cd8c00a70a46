//! Serving: a request on its way from its tag to the core, and its answer on the way back.

use super::door::{Place, UblkDoor};
use super::request::Request;
use crate::doors::pieces::{Cut, Kind, RANGE_PIECES_MAX};
use crate::doors::share;
use crate::reactor::driver::{Asker, Core, Piece, Turn};
use engine::effect::{Errno, RequestOp};
use engine::memory::{Memory, Slice};
use std::io;

impl UblkDoor {
    /// The command of a tag has come back: with a request, or for good.
    pub(super) fn came_back<C: Core>(&mut self, at: Place, result: i32, turn: &mut Turn<'_, C>) {
        let served = &mut self.queues[at.queue];
        served.commands -= 1;
        if result != 0 || served.is_closed {
            // The device is taken away; or the request is for the next server.
            return self.bury(at.queue, turn);
        }
        let asked = served.queue.asked(at.tag);
        let export = turn.driver.offers.exports()[served.place].as_ref().filter(|_| !served.is_gone);
        match Request::accept(asked, export) {
            Ok(mut request) => {
                let (now, range) = (turn.driver.now, request.range());
                let arrival = turn.driver.offers.arrived(served.place, request.kind, range, now);
                request.arrival = Some(arrival);
                served.requests[usize::from(at.tag)] = Some(request);
                served.waiting.push_back(at.tag);
                served.under_way += 1;
                self.advance(at.queue, turn);
            }
            Err(errno) => {
                let command = served.queue.commit(at.tag, -errno.0);
                self.command(at, command, turn);
            }
        }
    }

    /// Hands on as much of the requests of a queue as there is memory for.
    pub(super) fn advance<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        while let Some(&tag) = self.queues[key].waiting.front() {
            let at = Place { queue: key, tag };
            if !self.hand_on(at, turn) {
                return;
            }
            self.queues[key].waiting.pop_front();
            self.answer_if_over(at, turn);
        }
    }

    /// Hands on the pieces of a request; `false` if it has to wait for memory.
    fn hand_on<C: Core>(&mut self, at: Place, turn: &mut Turn<'_, C>) -> bool {
        if self.request(at).errno.is_some() {
            return true;
        }
        if self.request(at).kind == Kind::Flush {
            self.ask(at, RequestOp::Flush, None, 0, turn);
            return true;
        }
        while let Some(cut) = self.request(at).next_cut() {
            let (kind, fua) = (self.request(at).kind, self.request(at).fua);
            match kind {
                Kind::Read | Kind::Write => {
                    let volume = turn.driver.offers.volume(self.queues[at.queue].place);
                    let held_bytes = &mut self.queues[at.queue].held_bytes;
                    let taken = share::take(turn.driver, volume, *held_bytes, cut, false);
                    let Some((cut, slice, bytes)) = taken else { return false };
                    *held_bytes += bytes;
                    self.hand_on_data(at, cut, slice, turn);
                }
                // The rest follows as these are answered, beside other requests.
                Kind::Trim | Kind::WriteZeroes | Kind::Flush
                    if self.request(at).outstanding >= RANGE_PIECES_MAX =>
                {
                    return true;
                }
                Kind::Trim | Kind::WriteZeroes | Kind::Flush => {
                    self.request(at).issued_bytes += cut.len_bytes;
                    let range = cut.range();
                    let op = match kind {
                        Kind::Trim => RequestOp::Discard { range, fua },
                        _ => RequestOp::WriteZeroes { range, fua },
                    };
                    self.ask(at, op, None, cut.offset_bytes, turn);
                }
            }
        }
        true
    }

    /// Hands on a piece of a read, or of a write with its data.
    fn hand_on_data<C: Core>(&mut self, at: Place, cut: Cut, slice: Slice, turn: &mut Turn<'_, C>) {
        let request = self.request(at);
        let (kind, fua) = (request.kind, request.fua);
        let within_bytes = within(request, cut.offset_bytes);
        request.issued_bytes += cut.len_bytes;
        let pool = &mut turn.driver.pool;
        let op = match kind {
            Kind::Read => {
                // The core releases one reference; the other one is ours until the bytes are copied.
                pool.retain(slice.buffer);
                RequestOp::Read { range: cut.range(), into: slice }
            }
            _ => {
                let taken = self.queues[at.queue].queue.take(at.tag, within_bytes, pool.bytes_mut(slice));
                if let Err(error) = taken {
                    self.drop_data(at, slice, turn);
                    return self.fail(at, errno(&error));
                }
                RequestOp::Write { range: cut.range(), from: slice, fua }
            }
        };
        self.ask(at, op, Some(slice), cut.offset_bytes, turn);
    }

    fn ask<C: Core>(
        &mut self,
        at: Place,
        op: RequestOp,
        slice: Option<Slice>,
        offset_bytes: u64,
        turn: &mut Turn<'_, C>,
    ) {
        self.request(at).outstanding += 1;
        let volume = turn.driver.offers.volume(self.queues[at.queue].place);
        let piece = Piece { request: at.name(), slice, offset_bytes };
        turn.ask(self.number, volume, op, piece);
    }

    /// The core has answered a piece.
    pub(super) fn take_answer<C: Core>(
        &mut self,
        piece: Piece,
        result: Result<(), Errno>,
        turn: &mut Turn<'_, C>,
    ) {
        let at = Place::of(piece.request);
        let is_closed = self.queues[at.queue].is_closed;
        let request = self.request(at);
        request.outstanding -= 1;
        let (kind, within_bytes) = (request.kind, within(request, piece.offset_bytes));
        let mut result = result;
        match (kind, piece.slice) {
            (Kind::Read, Some(slice)) => {
                if result.is_ok() && !is_closed {
                    let bytes = turn.driver.pool.bytes(slice);
                    let given = self.queues[at.queue].queue.give(at.tag, within_bytes, bytes);
                    result = given.map_err(|error| errno(&error));
                }
                self.drop_data(at, slice, turn);
            }
            (_, Some(slice)) => {
                // The core has released a write's buffer, or will when it no longer needs it.
                self.queues[at.queue].held_bytes -= u64::from(share::buffer_bytes(slice));
            }
            (_, None) => {}
        }
        if let Err(errno) = result {
            self.fail(at, errno);
        }
        if matches!(kind, Kind::Trim | Kind::WriteZeroes) {
            if is_closed {
                self.request(at).cut_short();
            }
            self.hand_on(at, turn);
        }
        self.answer_if_over(at, turn);
    }

    /// Notes the error of a request, unless it has one. Nothing more of it is worth doing.
    fn fail(&mut self, at: Place, errno: Errno) {
        let request = self.request(at);
        request.errno.get_or_insert(errno);
        request.cut_short();
    }

    /// Answers a request of which nothing is left to do.
    fn answer_if_over<C: Core>(&mut self, at: Place, turn: &mut Turn<'_, C>) {
        let request = self.request(at);
        if request.outstanding > 0 || !request.is_issued() {
            return;
        }
        let (arrival, result) = (request.arrival, request.result());
        let served = &mut self.queues[at.queue];
        if served.waiting.front() == Some(&at.tag) {
            // It was cut short while it waited for memory; it leaves the row there.
            return;
        }
        served.requests[usize::from(at.tag)] = None;
        served.under_way -= 1;
        if served.is_closed {
            // Its answer is for nobody: the driver asks the next server.
            return self.bury(at.queue, turn);
        }
        if let Some(arrival) = arrival {
            turn.driver.offers.answered(arrival, turn.driver.now);
        }
        let command = served.queue.commit(at.tag, result);
        self.command(at, command, turn);
    }

    /// Lets all fail that is not handed on, and all that comes.
    pub(super) fn forsake<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        self.queues[key].is_gone = true;
        let waiting: Vec<u16> = self.queues[key].waiting.iter().copied().collect();
        waiting.into_iter().for_each(|tag| self.fail(Place { queue: key, tag }, Errno::NODEV));
        self.withdraw(key, turn);
        self.advance(key, turn);
    }

    /// Takes back what waits for its time under the limits of the volume.
    fn withdraw<C: Core>(&self, key: usize, turn: &mut Turn<'_, C>) {
        let (this, number) = (turn.reactor, self.number);
        let volume = turn.driver.offers.volume(self.queues[key].place);
        turn.driver.withdraw(volume, |asker| match asker {
            Asker::Door { reactor, door, piece } => {
                *reactor == this && *door == number && Place::of(piece.request).queue == key
            }
            Asker::Control(_) => false,
        });
    }

    /// Answers nothing more: what is not answered is for the next server.
    pub(super) fn close<C: Core>(&mut self, key: usize, turn: &mut Turn<'_, C>) {
        let served = &mut self.queues[key];
        served.is_closed = true;
        for tag in std::mem::take(&mut served.waiting) {
            let request = served.requests[usize::from(tag)].as_mut().expect("a tag that waits has a request");
            request.cut_short();
            if request.outstanding == 0 {
                served.requests[usize::from(tag)] = None;
                served.under_way -= 1;
            }
        }
        self.withdraw(key, turn);
        self.bury(key, turn);
    }

    /// Gives back the memory of a piece.
    fn drop_data<C: Core>(&mut self, at: Place, slice: Slice, turn: &mut Turn<'_, C>) {
        self.queues[at.queue].held_bytes -= u64::from(share::buffer_bytes(slice));
        turn.release(slice);
    }

    fn request(&mut self, at: Place) -> &mut Request {
        let request = &mut self.queues[at.queue].requests[usize::from(at.tag)];
        request.as_mut().expect("the tag has a request")
    }
}

/// Where in its request a piece begins.
fn within(request: &Request, offset_bytes: u64) -> u32 {
    u32::try_from(offset_bytes.saturating_sub(request.offset_bytes)).unwrap_or(0)
}

fn errno(error: &io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(Errno::IO.0))
}
