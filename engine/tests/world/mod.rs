//! A whole world for the engine in one thread: modelled disks that lose what was not flushed,
//! clients that write versions, an oracle that knows what may be read. All from one seed.

#![allow(dead_code, reason = "each test file uses its part of the world")]

pub mod buffers;
pub mod disk;
pub mod oracle;

use buffers::Buffers;
use disk::{Disk, Random};
use engine::effect::{
    Effect, Errno, Io, IoId, IoOp, Notice, Request, RequestId, RequestOp, Target, WriteMode,
};
use engine::engine::Engine;
use engine::format::{Geometry, Superblock, VolumeRecord};
use engine::limits::Config;
use engine::memory::Slice;
use engine::recovery::{self, Options, Report};
use engine::units::{Nanos, SectorRange, VolumeId, VolumeIndex};
use oracle::{Oracle, Version};
use std::collections::HashMap;

struct PendingIo {
    io: Io,
    /// What a write carried when it was issued.
    bytes: Vec<u8>,
}

struct Outstanding {
    volume: usize,
    op: RequestOp,
    submitted: u64,
    began: Vec<Vec<Option<Version>>>,
    buffer: Option<Slice>,
}

pub struct Setup {
    pub cache_bytes: usize,
    pub volume_sectors: Vec<u64>,
    pub modes: Vec<WriteMode>,
    pub seed: u64,
}

/// `WATCH=volume:sector` prints what happens to one sector.
fn watched() -> Option<(usize, u64)> {
    let text = std::env::var("WATCH").ok()?;
    let (volume, sector) = text.split_once(':')?;
    Some((volume.parse().ok()?, sector.parse().ok()?))
}

pub struct World {
    watch: Option<(usize, u64)>,
    pub engine: Option<Engine>,
    pub memory: Buffers,
    pub cache: Disk,
    pub origins: Vec<Disk>,
    pub oracles: Vec<Oracle>,
    pub random: Random,
    pub modes: Vec<WriteMode>,
    sizes: Vec<u64>,
    now: u64,
    pending: Vec<PendingIo>,
    outstanding: HashMap<u64, Outstanding>,
    next_request: u64,
    next_version: Version,
    pub last_reply: Option<Result<(), Errno>>,
    pub notices: Vec<Notice>,
    pub reports: Vec<Report>,
    pub wraps: u64,
    pub destaged: u64,
    pub tolerates_errors: bool,
    pub config_change: fn(&mut Config),
}

impl World {
    pub fn new(options: Setup) -> World {
        let Setup { cache_bytes, volume_sectors, modes, seed } = options;
        let mut cache = Disk::new(cache_bytes);
        let geometry = Geometry::choose(cache_bytes as u64).expect("a cache of a size that works");
        let mut superblock = Superblock {
            set_id: [7; 16],
            update: 1,
            session: 1,
            cut_sequence: 0,
            base_sequence: 1,
            clean_stop: true,
            cache_bytes: cache_bytes as u64,
            geometry,
            profile: "forebay".into(),
            next_volume_id: 1 + volume_sectors.len() as u32,
            volumes: Default::default(),
        };
        for (at, (&sectors, &mode)) in volume_sectors.iter().zip(&modes).enumerate() {
            superblock.volumes[at] = Some(VolumeRecord {
                id: VolumeId(1 + at as u32),
                name: format!("v{at}"),
                origin: format!("mem:{at}"),
                identity: String::new(),
                size_sectors: sectors,
                sector_bytes: 512,
                mode,
                clean_floor_sequence: 0,
                fingerprint: Default::default(),
            });
        }
        recovery::write_superblock(&mut cache, &superblock).unwrap();
        let mut origins = Vec::new();
        let mut oracles = Vec::new();
        for &sectors in &volume_sectors {
            let mut origin = Disk::new(sectors as usize * 512);
            for sector in 0..sectors as usize {
                fill(&mut origin.bytes_mut()[sector * 512..][..512], first_version(sector));
            }
            let all = origin.bytes().to_vec();
            origin.write_at(0, &all);
            origin.flush_all();
            origins.push(origin);
            oracles.push(Oracle::new((0..sectors as usize).map(first_version)));
        }
        let mut world = World {
            watch: watched(),
            engine: None,
            memory: Buffers::default(),
            cache,
            origins,
            oracles,
            random: Random::new(seed),
            modes,
            sizes: volume_sectors,
            now: 0,
            pending: Vec::new(),
            outstanding: HashMap::new(),
            next_request: 1,
            next_version: 1,
            last_reply: None,
            notices: Vec::new(),
            reports: Vec::new(),
            wraps: 0,
            destaged: 0,
            tolerates_errors: false,
            config_change: |_| (),
        };
        world.open();
        world
    }

