//! Volumes of a running cache as devices of this machine: made, kept alive, taken over, and let go of.

use super::Running;
use crate::attachment::{
    AttachOptions, Attached, Found, Identifier, KernelDevice, Link, Serves, clear_half_made, stay_in_memory,
};
use crate::events::Event;
use crate::log::event;
use crate::startup::Served;
use anyhow::{Context, Result, bail};
use engine::units::VolumeIndex;
use live::doors::Export;
use live::kernel::ublk::Queue;
use live::server::ControlError;
use std::os::fd::OwnedFd;
use std::sync::{MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait at the start for the kernel to notice that the earlier daemon is dead.
const TAKE_OVER_PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const TAKE_OVER_PAUSE: Duration = Duration::from_millis(50);

/// A volume that is attached.
pub struct Attachment {
    volume: VolumeIndex,
    device: KernelDevice,
    /// Its last failure, which is said once.
    said: String,
    /// It is being taken away: that it vanishes is no surprise.
    is_leaving: bool,
}

/// The doors of this daemon, as one volume is served there.
struct Serving<'a> {
    running: &'a Running,
    served: &'a Served,
}

impl Serving<'_> {
    fn said(&self, result: Result<Export, ControlError>) -> Result<Export> {
        result.with_context(|| format!("volume {} is not served", self.served.name))
    }
}

impl Serves for Serving<'_> {
    fn export(&self) -> Result<Export> {
        self.said(self.running.handle.export(self.served.index))
    }

    fn sockets(&self, sockets: Vec<OwnedFd>) -> Result<Export> {
        self.said(self.running.handle.serve_sockets(self.served.index, sockets))
    }

    fn queues(&self, queues: Vec<Queue>) -> Result<Export> {
        self.said(self.running.handle.serve_queues(self.served.index, queues))
    }
}

impl Running {
    fn identifier(&self, served: &Served, connections: usize) -> Identifier {
        Identifier {
            set_id: self.era().identity.line_id.clone(),
            volume_id: served.id.0,
            connections,
            name: served.name.clone(),
        }
    }

    fn found(&self, served: &Served) -> Option<Found> {
        Found::of(&self.identifier(served, 1))
    }

    fn attachments(&self) -> MutexGuard<'_, Vec<Attachment>> {
        self.attachments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a device of a volume.
    ///
    /// # Errors
    /// If there is one, or the kernel makes none; then nothing is left of it.
    pub fn attach(&self, volume: Option<&str>, options: &AttachOptions) -> Result<Attached> {
        let index = self.choose(&self.picture()?, volume)?;
        let served = &*self.served(index)?;
        if served.origin.is_none() {
            bail!("the origin of volume {} is missing; connect it and restart the daemon", served.name);
        }
        let mut attachments = self.attachments();
        if let Some(found) = self.found(served) {
            bail!("volume {} is attached already, as {}", served.name, found.disk());
        }
        let identifier = self.identifier(served, options.connections());
        let link = Link::of(&served.name);
        link.check(&identifier)?;
        let made = options
            .check()
            .and_then(|()| KernelDevice::make(identifier, options, &Serving { running: self, served }));
        let device = made.with_context(|| format!("cannot attach volume {}", served.name))?;
        // Not of a device that is taken over: the kernel would first wait for all requests that are under way there.
        if let Err(error) = device.set_limits() {
            event(
                Event::KernelLimits,
                format_args!("{error:#}; the device works, with the kernel's own limits"),
            );
        }
        let attached = self.enter(served, device, &mut attachments);
        if attached.is_err() {
            // The error says more than one on the way out could.
            let _ = attachments.pop().map(|attachment| self.let_go(&attachment));
        }
        attached
    }

    /// Makes a device of each volume that has none.
    ///
    /// # Errors
    /// As [`Running::attach`].
    pub fn attach_all(&self, options: &AttachOptions) -> Result<()> {
        for served in self.volumes.all().iter().filter(|served| served.origin.is_some()) {
            if self.device_of(served.index).is_none() {
                self.attach(Some(&served.name), options)?;
            }
        }
        Ok(())
    }

    /// Enters a device into the list, and leads its link to it.
    fn enter(
        &self,
        served: &Served,
        device: KernelDevice,
        attachments: &mut Vec<Attachment>,
    ) -> Result<Attached> {
        if !stay_in_memory() {
            event(
                Event::NotLocked,
                format_args!(
                    "the daemon may be swapped out, and then wait for its own device; allow it to lock memory (ulimit -l)"
                ),
            );
        }
        let link = Link::of(&served.name);
        let disk = device.disk();
        let attached = Attached { volume: served.name.clone(), device: disk.path(), link: link.path() };
        attachments.push(Attachment { volume: served.index, device, said: String::new(), is_leaving: false });
        link.lead_to(disk)?;
        Ok(attached)
    }

