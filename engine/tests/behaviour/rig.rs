//! The engine over devices that are plain memory and answer in the order they were asked: what a published system
//! does can be read off the operations.
//!
//! Time stands still until a test lets it pass.

use forebay_engine::composition::Composition;
use forebay_engine::effect::{Effect, Errno, Io, IoOp, Pieces, Request, RequestId, RequestOp, Target};
use forebay_engine::engine::Engine;
use forebay_engine::format::{Layout, SlotLayout, Superblock, VolumeRecord};
use forebay_engine::image::{Image, ReadAt};
use forebay_engine::limits::Config;
use forebay_engine::memory::{BufferId, Memory, Purpose, Slice};
use forebay_engine::mutation::Mutations;
use forebay_engine::recovery::{self, Options};
use forebay_engine::status::Status;
use forebay_engine::units::{BLOCK_BYTES, Nanos, SectorRange, VolumeId, VolumeIndex, payload_checksum};
use std::collections::{BTreeMap, VecDeque};

/// A device operation that was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    pub device: Device,
    pub kind: Kind,
    pub offset_bytes: u64,
    pub len_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Cache,
    Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Flush,
    Other,
}

/// The buffers.
#[derive(Default)]
pub struct Buffers {
    all: BTreeMap<u32, (Vec<u8>, u32)>,
    next: u32,
}

impl Buffers {
    fn range(slice: Slice) -> std::ops::Range<usize> {
        slice.offset_bytes as usize..(slice.offset_bytes + slice.len_bytes) as usize
    }

    pub fn bytes(&self, slice: Slice) -> &[u8] {
        &self.all[&slice.buffer.0].0[Buffers::range(slice)]
    }

    pub fn bytes_mut(&mut self, slice: Slice) -> &mut [u8] {
        let (bytes, _) = self.all.get_mut(&slice.buffer.0).expect("a buffer in use");
        &mut bytes[Buffers::range(slice)]
    }
}

impl Memory for Buffers {
    fn allocate(&mut self, _: Purpose, len_bytes: u32) -> Option<BufferId> {
        self.next += 1;
        self.all.insert(self.next, (vec![0; len_bytes as usize], 1));
        Some(BufferId(self.next))
    }

    fn retain(&mut self, buffer: BufferId) {
        self.all.get_mut(&buffer.0).expect("a buffer in use").1 += 1;
    }

    fn release(&mut self, buffer: BufferId) {
        let (_, references) = self.all.get_mut(&buffer.0).expect("a buffer in use");
        *references -= 1;
        if *references == 0 {
            self.all.remove(&buffer.0);
        }
    }

    fn metadata(&self, buffer: BufferId) -> &[u8] {
        &self.all[&buffer.0].0
    }

    fn metadata_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        &mut self.all.get_mut(&buffer.0).expect("a buffer in use").0
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

/// A device, for recovery.
pub struct Plain<'a>(pub &'a mut Vec<u8>);

