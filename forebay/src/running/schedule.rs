//! The hours of the day: when destage is held back, and when a volume is flushed. The engine knows no clock; it is told.

use super::Running;
use crate::events::Event;
use crate::interrupt::{Interrupts, spawn};
use crate::log::event;
use crate::output::Size;
use crate::setting::{TimeOfDay, VolumeSettings};
use crate::startup::Served;
use anyhow::Result;
use engine::status::Status;
use engine::units::{VOLUMES_MAX, VolumeIndex};
use jiff::Zoned;
use jiff::civil::Date;
use live::server::ControlOp;
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError};

/// The time of the day here.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalTime {
    date: Date,
    time: TimeOfDay,
}

impl LocalTime {
    /// The present one, in the time zone of this machine.
    pub(super) fn now() -> LocalTime {
        let now = Zoned::now();
        let part = |number: i8| u16::try_from(number).unwrap_or(0);
        let time = TimeOfDay::new(part(now.hour()), part(now.minute()));
        LocalTime { date: now.date(), time: time.expect("a clock shows no other times") }
    }
}

/// Schedule of one volume, as far as it was carried out.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// Whether the engine holds its destage back.
    is_held_back: bool,
    /// The time at which it is flushed, and the last day on which it was.
    flushed: Option<(TimeOfDay, Option<Date>)>,
}

/// News that the engine was told, and flushes that were begun.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    volumes: [Told; VOLUMES_MAX],
}

impl Schedule {
    /// Whether the engine has to be told that destage is held back now, or no longer so.
    fn news(&self, at: usize, settings: &VolumeSettings, now: LocalTime) -> Option<bool> {
        let is_held_back = settings.destage_hours.is_some_and(|hours| !hours.contain(now.time));
        (self.volumes[at].is_held_back != is_held_back).then_some(is_held_back)
    }

    /// Whether a flush is due, which it is once a day: at its time, or as soon as there is somebody awake.
    fn take_flush(&mut self, at: usize, settings: &VolumeSettings, now: LocalTime) -> bool {
        let Some(flush_at) = settings.flush_at else {
            self.volumes[at].flushed = None;
            return false;
        };
        let is_past = now.time >= flush_at;
        let known = self.volumes[at].flushed.filter(|(known, _)| *known == flush_at);
        // Set at an hour later than that, it begins tomorrow.
        let last = known.map_or_else(|| is_past.then_some(now.date), |(_, last)| last);
        let is_due = is_past && last != Some(now.date);
        self.volumes[at].flushed = Some((flush_at, if is_due { Some(now.date) } else { last }));
        is_due
    }
}

impl Running {
    /// Tells the engine whether the destage of a volume is held back now.
    pub(super) fn keep_hours_of(
        &self,
        served: &Served,
        settings: &VolumeSettings,
        now: LocalTime,
    ) -> Result<()> {
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(is_held_back) = schedule.news(served.index.at(), settings, now) {
            self.request(served, ControlOp::HoldDestage(is_held_back), "cannot hold back the destage")?;
            schedule.volumes[served.index.at()].is_held_back = is_held_back;
        }
        Ok(())
    }

    /// Forgets what was told of a volume that is taken off: another one may get its place.
    pub(super) fn forget_hours_of(&self, index: VolumeIndex) {
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        schedule.volumes[index.at()] = Told::default();
    }

    /// Notes that another engine took the place of the one that was told: it destages as it likes, until it is told.
    pub(super) fn forget_holds(&self) {
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        schedule.volumes.iter_mut().for_each(|told| told.is_held_back = false);
    }

    /// Keeps the hours of all volumes.
    pub(super) fn keep_hours(&self, status: &Status) -> Result<()> {
        let now = LocalTime::now();
        for volume in &status.volumes {
            // One that is just coming or going is none of these.
            let Ok(served) = self.served(volume.index) else { continue };
            self.keep_hours_of(&served, &self.settings_of(&served.name), now)?;
        }
        Ok(())
    }

