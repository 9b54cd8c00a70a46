//! The engine in virtual time, with its disks and clients.

use super::buffers::Buffers;
use super::clients::{Clients, Port};
use super::disk::{Disk, RecoveredDisk};
use super::drive::{self, Stage, Trouble, Until};
use super::ledger::Ledger;
use super::overhead::{Late, Overhead};
use super::recipe::Recipe;
use super::statistics::Statistics;
use super::workload::{Answer, Next, Workload};
use engine::composition::Composition;
use engine::effect::{Effect, Io, Target, WriteMode};
use engine::engine::Engine;
use engine::format::{KeyLayout, Layout};
use engine::limits::Config;
use engine::status::Status;
use engine::units::{BLOCK_BYTES, Nanos, VolumeIndex};
use slab::Slab;

/// Kept part of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Nothing; every checksum is 0. The least memory, and the fastest.
    Nothing,
    /// A tag for each written block, and a check of each read: some 50 bytes for each block.
    Tags,
}

/// A volume of a long run.
pub struct VolumeSetup {
    /// Its origin. Its size is rounded down to whole blocks.
    pub origin: Disk,
    /// How its writes are treated.
    pub mode: WriteMode,
}

/// Setup of a long run.
pub struct Setup {
    /// The cache device, new.
    pub cache: Disk,
    /// The volumes, 1 to 16.
    pub volumes: Vec<VolumeSetup>,
    /// Kept part of the payload.
    pub contents: Contents,
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
    /// Clients asked something at this instant: the operations issued for it are plugged.
    is_plugged: bool,
    clients: Clients,
    late: Late,
    statistics: Statistics,
    /// Totals of the devices at the start of measuring.
    before: Statistics,
    digest: u64,
}

/// The cache device that an engine leaves behind, and what to open it with.
pub(super) struct Remains {
    pub cache: Disk,
    pub recipe: Recipe,
    pub now: Nanos,
}

impl LongRun {
    /// A new cache with new volumes, and the engine opened on it: a plain log. `configure` may change
    /// the engine's bounds.
    ///
    /// # Errors
    /// [`Trouble::Geometry`] if the cache is too small.
    ///
    /// # Panics
    /// If there are no volumes or too many, or an origin without a whole block.
    pub fn new(setup: Setup, configure: impl FnOnce(&mut Config)) -> Result<LongRun, Trouble> {
        LongRun::composed(setup, &Composition::plain_log(), configure)
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
        LongRun::keeping(setup, composition, configure, false)
    }

    /// The same on a cache device that keeps all metadata, for [`LongRun::cut`].
    pub(super) fn recoverable(setup: Setup, composition: &Composition) -> Result<LongRun, Trouble> {
        LongRun::keeping(setup, composition, |_| (), true)
    }

    fn keeping(
        setup: Setup,
        composition: &Composition,
        configure: impl FnOnce(&mut Config),
        keeps_all: bool,
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
            _ if keeps_all => cache.keep_all_metadata(),
            Layout::Log(geometry)
            | Layout::Keys(KeyLayout { geometry, .. })
            | Layout::Frames(KeyLayout { geometry, .. }) => cache.keep_summaries(geometry),
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
        let mut now = Nanos(0);
        let engine = if keeps_all {
            let mut image = RecoveredDisk { disk: &mut cache, now };
            let engine = recipe.create(&mut image);
            now = image.now;
            engine
        } else {
            recipe.open_blank(cache.size_bytes())
        };
        Ok(LongRun {
            now,
            engine,
            recipe,
            buffers: Buffers::new(contents == Contents::Tags),
            cache,
            origins,
            operations: Slab::with_capacity(1024),
            is_plugged: false,
            clients: Clients::new((contents == Contents::Tags).then(|| Ledger::new(blocks.into_iter()))),
            late: Late::default(),
            before: statistics.clone(),
            statistics,
            digest: 0,
        })
    }

    /// Makes all answers from now on wait besides.
    pub fn set_overhead(&mut self, overhead: Overhead) {
        self.late.overhead = overhead;
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
        self.drain()?;
        self.engine = self.recipe.open_blank(self.cache.size_bytes());
        self.engine.advance(self.now, &mut self.buffers);
        Ok(())
    }

    /// Writes home what is dirty, as fast as that goes.
    ///
    /// # Errors
    /// [`Trouble`]: then the run is over.
    ///
    /// # Panics
    /// If requests are under way.
    pub fn drain(&mut self) -> Result<(), Trouble> {
        assert!(self.clients.unanswered() == 0, "a cache is drained only when no client waits for an answer");
        for volume in 0..self.origins.len() as u8 {
            let LongRun { now, engine, buffers, clients, .. } = self;
            clients.ask_to_drain(VolumeIndex(volume), &mut Port { now: *now, engine, buffers });
        }
        self.idle(0)?;
        while !self.operations.is_empty() {
            self.idle(Nanos::MILLISECOND)?;
        }
        Ok(())
    }

    /// Lets the workload ask, until it ends or until enough is answered. Returns the number of answers.
    ///
    /// # Errors
    /// [`Trouble`]: then the run is over.
    pub fn run<W: Workload + ?Sized>(&mut self, workload: &mut W, until: Until) -> Result<u64, Trouble> {
        drive::run(self, workload, until)
    }

