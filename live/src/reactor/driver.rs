//! Driver: carries out a core's effects at devices and doors, and brings their results back to the core.
//!
//! One for all reactors; see [`crate::reactor::shared::Shared`].

use crate::buffers::Pool;
use crate::clock;
use crate::devices::Device;
use crate::devices::flights::{Flights, Landed};
use crate::doors::DoorNumber;
use crate::doors::limits::{ClientFigures, ClientLimits, TurnedAway};
use crate::doors::offers::Offers;
use crate::limits::{Brakes, counted_bytes};
use crate::reactor::backend::Backend;
use crate::reactor::queues::{Place, Queues};
use crate::reactor::wakeups::WakeUps;
use crate::server::{Acceptor, Answer, Config, ExportConfig, ServerNotice};
use engine::effect::{Effect, Errno, IoId, IoOp, Request, RequestId, RequestOp, Target};
use engine::engine::{Busy, Engine};
use engine::memory::{Memory, Slice};
use engine::units::{Nanos, VolumeIndex};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Decider behind the doors: the engine, or [`crate::passthrough::Passthrough`]. See [`Engine`] for the calls.
pub trait Core: Send {
    /// Takes a request.
    ///
    /// # Errors
    /// [`Busy`] when too many are under way; the request was not taken.
    fn submit(&mut self, now: Nanos, request: Request, memory: &mut Pool) -> Result<(), Busy>;
    /// A device answered.
    fn complete(&mut self, now: Nanos, io: IoId, result: Result<(), Errno>, memory: &mut Pool);
    /// Time passed.
    fn advance(&mut self, now: Nanos, memory: &mut Pool);
    /// The next thing to do, until `None`.
    fn poll_effect(&mut self, memory: &mut Pool) -> Option<Effect>;
    /// Does what devices need not wait for; called when effects are on their way to them.
    fn catch_up(&mut self, _memory: &Pool) {}
    /// Deadline of [`Core::advance`].
    fn deadline(&self) -> Option<Nanos>;
}

impl Core for Engine {
    fn submit(&mut self, now: Nanos, request: Request, memory: &mut Pool) -> Result<(), Busy> {
        Engine::submit(self, now, request, memory)
    }

    fn complete(&mut self, now: Nanos, io: IoId, result: Result<(), Errno>, memory: &mut Pool) {
        Engine::complete(self, now, io, result, memory);
    }

    fn advance(&mut self, now: Nanos, memory: &mut Pool) {
        Engine::advance(self, now, memory);
    }

    fn poll_effect(&mut self, memory: &mut Pool) -> Option<Effect> {
        Engine::poll_effect(self, memory)
    }

    fn catch_up(&mut self, memory: &Pool) {
        Engine::catch_up(self, memory);
    }

    fn deadline(&self) -> Option<Nanos> {
        Engine::deadline(self)
    }
}

/// Origin of a request to the core, and so the target of its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// A piece of a client's request, at that door of that reactor.
    Door { reactor: usize, door: DoorNumber, piece: Piece },
    /// A request of another thread, by its key in [`crate::reactor::control::Control`].
    Control(usize),
}

/// A request that is not answered.
#[derive(Clone, Copy, Debug)]
struct Unanswered {
    asker: Asker,
    /// Its part of its volume's share of the core; none if an operator asks, or while it waits.
    place: Option<Place>,
}

/// A piece of a client's request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// The request's place in the door's table.
    pub request: usize,
    /// The memory of a read or write; of another piece, anything.
    pub slice: Option<Slice>,
    /// Where the piece begins in the volume.
    pub offset_bytes: u64,
}

/// The writer of the durable notes that volumes' caches are given up.
pub(crate) type Abandon = Box<dyn FnMut(VolumeIndex) -> io::Result<()> + Send>;

/// Tells the operator.
pub(crate) type Tell = Box<dyn FnMut(ServerNotice) + Send>;

