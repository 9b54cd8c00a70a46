//! A server in this process, over a unix socket, for the tests of the live side.

use engine::effect::{Effect, Errno, IoId, Request, RequestOp};
use engine::engine::Busy;
use engine::limits::REQUESTS_MAX;
use engine::memory::Memory;
use engine::units::{Nanos, SectorRange, VolumeIndex};
use forebay_live::buffers::Pool;
use forebay_live::devices::{Access, Device, open, parse};
use forebay_live::nbd::client::{Address, Client};
use forebay_live::passthrough::Passthrough;
use forebay_live::reactor::Core;
use forebay_live::server::{
    ClientLimits, Config, ExportConfig, Handle, ListenAddress, POOL_BYTES_MIN, SOCKET_PERMISSIONS_DEFAULT,
    ServeError, Server, ServerNotice,
};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

pub const VOLUME: VolumeIndex = VolumeIndex(0);

/// A core that serves origins, and fails reads and writes that touch some sectors.
#[derive(Default)]
pub struct Failing {
    inner: Passthrough,
    bad: Option<SectorRange>,
    panics: bool,
    effects: VecDeque<Effect>,
}

impl Failing {
    pub fn at(start: u64, sectors: u64) -> Failing {
        Failing { bad: Some(SectorRange { start, sectors }), ..Failing::default() }
    }

    /// It panics there.
    pub fn panicking_at(start: u64, sectors: u64) -> Failing {
        Failing { panics: true, ..Failing::at(start, sectors) }
    }
}

impl Core for Failing {
    fn submit(&mut self, now: Nanos, request: Request, memory: &mut Pool) -> Result<(), Busy> {
        let (range, slice) = match request.op {
            RequestOp::Read { range, into } => (range, into),
            RequestOp::Write { range, from, .. } => (range, from),
            _ => return self.inner.submit(now, request, memory),
        };
        if self.bad.is_some_and(|bad| range.start < bad.end() && bad.start < range.end()) {
            assert!(!self.panics, "as the test wants it");
            memory.release(slice.buffer);
            self.effects.push_back(Effect::Reply { id: request.id, result: Err(Errno::NOSPC) });
            return Ok(());
        }
        self.inner.submit(now, request, memory)
    }

    fn complete(&mut self, now: Nanos, io: IoId, result: Result<(), Errno>, memory: &mut Pool) {
        self.inner.complete(now, io, result, memory);
    }

    fn advance(&mut self, now: Nanos, memory: &mut Pool) {
        self.inner.advance(now, memory);
    }

    fn poll_effect(&mut self, memory: &mut Pool) -> Option<Effect> {
        self.effects.pop_front().or_else(|| self.inner.poll_effect(memory))
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }
}

/// A core that counts how often it may catch up.
#[derive(Default)]
pub struct Behind {
    inner: Passthrough,
    pub caught_up: Arc<AtomicU64>,
}

impl Core for Behind {
    fn submit(&mut self, now: Nanos, request: Request, memory: &mut Pool) -> Result<(), Busy> {
        self.inner.submit(now, request, memory)
    }

    fn complete(&mut self, now: Nanos, io: IoId, result: Result<(), Errno>, memory: &mut Pool) {
        self.inner.complete(now, io, result, memory);
    }

    fn advance(&mut self, now: Nanos, memory: &mut Pool) {
        self.inner.advance(now, memory);
    }

    fn poll_effect(&mut self, memory: &mut Pool) -> Option<Effect> {
        self.inner.poll_effect(memory)
    }

    fn catch_up(&mut self, _memory: &Pool) {
        self.caught_up.fetch_add(1, Ordering::Relaxed);
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }
}

/// A core that answers reads in pairs: the first when the second comes.
#[derive(Default)]
pub struct Pairing {
    inner: Passthrough,
    first: Option<Request>,
}

impl Core for Pairing {
    fn submit(&mut self, now: Nanos, request: Request, memory: &mut Pool) -> Result<(), Busy> {
        if matches!(request.op, RequestOp::Read { .. }) {
            let Some(first) = self.first.take() else {
                self.first = Some(request);
                return Ok(());
            };
            self.inner.submit(now, first, memory)?;
        }
        self.inner.submit(now, request, memory)
    }

    fn complete(&mut self, now: Nanos, io: IoId, result: Result<(), Errno>, memory: &mut Pool) {
        self.inner.complete(now, io, result, memory);
    }

    fn advance(&mut self, now: Nanos, memory: &mut Pool) {
        self.inner.advance(now, memory);
    }

    fn poll_effect(&mut self, memory: &mut Pool) -> Option<Effect> {
        self.inner.poll_effect(memory)
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }
}

