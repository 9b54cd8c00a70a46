//! A disk in memory behind the NBD wire, with a volatile cache and bugs on request: what the verifying
//! client is tested against.

use crate::server_wire::{enter, next_request};
use live::nbd::wire::{Command, Export, Session, Verdict, completion, data_head, validate};
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

const SECTOR_BYTES: usize = 512;
type Sector = [u8; SECTOR_BYTES];

/// What is wrong with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Nothing.
    None,
    /// A read sometimes shows what was there before the last change.
    StaleRead,
    /// A flush is acknowledged and does nothing.
    FlushIgnored,
    /// FUA is taken for an ordinary write.
    FuaIgnored,
    /// A write sometimes leaves the second half of its last sector alone.
    TornSector,
    /// A write sometimes goes to the next sector.
    Misplaced,
    /// A read sometimes brings bytes that were never written.
    Garbage,
    /// A write is sometimes acknowledged and dropped.
    WriteDropped,
    /// Write-zeroes is treated as discard.
    ZeroesIgnored,
    /// A discarded sector reads as its neighbour.
    DiscardLeaks,
    /// A crash of the process loses what was not flushed.
    ProcessCrashLoses,
    /// After a power cut, reads show now the one, now the other of what may have survived.
    Undecided,
    /// After a power cut everything is as it was, until a discard brings a lost version back.
    DeadTail,
}

/// The disk.
pub struct Disk {
    bug: Bug,
    random: Xoshiro256PlusPlus,
    current: Vec<Sector>,
    durable: Vec<Sector>,
    /// By sector, all it was since the last flush.
    unflushed: BTreeMap<usize, Vec<Sector>>,
    previous: BTreeMap<usize, Sector>,
    undecided: BTreeMap<usize, Vec<Sector>>,
    requests_left: u64,
    connections: Vec<UnixStream>,
}

impl Disk {
    fn set(&mut self, sector: usize, content: Sector, fua: bool) {
        self.previous.insert(sector, self.current[sector]);
        self.undecided.remove(&sector);
        self.current[sector] = content;
        if fua && self.bug != Bug::FuaIgnored {
            self.durable[sector] = content;
            self.unflushed.remove(&sector);
        } else {
            self.unflushed.entry(sector).or_default().push(content);
        }
    }

    fn sometimes(&mut self, bug: Bug) -> bool {
        self.bug == bug && self.random.random_range(0..20) == 0
    }

    fn read(&mut self, sector: usize) -> Sector {
        if self.sometimes(Bug::StaleRead)
            && let Some(previous) = self.previous.get(&sector)
        {
            return *previous;
        }
        if self.sometimes(Bug::Garbage) {
            return [0xa5; SECTOR_BYTES];
        }
        match self.undecided.get(&sector) {
            Some(choices) => choices[self.random.random_range(0..choices.len())],
            None => self.current[sector],
        }
    }

    fn write(&mut self, start: usize, data: &[u8], fua: bool) {
        if self.sometimes(Bug::WriteDropped) {
            return;
        }
        let last = start + data.len() / SECTOR_BYTES - 1;
        let shift = usize::from(self.sometimes(Bug::Misplaced) && last + 1 < self.current.len());
        for (sector, bytes) in (start..).zip(data.chunks_exact(SECTOR_BYTES)) {
            let mut content: Sector = bytes.try_into().expect("a sector");
            if sector == last && self.sometimes(Bug::TornSector) {
                content[256..].copy_from_slice(&self.current[sector][256..]);
            }
            self.set(sector + shift, content, fua);
        }
    }

    fn discard(&mut self, sector: usize, fua: bool) {
        let content = match self.random.random_range(0..3) {
            0 => self.current[sector],
            1 if self.bug == Bug::None => self.durable[sector],
            _ => [0; SECTOR_BYTES],
        };
        let content = if self.bug == Bug::DiscardLeaks && sector > 0 {
            self.current[sector - 1]
        } else if self.bug == Bug::DeadTail {
            *self.previous.get(&sector).unwrap_or(&content)
        } else {
            content
        };
        self.set(sector, content, fua);
    }

    fn flush(&mut self) {
        if self.bug != Bug::FlushIgnored {
            self.durable.clone_from(&self.current);
            self.unflushed.clear();
        }
    }

    /// The devices lose what was not flushed, or some of it.
    pub fn cut_power(&mut self) {
        self.previous.clear();
        for (sector, versions) in std::mem::take(&mut self.unflushed) {
            let mut choices = versions;
            choices.push(self.durable[sector]);
            let chosen = choices[self.random.random_range(0..choices.len())];
            if self.bug == Bug::DeadTail {
                self.previous.insert(sector, self.current[sector]);
            }
            let chosen = if self.bug == Bug::DeadTail { self.durable[sector] } else { chosen };
            self.current[sector] = chosen;
            if self.bug == Bug::Undecided {
                self.undecided.insert(sector, choices);
            }
        }
        self.durable.clone_from(&self.current);
    }

    /// The process ends, the devices do not.
    pub fn kill(&mut self) {
        if self.bug == Bug::ProcessCrashLoses {
            self.current.clone_from(&self.durable);
            self.unflushed.clear();
        }
    }
}

