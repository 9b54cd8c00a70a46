//! Operations at an export, and the state that its threads share.
//!
//! Invariants:
//! - I1: an operation is answered exactly once: when its last request is, when the origin is away for too long, or at the
//!   end.
//! - I2: answers are taken in the order in which they came. So a failed flush comes after all changes that it takes back.
//! - I3: after a connection was lost, changes that were acknowledged and not flushed may be lost with it: the flush that is
//!   under way, or else the next one, fails.

use super::facts::Facts;
use super::link::Link;
use super::memory::Span;
use super::places::{self, Place, Places};
use crate::clock;
use crate::nbd::replies::Ending;
use crate::nbd::uri::NbdUri;
use crate::nbd::wire::RawRequest;
use crate::nbd::wire::protocol::{CMD_FLAG_FUA, CMD_FLUSH, CMD_READ, CMD_TRIM, CMD_WRITE, CMD_WRITE_ZEROES};
use engine::effect::Errno;
use engine::units::{BLOCK_BYTES, Nanos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest TRIM or WRITE_ZEROES that is asked for at once.
const RANGE_BYTES_MAX: u64 = 1 << 30;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Read into memory.
    Read,
    /// Write from memory.
    Write,
    /// Make acknowledged changes durable.
    Flush,
    /// Drop a range.
    Discard,
    /// Zero a range.
    Zero,
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// Its kind.
    pub kind: Kind,
    /// Where.
    pub offset_bytes: u64,
    /// How much.
    pub len_bytes: u64,
}

impl Operation {
    fn is_change(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Discard | Kind::Zero)
    }
}

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

/// An operation that is not answered.
struct Entry {
    operation: Operation,
    span: Span,
    asker: Asker,
    done_bytes: u64,
    /// The length of the request under way.
    part_bytes: u64,
    /// The link that it is under way on; `None` while it waits.
    link: Option<usize>,
    /// The changes that a flush covers.
    covers: u64,
    /// The block that is remembered of a write.
    sample: Option<Place>,
}

/// The stage of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Operations go out.
    Up,
    /// A new connection is wanted, and nothing goes out until all that is under way is answered.
    Draining,
    /// The connection is lost: operations wait.
    Away,
    /// No operation is taken any more.
    Ended,
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
    /// The connection is there again.
    Back {
        /// It was away for so long.
        away_ns: u64,
    },
}

pub(super) struct State {
    pub phase: Phase,
    pub facts: Facts,
    pub links: Vec<Arc<Link>>,
    /// Counts connections, so that a link that ends late is not taken for a newer one.
    pub generation: u64,
    entries: BTreeMap<u64, Entry>,
    /// Entries that are under way on no link.
    waiting: BTreeSet<u64>,
    next_cookie: u64,
    done: Answers,
    pub events: VecDeque<Event>,
    pub places: Places,
    /// Changes acknowledged so far, and how many of them are durable.
    changes: u64,
    flushed: u64,
    /// The next flush of a reactor fails (I3).
    owes_failure: bool,
    /// Time since which the connection is gone, and why.
    pub away: Option<(Nanos, String)>,
    /// The wait is over: what needs the origin fails at once.
    pub is_given_up: bool,
    /// No change goes out before.
    pub held_until: Nanos,
    /// Finished renewals of the connection.
    pub renewals: u64,
    /// Threads of links may touch memory of operations.
    pub is_in_use: bool,
}

/// The state of an export, shared by its threads.
pub(super) struct Shared {
    pub uri: NbdUri,
    state: Mutex<State>,
    /// Notified when the keeper has something to do, or did something.
    pub changed: Condvar,
    /// There may be answers or events to take.
    has_news: AtomicBool,
    /// A reactor was woken and has not looked yet.
    is_signalled: AtomicBool,
    /// Time of the last connection; `u64::MAX` while there is none.
    up_since_ns: AtomicU64,
    /// The last reactor that asked for anything.
    waker: Mutex<Option<Arc<OwnedFd>>>,
}