/// Core with its memory, devices and exports; the reactors take turns with it.
pub(crate) struct Driver<C> {
    pub core: C,
    pub pool: Pool,
    pub flights: Flights,
    pub offers: Offers,
    /// The certificates for clients over TCP, if they come by TLS.
    pub tls: Option<Arc<Acceptor>>,
    pub limits: ClientLimits,
    pub turned_away: TurnedAway,
    pub wakeups: WakeUps,
    pub notices: Vec<ServerNotice>,
    /// Time of everything in the current turn of a reactor.
    pub now: Nanos,
    /// The eventfds that wake reactors.
    wake_events: Vec<Arc<OwnedFd>>,
    abandon: Abandon,
    tell: Tell,
    unanswered: Slab<Unanswered>,
    /// Clients' requests that wait for a place in the core, or at the gate.
    queues: Queues,
    /// Requests of other threads, which wait for the gate alone.
    orders: VecDeque<Request>,
    /// Something was asked since effects were last carried out.
    has_asked: bool,
    gate: Gate,
    /// Requests of clients that have to wait for their time.
    pub brakes: Brakes<Request>,
}

/// The gate before the core: closed while another core takes the place of one.
enum Gate {
    Open,
    /// Nothing passes, and the core has requests under way; who closed it waits for their end.
    Closing(Answer<()>),
    Closed,
}

/// The driver while one reactor has it, and that reactor's backend.
pub(crate) struct Turn<'t, C> {
    pub driver: &'t mut Driver<C>,
    pub backend: &'t mut Backend,
    /// Number of that reactor.
    pub reactor: usize,
}

impl<C: Core> Turn<'_, C> {
    /// Asks the core for something on behalf of a client of a door of this reactor.
    pub(crate) fn ask(&mut self, door: DoorNumber, volume: VolumeIndex, op: RequestOp, piece: Piece) {
        self.driver.ask(volume, op, Asker::Door { reactor: self.reactor, door, piece });
    }

    /// One reference less to a buffer.
    pub(crate) fn release(&mut self, slice: Slice) {
        self.driver.pool.release(slice.buffer);
    }

    /// Carries out effects of the core until it has no more.
    pub(crate) fn settle(&mut self) {
        self.driver.settle(self.backend, self.reactor);
    }

    /// Whether this reactor has all the clients. Then a long copy between a socket and memory is for a thread of the
    /// kernel, which runs beside it; otherwise another reactor does that, and handing the copy over costs the warmth
    /// of the caches. Measured with fio over NBD, long reads and writes.
    pub(crate) fn is_alone(&self) -> bool {
        self.driver.wakeups.is_alone(self.reactor)
    }
}

impl<C: Core> Driver<C> {
    pub(crate) fn new(core: C, pool: Pool, config: Config, wake_events: Vec<Arc<OwnedFd>>) -> Driver<C> {
        let timeout_ns = u64::try_from(config.device_timeout.as_nanos()).unwrap_or(u64::MAX);
        let Config { cache, mirror, origins, exports, abandon, notice, reactors, tls, limits, .. } = config;
        let flights = Flights::new([cache, mirror], origins, timeout_ns);
        let offers = Offers::new(exports.into_iter().map(ExportConfig::offered).collect());
        Driver {
            core,
            pool,
            flights,
            offers,
            tls,
            limits,
            turned_away: TurnedAway::default(),
            wakeups: WakeUps::new(reactors),
            notices: Vec::new(),
            now: clock::now(),
            wake_events,
            abandon,
            tell: notice,
            unanswered: Slab::with_capacity(1024),
            queues: Queues::default(),
            orders: VecDeque::new(),
            has_asked: false,
            gate: Gate::Open,
            brakes: Brakes::new(),
        }
    }

    /// Keeps requests back from now on; answers when the core has none.
    pub(crate) fn close_gate(&mut self, answer: Answer<()>) {
        self.gate = Gate::Closing(answer);
        self.look_at_gate();
    }

    fn look_at_gate(&mut self) {
        // Who is not answered waits for the core, or here.
        if self.unanswered.len() > self.queues.waiting() + self.orders.len() + self.brakes.waiting() {
            return;
        }
        if let Gate::Closing(answer) = std::mem::replace(&mut self.gate, Gate::Closed) {
            // The thread that asked may be gone.
            let _ = answer.send(Ok(()));
        }
    }

