//! Instructions that the engine needs for a cached read and for a write of 4 KiB.
//!
//! `scripts/bench-engine` runs this program under callgrind. Counted is what happens inside the five calls of the engine
//! ([`counted_submit`] and its neighbours). Left out are the driver: devices, its queue, clients. Buffers cost next
//! to nothing: payload has no bytes, its checksum is always 0, and nothing is copied. What a real driver spends on
//! them comes on top.
//!
//! Each load of [`LOADS`] is warmed up first. [`begin`] and [`end`] are the marks between which callgrind counts. All is
//! drawn from one seed, in virtual time, so a count is the same each time.
//!
//! The program itself prints a line for each load: `name;requests;limit`.

use forebay_engine::composition::Composition;
use forebay_engine::effect::{Effect, Errno, Io, IoId, Request, RequestId, RequestOp, Target};
use forebay_engine::engine::Engine;
use forebay_engine::format::{LASTING_BYTES, Superblock, VolumeRecord};
use forebay_engine::image::{Image, ReadAt};
use forebay_engine::memory::{BufferId, Memory, Purpose, Slice};
use forebay_engine::mutation::Mutations;
use forebay_engine::number::{index, index_wide, to_u32, wide};
use forebay_engine::recovery::{self, Options};
use forebay_engine::units::{BLOCK_BYTES, Nanos, SECTORS_PER_BLOCK, SectorRange, VolumeId, VolumeIndex};
use std::collections::VecDeque;
use std::hint::black_box;

const CACHE_BYTES: u64 = 512 << 20;
/// Blocks of the volume, all of which fit into the cache.
const ORIGIN_BLOCKS: u64 = 32_768;
const VOLUME: VolumeIndex = VolumeIndex(0);
/// Time of a device operation, of the cache and of the origin.
const CACHE_NS: u64 = 80_000;
const ORIGIN_NS: u64 = 500_000;

/// One load: random blocks of the volume.
struct Load {
    name: &'static str,
    is_write: bool,
    /// Requests under way at a time.
    depth: u64,
    /// Requests that are counted.
    requests: u64,
}

impl Load {
    /// Instructions that a request may cost at the most, all in.
    fn limit(&self) -> u64 {
        if self.is_write { 3_000 } else { 2_000 }
    }
}

/// The loads, in this order. Reads begin when all is cached and clean.
const LOADS: [Load; 4] = [
    Load { name: "hit at depth 1", is_write: false, depth: 1, requests: 20_000 },
    Load { name: "hit at depth 32", is_write: false, depth: 32, requests: 20_000 },
    Load { name: "write at depth 1", is_write: true, depth: 1, requests: 20_000 },
    Load { name: "write at depth 32", is_write: true, depth: 32, requests: 20_000 },
];

fn main() {
    let mut driver = Driver::with_new_cache();
    driver.fill_cache();
    for load in &LOADS {
        driver.carry_out(load, load.requests / 4);
        begin();
        driver.carry_out(load, load.requests);
        end();
        println!("{};{};{}", load.name, load.requests, load.limit());
    }
}

// ---- marks and counted calls -------------------------------------------------------------------------------

/// The mark at which callgrind forgets what it counted.
#[inline(never)]
fn begin() {
    black_box("begin");
}

/// The mark at which callgrind writes down what it counted.
#[inline(never)]
fn end() {
    black_box("end");
}

#[inline(never)]
fn counted_submit(engine: &mut Engine, now: Nanos, request: Request, buffers: &mut Buffers) {
    engine.submit(now, request, buffers).expect("there is room for so few requests");
}

#[inline(never)]
fn counted_complete(engine: &mut Engine, now: Nanos, io: IoId, buffers: &mut Buffers) {
    engine.complete(now, io, Ok(()), buffers);
}

#[inline(never)]
fn counted_advance(engine: &mut Engine, now: Nanos, buffers: &mut Buffers) {
    engine.advance(now, buffers);
}

#[inline(never)]
fn counted_poll_effect(engine: &mut Engine, buffers: &mut Buffers) -> Option<Effect> {
    engine.poll_effect(buffers)
}

#[inline(never)]
fn counted_deadline(engine: &Engine) -> Option<Nanos> {
    engine.deadline()
}

// ---- the driver --------------------------------------------------------------------------------------------

