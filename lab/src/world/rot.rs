//! Damage of the cache device that no operation reports: rot and misdirected writes.

use super::World;
use super::operations::InFlight;
use super::trace::What;
use crate::content::Sector;
use crate::disk::Content;
use crate::oracle::Moment;
use engine::effect::Target;
use engine::units::SECTORS_PER_BLOCK;

/// Flushed records after which a sector of slots may rot.
const ROT_NOTES_MIN: u64 = 4;

impl World {
    /// Notes that the cache cannot give back the content of these sectors.
    pub(super) fn suspect(&mut self, first: u64, sectors: u64) {
        let start = first / SECTORS_PER_BLOCK * SECTORS_PER_BLOCK;
        let end = (first + sectors).next_multiple_of(SECTORS_PER_BLOCK);
        for block in self.cache.read(start, end - start).chunks(SECTORS_PER_BLOCK as usize) {
            let mut is_known = false;
            for sector in block {
                if let Some((volume, sector)) = self.oracle.place_of(sector.tag()) {
                    self.oracle.explained.suspect(volume, sector);
                    is_known = true;
                }
            }
            if !is_known {
                // Zeroes that clients wrote do not say where.
                let volumes = &self.setup.volumes;
                self.oracle.suspect_zeroes(|volume| volumes[volume].sectors);
            }
        }
    }

    /// Notes the harm of a write to the wrong place.
    pub(super) fn misdirected(&mut self, op: u64) {
        let InFlight { view, content, .. } = &self.in_flight[&op];
        let Some(content) = content.clone() else { return };
        let first = view.first;
        // The intended place lacks the content; the other place, which the plan named, was overwritten.
        if let Content::Data(sectors) = &content {
            for sector in sectors.iter() {
                if let Some((volume, sector)) = self.oracle.place_of(sector.tag()) {
                    self.oracle.explained.suspect(volume, sector);
                }
            }
        }
        self.suspect(first, content.sectors());
    }

    fn rot_metadata_by_chance(&mut self) {
        let rate = self.cache.faults.rates.metadata_rot;
        if rate == 0 || !self.random.chance(rate) {
            return;
        }
        let sector = self.random.below(self.cache.sectors());
        let bit = self.random.below(4096) as usize;
        self.rot_metadata(sector, bit);
    }

    fn rot_metadata(&mut self, sector: u64, bit: usize) {
        let is_metadata = matches!(self.cache.read(sector, 1)[0], Sector::Bytes(_));
        let may_rot = match &self.log_end {
            Some(log_end) => !log_end.is_second_header(sector),
            None => self.cache.notes_since(sector) >= ROT_NOTES_MIN,
        };
        if is_metadata && may_rot && self.cache.rot(sector, bit) {
            self.is_metadata_rotten = true;
            self.has_rotten(sector);
        }
    }

    fn has_rotten(&mut self, sector: u64) {
        if let Some(log_end) = &mut self.log_end {
            log_end.rots(sector);
        }
        self.counts.faults += 1;
        self.note(What::Rot { target: Target::Cache, sector });
    }

    /// The cache device made something durable.
    pub(super) fn log_is_flushed(&mut self) {
        if let Some(log_end) = &mut self.log_end {
            let until = log_end.flushed(&self.cache, self.clock.now_ns());
            self.oracle.told(until);
        }
    }

    /// Has a sector rot behind the next crash or stop.
    pub fn rot_behind_next_end(&mut self, sector: u64, bit: usize) {
        self.planned_rot = Some((sector, bit));
        // `check` has something to say then.
        self.setup.is_checked_on_open = false;
    }

    /// Lets the sector rot that was planned; else, in one crash of four, one by chance, where sectors rot.
    pub(super) fn rot_in_a_crash(&mut self) {
        if let Some((sector, bit)) = self.planned_rot.take() {
            self.rot_either(sector, bit, true, true);
            return;
        }
        let rates = self.cache.faults.rates;
        if self.engine.is_some() && rates.rot + rates.metadata_rot > 0 && self.random.one_in(4) {
            self.rot_while_off(rates.rot > 0, rates.metadata_rot > 0);
        }
    }

    /// Lets a sector of the cache rot while it is switched off, as often as not one at the end of its log: `payload`, `metadata` or
    /// both may be struck.
    pub fn rot_while_off(&mut self, payload: bool, metadata: bool) {
        let World { random, log_end, cache, .. } = self;
        let at_end = log_end.as_ref().and_then(|log_end| log_end.draw(&mut |bound| random.below(bound)));
        let anywhere = random.below(cache.sectors());
        let sector = at_end.filter(|_| random.one_in(2)).unwrap_or(anywhere);
        let bit = random.below(4096) as usize;
        self.rot_either(sector, bit, payload, metadata);
    }

    fn rot_either(&mut self, sector: u64, bit: usize, payload: bool, metadata: bool) {
        if self.may_rot(sector).is_some() {
            if payload {
                self.rot_cache(sector, bit);
            }
        } else if metadata {
            self.rot_metadata(sector, bit);
        }
    }

    /// The moment since which this crash may take what was acknowledged, because the log's end rotted.
    pub(super) fn end_lost_since(&mut self) -> Option<Moment> {
        let log_end = self.log_end.as_ref()?;
        let end_ns = self.cache_failed_ns.unwrap_or(self.clock.now_ns());
        let since = log_end.lost_since(&self.cache, end_ns);
        self.is_end_lost |= since.is_some();
        since
    }

    /// Lets a sector rot at random, after a write.
    pub(super) fn rot_by_chance(&mut self, target: Target) {
        if target == Target::Cache {
            self.rot_metadata_by_chance();
        }
        let rate = self.disk(target).faults.rates.rot;
        if rate == 0 || target != Target::Cache || !self.random.chance(rate) {
            return;
        }
        let sector = self.random.below(self.cache.sectors());
        if self.may_rot(sector).is_some() {
            let bit = self.random.below(4096) as usize;
            self.rot_cache(sector, bit);
        }
    }

    /// The client's sector (volume and number) whose content lies in a sector of the cache, if that may rot.
    #[must_use]
    pub fn may_rot(&self, sector: u64) -> Option<(usize, u64)> {
        let place = match &self.cache.read(sector, 1)[0] {
            Sector::Tag(tag) => self.oracle.place_of(*tag),
            Sector::Bytes(_) => None,
        };
        place.filter(|_| self.log_end.is_some() || self.cache.notes_since(sector) >= ROT_NOTES_MIN)
    }

    /// Flips a bit of a sector of the cache. False if the sector is only in the device's volatile cache.
    pub fn rot_cache(&mut self, sector: u64, bit: usize) -> bool {
        self.suspect(sector, 1);
        let is_done = self.cache.rot(sector, bit);
        if is_done {
            self.has_rotten(sector);
        }
        is_done
    }

    /// The sectors of the cache device with content written to a sector of a volume, newest or not.
    #[must_use]
    pub fn copies_of(&self, volume: usize, sector: u64) -> Vec<u64> {
        let holds = |at: &u64| match &self.cache.read(*at, 1)[0] {
            Sector::Tag(tag) => self.oracle.place_of(*tag) == Some((volume, sector)),
            Sector::Bytes(_) => false,
        };
        (0..self.cache.sectors()).filter(holds).collect()
    }
}
