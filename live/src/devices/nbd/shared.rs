//! Operations at an export, and the state that its threads share.
//!
//! What is sent, what counts as answered, and what a lost connection takes back is decided by [`engine::remote`]. Here
//! its answers are brought to those who wait, and its requests to connections.
//!
//! Invariants:
//! - I1: answers are passed on in the order in which they came, under the lock under which they were taken.

use super::hearing::Hearing;
use super::link::Link;
use super::memory::Span;
use crate::clock;
use crate::nbd::replies::Ending;
use crate::nbd::uri::NbdUri;
use crate::nbd::wire::RawRequest;
use crate::nbd::wire::protocol::{CMD_FLAG_FUA, CMD_FLUSH, CMD_READ, CMD_TRIM, CMD_WRITE, CMD_WRITE_ZEROES};
use engine::effect::Errno;
use engine::remote::{Heard, Owner, Phase, Remote};
use engine::units::{BLOCK_BYTES, Nanos, payload_checksum};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use engine::remote::{Kind, Operation};

/// Answers of operations, by the tokens of reactors, in the order in which they came.
pub(crate) type Answers = VecDeque<(u64, Result<(), Errno>)>;

/// Who is told the answer.
pub(crate) enum Asker {
    /// A reactor, by its own token, and the eventfd that wakes it.
    Reactor { token: u64, waker: Arc<OwnedFd> },
    /// A thread that waits.
    Thread(Arc<Waiter>),
}

/// The place where a thread waits for its answer.
#[derive(Default)]
pub(crate) struct Waiter {
    answer: Mutex<Option<Result<(), Errno>>>,
    comes: Condvar,
}

