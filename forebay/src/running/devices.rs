//! Volumes of a running cache as devices of this machine: made, kept alive, taken over, and let go of.

use super::Running;
use crate::attachment::{
    AttachOptions, Attached, Identifier, KernelDevice, Link, end_if_unused, end_when_closed, stay_in_memory,
};
use crate::events::Event;
use crate::log::event;
use crate::startup::Served;
use anyhow::{Context, Result, bail};
use engine::units::VolumeIndex;
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

impl Running {
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
        if let Some((number, _)) = Identifier::find(&self.era().identity.line_id, served.id.0) {
            bail!("volume {} is attached already, as /dev/nbd{number}", served.name);
        }
        let identifier = Identifier {
            set_id: self.era().identity.line_id.clone(),
            volume_id: served.id.0,
            connections: options.connections(),
            name: served.name.clone(),
        };
        let link = Link::of(&served.name);
        link.check(&identifier)?;
        let device = KernelDevice::make(identifier, options, &|sockets| self.serve_sockets(served, sockets))
            .with_context(|| format!("cannot attach volume {}", served.name))?;
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

    fn serve_sockets(
        &self,
        served: &Served,
        sockets: Vec<std::os::fd::OwnedFd>,
    ) -> Result<live::doors::Export> {
        self.handle
            .serve_sockets(served.index, sockets)
            .with_context(|| format!("volume {} is not served", served.name))
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
        let number = device.index();
        let attached = Attached { volume: served.name.clone(), device: device.path(), link: link.path() };
        attachments.push(Attachment { volume: served.index, device, said: String::new(), is_leaving: false });
        link.lead_to(number)?;
        Ok(attached)
    }

    /// Takes the devices over that an earlier daemon has left. Those that cannot be had are tried again later.
    pub fn take_over_devices(&self, options: &AttachOptions) {
        let hold = options.hold_seconds.map(|_| options.hold());
        let mut attachments = self.attachments();
        for served in self.volumes.all().iter().filter(|served| served.origin.is_some()) {
            let Some((number, identifier)) = Identifier::find(&self.era().identity.line_id, served.id.0)
            else {
                continue;
            };
            let mut device = KernelDevice::left(number, identifier);
            let until = Instant::now() + TAKE_OVER_PATIENCE;
            let result = loop {
                match device.reconnect(hold, &|sockets| self.serve_sockets(served, sockets)) {
                    Err(_) if Instant::now() < until && device.exists() => thread::sleep(TAKE_OVER_PAUSE),
                    result => break result,
                }
            };
            let path = device.path();
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
                    format_args!("cannot take {path} over: {error:#}; it is tried again"),
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
                Link::of(&served.name).remove(attachment.device.index());
                event(
                    Event::TakenAway,
                    format_args!("{} was taken away by somebody else", attachment.device.path()),
                );
                return false;
            }
            let result = attachment.device.reconnect(None, &|sockets| self.serve_sockets(&served, sockets));
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
        let found = Identifier::find(&self.era().identity.line_id, served.id.0);
        let (number, identifier) = found.with_context(|| format!("volume {name} is not attached"))?;
        // Without the lock: what was written to the device may take long to get through, and needs its connections.
        self.mark_leaving(index, true);
        if let Err(error) = end_if_unused(number, &identifier) {
            self.mark_leaving(index, false);
            return Err(error);
        }
        let link = Link::of(name);
        self.attachments().retain(|attachment| attachment.volume != index);
        link.remove(number);
        Ok(Attached {
            volume: name.clone(),
            device: crate::attachment::device_path(number),
            link: link.path(),
        })
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
                        attachment.device.path()
                    ),
                ),
                Err(error) => event(Event::NotAttached, format_args!("{error:#}")),
            }
        }
    }

    /// The users of the device, if it has some; otherwise it is gone, and with it its link.
    fn let_go(&self, attachment: &Attachment) -> Result<Option<String>> {
        let device = &attachment.device;
        let users = end_when_closed(device.index(), device.identifier())?;
        if users.is_none() {
            let name = &self.served(attachment.volume)?.name;
            Link::of(name).remove(device.index());
        }
        Ok(users)
    }

    /// Makes sure that a volume has no device.
    ///
    /// # Errors
    /// If it has one.
    pub(super) fn refuse_attached(&self, served: &Served) -> Result<()> {
        if let Some((number, _)) = Identifier::find(&self.era().identity.line_id, served.id.0) {
            let era = self.era();
            let (name, cache) = (&served.name, &era.identity.device);
            bail!("volume {name} is attached as /dev/nbd{number}; first: forebay unattach {cache} {name}");
        }
        Ok(())
    }

    /// The path of a volume's device.
    pub(super) fn device_of(&self, volume: VolumeIndex) -> Option<String> {
        let attachments = self.attachments();
        let attachment = attachments.iter().find(|attachment| attachment.volume == volume)?;
        Some(attachment.device.path())
    }
}
