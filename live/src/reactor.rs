//! The loop: one thread for sockets, devices and the core.
//!
//! A turn takes all that is finished, hands all requests to the core, carries out its effects
//! until there are none, and only then sends: one message for each connection with everything
//! that is ready. What the kernel can do at once is done in the same turn. Long copies within
//! memory are an exception: one a round, so that what each brings leaves while it is in the caches.

use crate::clock;
use crate::doors::nbd::{NbdDoor, Waiting};
use crate::driver::{Asker, Core, Driver};
use crate::flights::Flights;
use crate::operation::{Backend, Finished, Operation, Token};
use crate::server::{Answer, ControlError, ControlOp, Message, ServeError, Server, ServerNotice};
use engine::effect::{Errno, RequestOp};
use engine::memory::{Memory, Slice};
use engine::units::{BLOCK_BYTES, Nanos, SECTOR_BYTES, SectorRange, VolumeIndex};
use slab::Slab;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Turns that the loop makes at most before it sends, while the kernel goes on finishing things at once.
const TURNS_BEFORE_SEND: usize = 4;
/// How long the loop looks for the next request before it sleeps, when that has paid lately.
/// Taken from a probe: a request of a client that works with one at a time comes within 10 to 30 us.
const SPIN_NS: u64 = 50_000;
/// Spins that have to succeed to pay for one that did not.
const SPIN_PRICE: i32 = 4;
/// The most that successes count for.
const SPIN_SCORE_MAX: i32 = 32;
/// Sleeps without a spin until it is tried again.
const SPIN_PAUSE: u32 = 512;
/// How long the end waits for the kernel to let go of what it was given.
const END_NS: u64 = 2 * Nanos::SECOND;

/// Tokens: what kind of thing, above the number of the thing.
const KIND_SHIFT: u32 = 56;
const NUMBER_MASK: u64 = (1 << KIND_SHIFT) - 1;
const FLIGHT: u64 = 0;
const ACCEPT: u64 = 1;
const RECEIVE: u64 = 2;
const SEND: u64 = 3;
const WAKE: u64 = 4;

fn door_token(waiting: Waiting) -> Token {
    let (kind, number) = match waiting {
        Waiting::Accept(number) => (ACCEPT, number),
        Waiting::Receive(number) => (RECEIVE, number),
        Waiting::Send(number) => (SEND, number),
    };
    Token(kind << KIND_SHIFT | number as u64)
}

/// A request of another thread that the core works on.
enum Asked {
    Request { volume: VolumeIndex, op: ControlOp, answer: Answer<()> },
    Read { slice: Slice, answer: Answer<Vec<u8>> },
    Stop,
}

/// How far the end is.
enum Ending {
    /// Nobody asked for it.
    No,
    /// Clients' requests are still under way.
    Quieting { answers: Vec<Answer<()>> },
    /// The core is stopping.
    Stopping { answers: Vec<Answer<()>> },
    /// All is done.
    Over,
}

/// When spinning pays.
struct Spin {
    score: i32,
    pause: u32,
}

/// The loop and all that it turns.
pub(crate) struct Reactor<C> {
    driver: Driver<C>,
    door: NbdDoor,
    messages: Receiver<Message<C>>,
    wake: Arc<OwnedFd>,
    wake_count: Box<u64>,
    asked: Slab<Asked>,
    ending: Ending,
    notice: Box<dyn FnMut(ServerNotice) + Send>,
    finished: Vec<Finished>,
    spin: Spin,
}

fn system(step: &'static str) -> impl FnOnce(std::io::Error) -> ServeError {
    move |source| ServeError::System { step, source }
}

