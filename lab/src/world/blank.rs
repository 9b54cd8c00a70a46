//! Starts of an ephemeral cache whose device is blank, or holds what it held before another one took its place (rule 17).
//!
//! The notes beside the cache decide. Another cache is formatted only where the notes allow it, and the one that is gone
//! is noted to be replaced first. The power may be cut while it is formatted: then that begins anew, as another cache.

use super::image::CutImage;
use super::log_end::LogEnd;
use super::operator::fingerprint;
use super::{World, formatted, identity, record};
use crate::disk::Disk;
use crate::violation::{Kind, Violation};
use crate::world::trace::What;
use engine::composition::Composition;
use engine::composition::axes::OrderChoice;
use engine::effect::{Errno, Notice, WriteMode};
use engine::format::{SetId, VolumeRecord};
use engine::recovery::{self, Lacking, NotedVolume, Opened, load_superblock};
use engine::status::VolumeStatus;
use engine::units::{VOLUMES_MAX, VolumeIndex};

/// Notes beside the cache, but for the number of its newest superblock.
#[derive(Debug)]
pub(super) struct Notes {
    /// Whether each volume may need the cache: whether that may hold something that the origin does not have.
    needs_cache: [bool; VOLUMES_MAX],
    /// The set ids of caches that were replaced.
    replaced: Vec<SetId>,
    /// The set id of the cache that was formatted last here, a repeated byte.
    set: u8,
    /// The cache that is being formatted was not finished.
    is_forming: bool,
    /// By volume, a loss at its origin of which no FLUSH has told clients yet. They stay when the process crashes.
    untold: [Option<Untold>; VOLUMES_MAX],
}

/// A note on a loss.
#[derive(Clone, Copy, Debug)]
struct Untold {
    /// The error that FLUSH gets.
    errno: Errno,
    /// Since when clients seem to be told: the answer may be on its way yet.
    told_ns: Option<u64>,
}

/// The daemon looks at its notes so often. It takes one away when it finds for the second time that clients are told.
const LOOK_NS: u64 = 1_000_000_000;

impl Notes {
    /// Notes on a cache that was just formatted.
    pub fn new() -> Notes {
        Notes {
            needs_cache: [false; VOLUMES_MAX],
            replaced: Vec::new(),
            set: 7,
            is_forming: false,
            untold: [None; VOLUMES_MAX],
        }
    }

    /// That set id.
    pub fn set_id(&self) -> SetId {
        [self.set; 16]
    }

    /// The losses that clients have to be told of, whatever becomes of the process.
    pub fn untold(&self) -> Vec<(VolumeIndex, Errno)> {
        let noted = (0..).zip(&self.untold);
        noted.filter_map(|(at, untold)| Some((VolumeIndex(at), (*untold)?.errno))).collect()
    }

    /// Notes that an origin may have lost what its clients were answered for.
    pub fn lost(&mut self, volume: usize, errno: Errno) {
        self.untold[volume] = Some(Untold { errno, told_ns: None });
    }

    /// The power was cut: the clients are gone.
    pub fn power_cut(&mut self) {
        self.untold = [None; VOLUMES_MAX];
    }

    /// Whether it is noted that a cache was replaced.
    pub fn is_replaced(&self, set_id: &SetId) -> bool {
        self.replaced.contains(set_id)
    }
}

impl World {
    /// Starts with a blank device in place of the cache, which is formatted if that is allowed: then the cache may be opened.
    /// The power is cut instead of the write or flush after the first `changes`: false, and the start is to be repeated.
    ///
    /// # Errors
    /// A violation. Inside: why nothing was done.
    pub fn start_blank(&mut self, changes: u64) -> Result<Result<bool, Lacking>, Violation> {
        self.is_sound()?;
        assert!(self.engine.is_none(), "no engine runs while its device is taken away");
        let mutations = self.setup.mutations;
        let volumes: Vec<NotedVolume> = (0..self.volumes())
            .filter(|volume| !self.detached[*volume])
            .map(|volume| NotedVolume {
                may_be_dirty: self.notes.needs_cache[volume],
                is_abandoned: self.abandoned[volume],
            })
            .collect();
        if let Err(lacking) = recovery::may_be_replaced(self.setup.is_ephemeral, &volumes, mutations) {
            self.note(What::Refused);
            return Ok(Err(lacking));
        }
        // Origins are opened before they are looked at, as at any start.
        self.wait_for_servers();
        let is_whole =
            self.notes.is_forming && load_superblock(&mut CutImage::whole(&mut self.cache)).is_ok();
        if !is_whole && !self.form(changes)? {
            return Ok(Ok(false));
        }
        self.notes.is_forming = false;
        self.note(What::Behind { volume: 0, what: "served with a new cache" });
        self.cache_is_new();
        self.is_sound().map(|()| Ok(true))
    }

