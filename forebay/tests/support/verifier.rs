//! A client that keeps a volume busy and knows what every sector of it may be.
//!
//! ```ignore
//! let mut verifier = Verifier::new(seed, size_bytes);       // of a volume that is all zeroes
//! verifier.run(&mut clients, &Load::mixed(u64::MAX, 16))?;   // returns when the server dies
//! verifier.after_crash(Crash::Process);                     // it was killed; or Crash::Power
//! verifier.verify_all(&mut client)?;                        // on a new connection; pins what it saw
//! ```
//!
//! `run` judges each read as it goes. See `history` for what is promised.
#![allow(dead_code, unused_imports, reason = "each test program uses its part of this module")]

#[path = "verifier/history.rs"]
mod history;
#[path = "verifier/load.rs"]
mod load;
#[path = "verifier/stamp.rs"]
mod stamp;
#[path = "verifier/violation.rs"]
mod violation;

pub use history::{Crash, Effect, Histories, Wrong};
pub use load::{Kind, Load};
pub use stamp::{Content, Damage};
pub use violation::{AnyError, Excuses, Failure, Violation};

use live::nbd::client::{Client, ClientError, Receiver, Reply, Sender};
use load::{Draw, Operation};
use stamp::SECTOR_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a server may take for any answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a client waits after an operation that failed. On a device that is gone all operations fail at once, and
/// clients that ask on and on take the processor from the server, and grow the histories without bound.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(2);
/// How much is read at a time when everything is read.
const SWEEP_SECTORS: usize = 2048;
/// Sectors in a block, the unit of loss.
const BLOCK_SECTORS: usize = 8;

/// What a run got done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Operations that were answered.
    pub answered: u64,
    /// Of these, the reads that were judged.
    pub reads: u64,
    /// Of these, the writes, discards and write-zeroes that were acknowledged.
    pub changes: u64,
    /// Bytes of acknowledged writes.
    pub written_bytes: u64,
    /// Of these, the flushes that were acknowledged.
    pub flushes: u64,
    /// Of these, the ones that were answered with an error.
    pub errors: u64,
    /// Operations that were under way when the server died.
    pub cut_off: u64,
    /// A connection ended before the load did.
    pub died: bool,
}

/// A connection in a run.
struct Lane<'a> {
    sender: &'a mut Sender,
    /// One message for each request, so that the thread that receives knows when to wait.
    credit: mpsc::Sender<()>,
    under_way: usize,
    unit_sectors: u64,
}

type Event = (usize, Result<Reply, ClientError>);

/// The client, with its knowledge of one volume.
#[derive(Debug)]
pub struct Verifier {
    seed: u64,
    now: u64,
    histories: Histories,
    under_way: BTreeMap<u64, (Operation, Instant)>,
    draw: Draw,
    /// Of the write that is being sent.
    payload: Vec<u8>,
    /// Blocks that could not be read when all was read, because a device lost them.
    lost: BTreeSet<usize>,
    crash: Option<(Crash, u64)>,
}

impl Verifier {
    /// Begins with a volume that is all zeroes, durably. `size_bytes` may be less than its size.
    pub fn new(seed: u64, size_bytes: u64) -> Verifier {
        let sectors = usize::try_from(size_bytes).expect("a volume of some MiB") / SECTOR_BYTES;
        assert!(sectors > 0, "a volume of one sector at least");
        Verifier {
            seed,
            now: 0,
            histories: Histories::new(sectors),
            under_way: BTreeMap::new(),
            draw: Draw::new(seed, sectors as u64),
            payload: Vec::new(),
            lost: BTreeSet::new(),
            crash: None,
        }
    }

    /// Keeps the server busy over these connections until the load is done and answered, or a
    /// connection ends, which is no error. After that `after_crash` must come before anything else.
    pub fn run(&mut self, clients: &mut [Client], load: &Load) -> Result<Progress, Box<Violation>> {
        self.run_on_faulty_devices(clients, load, &AnyError)
    }

    /// The same, with errors only where there is an excuse.
    pub fn run_on_faulty_devices(
        &mut self,
        clients: &mut [Client],
        load: &Load,
        excuses: &dyn Excuses,
    ) -> Result<Progress, Box<Violation>> {
        assert!(self.under_way.is_empty(), "after_crash is due");
        let (events, arrivals) = mpsc::channel();
        std::thread::scope(|scope| {
            let mut lanes = Vec::new();
            for (number, client) in clients.iter_mut().enumerate() {
                let unit_sectors = u64::from(client.info().min_block_bytes()) / SECTOR_BYTES as u64;
                assert!(client.size_bytes() >= (self.histories.sectors() * SECTOR_BYTES) as u64);
                let (sender, receiver) = client.halves();
                receiver.set_timeout(Some(PATIENCE)).map_err(Violation::Wire)?;
                let (credit, credits) = mpsc::channel();
                let events = events.clone();
                scope.spawn(move || receive(number, receiver, &credits, &events));
                lanes.push(Lane { sender, credit, under_way: 0, unit_sectors });
            }
            let result = self.drive(&mut lanes, &arrivals, load, excuses);
            if result.is_err() {
                // Ends the threads, which wait for answers.
                lanes.iter_mut().for_each(|lane| lane.sender.hang_up());
            }
            result
        })
    }

