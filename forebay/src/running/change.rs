//! Changes of volumes by the operator while the cache runs: all that is wanted at once is looked at before the first of it is
//! done.

use super::Running;
use crate::origin;
use crate::ownership::check_start;
use crate::report::now_seconds;
use crate::setting::{Kept, Key, Setting, VolumeSettings, check_together};
use crate::startup::Served;
use crate::superblock::{ONE_STRICT_VOLUME, check_kept, check_mode, system, with_order};
use anyhow::{Context, Result, bail};
use engine::composition::Composition;
use engine::effect::WriteMode;
use engine::units::{SECTOR_BYTES, VolumeIndex};
use live::server::ControlOp;
use std::sync::PoisonError;

/// A volume as it would be after the settings that were looked at.
struct Outlook {
    composition: Composition,
    /// A change of its order waits until all is home.
    is_order_changing: bool,
    mode: WriteMode,
    kept: Vec<Kept>,
}

impl Running {
    /// Changes a volume.
    ///
    /// # Errors
    /// If it cannot be changed so, or not while it runs.
    pub fn set(&self, volume: Option<&str>, setting: Setting) -> Result<()> {
        self.set_all(volume, &[setting])
    }

    /// Changes a volume in several ways, or in none if one of them is refused beforehand.
    ///
    /// # Errors
    /// As [`Running::set`].
    pub fn set_all(&self, volume: Option<&str>, settings: &[Setting]) -> Result<()> {
        check_together(settings, volume)?;
        self.look_ahead(volume, settings)?;
        settings.iter().try_for_each(|setting| self.set_now(volume, *setting))
    }

    /// Refuses settings of which one cannot be, as far as that is known before.
    fn look_ahead(&self, volume: Option<&str>, settings: &[Setting]) -> Result<()> {
        let of_volume: Vec<Setting> =
            settings.iter().copied().filter(|setting| setting.of_cache().is_none()).collect();
        if of_volume.is_empty() {
            return Ok(());
        }
        let index = self.choose(&self.picture()?, volume)?;
        let served = &*self.served(index)?;
        let mut outlook = self.outlook(index)?;
        for setting in of_volume {
            self.look_at(served, setting, &mut outlook)?;
        }
        let is_room = |kept: &Kept| matches!(kept.key(), Key::CacheMin | Key::CacheMax);
        if outlook.kept.iter().any(is_room) {
            let now = self.settings_of(&served.name).each();
            let settings = VolumeSettings::of(now.into_iter().chain(outlook.kept));
            settings.check_room(self.era().cache_bytes)?;
        }
        Ok(())
    }

    fn outlook(&self, index: VolumeIndex) -> Result<Outlook> {
        let of_superblock = self.handle.with_core(move |engine| {
            let superblock = engine.superblock();
            let mode = superblock.volumes[index.at()].as_ref().map(|record| record.mode);
            // It has the order of now, which the start did not know.
            Some((Composition::of(superblock).ok()?, mode?, engine.is_order_changing(index)))
        })?;
        let (composition, mode, is_order_changing) = of_superblock.context("the volume is gone")?;
        Ok(Outlook { composition, is_order_changing, mode, kept: Vec::new() })
    }

    fn look_at(&self, served: &Served, setting: Setting, outlook: &mut Outlook) -> Result<()> {
        let era = self.era();
        let identity = &era.identity;
        match setting {
            Setting::Mode(mode) => {
                if outlook.is_order_changing && mode != WriteMode::Writeback {
                    bail!(
                        "the order of volume {} is being changed, which waits until everything is home; set mode={} after that",
                        served.name,
                        mode.name()
                    );
                }
                check_mode(&identity.profile, &outlook.composition, identity.ephemeral, mode)?;
                if let Some(origin) = &served.origin {
                    origin::check_mode(origin, mode)?;
                    check_start(&self.state, origin, era.user(mode))?;
                }
                outlook.mode = mode;
            }
            Setting::Order(is_strict) => {
                let order = if is_strict { "strict" } else { "free" };
                outlook.composition = with_order(&identity.profile, &outlook.composition, Some(order))?;
                if is_strict && self.volumes.all().len() > 1 {
                    bail!("{ONE_STRICT_VOLUME}; give this volume a cache of its own");
                }
                if is_strict && outlook.mode != WriteMode::Writeback {
                    bail!(
                        "strict order goes with writeback alone, and volume {} is in {}; set mode=writeback before it",
                        served.name,
                        outlook.mode.name()
                    );
                }
            }
            Setting::SizeOfOrigin => drop(self.size_of_origin(served)?),
            Setting::Kept(kept) => {
                check_kept(&identity.profile, &identity.composition, kept)?;
                outlook.kept.push(kept);
            }
            Setting::GiveUpLost => (),
            Setting::OriginChanged | Setting::OriginChangedDiscardDirty => {
                bail!("an origin cannot change under a running daemon; stop it first, then set {setting}")
            }
        }
        Ok(())
    }