    /// Recovers and starts an engine.
    pub fn open(&mut self) {
        assert!(self.engine.is_none());
        let options = Options { index_budget_bytes: 64 << 20, repair: false, mutations: Default::default() };
        let opened = recovery::open(&mut self.cache, options).expect("a cache of ours opens");
        self.reports.push(opened.report);
        let geometry = opened.superblock.geometry;
        let mut config = Config::for_cache(geometry.segments, geometry.segment_blocks);
        config.origin_can_discard = [self.random.one_in(2); 16];
        (self.config_change)(&mut config);
        self.engine = Some(Engine::new(opened, config));
        self.memory = Buffers::default();
        self.now = 0;
        self.pump();
    }

    fn engine(&mut self) -> (&mut Engine, &mut Buffers) {
        (self.engine.as_mut().expect("an engine runs"), &mut self.memory)
    }

    fn pump(&mut self) {
        loop {
            let (engine, memory) = self.engine();
            let Some(effect) = engine.poll_effect(memory) else { break };
            match effect {
                Effect::Io(io) => {
                    let bytes = match &io.op {
                        IoOp::Write { from, .. } => from
                            .as_slice()
                            .iter()
                            .flat_map(|slice| self.memory.bytes(*slice).to_vec())
                            .collect(),
                        _ => Vec::new(),
                    };
                    self.watch_io(&io, "issued");
                    self.pending.push(PendingIo { io, bytes });
                }
                Effect::Reply { id, result } => self.replied(id, result),
                Effect::Notice(notice) => self.notices.push(notice),
            }
        }
    }

    fn watch(&self, volume: usize, range: Option<SectorRange>, what: &dyn std::fmt::Debug) {
        if let Some((watched, sector)) = self.watch
            && watched == volume
            && range.is_none_or(|range| (range.start..range.end()).contains(&sector))
        {
            println!("{:>12} {what:?}", self.now);
        }
    }

    fn watch_io(&self, io: &Io, what: &str) {
        let Target::Origin(volume) = io.target else { return };
        let (offset, len) = match &io.op {
            IoOp::Read { offset_bytes, into } => (*offset_bytes, into.len_bytes()),
            IoOp::Write { offset_bytes, from } => (*offset_bytes, from.len_bytes()),
            IoOp::Discard { offset_bytes, len_bytes } | IoOp::WriteZeroes { offset_bytes, len_bytes } => {
                (*offset_bytes, *len_bytes)
            }
            _ => return self.watch(volume.at(), None, &(what, &io.op)),
        };
        let range = SectorRange { start: offset / 512, sectors: len / 512 };
        self.watch(volume.at(), Some(range), &(what, &io.op));
    }

    fn disk(&mut self, target: Target) -> &mut Disk {
        match target {
            Target::Cache => &mut self.cache,
            Target::Origin(volume) => &mut self.origins[volume.at()],
            Target::State => unreachable!("notes are not on a disk"),
        }
    }