    /// Notes that the server came to an end and how; whatever was under way may have happened.
    ///
    /// A clean stop is a `Crash::Process` too.
    pub fn after_crash(&mut self, crash: Crash) {
        self.now += 1;
        self.under_way.clear();
        self.histories.crash(crash, self.now);
        self.crash = Some((crash, self.now));
    }

    /// Reads every sector, judges it, and holds the server to what it showed.
    pub fn verify_all(&mut self, client: &mut Client) -> Result<(), Box<Violation>> {
        assert!(self.under_way.is_empty(), "after_crash is due");
        client.receiver().set_timeout(Some(PATIENCE)).map_err(Violation::Wire)?;
        for start in (0..self.histories.sectors()).step_by(SWEEP_SECTORS) {
            let sectors = SWEEP_SECTORS.min(self.histories.sectors() - start);
            self.now += 1;
            let asked = self.now;
            let answer = client.read((start * SECTOR_BYTES) as u64, (sectors * SECTOR_BYTES) as u32);
            let data = answer
                .map_err(Violation::Wire)?
                .map_err(|errno| Violation::Unreadable { sector: start, errno })?;
            self.now += 1;
            self.judge(start, &data, asked)?;
        }
        Ok(())
    }

    /// The same where devices may have lost blocks: those give errors, and all that can be read is judged. Returns how
    /// many are lost.
    pub fn verify_what_is_left(&mut self, client: &mut Client) -> Result<usize, Box<Violation>> {
        self.lost.clear();
        match self.verify_all(client).map_err(|violation| *violation) {
            Ok(()) => return Ok(0),
            Err(Violation::Unreadable { .. }) => {}
            Err(violation) => return Err(Box::new(violation)),
        }
        for start in (0..self.histories.sectors()).step_by(BLOCK_SECTORS) {
            self.now += 1;
            let asked = self.now;
            let offset_bytes = (start * SECTOR_BYTES) as u64;
            match client.read(offset_bytes, (BLOCK_SECTORS * SECTOR_BYTES) as u32).map_err(Violation::Wire)? {
                Ok(data) => {
                    self.now += 1;
                    self.judge(start, &data, asked)?;
                }
                Err(_) => {
                    self.lost.insert(start / BLOCK_SECTORS);
                }
            }
        }
        Ok(self.lost.len())
    }

    /// Whether an operation meets a block that a device lost.
    fn meets_lost(&self, operation: &Operation) -> bool {
        let range = range(operation);
        let blocks = range.start / BLOCK_SECTORS..range.end.div_ceil(BLOCK_SECTORS);
        let is_durable = operation.kind == Kind::Flush || operation.fua;
        self.lost.range(blocks).next().is_some() || (is_durable && !self.lost.is_empty())
    }

    /// Judges what the origin alone holds, from its first sector on: all that was acknowledged has come home.
    pub fn verify_home(&mut self, data: &[u8]) -> Result<(), Box<Violation>> {
        assert!(self.under_way.is_empty(), "after_crash is due");
        self.now += 1;
        let asked = self.now;
        self.now += 1;
        self.judge(0, &data[..self.histories.sectors() * SECTOR_BYTES], asked)
    }