    /// Lets requests go on, in their order: at once, in the turn that this is called in.
    pub(crate) fn open_gate(&mut self) {
        self.gate = Gate::Open;
    }

    /// Puts a core in the place of one that was stopped, and a device in that of the cache.
    pub(crate) fn swap(&mut self, core: C, cache: Option<Device>) -> Result<Option<Device>, Errno> {
        if !matches!(self.gate, Gate::Closed) || self.flights.is_cache_under_way() {
            return Err(Errno::BUSY);
        }
        self.core = core;
        Ok(cache.and_then(|cache| self.flights.replace_cache(cache)))
    }

    /// Asks the core for something that the gate keeps nobody from.
    pub(crate) fn ask_behind_gate(&mut self, volume: VolumeIndex, op: RequestOp, asker: Asker) {
        let id = self.await_answer(asker);
        if self.core.submit(self.now, Request { id, volume, op }, &mut self.pool).is_err() {
            self.answer(id, Err(Errno::BUSY));
        }
    }

    /// Counts the clients.
    pub(crate) fn client_figures(&self) -> ClientFigures {
        let TurnedAway { sent_away, refused } = self.turned_away;
        let (connected, limit) = (self.wakeups.clients(), self.limits.clients);
        ClientFigures { connected, limit, sent_away, refused }
    }

    /// Memory that one client may hold.
    pub(crate) fn client_share_bytes(&self) -> u64 {
        self.limits.share_bytes(&self.pool)
    }

    /// Asks the core for something; the reply is left for the asker's reactor.
    pub(crate) fn ask(&mut self, volume: VolumeIndex, op: RequestOp, asker: Asker) {
        let request = Request { id: self.await_answer(asker), volume, op };
        self.has_asked = true;
        if matches!(asker, Asker::Control(_)) {
            return self.order(request);
        }
        if self.brakes.are_any_on()
            && let Some(bytes) = counted_bytes(&op)
            && self.brakes.pass(volume, bytes, request, self.now).is_none()
        {
            return;
        }
        self.hand_over(request);
    }

    fn await_answer(&mut self, asker: Asker) -> RequestId {
        RequestId(self.unanswered.insert(Unanswered { asker, place: None }) as u64)
    }

    /// Leaves the answer to a request for the reactor that has its asker.
    fn answer(&mut self, id: RequestId, result: Result<(), Errno>) {
        let Unanswered { asker, place } = self.unanswered.remove(key_of(id));
        if let Some(place) = place {
            self.queues.ended(place);
        }
        self.wakeups.reply(asker, result);
    }

    /// Hands a request of another thread to the core.
    fn order(&mut self, request: Request) {
        let is_open = matches!(self.gate, Gate::Open);
        if !is_open || !self.orders.is_empty() || self.core.submit(self.now, request, &mut self.pool).is_err()
        {
            self.orders.push_back(request);
        }
    }

    /// Hands a client's request to the core, or puts it where it waits for that.
    fn hand_over(&mut self, request: Request) {
        let place = Place::of(&request);
        let may_pass = matches!(self.gate, Gate::Open) && self.queues.may_pass(place);
        if !may_pass || !self.submit(request, place) {
            self.queues.push(request);
        }
    }

    /// Submits a client's request; whether the core took it.
    fn submit(&mut self, request: Request, place: Place) -> bool {
        let is_taken = self.core.submit(self.now, request, &mut self.pool).is_ok();
        if is_taken {
            self.queues.begins(place);
            self.unanswered[key_of(request.id)].place = Some(place);
        }
        is_taken
    }

    /// Hands on what waits, as far as there are places in the core; whether it took any.
    fn let_pass(&mut self) -> bool {
        let mut any = false;
        while matches!(self.gate, Gate::Open)
            && let Some(&request) = self.orders.front()
            && self.core.submit(self.now, request, &mut self.pool).is_ok()
        {
            self.orders.pop_front();
            any = true;
        }
        while matches!(self.gate, Gate::Open)
            && let Some(request) = self.queues.next()
        {
            if !self.submit(request, Place::of(&request)) {
                self.queues.push_first(request);
                break;
            }
            any = true;
        }
        any
    }