impl Waiter {
    fn set(&self, result: Result<(), Errno>) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.comes.notify_all();
    }

    /// The answer, if it is there.
    pub(super) fn take(&self) -> Option<Result<(), Errno>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits for the answer.
    pub(super) fn wait(&self) -> Result<(), Errno> {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match answer.take() {
                Some(result) => return result,
                None => answer = self.comes.wait(answer).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// A note on an operation until it is answered.
pub(super) struct Carried {
    span: Span,
    asker: Asker,
}

/// An event that the operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The connection is lost.
    Away {
        /// Why.
        reason: String,
    },
    /// The server serves something else.
    Other {
        /// The difference.
        reason: String,
    },
    /// The server may have lost what it acknowledged and did not flush: the next flush fails.
    MayHaveLost,
    /// The connection is there again.
    Back {
        /// It was away for so long.
        away_ns: u64,
    },
}

pub(super) struct State {
    pub remote: Remote<Carried>,
    pub links: Vec<Arc<Link>>,
    done: Answers,
    pub events: VecDeque<Event>,
    /// Why the server is away.
    pub away_because: String,
    /// Finished renewals of the connection.
    pub renewals: u64,
    /// Links may touch memory of operations.
    pub is_in_use: bool,
}

/// The state of an export, shared by its threads.
pub(super) struct Shared {
    pub uri: NbdUri,
    pub hearing: Hearing,
    state: Mutex<State>,
    /// Notified when the keeper has something to do, or did something.
    pub changed: Condvar,
    /// There may be answers or events to take.
    has_news: AtomicBool,
    /// A reactor was woken, or is awake, and has not looked yet.
    is_signalled: AtomicBool,
    /// Time of the last connection; `u64::MAX` while there is none.
    up_since_ns: AtomicU64,
    /// The last reactor that asked for anything.
    waker: Mutex<Option<Arc<OwnedFd>>>,
}

impl Shared {
    pub(super) fn new(uri: NbdUri, remote: Remote<Carried>) -> io::Result<Shared> {
        let state = State {
            remote,
            links: Vec::new(),
            done: VecDeque::new(),
            events: VecDeque::new(),
            away_because: String::new(),
            renewals: 0,
            is_in_use: false,
        };
        Ok(Shared {
            uri,
            hearing: Hearing::new()?,
            state: Mutex::new(state),
            changed: Condvar::new(),
            has_news: AtomicBool::new(false),
            is_signalled: AtomicBool::new(false),
            up_since_ns: AtomicU64::new(u64::MAX),
            waker: Mutex::new(None),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock in a way that leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change of the state, at most for `patience`.
    pub(super) fn wait<'s>(
        &self,
        state: MutexGuard<'s, State>,
        patience: Option<Duration>,
    ) -> MutexGuard<'s, State> {
        match patience {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                let waited = self.changed.wait_timeout(state, patience);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Takes an operation. Its memory is used until the answer.
    pub(super) fn submit(&self, operation: Operation, span: Span, asker: Asker) {
        if let Asker::Reactor { waker, .. } = &asker
            && !self.asked_last(waker)
        {
            *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(waker));
        }
        let owner = match &asker {
            Asker::Reactor { .. } => Owner::Engine,
            Asker::Thread(_) => Owner::Driver,
        };
        let checksum_at = |carried: &Carried, offset_bytes: u64| {
            checksum(&carried.span, offset_bytes - operation.offset_bytes)
        };
        let mut state = self.lock();
        let cookie = state.remote.submit(operation, owner, Carried { span, asker }, checksum_at);
        match cookie {
            Some(cookie) => self.send(state, cookie),
            None => self.pass_on(&mut state),
        }
    }

    /// Sends a request of an operation, if it may go out now.
    fn send(&self, mut state: MutexGuard<'_, State>, cookie: u64) {
        let Some(link) = state.links.iter().min_by_key(|link| link.in_flight()).map(Arc::clone) else {
            return;
        };
        let Some(request) = state.remote.begin(cookie, clock::now()) else {
            if state.remote.phase() == Phase::Up {
                // The keeper sends it when it may go.
                self.changed.notify_all();
            }
            return;
        };
        let span = match state.remote.carried(cookie) {
            Some(carried) if !request.is_zeroes => carried.span.clone(),
            _ => Span::zeroes(u64::from(request.len_bytes)),
        };
        drop(state);
        let at_bytes = if request.is_zeroes { 0 } else { request.at_bytes };
        let command = match request.kind {
            Kind::Read => CMD_READ,
            Kind::Write => CMD_WRITE,
            Kind::Flush => CMD_FLUSH,
            Kind::Discard => CMD_TRIM,
            Kind::Zero => CMD_WRITE_ZEROES,
        };
        let raw = RawRequest {
            flags: if request.is_fua { CMD_FLAG_FUA } else { 0 },
            command,
            cookie,
            offset_bytes: request.offset_bytes,
            len_bytes: request.len_bytes,
        };
        link.send(&raw, &span, at_bytes);
    }

    /// Sends all requests that may go out now.
    pub(super) fn send_waiting(&self) {
        let cookies: Vec<u64> = self.lock().remote.waiting().collect();
        cookies.into_iter().for_each(|cookie| self.send(self.lock(), cookie));
    }

    /// Takes the end of a request on a link of a connection.
    ///
    /// # Errors
    /// Why that connection is of no use any more.
    pub(super) fn ended(&self, generation: u64, ending: Ending) -> Result<(), &'static str> {
        let mut state = self.lock();
        match state.remote.heard(generation, ending.cookie, ending.result) {
            Heard::Done => {
                self.pass_on(&mut state);
                if state.remote.phase() == Phase::Draining && state.remote.is_quiet() {
                    self.changed.notify_all();
                }
                Ok(())
            }
            Heard::More { cookie } => {
                self.send(state, cookie);
                Ok(())
            }
            Heard::Late => Err("the connection is over"),
            Heard::Stray => Err("the server answered what was not asked"),
            Heard::ShuttingDown => Err("the server is shutting down"),
        }
    }

    /// Brings answers to those who wait for them.
    pub(super) fn pass_on(&self, state: &mut State) {
        while let Some(answer) = state.remote.take_answer() {
            match answer.carried.asker {
                Asker::Thread(waiter) => waiter.set(answer.result),
                Asker::Reactor { token, waker } => {
                    state.done.push_back((token, answer.result));
                    self.signal(&waker);
                }
            }
        }
    }

    fn signal(&self, waker: &OwnedFd) {
        self.has_news.store(true, Ordering::Release);
        if !self.is_signalled.swap(true, Ordering::AcqRel) {
            // It fails only if the counter is full, and then the reactor is awake.
            let _ = rustix::io::write(waker, &1u64.to_ne_bytes());
        }
    }

    /// Lets a reactor hear, which looks at the news next: it need not be woken for them.
    pub(super) fn while_awake<T>(&self, hear: impl FnOnce() -> T) -> T {
        self.is_signalled.store(true, Ordering::Release);
        let heard = hear();
        // News that came meanwhile are seen after this.
        self.is_signalled.swap(false, Ordering::AcqRel);
        heard
    }

    /// Whether the reactor that this eventfd wakes was the last one that asked for anything.
    pub(super) fn asked_last(&self, waker: &Arc<OwnedFd>) -> bool {
        let last = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().is_some_and(|last| Arc::ptr_eq(last, waker))
    }

    /// Tells the operator, by way of a reactor.
    pub(super) fn tell(&self, state: &mut State, event: Event) {
        if state.events.back() != Some(&event) {
            state.events.push_back(event);
        }
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match waker {
            Some(waker) => self.signal(&waker),
            None => self.has_news.store(true, Ordering::Release),
        }
    }

    /// The answers and events since the last look.
    pub(super) fn news(&self) -> Option<(Answers, VecDeque<Event>)> {
        if !self.has_news.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.lock();
        self.has_news.store(false, Ordering::Release);
        self.is_signalled.store(false, Ordering::Release);
        Some((std::mem::take(&mut state.done), std::mem::take(&mut state.events)))
    }

    /// A link of a connection has ended.
    pub(super) fn lost(&self, generation: u64, reason: &str) {
        let mut state = self.lock();
        if !state.remote.lost(generation, clock::now()) {
            return;
        }
        reason.clone_into(&mut state.away_because);
        self.up_since_ns.store(u64::MAX, Ordering::Relaxed);
        state.links.iter().for_each(|link| link.close());
        self.tell(&mut state, Event::Away { reason: reason.to_owned() });
        self.changed.notify_all();
    }

    /// The connection works, and another one shall take its place: nothing is under way on it.
    pub(super) fn give_away(&self) {
        let mut state = self.lock();
        state.remote.give_away();
        if state.remote.phase() == Phase::Away {
            self.up_since_ns.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// All threads of the connection have ended: what was under way waits for the next one.
    pub(super) fn take_back(&self) {
        let mut state = self.lock();
        state.is_in_use = false;
        state.links.clear();
        let owed = state.remote.owes_failure();
        state.remote.take_back(clock::now());
        if !owed && state.remote.owes_failure() {
            self.tell(&mut state, Event::MayHaveLost);
        }
        self.pass_on(&mut state);
    }

    /// All is over: what waits fails.
    pub(super) fn fail_all(&self) {
        let mut state = self.lock();
        state.remote.fail_waiting(Errno::TIMEDOUT);
        self.pass_on(&mut state);
    }

    /// The server was looked for, and cannot be had.
    pub(super) fn sought_in_vain(&self, state: &mut State, because: String) {
        if state.remote.away_since().is_none() {
            self.tell(state, Event::Away { reason: because.clone() });
        }
        state.away_because = because;
        state.remote.sought_in_vain(clock::now());
        self.pass_on(state);
    }

    /// Operations go out on these links, whose connection gets a number.
    pub(super) fn go_up(&self, links: Vec<Arc<Link>>) -> u64 {
        let mut state = self.lock();
        state.links = links;
        state.is_in_use = true;
        let away_since = state.remote.away_since();
        let generation = state.remote.go_up();
        if state.remote.phase() == Phase::Ended {
            // The keeper closes them at once.
            return generation;
        }
        state.renewals += 1;
        let now = clock::now();
        self.up_since_ns.store(now.0, Ordering::Relaxed);
        if let Some(since) = away_since {
            self.tell(&mut state, Event::Back { away_ns: now.since(since) });
        }
        drop(state);
        self.changed.notify_all();
        self.send_waiting();
        generation
    }

    /// The time from which operations count as under way: they do not while there is no connection.
    pub(super) fn up_since(&self) -> Nanos {
        Nanos(self.up_since_ns.load(Ordering::Relaxed))
    }
}

/// The checksum of a block of an operation's memory.
fn checksum(span: &Span, at_bytes: u64) -> u32 {
    let mut block = Vec::with_capacity(BLOCK_BYTES as usize);
    span.slices(at_bytes, BLOCK_BYTES).iter().for_each(|slice| block.extend_from_slice(slice));
    payload_checksum(&block)
}