impl Image for Plain<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_group(&mut self, reads: &mut [ReadAt]) {
        for read in reads {
            let first = read.offset_bytes as usize;
            let len = read.bytes.len();
            read.bytes.copy_from_slice(&self.0[first..first + len]);
            read.result = Ok(());
        }
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.0[offset_bytes as usize..offset_bytes as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}

/// The engine with a cache and one origin.
pub struct Rig {
    pub layout: SlotLayout,
    engine: Engine,
    config: Config,
    buffers: Buffers,
    cache: Vec<u8>,
    origin: Vec<u8>,
    now: Nanos,
    pending: VecDeque<Io>,
    /// The origin fails its flushes.
    pub fails_flushes: bool,
    /// The origin fails its reads.
    pub fails_reads: bool,
    ops: Vec<Op>,
    answers: BTreeMap<u64, Result<(), Errno>>,
    reads: BTreeMap<u64, BufferId>,
    next_request: u64,
}

/// A composition of slots with these settings.
pub fn composition(settings: &[(&str, &str)]) -> Composition {
    let mut composition = Composition::plain_slots();
    for (name, value) in settings {
        composition.set(name, value).unwrap_or_else(|error| panic!("{error}"));
    }
    composition.validate().unwrap_or_else(|coupling| panic!("{coupling:?}"));
    composition
}

impl Rig {
    /// A new cache of that many slots before an origin of zeroes, after its first flush.
    pub fn new(composition: &Composition, slots: u32, origin_blocks: u64) -> Rig {
        let layout = SlotLayout::of_composition_with_slots(slots, composition).expect("there are such slots");
        let volume = VolumeRecord {
            mode: composition.write_mode,
            ..VolumeRecord::new(VolumeId(1), "v", "o", origin_blocks * 8)
        };
        let superblock = Superblock {
            profile: "test".into(),
            composition: composition.text(),
            ..Superblock::of_new_cache([7; 16], layout.cache_bytes(), Layout::Slots(layout))
        }
        .with_volumes([volume]);
        let mut cache = vec![0; layout.cache_bytes() as usize];
        recovery::format(&mut Plain(&mut cache), &superblock)
            .and_then(|()| recovery::write_superblock(&mut Plain(&mut cache), &superblock, Mutations::NONE))
            .expect("memory takes everything");
        let config = Config::for_slots(&layout, composition);
        let mut rig = Rig {
            layout,
            engine: open(&mut cache, config),
            config,
            buffers: Buffers::default(),
            cache,
            origin: vec![0; (origin_blocks * BLOCK_BYTES) as usize],
            now: Nanos(0),
            pending: VecDeque::new(),
            fails_flushes: false,
            fails_reads: false,
            ops: Vec::new(),
            answers: BTreeMap::new(),
            reads: BTreeMap::new(),
            next_request: 0,
        };
        rig.pass_ms(1);
        rig.take_ops();
        rig
    }

    /// The program stops cleanly, and another one opens the cache.
    pub fn restart(&mut self) {
        let stop = self.submit(RequestOp::Stop);
        self.pass_ms(1_000);
        assert_eq!(self.answers.get(&stop), Some(&Ok(())), "it stops");
        self.crash();
    }

    /// The engine stops cleanly, and another one takes its place, whose clients are the same.
    pub fn succeed(&mut self) {
        let losses = self.engine.untold_losses();
        self.restart();
        self.engine.take_over_losses(&losses);
    }

    /// The answer to a request, if there is one.
    pub fn answer(&self, number: u64) -> Option<Result<(), Errno>> {
        self.answers.get(&number).copied()
    }

    /// The program dies, and another one opens the cache. Both devices have all they were given.
    pub fn crash(&mut self) {
        self.pending.clear();
        self.buffers = Buffers::default();
        self.engine = open(&mut self.cache, self.config);
        self.now = Nanos(0);
        self.pass_ms(1);
        self.take_ops();
    }

    // ---- requests ----------------------------------------------------------------------------

    /// Submits a write of sectors filled with `fill`; answers its number.
    pub fn submit_write(&mut self, start: u64, sectors: u64, fill: u8) -> u64 {
        self.submit_write_with(start, sectors, fill, false)
    }

    /// The same, with FUA or without.
    pub fn submit_write_with(&mut self, start: u64, sectors: u64, fill: u8, fua: bool) -> u64 {
        let len_bytes = (sectors * 512) as u32;
        let buffer = self.buffers.allocate(Purpose::Payload, len_bytes).expect("there is memory");
        let from = Slice { buffer, offset_bytes: 0, len_bytes };
        self.buffers.bytes_mut(from).fill(fill);
        self.submit(RequestOp::Write { range: SectorRange { start, sectors }, from, fua })
    }

    /// Submits a read; answers its number.
    pub fn submit_read(&mut self, start: u64, sectors: u64) -> u64 {
        let len_bytes = (sectors * 512) as u32;
        let buffer = self.buffers.allocate(Purpose::Payload, len_bytes).expect("there is memory");
        self.buffers.retain(buffer);
        let into = Slice { buffer, offset_bytes: 0, len_bytes };
        let number = self.submit(RequestOp::Read { range: SectorRange { start, sectors }, into });
        self.reads.insert(number, buffer);
        number
    }

    pub fn submit(&mut self, op: RequestOp) -> u64 {
        self.next_request += 1;
        let request = Request { id: RequestId(self.next_request), volume: VolumeIndex(0), op };
        self.engine.submit(self.now, request, &mut self.buffers).expect("there is room");
        self.poll();
        self.next_request
    }

    /// Whether a request was answered.
    pub fn is_answered(&self, number: u64) -> bool {
        self.answers.contains_key(&number)
    }

