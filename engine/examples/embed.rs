//! The cache engine inside another program, in one file.
//!
//! Two pieces of memory stand for the devices: a fast one, the cache, and a slow one, the origin. The program
//! formats the cache, writes two blocks, flushes after the first one, and then "loses power". Recovery finds the block
//! that was flushed. At the end all dirty data goes home and the engine stops.
//!
//! Run it with `cargo run -p forebay-engine --example embed`.
//!
//! The engine does no I/O of its own. Whoever embeds it brings three things:
//! * [`Memory`]: buffers, which the engine names and never looks into, except for its own metadata;
//! * [`Image`]: plain reads and writes of the cache device, for formatting and recovery;
//! * a loop that hands over requests, completions and the time, and carries out the effects that come back.

use forebay_engine::composition::Composition;
use forebay_engine::effect::{Effect, Errno, Io, IoOp, Request, RequestId, RequestOp, Target};
use forebay_engine::engine::Engine;
use forebay_engine::format::{Superblock, VolumeRecord};
use forebay_engine::image::{Image, ReadAt};
use forebay_engine::memory::{BufferId, Memory, Purpose, Slice};
use forebay_engine::mutation::Mutations;
use forebay_engine::number::{index, index_wide, to_u32, wide};
use forebay_engine::recovery::{self, Options};
use forebay_engine::units::{
    BLOCK_BYTES, Nanos, SECTORS_PER_BLOCK, SectorRange, VolumeId, VolumeIndex, payload_checksum,
};
use std::collections::{BTreeMap, VecDeque};

const CACHE_BYTES: u64 = 32 << 20;
const ORIGIN_BLOCKS: u64 = 1024;
/// One cache may serve several volumes; this program has one.
const VOLUME: VolumeIndex = VolumeIndex(0);

fn main() {
    let mut program = Program::with_new_cache();

    println!("write block 10 and flush, write block 11 and do not flush");
    program.write(10, b"flushed");
    program.flush();
    program.write(11, b"not flushed");
    println!("  block 10: {:?}, block 11: {:?}", program.read(10), program.read(11));
    println!("  the origin has {:?} in block 10: it is dirty", program.origin.text(10));

    println!("the power fails; the cache is opened again");
    program.lose_power();
    println!("  block 10: {:?}, block 11: {:?}", program.read(10), program.read(11));

    println!("write everything home and stop");
    program.ask(RequestOp::Drain);
    println!("  the origin has {:?} in block 10", program.origin.text(10));
    program.ask(RequestOp::Stop);

    assert_eq!(program.origin.text(10), "flushed", "a flushed write survives a power cut");
}

// ---- the devices -------------------------------------------------------------------------------------------

/// A device with a volatile cache: what no flush covers is gone when the power fails.
struct Disk {
    bytes: Vec<u8>,
    durable: Vec<u8>,
}

impl Disk {
    fn new(size_bytes: u64) -> Disk {
        let bytes = vec![0; index_wide(size_bytes)];
        Disk { durable: bytes.clone(), bytes }
    }

    fn part(&mut self, offset_bytes: u64, len_bytes: usize) -> &mut [u8] {
        let start = index_wide(offset_bytes);
        &mut self.bytes[start..start + len_bytes]
    }

    fn flush(&mut self) {
        self.durable.clone_from(&self.bytes);
    }

    fn lose_power(&mut self) {
        self.bytes.clone_from(&self.durable);
    }

    /// The text at the beginning of a block.
    fn text(&mut self, block: u64) -> String {
        text(self.part(block * BLOCK_BYTES, index_wide(BLOCK_BYTES)))
    }
}

/// Formatting and recovery are one synchronous job before the first request. They use the cache device directly.
impl Image for Disk {
    fn size_bytes(&self) -> u64 {
        wide(self.bytes.len())
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
        Disk::flush(self);
        Ok(())
    }
}

// ---- the buffers -------------------------------------------------------------------------------------------

/// Counted buffers. A real driver takes them from a pool of aligned memory with a limit.
#[derive(Default)]
struct Buffers {
    /// The bytes and the references of each buffer.
    buffers: BTreeMap<BufferId, (Vec<u8>, u32)>,
    last: u32,
}

