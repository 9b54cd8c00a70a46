//! Checks that hold at any moment: content, the device's bytes, memory, and that all work comes to rest.

use super::halves;
use super::image::CutImage;
use super::{Ticket, World};
use crate::content::{SECTOR, Sector, Source, Tag};
use crate::oracle::Change;
use crate::violation::{Kind, Violation};
use engine::check::{self, Report};
use engine::composition::Composition;
use engine::composition::axes::OrderChoice;
use engine::effect::RequestOp;
use engine::format::{BatchHeader, DecodedBatch, SEGMENTS_OFFSET, Summary};
use engine::pair::Pair;
use engine::units::{BLOCK_BYTES, SECTORS_PER_BLOCK, SectorRange};

/// Sectors read at a time by a read-back.
const READ_SECTORS: u64 = 512;
/// Reads of a read-back under way at a time.
const DEPTH: usize = 4;
/// Blocks of a summary that is looked at, at the most: those of all small segments.
const SUMMARY_BLOCKS: u64 = 4;
/// Blocks of the longest header that the log writes.
const HEADER_BLOCKS: u64 = 2;
/// Events after which a world without clients must have come to rest.
const REST_STEPS: u64 = 200_000;

impl World {
    /// Reads every sector of every volume; the oracle judges each.
    ///
    /// # Errors
    /// A violation.
    pub fn verify(&mut self) -> Result<(), Violation> {
        let mut under_way: Vec<Ticket> = Vec::new();
        for volume in 0..self.volumes() {
            if self.is_detached(volume) {
                continue;
            }
            let size = self.volume_sectors(volume);
            let mut start = 0;
            while start < size {
                let range = SectorRange { start, sectors: READ_SECTORS.min(size - start) };
                if under_way.len() == DEPTH {
                    let oldest = under_way.remove(0);
                    let _explained = self.wait(oldest)?;
                }
                under_way.push(self.read(volume, range));
                start += range.sectors;
            }
        }
        for ticket in under_way {
            let _explained = self.wait(ticket)?;
        }
        self.check_memory()
    }

    /// A full read-back after a crash: counts as a cut.
    ///
    /// # Errors
    /// A violation.
    pub fn verify_cut(&mut self) -> Result<(), Violation> {
        self.verify()?;
        self.counts.cuts += 1;
        self.servers.counts.cuts += u64::from(self.setup.servers.volumes > 0);
        Ok(())
    }

    /// Checks the cache as `forebay check` does. Not while the engine has writes in flight.
    pub fn check_image(&mut self) -> Report {
        let World { cache, mirror, .. } = self;
        let joined = halves::join(cache, mirror.as_mut(), |disk, _| CutImage::whole(disk));
        let halves = joined.map_or_else(|_| [None, None], Pair::into_halves);
        let reports = halves.into_iter().flatten().map(|mut half| check::check(&mut half));
        // Each half is a cache of its own.
        let report = reports.reduce(|first, other| if first.ok { other } else { first });
        report.unwrap_or_else(|| check::check(&mut CutImage::whole(&mut self.cache)))
    }

    /// Checks that the cache device is sound for `check`; superblock copies may differ where a crash hit their
    /// writing.
    ///
    /// # Errors
    /// A violation of kind [`Kind::Physical`].
    pub fn expect_sound_image(&mut self) -> Result<(), Violation> {
        let report = self.check_image();
        if !report.ok {
            let what = format!(
                "check finds {} errors: {:?} {:?} {:?}",
                report.errors_count,
                report.superblock_error,
                report.log_error,
                report.errors.iter().take(4).collect::<Vec<_>>()
            );
            self.fail(Kind::Physical, what);
        }
        // Slots have no summaries.
        let segments = if self.setup.slots.is_some() { 0 } else { self.setup.segments };
        for segment in 0..segments {
            self.expect_modest_summary(segment);
        }
        self.is_sound()
    }

