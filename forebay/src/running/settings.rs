//! Settings of volumes that the daemon keeps: those of the notes (what was set), and else those of the configuration
//! file.

use super::Running;
use super::schedule::LocalTime;
use crate::configuration::Configuration;
use crate::events::Event;
use crate::log::event;
use crate::setting::{Kept, VolumeSettings};
use crate::startup::Served;
use crate::superblock::check_kept;
use anyhow::{Context, Result};
use live::server::ControlOp;
use std::sync::PoisonError;

impl Running {
    /// The settings that a volume works by.
    pub(super) fn settings_of(&self, volume: &str) -> VolumeSettings {
        let configuration = self.configuration();
        let configured = configuration.as_ref().map_or(&[][..], |file| file.settings_of(volume));
        VolumeSettings::of(configured.iter().copied().chain(self.record.settings_of(volume)))
    }

    /// Settings of a volume that the configuration file says and that were set otherwise.
    pub(super) fn differing_settings(&self, volume: &str) -> Vec<Kept> {
        let Some(configuration) = self.configuration() else { return Vec::new() };
        let now = self.settings_of(volume).each();
        let configured = configuration.settings_of(volume).iter();
        configured.filter(|kept| !now.contains(kept)).copied().collect()
    }

    /// Works by all settings once more: another engine took the place of the one that was told.
    pub(super) fn tell_engine_again(&self) -> Result<()> {
        self.apply_wear_budget()?;
        self.volumes.all().iter().try_for_each(|served| self.apply_settings_of(served))
    }

    fn check_kept(&self, kept: Kept) -> Result<()> {
        let era = self.era();
        check_kept(&era.identity.profile, &era.identity.composition, kept)
    }

    /// Keeps a setting of a volume, and works by it from now on.
    pub(super) fn keep(&self, served: &Served, kept: Kept) -> Result<()> {
        self.record.change(|record| record.keep(&served.name, kept))?;
        self.apply_settings_of(served)
    }

    /// Works by the settings of all volumes from now on, and tells of those that the configuration file says otherwise.
    ///
    /// # Errors
    /// If it is stopping.
    pub fn apply_settings(&self) -> Result<()> {
        self.apply_wear_budget()?;
        for served in self.volumes.all() {
            self.apply_settings_of(&served)?;
            let Some(configuration) = self.configuration() else { continue };
            for kept in self.differing_settings(&served.name) {
                event(
                    Event::ModeDiffers,
                    format_args!(
                        "volume {} was set otherwise, and {} says {kept}; forebay set {} {} {kept}, or a reload, changes it",
                        served.name,
                        configuration.path.display(),
                        self.era().identity.device,
                        served.name
                    ),
                );
            }
        }
        Ok(())
    }

    pub(super) fn apply_settings_of(&self, served: &Served) -> Result<()> {
        let settings = self.settings_of(&served.name);
        self.handle
            .set_limits(served.index, settings.limits)
            .with_context(|| format!("cannot limit volume {}", served.name))?;
        let era = self.era();
        if era.identity.composition.keeps_minimums() || settings.cache_min.is_none() {
            let room = settings.room(era.cache_bytes);
            self.request(served, ControlOp::SetRoom(room), "cannot limit the room")?;
        }
        self.keep_hours_of(served, &settings, LocalTime::now())
    }

    /// Takes up a configuration that was read again: what it says counts, whatever was set before.
    ///
    /// # Errors
    /// If it is stopping, or the notes cannot be written.
    pub fn configure(&self, configuration: Configuration) -> Result<()> {
        for wish in &configuration.volumes {
            for kept in &wish.settings {
                self.check_kept(*kept)?;
            }
        }
        let volumes = self.volumes.all();
        let before: Vec<_> = volumes.iter().map(|served| self.settings_of(&served.name).each()).collect();
        self.record.change(|record| {
            for wish in &configuration.volumes {
                let is_said = |kept: &Kept| wish.settings.iter().any(|said| said.key() == kept.key());
                if let Some(noted) = record.settings.get_mut(&wish.name) {
                    noted.retain(|kept| !is_said(kept));
                }
            }
            record.settings.retain(|_, noted| !noted.is_empty());
        })?;
        *self.configuration.lock().unwrap_or_else(PoisonError::into_inner) = Some(configuration.into());
        for (served, before) in volumes.iter().zip(before) {
            self.apply_settings_of(served)?;
            for kept in self.settings_of(&served.name).each().iter().filter(|kept| !before.contains(kept)) {
                event(Event::ModeSet, format_args!("volume {} is set to {kept}", served.name));
            }
        }
        Ok(())
    }
}