/// The server: a socket, and the disk behind it, which outlives its lives.
pub struct ToyServer {
    path: PathBuf,
    disk: Arc<Mutex<Disk>>,
    export: Export,
}

impl ToyServer {
    /// A disk of zeroes.
    pub fn new(name: &str, size_bytes: u64, min_block_bytes: u32, bug: Bug, seed: u64) -> ToyServer {
        let sectors = size_bytes as usize / SECTOR_BYTES;
        let path = std::env::temp_dir().join(format!("forebay-toy-{}-{name}", std::process::id()));
        let disk = Disk {
            bug,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            current: vec![[0; SECTOR_BYTES]; sectors],
            durable: vec![[0; SECTOR_BYTES]; sectors],
            unflushed: BTreeMap::new(),
            previous: BTreeMap::new(),
            undecided: BTreeMap::new(),
            requests_left: 0,
            connections: Vec::new(),
        };
        let export = Export {
            name: "toy".into(),
            description: String::new(),
            size_bytes,
            min_block_bytes,
            read_only: false,
        };
        ToyServer { path, disk: Arc::new(Mutex::new(disk)), export }
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it serves; not while it lives.
    pub fn with_disk<T>(&self, action: impl FnOnce(&mut Disk) -> T) -> T {
        action(&mut self.disk.lock().expect("no thread of the server panicked"))
    }

    /// Lives for that many connections, and dies after that many requests in all of them.
    pub fn live(&self, connections: usize, requests: u64) -> JoinHandle<()> {
        // It is there from the life before.
        let _absent = std::fs::remove_file(&self.path);
        let listener = UnixListener::bind(&self.path).expect("a new socket");
        let (disk, export) = (Arc::clone(&self.disk), self.export.clone());
        self.with_disk(|disk| {
            disk.requests_left = requests;
            disk.connections.clear();
        });
        std::thread::spawn(move || {
            let mut threads = Vec::new();
            for _ in 0..connections {
                let (stream, _) = listener.accept().expect("a client");
                let (disk, export) = (Arc::clone(&disk), export.clone());
                disk.lock()
                    .expect("no thread of the server panicked")
                    .connections
                    .push(stream.try_clone().expect("a second handle"));
                threads.push(std::thread::spawn(move || {
                    // The client hung up, or this server died: both are ordinary ends.
                    let _end = converse(&stream, &disk, &export);
                    // The other handle would keep the connection open.
                    let _closed = stream.shutdown(Shutdown::Both);
                }));
            }
            threads.into_iter().for_each(|thread| thread.join().expect("a connection's thread"));
        })
    }
}

impl Drop for ToyServer {
    fn drop(&mut self) {
        let _absent = std::fs::remove_file(&self.path);
    }
}

fn converse(mut stream: &UnixStream, disk: &Mutex<Disk>, export: &Export) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let Some(session) = enter(stream, &mut reader, export)? else { return Ok(()) };
    loop {
        // All that has come so far is done in any order, as a disk does.
        let mut batch = vec![next_request(&mut reader)?];
        while reader.buffer().len() >= 28 && batch.len() < 32 {
            batch.push(next_request(&mut reader)?);
        }
        let mut disk = disk.lock().expect("no thread of the server panicked");
        batch.shuffle(&mut disk.random);
        let mut replies = Vec::new();
        for (request, payload) in &batch {
            if disk.requests_left == 0 {
                for connection in &disk.connections {
                    // The other end may be gone.
                    let _closed = connection.shutdown(Shutdown::Both);
                }
                return Ok(());
            }
            disk.requests_left -= 1;
            match validate(request, export) {
                Verdict::Accept(command) => {
                    replies.push(carry_out(&mut disk, session, request.cookie, command, payload));
                }
                Verdict::Reject { errno, .. } => {
                    replies
                        .push(completion(session, request.command == 0, request.cookie, Err(errno)).to_vec());
                }
                Verdict::Finish | Verdict::Disconnect => return Ok(()),
            }
        }
        replies.shuffle(&mut disk.random);
        drop(disk);
        stream.write_all(&replies.concat())?;
    }
}

fn carry_out(disk: &mut Disk, session: Session, cookie: u64, command: Command, payload: &[u8]) -> Vec<u8> {
    match command {
        Command::Read { range } => {
            let len_bytes = (range.sectors * SECTOR_BYTES as u64) as u32;
            let mut reply = data_head(session, cookie, range.start * 512, len_bytes, true).to_vec();
            for sector in range.start..range.end() {
                reply.extend_from_slice(&disk.read(sector as usize));
            }
            return reply;
        }
        Command::Write { range, fua } => disk.write(range.start as usize, payload, fua),
        Command::Flush => disk.flush(),
        Command::Trim { range, fua } => {
            (range.start..range.end()).for_each(|sector| disk.discard(sector as usize, fua));
        }
        Command::WriteZeroes { range, fua } => {
            for sector in range.start..range.end() {
                if disk.bug == Bug::ZeroesIgnored {
                    disk.discard(sector as usize, fua);
                } else {
                    disk.set(sector as usize, [0; SECTOR_BYTES], fua);
                }
            }
        }
    }
    completion(session, false, cookie, Ok(())).to_vec()
}