/// A core that answers nothing of one volume, as where its origin hangs, until it is stopped.
#[derive(Default)]
#[allow(dead_code, reason = "one test of several needs it")]
pub struct Hanging {
    inner: Passthrough,
    kept: Vec<Request>,
    effects: VecDeque<Effect>,
}

impl Core for Hanging {
    fn submit(&mut self, now: Nanos, request: Request, memory: &mut Pool) -> Result<(), Busy> {
        if matches!(request.op, RequestOp::Stop) {
            let ended = self.kept.drain(..).map(|kept| Effect::Reply { id: kept.id, result: Err(Errno::IO) });
            self.effects.extend(ended);
        } else if request.volume == VOLUME {
            if self.kept.len() == REQUESTS_MAX {
                return Err(Busy);
            }
            self.kept.push(request);
            return Ok(());
        }
        self.inner.submit(now, request, memory)
    }

    fn complete(&mut self, now: Nanos, io: IoId, result: Result<(), Errno>, memory: &mut Pool) {
        self.inner.complete(now, io, result, memory);
    }

    fn advance(&mut self, now: Nanos, memory: &mut Pool) {
        self.inner.advance(now, memory);
    }

    fn poll_effect(&mut self, memory: &mut Pool) -> Option<Effect> {
        self.effects.pop_front().or_else(|| self.inner.poll_effect(memory))
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }
}

/// A running server; stopped when dropped.
pub struct Running<C: Core + Send + 'static> {
    pub handle: Handle<C>,
    pub device: Device,
    pub socket: PathBuf,
    pub notices: Arc<Mutex<Vec<ServerNotice>>>,
    #[allow(dead_code, reason = "one test of several needs it")]
    pub addresses: Vec<ListenAddress>,
    thread: Option<JoinHandle<C>>,
    _directory: TempDir,
}

/// How many reactors the servers here have: two, unless the test runs again with one.
pub fn reactors() -> usize {
    std::env::var("FOREBAY_TEST_REACTORS").map_or(2, |count| count.parse().unwrap())
}

/// Serves the device of that name, with as little memory as a server takes.
pub fn serve<C: Core + Send + 'static>(spec: &str, core: C) -> Running<C> {
    serve_with(spec, core, |_| {})
}

pub fn serve_with<C: Core + Send + 'static>(
    spec: &str,
    core: C,
    adjust: impl FnOnce(&mut Config),
) -> Running<C> {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("nbd.sock");
    let device = open(&parse(spec).unwrap(), Access::Exclusive).unwrap();
    let notices = Arc::new(Mutex::new(Vec::new()));
    let noticed = Arc::clone(&notices);
    let mut config = Config {
        lasting: None,
        pool_bytes: POOL_BYTES_MIN,
        kept_bytes: 0,
        cache: None,
        mirror: None,
        origins: vec![Some(device.clone())],
        exports: vec![ExportConfig {
            volume: VOLUME,
            name: "disk".to_owned(),
            size_bytes: device.size_bytes(),
            min_block_bytes: 512,
            read_only: false,
        }],
        listen: vec![ListenAddress::Unix(socket.clone())],
        socket_permissions: SOCKET_PERMISSIONS_DEFAULT,
        socket_group: None,
        tls: None,
        limits: ClientLimits::default(),
        abandon: Box::new(|_| Ok(())),
        device_timeout: Duration::from_secs(30),
        notice: Box::new(move |notice| noticed.lock().unwrap().push(notice)),
        reactors: reactors(),
    };
    adjust(&mut config);
    let (server, handle) = Server::new(config).unwrap();
    let addresses = server.addresses().to_vec();
    let thread = std::thread::spawn(move || server.run(|| Ok::<C, ServeError>(core)).unwrap());
    Running { handle, device, socket, notices, addresses, thread: Some(thread), _directory: directory }
}

impl<C: Core + Send + 'static> Running<C> {
    pub fn uri(&self) -> String {
        format!("nbd+unix:///disk?socket={}", self.socket.display())
    }

    pub fn address(&self) -> Address {
        Address::Unix(self.socket.clone())
    }

    pub fn connect(&self) -> Client {
        Client::connect(&self.address(), "disk").unwrap()
    }

    pub fn connect_simple(&self) -> Client {
        Client::connect_simple(&self.address(), "disk").unwrap()
    }

    /// Waits for the end of the server, which another caller asked for.
    pub fn join(&mut self) -> C {
        self.end().unwrap()
    }

    /// Waits for the server to end, by itself or by a panic.
    pub fn end(&mut self) -> std::thread::Result<C> {
        self.thread.take().unwrap().join()
    }
}

impl<C: Core + Send + 'static> Drop for Running<C> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let stopped = self.handle.stop();
            if !std::thread::panicking() {
                stopped.unwrap();
                thread.join().unwrap();
            }
        }
    }
}

/// Bytes that differ from place to place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len).collect()
}

/// Runs a program that must succeed; its standard output.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}