    /// Formats a new cache; false if the power was cut.
    fn form(&mut self, changes: u64) -> Result<bool, Violation> {
        // RULE 17: the cache that is gone may come back. That it is void is durable before there is another one.
        let loaded = load_superblock(&mut CutImage::whole(&mut self.cache));
        let gone = loaded.map_or(self.notes.set_id(), |(superblock, _)| superblock.set_id);
        self.notes.replaced.push(gone);
        self.notes.set += 1;
        let records: Vec<Option<VolumeRecord>> =
            (0..self.volumes()).map(|at| self.record_again(at)).collect();
        let blank = if self.notes.is_forming { Some(self.cache.clone()) } else { None };
        self.notes.is_forming = true;
        let formed = formatted(&self.setup, self.notes.set_id(), records, blank, changes);
        let (cache, is_whole) = formed;
        self.cache = cache;
        if !is_whole {
            self.cut_power_by_chance();
        }
        self.is_sound().map(|()| is_whole)
    }

    /// The record of a volume that is put on a new cache, with its origin as it is.
    fn record_again(&mut self, volume: usize) -> Option<VolumeRecord> {
        if self.detached[volume] {
            return None;
        }
        let fingerprint = fingerprint(&mut self.origins[volume]);
        let identity = self.identities[volume].clone();
        let setup = super::VolumeSetup { sectors: self.volume_sectors(volume), mode: self.modes[volume] };
        Some(VolumeRecord { identity, fingerprint, ..record(volume, &setup) })
    }

    /// Forgets all that was known of the cache: it is another one.
    fn cache_is_new(&mut self) {
        self.abandoned = [false; VOLUMES_MAX];
        self.is_bypassed = [false; VOLUMES_MAX];
        (self.is_edit_alone, self.is_metadata_rotten, self.is_cache_lossy) = (false, false, false);
        self.rotten_records.clear();
        self.is_end_lost = false;
        self.known.clear();
        self.rotten.clear();
        self.planned_rot = None;
        self.log_end = self.setup.slots.is_none().then(LogEnd::default);
        self.noted_update = 0;
        // What the cache alone had, where an origin behind a server lost what was not flushed.
        for (volume, sector) in std::mem::take(&mut self.lost_under_cache) {
            self.oracle.origin_lost(volume, sector, None);
        }
        for volume in 0..self.volumes() {
            self.behind.forget(volume);
        }
    }

    /// Puts another device in the place of the cache, and returns the one that was there.
    #[must_use]
    pub fn swap_cache(&mut self, cache: Disk) -> Disk {
        std::mem::replace(&mut self.cache, cache)
    }

    /// Whether the cache has lost its place to another one, as the notes say.
    pub(super) fn is_cache_replaced(&mut self) -> bool {
        let mutations = self.setup.mutations;
        let loaded = load_superblock(&mut CutImage::whole(&mut self.cache));
        loaded.is_ok_and(|(superblock, _)| {
            recovery::is_replaced(self.notes.is_replaced(&superblock.set_id), mutations)
        })
    }

    /// Notes which volumes may need their cache from this start on.
    pub(super) fn note_needs_at_start(&mut self, opened: &Opened) {
        for (at, mode) in self.modes.iter().enumerate() {
            let dirty_bytes = opened.dirty_bytes(VolumeIndex(at as u8));
            let needs = &mut self.notes.needs_cache[at];
            *needs = recovery::needs_its_cache(*mode, dirty_bytes, Some(*needs), self.setup.mutations);
        }
    }