impl<C: Core + 'static> Reactor<C> {
    pub(crate) fn new(server: Server<C>) -> Result<Reactor<C>, ServeError> {
        let Server { mut config, core, listeners, messages, wake, pool, .. } = server;
        let (backend, refused) = Backend::new().map_err(system("start the threads for devices"))?;
        let timeout_ns = u64::try_from(config.device_timeout.as_nanos()).unwrap_or(u64::MAX);
        let door = NbdDoor::new(listeners, config.take_exports(), door_token);
        let flights = Flights::new(config.cache, config.origins, timeout_ns);
        let mut driver = Driver::new(core, pool, backend, flights, config.abandon);
        if let Some(errno) = refused {
            driver.notices.push(ServerNotice::NoIoUring { errno });
        }
        Ok(Reactor {
            driver,
            door,
            messages,
            wake,
            wake_count: Box::new(0),
            asked: Slab::new(),
            ending: Ending::No,
            notice: config.notice,
            finished: Vec::with_capacity(1024),
            spin: Spin { score: SPIN_SCORE_MAX / 2, pause: 0 },
        })
    }

    /// Turns until somebody stops it.
    pub(crate) fn run(mut self) -> Result<C, ServeError> {
        self.listen_for_messages();
        loop {
            for _ in 0..TURNS_BEFORE_SEND {
                let started = self.turn();
                if started {
                    self.driver.backend.submit().map_err(system("submit to the kernel"))?;
                }
                if !self.driver.backend.is_ready() {
                    break;
                }
            }
            if self.driver.copy_one() {
                self.settle();
            }
            self.door.send(&mut self.driver);
            self.tell();
            self.end_if_quiet();
            if matches!(self.ending, Ending::Over) {
                break;
            }
            self.wait().map_err(system("wait for the kernel"))?;
        }
        self.finish()
    }

    /// Takes what is finished and does all that follows. `true` if the kernel was given work.
    fn turn(&mut self) -> bool {
        let before = self.driver.backend.outstanding();
        let mut finished = std::mem::take(&mut self.finished);
        self.driver.backend.reap(&mut finished);
        self.driver.now = clock::now();
        let taken = finished.len();
        for Finished { token, result } in finished.drain(..) {
            self.dispatch(token, result);
        }
        self.finished = finished;
        self.driver.tick();
        self.settle();
        self.driver.backend.outstanding() + taken > before
    }

    /// Does all that follows from what the core was told, up to the replies.
    fn settle(&mut self) {
        loop {
            self.door.tick(&mut self.driver);
            self.driver.settle();
            let mut any = false;
            while let Some((asker, result)) = self.driver.take_reply() {
                any = true;
                match asker {
                    Asker::Door(piece) => self.door.answered(piece, result, &mut self.driver),
                    Asker::Control(key) => self.answer(key, result),
                }
            }
            // A reply may have freed what a client waits for, and nothing else may ever happen.
            if !any || !self.door.is_blocked() {
                break;
            }
        }
    }

    fn dispatch(&mut self, token: Token, result: i32) {
        let number = token.0 & NUMBER_MASK;
        let key = || usize::try_from(number).expect("a number of ours");
        match token.0 >> KIND_SHIFT {
            FLIGHT => {
                let Driver { flights, pool, backend, now, .. } = &mut self.driver;
                flights.landed(number, result, *now, pool, backend);
            }
            ACCEPT => self.door.accepted(key(), result, &mut self.driver),
            RECEIVE => self.door.received(key(), result, &mut self.driver),
            SEND => self.door.sent(key(), result, &mut self.driver),
            WAKE => self.take_messages(),
            kind => unreachable!("there are no tokens of kind {kind}"),
        }
    }

    // The messages of other threads.

    fn listen_for_messages(&mut self) {
        let operation = Operation::Wake { event: self.wake.as_raw_fd(), into: &raw mut *self.wake_count };
        // SAFETY: the counter is boxed and lives as long as the backend is used; nobody reads it.
        unsafe { self.driver.backend.push(Token(WAKE << KIND_SHIFT), operation) };
    }

    fn take_messages(&mut self) {
        self.listen_for_messages();
        while let Ok(message) = self.messages.try_recv() {
            self.take_message(message);
        }
    }

    fn take_message(&mut self, message: Message<C>) {
        // Whoever asked may be gone: nobody minds an answer that does not arrive.
        match message {
            Message::WithCore(look) => look(&mut self.driver.core),
            Message::Latencies { volume, answer } => {
                let _ = answer.send(Ok(self.door.latencies(volume)));
            }
            Message::ResizeExport { volume, size_bytes, answer } => {
                self.door.resize_volume(volume, size_bytes, &mut self.driver);
                let _ = answer.send(Ok(()));
            }
            Message::SetReadOnly { volume, read_only, answer } => {
                self.door.set_read_only(volume, read_only);
                let _ = answer.send(Ok(()));
            }
            Message::CloseExport { volume, answer } => {
                self.door.close_volume(volume, &mut self.driver);
                let _ = answer.send(Ok(()));
            }
            Message::CloseDoors { answer } => {
                self.door.shut(&mut self.driver);
                let _ = answer.send(Ok(()));
            }
            Message::Stop { answer } => self.stop(answer),
            Message::Request { answer, .. } if !matches!(self.ending, Ending::No) => {
                let _ = answer.send(Err(ControlError::Stopped));
            }
            Message::Read { answer, .. } if !matches!(self.ending, Ending::No) => {
                let _ = answer.send(Err(ControlError::Stopped));
            }
            Message::Request { volume, op, answer } => {
                let key = self.asked.insert(Asked::Request { volume, op, answer });
                self.driver.ask(volume, op.request(), Asker::Control(key));
            }
            Message::Read { volume, offset_bytes, len_bytes, answer } => {
                self.read(volume, offset_bytes, len_bytes, answer);
            }
        }
    }

    fn read(&mut self, volume: VolumeIndex, offset_bytes: u64, len_bytes: u32, answer: Answer<Vec<u8>>) {
        let lead_bytes = u32::try_from(offset_bytes % BLOCK_BYTES).expect("less than a block");
        let buffer_bytes = (lead_bytes + len_bytes).next_multiple_of(BLOCK_BYTES as u32);
        let Some(buffer) = self.driver.pool.allocate_for_door(buffer_bytes) else {
            let _ = answer.send(Err(ControlError::Engine(Errno::NOSPC)));
            return;
        };
        let slice = Slice { buffer, offset_bytes: lead_bytes, len_bytes };
        self.driver.pool.retain(buffer);
        let range =
            SectorRange { start: offset_bytes / SECTOR_BYTES, sectors: u64::from(len_bytes) / SECTOR_BYTES };
        let key = self.asked.insert(Asked::Read { slice, answer });
        self.driver.ask(volume, RequestOp::Read { range, into: slice }, Asker::Control(key));
    }

    /// The core has answered a request of another thread.
    fn answer(&mut self, key: usize, result: Result<(), Errno>) {
        let result = result.map_err(ControlError::Engine);
        match self.asked.remove(key) {
            Asked::Read { slice, answer } => {
                let _ = answer.send(result.map(|()| self.driver.pool.bytes(slice).to_vec()));
                self.driver.release(slice);
            }
            Asked::Request { volume, op, answer } => {
                match op {
                    ControlOp::Detach if result.is_ok() => self.door.close_volume(volume, &mut self.driver),
                    ControlOp::SetSize { sectors } if result.is_ok() => {
                        self.door.resize_volume(volume, sectors * SECTOR_BYTES, &mut self.driver);
                    }
                    _ => {}
                }
                let _ = answer.send(result);
            }
            Asked::Stop => {
                if let Ending::Stopping { answers } = std::mem::replace(&mut self.ending, Ending::Over) {
                    for answer in answers {
                        let _ = answer.send(result);
                    }
                }
            }
        }
    }

    // The end.

    fn stop(&mut self, answer: Answer<()>) {
        match &mut self.ending {
            Ending::No => {
                self.door.shut(&mut self.driver);
                self.ending = Ending::Quieting { answers: vec![answer] };
            }
            Ending::Quieting { answers } | Ending::Stopping { answers } => answers.push(answer),
            Ending::Over => {
                let _ = answer.send(Err(ControlError::Stopped));
            }
        }
    }

    /// When no client's request is under way any more, the core is told to stop.
    fn end_if_quiet(&mut self) {
        if !self.door.is_quiet() {
            return;
        }
        if let Ending::Quieting { answers } = &mut self.ending {
            let answers = std::mem::take(answers);
            self.ending = Ending::Stopping { answers };
            let key = self.asked.insert(Asked::Stop);
            self.driver.ask(VolumeIndex(0), RequestOp::Stop, Asker::Control(key));
            // It may be done at once, and then nothing would wake the loop.
            self.turn();
        }
    }

    /// Waits for the kernel to let go of all memory that it was given.
    fn finish(mut self) -> Result<C, ServeError> {
        self.tell();
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        self.door.shut(&mut self.driver);
        let end = clock::now().plus(END_NS);
        let mut finished = Vec::new();
        while self.driver.backend.outstanding() > 0 && clock::now() < end {
            let waited = self.driver.backend.wait(Some(Duration::from_millis(100)));
            waited.map_err(system("wait for the kernel"))?;
            self.driver.backend.reap(&mut finished);
        }
        if self.driver.backend.outstanding() > 0 {
            // A device hangs. What the kernel may still write to must not be given to anybody else.
            let Driver { core, pool, flights, .. } = self.driver;
            std::mem::forget((pool, flights, self.door, self.wake_count));
            return Ok(core);
        }
        Ok(self.driver.core)
    }

    fn tell(&mut self) {
        for notice in self.driver.notices.drain(..) {
            (self.notice)(notice);
        }
    }

    // Waiting.

    fn wait(&mut self) -> std::io::Result<()> {
        if self.driver.flights.has_copies() {
            return self.driver.backend.submit();
        }
        let deadline = [self.driver.deadline(), self.door.deadline()].into_iter().flatten().min();
        let backend = &mut self.driver.backend;
        if backend.can_spin() && self.spin.pays() {
            backend.submit()?;
            // A send is usually done at once, and then there is more to do before looking ahead.
            if backend.is_ready() {
                return backend.submit();
            }
            if self.driver.flights.in_flight() == 0 && self.door.expects_bytes_soon() {
                let end = clock::now().plus(SPIN_NS).min(deadline.unwrap_or(Nanos(u64::MAX)));
                while !backend.is_ready() && clock::now() < end {
                    std::hint::spin_loop();
                }
                if backend.is_ready() {
                    self.spin.succeeded();
                    return backend.submit();
                }
                self.spin.failed();
            }
        }
        let timeout = deadline.map(|deadline| Duration::from_nanos(deadline.since(clock::now())));
        self.driver.backend.wait(timeout)
    }
}

impl Spin {
    fn pays(&mut self) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        true
    }

    fn succeeded(&mut self) {
        self.score = (self.score + 1).min(SPIN_SCORE_MAX);
    }

    fn failed(&mut self) {
        self.score -= SPIN_PRICE;
        if self.score < 0 {
            self.score = 0;
            self.pause = SPIN_PAUSE;
        }
    }
}
