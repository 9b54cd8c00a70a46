//! The driver of a long run: one loop round the engine's five calls.

use super::buffers::Buffers;
use super::disk::Disk;
use super::ledger::{Change, Ledger, Mismatch};
use super::recipe::Recipe;
use super::statistics::Statistics;
use super::tag;
use super::workload::{Action, Answer, Demand, Idle, Next, Workload};
use engine::composition::Composition;
use engine::composition::stored::DivideError;
use engine::effect::{Effect, Errno, Io, Request, RequestId, RequestOp, Target, WriteMode};
use engine::engine::Engine;
use engine::format::{KeyLayout, Layout};
use engine::limits::{Config, RANGE_BYTES_MAX, REQUEST_BYTES_MAX};
use engine::memory::{BufferId, Memory, Slice};
use engine::status::Status;
use engine::units::{BLOCK_BYTES, Nanos, SECTOR_BYTES, SECTORS_PER_BLOCK, SectorRange, VolumeIndex};
use slab::Slab;
use std::collections::VecDeque;

/// What is kept of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Nothing; every checksum is 0. The least memory, and the fastest.
    Nothing,
    /// A tag for each block that was written, and a check of what is read: some 50 bytes for each block.
    Tags,
}

/// A volume of a long run.
pub struct VolumeSetup {
    /// Its origin. Its size is rounded down to whole blocks.
    pub origin: Disk,
    /// How its writes are treated.
    pub mode: WriteMode,
}

/// What a long run begins with.
pub struct Setup {
    /// The cache device, new.
    pub cache: Disk,
    /// The volumes, 1 to 16.
    pub volumes: Vec<VolumeSetup>,
    /// What is kept of payload.
    pub contents: Contents,
}

/// When [`LongRun::run`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When the workload has ended and all is answered.
    End,
    /// After so many answers, or at the end. Requests may be under way then: go on with the same workload.
    Answers(u64),
    /// At this time, or at the end, in the same way.
    Time(Nanos),
}

/// What must not happen.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The cache device is too small.
    #[error(transparent)]
    Geometry(#[from] DivideError),
    /// A read returned something else than what was written last.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// Requests are under way, and nothing will ever happen again.
    #[error("{requests} requests are never answered")]
    Stuck {
        /// How many.
        requests: usize,
    },
}

/// What answers wait for besides the devices: a published system's own time, as far as no device explains it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// For each read.
    pub read: OwnTime,
    /// For each write.
    pub write: OwnTime,
}

/// A system's own time for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnTime {
    /// Whatever its length.
    pub request_ns: u64,
    /// For each 4 KiB of it.
    pub block_ns: u64,
}

impl OwnTime {
    fn of(&self, range: SectorRange) -> u64 {
        self.request_ns + self.block_ns * range.sectors.div_ceil(SECTORS_PER_BLOCK)
    }
}

/// A request as it came.
struct Asked {
    demand: Demand,
    /// Pieces of it that are not answered.
    pieces: u32,
    error: Option<Errno>,
}

/// A request as the engine got it: a piece that is not too long for it.
struct Piece {
    asked: u32,
    range: SectorRange,
    /// The buffer of a read whose content will be looked at: this reference is ours.
    buffer: Option<BufferId>,
    /// When it began, by the ledger's time.
    began: u64,
    /// What a change puts there.
    change: Option<Change>,
}

/// The engine in virtual time.
pub struct LongRun {
    now: Nanos,
    recipe: Recipe,
    engine: Engine,
    buffers: Buffers,
    cache: Disk,
    origins: Vec<Disk>,
    operations: Slab<Io>,
    /// Clients asked something at this instant: what is issued for it is plugged.
    is_plugged: bool,
    asked: Slab<Asked>,
    pieces: Slab<Piece>,
    /// Requests that the engine had no room for.
    backlog: VecDeque<Request>,
    ledger: Option<Ledger>,
    version: u64,
    overhead: Overhead,
    /// Answers that wait for the overhead of their kind, in the order in which they are due.
    late: [VecDeque<Answer>; 2],
    statistics: Statistics,
    /// What the devices had done when measuring began.
    before: Statistics,
    digest: u64,
}

impl LongRun {
    /// A new cache with new volumes, and the engine opened on it: our own kind of cache. `configure` may change
    /// the engine's bounds.
    ///
    /// # Errors
    /// [`Trouble::Geometry`] if the cache is too small.
    ///
    /// # Panics
    /// If there are no volumes or too many, or an origin without a whole block.
    pub fn new(setup: Setup, configure: impl FnOnce(&mut Config)) -> Result<LongRun, Trouble> {
        LongRun::composed(setup, &Composition::forebay(), configure)
    }

