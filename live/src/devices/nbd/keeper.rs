//! The keeper of an export: a thread that makes connections, lets go of lost ones, and makes new ones.
//!
//! A lost connection is made again with back-off. Before anything goes out on it, the export is compared with what is
//! known of it (hazard 9): its size, its name, what it can do, and checksums of places. What was not answered is sent
//! again then; what waits for longer than [`patience::FOR_ORIGIN`] fails, and goes on failing until the origin is back.

use super::dial::{DialError, Dialed, dial};
use super::facts::Facts;
use super::link::Link;
use super::memory::Span;
use super::places::Place;
use super::shared::{Asker, Event, Kind, Operation, Phase, Shared, Waiter};
use crate::clock;
use crate::nbd::replies::Replies;
use crate::patience;
use engine::effect::Errno;
use engine::units::Nanos;
use std::io::{self, BufReader};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Pause after the first attempt to connect; it doubles with each one.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Changes wait for so long after a connection ended on which some were not answered, ours or that of a process before
/// this one: a server that goes on with them must not overwrite newer ones.
pub(super) const SETTLE_NS: u64 = Nanos::SECOND;
/// Bytes that are heard at once: a few replies to short reads. The data of a long one goes past this buffer.
const HEAR_BYTES: usize = 8 << 10;
/// Stack of a thread.
const STACK_BYTES: usize = 256 << 10;

/// Work for the keeper.
enum Task {
    /// Send what waited until changes may go out.
    Release,
    /// Make a new connection in the place of one that works.
    Renew,
    /// Make a new connection.
    Reconnect,
    End,
}

/// The keeper of an export.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work)
}

impl Keeper {
    /// Starts the keeper, with connections that are there already.
    pub(super) fn start(shared: Arc<Shared>, dialed: Vec<Dialed>) -> io::Result<JoinHandle<()>> {
        let mut keeper = Keeper { shared, threads: Vec::new() };
        keeper.install(dialed)?;
        spawn("nbd-keeper", move || keeper.run())
    }

    fn run(mut self) {
        loop {
            match self.await_task() {
                Task::Release => self.shared.send_waiting(),
                Task::Renew => self.renew(),
                Task::Reconnect => self.reconnect(),
                Task::End => return self.end(),
            }
        }
    }

    fn await_task(&self) -> Task {
        let mut state = self.shared.lock();
        loop {
            match state.phase {
                Phase::Ended => return Task::End,
                Phase::Away => return Task::Reconnect,
                Phase::Draining if state.is_quiet() => return Task::Renew,
                Phase::Draining => state = self.shared.wait(state, None),
                Phase::Up if state.has_held() => {
                    let now = clock::now();
                    if now >= state.held_until {
                        return Task::Release;
                    }
                    let patience = Duration::from_nanos(state.held_until.since(now));
                    state = self.shared.wait(state, Some(patience));
                }
                Phase::Up => state = self.shared.wait(state, None),
            }
        }
    }

    /// Makes everything durable on the connection there is, and then takes another one.
    fn renew(&mut self) {
        if self.shared.lock().is_unflushed() {
            let waiter = Arc::new(Waiter::default());
            let operation = Operation { kind: Kind::Flush, offset_bytes: 0, len_bytes: 0 };
            self.shared.submit(operation, Span::default(), Asker::Thread(Arc::clone(&waiter)));
            let mut state = self.shared.lock();
            // A flush that fails because the connection is lost is told to those whose changes it was about.
            while state.phase == Phase::Draining && waiter.take().is_none() {
                state = self.shared.wait(state, Some(PAUSE_MIN));
            }
        }
        self.shared.give_away();
    }