impl Shared {
    pub(super) fn new(uri: NbdUri, facts: Facts, places: Places, held_until: Nanos) -> Shared {
        let state = State {
            phase: Phase::Away,
            facts,
            links: Vec::new(),
            generation: 0,
            entries: BTreeMap::new(),
            waiting: BTreeSet::new(),
            next_cookie: 1,
            done: VecDeque::new(),
            events: VecDeque::new(),
            places,
            changes: 0,
            flushed: 0,
            owes_failure: false,
            away: None,
            is_given_up: false,
            held_until,
            renewals: 0,
            is_in_use: false,
        };
        Shared {
            uri,
            state: Mutex::new(state),
            changed: Condvar::new(),
            has_news: AtomicBool::new(false),
            is_signalled: AtomicBool::new(false),
            up_since_ns: AtomicU64::new(u64::MAX),
            waker: Mutex::new(None),
        }
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
        if let Asker::Reactor { waker, .. } = &asker {
            let mut last = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
            if !last.as_ref().is_some_and(|last| Arc::ptr_eq(last, waker)) {
                *last = Some(Arc::clone(waker));
            }
        }
        let mut state = self.lock();
        if let Some(result) = state.answer_at_once(&operation, &asker) {
            return self.answer(&mut state, asker, result);
        }
        let needs_bytes = operation.kind == Kind::Zero && !state.facts.can_zero;
        let mut sample = None;
        if operation.is_change() {
            state.places.forget(operation.offset_bytes, operation.len_bytes);
            if operation.kind == Kind::Write && state.places.wants_sample() {
                sample = place_of(&operation, &span);
            }
        }
        let operation = if needs_bytes { Operation { kind: Kind::Write, ..operation } } else { operation };
        let span = if needs_bytes { Span::zeroes(operation.len_bytes) } else { span };
        let covers = state.changes;
        let entry =
            Entry { operation, span, asker, done_bytes: 0, part_bytes: 0, link: None, covers, sample };
        let cookie = state.add(entry);
        self.send(state, cookie);
    }

    /// Sends an entry, if it may go out now.
    fn send(&self, mut state: MutexGuard<'_, State>, cookie: u64) {
        let now = clock::now();
        let Some((link, request, span, at_bytes)) = state.begin(cookie, now) else {
            if state.phase == Phase::Up {
                // The keeper sends it when it may go.
                self.changed.notify_all();
            }
            return;
        };
        drop(state);
        link.send(&request, &span, at_bytes);
    }

    /// Sends all entries that may go out now.
    pub(super) fn send_waiting(&self) {
        let cookies: Vec<u64> = self.lock().waiting.iter().copied().collect();
        cookies.into_iter().for_each(|cookie| self.send(self.lock(), cookie));
    }

    /// Takes the end of a request on a link of a connection. False if that connection is of no use any more.
    pub(super) fn ended(&self, generation: u64, ending: Ending) -> bool {
        let mut state = self.lock();
        if state.generation != generation {
            return false;
        }
        let Some(mut entry) = state.entries.remove(&ending.cookie) else {
            unreachable!("a link knows only requests that are under way")
        };
        match ending.result {
            Err(Errno::SHUTDOWN) => {
                // The server is about to go: as good as gone, and another one may take it.
                state.entries.insert(ending.cookie, entry);
                return false;
            }
            Err(Errno::OPNOTSUPP | Errno::INVAL) if entry.operation.kind == Kind::Zero => {
                // It says it can, and cannot do it here.
                state.facts.can_zero = false;
                entry.operation.kind = Kind::Write;
                entry.span = Span::zeroes(entry.operation.len_bytes);
            }
            Err(errno) => {
                self.answer(&mut state, entry.asker, Err(errno));
                return true;
            }
            Ok(()) => {
                entry.done_bytes += entry.part_bytes;
                if entry.done_bytes >= entry.operation.len_bytes {
                    state.note_success(&entry);
                    self.answer(&mut state, entry.asker, Ok(()));
                    if state.phase == Phase::Draining && state.is_quiet() {
                        self.changed.notify_all();
                    }
                    return true;
                }
            }
        }
        entry.link = None;
        let cookie = state.add(entry);
        self.send(state, cookie);
        true
    }