    /// The same with a cache of any kind that the engine carries out.
    ///
    /// # Errors
    /// [`Trouble::Geometry`] if the cache is too small.
    ///
    /// # Panics
    /// As [`LongRun::new`]; and if [`Composition::lack`] has something to say.
    pub fn composed(
        setup: Setup,
        composition: &Composition,
        configure: impl FnOnce(&mut Config),
    ) -> Result<LongRun, Trouble> {
        let Setup { mut cache, volumes, contents } = setup;
        let layout = composition.divide(cache.size_bytes())?;
        let mut config = composition.config(&layout);
        let recipe_volumes: Vec<_> =
            volumes.iter().map(|volume| (volume.origin.size_bytes() / BLOCK_BYTES, volume.mode)).collect();
        let blocks: Vec<u64> = recipe_volumes.iter().map(|(blocks, _)| *blocks).collect();
        let mut origins: Vec<Disk> = volumes.into_iter().map(|volume| volume.origin).collect();
        for (can_discard, origin) in config.origin_can_discard.iter_mut().zip(&origins) {
            *can_discard = origin.can_discard();
        }
        configure(&mut config);
        match layout {
            Layout::Log(geometry) | Layout::Keys(KeyLayout { geometry, .. }) => {
                cache.keep_summaries(geometry)
            }
            Layout::Slots(_) => (),
        }
        if contents == Contents::Tags {
            cache.keep_tags(None);
            for (at, origin) in (0..).zip(&mut origins) {
                origin.keep_tags(Some(VolumeIndex(at)));
            }
        }
        let recipe = Recipe { layout, composition: *composition, config, volumes: recipe_volumes };
        let statistics = Statistics::new(origins.len());
        Ok(LongRun {
            now: Nanos(0),
            engine: recipe.open(cache.size_bytes()),
            recipe,
            buffers: Buffers::new(contents == Contents::Tags),
            cache,
            origins,
            operations: Slab::with_capacity(1024),
            is_plugged: false,
            asked: Slab::with_capacity(1024),
            pieces: Slab::with_capacity(1024),
            backlog: VecDeque::new(),
            ledger: (contents == Contents::Tags).then(|| Ledger::new(blocks.into_iter())),
            version: 0,
            overhead: Overhead::default(),
            late: Default::default(),
            before: statistics.clone(),
            statistics,
            digest: 0,
        })
    }

    /// Makes all answers from now on wait besides.
    pub fn set_overhead(&mut self, overhead: Overhead) {
        self.overhead = overhead;
    }

    /// Writes home what is dirty, takes the cache away and puts a new, empty one on the same device; time, disks
    /// and their history go on. The engine's counters begin anew.
    ///
    /// # Errors
    /// [`Trouble`]: then the run is over.
    ///
    /// # Panics
    /// If requests are under way.
    pub fn renew_cache(&mut self) -> Result<(), Trouble> {
        assert!(self.asked.is_empty(), "nobody waits for an answer");
        for volume in 0..self.origins.len() as u8 {
            self.ask_to_drain(VolumeIndex(volume));
        }
        self.idle(0)?;
        while !self.operations.is_empty() {
            self.idle(Nanos::MILLISECOND)?;
        }
        self.engine = self.recipe.open(self.cache.size_bytes());
        self.engine.advance(self.now, &mut self.buffers);
        Ok(())
    }

    /// Lets the workload ask, until it ends or until enough is answered. Returns the number of answers.
    ///
    /// # Errors
    /// [`Trouble`]: then the run is over.
    pub fn run<W: Workload + ?Sized>(&mut self, workload: &mut W, until: Until) -> Result<u64, Trouble> {
        let (limit, horizon) = match until {
            Until::End => (u64::MAX, Nanos(u64::MAX)),
            Until::Answers(limit) => (limit, Nanos(u64::MAX)),
            Until::Time(horizon) => (u64::MAX, horizon),
        };
        let mut answers = 0;
        loop {
            let next = self.feed(workload);
            let answered = self.pump(workload)? + self.answer_late(workload);
            answers += answered;
            if answers >= limit {
                return Ok(answers);
            }
            if answered > 0 {
                // Whoever got an answer may ask again before time goes on.
                continue;
            }
            let is_quiet = self.asked.is_empty() && self.late.iter().all(VecDeque::is_empty);
            if next == Next::End && is_quiet || self.now >= horizon {
                return Ok(answers);
            }
            self.pass_time(next, horizon)?;
        }
    }