    /// Writes 4 KiB blocks and waits for the answer; what was asked of the devices for it.
    pub fn write(&mut self, block: u64, blocks: u64, fill: u8) -> Vec<Op> {
        self.write_sectors(block * 8, blocks * 8, fill)
    }

    pub fn write_sectors(&mut self, start: u64, sectors: u64, fill: u8) -> Vec<Op> {
        self.take_ops();
        let number = self.submit_write(start, sectors, fill);
        self.run();
        assert_eq!(self.answers.get(&number), Some(&Ok(())), "the write is answered");
        self.take_ops()
    }

    /// Reads 4 KiB blocks and waits for the answer: their first bytes, and what was asked of the devices.
    pub fn read(&mut self, block: u64, blocks: u64) -> (Vec<u8>, Vec<Op>) {
        self.take_ops();
        let number = self.submit_read(block * 8, blocks * 8);
        self.run();
        assert_eq!(self.answers.get(&number), Some(&Ok(())), "the read is answered");
        let buffer = self.reads.remove(&number).expect("it is a read");
        let content = self.buffers.all[&buffer.0].0.iter().step_by(BLOCK_BYTES as usize).copied().collect();
        self.buffers.release(buffer);
        (content, self.take_ops())
    }

    // ---- devices -----------------------------------------------------------------------------

    /// Lets the devices answer until nothing is left.
    pub fn run(&mut self) {
        self.run_but(|_| false);
    }

    /// The same, but operations of which `stays` holds are left waiting.
    pub fn run_but(&mut self, stays: impl Fn(&Op) -> bool) {
        self.poll();
        let mut left = VecDeque::new();
        while let Some(io) = self.pending.pop_front() {
            if describe(&io).is_some_and(|op| stays(&op)) {
                left.push_back(io);
                continue;
            }
            let result = self.carry_out(&io);
            self.engine.complete(self.now, io.id, result, &mut self.buffers);
            self.poll();
        }
        self.pending = left;
    }

    /// Lets time pass, in the steps that the engine asks for.
    pub fn pass_ms(&mut self, ms: u64) {
        let end = self.now.plus(ms * Nanos::MILLISECOND);
        self.run();
        while let Some(deadline) = self.engine.deadline().filter(|&deadline| deadline <= end) {
            self.now = self.now.max(deadline);
            self.engine.advance(self.now, &mut self.buffers);
            self.run();
        }
        self.now = end;
        self.engine.advance(self.now, &mut self.buffers);
        self.run();
    }

    /// Lets time pass while operations of which `stays` holds wait.
    pub fn pass_ms_but(&mut self, ms: u64, stays: impl Fn(&Op) -> bool) {
        let end = self.now.plus(ms * Nanos::MILLISECOND);
        while let Some(deadline) = self.engine.deadline().filter(|&deadline| deadline <= end) {
            self.now = self.now.max(deadline);
            self.engine.advance(self.now, &mut self.buffers);
            self.run_but(&stays);
        }
        self.now = end;
        self.engine.advance(self.now, &mut self.buffers);
        self.run_but(&stays);
    }

    /// What was asked of the devices since the last call.
    pub fn take_ops(&mut self) -> Vec<Op> {
        std::mem::take(&mut self.ops)
    }

    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// Dirty blocks of the volume.
    pub fn dirty_blocks(&self) -> u64 {
        self.status().volumes.iter().map(|volume| volume.dirty_bytes).sum::<u64>() / BLOCK_BYTES
    }

    /// The first byte of a block of the origin.
    pub fn origin_byte(&self, block: u64) -> u8 {
        self.origin[(block * BLOCK_BYTES) as usize]
    }

    /// Gives a block of the origin other content.
    pub fn fill_origin(&mut self, block: u64, fill: u8) {
        self.origin[(block * BLOCK_BYTES) as usize..][..BLOCK_BYTES as usize].fill(fill);
    }

    /// Damages the cached block that is filled with this byte.
    pub fn rot(&mut self, fill: u8) {
        let mut blocks = self.cache.chunks_mut(BLOCK_BYTES as usize);
        let block = blocks.find(|block| block.iter().all(|byte| *byte == fill)).expect("it is cached");
        block[0] ^= 1;
    }

    fn poll(&mut self) {
        while let Some(effect) = self.engine.poll_effect(&mut self.buffers) {
            match effect {
                Effect::Io(io) => {
                    self.ops.extend(describe(&io));
                    self.pending.push_back(io);
                }
                Effect::Reply { id, result } => {
                    self.answers.insert(id.0, result);
                }
                Effect::Notice(_) => (),
            }
        }
    }