    fn answer(&self, state: &mut State, asker: Asker, result: Result<(), Errno>) {
        match asker {
            Asker::Thread(waiter) => waiter.set(result),
            Asker::Reactor { token, waker } => {
                state.done.push_back((token, result));
                self.signal(&waker);
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
        let is_current = state.generation == generation;
        if !is_current || !matches!(state.phase, Phase::Up | Phase::Draining) {
            return;
        }
        state.phase = Phase::Away;
        state.away = Some((clock::now(), reason.to_owned()));
        self.up_since_ns.store(u64::MAX, Ordering::Relaxed);
        state.links.iter().for_each(|link| link.close());
        let reason = reason.to_owned();
        self.tell(&mut state, Event::Away { reason });
        self.changed.notify_all();
    }

    /// The connection works, and another one shall take its place: nothing is under way on it.
    pub(super) fn give_away(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Draining {
            state.phase = Phase::Away;
            self.up_since_ns.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// All threads of the lost connection have ended: what was under way waits for the next one. `false` if nothing
    /// that changes the origin was under way.
    pub(super) fn take_back(&self) -> bool {
        let mut state = self.lock();
        state.is_in_use = false;
        state.links.clear();
        let may_be_lost = state.changes > state.flushed;
        state.places.lose_unflushed();
        let mut is_told = false;
        let mut has_changes = false;
        let mut flushes = Vec::new();
        let State { entries, waiting, .. } = &mut *state;
        for (cookie, entry) in entries {
            has_changes |= entry.link.is_some() && entry.operation.is_change();
            entry.link = None;
            waiting.insert(*cookie);
            if entry.operation.kind == Kind::Flush && may_be_lost {
                is_told |= matches!(entry.asker, Asker::Reactor { .. });
                flushes.push(*cookie);
            }
        }
        for cookie in flushes {
            self.fail(&mut state, cookie, Errno::IO);
        }
        state.owes_failure |= may_be_lost && !is_told;
        // Whatever they were, they are the engine's to do again.
        state.flushed = state.changes;
        has_changes
    }

    fn fail(&self, state: &mut State, cookie: u64, errno: Errno) {
        state.waiting.remove(&cookie);
        let entry = state.entries.remove(&cookie).expect("it was not answered");
        self.answer(state, entry.asker, Err(errno));
    }

    /// Fails all that waits.
    pub(super) fn fail_waiting(&self, state: &mut State, errno: Errno) {
        let cookies: Vec<u64> = state.waiting.iter().copied().collect();
        cookies.into_iter().for_each(|cookie| self.fail(state, cookie, errno));
    }

    /// Operations go out on these links, whose connection gets a number.
    pub(super) fn go_up(&self, links: Vec<Arc<Link>>) -> u64 {
        let mut state = self.lock();
        state.generation += 1;
        let generation = state.generation;
        state.links = links;
        state.is_in_use = true;
        if state.phase == Phase::Ended {
            // The keeper closes them at once.
            return generation;
        }
        state.phase = Phase::Up;
        state.is_given_up = false;
        state.renewals += 1;
        let now = clock::now();
        self.up_since_ns.store(now.0, Ordering::Relaxed);
        if let Some((since, _)) = state.away.take() {
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

/// The place that is remembered of a write.
fn place_of(operation: &Operation, span: &Span) -> Option<Place> {
    let offset_bytes = places::sample_of(operation.offset_bytes, operation.len_bytes)?;
    let mut block = Vec::with_capacity(BLOCK_BYTES as usize);
    let slices = span.slices(offset_bytes - operation.offset_bytes, BLOCK_BYTES);
    slices.iter().for_each(|slice| block.extend_from_slice(slice));
    Some(Place { offset_bytes, checksum: places::checksum(&block) })
}

impl State {
    /// The answer to an operation that needs no server, or gets none.
    fn answer_at_once(&mut self, operation: &Operation, asker: &Asker) -> Option<Result<(), Errno>> {
        if self.phase == Phase::Ended {
            return Some(Err(Errno::TIMEDOUT));
        }
        if operation.is_change() && self.facts.is_read_only {
            return Some(Err(Errno::PERM));
        }
        match operation.kind {
            Kind::Flush if self.owes_failure && matches!(asker, Asker::Reactor { .. }) => {
                self.owes_failure = false;
                return Some(Err(Errno::IO));
            }
            // Each change is durable by itself, or none can be made so.
            Kind::Flush if !self.facts.can_flush => {
                self.flushed = self.changes;
                self.places.flushed(self.changes);
                return Some(Ok(()));
            }
            Kind::Discard if !self.facts.can_trim => return Some(Err(Errno::OPNOTSUPP)),
            _ if operation.kind != Kind::Flush && operation.len_bytes == 0 => return Some(Ok(())),
            _ => {}
        }
        (self.phase == Phase::Away && self.is_given_up).then_some(Err(Errno::IO))
    }

    /// Adds an entry that waits.
    fn add(&mut self, entry: Entry) -> u64 {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.entries.insert(cookie, entry);
        self.waiting.insert(cookie);
        cookie
    }

    /// Makes the next request of an entry, if it may go out.
    fn begin(&mut self, cookie: u64, now: Nanos) -> Option<(Arc<Link>, RawRequest, Span, u64)> {
        let entry = self.entries.get_mut(&cookie).filter(|entry| entry.link.is_none())?;
        let is_own_flush = entry.operation.kind == Kind::Flush && matches!(entry.asker, Asker::Thread(_));
        let may_go = self.phase == Phase::Up || self.phase == Phase::Draining && is_own_flush;
        if !may_go || entry.operation.is_change() && now < self.held_until {
            return None;
        }
        let at = (0..self.links.len()).min_by_key(|at| self.links[*at].in_flight())?;
        let (command, part_bytes_max) = match entry.operation.kind {
            Kind::Read => (CMD_READ, u64::from(self.facts.payload_bytes_max)),
            Kind::Write => (CMD_WRITE, u64::from(self.facts.payload_bytes_max)),
            Kind::Flush => (CMD_FLUSH, 0),
            Kind::Discard => (CMD_TRIM, RANGE_BYTES_MAX),
            Kind::Zero => (CMD_WRITE_ZEROES, RANGE_BYTES_MAX),
        };
        entry.part_bytes = (entry.operation.len_bytes - entry.done_bytes).min(part_bytes_max);
        entry.link = Some(at);
        self.waiting.remove(&cookie);
        let is_fua = entry.operation.is_change() && !self.facts.can_flush && self.facts.can_fua;
        let request = RawRequest {
            flags: if is_fua { CMD_FLAG_FUA } else { 0 },
            command,
            cookie,
            offset_bytes: entry.operation.offset_bytes + entry.done_bytes,
            len_bytes: u32::try_from(entry.part_bytes).expect("a part of an operation"),
        };
        Some((Arc::clone(&self.links[at]), request, entry.span.clone(), entry.done_bytes))
    }

    fn note_success(&mut self, entry: &Entry) {
        if entry.operation.is_change() {
            self.changes += 1;
            if let Some(place) = entry.sample {
                self.places.add_written(place, self.changes);
            }
            if !self.facts.can_flush && self.facts.can_fua {
                self.flushed = self.changes;
                self.places.flushed(self.changes);
            }
        }
        if entry.operation.kind == Kind::Flush {
            self.flushed = self.flushed.max(entry.covers);
            self.places.flushed(entry.covers);
        }
    }

    /// Whether no request is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.entries.values().all(|entry| entry.link.is_none())
    }

    /// Whether changes were acknowledged that no flush has covered.
    pub(super) fn is_unflushed(&self) -> bool {
        self.changes > self.flushed
    }

    /// Whether something waits for the time at which changes may go out.
    pub(super) fn has_held(&self) -> bool {
        self.phase == Phase::Up && !self.waiting.is_empty()
    }
}
