//! A disk that fails as it is told, under the real daemon: an NBD server in the test, mounted as a file by nbdfuse.

use super::ledger::{Deed, Ledger, Place};
use super::medium::{Medium, Plant};
use crate::daemon::Site;
use crate::fuse::FuseFile;
use crate::server_wire::{enter, next_request};
use engine::effect::Errno;
use live::nbd::wire::{Command, Export, RawRequest, Session, Verdict, completion, data_head, validate};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::io::{self, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const SECTOR_BYTES: u64 = 512;

/// How a disk behaves at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Out of 1000 reads, those that fail.
    pub read_errors: u32,
    /// Out of 1000 writes, discards and zeroes, those that fail.
    pub change_errors: u32,
    /// Out of 1000 flushes, those that fail.
    pub flush_errors: u32,
    /// Whether changes fail for want of space, and not with EIO.
    pub is_full: bool,
    /// Out of 1000 operations, those that take 5 to 100 ms longer.
    pub slow: u32,
    /// Nothing is answered.
    pub hangs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    On,
    /// It fails at this moment: nothing is answered any more.
    Failing,
    /// Whatever still waits fails.
    Off,
}

struct State {
    medium: Medium,
    weather: Weather,
    power: Power,
    is_gone: bool,
    draw: Xoshiro256PlusPlus,
    connections: Vec<UnixStream>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    place: Place,
    ledger: Arc<Mutex<Ledger>>,
    export: Export,
}

/// The disk, mounted.
pub struct Layer<'site> {
    site: &'site Site,
    name: String,
    socket: String,
    shared: Arc<Shared>,
    file: Option<FuseFile>,
}

impl<'site> Layer<'site> {
    /// A disk of zeroes of that size and name.
    pub fn new(
        site: &'site Site,
        name: &str,
        size_bytes: u64,
        (plant, seed): (Plant, u64),
        (place, ledger): (Place, &Arc<Mutex<Ledger>>),
    ) -> Layer<'site> {
        let socket = site.path(&format!("{name}.sock"));
        let listener = UnixListener::bind(&socket).expect("a new socket");
        let export = Export {
            name: String::new(),
            description: String::new(),
            size_bytes,
            min_block_bytes: 512,
            read_only: false,
        };
        let state = State {
            medium: Medium::new(size_bytes, plant, seed),
            weather: Weather::default(),
            power: Power::On,
            is_gone: false,
            draw: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x1a7e_4000),
            connections: Vec::new(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            place,
            ledger: Arc::clone(ledger),
            export,
        });
        let server = Arc::clone(&shared);
        // It ends with the test program.
        std::thread::spawn(move || accept(&listener, &server));
        let mut layer = Layer { site, name: name.to_owned(), socket, shared, file: None };
        layer.mount();
        layer
    }

    fn mount(&mut self) {
        let uri = format!("nbd+unix:///?socket={}", self.socket);
        self.file = Some(FuseFile::mount(self.site, &format!("{}.fuse", self.name), &uri));
    }

    /// Where the disk is.
    pub fn path(&self) -> &str {
        self.file.as_ref().expect("it is mounted").path()
    }

    /// Changes how it behaves.
    pub fn set(&self, weather: Weather) {
        self.shared.state().weather = weather;
        self.shared.changed.notify_all();
    }

    /// All that it holds.
    pub fn content(&self) -> Vec<u8> {
        self.shared.state().medium.content().to_vec()
    }

    /// Its server is gone: all that waits or comes fails, until it comes back.
    pub fn vanish(&self) {
        let mut state = self.shared.state();
        state.is_gone = true;
        for connection in state.connections.drain(..) {
            // The other end may be gone.
            let _closed = connection.shutdown(Shutdown::Both);
        }
        self.shared.changed.notify_all();
    }

    /// Makes it whole again; no daemon may use it.
    pub fn heal(&mut self) {
        self.set(Weather::default());
        if self.shared.state().is_gone {
            self.remount();
        }
    }

    /// Its power fails: from now on nothing is answered.
    pub fn fail_power(&self) {
        self.shared.state().power = Power::Failing;
    }

    /// Lets whatever still waits fail.
    pub fn release(&self) {
        self.shared.state().power = Power::Off;
        self.shared.changed.notify_all();
    }

    /// Its power is back, and what no flush covered is lost or kept; no daemon may use it.
    pub fn restore_power(&mut self) -> u64 {
        let damaged = {
            let mut state = self.shared.state();
            state.power = Power::On;
            state.medium.cut_power()
        };
        // The kernel must not answer from what it remembers of the file.
        self.remount();
        damaged
    }

    fn remount(&mut self) {
        drop(self.file.take());
        self.shared.state().is_gone = false;
        self.mount();
    }
}