    /// Lets `elapsed_ns` of virtual time pass without requests.
    ///
    /// # Errors
    /// [`Trouble`]: then the run is over.
    pub fn idle(&mut self, elapsed_ns: u64) -> Result<(), Trouble> {
        drive::idle(self, elapsed_ns)
    }

    /// Ends the engine at this instant, as a kill does: what the cache device has not done by now never happens.
    pub(super) fn cut(self) -> Remains {
        let LongRun { now, recipe, mut cache, .. } = self;
        let now = cache.abandon(now);
        Remains { cache, recipe, now }
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Status of the engine. Its counters count from the start of the run.
    #[must_use]
    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// Forgets the measurements so far.
    pub fn begin_measuring(&mut self) {
        self.statistics.clear(self.now);
        self.before = self.totals();
    }

    /// Measurements since the run began, or since [`LongRun::begin_measuring`].
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.totals().since(&self.before)
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
        if let Some(ledger) = self.clients.ledger() {
            totals.verified_blocks = ledger.verified_blocks;
            totals.unverified_blocks = ledger.unverified_blocks;
        }
        totals
    }

    /// Adds an event to the digest.
    fn note(&mut self, what: u64) {
        // One multiplication, so that it costs nothing: this is no protection against malice.
        self.digest = (self.digest.rotate_left(23) ^ self.now.0 ^ what.rotate_left(40))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Hands an operation of the engine's to its device.
    fn issue(&mut self, io: Io) {
        let LongRun { now, is_plugged, .. } = *self;
        let disk = device(&mut self.cache, &mut self.origins, io.target);
        let entry = self.operations.vacant_entry();
        disk.submit(now, entry.key() as u64, &io.op, &self.buffers);
        if !is_plugged {
            disk.unplug(now);
        }
        entry.insert(io);
    }

    /// Tells the engine that an operation is done.
    fn finish(&mut self, token: u64) {
        let io = self.operations.remove(token as usize);
        self.note(io.id.0);
        let disk = device(&mut self.cache, &mut self.origins, io.target);
        let result = disk.settle(&io.op, &mut self.buffers);
        self.engine.complete(self.now, io.id, result, &mut self.buffers);
    }

    fn tell<W: Workload + ?Sized>(&mut self, answer: &Answer, workload: &mut W) {
        self.statistics.record(answer);
        workload.answered(answer);
    }
}

impl Stage for LongRun {
    fn now(&self) -> Nanos {
        self.now
    }

    fn feed<W: Workload + ?Sized>(&mut self, workload: &mut W) -> Next {
        let LongRun { now, engine, buffers, clients, is_plugged, .. } = self;
        let mut port = Port { now: *now, engine, buffers };
        clients.submit_backlog(&mut port);
        while !clients.is_full() {
            match workload.next(*now) {
                Next::Demand(demand) => {
                    *is_plugged = true;
                    clients.ask(demand, &mut port);
                }
                other => return other,
            }
        }
        Next::OnAnswer
    }

    fn answer<W: Workload + ?Sized>(&mut self, workload: &mut W) -> Result<u64, Trouble> {
        let mut answered = 0;
        while let Some(effect) = self.engine.poll_effect(&mut self.buffers) {
            match effect {
                Effect::Io(io) => self.issue(io),
                Effect::Reply { id, result } => {
                    self.note(id.0 << 1 | u64::from(result.is_err()));
                    let answer = self.clients.replied(self.now, id, result, &mut self.buffers)?;
                    if let Some(answer) = answer.and_then(|answer| self.late.hold(answer)) {
                        self.tell(&answer, workload);
                        answered += 1;
                    }
                }
                Effect::Notice(_) => (),
            }
        }
        while let Some(answer) = self.late.pop_due(self.now) {
            self.tell(&answer, workload);
            answered += 1;
        }
        Ok(answered)
    }

    fn unanswered(&self) -> usize {
        self.clients.unanswered() + self.late.len()
    }

    fn unplug(&mut self) {
        self.is_plugged = false;
        self.cache.unplug(self.now);
        self.origins.iter_mut().for_each(|origin| origin.unplug(self.now));
    }

    fn next_ns(&self) -> Option<u64> {
        let devices = std::iter::once(&self.cache).chain(&self.origins).filter_map(Disk::next_ns);
        let deadline_ns = self.engine.deadline().map(|at| at.0);
        devices.chain(deadline_ns).chain(self.late.next_ns()).min()
    }

    fn go_to(&mut self, now: Nanos) {
        self.now = now;
        // A completion may move the deadline: it is due if it was when time went on.
        let is_due = self.engine.deadline().is_some_and(|at| at <= now);
        while let Some(token) = self.cache.poll(now) {
            self.finish(token);
        }
        for at in 0..self.origins.len() {
            while let Some(token) = self.origins[at].poll(now) {
                self.finish(token);
            }
        }
        if is_due {
            self.engine.advance(now, &mut self.buffers);
        }
    }
}

fn device<'a>(cache: &'a mut Disk, origins: &'a mut [Disk], target: Target) -> &'a mut Disk {
    match target {
        Target::Cache => cache,
        Target::Mirror => unreachable!("long runs have one cache device"),
        Target::Origin(volume) => &mut origins[volume.at()],
        Target::State => unreachable!("no device fails here, so no cache is given up"),
    }
}