impl Buffers {
    fn bytes(&self, slice: Slice) -> &[u8] {
        let start = index(slice.offset_bytes);
        &self.buffers[&slice.buffer].0[start..start + index(slice.len_bytes)]
    }

    fn bytes_mut(&mut self, slice: Slice) -> &mut [u8] {
        let start = index(slice.offset_bytes);
        &mut self.metadata_mut(slice.buffer)[start..start + index(slice.len_bytes)]
    }
}

impl Memory for Buffers {
    fn allocate(&mut self, _: Purpose, len_bytes: u32) -> Option<BufferId> {
        self.last += 1;
        let buffer = BufferId(self.last);
        self.buffers.insert(buffer, (vec![0; index(len_bytes)], 1));
        Some(buffer)
    }

    fn retain(&mut self, buffer: BufferId) {
        self.buffers.get_mut(&buffer).expect("the engine names buffers in use").1 += 1;
    }

    fn release(&mut self, buffer: BufferId) {
        let (_, references) = self.buffers.get_mut(&buffer).expect("the engine names buffers in use");
        *references -= 1;
        if *references == 0 {
            self.buffers.remove(&buffer);
        }
    }

    fn metadata(&self, buffer: BufferId) -> &[u8] {
        &self.buffers[&buffer].0
    }

    fn metadata_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        &mut self.buffers.get_mut(&buffer).expect("the engine names buffers in use").0
    }

    fn checksum(&self, slice: Slice) -> u32 {
        payload_checksum(self.bytes(slice))
    }

    fn copy(&mut self, from: Slice, to: Slice) {
        let bytes = self.bytes(from).to_vec();
        self.bytes_mut(to).copy_from_slice(&bytes);
    }

    fn zero(&mut self, slice: Slice) {
        self.bytes_mut(slice).fill(0);
    }
}

// ---- the program -------------------------------------------------------------------------------------------

/// The engine and all that it is driven with.
struct Program {
    engine: Engine,
    buffers: Buffers,
    cache: Disk,
    origin: Disk,
    /// Device operations that were issued and not yet carried out.
    issued: VecDeque<Io>,
    answers: BTreeMap<RequestId, Result<(), Errno>>,
    last_request: u64,
    /// The time: any clock that never goes back. This one jumps to the engine's next deadline.
    now: Nanos,
}

impl Program {
    fn with_new_cache() -> Program {
        let mut cache = Disk::new(CACHE_BYTES);
        format(&mut cache);
        Program {
            engine: open(&mut cache),
            buffers: Buffers::default(),
            cache,
            origin: Disk::new(ORIGIN_BLOCKS * BLOCK_BYTES),
            issued: VecDeque::new(),
            answers: BTreeMap::new(),
            last_request: 0,
            now: Nanos(0),
        }
    }

    /// Whatever was in memory or not flushed is gone. Then the cache is opened once more.
    fn lose_power(&mut self) {
        self.cache.lose_power();
        self.origin.lose_power();
        self.buffers = Buffers::default();
        self.issued.clear();
        self.engine = open(&mut self.cache);
    }

    fn write(&mut self, block: u64, text: &[u8]) {
        let from = self.new_slice();
        self.buffers.bytes_mut(from)[..text.len()].copy_from_slice(text);
        self.ask(RequestOp::Write { range: range_of(block), from, fua: false });
    }

    fn read(&mut self, block: u64) -> String {
        let into = self.new_slice();
        // The engine gives its reference back with the reply; this one keeps the bytes.
        self.buffers.retain(into.buffer);
        self.ask(RequestOp::Read { range: range_of(block), into });
        let content = text(self.buffers.bytes(into));
        self.buffers.release(into.buffer);
        content
    }

    fn flush(&mut self) {
        self.ask(RequestOp::Flush);
    }

    fn new_slice(&mut self) -> Slice {
        let len_bytes = to_u32(BLOCK_BYTES);
        let buffer = self.buffers.allocate(Purpose::Payload, len_bytes).expect("there is no limit here");
        Slice { buffer, offset_bytes: 0, len_bytes }
    }