    /// Lets `elapsed_ns` of virtual time pass in which nobody asks anything.
    ///
    /// # Errors
    /// [`Trouble`]: then the run is over.
    pub fn idle(&mut self, elapsed_ns: u64) -> Result<(), Trouble> {
        self.run(&mut Idle { until: self.now.plus(elapsed_ns) }, Until::End).map(|_| ())
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// What the engine says of itself. Its counters count from the start of the run.
    #[must_use]
    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// Forgets what was measured so far.
    pub fn begin_measuring(&mut self) {
        self.statistics.clear(self.now);
        self.before = self.totals();
    }

    /// What happened since the run, or [`LongRun::begin_measuring`].
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut now = self.totals();
        let Statistics { cache, origins, verified_blocks, unverified_blocks, .. } = &self.before;
        now.cache = now.cache.since(cache);
        for (now, before) in now.origins.iter_mut().zip(origins) {
            *now = now.since(before);
        }
        now.verified_blocks -= verified_blocks;
        now.unverified_blocks -= unverified_blocks;
        now
    }

    /// A number made of every event so far: two runs with the same are the same.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The most memory that buffers had at a time, clients' and the engine's.
    #[must_use]
    pub fn buffer_bytes_max(&self) -> u64 {
        self.buffers.used_bytes_max()
    }

    fn totals(&self) -> Statistics {
        let mut totals = self.statistics.clone();
        totals.now = self.now;
        totals.cache = self.cache.traffic();
        totals.origins = self.origins.iter().map(Disk::traffic).collect();
        if let Some(ledger) = &self.ledger {
            totals.verified_blocks = ledger.verified_blocks;
            totals.unverified_blocks = ledger.unverified_blocks;
        }
        totals
    }

    // ---- time ----------------------------------------------------------------------------

    /// Goes on to whatever comes first, but not past `horizon`, and lets it happen.
    fn pass_time(&mut self, next: Next, horizon: Nanos) -> Result<(), Trouble> {
        self.is_plugged = false;
        self.cache.unplug(self.now);
        self.origins.iter_mut().for_each(|origin| origin.unplug(self.now));
        let mut soonest_ns = self.cache.next_ns().unwrap_or(u64::MAX);
        for origin in &self.origins {
            soonest_ns = soonest_ns.min(origin.next_ns().unwrap_or(u64::MAX));
        }
        let deadline_ns = self.engine.deadline().map_or(u64::MAX, |at| at.0);
        soonest_ns = soonest_ns.min(deadline_ns);
        for answer in self.late.iter().filter_map(VecDeque::front) {
            soonest_ns = soonest_ns.min(answer.answered.0);
        }
        if let Next::At(at) = next {
            assert!(at > self.now, "a workload does not wait for what has come");
            soonest_ns = soonest_ns.min(at.0);
        }
        if soonest_ns == u64::MAX {
            return Err(Trouble::Stuck { requests: self.asked.len() });
        }
        self.now = self.now.max(horizon.min(Nanos(soonest_ns)));
        while let Some(token) = self.cache.poll(self.now) {
            self.finish(token);
        }
        for at in 0..self.origins.len() {
            while let Some(token) = self.origins[at].poll(self.now) {
                self.finish(token);
            }
        }
        if deadline_ns <= self.now.0 {
            self.engine.advance(self.now, &mut self.buffers);
        }
        Ok(())
    }

    /// An operation is done.
    fn finish(&mut self, token: u64) {
        let io = self.operations.remove(token as usize);
        self.note(io.id.0);
        let disk = match io.target {
            Target::Cache => &mut self.cache,
            Target::Origin(volume) => &mut self.origins[volume.at()],
            Target::State => unreachable!("nothing fails, so nothing is given up"),
        };
        let result = disk.settle(&io.op, &mut self.buffers);
        self.engine.complete(self.now, io.id, result, &mut self.buffers);
    }