    /// RULE 5: checks that a summary counts no more blocks as dead or home than its segment's last header. A torn one
    /// counts none.
    fn expect_modest_summary(&mut self, segment: u32) {
        let blocks = u64::from(self.setup.segment_blocks);
        let first = SEGMENTS_OFFSET / BLOCK_BYTES + u64::from(segment) * blocks;
        let Ok(Summary { footer, batches }) =
            Summary::decode(&self.cache_blocks(first + blocks - SUMMARY_BLOCKS, SUMMARY_BLOCKS))
        else {
            return;
        };
        let Some(last) = batches.last() else { return };
        let header_block = u64::from(last.header_block).min(blocks - SUMMARY_BLOCKS);
        let Ok(DecodedBatch { header, checksum, .. }) =
            BatchHeader::decode(&self.cache_blocks(first + header_block, HEADER_BLOCKS))
        else {
            return;
        };
        // The segment may have been opened again since.
        let is_same = checksum == footer.last_header_checksum && header.sequence == footer.last_sequence;
        let is_modest = footer.floor_sequence <= header.floor_sequence
            && footer.oldest_dirty_sequence <= header.oldest_dirty_sequence;
        if is_same && !is_modest {
            let what =
                format!("summary of segment {segment} is ahead of its batches: {footer:?}, {header:?}");
            self.fail(Kind::Physical, what);
        }
    }

    fn cache_blocks(&self, first: u64, count: u64) -> Vec<u8> {
        let mut bytes = vec![0; (count * BLOCK_BYTES) as usize];
        let sectors = self.cache.read(first * SECTORS_PER_BLOCK, count * SECTORS_PER_BLOCK);
        for (sector, into) in sectors.iter().zip(bytes.chunks_mut(SECTOR)) {
            sector.expand(into);
        }
        bytes
    }

    /// Checks that memory stays within the engine's stated need.
    ///
    /// # Errors
    /// A violation of kind [`Kind::Physical`].
    pub fn check_memory(&mut self) -> Result<(), Violation> {
        let config = self.setup.engine_config();
        let peak = self.pool.engine_peak_bytes();
        if peak > config.pool_bytes() {
            let what = format!("the engine took {peak} bytes of the pool, it says {}", config.pool_bytes());
            self.fail(Kind::Physical, what);
        }
        if let Some(engine) = &self.engine {
            let used = engine.status().cache.index_bytes;
            let budget = self.setup.index_budget_bytes;
            if used > budget {
                self.fail(Kind::Physical, format!("the index has {used} bytes, its budget is {budget}"));
            }
        }
        self.is_sound()
    }

    /// Lets things happen until nothing is to come: every request answered, every operation ended, all dirty data
    /// home, no more ticks.
    ///
    /// # Errors
    /// A violation; of kind [`Kind::Liveness`] if rest never comes.
    pub fn run_dry(&mut self) -> Result<(), Violation> {
        let mut steps = 0;
        while self.step()? {
            steps += 1;
            if steps > REST_STEPS {
                let volumes: Vec<String> = self
                    .engine
                    .iter()
                    .flat_map(|engine| engine.status().volumes)
                    .map(|volume| {
                        format!("{:?} dirty {} lost {}", volume.state, volume.dirty_bytes, volume.lost_bytes)
                    })
                    .collect();
                let what = format!("no rest: {volumes:?} {:?}", self.engine);
                self.fail(Kind::Liveness, what.chars().take(2000).collect::<String>());
            }
        }
        if !self.outstanding.is_empty() || !self.in_flight.is_empty() {
            let what = format!(
                "nothing is to come, but {} requests and {} operations are under way",
                self.outstanding.len(),
                self.in_flight.len()
            );
            self.fail(Kind::Liveness, what);
        }
        self.expect_closed_areas();
        self.is_sound()
    }

    /// Checks that the origin alone is what a disk could be after a power cut, if its volume goes home in strict order. Where dirty
    /// data may be lost nobody can tell.
    ///
    /// # Errors
    /// A violation of kind [`Kind::Physical`].
    pub fn expect_order(&mut self) -> Result<(), Violation> {
        self.look_at_order();
        self.is_sound()
    }