    fn carry_out(&mut self, io: &Io) -> Result<(), Errno> {
        let device = match io.target {
            Target::Cache => &mut self.cache,
            Target::Origin(_) => &mut self.origin,
            Target::Mirror | Target::State => return Ok(()),
        };
        match &io.op {
            IoOp::Read { .. } if self.fails_reads && io.target != Target::Cache => return Err(Errno::IO),
            IoOp::Read { offset_bytes, into } => {
                let mut at = *offset_bytes as usize;
                for slice in into.as_slice() {
                    let len = slice.len_bytes as usize;
                    self.buffers.bytes_mut(*slice).copy_from_slice(&device[at..at + len]);
                    at += len;
                }
            }
            IoOp::Write { offset_bytes, from } => {
                let mut at = *offset_bytes as usize;
                for slice in from.as_slice() {
                    let len = slice.len_bytes as usize;
                    device[at..at + len].copy_from_slice(self.buffers.bytes(*slice));
                    at += len;
                }
            }
            IoOp::WriteZeroes { offset_bytes, len_bytes } => {
                device[*offset_bytes as usize..(*offset_bytes + *len_bytes) as usize].fill(0);
            }
            IoOp::Flush if self.fails_flushes && io.target != Target::Cache => return Err(Errno::IO),
            IoOp::Flush | IoOp::Discard { .. } | IoOp::Abandon(_) => (),
        }
        Ok(())
    }
}

fn open(cache: &mut Vec<u8>, config: Config) -> Engine {
    let options = Options { index_budget_bytes: 1 << 20, repair: false, mutations: Mutations::NONE };
    let opened = recovery::open(&mut Plain(cache), options).unwrap_or_else(|error| panic!("{error}"));
    Engine::new(opened, config)
}

fn describe(io: &Io) -> Option<Op> {
    let device = match io.target {
        Target::Cache => Device::Cache,
        Target::Origin(_) => Device::Origin,
        Target::Mirror | Target::State => return None,
    };
    let len = |pieces: &Pieces| pieces.len_bytes();
    let (kind, offset_bytes, len_bytes) = match &io.op {
        IoOp::Read { offset_bytes, into } => (Kind::Read, *offset_bytes, len(into)),
        IoOp::Write { offset_bytes, from } => (Kind::Write, *offset_bytes, len(from)),
        IoOp::Flush => (Kind::Flush, 0, 0),
        IoOp::WriteZeroes { offset_bytes, len_bytes } | IoOp::Discard { offset_bytes, len_bytes } => {
            (Kind::Other, *offset_bytes, *len_bytes)
        }
        IoOp::Abandon(_) => return None,
    };
    Some(Op { device, kind, offset_bytes, len_bytes })
}

/// How many of `ops` are of that kind.
pub fn count(ops: &[Op], device: Device, kind: Kind) -> usize {
    ops.iter().filter(|op| op.device == device && op.kind == kind).count()
}

/// Bytes of those.
pub fn bytes(ops: &[Op], device: Device, kind: Kind) -> u64 {
    let of_kind = ops.iter().filter(|op| op.device == device && op.kind == kind);
    of_kind.map(|op| op.len_bytes).sum()
}

impl Rig {
    /// Writes to slots, and writes of their records.
    pub fn cache_writes(&self, ops: &[Op]) -> (usize, usize) {
        let data = self.layout.slot_offset_bytes(forebay_engine::units::Frame(0));
        let writes = ops.iter().filter(|op| op.device == Device::Cache && op.kind == Kind::Write);
        let (slots, records): (Vec<&Op>, Vec<&Op>) = writes.partition(|op| op.offset_bytes >= data);
        (slots.len(), records.len())
    }

    /// The slots that `ops` write, by number.
    pub fn slots_written(&self, ops: &[Op]) -> Vec<u64> {
        let data = self.layout.slot_offset_bytes(forebay_engine::units::Frame(0));
        let writes = ops.iter().filter(|op| op.device == Device::Cache && op.kind == Kind::Write);
        let slots = writes.filter(|op| op.offset_bytes >= data);
        slots.map(|op| (op.offset_bytes - data) / self.layout.slot_bytes()).collect()
    }
}
