//! The halves of a mirrored cache while it runs: its control sockets, what is noted when one is lost, and a device that takes
//! the place of the one that is out.

use super::homecoming::PROGRESS_EVERY;
use super::{Era, Running};
use crate::access::ControlAccess;
use crate::addition::check_cache;
use crate::control::{Listener, Phase, Progress, SocketFile};
use crate::events::Event;
use crate::formatting::{self, NewCache};
use crate::halves::Halves;
use crate::interrupt::spawn;
use crate::log::event;
use crate::output::Size;
use crate::ownership::is_same;
use crate::report::HalfReport;
use crate::run_dir::RunDirectory;
use anyhow::{Context, Result, bail};
use engine::effect::Errno;
use engine::format::SetId;
use engine::pair::{Half, PairStatus, Standing, page_of};
use engine::recovery::{CopyHealth, load_superblock};
use engine::status::Status;
use live::devices::{self, BlockingDevice, Device, DeviceSpec};
use live::server::{ControlError, ControlOp, Pending};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Wish for a device that takes the place of the half that is out, as a verb sends it to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejoinWish {
    /// The device, by a name that does not depend on a directory.
    pub device: String,
    /// The device once more, if it is formatted although it holds something.
    pub wipe: Option<String>,
    /// Whether no space is reserved for a device that is a file.
    pub sparse: bool,
}

/// Result of `replace --mirror`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rejoined {
    /// The cache, as it was named.
    pub cache: String,
    /// The device that counts now.
    pub device: String,
    /// The device that was in its place.
    pub old: String,
    /// Time that it took to copy everything.
    pub seconds: f64,
}

/// The halves of a running cache, as its threads share them.
#[derive(Clone)]
pub(super) struct SharedHalves(Arc<Mutex<Halves>>);

/// Tells what happens to halves.
pub(super) struct HalvesWatch {
    pub halves: SharedHalves,
    /// Wakes the thread that notes it.
    pub lost: Sender<()>,
}

/// The control sockets of a daemon: one for each name of its cache.
#[derive(Default)]
pub(super) struct Sockets(Vec<(DeviceSpec, SocketFile)>);

/// Longest time beyond the timeout of devices that a half has for what is under way there.
const LET_GO_PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two looks at a superblock that is being written.
const NOTE_EVERY: Duration = Duration::from_millis(20);
/// Longest time that is waited for it.
const NOTE_PATIENCE: Duration = Duration::from_secs(60);

type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

impl SharedHalves {
    pub(super) fn new(halves: Halves) -> SharedHalves {
        SharedHalves(Arc::new(Mutex::new(halves)))
    }

    /// Tells what happens to halves: the message is for the thread of [`Sockets::open`].
    pub(super) fn watch(&self) -> (HalvesWatch, Receiver<()>) {
        let (lost, receive) = channel();
        (HalvesWatch { halves: self.clone(), lost }, receive)
    }

    /// Another cache took the place of the one before.
    pub(super) fn succeed(&self, halves: Halves) {
        *self.lock() = halves;
    }

    /// The device of a cache that is not mirrored.
    pub(super) fn only(&self) -> Option<Device> {
        self.lock().only().cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Halves> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of a half; `None` if the cache is not mirrored.
    pub(super) fn name(&self, half: Half) -> Option<String> {
        self.lock().names.as_ref().map(|names| names[half.at()].clone())
    }
}

impl Sockets {
    /// Opens the sockets, and of a mirrored cache the thread that makes notes of halves that are `lost`. All of them wait for what
    /// is running.
    pub(super) fn open(
        named: &DeviceSpec,
        halves: &SharedHalves,
        access: ControlAccess,
        lost: Receiver<()>,
    ) -> Result<(Sockets, Vec<Sender<Arc<Running>>>)> {
        let (mut sockets, mut waiting) = (Sockets::default(), Vec::new());
        let names = halves.lock().all_names(named);
        for name in names {
            let listener = match Listener::open(&RunDirectory::find(), &name, access) {
                Ok(listener) => listener,
                // Where a half does not count there may be another cache by now.
                Err(_) if !sockets.0.is_empty() => continue,
                Err(error) => return Err(error),
            };
            let (send, receive) = channel();
            sockets.0.push((name, listener.answer_with(receive)?));
            waiting.push(send);
        }
        if halves.lock().names.is_none() {
            return Ok((sockets, waiting));
        }
        let (send, receive) = channel::<Arc<Running>>();
        waiting.push(send);
        spawn("halves", move || {
            // The start may fail, and then nothing is lost.
            let Ok(running) = receive.recv() else { return };
            for () in lost {
                running.note_superblock();
            }
        })?;
        Ok((sockets, waiting))
    }

