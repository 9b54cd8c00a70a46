//! Caches whose bytes somebody forged, with checksums that are right (hazard 15): a start refuses them, or what runs over them
//! lives on. What it reads and writes is nobody's.

use crate::rig::{Buffers, Plain};
use forebay_engine::composition::Composition;
use forebay_engine::effect::{Effect, Errno, Io, IoOp, Request, RequestId, RequestOp, Target};
use forebay_engine::engine::Engine;
use forebay_engine::format::{CheckpointArea, Geometry, KeyLayout, Layout, Side, Superblock, VolumeRecord};
use forebay_engine::memory::{Memory, Purpose, Slice};
use forebay_engine::mutation::Mutations;
use forebay_engine::prng::Prng;
use forebay_engine::recovery::{self, Options};
use forebay_engine::units::{
    BLOCK_BYTES, Nanos, SECTORS_PER_BLOCK, SectorRange, VolumeId, VolumeIndex, crc32c,
};
use std::collections::VecDeque;

const BLOCK: usize = BLOCK_BYTES as usize;
const CACHE_BYTES: u64 = 33 << 20;
const ORIGIN_BLOCKS: u64 = 8192;
/// Requests that send a ring of 16 MiB round.
const REQUESTS: u32 = 2000;

/// A cache and its origin while nothing runs over them.
struct Devices {
    layout: Layout,
    cache: Vec<u8>,
    origin: Vec<u8>,
}

/// A cache that runs.
struct Running<'d> {
    engine: Engine,
    devices: &'d mut Devices,
    buffers: Buffers,
    now: Nanos,
    pending: VecDeque<Io>,
    requests: u64,
}

fn composition(settings: &[(&str, &str)]) -> Composition {
    let mut composition = Composition::plain_log();
    for (name, value) in settings {
        composition.set(name, value).unwrap_or_else(|error| panic!("{error}"));
    }
    composition
}

impl Devices {
    /// A cache that was in use, and whose process died.
    fn used(composition: &Composition, layout: Layout) -> Devices {
        let volume = VolumeRecord::new(VolumeId(1), "v", "o", ORIGIN_BLOCKS * SECTORS_PER_BLOCK);
        let superblock = Superblock {
            profile: "test".into(),
            composition: composition.text(),
            ..Superblock::of_new_cache([7; 16], CACHE_BYTES, layout)
        }
        .with_volumes([volume]);
        let mut devices = Devices {
            layout,
            cache: vec![0; CACHE_BYTES as usize],
            origin: vec![0; ORIGIN_BLOCKS as usize * BLOCK],
        };
        recovery::write_superblock(&mut Plain(&mut devices.cache), &superblock, Mutations::NONE)
            .expect("memory takes everything");
        devices.run();
        devices
    }

    /// Runs over the devices for some rounds of the ring.
    fn run(&mut self) {
        let options = Options { index_budget_bytes: 4 << 20, repair: false, mutations: Mutations::NONE };
        let opened =
            recovery::open(&mut Plain(&mut self.cache), options).unwrap_or_else(|error| panic!("{error}"));
        let mut config =
            Composition::of(&opened.superblock).expect("it was just read").config(&opened.superblock.layout);
        config.checkpoint_interval_blocks = 300;
        let mut running = Running {
            engine: Engine::new(opened, config),
            devices: self,
            buffers: Buffers::default(),
            now: Nanos(0),
            pending: VecDeque::new(),
            requests: 0,
        };
        running.work();
    }

    fn geometry(&self) -> Geometry {
        match self.layout {
            Layout::Log(geometry) => geometry,
            Layout::Keys(keys) | Layout::Frames(keys) => keys.geometry,
            Layout::Slots(_) => panic!("there is a ring"),
        }
    }