/// The engine, devices that answer after a constant time, and clients that ask for the next block at once.
struct Driver {
    engine: Engine,
    buffers: Buffers,
    /// Operations under way on the cache and on the origin, with the time of their ends, in rising order.
    cache: VecDeque<(Nanos, IoId)>,
    origin: VecDeque<(Nanos, IoId)>,
    now: Nanos,
    last_request: u64,
    answered: u64,
    random: u64,
}

impl Driver {
    fn with_new_cache() -> Driver {
        let mut disk = Disk(vec![0; index_wide(CACHE_BYTES)]);
        format(&mut disk);
        let options = Options { index_budget_bytes: 64 << 20, repair: false, mutations: Mutations::NONE };
        let opened = recovery::open(&mut disk, options).expect("a new cache opens");
        let composition = Composition::of(&opened.superblock).expect("this program wrote it");
        let config = composition.config(&opened.superblock.layout);
        Driver {
            engine: Engine::new(opened, config),
            buffers: Buffers { lasting: vec![0; LASTING_BYTES], ..Buffers::default() },
            cache: VecDeque::new(),
            origin: VecDeque::new(),
            now: Nanos(0),
            last_request: 0,
            answered: 0,
            random: 1,
        }
    }

    /// Writes every block once, takes all of them home, and asserts that the cache has them and is at rest.
    fn fill_cache(&mut self) {
        for block in 0..ORIGIN_BLOCKS {
            self.submit(true, block);
            if block % 32 == 31 {
                self.wait_for_answers(block + 1);
            }
        }
        self.ask(RequestOp::Drain);
        self.wait_for_answers(ORIGIN_BLOCKS + 1);
        while self.go_on() {}
        let cached = self.engine.cached_blocks(VOLUME);
        assert_eq!(wide(cached.len()), ORIGIN_BLOCKS, "all of the volume is cached before the counts begin");
    }

    /// Carries out so many requests of a load, and waits for the last one.
    fn carry_out(&mut self, load: &Load, requests: u64) {
        let first = self.answered;
        let mut submitted = 0;
        while submitted < requests {
            while submitted < requests && submitted - (self.answered - first) < load.depth {
                let block = self.draw() % ORIGIN_BLOCKS;
                self.submit(load.is_write, block);
                submitted += 1;
            }
            self.wait_for_answers(self.answered + 1);
        }
        self.wait_for_answers(first + requests);
    }

    /// A random number (xorshift).
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn submit(&mut self, is_write: bool, block: u64) {
        let len_bytes = to_u32(BLOCK_BYTES);
        let buffer = self.buffers.allocate(Purpose::Payload, len_bytes).expect("there is no limit here");
        let slice = Slice { buffer, offset_bytes: 0, len_bytes };
        let range = SectorRange { start: block * SECTORS_PER_BLOCK, sectors: SECTORS_PER_BLOCK };
        self.ask(if is_write {
            RequestOp::Write { range, from: slice, fua: false }
        } else {
            RequestOp::Read { range, into: slice }
        });
    }

    fn ask(&mut self, op: RequestOp) {
        self.last_request += 1;
        let request = Request { id: RequestId(self.last_request), volume: VOLUME, op };
        counted_submit(&mut self.engine, self.now, request, &mut self.buffers);
    }

    /// Goes on until so many requests were answered since the start.
    fn wait_for_answers(&mut self, answers: u64) {
        self.poll();
        while self.answered < answers {
            assert!(self.go_on(), "an unanswered request waits for a device or for the clock");
        }
    }

    /// Lets the next thing happen: operations end, or the engine's deadline is reached. False if there is none.
    fn go_on(&mut self) -> bool {
        let ends = [self.cache.front(), self.origin.front()].into_iter().flatten().map(|(end, _)| *end);
        let deadline = counted_deadline(&self.engine);
        let Some(next) = ends.chain(deadline).min() else { return false };
        self.now = self.now.max(next);
        for queue in [&mut self.cache, &mut self.origin] {
            while queue.front().is_some_and(|(end, _)| *end <= self.now) {
                let (_, io) = queue.pop_front().expect("the operation that was looked at");
                counted_complete(&mut self.engine, self.now, io, &mut self.buffers);
            }
        }
        if deadline.is_some_and(|deadline| deadline <= self.now) {
            counted_advance(&mut self.engine, self.now, &mut self.buffers);
        }
        self.poll();
        true
    }