    fn note(&mut self, what: u64) {
        // One multiplication, so that it costs nothing: this is no protection against malice.
        self.digest = (self.digest.rotate_left(23) ^ self.now.0 ^ what.rotate_left(40))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    // ---- requests ------------------------------------------------------------------------

    /// Takes what the workload asks now.
    fn feed<W: Workload + ?Sized>(&mut self, workload: &mut W) -> Next {
        while let Some(&request) = self.backlog.front() {
            if self.engine.submit(self.now, request, &mut self.buffers).is_err() {
                return Next::OnAnswer;
            }
            self.backlog.pop_front();
        }
        loop {
            match workload.next(self.now) {
                Next::Demand(demand) => {
                    self.ask(demand);
                    if !self.backlog.is_empty() {
                        return Next::OnAnswer;
                    }
                }
                other => return other,
            }
        }
    }

    fn ask(&mut self, demand: Demand) {
        assert!(demand.due <= self.now, "a request is handed over when it is due");
        self.is_plugged = true;
        let asked = self.asked.insert(Asked { demand, pieces: 0, error: None }) as u32;
        let (range, len_bytes_max) = match demand.action {
            Action::Read(range) | Action::Write { range, .. } => (range, u64::from(REQUEST_BYTES_MAX)),
            Action::Discard(range) | Action::WriteZeroes(range) => (range, RANGE_BYTES_MAX),
            Action::Flush => (SectorRange { start: 0, sectors: 0 }, 0),
        };
        assert!(len_bytes_max == 0 || range.sectors > 0, "a range is not empty");
        let mut start = range.start;
        loop {
            // As a door cuts: at block borders, however the range begins.
            let sectors_max = (len_bytes_max / SECTOR_BYTES).saturating_sub(start % SECTORS_PER_BLOCK);
            let sectors = (range.end() - start).min(sectors_max);
            self.ask_piece(asked, &demand, SectorRange { start, sectors });
            start += sectors;
            if start == range.end() {
                break;
            }
        }
    }

    /// Everything that is dirty goes home; the answer counts as a flush's.
    fn ask_to_drain(&mut self, volume: VolumeIndex) {
        let demand = Demand { job: 0, volume, action: Action::Flush, due: self.now };
        let asked = self.asked.insert(Asked { demand, pieces: 1, error: None }) as u32;
        let range = SectorRange { start: 0, sectors: 0 };
        let piece = Piece { asked, range, buffer: None, began: 0, change: None };
        let id = RequestId(self.pieces.insert(piece) as u64);
        let request = Request { id, volume, op: RequestOp::Drain };
        if !self.backlog.is_empty() || self.engine.submit(self.now, request, &mut self.buffers).is_err() {
            self.backlog.push_back(request);
        }
    }

    fn ask_piece(&mut self, asked: u32, demand: &Demand, range: SectorRange) {
        self.asked[asked as usize].pieces += 1;
        let mut piece = Piece { asked, range, buffer: None, began: 0, change: None };
        let len_bytes = (range.sectors * SECTOR_BYTES) as u32;
        let op = match demand.action {
            Action::Read(_) => {
                let buffer = self.buffers.of_client(len_bytes);
                if let Some(ledger) = &mut self.ledger {
                    piece.began = ledger.time();
                    piece.buffer = Some(buffer);
                    self.buffers.retain(buffer);
                }
                RequestOp::Read { range, into: Slice { buffer, offset_bytes: 0, len_bytes } }
            }
            Action::Write { fua, .. } => {
                let buffer = self.buffers.of_client(len_bytes);
                let from = Slice { buffer, offset_bytes: 0, len_bytes };
                self.version += 1;
                piece.change = Some(Change::Write(self.version));
                if self.ledger.is_some() {
                    self.write_tags(from, range);
                }
                RequestOp::Write { range, from, fua }
            }
            Action::Flush => RequestOp::Flush,
            Action::Discard(_) => {
                piece.change = Some(Change::Discard);
                RequestOp::Discard { range, fua: false }
            }
            Action::WriteZeroes(_) => {
                piece.change = Some(Change::Zeroes);
                RequestOp::WriteZeroes { range, fua: false }
            }
        };
        if let (Some(ledger), Some(_)) = (&mut self.ledger, piece.change) {
            ledger.change_begins(demand.volume, range);
        }
        let id = RequestId(self.pieces.insert(piece) as u64);
        let request = Request { id, volume: demand.volume, op };
        if !self.backlog.is_empty() || self.engine.submit(self.now, request, &mut self.buffers).is_err() {
            self.backlog.push_back(request);
        }
    }

    /// Fills the buffer of a write with what it writes.
    fn write_tags(&mut self, from: Slice, range: SectorRange) {
        let is_aligned = range.is_block_aligned();
        for part in tag::parts(0, u64::from(from.len_bytes).next_multiple_of(BLOCK_BYTES)) {
            let block = is_aligned.then(|| range.first_block() + part.block);
            let tag = tag::of_write(self.version, block);
            self.buffers.put(from, part.at_bytes, BLOCK_BYTES as u32, tag);
        }
    }

    /// Carries out what the engine wants; returns how many requests were answered.
    fn pump<W: Workload + ?Sized>(&mut self, workload: &mut W) -> Result<u64, Trouble> {
        let mut answered = 0;
        while let Some(effect) = self.engine.poll_effect(&mut self.buffers) {
            match effect {
                Effect::Io(io) => {
                    let disk = match io.target {
                        Target::Cache => &mut self.cache,
                        Target::Origin(volume) => &mut self.origins[volume.at()],
                        Target::State => unreachable!("nothing fails, so nothing is given up"),
                    };
                    let entry = self.operations.vacant_entry();
                    disk.submit(self.now, entry.key() as u64, &io.op, &self.buffers);
                    if !self.is_plugged {
                        disk.unplug(self.now);
                    }
                    entry.insert(io);
                }
                Effect::Reply { id, result } => {
                    if let Some(answer) = self.replied(id, result)? {
                        answered += self.answer(answer, workload);
                    }
                }
                Effect::Notice(_) => (),
            }
        }
        Ok(answered)
    }

    /// The engine answered a piece: the answer of the whole request, if this was its last.
    fn replied(&mut self, id: RequestId, result: Result<(), Errno>) -> Result<Option<Answer>, Trouble> {
        self.note(id.0 << 1 | u64::from(result.is_err()));
        let piece = self.pieces.remove(id.0 as usize);
        if self.ledger.is_some() {
            self.judge(&piece, result)?;
        }
        let asked = &mut self.asked[piece.asked as usize];
        asked.pieces -= 1;
        asked.error = asked.error.or(result.err());
        if asked.pieces > 0 {
            return Ok(None);
        }
        let Asked { demand, error, .. } = self.asked.remove(piece.asked as usize);
        Ok(Some(Answer { demand, answered: self.now, result: error.map_or(Ok(()), Err) }))
    }

    /// Answers now, or later if its kind has an overhead; returns how many answers that were.
    fn answer<W: Workload + ?Sized>(&mut self, mut answer: Answer, workload: &mut W) -> u64 {
        let (kind, overhead_ns) = match answer.demand.action {
            Action::Read(range) => (0, self.overhead.read.of(range)),
            Action::Write { range, .. } => (1, self.overhead.write.of(range)),
            _ => (0, 0),
        };
        if overhead_ns > 0 {
            answer.answered = self.now.plus(overhead_ns);
            let late = &mut self.late[kind];
            let at = late.partition_point(|other| other.answered <= answer.answered);
            late.insert(at, answer);
            return 0;
        }
        self.statistics.record(&answer);
        workload.answered(&answer);
        1
    }

    /// Answers what has waited long enough.
    fn answer_late<W: Workload + ?Sized>(&mut self, workload: &mut W) -> u64 {
        let mut answered = 0;
        for kind in 0..self.late.len() {
            while self.late[kind].front().is_some_and(|answer| answer.answered <= self.now) {
                let Some(answer) = self.late[kind].pop_front() else { break };
                self.statistics.record(&answer);
                workload.answered(&answer);
                answered += 1;
            }
        }
        answered
    }

    fn judge(&mut self, piece: &Piece, result: Result<(), Errno>) -> Result<(), Mismatch> {
        let volume = self.asked[piece.asked as usize].demand.volume;
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        if let Some(change) = piece.change {
            ledger.change_ends(volume, piece.range, change, result.is_ok());
        }
        let Some(buffer) = piece.buffer else { return Ok(()) };
        let blocks = piece.range.first_block()..piece.range.end_block();
        if result.is_ok() && piece.range.is_block_aligned() {
            let into =
                Slice { buffer, offset_bytes: 0, len_bytes: (piece.range.sectors * SECTOR_BYTES) as u32 };
            for (step, block) in (0u64..).zip(blocks) {
                let found = self.buffers.tag(into, step * BLOCK_BYTES);
                ledger.read_ends(volume, block, piece.began, found)?;
            }
        } else {
            ledger.unverified_blocks += blocks.end - blocks.start;
        }
        self.buffers.release(buffer);
        Ok(())
    }
}
