//! The keeper of an export: a thread that makes connections, lets go of lost ones, and makes new ones.
//!
//! A lost connection is made again with back-off. Before anything goes out on it, the export is compared with what is
//! known of it (hazard 16): its size, its name, what it can do, and checksums of places. What was not answered is sent
//! again then; what waits too long fails, and goes on failing until the origin is back. All of that is decided by
//! [`engine::remote`].

use super::dial::{DialError, Dialed, dial};
use super::facts;
use super::link::Link;
use super::memory::Span;
use super::shared::{Asker, Event, Operation, Shared, Waiter};
use crate::clock;
use engine::remote::{Phase, Task};
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Pause after the first attempt to connect; it doubles with each one.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Stack of a thread.
const STACK_BYTES: usize = 256 << 10;

/// The keeper of an export.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    /// Those that send, one for each link.
    senders: Vec<JoinHandle<()>>,
    /// The one that hears when no reactor does.
    hearer: Option<JoinHandle<()>>,
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work)
}

impl Keeper {
    /// Starts the keeper, with connections that are there already.
    pub(super) fn start(shared: Arc<Shared>, dialed: Vec<Dialed>) -> io::Result<JoinHandle<()>> {
        let hearing = Arc::clone(&shared);
        let hearer = spawn("nbd-hearer", move || hearing.hearing.serve(&hearing))?;
        let mut keeper = Keeper { shared, senders: Vec::new(), hearer: Some(hearer) };
        if let Err(error) = keeper.install(dialed) {
            keeper.end();
            return Err(error);
        }
        spawn("nbd-keeper", move || keeper.run())
    }

    fn run(mut self) {
        loop {
            match self.await_task() {
                Task::Release => self.shared.send_waiting(),
                Task::Renew => self.renew(),
                Task::Reconnect => self.reconnect(),
                Task::End => return self.end(),
                Task::Wait | Task::WaitUntil(_) => {}
            }
        }
    }

    /// The next thing to do, which is no wait.
    fn await_task(&self) -> Task {
        let mut state = self.shared.lock();
        loop {
            let now = clock::now();
            let patience = match state.remote.task(now) {
                Task::Wait => None,
                Task::WaitUntil(until) => Some(Duration::from_nanos(until.since(now))),
                task => return task,
            };
            state = self.shared.wait(state, patience);
        }
    }

    /// Makes everything durable on the connection there is, and then takes another one.
    fn renew(&mut self) {
        if self.shared.lock().remote.is_unflushed() {
            let waiter = Arc::new(Waiter::default());
            self.shared.submit(Operation::FLUSH, Span::default(), Asker::Thread(Arc::clone(&waiter)));
            let mut state = self.shared.lock();
            // A flush that fails because the connection is lost is told to those whose changes it was about.
            while state.remote.phase() == Phase::Draining && waiter.take().is_none() {
                state = self.shared.wait(state, Some(PAUSE_MIN));
            }
        }
        self.shared.give_away();
    }

    /// Lets go of the lost connection, and makes another one.
    fn reconnect(&mut self) {
        self.let_go();
        self.shared.take_back();
        let mut pause = PAUSE_MIN;
        loop {
            let error = match self.connect() {
                Ok(dialed) => match self.install(dialed) {
                    Ok(()) => return,
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            let mut state = self.shared.lock();
            if state.remote.phase() == Phase::Ended {
                return;
            }
            self.shared.sought_in_vain(&mut state, error);
            drop(self.shared.wait(state, Some(pause)));
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Connects, and makes sure that the export is still the same one.
    fn connect(&self) -> Result<Vec<Dialed>, DialError> {
        let uri = &self.shared.uri;
        let mut first = dial(uri)?;
        let known = self.shared.lock().remote.known();
        let refused = |reason: String| DialError::Refused { server: uri.server.to_string(), reason };
        let now = facts::of(&first.info).map_err(refused)?;
        let verdict = known.compare(&now, |offset_bytes| first.checksum_at(uri, offset_bytes))?;
        if let Err(difference) = verdict {
            let reason = difference.to_string();
            let mut state = self.shared.lock();
            self.shared.tell(&mut state, Event::Other { reason: reason.clone() });
            return Err(DialError::Refused {
                server: uri.server.to_string(),
                reason: format!("serves another disk: {reason}"),
            });
        }
        let flush_ns = first.flush_ns(uri)?;
        let mut state = self.shared.lock();
        let count = if now.has_several_connections { super::LINKS_MAX } else { 1 };
        state.remote.recognised(now, flush_ns);
        drop(state);
        Ok(join_more(uri, first, count))
    }

    /// Puts connections to use.
    fn install(&mut self, dialed: Vec<Dialed>) -> io::Result<()> {
        let parts = dialed.into_iter().map(Dialed::into_parts).collect::<io::Result<Vec<_>>>()?;
        let link = |(socket, cipher)| Link::new(socket, cipher);
        let links: Vec<Arc<Link>> = parts.into_iter().map(link).collect();
        let generation = self.shared.go_up(links.clone());
        let mut started = self.shared.hearing.begin(&links, generation);
        for link in links {
            let sender = started.and_then(|()| spawn("nbd-sender", move || link.send_all()));
            started = sender.map(|sender| self.senders.push(sender));
        }
        if let Err(error) = &started {
            self.shared.lost(generation, &error.to_string());
        }
        started
    }

    /// Waits until nobody uses the connection any more, which is closed.
    fn let_go(&mut self) {
        self.shared.lock().links.iter().for_each(|link| {
            link.say_goodbye();
            link.close();
        });
        for sender in self.senders.drain(..) {
            let _ = sender.join();
        }
        self.shared.hearing.let_go();
    }

    fn end(&mut self) {
        self.let_go();
        self.shared.hearing.end();
        let _ = self.hearer.take().map(JoinHandle::join);
        self.shared.take_back();
        self.shared.fail_all();
        self.shared.changed.notify_all();
    }
}

/// More connections beside the first one, as far as the server takes them.
pub(super) fn join_more(uri: &crate::nbd::uri::NbdUri, first: Dialed, count: usize) -> Vec<Dialed> {
    let mut dialed = vec![first];
    while dialed.len() < count {
        match dial(uri) {
            Ok(another) if another.info == dialed[0].info => dialed.push(another),
            _ => break,
        }
    }
    dialed
}