    fn carry_out(&mut self, at: usize) -> (IoId, Result<(), Errno>) {
        let PendingIo { io, bytes } = self.pending.swap_remove(at);
        self.watch_io(&io, "done");
        if io.target == Target::State {
            return (io.id, Ok(()));
        }
        let result = match io.op {
            IoOp::Read { offset_bytes, into } => {
                let disk = self.disk(io.target);
                let len = into.len_bytes() as usize;
                match disk.fail_reads {
                    Some(errno) => Err(errno),
                    None => {
                        let bytes = disk.bytes()[offset_bytes as usize..][..len].to_vec();
                        let mut rest = &bytes[..];
                        for slice in into.as_slice() {
                            let (now, later) = rest.split_at(slice.len_bytes as usize);
                            self.memory.bytes_mut(*slice).copy_from_slice(now);
                            rest = later;
                        }
                        Ok(())
                    }
                }
            }
            IoOp::Write { offset_bytes, from } => {
                let now: Vec<u8> =
                    from.as_slice().iter().flat_map(|slice| self.memory.bytes(*slice).to_vec()).collect();
                assert!(now == bytes, "the bytes of a write under way do not change");
                let disk = self.disk(io.target);
                match disk.fail_writes {
                    Some(errno) => Err(errno),
                    None => {
                        disk.write_at(offset_bytes as usize, &bytes);
                        Ok(())
                    }
                }
            }
            IoOp::Flush => {
                let disk = self.disk(io.target);
                match disk.fail_flushes {
                    Some(errno) => Err(errno),
                    None => {
                        disk.flush_all();
                        Ok(())
                    }
                }
            }
            IoOp::WriteZeroes { offset_bytes, len_bytes } | IoOp::Discard { offset_bytes, len_bytes } => {
                let disk = self.disk(io.target);
                match disk.fail_writes {
                    Some(errno) => Err(errno),
                    None => {
                        disk.write_at(offset_bytes as usize, &vec![0; len_bytes as usize]);
                        Ok(())
                    }
                }
            }
            IoOp::Abandon(_) => Ok(()),
        };
        (io.id, result)
    }