    /// Takes the devices over that an earlier daemon has left. Those that cannot be had are tried again later.
    pub fn take_over_devices(&self, options: &AttachOptions) {
        let hold = options.hold_seconds.map(|_| options.hold());
        let mut attachments = self.attachments();
        for served in self.volumes.all().iter().filter(|served| served.origin.is_some()) {
            let identifier = self.identifier(served, 1);
            clear_half_made(&identifier);
            let Some(found) = Found::of(&identifier) else { continue };
            let mut device = KernelDevice::left(found, &served.name);
            let serving = Serving { running: self, served };
            let until = Instant::now() + TAKE_OVER_PATIENCE;
            let result = loop {
                match device.reconnect(hold, &serving) {
                    Err(_) if Instant::now() < until && device.exists() => thread::sleep(TAKE_OVER_PAUSE),
                    result => break result,
                }
            };
            let disk = device.disk();
            let entered = self.enter(served, device, &mut attachments);
            match result.and(entered) {
                Ok(attached) => {
                    event(
                        Event::AttachedAgain,
                        format_args!("volume {} is served at {} again", attached.volume, attached.device),
                    );
                }
                Err(error) => event(
                    Event::NotAttached,
                    format_args!("cannot take {disk} over: {error:#}; it is tried again"),
                ),
            }
        }
    }

    /// Makes dead connections new: the kernel gives one up after an error, or the volume has another size.
    pub fn look_after_devices(&self) {
        self.attachments().retain_mut(|attachment| {
            let Ok(served) = self.served(attachment.volume) else { return false };
            if !attachment.device.exists() {
                if attachment.is_leaving {
                    return true;
                }
                attachment.device.forget();
                Link::of(&served.name).remove(attachment.device.disk());
                event(
                    Event::TakenAway,
                    format_args!("{} was taken away by somebody else", attachment.device.disk()),
                );
                return false;
            }
            let result = attachment.device.reconnect(None, &Serving { running: self, served: &served });
            let said = result.err().map_or_else(String::new, |error| format!("{error:#}"));
            if !said.is_empty() && said != attachment.said {
                event(Event::NotAttached, format_args!("{said}; it is tried again"));
            }
            attachment.said = said;
            true
        });
    }

    /// Takes the device of a volume away.
    ///
    /// # Errors
    /// If there is none, or somebody uses it.
    pub fn unattach(&self, volume: Option<&str>) -> Result<Attached> {
        let index = self.choose(&self.picture()?, volume)?;
        let served = self.served(index)?;
        let name = &served.name;
        let found = self.found(&served).with_context(|| format!("volume {name} is not attached"))?;
        // Without the lock: what was written to the device may take long to get through, and needs its connections.
        self.mark_leaving(index, true);
        if let Err(error) = found.end_if_unused() {
            self.mark_leaving(index, false);
            return Err(error);
        }
        let link = Link::of(name);
        self.attachments().retain(|attachment| attachment.volume != index);
        let disk = found.disk();
        link.remove(disk);
        Ok(Attached { volume: name.clone(), device: disk.path(), link: link.path() })
    }

    fn mark_leaving(&self, volume: VolumeIndex, is_leaving: bool) {
        let mut attachments = self.attachments();
        for attachment in attachments.iter_mut().filter(|attachment| attachment.volume == volume) {
            attachment.is_leaving = is_leaving;
        }
    }

    /// Lets all devices end that nobody uses. The others wait for the next daemon.
    pub fn let_go_of_devices(&self) {
        // Nothing is made new from now on.
        let attachments = std::mem::take(&mut *self.attachments());
        for attachment in attachments {
            match self.let_go(&attachment) {
                Ok(None) => {}
                Ok(Some(users)) => event(
                    Event::WaitsForDaemon,
                    format_args!(
                        "{} is in use ({users}) and waits for the next daemon: start it soon, or its users get errors",
                        attachment.device.disk()
                    ),
                ),
                Err(error) => event(Event::NotAttached, format_args!("{error:#}")),
            }
        }
    }

    /// The users of the device, if it has some; otherwise it is gone, and with it its link.
    fn let_go(&self, attachment: &Attachment) -> Result<Option<String>> {
        let device = &attachment.device;
        let users = device.end_when_unused()?;
        if users.is_none() {
            let name = &self.served(attachment.volume)?.name;
            Link::of(name).remove(device.disk());
        }
        Ok(users)
    }

    /// Makes sure that a volume has no device.
    ///
    /// # Errors
    /// If it has one.
    pub(super) fn refuse_attached(&self, served: &Served) -> Result<()> {
        if let Some(found) = self.found(served) {
            let era = self.era();
            let (name, cache) = (&served.name, &era.identity.device);
            bail!("volume {name} is attached as {}; first: forebay unattach {cache} {name}", found.disk());
        }
        Ok(())
    }

    /// The path of a volume's device.
    pub(super) fn device_of(&self, volume: VolumeIndex) -> Option<String> {
        let attachments = self.attachments();
        let attachment = attachments.iter().find(|attachment| attachment.volume == volume)?;
        Some(attachment.device.disk().path())
    }
}
