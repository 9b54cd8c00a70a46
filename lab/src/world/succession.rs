//! Jobs of an operator on a cache that was stopped: another device takes its place, or it is made anew in another size
//! (rule 16). The power may be cut instead of any write or flush of both devices; then they are repeated.

use super::World;
use super::image::CutImage;
use super::log_end::LogEnd;
use super::trace::What;
use crate::content::Tag;
use crate::disk::{Disk, Fate};
use crate::violation::{Kind, Violation};
use engine::format::{Geometry, Layout, SEGMENTS_OFFSET, SetId, Succession, Superblock};
use engine::mutation::Mutation;
use engine::recovery::{self, OpenError, SuccessionError, load_superblock};
use std::cell::Cell;

/// Other caches in the line of a world's cache.
#[derive(Default)]
pub(super) struct Line {
    /// A formatted device that is to take the cache's place.
    heir: Option<Disk>,
    /// The device whose place was taken last.
    retired: Option<Disk>,
    /// Caches that were formatted besides the first one.
    sets: u32,
}

impl World {
    /// Whether the cache may give its place up: nothing was broken that could show in another one, and it was stopped with all
    /// data at the origins.
    #[must_use]
    pub fn may_succeed(&mut self) -> bool {
        let is_forced = self.setup.mutations.has(Mutation::HandOverDirty);
        let loaded = load_superblock(&mut CutImage::whole(&mut self.cache));
        let Ok((superblock, _)) = loaded else { return false };
        let is_broken = self.is_metadata_rotten
            || self.is_end_lost
            || self.has_stale()
            || self.abandoned.contains(&true)
            || self.oracle.explained.any();
        let is_home = superblock.clean_stop && superblock.line.is_home;
        self.engine.is_none() && !is_broken && (is_home || is_forced)
    }

    /// Whether a job that was cut is to be repeated. The cut may have taken the stop before it, if that was not durable: then the
    /// cache stays as it is.
    pub fn is_to_succeed(&mut self) -> bool {
        let loaded = load_superblock(&mut CutImage::whole(&mut self.cache));
        let has_begun = loaded.map_or(true, |(superblock, _)| superblock.line.succession != Succession::None);
        let is_to = has_begun || self.may_succeed();
        if !is_to {
            self.line.heir = None;
        }
        is_to
    }

    fn new_set(&mut self) -> SetId {
        self.line.sets += 1;
        // The first cache has sevens alone.
        let mut set_id = [8; 16];
        set_id[..4].copy_from_slice(&self.line.sets.to_le_bytes());
        set_id
    }

    /// The size and the division of a cache with so many segments. One with slots or buckets has the size that it has.
    fn sized(&self, segments: u32) -> (u64, Layout) {
        let old = super::layout_of(&self.setup);
        match old.0 {
            Layout::Log(geometry) => {
                let geometry = Geometry { segments, ..geometry };
                let ring_bytes = u64::from(segments) * geometry.segment_bytes();
                (SEGMENTS_OFFSET + ring_bytes + self.setup.checkpoint_bytes(), Layout::Log(geometry))
            }
            other => (old.1, other),
        }
    }

    /// Gives the place of the cache, which may give it up, to a new device with so many segments. False if the power was cut: to
    /// be repeated.
    ///
    /// # Errors
    /// A violation.
    pub fn replace_cache(&mut self, segments: u32, changes: u64) -> Result<bool, Violation> {
        self.is_sound()?;
        let mutations = self.setup.mutations;
        let mut heir = match self.line.heir.take() {
            Some(heir) => heir,
            None => self.format_heir(segments)?,
        };
        let done = Cell::new(0);
        let mut old = CutImage::cut_after(&mut self.cache, changes).counting(&done);
        let mut new = CutImage::cut_after(&mut heir, changes).counting(&done);
        let handed = recovery::hand_over(&mut old, &mut new, mutations);
        let was_cut = old.was_cut();
        if was_cut {
            self.cut_power_with(&mut heir);
            let is_both = is_believed(&mut self.cache) && is_believed(&mut heir);
            self.line.heir = Some(heir);
            if is_both {
                self.fail(Kind::Contract, "a cache and the one that takes its place are both believed");
            }
            return self.is_sound().map(|()| false);
        }
        match handed {
            Ok(superblock) => self.take_place(heir, &superblock),
            Err(error) => self.fail(Kind::Contract, format!("a cache cannot be replaced: {error}")),
        }
        self.is_sound().map(|()| true)
    }