    /// Completes one operation, any of those under way. False if there is none.
    pub fn complete_one(&mut self) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        // A flush covers the writes completed before it was issued; completing others first
        // makes it cover more, which a disk may do.
        let at = self.random.below(self.pending.len() as u64) as usize;
        let (id, result) = self.carry_out(at);
        self.now += self.random.below(200_000);
        let now = Nanos(self.now);
        let (engine, memory) = self.engine();
        engine.complete(now, id, result, memory);
        self.pump();
        true
    }

    /// Lets time pass until the engine's deadline.
    pub fn pass_time(&mut self) {
        let Some(deadline) = self.engine.as_ref().and_then(Engine::deadline) else { return };
        self.now = self.now.max(deadline.0);
        let now = Nanos(self.now);
        let (engine, memory) = self.engine();
        engine.advance(now, memory);
        self.pump();
    }

    fn replied(&mut self, id: RequestId, result: Result<(), Errno>) {
        let outstanding = self.outstanding.remove(&id.0).expect("a request is answered once");
        self.last_reply = Some(result);
        self.watch(
            outstanding.volume,
            range_of(outstanding.op),
            &("replied", outstanding.op, outstanding.submitted, result),
        );
        if result.is_err()
            && !self.tolerates_errors
            && !matches!(outstanding.op, RequestOp::CancelDrain | RequestOp::Drain | RequestOp::Detach)
        {
            panic!("request {:?} failed: {result:?}", outstanding.op);
        }
        let oracle = &mut self.oracles[outstanding.volume];
        if result.is_ok() {
            match outstanding.op {
                RequestOp::Read { range, .. } => {
                    let slice = outstanding.buffer.expect("a read has a buffer");
                    let found = versions(self.memory.bytes(slice));
                    if let Err(what) = oracle.read(range.start, &outstanding.began, &found) {
                        panic!("volume {}: {what}", outstanding.volume);
                    }
                }
                RequestOp::Write { range, fua, .. }
                | RequestOp::Discard { range, fua }
                | RequestOp::WriteZeroes { range, fua } => {
                    oracle.acknowledge(range.start, range.sectors, outstanding.submitted, fua);
                }
                RequestOp::Flush => oracle.flushed(outstanding.submitted),
                _ => (),
            }
        }
        if let Some(slice) = outstanding.buffer {
            use engine::memory::Memory;
            self.memory.release(slice.buffer);
        }
    }

    /// Lets everything under way end and time pass.
    pub fn let_pass(&mut self, ns: u64) {
        let until = self.now + ns;
        loop {
            while self.complete_one() {}
            match self.engine.as_ref().and_then(Engine::deadline) {
                Some(deadline) if deadline.0 < until => self.pass_time(),
                _ => break,
            }
        }
        self.now = self.now.max(until);
        self.pass_time();
    }

    /// The time in the world, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Submits an operation and returns.
    pub fn submit(&mut self, volume: usize, op: RequestOp) {
        use engine::memory::Memory;
        let id = self.next_request;
        self.next_request += 1;
        let mut began = Vec::new();
        let mut buffer = None;
        let submitted = match op {
            RequestOp::Read { range, into } => {
                began = self.oracles[volume].read_begins(range.start, range.sectors);
                self.memory.retain(into.buffer);
                buffer = Some(into);
                self.oracles[volume].time()
            }
            RequestOp::Write { range, from, .. } => {
                let written: Vec<_> = versions(self.memory.bytes(from)).into_iter().map(Some).collect();
                self.oracles[volume].submit(range.start, &written)
            }
            RequestOp::WriteZeroes { range, .. } => {
                self.oracles[volume].submit(range.start, &vec![Some(0); range.sectors as usize])
            }
            RequestOp::Discard { range, .. } => {
                self.oracles[volume].submit(range.start, &vec![None; range.sectors as usize])
            }
            _ => self.oracles[volume].time(),
        };
        self.watch(volume, range_of(op), &("submit", op, submitted));
        self.outstanding.insert(id, Outstanding { volume, op, submitted, began, buffer });
        let request = Request { id: RequestId(id), volume: VolumeIndex(volume as u8), op };
        let now = Nanos(self.now);
        let (engine, memory) = self.engine();
        engine.submit(now, request, memory).expect("the table has room");
        self.pump();
    }

    pub fn write(&mut self, volume: usize, range: SectorRange, fua: bool) {
        let mut bytes = vec![0; range.sectors as usize * 512];
        for sector in bytes.chunks_mut(512) {
            self.next_version += 1;
            fill(sector, self.next_version);
        }
        let from = self.memory.of_bytes(bytes);
        self.submit(volume, RequestOp::Write { range, from, fua });
    }

    pub fn read(&mut self, volume: usize, range: SectorRange) {
        let into = self.memory.of_bytes(vec![0xee; range.sectors as usize * 512]);
        self.submit(volume, RequestOp::Read { range, into });
    }

    /// A random range, mostly small, mostly in a hot region.
    pub fn random_range(&mut self, volume: usize, sectors_max: u64) -> SectorRange {
        let size = self.sizes[volume];
        let region = if self.random.one_in(3) { size } else { size / 8 };
        let is_aligned = !self.random.one_in(3);
        let unit = if is_aligned { 8 } else { 1 };
        let limit = if self.random.one_in(4) { sectors_max } else { 32 };
        let sectors = (1 + self.random.below(limit.min(sectors_max) / unit)) * unit;
        let start = self.random.below(region.saturating_sub(sectors).max(1)) / unit * unit;
        SectorRange { start, sectors: sectors.min(size - start) }
    }

    /// Submits a random operation.
    pub fn submit_random(&mut self) {
        let volume = self.random.below(self.sizes.len() as u64) as usize;
        let may_write = self.modes[volume] != WriteMode::Readonly;
        let fua = self.random.one_in(8);
        match self.random.below(20) {
            0..=8 if may_write => {
                let range = self.random_range(volume, 512);
                self.write(volume, range, fua);
            }
            0..=15 => {
                let range = self.random_range(volume, 512);
                self.read(volume, range);
            }
            16 => self.submit(volume, RequestOp::Flush),
            17 if may_write => {
                let range = self.random_range(volume, 4096);
                self.submit(volume, RequestOp::Discard { range, fua });
            }
            18 if may_write => {
                let range = self.random_range(volume, 4096);
                self.submit(volume, RequestOp::WriteZeroes { range, fua });
            }
            _ => self.submit(volume, RequestOp::Flush),
        }
    }

    /// Runs `steps` steps with up to `depth` requests under way.
    pub fn run(&mut self, steps: u64, depth: usize) {
        for _ in 0..steps {
            match self.random.below(10) {
                0..=3 if self.outstanding.len() < depth => self.submit_random(),
                9 => self.pass_time(),
                _ => {
                    self.complete_one();
                }
            }
        }
    }

    /// Lets everything under way end.
    pub fn finish(&mut self) {
        let mut steps = 0u64;
        while !self.outstanding.is_empty() {
            steps += 1;
            if steps == 100_000 {
                let ops: Vec<_> = self.outstanding.values().map(|outstanding| outstanding.op).collect();
                let pending: Vec<_> = self.pending.iter().map(|pending| &pending.io).collect();
                panic!("never answered: {ops:?}\nunder way: {pending:?}\n{:?}", self.engine);
            }
            if !self.complete_one() {
                self.pass_time();
            }
        }
    }

    fn note_counters(&mut self) {
        if let Some(engine) = &self.engine {
            let status = engine.status();
            self.wraps += status.cache.wraps;
            self.destaged += status.volumes.iter().map(|volume| volume.counters.destaged_blocks).sum::<u64>();
        }
    }

    /// Ends the engine as a crash does; with `power`, the disks lose what was not flushed.
    pub fn crash(&mut self, power: bool) {
        for volume in 0..self.sizes.len() {
            self.watch(volume, None, &("crash", power));
        }
        self.note_counters();
        // Any subset of the writes in flight lands.
        for PendingIo { io, bytes } in std::mem::take(&mut self.pending) {
            if self.random.one_in(2) {
                continue;
            }
            match io.op {
                IoOp::Write { offset_bytes, .. } => {
                    self.disk(io.target).write_at(offset_bytes as usize, &bytes)
                }
                IoOp::WriteZeroes { offset_bytes, len_bytes } | IoOp::Discard { offset_bytes, len_bytes } => {
                    self.disk(io.target).write_at(offset_bytes as usize, &vec![0; len_bytes as usize]);
                }
                _ => (),
            }
        }
        self.engine = None;
        self.outstanding.clear();
        if power {
            let World { cache, origins, random, .. } = self;
            cache.cut_power(random);
            for origin in origins {
                origin.cut_power(random);
            }
        }
        for oracle in &mut self.oracles {
            if power { oracle.power_cut() } else { oracle.process_crash() }
        }
    }

    /// Reads everything; what is found stays what it is.
    pub fn verify_all(&mut self, pins: bool, is_after_cut: bool) {
        for volume in 0..self.sizes.len() {
            let mut start = 0;
            while start < self.sizes[volume] {
                let sectors = (self.sizes[volume] - start).min(512);
                let into = self.memory.of_bytes(vec![0xee; sectors as usize * 512]);
                use engine::memory::Memory;
                self.memory.retain(into.buffer);
                self.submit(volume, RequestOp::Read { range: SectorRange { start, sectors }, into });
                self.finish();
                let found = versions(self.memory.bytes(into));
                self.memory.release(into.buffer);
                if pins {
                    self.oracles[volume].pin(start, &found, is_after_cut);
                }
                start += sectors;
            }
        }
    }

    /// Asks something of the operator's and waits for the answer.
    pub fn ask(&mut self, volume: usize, op: RequestOp) -> Result<(), Errno> {
        self.submit(volume, op);
        self.finish();
        self.last_reply.expect("it was answered")
    }

    /// Stops cleanly.
    pub fn stop(&mut self) {
        self.finish();
        self.note_counters();
        self.ask(0, RequestOp::Stop).expect("a stop succeeds");
        let left: Vec<_> = self.pending.iter().map(|pending| &pending.io).collect();
        assert!(left.is_empty(), "under way after a stop: {left:?}");
        assert_eq!(self.memory.live(), 0, "no buffer is left after a stop");
        self.engine = None;
    }

    pub fn flush(&mut self, volume: usize) {
        self.ask(volume, RequestOp::Flush).expect("a flush succeeds");
    }
}

fn range_of(op: RequestOp) -> Option<SectorRange> {
    match op {
        RequestOp::Read { range, .. }
        | RequestOp::Write { range, .. }
        | RequestOp::Discard { range, .. }
        | RequestOp::WriteZeroes { range, .. } => Some(range),
        _ => None,
    }
}

fn first_version(sector: usize) -> Version {
    1_000_000_000 + sector as u64
}

pub fn fill(sector: &mut [u8], version: Version) {
    for word in sector.chunks_mut(8) {
        word.copy_from_slice(&version.to_le_bytes());
    }
}

pub fn versions(bytes: &[u8]) -> Vec<Version> {
    bytes
        .chunks(512)
        .map(|sector| {
            let version = u64::from_le_bytes(sector[..8].try_into().expect("eight bytes"));
            assert!(sector.chunks(8).all(|word| word == &sector[..8]), "a torn sector: {sector:?}");
            version
        })
        .collect()
}