    /// Answers the requests to a volume that wait for their time or for a place, and whose client is gone.
    pub(crate) fn withdraw(&mut self, volume: VolumeIndex, is_unwanted: impl Fn(&Asker) -> bool) {
        let unanswered = &self.unanswered;
        let is_unwanted = |request: &Request| is_unwanted(&unanswered[key_of(request.id)].asker);
        let mut withdrawn = self.queues.withdraw(volume, is_unwanted);
        if self.brakes.are_any_on() {
            withdrawn.extend(self.brakes.withdraw(volume, is_unwanted));
        }
        for request in withdrawn {
            // The core would have released it.
            if let RequestOp::Read { into: slice, .. } | RequestOp::Write { from: slice, .. } = request.op {
                self.pool.release(slice.buffer);
            }
            self.answer(request.id, Err(Errno::SHUTDOWN));
        }
    }

    /// Whether something was asked since effects were last carried out.
    pub(crate) fn has_asked(&self) -> bool {
        self.has_asked
    }

    fn settle(&mut self, backend: &mut Backend, reactor: usize) {
        self.has_asked = false;
        loop {
            while let Some(effect) = self.core.poll_effect(&mut self.pool) {
                match effect {
                    Effect::Io(io) if io.target == Target::State => self.note(io.id, &io.op),
                    Effect::Io(io) => {
                        let waker = &self.wake_events[reactor];
                        self.flights.start(io, self.now, &mut self.pool, backend, waker);
                    }
                    Effect::Reply { id, result } => self.answer(id, result),
                    Effect::Notice(notice) => self.notices.push(ServerNotice::Engine(notice)),
                }
            }
            let mut any = false;
            while let Some(Landed { io, result }) = self.flights.take_finished() {
                self.core.complete(self.now, io, result, &mut self.pool);
                any = true;
            }
            any |= self.let_pass();
            if !any {
                break;
            }
        }
        if matches!(self.gate, Gate::Closing(_)) {
            self.look_at_gate();
        }
        while let Some((target, event)) = self.flights.take_event() {
            self.notices.push(ServerNotice::of_export(target, event));
        }
        while let Some(target) = self.flights.take_gone() {
            self.notices.push(ServerNotice::DeviceGone { target });
        }
    }

    fn note(&mut self, io: IoId, op: &IoOp) {
        let result = match op {
            IoOp::Abandon(volume) => {
                (self.abandon)(*volume).map_err(|error| Errno(error.raw_os_error().unwrap_or(Errno::IO.0)))
            }
            _ => Err(Errno::INVAL),
        };
        self.core.complete(self.now, io, result, &mut self.pool);
    }

    /// Makes the calls that are due by now.
    pub(crate) fn tick(&mut self) {
        self.flights.poll_models(self.now, &mut self.pool);
        self.flights.poll_exports(&mut self.pool);
        self.flights.expire(self.now, &mut self.pool);
        if self.core.deadline().is_some_and(|deadline| deadline <= self.now) {
            self.core.advance(self.now, &mut self.pool);
        }
        if self.brakes.are_any_on() {
            while let Some(request) = self.brakes.take_due(self.now) {
                self.hand_over(request);
            }
        }
    }

    /// Has the core do what devices need not wait for.
    pub(crate) fn catch_up(&mut self) {
        self.core.catch_up(&self.pool);
    }

    /// Deadline of [`Driver::tick`].
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let of_brakes = if self.brakes.are_any_on() { self.brakes.deadline(self.now) } else { None };
        [self.core.deadline(), self.flights.deadline(), of_brakes].into_iter().flatten().min()
    }

    /// Passes the engine's notices on to the operator.
    pub(crate) fn tell(&mut self) {
        for notice in self.notices.drain(..) {
            (self.tell)(notice);
        }
    }
}

fn key_of(id: RequestId) -> usize {
    usize::try_from(id.0).expect("an id of ours")
}
