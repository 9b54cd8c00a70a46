//! An export of an NBD server as a device: an origin elsewhere.
//!
//! A keeper makes connections, and each has a thread that sends what could not be sent at once. Reactors hand operations
//! over without waiting, and hear the replies themselves; when none does, a thread hears.
//!
//! What a disk never does, a server does: it goes away and comes back. What that comes to is decided by
//! [`engine::remote`], which knows no socket and no thread.

mod dial;
mod facts;
mod hearing;
mod keeper;
mod link;
mod lock;
#[expect(unsafe_code, reason = "threads read and write the memory of operations")]
pub(crate) mod memory;
mod shared;

pub(crate) use shared::{Answers, Asker, Event, Kind, Operation};

use super::DeviceError;
use crate::clock;
use crate::nbd::uri::NbdUri;
use crate::patience;
use crate::reactor::backend::Backend;
use dial::{DialError, dial};
use engine::effect::Errno;
use engine::mutation::Mutations;
use engine::remote::places::Places;
use engine::remote::{Phase, Remote, settled_at};
use engine::units::Nanos;
use hearing::ExportEar;
use keeper::{Keeper, join_more};
use lock::ExportLock;
use memory::Span;
use shared::{Shared, Waiter};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections at most, if the server says that a flush on one covers all.
const LINKS_MAX: usize = 4;
/// Longest wait for another connection when the size is asked for.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(10);

/// An export in use.
pub(crate) struct NbdDevice {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
    /// As last measured.
    size_bytes: AtomicU64,
    sector_bytes: u32,
    unused_bytes: u64,
    is_read_only: bool,
    can_discard: bool,
    can_make_durable: bool,
    _lock: Option<ExportLock>,
}

/// An origin whose server is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Away {
    /// It is away for so long.
    pub lasts: Duration,
    /// Why it cannot be had now.
    pub reason: String,
}

impl fmt::Debug for NbdDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdDevice").field("uri", &self.shared.uri).finish_non_exhaustive()
    }
}

impl NbdDevice {
    /// Connects to an export. `is_exclusive`: no other process on this machine may have it; `is_written`: it may be
    /// changed, so it must be known again after a reconnect.
    pub(super) fn open(uri: &NbdUri, is_exclusive: bool, is_written: bool) -> Result<NbdDevice, DeviceError> {
        let name = || uri.to_string();
        let os = |error: std::io::Error| DeviceError::Unreachable { name: name(), reason: error.to_string() };
        let lock = if is_exclusive {
            let taken = ExportLock::take(uri).map_err(os)?;
            Some(taken.ok_or_else(|| DeviceError::Locked { path: PathBuf::from(name()) })?)
        } else {
            None
        };
        let locked_at = clock::now();
        let failed = |error: DialError| match error {
            DialError::Unreachable { .. } => {
                DeviceError::Unreachable { name: name(), reason: error.to_string() }
            }
            DialError::Refused { .. } => DeviceError::Refused { name: name(), reason: error.to_string() },
        };
        let mut first = dial(uri).map_err(failed)?;
        let facts = facts::of(&first.info);
        let facts =
            facts.map_err(|reason| failed(DialError::Refused { server: uri.server.to_string(), reason }))?;
        if facts.size_bytes == 0 {
            return Err(DeviceError::Empty { path: PathBuf::from(name()) });
        }
        let mut places = Places::default();
        if is_written {
            let flush_ns = first.flush_ns(uri).map_err(failed)?;
            std::thread::sleep(remaining(settled_at(locked_at, flush_ns, Mutations::NONE)));
            places = first.spread_places(uri).map_err(failed)?;
        }
        let count = if facts.has_several_connections && is_written { LINKS_MAX } else { 1 };
        let dialed = join_more(uri, first, count);
        let patience_ns = u64::try_from(patience::FOR_ORIGIN.as_nanos()).unwrap_or(u64::MAX);
        let remote = Remote::new(facts.clone(), places, patience_ns, Mutations::NONE);
        let mut device = NbdDevice {
            shared: Arc::new(Shared::new(uri.clone(), remote).map_err(os)?),
            keeper: None,
            size_bytes: AtomicU64::new(facts.size_bytes),
            sector_bytes: facts.sector_bytes,
            unused_bytes: facts.unused_bytes,
            is_read_only: facts.is_read_only,
            can_discard: facts.can_trim,
            can_make_durable: facts.can_flush || facts.can_fua,
            _lock: lock,
        };
        device.keeper = Some(Keeper::start(Arc::clone(&device.shared), dialed).map_err(os)?);
        Ok(device)
    }

    /// Takes an operation of a reactor; its answer is among [`NbdDevice::news`].
    pub(crate) fn submit(&self, operation: Operation, span: Span, token: u64, waker: &Arc<OwnedFd>) {
        self.shared.submit(operation, span, Asker::Reactor { token, waker: Arc::clone(waker) });
    }