    /// Lets go of the lost connection, and makes another one.
    fn reconnect(&mut self) {
        self.let_go();
        if self.shared.take_back() {
            self.shared.lock().held_until = clock::now().plus(SETTLE_NS);
        }
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
            if state.phase == Phase::Ended {
                return;
            }
            let now = clock::now();
            let since = match &state.away {
                Some((since, _)) => *since,
                None => {
                    self.shared.tell(&mut state, Event::Away { reason: error.clone() });
                    now
                }
            };
            state.away = Some((since, error));
            if now.since(since) >= patience::FOR_ORIGIN.as_nanos() as u64 {
                state.is_given_up = true;
                self.shared.fail_waiting(&mut state, Errno::IO);
            }
            drop(self.shared.wait(state, Some(pause)));
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Connects, and makes sure that the export is still the same one.
    fn connect(&self) -> Result<Vec<Dialed>, DialError> {
        let uri = &self.shared.uri;
        let mut first = dial(uri)?;
        let (before, known) = {
            let state = self.shared.lock();
            (state.facts.clone(), state.places.known())
        };
        let refused = |reason: String| DialError::Refused { server: uri.server.to_string(), reason };
        let now = Facts::of(&first.info).map_err(refused)?;
        let mut difference = before.difference(&now);
        for Place { offset_bytes, checksum } in known {
            if difference.is_none() && first.checksum_at(uri, offset_bytes)? != checksum {
                difference = Some(format!("byte {offset_bytes} and what follows have another content"));
            }
        }
        if let Some(reason) = difference {
            let mut state = self.shared.lock();
            self.shared.tell(&mut state, Event::Other { reason: reason.clone() });
            return Err(DialError::Refused {
                server: uri.server.to_string(),
                reason: format!("serves another disk: {reason}"),
            });
        }
        let mut state = self.shared.lock();
        // The name and the size are those that were known: a smaller one stays the limit.
        let name = before.name.or_else(|| now.name.clone());
        state.facts = Facts { name, sector_bytes: before.sector_bytes, ..now };
        let count = if state.facts.has_several_connections { super::LINKS_MAX } else { 1 };
        drop(state);
        Ok(join_more(uri, first, count))
    }

    /// Puts connections to use.
    fn install(&mut self, dialed: Vec<Dialed>) -> io::Result<()> {
        let parts = dialed.into_iter().map(Dialed::into_parts).collect::<io::Result<Vec<_>>>()?;
        let link = |(socket, cipher)| Link::new(socket, cipher);
        let links: Vec<Arc<Link>> = parts.into_iter().map(link).collect();
        let readers = links.iter().map(|link| link.reader()).collect::<io::Result<Vec<_>>>()?;
        let generation = self.shared.go_up(links.clone());
        for (link, reader) in links.into_iter().zip(readers) {
            let sending = Arc::clone(&link);
            let shared = Arc::clone(&self.shared);
            let threads = [
                spawn("nbd-sender", move || sending.send_all()),
                spawn("nbd-hearer", move || {
                    let reason = hear(&link, reader, &shared, generation);
                    shared.lost(generation, &reason);
                }),
            ];
            for thread in threads {
                match thread {
                    Ok(thread) => self.threads.push(thread),
                    Err(error) => {
                        self.shared.lost(generation, &error.to_string());
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for the end of all threads of the connection, which is closed.
    fn let_go(&mut self) {
        self.shared.lock().links.iter().for_each(|link| {
            link.say_goodbye();
            link.close();
        });
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }

    fn end(&mut self) {
        self.let_go();
        self.shared.take_back();
        let mut state = self.shared.lock();
        self.shared.fail_waiting(&mut state, Errno::TIMEDOUT);
        drop(state);
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

/// Hears replies until the connection ends; returns why it did.
fn hear(link: &Link, reader: super::dial::Reader, shared: &Shared, generation: u64) -> String {
    let mut input = BufReader::with_capacity(HEAR_BYTES, reader);
    let mut replies = Replies::default();
    loop {
        match replies.hear(&mut input, &mut &*link) {
            Ok(ending) => {
                link.forget(ending.cookie);
                if !shared.ended(generation, ending) {
                    return "the server is shutting down".to_owned();
                }
            }
            Err(error) => return super::dial::lost_because(&error),
        }
    }
}