    /// Does what was looked at.
    fn set_now(&self, volume: Option<&str>, setting: Setting) -> Result<()> {
        if let Setting::Kept(kept) = setting
            && kept.key().is_of_cache()
        {
            return self.keep_of_cache(kept);
        }
        let index = self.choose(&self.picture()?, volume)?;
        let served = &*self.served(index)?;
        self.tell_time()?;
        match setting {
            Setting::Mode(mode) => self.set_mode(served, mode),
            Setting::SizeOfOrigin => self.set_size(served),
            Setting::Kept(kept) => self.keep(served, kept),
            Setting::Order(is_strict) => {
                self.request(served, ControlOp::SetOrder(is_strict), "cannot change the order")
            }
            Setting::GiveUpLost => self.request(served, ControlOp::GiveUpLost, "cannot give up what is lost"),
            Setting::OriginChanged | Setting::OriginChangedDiscardDirty => {
                unreachable!("that was refused when it was looked at")
            }
        }
    }

    /// Tells the engine the time of day, for what it notes of the change of a setting that follows.
    pub(super) fn tell_time(&self) -> Result<()> {
        let now = now_seconds();
        Ok(self.handle.with_core(move |engine| engine.tell_time(now))?)
    }

    /// Carries out a request about a volume.
    pub(super) fn request(&self, served: &Served, op: ControlOp, what: &str) -> Result<()> {
        self.handle.request(served.index, op).with_context(|| format!("{what} of volume {}", served.name))
    }

    fn set_mode(&self, served: &Served, mode: WriteMode) -> Result<()> {
        if let Some(origin) = &served.origin {
            self.claim(origin, mode)?;
        }
        let _held = self.note_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let is_read_only = mode == WriteMode::Readonly;
        self.record.change_volume(served.id.0, |note| {
            note.may_be_dirty |= mode == WriteMode::Writeback;
            note.read_only &= is_read_only;
        })?;
        self.request(served, ControlOp::SetMode(mode), "cannot set the mode")?;
        // HAZARD 9: a cache that only reads lets others have its origin.
        self.record.change_volume(served.id.0, |note| {
            note.read_only = is_read_only;
            if let Some(record) = &mut note.record {
                mode.name().clone_into(&mut record.mode);
            }
        })?;
        self.handle
            .set_read_only(served.index, is_read_only)
            .with_context(|| format!("cannot announce the mode of volume {}", served.name))
    }

    fn set_size(&self, served: &Served) -> Result<()> {
        let size_bytes = self.size_of_origin(served)?;
        let sectors = size_bytes / SECTOR_BYTES;
        self.request(served, ControlOp::SetSize { sectors }, "cannot set the size")?;
        self.record.change_volume(served.id.0, |note| note.size_bytes = size_bytes)
    }

    /// The size of an origin that has grown.
    fn size_of_origin(&self, served: &Served) -> Result<u64> {
        let origin =
            served.origin.as_ref().with_context(|| format!("volume {} has no origin", served.name))?;
        if let Some(away) = origin.away() {
            bail!(
                "the origin of volume {} is away: {}; set it again once it is back",
                served.name,
                away.reason
            );
        }
        let now_bytes = origin
            .measure()
            .map_err(system)
            .with_context(|| format!("cannot ask the origin of volume {} for its size", served.name))?;
        origin::check_size(origin)?;
        let volume_bytes = self.volume(served)?.size_bytes;
        if now_bytes < volume_bytes {
            bail!(
                "the origin of volume {} has shrunk from {volume_bytes} to {now_bytes} bytes; give it its size back",
                served.name
            );
        }
        if now_bytes == volume_bytes {
            bail!("volume {} has the size of its origin already", served.name);
        }
        Ok(now_bytes)
    }
}