    fn drive(
        &mut self,
        lanes: &mut [Lane<'_>],
        arrivals: &mpsc::Receiver<Event>,
        load: &Load,
        excuses: &dyn Excuses,
    ) -> Result<Progress, Box<Violation>> {
        assert!(load.depth > 0 && !lanes.is_empty(), "somebody has to ask for something");
        let mut progress = Progress::default();
        let mut left = load.operations;
        loop {
            // One to each in turn, so that the connections get at each other's ranges.
            while left > 0 && !progress.died {
                let Some(lane) = lanes.iter_mut().min_by_key(|lane| lane.under_way) else { break };
                if lane.under_way == load.depth {
                    break;
                }
                left -= 1;
                progress.died = !self.send(lane, load)?;
            }
            if lanes.iter().all(|lane| lane.under_way == 0) {
                progress.cut_off = self.under_way.len() as u64;
                return Ok(progress);
            }
            let (number, event) = arrivals.recv().expect("a lane with requests has its thread");
            match event {
                Ok(reply) => {
                    lanes[number].under_way -= 1;
                    let has_failed = reply.result.is_err();
                    self.take(&reply, &mut progress, excuses)?;
                    if has_failed {
                        std::thread::sleep(PAUSE_AFTER_ERROR);
                    }
                }
                Err(error) if error.is_closed() => {
                    lanes[number].under_way = 0;
                    progress.died = true;
                }
                Err(error) => return Err(Box::new(error.into())),
            }
        }
    }

    /// Sends one operation; whether the server still lives.
    fn send(&mut self, lane: &mut Lane<'_>, load: &Load) -> Result<bool, Box<Violation>> {
        let operation = self.draw.next(load, lane.unit_sectors);
        self.now += 1;
        let cookie = self.now;
        let (offset_bytes, len_bytes) =
            (operation.start * SECTOR_BYTES as u64, operation.sectors as u32 * SECTOR_BYTES as u32);
        let oldest = self.under_way.keys().next().copied().unwrap_or(cookie);
        let effect = match operation.kind {
            Kind::Write => Some(Effect::Becomes(Content::Version(cookie))),
            Kind::Zeroes => Some(Effect::Becomes(Content::Zeroes)),
            Kind::Discard => Some(Effect::Discarded),
            Kind::Read | Kind::Flush => None,
        };
        if let Some(effect) = effect {
            self.histories.begin(range(&operation), cookie, effect, oldest);
        }
        self.under_way.insert(cookie, (operation, Instant::now()));
        let sender = &mut lane.sender;
        let sent = match operation.kind {
            Kind::Read => sender.send_read(cookie, offset_bytes, len_bytes),
            Kind::Flush => sender.send_flush(cookie),
            Kind::Discard => sender.send_trim(cookie, offset_bytes, len_bytes, operation.fua),
            Kind::Zeroes => sender.send_write_zeroes(cookie, offset_bytes, len_bytes, operation.fua),
            Kind::Write => {
                self.payload.clear();
                for sector in range(&operation) {
                    self.payload.extend_from_slice(&stamp::encode(self.seed, sector as u64, cookie));
                }
                sender.send_write(cookie, offset_bytes, &self.payload, operation.fua)
            }
        };
        match sent {
            Ok(()) => {
                lane.under_way += 1;
                // The thread may have met the end already; then its last word is on its way.
                let _ended = lane.credit.send(());
                Ok(true)
            }
            Err(error) if error.is_closed() => Ok(false),
            Err(error) => Err(Box::new(error.into())),
        }
    }

    /// Takes a reply.
    fn take(
        &mut self,
        reply: &Reply,
        progress: &mut Progress,
        excuses: &dyn Excuses,
    ) -> Result<(), Box<Violation>> {
        let asked = reply.cookie;
        let (operation, asked_at) =
            self.under_way.remove(&asked).expect("the client knows what is under way");
        self.now += 1;
        progress.answered += 1;
        let worked = reply.result.is_ok();
        progress.errors += u64::from(!worked);
        if let Err(errno) = reply.result {
            let Operation { kind, start, sectors, fua } = operation;
            let failure = Failure { kind, fua, start, sectors, errno, asked_at, answered_at: Instant::now() };
            if !self.meets_lost(&operation) && !excuses.explain(&failure) {
                return Err(Box::new(Violation::Unexcused(failure)));
            }
        }
        if operation.kind == Kind::Flush {
            excuses.flush_answered(asked_at);
        }
        match operation.kind {
            Kind::Read if worked => {
                progress.reads += 1;
                self.judge(operation.start as usize, &reply.data, asked)?;
            }
            Kind::Flush if worked => {
                progress.flushes += 1;
                self.histories.flush(asked);
            }
            Kind::Write | Kind::Zeroes | Kind::Discard => {
                self.histories.finish(range(&operation), asked, self.now, worked, operation.fua);
                progress.changes += u64::from(worked);
                if worked && operation.kind == Kind::Write {
                    progress.written_bytes += operation.sectors * SECTOR_BYTES as u64;
                }
            }
            Kind::Read | Kind::Flush => {}
        }
        Ok(())
    }

    /// Judges what a read brought.
    fn judge(&mut self, start: usize, data: &[u8], asked: u64) -> Result<(), Box<Violation>> {
        for (at, bytes) in data.chunks_exact(SECTOR_BYTES).enumerate() {
            let sector = start + at;
            let read = stamp::decode(self.seed, sector as u64, bytes);
            let wrong = match read {
                Ok(content) => match self.histories.observe(sector, content, asked, self.now) {
                    Ok(()) => continue,
                    Err(wrong) => Some(wrong),
                },
                Err(_) => None,
            };
            return Err(Box::new(Violation::Content {
                seed: self.seed,
                sector,
                read,
                wrong,
                read_time: asked..self.now,
                crash: self.crash,
                history: self.histories.of(sector).to_vec(),
            }));
        }
        Ok(())
    }
}

fn range(operation: &Operation) -> Range<usize> {
    operation.start as usize..(operation.start + operation.sectors) as usize
}

/// Passes on as many replies as there are requests; an error is the last event.
fn receive(
    number: usize,
    receiver: &mut Receiver,
    credits: &mpsc::Receiver<()>,
    events: &mpsc::Sender<Event>,
) {
    for () in credits {
        let event = receiver.receive();
        let is_last = event.is_err();
        if events.send((number, event)).is_err() || is_last {
            return;
        }
    }
}
