//! Reactors: the threads that serve. Each has a loop, an io_uring and its doors; all share one driver.
//!
//! A turn takes all that is finished, hands all requests to the core, carries out its effects
//! until there are none, and only then sends: one message for each connection with everything
//! that is ready. What the kernel can do at once is done in the same turn.
//!
//! Reactors take turns with the driver. They make system calls and sleep beside each other.

use crate::clock;
use crate::doors::Doors;
use crate::doors::nbd::listener::Listener;
use crate::reactor::backend::{Backend, Finished, Token};
use crate::reactor::control::Control;
use crate::reactor::driver::{Asker, Driver, Turn};
use crate::reactor::shared::Shared;
use crate::reactor::tokens::Owner;
use crate::server::{ServeError, ServerNotice};
use engine::units::Nanos;
use std::io;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

#[expect(unsafe_code, reason = "operations name memory that the kernel reads and writes")]
pub(crate) mod backend;
pub(crate) mod control;
pub(crate) mod driver;
mod queues;
pub(crate) mod shared;
pub(crate) mod tokens;
pub(crate) mod wakeups;

pub use driver::Core;

/// Turns that the loop makes at most before it sends, while the kernel goes on finishing things at once.
const TURNS_BEFORE_SEND: usize = 4;
/// Longest spin for what comes next before a sleep, when spinning for it has paid recently. Taken from a probe: a request
/// of a client that works with one at a time comes within 10 to 30 us, and a reply of a server near by, too.
const SPIN_NS: u64 = 50_000;
/// Spins that have to succeed to pay for one that did not.
const SPIN_PRICE: i32 = 4;
/// The most that successes count for.
const SPIN_SCORE_MAX: i32 = 32;
/// Sleeps without a spin until it is tried again.
const SPIN_PAUSE: u32 = 512;
/// Longest wait at the end until the kernel lets go of the memory it was given.
const END_NS: u64 = 2 * Nanos::SECOND;

/// Record of spins that noticed something, and of spins in vain.
struct Spin {
    score: i32,
    pause: u32,
}

/// Something that may come before a sleep has begun and ended.
#[derive(Clone, Copy)]
enum Soon {
    /// The next request of a client, when nothing is under way.
    Request,
    /// The reply to a read of an origin elsewhere, when nothing else is under way.
    Reply,
}

/// Next step of a reactor after a round.
enum Next {
    /// Sleep until something happens.
    Sleep { until: Option<Nanos>, soon: Option<Soon> },
    /// End.
    End,
}

/// A loop and its own state.
struct Reactor<'t, C> {
    shared: &'t Shared<C>,
    number: usize,
    backend: Backend,
    doors: Doors<C>,
    /// Only the first reactor has it.
    control: Option<Control<C>>,
    finished: Vec<Finished>,
    /// By what is expected, which pay differently.
    spins: [Spin; 2],
}

fn system(step: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    move |source| ServeError::System { step, source }
}

/// Starts `count` reactors for devices in these files, the first one here. When each has its threads and its ring,
/// `begin` makes what they share, and they run until the server is stopped. `true` if the kernel has let go of all memory.
///
/// # Errors
/// Those of `begin`, and [`ServeError`]; it is not called if a thread or a ring is not to be had.
pub(crate) fn run_all<C: Core + 'static, E: From<ServeError>>(
    shared: &OnceLock<Shared<C>>,
    count: usize,
    files: &[RawFd],
    listeners: Vec<Listener>,
    control: Control<C>,
    begin: impl FnOnce() -> Result<Shared<C>, E>,
) -> Result<bool, E> {
    std::thread::scope(|scope| {
        let (report, reports) = channel();
        let mut others = Vec::with_capacity(count);
        // Dropped before anything was sent, it makes the other threads end.
        let mut starts = Vec::with_capacity(count);
        for number in 1..count {
            let (start, started) = channel();
            let report = report.clone();
            let builder = std::thread::Builder::new().name(format!("reactor-{number}"));
            let other = builder.spawn_scoped(scope, move || stand_by(number, files, &report, &started));
            others.push(other.map_err(system("start a thread"))?);
            starts.push(start);
        }
        drop(report);
        let own = Backend::new(files).map_err(system("start the threads for devices"))?;
        for _ in 1..count {
            let made: io::Result<()> = reports.recv().map_err(|_| ServeError::Broken)?;
            made.map_err(system("start the threads for devices"))?;
        }
        let begun = begin()?;
        let shared = shared.get_or_init(|| begun);
        for start in starts {
            // A thread that has ended is noticed when it is joined.
            let _ = start.send(shared);
        }
        let mut result = run(shared, 0, own, listeners, Some(control));
        for other in others {
            let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = match (result, other) {
                (Ok(here), Ok(there)) => Ok(here && there),
                (Ok(_) | Err(ServeError::Broken), Err(error)) => Err(error),
                (Err(error), _) => Err(error),
            };
        }
        Ok(result?)
    })
}