impl Drop for Layer<'_> {
    fn drop(&mut self) {
        self.vanish();
    }
}

impl Shared {
    /// A thread that panicked while it held the lock is no reason to fail here as well.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hit(&self, deed: Deed) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.hit(self.place, deed, Instant::now());
    }

    /// The disk as soon as it answers anything.
    fn awake(&self) -> MutexGuard<'_, State> {
        let waits = |state: &mut State| match state.power {
            // A disk that hangs without power fails at last: the daemon that waits for it could not be killed.
            Power::Off => false,
            Power::On => !state.is_gone && state.weather.hangs,
            Power::Failing => !state.is_gone,
        };
        self.changed.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a command, or lets it fail.
    fn carry_out(&self, command: Command, payload: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut state = self.awake();
        if state.draw.random_range(0..1000) < state.weather.slow {
            let pause = Duration::from_millis(state.draw.random_range(5..100));
            drop(state);
            std::thread::sleep(pause);
            state = self.awake();
        }
        if state.power == Power::Off || state.is_gone {
            return Err(Errno::IO);
        }
        let weather = state.weather;
        let (deed, rate) = match command {
            Command::Read { .. } => (Deed::Read, weather.read_errors),
            Command::Flush => (Deed::Flush, weather.flush_errors),
            _ => (Deed::Change, weather.change_errors),
        };
        let fails = state.draw.random_range(0..1000) < rate;
        let at = |start: u64| usize::try_from(start * SECTOR_BYTES).expect("a disk of some MiB");
        let zeroes = |sectors: u64| vec![0; at(sectors)];
        if fails {
            if let Command::Write { range, .. } = command {
                state.medium.write_torn(at(range.start), payload);
            }
            self.hit(deed);
            return Err(if weather.is_full { Errno::NOSPC } else { Errno::IO });
        }
        let fua = match command {
            Command::Read { range } => return Ok(state.medium.read(at(range.start), at(range.sectors))),
            Command::Flush => true,
            Command::Write { range, fua } => {
                state.medium.write(at(range.start), payload);
                fua
            }
            Command::Trim { range, fua } | Command::WriteZeroes { range, fua } => {
                state.medium.write(at(range.start), &zeroes(range.sectors));
                fua
            }
        };
        if fua {
            state.medium.flush();
        }
        Ok(Vec::new())
    }

    fn answer(&self, session: Session, request: &RawRequest, payload: &[u8]) -> Option<Vec<u8>> {
        let is_read = request.command == 0;
        let result = match validate(request, &self.export) {
            Verdict::Accept(command) => self.carry_out(command, payload),
            Verdict::Reject { errno, .. } => Err(errno),
            Verdict::Finish | Verdict::Disconnect => return None,
        };
        Some(match result {
            Ok(data) if is_read => {
                let head = data_head(session, request.cookie, request.offset_bytes, request.len_bytes, true);
                [head.as_bytes(), &data].concat()
            }
            other => completion(session, is_read, request.cookie, other.map(|_| ())).to_vec(),
        })
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming().map_while(Result::ok) {
        let second = stream.try_clone().expect("a second handle");
        {
            let mut state = shared.state();
            if state.is_gone {
                continue;
            }
            state.connections.push(second);
        }
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            // The mount hung up, or this disk is gone: both are ordinary ends.
            let _end = converse(&stream, &shared);
            let _closed = stream.shutdown(Shutdown::Both);
        });
    }
}

fn converse(mut stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(256 << 10, stream.try_clone()?);
    let Some(session) = enter(stream, &mut reader, &shared.export)? else { return Ok(()) };
    loop {
        let (request, payload) = next_request(&mut reader)?;
        match shared.answer(session, &request, &payload) {
            Some(reply) => stream.write_all(&reply)?,
            None => return Ok(()),
        }
    }
}
