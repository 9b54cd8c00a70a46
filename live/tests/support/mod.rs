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

/// The way in which a core takes requests: it returns those that the origin serves, and may reply itself.
pub trait Take:
    FnMut(Request, &mut Pool, &mut VecDeque<Effect>) -> Result<Vec<Request>, Busy> + Send
{
}

impl<T> Take for T where
    T: FnMut(Request, &mut Pool, &mut VecDeque<Effect>) -> Result<Vec<Request>, Busy> + Send
{
}

/// A core that serves origins, and takes requests in a way of its own.
pub struct Odd<T> {
    inner: Passthrough,
    take: T,
    replies: VecDeque<Effect>,
    /// Number of times that it might catch up.
    pub caught_up: Arc<AtomicU64>,
}

impl<T: Take> Odd<T> {
    pub fn new(take: T) -> Odd<T> {
        Odd { inner: Passthrough::new(), take, replies: VecDeque::new(), caught_up: Arc::default() }
    }
}

impl<T: Take> Core for Odd<T> {
    fn submit(&mut self, now: Nanos, request: Request, memory: &mut Pool) -> Result<(), Busy> {
        let served = (self.take)(request, memory, &mut self.replies)?;
        served.into_iter().try_for_each(|request| self.inner.submit(now, request, memory))
    }

    fn complete(&mut self, now: Nanos, io: IoId, result: Result<(), Errno>, memory: &mut Pool) {
        self.inner.complete(now, io, result, memory);
    }

    fn advance(&mut self, now: Nanos, memory: &mut Pool) {
        self.inner.advance(now, memory);
    }

    fn poll_effect(&mut self, memory: &mut Pool) -> Option<Effect> {
        self.replies.pop_front().or_else(|| self.inner.poll_effect(memory))
    }

    fn catch_up(&mut self, _memory: &Pool) {
        self.caught_up.fetch_add(1, Ordering::Relaxed);
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }
}

/// Fails reads and writes that touch some sectors.
pub fn failing_at(start: u64, sectors: u64) -> impl Take {
    let bad = SectorRange { start, sectors };
    move |request: Request, memory: &mut Pool, replies: &mut VecDeque<Effect>| {
        let (RequestOp::Read { range, into: slice } | RequestOp::Write { range, from: slice, .. }) =
            request.op
        else {
            return Ok(vec![request]);
        };
        if range.start >= bad.end() || bad.start >= range.end() {
            return Ok(vec![request]);
        }
        memory.release(slice.buffer);
        replies.push_back(Effect::Reply { id: request.id, result: Err(Errno::NOSPC) });
        Ok(Vec::new())
    }
}

/// Panics there.
pub fn panicking_at(start: u64, sectors: u64) -> impl Take {
    let mut take = failing_at(start, sectors);
    move |request: Request, memory: &mut Pool, replies: &mut VecDeque<Effect>| {
        let served = take(request, memory, replies);
        assert!(replies.is_empty(), "as the test wants it");
        served
    }
}

/// Answers reads in pairs: the first when the second comes.
pub fn pairing() -> impl Take {
    let mut first = None;
    move |request: Request, _: &mut Pool, _: &mut VecDeque<Effect>| {
        if matches!(request.op, RequestOp::Read { .. }) && first.is_none() {
            first = Some(request);
            return Ok(Vec::new());
        }
        let waited = if matches!(request.op, RequestOp::Read { .. }) { first.take() } else { None };
        Ok(waited.into_iter().chain([request]).collect())
    }
}

/// Answers nothing of one volume, as where its origin hangs, until it is stopped.
#[allow(dead_code, reason = "one test of several needs it")]
pub fn hanging() -> impl Take {
    let mut kept: Vec<Request> = Vec::new();
    move |request: Request, _: &mut Pool, replies: &mut VecDeque<Effect>| {
        if matches!(request.op, RequestOp::Stop) {
            replies.extend(kept.drain(..).map(|kept| Effect::Reply { id: kept.id, result: Err(Errno::IO) }));
        } else if request.volume == VOLUME {
            if kept.len() == REQUESTS_MAX {
                return Err(Busy);
            }
            kept.push(request);
            return Ok(Vec::new());
        }
        Ok(vec![request])
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