/// A backend, and the errno with which the kernel refused io_uring.
type Own = (Backend, Option<i32>);

/// Makes the backend of a reactor, reports that, and runs the reactor once it is told to.
fn stand_by<C: Core + 'static>(
    number: usize,
    files: &[RawFd],
    report: &Sender<io::Result<()>>,
    started: &Receiver<&Shared<C>>,
) -> Result<bool, ServeError> {
    let own = match Backend::new(files) {
        Ok(own) => own,
        Err(error) => {
            // The first reactor may have failed itself.
            let _ = report.send(Err(error));
            return Ok(true);
        }
    };
    let _ = report.send(Ok(()));
    match started.recv() {
        Ok(shared) => run(shared, number, own, Vec::new(), None),
        Err(_) => Ok(true),
    }
}

fn run<C: Core + 'static>(
    shared: &Shared<C>,
    number: usize,
    own: Own,
    listeners: Vec<Listener>,
    control: Option<Control<C>>,
) -> Result<bool, ServeError> {
    let mut watch = shared.watch();
    let has_let_go = Reactor::new(shared, number, own, listeners, control)?.run()?;
    watch.is_well = true;
    Ok(has_let_go)
}

impl<'t, C: Core + 'static> Reactor<'t, C> {
    fn new(
        shared: &'t Shared<C>,
        number: usize,
        (backend, refused): Own,
        listeners: Vec<Listener>,
        control: Option<Control<C>>,
    ) -> Result<Reactor<'t, C>, ServeError> {
        if let (Some(errno), 0) = (refused, number) {
            shared.take()?.notices.push(ServerNotice::NoIoUring { errno });
        }
        Ok(Reactor {
            shared,
            number,
            backend,
            doors: Doors::open(listeners),
            control,
            finished: Vec::with_capacity(1024),
            spins: [0; 2].map(|pause| Spin { score: SPIN_SCORE_MAX / 2, pause }),
        })
    }

    fn run(mut self) -> Result<bool, ServeError> {
        self.await_wake_up();
        loop {
            match self.round()? {
                Next::Sleep { until, soon } => {
                    self.sleep(until, soon).map_err(system("wait for the kernel"))?;
                }
                Next::End => return self.finish(),
            }
        }
    }

    /// Turns as long as there is something to do at once, and gets ready to send.
    fn round(&mut self) -> Result<Next, ServeError> {
        let mut held = None;
        for _ in 0..TURNS_BEFORE_SEND {
            let before = self.backend.outstanding();
            self.backend.reap(&mut self.finished);
            let mut driver = self.shared.take()?;
            let started = self.turn(&mut driver, before);
            if !started && !self.backend.is_ready() {
                held = Some(driver);
                break;
            }
            self.shared.give_back(driver, self.number);
            if started {
                self.backend.submit().map_err(system("submit to the kernel"))?;
            }
            if !self.backend.is_ready() {
                break;
            }
        }
        let mut driver = match held {
            Some(driver) => driver,
            None => {
                let mut driver = self.shared.take()?;
                driver.catch_up();
                // Others may have left orders here meanwhile, or freed memory, without a wake-up: this one is awake.
                self.settle(&mut driver);
                driver
            }
        };
        let next = self.close_round(&mut driver);
        self.shared.give_back(driver, self.number);
        Ok(next)
    }

    /// Takes finished operations and does all work that follows. `true` if the kernel was given work: more is
    /// outstanding than `before` they were finished.
    fn turn(&mut self, driver: &mut Driver<C>, before: usize) -> bool {
        let mut finished = std::mem::take(&mut self.finished);
        driver.now = clock::now();
        driver.wakeups.wake(self.number);
        let taken = finished.len();
        for Finished { token, result } in finished.drain(..) {
            self.dispatch(token, result, driver);
        }
        self.finished = finished;
        driver.tick();
        self.settle(driver);
        self.backend.outstanding() + taken > before
    }

    /// Does all work that follows from the input of the core and this reactor, up to the replies.
    fn settle(&mut self, driver: &mut Driver<C>) {
        let Reactor { number, backend, doors, control, .. } = self;
        let turn = &mut Turn { driver, backend, reactor: *number };
        loop {
            while let Some(order) = turn.driver.wakeups.take_order(*number) {
                doors.obey(order, turn);
            }
            doors.tick(turn);
            turn.settle();
            let mut any = false;
            while let Some((asker, result)) = turn.driver.wakeups.take_reply(*number) {
                any = true;
                match asker {
                    Asker::Door { door, piece, .. } => doors.answered(door, piece, result, turn),
                    Asker::Control(key) => {
                        control
                            .as_mut()
                            .expect("only the first reactor has requests of other threads")
                            .answer(key, result, turn);
                    }
                }
            }
            // A reply may have freed memory that a client waits for, or had its door ask for more, and no other event may ever
            // come.
            let goes_on = any && (doors.is_blocked() || turn.driver.has_asked());
            if !goes_on && !turn.driver.wakeups.has_orders(*number) {
                break;
            }
        }
    }

    fn dispatch(&mut self, token: Token, result: i32, driver: &mut Driver<C>) {
        let Reactor { number: reactor, backend, doors, control, .. } = self;
        let turn = &mut Turn { driver, backend, reactor: *reactor };
        match Owner::of(token) {
            Owner::Flight(key) => {
                let Driver { flights, pool, now, .. } = &mut *turn.driver;
                flights.landed(key, result, *now, pool, turn.backend);
            }
            Owner::Door { door, event } => doors.finished(door, event, result, turn),
            Owner::WakeUp => {
                if let Some(control) = control {
                    control.take_messages(turn);
                }
                self.await_wake_up();
            }
        }
    }

    fn await_wake_up(&mut self) {
        self.backend.await_event(Owner::WakeUp.token(), self.shared.wake_event(self.number));
    }

    /// Hands over replies that are ready to be sent, and returns the next step.
    fn close_round(&mut self, driver: &mut Driver<C>) -> Next {
        let turn = &mut Turn { driver, backend: &mut self.backend, reactor: self.number };
        self.doors.send(turn);
        if self.control.as_mut().is_some_and(|control| control.end_if_quiet(turn)) {
            // It may be done at once, and then nothing would wake the loop.
            self.settle(driver);
        }
        driver.tell();
        if driver.wakeups.is_over() {
            return Next::End;
        }
        let waits_since = self.doors.is_blocked().then(|| driver.pool.door_returns());
        let of_control = self.control.as_ref().and_then(Control::deadline);
        let own = [self.doors.deadline(), of_control].into_iter().flatten().min();
        let shared = driver.deadline();
        let until = driver.wakeups.sleep(self.number, own, shared, waits_since);
        let soon = match driver.flights.in_flight() {
            _ if !driver.wakeups.is_alone(self.number) => None,
            0 => Some(Soon::Request),
            1 if driver.flights.is_reading_elsewhere() => Some(Soon::Reply),
            _ => None,
        };
        Next::Sleep { until, soon }
    }

    /// Waits for the kernel to let go of all memory that it was given. `true` if it has.
    fn finish(mut self) -> Result<bool, ServeError> {
        let mut driver = self.shared.take()?;
        driver.tell();
        self.doors.shut(&mut Turn { driver: &mut driver, backend: &mut self.backend, reactor: self.number });
        self.shared.give_back(driver, self.number);
        self.shared.wake(self.number);
        let end = clock::now().plus(END_NS);
        let mut finished = Vec::new();
        while self.backend.outstanding() > 0 && clock::now() < end {
            let waited = self.backend.wait(Some(Duration::from_millis(100)));
            waited.map_err(system("wait for the kernel"))?;
            self.backend.reap(&mut finished);
        }
        let has_let_go = self.backend.outstanding() == 0;
        self.doors.has_let_go = has_let_go;
        Ok(has_let_go)
    }

    fn sleep(&mut self, until: Option<Nanos>, soon: Option<Soon>) -> io::Result<()> {
        let backend = &mut self.backend;
        let spin = &mut self.spins[soon.unwrap_or(Soon::Request) as usize];
        if backend.can_spin() && spin.pays() {
            backend.submit()?;
            // A send is usually done at once, and then there is more to do before looking ahead.
            if backend.is_ready() {
                return backend.submit();
            }
            let may_spin = match soon {
                None => false,
                Some(Soon::Request) => self.doors.expects_bytes_soon(),
                Some(Soon::Reply) => true,
            };
            if may_spin {
                let end = clock::now().plus(SPIN_NS).min(until.unwrap_or(Nanos(u64::MAX)));
                while !backend.is_ready() && clock::now() < end {
                    std::hint::spin_loop();
                }
                if backend.is_ready() {
                    spin.succeeded();
                    return backend.submit();
                }
                spin.failed();
            }
        }
        let timeout = until.map(|until| Duration::from_nanos(until.since(clock::now())));
        self.backend.wait(timeout)
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