    /// Hands over one request and drives the engine until it is answered. A real program has many under way.
    fn ask(&mut self, op: RequestOp) {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        let request = Request { id, volume: VOLUME, op };
        self.engine.submit(self.now, request, &mut self.buffers).expect("there is room for one request");
        loop {
            self.poll();
            if let Some(result) = self.answers.remove(&id) {
                return result.unwrap_or_else(|errno| panic!("the request failed: {errno:?}"));
            }
            if let Some(io) = self.issued.pop_front() {
                let result = self.carry_out(&io);
                self.engine.complete(self.now, io.id, result, &mut self.buffers);
            } else {
                // Nothing is under way: the engine waits for its clock.
                self.now =
                    self.engine.deadline().expect("an unanswered request has a deadline").max(self.now);
                self.engine.advance(self.now, &mut self.buffers);
            }
        }
    }

    /// Collects what the engine wants done. Call it until it has nothing more, after each group of other calls.
    fn poll(&mut self) {
        while let Some(effect) = self.engine.poll_effect(&mut self.buffers) {
            match effect {
                Effect::Io(io) => self.issued.push_back(io),
                Effect::Reply { id, result } => {
                    self.answers.insert(id, result);
                }
                Effect::Notice(notice) => println!("  notice: {notice:?}"),
            }
        }
    }

    /// Carries out one operation. A real driver has many in flight, and they may end in any order.
    fn carry_out(&mut self, io: &Io) -> Result<(), Errno> {
        let disk = match io.target {
            Target::Cache => &mut self.cache,
            Target::Origin(_) => &mut self.origin,
            // A second cache device, of which there is none here; and notes beside the devices, for a cache that fails while it
            // has dirty data.
            Target::Mirror | Target::State => return Err(Errno::IO),
        };
        match &io.op {
            IoOp::Read { offset_bytes, into } => {
                let mut at = *offset_bytes;
                for slice in into.as_slice() {
                    let bytes = disk.part(at, index(slice.len_bytes));
                    self.buffers.bytes_mut(*slice).copy_from_slice(bytes);
                    at += u64::from(slice.len_bytes);
                }
            }
            IoOp::Write { offset_bytes, from } => {
                let mut at = *offset_bytes;
                for slice in from.as_slice() {
                    disk.part(at, index(slice.len_bytes)).copy_from_slice(self.buffers.bytes(*slice));
                    at += u64::from(slice.len_bytes);
                }
            }
            IoOp::WriteZeroes { offset_bytes, len_bytes } => {
                disk.part(*offset_bytes, index_wide(*len_bytes)).fill(0);
            }
            IoOp::Flush => disk.flush(),
            IoOp::Discard { .. } | IoOp::Abandon(_) => return Err(Errno::OPNOTSUPP),
        }
        Ok(())
    }
}

// ---- creating and opening a cache ----------------------------------------------------------------------------

/// Writes an empty cache with one volume. The composition says what kind of cache it is.
fn format(cache: &mut Disk) {
    let composition = Composition::forebay();
    let layout = composition.divide(cache.size_bytes()).expect("the cache is large enough");
    let volume = VolumeRecord::new(VolumeId(1), "example", "memory", ORIGIN_BLOCKS * SECTORS_PER_BLOCK);
    let superblock = Superblock {
        composition: composition.text(),
        ..Superblock::of_new_cache(*b"any sixteen byte", cache.size_bytes(), layout)
    }
    .with_volumes([volume]);
    recovery::format(cache, &superblock).expect("memory takes every write");
    recovery::write_superblock(cache, &superblock, Mutations::NONE).expect("memory takes every write");
}

/// Recovery: the same steps after a clean stop and after a crash.
fn open(cache: &mut Disk) -> Engine {
    let options = Options { index_budget_bytes: 1 << 20, repair: false, mutations: Mutations::NONE };
    let opened =
        recovery::open(cache, options).unwrap_or_else(|error| panic!("the cache is refused: {error}"));
    println!(
        "the cache is open: {} cached blocks, {} dirty bytes, {} batches cut off at the end of the log",
        opened.report.blocks,
        opened.dirty_bytes(VOLUME),
        opened.report.batches_cut
    );
    let composition = Composition::of(&opened.superblock).expect("this program wrote it");
    let config = composition.config(&opened.superblock.layout);
    Engine::new(opened, config)
}

fn range_of(block: u64) -> SectorRange {
    SectorRange { start: block * SECTORS_PER_BLOCK, sectors: SECTORS_PER_BLOCK }
}

/// The bytes before the first zero, as text.
fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}