    /// The volumes whose scheduled flush is due.
    fn take_flushes(&self) -> Vec<String> {
        let now = LocalTime::now();
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        let mut volumes = self.volumes.all();
        volumes.retain(|served| {
            let settings = self.settings_of(&served.name);
            served.origin.is_some() && schedule.take_flush(served.index.at(), &settings, now)
        });
        volumes.iter().map(|served| served.name.clone()).collect()
    }
}

/// Begins the flushes that are due, each in a thread of its own: to be called once a second.
pub fn flush_on_schedule(running: &Arc<Running>, interrupts: &Interrupts) {
    for name in running.take_flushes() {
        let (running, interrupts) = (Arc::clone(running), interrupts.clone());
        let volume = name.clone();
        let begun = spawn("flush", move || {
            let go_on = |is_interrupted| match is_interrupted {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            let flushed = running.flush(Some(&volume), &mut |_| go_on(interrupts.is_interrupted()));
            match flushed {
                Ok(flushed) => event(
                    Event::Flushed,
                    format_args!("volume {volume} was flushed on schedule: {}", Size(flushed.dirty_bytes)),
                ),
                // The data stays in the cache, and the end of the daemon is no news.
                Err(_) if interrupts.is_interrupted() => (),
                Err(error) => {
                    event(Event::NotFlushed, format_args!("the flush on schedule failed: {error:#}"))
                }
            }
        });
        if let Err(error) = begun {
            event(Event::NotFlushed, format_args!("volume {name} was not flushed on schedule: {error:#}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::{Kept, Key};

    fn settings(hours: &str, flush_at: &str) -> VolumeSettings {
        let kept = |key, text| Kept::parse(key, text).expect("a setting");
        VolumeSettings::of([kept(Key::DestageHours, hours), kept(Key::FlushAt, flush_at)])
    }

    fn at(day: i8, hour: u16, minute: u16) -> LocalTime {
        let time = TimeOfDay::new(hour, minute).expect("a time");
        LocalTime { date: Date::constant(2026, 3, day), time }
    }

    #[test]
    fn the_engine_is_told_when_the_hours_begin_and_end() {
        let mut schedule = Schedule::default();
        let night = settings("22:00-06:00", "none");
        assert_eq!(schedule.news(0, &night, at(1, 23, 0)), None, "it destages as it is");
        assert_eq!(schedule.news(0, &night, at(2, 6, 0)), Some(true));
        schedule.volumes[0].is_held_back = true;
        assert_eq!(schedule.news(0, &night, at(2, 12, 0)), None);
        assert_eq!(schedule.news(0, &night, at(2, 22, 0)), Some(false));
        assert_eq!(schedule.news(0, &settings("none", "none"), at(2, 12, 0)), Some(false));
        assert_eq!(schedule.news(1, &night, at(2, 12, 0)), Some(true), "each volume has its own");
    }

    #[test]
    fn a_flush_is_due_once_a_day() {
        let mut schedule = Schedule::default();
        let settings = settings("none", "03:00");
        let mut due = |now| schedule.take_flush(0, &settings, now);
        assert!(!due(at(1, 12, 0)), "today it is too late");
        assert!(!due(at(2, 2, 59)));
        assert!(due(at(2, 3, 0)));
        assert!(!due(at(2, 3, 0)) && !due(at(2, 4, 0)));
        // The clock goes back an hour, and comes there again.
        assert!(!due(at(2, 2, 30)) && !due(at(2, 3, 0)));
        // The machine slept at that time.
        assert!(due(at(3, 9, 30)) && !due(at(3, 9, 31)));
    }

    #[test]
    fn another_time_is_another_schedule() {
        let mut schedule = Schedule::default();
        assert!(!schedule.take_flush(0, &settings("none", "03:00"), at(1, 12, 0)));
        assert!(!schedule.take_flush(0, &settings("none", "13:00"), at(1, 12, 0)));
        assert!(schedule.take_flush(0, &settings("none", "13:00"), at(1, 13, 0)));
        assert!(!schedule.take_flush(0, &settings("none", "none"), at(2, 13, 0)));
        assert!(!schedule.take_flush(0, &settings("none", "13:00"), at(2, 13, 1)), "it is set anew");
    }
}