    /// The first volume goes home in strict order from now on.
    pub fn begin_order(&mut self) {
        let origin = &self.origins[0];
        let held = origin.read(0, origin.sectors()).iter().map(Sector::tag).collect();
        let durable = (0..origin.sectors()).map(|at| origin.durable(at).tag()).collect();
        self.oracle.judge_order(Some([held, durable]));
        for outstanding in self.outstanding.values().filter(|outstanding| outstanding.volume == 0) {
            let (range, change) = match outstanding.op {
                RequestOp::WriteZeroes { range, .. } => (range, Change::Zeroes),
                RequestOp::Discard { range, .. } => (range, Change::Discard),
                RequestOp::Write { range, from, .. } => match self.pool.tags(from)[0].source() {
                    Source::Write { number, .. } => (range, Change::Write(number)),
                    _ => unreachable!("a write has a number"),
                },
                _ => continue,
            };
            self.oracle.under_way_in_order(range, change, outstanding.at);
        }
    }

    /// The first volume goes home in any order from now on.
    pub fn end_order(&mut self) {
        self.oracle.judge_order(None);
    }

    /// A change of the order was answered.
    pub(super) fn order_is_set(&mut self, is_strict: bool, is_ok: bool) {
        match (is_strict, is_ok) {
            (true, true) => self.begin_order(),
            (false, true) => self.end_order(),
            // Of a cache that failed the next start knows.
            (_, false) if self.oracle.explained.is_cache_failed() => (),
            (_, false) => {
                let is_end = |op: RequestOp| matches!(op, RequestOp::SetOrder(false));
                let is_in_doubt = self.outstanding.values().any(|other| is_end(other.op));
                self.oracle.doubt_order(is_in_doubt);
            }
        }
    }

    /// Judges from now on what the cache says of its order: a crash may have come behind a change of that, or a volume begins anew.
    pub(super) fn settle_order(&mut self) {
        let Some(engine) = &self.engine else { return };
        let own = Composition::of(engine.superblock()).expect("the cache is served");
        let is_strict = matches!(own.order, OrderChoice::Strict(_)) && !self.detached[0];
        match (is_strict, self.oracle.has_order()) {
            (true, true) => self.oracle.doubt_order(false),
            (true, false) => self.begin_order(),
            (false, _) => self.end_order(),
        }
    }

    /// Asks for the end of the first volume's strict order, or for its beginning.
    pub fn change_order(&mut self) {
        let Some(engine) = &self.engine else { return };
        let is_strict = engine.status().volumes[0].order.is_some();
        self.submit(0, RequestOp::SetOrder(!is_strict));
    }

    pub(super) fn look_at_order(&mut self) {
        if self.oracle.explained.has_suspects(0) {
            return;
        }
        let Some(origin) = self.origins.first() else { return };
        let (held, durable) = (|at| origin.read(at, 1)[0].tag(), |at| origin.durable(at).tag());
        if let Err(violation) = self.oracle.expect_order(held, durable) {
            self.violation.get_or_insert(violation);
        }
    }

    /// Checks that the origin alone holds what the clients see: after a drain, or a detach.
    ///
    /// # Errors
    /// A violation of kind [`Kind::Physical`].
    pub fn expect_origin_equals_view(&mut self, volume: usize) -> Result<(), Violation> {
        let origin = &self.origins[volume];
        let wrong = (0..origin.sectors()).find(|&sector| {
            let certain = self.oracle.certain(volume, sector);
            let found = [origin.read(sector, 1)[0].tag(), origin.durable(sector).tag()];
            certain.is_some_and(|tag: Tag| found.iter().any(|found| *found != tag))
        });
        if let Some(sector) = wrong {
            let origin = &self.origins[volume];
            let what = format!(
                "origin {volume} sector {sector} holds {:?}, the clients see {:?}",
                origin.durable(sector).tag().source(),
                self.oracle.certain(volume, sector).map(Tag::source)
            );
            self.fail(Kind::Physical, what);
        }
        self.is_sound()
    }
}