    /// Forges the body of each summary. Answers how many there are.
    fn forge_summaries(&mut self, forge: impl Fn(&mut [u8])) -> u32 {
        let geometry = self.geometry();
        let mut forged = 0;
        for segment in 0..geometry.segments {
            let end = geometry.offset_bytes(segment, geometry.segment_blocks - 1) as usize;
            if !self.cache[end..].starts_with(b"FBAYSUMM") {
                continue;
            }
            let first = end - u32_at(&self.cache, end + 92) as usize * BLOCK;
            let body = first..first + u32_at(&self.cache, end + 96) as usize;
            forge(&mut self.cache[body.clone()]);
            let checksum = crc32c(&self.cache[body]);
            self.cache[end + 100..end + 104].copy_from_slice(&checksum.to_le_bytes());
            seal(&mut self.cache[end..end + BLOCK]);
            forged += 1;
        }
        forged
    }

    /// Forges all keys of summaries: those of four buckets, or groups of frames, lead to the beginning of one.
    fn forge_keys(&mut self) {
        let (Layout::Keys(layout) | Layout::Frames(layout)) = self.layout else { panic!("there are keys") };
        let forged = self.forge_summaries(|body| {
            for entry in entries(body) {
                let place = u32_at(body, entry + 24);
                if is_key(body[entry]) {
                    let place = place - (place - layout.ring_blocks()) % (4 * layout.bucket_blocks);
                    body[entry + 24..entry + 28].copy_from_slice(&place.to_le_bytes());
                }
            }
        });
        assert!(forged > 10, "{forged} summaries");
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Makes the checksum of a structure right.
fn seal(bytes: &mut [u8]) {
    bytes[8..12].fill(0);
    let checksum = crc32c(bytes);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
}

/// Where the records of a summary begin in its body.
fn records(body: &[u8]) -> Vec<usize> {
    let length = |at: usize| 24 + u32_at(body, at + 16) as usize * 32 + u32_at(body, at + 20) as usize * 4;
    let next = |at: &usize| Some(at + length(*at)).filter(|next| *next < body.len());
    std::iter::successors(Some(0), next).collect()
}

/// Where the entries of a summary begin in its body.
fn entries(body: &[u8]) -> Vec<usize> {
    let of_record = |at: usize| (0..u32_at(body, at + 16) as usize).map(move |entry| at + 24 + entry * 32);
    records(body).into_iter().flat_map(of_record).collect()
}

fn is_key(kind: u8) -> bool {
    [8, 9, 11, 12].contains(&kind)
}

impl Running<'_> {
    fn work(&mut self) {
        let mut prng = Prng::new(5);
        for _ in 0..REQUESTS {
            let block = u64::from(prng.below(ORIGIN_BLOCKS as u32 - 64));
            let blocks = u64::from(1 + prng.below(16));
            let range = SectorRange { start: block * SECTORS_PER_BLOCK, sectors: blocks * SECTORS_PER_BLOCK };
            let op = match prng.below(16) {
                0..=7 => RequestOp::Write { range, from: self.slice(blocks), fua: false },
                8..=13 => RequestOp::Read { range, into: self.slice(blocks) },
                14 => RequestOp::Flush,
                _ => RequestOp::Discard { range, fua: false },
            };
            self.requests += 1;
            let request = Request { id: RequestId(self.requests), volume: VolumeIndex(0), op };
            self.engine.submit(self.now, request, &mut self.buffers).expect("there is room");
            self.run_devices();
            self.pass_ms(u64::from(prng.below(30)));
        }
        self.pass_ms(5_000);
    }

    fn slice(&mut self, blocks: u64) -> Slice {
        let len_bytes = (blocks * BLOCK_BYTES) as u32;
        let buffer = self.buffers.allocate(Purpose::Payload, len_bytes).expect("there is memory");
        Slice { buffer, offset_bytes: 0, len_bytes }
    }

    fn pass_ms(&mut self, ms: u64) {
        let end = self.now.plus(ms * Nanos::MILLISECOND);
        while let Some(deadline) = self.engine.deadline().filter(|&deadline| deadline < end) {
            self.now = self.now.max(deadline);
            self.engine.advance(self.now, &mut self.buffers);
            self.run_devices();
        }
        self.now = end;
        self.engine.advance(self.now, &mut self.buffers);
        self.run_devices();
    }

    fn run_devices(&mut self) {
        loop {
            while let Some(effect) = self.engine.poll_effect(&mut self.buffers) {
                if let Effect::Io(io) = effect {
                    self.pending.push_back(io);
                }
            }
            let Some(io) = self.pending.pop_front() else { return };
            let result = self.carry_out(&io);
            self.engine.complete(self.now, io.id, result, &mut self.buffers);
        }
    }

    fn carry_out(&mut self, io: &Io) -> Result<(), Errno> {
        let device = match io.target {
            Target::Cache => &mut self.devices.cache,
            Target::Origin(_) => &mut self.devices.origin,
            Target::Mirror | Target::State => return Ok(()),
        };
        let (offset_bytes, slices) = match &io.op {
            IoOp::Read { offset_bytes, into: slices } | IoOp::Write { offset_bytes, from: slices } => {
                (*offset_bytes, slices)
            }
            _ => return Ok(()),
        };
        let mut at = offset_bytes as usize;
        for slice in slices.as_slice() {
            let bytes = &mut device[at..at + slice.len_bytes as usize];
            match &io.op {
                IoOp::Read { .. } => self.buffers.bytes_mut(*slice).copy_from_slice(bytes),
                _ => bytes.copy_from_slice(self.buffers.bytes(*slice)),
            }
            at += slice.len_bytes as usize;
        }
        Ok(())
    }
}

/// A log with room for checkpoints behind its ring.
fn used_log() -> Devices {
    let devices =
        Devices::used(&Composition::forebay(), Layout::Log(Geometry { segment_blocks: 64, segments: 64 }));
    let end = devices.geometry().offset_bytes(64, 0) as usize;
    assert!(devices.cache[end..].chunks(BLOCK).any(|block| block.starts_with(b"FBAYCKPT")), "it was written");
    devices
}

/// A start that loads a checkpoint does not look at the summaries before it; they are read when their segments are reused.
#[test]
fn summaries_that_no_start_has_read_may_say_anything() {
    let mut devices = used_log();
    let forged = devices.forge_summaries(|body| {
        let last = records(body).pop().expect("a summary has a batch");
        let payload_block = u32_at(body, last + 12) + 4096;
        body[last + 12..last + 16].copy_from_slice(&payload_block.to_le_bytes());
    });
    assert!(forged > 10, "{forged} summaries");
    devices.run();
    let mut devices = used_log();
    devices.forge_summaries(|body| {
        // All blocks are one and the same.
        for entry in entries(body) {
            body[entry + 8..entry + 16].fill(0);
        }
    });
    devices.run();
}

#[test]
fn rows_of_a_checkpoint_may_lead_anywhere() {
    let mut devices = used_log();
    let area = CheckpointArea::of(&devices.geometry(), CACHE_BYTES).expect("there is room for checkpoints");
    let mut forged = 0;
    for side in Side::BOTH {
        let first = area.chunk_at(side, 0) as usize;
        for chunk in devices.cache[first..].chunks_exact_mut(area.chunk_bytes() as usize) {
            if !chunk.starts_with(b"FBAYCHNK") {
                break;
            }
            let singles = u32_at(chunk, 52) as usize;
            for row in chunk.rchunks_exact_mut(16).take(singles) {
                // Its neighbour, which some other block has, or none.
                row[8] ^= 1;
            }
            seal(chunk);
            forged += singles;
        }
    }
    assert!(forged > 10, "{forged} rows");
    devices.run();
}

#[test]
fn keys_may_lead_to_one_bucket() {
    let buckets = composition(&[
        ("replacement", "bucket-lru"),
        ("bucket_sectors", "128"),
        ("writes", "extents"),
        ("persistence", "journal"),
    ]);
    let layout = Layout::Keys(KeyLayout::choose(CACHE_BYTES, 128, 200).expect("there is room"));
    let mut devices = Devices::used(&buckets, layout);
    devices.forge_keys();
    devices.run();
}

#[test]
fn keys_may_lead_to_one_frame() {
    let frames = composition(&[("replacement", "forebay"), ("persistence", "frames")]);
    let mut devices = Devices::used(&frames, frames.divide(CACHE_BYTES).expect("there is room"));
    devices.forge_keys();
    devices.run();
}