    fn poll(&mut self) {
        while let Some(effect) = counted_poll_effect(&mut self.engine, &mut self.buffers) {
            match effect {
                Effect::Io(Io { id, target: Target::Cache, .. }) => {
                    self.cache.push_back((Nanos(self.now.0 + CACHE_NS), id));
                }
                Effect::Io(Io { id, .. }) => self.origin.push_back((Nanos(self.now.0 + ORIGIN_NS), id)),
                Effect::Reply { result, .. } => {
                    assert_eq!(result, Ok(()), "no request fails: no device does");
                    self.answered += 1;
                }
                Effect::Notice(notice) => panic!("nothing happens that is worth a notice: {notice:?}"),
            }
        }
    }
}

// ---- buffers, the cache device -----------------------------------------------------------------------------

/// Buffers of which only those of metadata have bytes.
#[derive(Default)]
struct Buffers {
    buffers: Vec<Buffer>,
    free: Vec<u32>,
    /// Memory that outlives the process.
    lasting: Vec<u8>,
}

#[derive(Default)]
struct Buffer {
    references: u32,
    /// Length of a buffer of metadata.
    len_bytes: usize,
    /// Bytes of the longest buffer of metadata that had this number: they are kept for the next one.
    bytes: Vec<u8>,
}

impl Memory for Buffers {
    fn allocate(&mut self, purpose: Purpose, len_bytes: u32) -> Option<BufferId> {
        let number = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(Buffer::default());
            to_u32(wide(self.buffers.len() - 1))
        });
        let buffer = &mut self.buffers[index(number)];
        buffer.references = 1;
        if purpose == Purpose::Metadata {
            buffer.len_bytes = index(len_bytes);
            if buffer.bytes.len() < buffer.len_bytes {
                buffer.bytes = vec![0; buffer.len_bytes];
            }
        }
        Some(BufferId(number))
    }

    fn retain(&mut self, buffer: BufferId) {
        self.buffers[index(buffer.0)].references += 1;
    }

    fn release(&mut self, buffer: BufferId) {
        let references = &mut self.buffers[index(buffer.0)].references;
        *references -= 1;
        if *references == 0 {
            self.free.push(buffer.0);
        }
    }

    fn metadata(&self, buffer: BufferId) -> &[u8] {
        let buffer = &self.buffers[index(buffer.0)];
        &buffer.bytes[..buffer.len_bytes]
    }

    fn metadata_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        let buffer = &mut self.buffers[index(buffer.0)];
        &mut buffer.bytes[..buffer.len_bytes]
    }

    fn checksum(&self, _: Slice) -> u32 {
        0
    }

    fn copy(&mut self, _: Slice, _: Slice) {}

    fn zero(&mut self, _: Slice) {}

    fn lasting_bytes(&self) -> usize {
        self.lasting.len()
    }

    fn store_lasting(&mut self, at_bytes: usize, bytes: &[u8]) {
        self.lasting[at_bytes..at_bytes + bytes.len()].copy_from_slice(bytes);
    }
}

/// The cache device for formatting and recovery, before anything is counted.
struct Disk(Vec<u8>);

impl Disk {
    fn part(&mut self, offset_bytes: u64, len_bytes: usize) -> &mut [u8] {
        let start = index_wide(offset_bytes);
        &mut self.0[start..start + len_bytes]
    }
}

impl Image for Disk {
    fn size_bytes(&self) -> u64 {
        wide(self.0.len())
    }

    fn read_group(&mut self, reads: &mut [ReadAt]) {
        for read in reads {
            let len_bytes = read.bytes.len();
            read.bytes.copy_from_slice(self.part(read.offset_bytes, len_bytes));
            read.result = Ok(());
        }
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.part(offset_bytes, bytes.len()).copy_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}

/// Writes an empty cache of the profile `forebay` with one volume.
fn format(disk: &mut Disk) {
    let composition = Composition::forebay();
    let layout = composition.divide(disk.size_bytes()).expect("the cache is large enough");
    let volume = VolumeRecord::new(VolumeId(1), "counted", "nothing", ORIGIN_BLOCKS * SECTORS_PER_BLOCK);
    let superblock = Superblock {
        composition: composition.text(),
        ..Superblock::of_new_cache(*b"any sixteen byte", disk.size_bytes(), layout)
    }
    .with_volumes([volume]);
    recovery::format(disk, &superblock).expect("memory takes every write");
    recovery::write_superblock(disk, &superblock, Mutations::NONE).expect("memory takes every write");
}