    /// Notes that volumes do not need their cache any more, behind a clean stop.
    pub(super) fn note_needs_at_stop(&mut self) {
        let Some(engine) = &self.engine else { return };
        let status = engine.status();
        if status.cache.latched {
            return;
        }
        for volume in status.volumes.iter().filter(|volume| volume.dirty_bytes + volume.lost_bytes == 0) {
            self.notes.needs_cache[volume.index.at()] = false;
        }
    }

    /// Notes that volumes do not need their cache any more, as the daemon does now and then while it serves.
    pub fn note_drained(&mut self) {
        let Some(engine) = &self.engine else { return };
        let status = engine.status();
        let is_home = |volume: &&VolumeStatus| {
            volume.mode_target != WriteMode::Writeback && volume.dirty_bytes + volume.lost_bytes == 0
        };
        for volume in status.volumes.iter().filter(is_home).filter(|_| !status.cache.latched) {
            self.notes.needs_cache[volume.index.at()] = false;
        }
    }

    /// Notes that an origin failed, before anybody is told: it may have dropped what only the cache has then.
    pub(super) fn note_failure(&mut self, notice: &Notice) {
        match notice {
            Notice::OriginError { volume, .. } => self.notes.needs_cache[volume.at()] = true,
            Notice::ChangesLost { volume, errno } => self.notes.lost(volume.at(), *errno),
            _ => (),
        }
    }

    /// Takes away the notes on losses that clients were told of, at the second look or when the process `ends`.
    pub(super) fn note_told_losses(&mut self, ends: bool) {
        let Some(engine) = &self.engine else { return };
        let now = self.clock.now_ns();
        for (volume, noted) in self.notes.untold.iter_mut().enumerate() {
            let Some(untold) = noted else { continue };
            let is_of_engine = engine.untold_losses().iter().any(|(of, _)| of.at() == volume);
            if is_of_engine || self.servers.owes_failure(volume) {
                untold.told_ns = None;
            } else if ends || untold.told_ns.get_or_insert(now).saturating_add(LOOK_NS) <= now {
                *noted = None;
            }
        }
    }

    /// Notes that a volume was put on the cache.
    pub(super) fn notes_on_new(&mut self, volume: usize, mode: WriteMode) {
        self.notes.needs_cache[volume] = false;
        self.note_mode(volume, mode);
    }

    /// The mode, or the one next to it that the cache may have.
    #[must_use]
    pub fn allowed_mode(&self, mode: WriteMode) -> WriteMode {
        if self.setup.is_ephemeral && mode == WriteMode::Writeback { WriteMode::Writethrough } else { mode }
    }

    /// The mode that `forebay set` or `forebay add` gives a volume of a cache that is off, where that one was asked for.
    pub fn allowed_mode_off(&mut self, mode: WriteMode) -> WriteMode {
        let counts = if self.setup.slots.is_none() { self.superblock_that_counts() } else { None };
        let own = counts.and_then(|superblock| Composition::of(&superblock).ok());
        let is_strict = own.is_some_and(|own| matches!(own.order, OrderChoice::Strict(_)));
        if is_strict { WriteMode::Writeback } else { self.allowed_mode(mode) }
    }

    /// Notes that a volume is about to go into a mode.
    pub(super) fn note_mode(&mut self, volume: usize, mode: WriteMode) {
        self.notes.needs_cache[volume] |= mode == WriteMode::Writeback;
        if self.setup.is_ephemeral && mode == WriteMode::Writeback {
            self.fail(Kind::Contract, "a volume of an ephemeral cache is to go into writeback");
        }
    }
}

/// The record of a volume to begin with.
pub(super) fn first_records(setup: &super::Setup) -> Vec<Option<VolumeRecord>> {
    let records = setup.volumes.iter().enumerate();
    records
        .map(|(at, volume)| Some(VolumeRecord { identity: identity(setup, at), ..record(at, volume) }))
        .collect()
}