    /// Answers under this name alone.
    pub(super) fn only(&mut self, name: DeviceSpec, socket: SocketFile) {
        self.0 = vec![(name, socket)];
    }
}

impl Era {
    /// The device of a cache that is not mirrored.
    ///
    /// # Errors
    /// If it is mirrored: then it keeps its devices and their size, but for a half that is out.
    pub fn device(&self) -> Result<&Device> {
        let name = &self.name;
        self.device.as_ref().with_context(|| {
            format!(
                "the cache {name} is mirrored, and keeps its two devices and their size; forebay replace {name} --mirror DEV puts \
                 a device in the place of a half that is out"
            )
        })
    }
}

impl Running {
    /// All names of the cache: as it was named, and those of its halves.
    #[must_use]
    pub fn names(&self) -> Vec<DeviceSpec> {
        self.halves.lock().all_names(&self.era().name)
    }

    /// Ends the answers to verbs.
    pub(super) fn close_sockets(&self) {
        drop(std::mem::take(&mut *self.sockets.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    /// Answers verbs under a name of the cache.
    pub(super) fn listen_as(&self, spec: &DeviceSpec) -> Result<SocketFile> {
        let listener = Listener::open(&RunDirectory::find(), spec, self.control)?;
        let (send, receive) = channel();
        if let Some(running) = self.me.get().and_then(std::sync::Weak::upgrade) {
            // The receiver is there.
            let _ = send.send(running);
        }
        listener.answer_with(receive)
    }

    /// HAZARD 9: an older copy, which the half that was lost is from now on, is known by the number of its superblock.
    fn note_superblock(&self) {
        let noted = self.durable_update().and_then(|update| {
            self.record.change(|record| record.superblock_update = record.superblock_update.max(update))
        });
        if let Err(error) = noted {
            event(Event::NotNoted, format_args!("{error:#}"));
        }
    }

    /// The number of the newest superblock, once it is durable: its second copy is written when the first one is.
    fn durable_update(&self) -> Result<u64> {
        let wanted = self.handle.with_core(|engine| engine.superblock().update)?;
        let until = Instant::now() + NOTE_PATIENCE;
        while Instant::now() < until {
            let halves = self.halves.lock().devices.clone();
            let pair = self.picture()?.cache.pair.context("the cache is not mirrored")?;
            let counts = |half: &Half| pair.halves[half.at()].standing == Standing::In;
            let counting = Half::BOTH.into_iter().find(counts).and_then(|half| halves[half.at()].as_ref());
            let device = counting.context("no half of the cache counts")?;
            if let Ok((superblock, [CopyHealth::Current, CopyHealth::Current])) =
                load_superblock(&mut BlockingDevice::new(device))
                && superblock.update >= wanted
            {
                return Ok(superblock.update);
            }
            thread::sleep(NOTE_EVERY);
        }
        bail!("the superblock of the mirrored cache was not written in time")
    }

    /// The halves in `status`.
    pub(super) fn mirror_report(&self, pair: Option<&PairStatus>) -> Vec<HalfReport> {
        let names = self.halves.lock().names.clone();
        let halves = names.into_iter().flatten().zip(pair.into_iter().flat_map(|pair| &pair.halves));
        halves.map(|(name, half)| HalfReport::new(name, half)).collect()
    }

    /// Takes a device in the place of the half that is out, and brings it up to date.
    ///
    /// # Errors
    /// Why it cannot be a half, or failed; then the cache goes on as before.
    pub fn rejoin(&self, wish: &RejoinWish, on_progress: OnProgress<'_>) -> Result<Rejoined> {
        let _changing = self.change_volumes()?;
        let began = Instant::now();
        let era = self.era();
        let half = half_out(&self.picture()?, &era.name)?;
        let spec = devices::parse(&wish.device)?;
        let old = self.halves.name(half).context("the cache is not mirrored")?;
        self.check_half(&spec, half)?;
        // The same device may come back, and then its lock is needed.
        self.let_go_of_half(half)?;
        let device = formatting::open(&spec)?;
        let set_id = self.handle.with_core(|engine| engine.superblock().set_id)?;
        if device.size_bytes() < era.cache_bytes {
            bail!(
                "{spec} has {}, and the cache {}; take a device of that size or more",
                Size(device.size_bytes()),
                Size(era.cache_bytes)
            );
        }
        prepare(&device, wish, &set_id, self)?;
        self.interrupts.watch(&device);
        let copied = self.copy_to(half, &device, on_progress);
        if let Err(error) = copied {
            self.interrupts.unwatch(&device);
            let _ = self.let_go_of_half(half);
            return Err(error).with_context(|| format!("{spec} is no half of the cache {}", era.name));
        }
        let names = self.halves.lock().names.clone();
        self.record.claim_names(&self.names(), names.as_ref())?;
        self.note_superblock();
        let device = spec.absolute().to_string();
        if era.identity.device == old {
            self.call(&device);
        }
        Ok(Rejoined {
            cache: self.era().identity.device.clone(),
            device,
            old,
            seconds: began.elapsed().as_secs_f64(),
        })
    }

    /// Calls the cache by another name in reports: the device that gave it the former one is no part of it any more.
    fn call(&self, device: &str) {
        let mut next = Era::clone(&self.era());
        device.clone_into(&mut next.identity.device);
        *self.era.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }

    /// Refuses a device that cannot be a half of this cache.
    fn check_half(&self, spec: &DeviceSpec, half: Half) -> Result<()> {
        check_cache(spec)?;
        let other = self.halves.name(half.other()).and_then(|name| devices::parse(&name).ok());
        if other.is_some_and(|other| is_same(&other, spec)) {
            bail!("{spec} is the half that counts; name a device for the other one");
        }
        for volume in self.volumes.all() {
            if volume.origin.as_ref().is_some_and(|origin| is_same(spec, origin.spec())) {
                bail!("{spec} is the origin of volume {} of this cache", volume.name);
            }
        }
        Ok(())
    }

    /// Lets go of the device of a half that is out.
    fn let_go_of_half(&self, half: Half) -> Result<()> {
        if let Some(device) = self.halves.lock().devices[half.at()].take() {
            self.interrupts.unwatch(&device);
        }
        let until = Instant::now() + self.options.device_timeout + LET_GO_PATIENCE;
        loop {
            match self.handle.let_go_of_half(half.target()) {
                // It failed something, and has yet to answer the rest, or to time out.
                Err(ControlError::Engine(Errno::BUSY)) if Instant::now() < until => {
                    thread::sleep(PROGRESS_EVERY);
                }
                Err(ControlError::Engine(Errno::BUSY)) => bail!(
                    "devices that are out have not answered yet; try again later, or restart the daemon first"
                ),
                other => return Ok(other?),
            }
        }
    }

    fn copy_to(&self, half: Half, device: &Device, on_progress: OnProgress<'_>) -> Result<()> {
        let name = device.spec().absolute();
        let text = name.to_string();
        self.handle.with_core(move |engine| engine.rename_half(half, &text))?;
        {
            let mut halves = self.halves.lock();
            halves.devices[half.at()] = Some(device.clone());
            if let Some(names) = &mut halves.names {
                names[half.at()] = name.to_string();
            }
        }
        self.answer_also_as(device.spec());
        self.handle.take_half(half.target(), device.clone())?;
        let copy = self.handle.start(self.any_volume()?, ControlOp::Rejoin)?;
        self.await_copy(half, &name, &copy, on_progress)
    }

    fn await_copy(
        &self,
        half: Half,
        name: &DeviceSpec,
        copy: &Pending,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let mut is_heard = true;
        loop {
            if let Some(copied) = copy.wait_for(PROGRESS_EVERY) {
                return copied.map_err(|error| match error {
                    ControlError::Engine(Errno::SHUTDOWN) => anyhow::anyhow!("the daemon is stopping"),
                    error => error.into(),
                });
            }
            let status = self.picture()?;
            let Some(half) = status.cache.pair.map(|pair| pair.halves[half.at()]) else { continue };
            let left_bytes = half.to_copy_bytes.saturating_sub(half.copied_bytes);
            let progress =
                Progress { volume: name.to_string(), phase: Phase::Copying, left_bytes, waits_for: None };
            if is_heard && on_progress(progress).is_break() {
                if self.nbd.is_empty() {
                    bail!("it was interrupted; run it again to begin anew");
                }
                // A daemon goes on although the verb went away.
                is_heard = false;
            }
        }
    }

    /// Answers verbs under the name of a new half, too, and not any more under names that no half has.
    fn answer_also_as(&self, spec: &DeviceSpec) {
        let names = self.names();
        let is_name = |known: &DeviceSpec| names.iter().any(|name| name.canonical() == known.canonical());
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.0.retain(|(known, _)| is_name(known));
        if sockets.0.iter().any(|(known, _)| known.canonical() == spec.canonical()) {
            return;
        }
        match self.listen_as(spec) {
            Ok(socket) => sockets.0.push((spec.clone(), socket)),
            Err(error) => event(
                Event::NotNoted,
                format_args!("no verb reaches the daemon under the name {spec}: {error:#}"),
            ),
        }
    }
}

/// The half that is out.
fn half_out(status: &Status, name: &DeviceSpec) -> Result<Half> {
    let Some(pair) = &status.cache.pair else {
        bail!(
            "the cache {name} is not mirrored; forebay replace {name} DEV puts another device in its place, and forebay create \
             --mirror makes a mirrored one"
        );
    };
    if status.cache.latched {
        bail!("the cache {name} failed; restart the daemon first");
    }
    let is_out = |half: &Half| pair.halves[half.at()].standing != Standing::In;
    Half::BOTH.into_iter().find(is_out).with_context(|| {
        format!(
            "both halves of the cache {name} count, and none is out; to exchange one, stop the daemon, disconnect that one, serve \
             the cache, and then say this again"
        )
    })
}

/// Makes sure that a device may be overwritten: it was a half of this cache before, or holds nothing.
fn prepare(device: &Device, wish: &RejoinWish, set_id: &SetId, running: &Running) -> Result<()> {
    let page = page_of(&mut BlockingDevice::new(device));
    if page.is_some_and(|page| page.set_id == *set_id) {
        return Ok(());
    }
    let wipe = wish.wipe.as_deref().map(devices::parse).transpose()?;
    NewCache { device, wipe: wipe.as_ref(), sparse: wish.sparse }.prepare(&running.state)
}
