//! Volumes that come and go while the cache is served.

use super::{Running, export};
use crate::addition::{self, Added, Checked, Wish};
use crate::ownership::{check_start, give_up_elsewhere};
use crate::startup::{Served, warn_of_origin};
use crate::state::VolumeNote;
use anyhow::{Context, Result, anyhow, bail};
use engine::effect::{Errno, WriteMode};
use engine::format::VolumeRecord;
use engine::units::{SECTOR_BYTES, VolumeIndex};
use live::devices::{self, Access, Device};
use live::limits::Limits;
use live::server::{ControlError, ControlOp};
use std::sync::{Arc, MutexGuard, TryLockError};

impl Running {
    /// Keeps other changes of the volumes off.
    ///
    /// # Errors
    /// If one is under way.
    pub(super) fn change_volumes(&self) -> Result<MutexGuard<'_, ()>> {
        match self.changing.try_lock() {
            Ok(changing) => Ok(changing),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                bail!("another command is changing the volumes of this cache; try again when it is done")
            }
        }
    }

    /// The names of the volumes that have their origins.
    #[must_use]
    pub fn names_served(&self) -> Vec<String> {
        let all = self.volumes.all();
        all.iter().filter(|volume| volume.origin.is_some()).map(|volume| volume.name.clone()).collect()
    }

    /// Puts one more volume on the cache, and offers it to clients.
    ///
    /// # Errors
    /// Why it cannot be there; then it is not.
    pub fn add(&self, wish: &Wish) -> Result<Added> {
        let _changing = self.change_volumes()?;
        let cache = devices::parse(&self.era().identity.device)?;
        let superblock = self.handle.with_core(|engine| engine.superblock().clone())?;
        let checked = addition::check(wish, &cache, &superblock, &self.state, Access::Exclusive)?;
        let added = checked.report(&cache);
        warn_of_origin(&checked.origin);
        let origin = checked.origin.clone();
        self.interrupts.watch(&origin);
        if let Err(error) = self.put_on(checked) {
            self.interrupts.unwatch(&origin);
            return Err(error).with_context(|| format!("cannot add volume {}", wish.name));
        }
        if let Some(options) = &self.attach_all {
            self.attach(Some(&wish.name), options)
                .with_context(|| format!("volume {} was added, and has no device", wish.name))?;
        }
        Ok(added)
    }

    fn put_on(&self, checked: Checked) -> Result<()> {
        let Checked { places, origin, record } = checked;
        let index = self.lend_origin(&places, &origin)?;
        let put_on = self.put_on_at(index, &origin, record);
        if put_on.is_err() {
            // What fails here is that the daemon is stopping.
            let _ = self.handle.let_go_of_origin(index);
        }
        put_on
    }

    /// Gives the reactors an origin, at the first place where none has operations under way.
    fn lend_origin(&self, places: &[VolumeIndex], origin: &Device) -> Result<VolumeIndex> {
        for &index in places {
            match self.handle.take_origin(index, origin.clone()) {
                Ok(()) => return Ok(index),
                Err(ControlError::Engine(Errno::BUSY)) => {}
                Err(error) => {
                    let _ = self.handle.let_go_of_origin(index);
                    return Err(error).context("the origin cannot be used");
                }
            }
        }
        bail!("origins that were taken off do not answer; restart the daemon first")
    }

    /// RULE 11: the superblock has the volume first, then the notes, and only then a client can write to it. A crash in
    /// between leaves a volume without a note, which counts as one that may be dirty.
    fn put_on_at(&self, index: VolumeIndex, origin: &Device, record: VolumeRecord) -> Result<()> {
        let (mode, origin_name, name) = (record.mode, record.origin.clone(), record.name.clone());
        let (size_bytes, min_block_bytes) = (record.size_sectors * SECTOR_BYTES, record.sector_bytes);
        let can_discard = origin.supports_discard();
        // The places change from now on.
        let noted = VolumeRecord { fingerprint: Default::default(), ..record.clone() };
        self.tell_time()?;
        self.handle.with_core(move |engine| engine.propose(record, can_discard))?;
        self.handle.request(index, ControlOp::Add).context("the cache did not take it")?;
        let id = self.handle.with_core(move |engine| {
            engine.superblock().volumes[index.at()].as_ref().map(|record| record.id)
        })?;
        let id = id.context("the volume is gone")?;
        let is_ephemeral = self.era().identity.ephemeral;
        let note =
            VolumeNote { id: id.0, ..VolumeNote::new(&noted, is_ephemeral, mode == WriteMode::Writeback) };
        let given_up = self.give_up_elsewhere(origin, mode);
        if let Err(error) = given_up.and_then(|()| self.record.change(|record| record.volumes.push(note))) {
            return match self.handle.request(index, ControlOp::Detach) {
                Ok(()) => Err(error),
                Err(left) => Err(anyhow!("{error:#}; it is on the cache, and not served: {left}")),
            };
        }
        let served = Arc::new(Served {
            index,
            id,
            name,
            origin_name,
            origin: Some(origin.clone()),
            size_bytes,
            min_block_bytes,
            mode,
        });
        let export = export(&served);
        self.volumes.enter(Arc::clone(&served));
        self.apply_settings_of(&served)?;
        Ok(self.handle.open_export(export)?)
    }

    /// Notes that what other caches hold of an origin is void, before this one uses it in that mode.
    fn give_up_elsewhere(&self, origin: &Device, mode: WriteMode) -> Result<()> {
        let era = self.era();
        give_up_elsewhere(&self.state, origin, era.user(mode))
    }

    /// The same, unless another cache may hold what the origin does not have.
    pub(super) fn claim(&self, origin: &Device, mode: WriteMode) -> Result<()> {
        check_start(&self.state, origin, self.era().user(mode))?;
        self.give_up_elsewhere(origin, mode)
    }

    /// Lets go of the origin of a volume that was taken off: whoever wants may have it.
    pub(super) fn let_go_of_volume(&self, served: Arc<Served>) -> Result<()> {
        self.volumes.strike_out(served.index);
        if let Some(origin) = &served.origin {
            self.interrupts.unwatch(origin);
        }
        let index = served.index;
        // Another volume may get its place.
        self.handle.set_limits(index, Limits::default())?;
        self.forget_hours_of(index);
        // The lock ends with the last user of the file.
        drop(served);
        Ok(self.handle.let_go_of_origin(index)?)
    }
}