    /// Leaves hearing to a thread.
    pub(crate) fn leave_hearing(&self) {
        self.shared.hearing.set_duty(true);
    }

    /// Lets a reactor hear from now on, by its backend.
    pub(crate) fn take_hearing(&self, backend: &mut Backend, waker: &Arc<OwnedFd>) {
        self.shared.hearing.set_duty(false);
        self.hear_by(backend, waker);
    }

    /// Lets a reactor hear that has asked for something, by its backend, if the duty is the reactors': others leave it to the
    /// one that asked last.
    pub(crate) fn hear_by(&self, backend: &mut Backend, waker: &Arc<OwnedFd>) {
        let hearing = &self.shared.hearing;
        if !hearing.is_thread_on_duty() && !backend.has_ear(hearing.descriptor()) {
            let ear = ExportEar { shared: Arc::clone(&self.shared), waker: Arc::clone(waker) };
            backend.listen(Box::new(ear));
        }
    }

    /// Performs an operation and waits for its answer.
    pub(super) fn perform(&self, operation: Operation, span: Span) -> Result<(), Errno> {
        let waiter = Arc::new(Waiter::default());
        self.shared.submit(operation, span, Asker::Thread(Arc::clone(&waiter)));
        // A reactor that is on duty may be the one that waits here.
        self.leave_hearing();
        waiter.wait()
    }

    /// Answers and events since the last look.
    pub(crate) fn news(&self) -> Option<(Answers, VecDeque<Event>)> {
        self.shared.news()
    }

    /// The time from which operations count as under way: `u64::MAX` while its server is away.
    pub(crate) fn up_since(&self) -> Nanos {
        self.shared.up_since()
    }

    /// Takes no operation any more, and fails all that are under way.
    pub(crate) fn give_up(&self) {
        let mut state = self.shared.lock();
        state.remote.end();
        state.links.iter().for_each(|link| link.close());
        drop(state);
        self.shared.changed.notify_all();
    }

    /// The same, and waits until nobody touches the memory of operations any more.
    pub(crate) fn let_go(&self) {
        self.shared.lock().links.iter().for_each(|link| link.say_goodbye());
        self.give_up();
        let mut state = self.shared.lock();
        while state.is_in_use {
            state = self.shared.wait(state, None);
        }
    }

    /// Whether its next flush fails, for what its server may have lost.
    pub(super) fn owes_failure(&self) -> bool {
        self.shared.lock().remote.owes_failure()
    }

    /// Whether its server is away, for how long, and why.
    pub(super) fn away(&self) -> Option<Away> {
        let state = self.shared.lock();
        let since = state.remote.away_since()?;
        let reason = state.away_because.clone();
        Some(Away { lasts: Duration::from_nanos(clock::now().since(since)), reason })
    }

    /// Asks for the size again, by a new connection: servers tell it in the handshake only. One that has grown is taken
    /// over.
    pub(super) fn measure(&self) -> Result<u64, Errno> {
        let until = clock::now().plus(u64::try_from(RENEWAL_PATIENCE.as_nanos()).unwrap_or(u64::MAX));
        let mut state = self.shared.lock();
        let renewals = state.renewals;
        while state.renewals == renewals {
            if state.remote.want_renewal() {
                self.shared.changed.notify_all();
            }
            let now = clock::now();
            if now >= until || state.remote.phase() == Phase::Ended {
                return Err(Errno::TIMEDOUT);
            }
            state = self.shared.wait(state, Some(Duration::from_nanos(until.since(now))));
        }
        let size_bytes = state.remote.facts().size_bytes;
        self.size_bytes.fetch_max(size_bytes, Ordering::Relaxed);
        Ok(size_bytes)
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    pub(super) fn unused_bytes(&self) -> u64 {
        self.unused_bytes
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    pub(super) fn can_discard(&self) -> bool {
        self.can_discard
    }

    pub(super) fn can_make_durable(&self) -> bool {
        self.can_make_durable
    }

    pub(super) fn uri(&self) -> &NbdUri {
        &self.shared.uri
    }
}

/// Time that is left until a moment.
fn remaining(until: Nanos) -> Duration {
    Duration::from_nanos(until.since(clock::now()))
}

impl Drop for NbdDevice {
    /// Takes leave of the server, so that one that serves one client at a time is free on return.
    fn drop(&mut self) {
        let was_up = {
            let mut state = self.shared.lock();
            let was_up = state.remote.phase() == Phase::Up;
            state.links.iter().for_each(|link| link.say_goodbye());
            state.remote.end();
            was_up
        };
        self.shared.changed.notify_all();
        // Without a connection the keeper may be waiting for an answer of the system; it ends by itself.
        if let Some(keeper) = self.keeper.take().filter(|_| was_up) {
            let _ = keeper.join();
        }
    }
}