    /// Cuts the power of all devices, the new one's, too.
    fn cut_power_with(&mut self, heir: &mut Disk) {
        let mut random = self.random.fork(9);
        let luck = random.below(5);
        heir.cut_power(&mut |write| Fate::draw(write.content.sectors(), luck, &mut random));
        self.cut_power_by_chance();
    }

    fn format_heir(&mut self, segments: u32) -> Result<Disk, Violation> {
        let (cache_bytes, layout) = self.sized(segments);
        let set_id = self.new_set();
        let mutations = self.setup.mutations;
        let mut disk = Disk::new(cache_bytes / 512, |_| Tag::ZERO);
        let loaded = load_superblock(&mut CutImage::whole(&mut self.cache));
        let written = loaded.map_err(SuccessionError::from).and_then(|(old, _)| {
            let heir = recovery::heir(&old, set_id, cache_bytes, layout);
            Ok(recovery::write_heir(&mut CutImage::whole(&mut disk), &heir, mutations)?)
        });
        if let Err(error) = written {
            self.fail(Kind::Contract, format!("a new cache cannot be formatted: {error}"));
        }
        self.is_sound().map(|()| disk)
    }

    fn take_place(&mut self, new: Disk, superblock: &Superblock) {
        self.note(What::Behind { volume: 0, what: "the cache replaced" });
        self.line.retired = Some(std::mem::replace(&mut self.cache, new));
        self.began_anew(superblock);
    }

    /// The cache holds nothing, and has another size.
    fn began_anew(&mut self, superblock: &Superblock) {
        if let Layout::Log(Geometry { segments, .. }) = superblock.layout {
            self.setup.segments = segments;
        }
        if let Some(log_end) = &mut self.log_end {
            *log_end = LogEnd::default();
            log_end.stopped();
        }
        self.rotten.clear();
        self.known.clear();
        self.noted_update = 0;
        self.is_edit_alone = false;
    }

    /// Makes the cache, which may give its place up, anew with so many segments on its own device. False if the power was cut:
    /// to be repeated.
    ///
    /// # Errors
    /// A violation.
    pub fn remake_cache(&mut self, segments: u32, changes: u64) -> Result<bool, Violation> {
        self.is_sound()?;
        let mutations = self.setup.mutations;
        let (cache_bytes, _) = self.sized(segments);
        let set_id = self.new_set();
        if cache_bytes / 512 > self.cache.sectors() {
            self.cache.grow(cache_bytes / 512, |_| Tag::ZERO);
        }
        let (segment_blocks, old) = (self.setup.segment_blocks, super::layout_of(&self.setup).0);
        let besides_bytes = SEGMENTS_OFFSET + self.setup.checkpoint_bytes();
        let divide = |_: &Superblock, cache_bytes: u64| match old {
            Layout::Log(_) => {
                let geometry = Geometry { segment_blocks, segments: 0 };
                let segments = (cache_bytes - besides_bytes) / geometry.segment_bytes();
                Layout::Log(Geometry { segments: segments as u32, ..geometry })
            }
            other => other,
        };
        let mut image = CutImage::cut_after(&mut self.cache, changes);
        let remade = recovery::remake(&mut image, (set_id, cache_bytes), divide, mutations);
        if image.was_cut() {
            self.cut_power_by_chance();
            return self.is_sound().map(|()| false);
        }
        match remade {
            Ok(superblock) => {
                self.note(What::Behind { volume: 0, what: "the cache made anew" });
                self.began_anew(&superblock);
            }
            Err(error) => self.fail(Kind::Contract, format!("a cache cannot be made anew: {error}")),
        }
        self.is_sound().map(|()| true)
    }

    /// Somebody puts the device back whose place was taken: it must not be believed.
    ///
    /// # Errors
    /// A violation.
    pub fn start_retired(&mut self) -> Result<(), Violation> {
        let options = self.setup.options();
        let Some(retired) = &mut self.line.retired else { return Ok(()) };
        match recovery::inspect(&mut CutImage::whole(retired), options) {
            Err(OpenError::Succession(Succession::Replaced { .. })) => (),
            Err(error) => {
                self.fail(Kind::Contract, format!("a cache that was replaced is refused otherwise: {error}"));
            }
            Ok(_) => self.fail(Kind::Contract, "a cache that was replaced is believed again"),
        }
        self.is_sound()
    }
}

/// Whether a start would serve the cache on a device.
fn is_believed(disk: &mut Disk) -> bool {
    let loaded = load_superblock(&mut CutImage::whole(disk));
    loaded.is_ok_and(|(superblock, _)| {
        superblock.line.succession == Succession::None && superblock.volumes.iter().any(Option::is_some)
    })
}
