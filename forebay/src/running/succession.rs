//! Another device takes the cache's place, or the cache is made anew in another size, while clients work (rule 16).
//!
//! What is dirty goes home, while clients go on. Then the gate before the engine is closed: clients' requests wait, what
//! is left goes home, and the engine stops. Nothing but the origins has data now. The superblocks say durably which
//! cache is the one, a new engine begins with that, empty, and the gate opens. Doors, exports and clients stay.

use super::{Era, Running};
use crate::control::Progress;
use crate::events::Event;
use crate::formatting::{self, NewCache};
use crate::halves::Halves;
use crate::log::event;
use crate::output::Size;
use crate::ownership::is_same;
use crate::report::{CacheIdentity, now_seconds};
use crate::startup::{begin_on, check_memory, discards, engine_config, random_bytes, share_memory};
use crate::superblock::{self, system};
use anyhow::{Context, Result, anyhow, bail};
use engine::effect::Errno;
use engine::engine::Engine;
use engine::format::{Change, Layout, Superblock};
use engine::mutation::Mutations;
use engine::recovery::{self, SuccessionError};
use engine::units::VolumeIndex;
use live::devices::{self, BlockingDevice, Device, DeviceSpec};
use live::server::{ControlError, ControlOp, Pending};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Longest time that clients' requests wait for what is dirty to go home. If it takes longer they go on, and it is
/// tried again.
const PATIENCE: Duration = Duration::from_secs(2);
/// Attempts to find a moment with nothing dirty.
const ATTEMPTS_MAX: u32 = 20;
/// Attempts to write superblocks to a device that fails now and then.
const WRITES_MAX: u32 = 3;
/// Records of slots that are written while clients wait, at the most.
const RECORDS_BYTES_MAX: u64 = 256 << 20;

/// Wish for another cache device, as a verb sends it to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplaceWish {
    /// The new device, by a name that does not depend on a directory.
    pub device: String,
    /// The new device once more, if it is formatted although it holds something.
    pub wipe: Option<String>,
    /// Whether no space is reserved for a device that is a file.
    pub sparse: bool,
}

/// Result of `replace` and `resize`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Succeeded {
    /// The device before.
    pub old: String,
    /// The device now.
    pub cache: String,
    /// The size of the cache before.
    pub old_bytes: u64,
    /// The size of the cache now.
    pub cache_bytes: u64,
    /// The set id of the cache now.
    pub set_id: String,
    /// Time for which clients' requests had to wait.
    pub held_seconds: f64,
}

/// The cache that is to be the one.
enum Successor {
    /// On another device, which was formatted.
    Heir(Device),
    /// On the same device, in another size.
    Same { cache_bytes: u64 },
}

/// Why there was no moment with nothing dirty.
enum Held {
    /// It took too long.
    TooLong,
    /// It cannot be.
    Failed(anyhow::Error),
}

impl From<ControlError> for Held {
    fn from(error: ControlError) -> Held {
        Held::Failed(error.into())
    }
}

type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

impl Running {
    /// Puts another device in the place of the cache.
    ///
    /// # Errors
    /// Why it cannot take that place; then the cache is served as before, unless the error says otherwise.
    pub fn replace(&self, wish: &ReplaceWish, on_progress: OnProgress<'_>) -> Result<Succeeded> {
        let _changing = self.change_volumes()?;
        let era = self.era();
        era.device()?;
        let superblock = self.superblock_to_succeed(&era)?;
        let spec = devices::parse(&wish.device)?;
        let wipe = wish.wipe.as_deref().map(devices::parse).transpose()?;
        if is_same(&spec, &era.name) {
            bail!("{spec} is the cache already; forebay resize gives it another size");
        }
        for volume in self.volumes.all() {
            if volume.origin.as_ref().is_some_and(|origin| is_same(&spec, origin.spec())) {
                bail!("{spec} is the origin of volume {} of this cache", volume.name);
            }
        }
        let device = formatting::open(&spec)?;
        let (profile, composition) = (&superblock.profile, &era.identity.composition);
        let layout = formatting::divide(profile, composition, &spec, device.size_bytes())?;
        let set_id = random_bytes().context("cannot make a new set id")?;
        let heir = recovery::heir(&superblock, set_id, device.size_bytes(), layout);
        self.check_room(&heir)?;
        NewCache { device: &device, wipe: wipe.as_ref(), sparse: wish.sparse }.prepare(&self.state)?;
        self.interrupts.watch(&device);
        let succeeded = self.succeed_by(&device, &heir, on_progress);
        if succeeded.is_err() && self.era().identity.set_id == era.identity.set_id && self.broken().is_none()
        {
            // Nothing is left of it: the device is no cache.
            formatting::unformat(&device);
            self.let_go_of_cache(device);
        }
        succeeded
    }

    fn succeed_by(
        &self,
        device: &Device,
        heir: &Superblock,
        on_progress: OnProgress<'_>,
    ) -> Result<Succeeded> {
        let spec = device.spec();
        recovery::write_heir(&mut BlockingDevice::new(device), heir, Mutations::NONE)
            .map_err(system)
            .with_context(|| format!("{spec} failed while it was formatted"))?;
        self.handle.learn_cache(device.clone()).with_context(|| format!("{spec} cannot be used"))?;
        self.succeed(&Successor::Heir(device.clone()), on_progress)
    }

    /// Gives the cache another size: that of its device, or a smaller one.
    ///
    /// # Errors
    /// Why it cannot have it; then the cache is served as before, unless the error says otherwise.
    pub fn resize(&self, wanted_bytes: Option<u64>, on_progress: OnProgress<'_>) -> Result<Succeeded> {
        let _changing = self.change_volumes()?;
        let era = self.era();
        let device = era.device()?;
        let superblock = self.superblock_to_succeed(&era)?;
        let spec = &era.name;
        let cache_bytes = formatting::size_of(device, wanted_bytes)?;
        if cache_bytes == superblock.cache_bytes {
            bail!("the cache {spec} has {} already", Size(cache_bytes));
        }
        let layout = formatting::divide(&superblock.profile, &era.identity.composition, spec, cache_bytes)?;
        if let Layout::Slots(slots) = &layout
            && slots.metadata().len_bytes > RECORDS_BYTES_MAX
            && !self.nbd.is_empty()
        {
            bail!(
                "clients would wait too long while {} of records of slots are written; stop the daemon first, or replace \
                 the device",
                Size(slots.metadata().len_bytes)
            );
        }
        self.check_room(&recovery::heir(&superblock, superblock.set_id, cache_bytes, layout))?;
        if cache_bytes > superblock.cache_bytes {
            formatting::reserve_space(device)?;
        }
        self.succeed(&Successor::Same { cache_bytes }, on_progress)
    }

    /// The superblock of a cache whose place may be taken.
    fn superblock_to_succeed(&self, era: &Era) -> Result<Superblock> {
        let status = self.picture()?;
        if status.cache.latched {
            bail!("the cache {} failed; restart the daemon first", era.name);
        }
        if let Some(lost) = status.volumes.iter().find(|volume| volume.lost_bytes > 0) {
            let (spec, name) = (&era.name, &lost.name);
            bail!("volume {name} has lost data; give it up first: forebay set {spec} {name} lost=give-up");
        }
        Ok(self.handle.with_core(|engine| engine.superblock().clone())?)
    }

    /// Makes sure that there is memory for a cache of another size.
    fn check_room(&self, heir: &Superblock) -> Result<()> {
        let composition = superblock::composition(heir, "the new cache")?;
        let config = engine_config(heir, &composition, discards(self.volumes.all().iter().map(|one| &**one)));
        let shares = share_memory((heir, false), &config, &self.options)?;
        check_memory(shares.index_bytes)?;
        if shares.pool_bytes - shares.kept_bytes > self.memory.pool_bytes - self.memory.kept_bytes {
            bail!("a cache of that size needs more memory for buffers; stop the daemon first");
        }
        Ok(())
    }

    fn succeed(&self, successor: &Successor, on_progress: OnProgress<'_>) -> Result<Succeeded> {
        let era = self.era();
        let since = self.hold_requests(on_progress)?;
        let stop = self.handle.start_behind_gate(VolumeIndex(0), ControlOp::Stop);
        let stopped = stop.and_then(Pending::wait);
        if let Err(error @ ControlError::Stopped) = stopped {
            // The daemon ends, and the engine was not asked: no session may begin beside it.
            let _ = self.handle.open_gate();
            return Err(error.into());
        }
        let begun = self.check_stop(&era, stopped).and_then(|()| self.hand_over(&era, successor));
        let entered = begun.and_then(|(next, engine)| self.go_on_with(next, engine, successor));
        let next = match entered {
            Ok(next) => next,
            Err(error) => return Err(self.go_on_as_before(&era, error)),
        };
        self.handle.open_gate()?;
        self.tell_engine_again()?;
        let succeeded = Succeeded {
            old: era.identity.device.clone(),
            cache: next.identity.device.clone(),
            old_bytes: era.cache_bytes,
            cache_bytes: next.cache_bytes,
            set_id: next.identity.set_id.clone(),
            held_seconds: since.elapsed().as_secs_f64(),
        };
        if matches!(successor, Successor::Heir(_)) {
            self.answer_as(&next.name);
            let old = era.device.clone();
            drop(era);
            if let Some(old) = old {
                self.let_go_of_cache(old);
            }
        }
        Ok(succeeded)
    }

    /// Brings everything home, and keeps requests back at a moment with nothing dirty. Returns since when they wait.
    fn hold_requests(&self, on_progress: OnProgress<'_>) -> Result<Instant> {
        for _ in 0..ATTEMPTS_MAX {
            for served in self.volumes.all() {
                self.drain(&served, on_progress)?;
            }
            let since = Instant::now();
            match self.drain_behind_gate(since + PATIENCE) {
                Ok(()) if self.is_all_home()? => return Ok(since),
                Ok(()) | Err(Held::TooLong) => self.handle.open_gate()?,
                Err(Held::Failed(error)) => {
                    self.handle.open_gate()?;
                    return Err(error);
                }
            }
        }
        bail!(
            "in {ATTEMPTS_MAX} attempts there was no moment without dirty data: the origins are too slow for what clients \
             write; try again when there is less to do"
        )
    }

    /// Closes the gate, and brings home what the last requests before it left dirty.
    fn drain_behind_gate(&self, until: Instant) -> Result<(), Held> {
        let wait = |pending: &Pending| pending.wait_for(until.saturating_duration_since(Instant::now()));
        wait(&self.handle.close_gate()?).ok_or(Held::TooLong)??;
        for served in self.volumes.all().iter().filter(|served| served.origin.is_some()) {
            let drain = self.handle.start_behind_gate(served.index, ControlOp::Drain)?;
            match wait(&drain) {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    let name = &served.name;
                    return Err(Held::Failed(anyhow!(
                        "volume {name} could not be flushed: {error}; see forebay status"
                    )));
                }
                None => {
                    self.handle.start_behind_gate(served.index, ControlOp::CancelDrain)?.wait()?;
                    return Err(Held::TooLong);
                }
            }
        }
        Ok(())
    }

    fn is_all_home(&self) -> Result<bool> {
        Ok(self.picture()?.volumes.iter().all(|volume| volume.dirty_bytes + volume.lost_bytes == 0))
    }

    /// Refuses to go on after an engine that was not stopped cleanly, with nothing left to bring home.
    fn check_stop(&self, era: &Era, stopped: Result<(), ControlError>) -> Result<()> {
        let spec = &era.name;
        stopped.with_context(|| format!("the cache {spec} did not stop cleanly"))?;
        let is_home = self.handle.with_core(|engine| {
            let superblock = engine.superblock();
            superblock.clean_stop && superblock.line.is_home && !engine.status().cache.latched
        })?;
        if !is_home {
            bail!("the cache {spec} was not stopped with all of its data at the origins");
        }
        Ok(())
    }

    /// RULE 16: the superblocks say which cache is the one, then the notes, and only then a session begins there.
    fn hand_over(&self, era: &Era, successor: &Successor) -> Result<(Era, Engine)> {
        let here = era.device()?;
        let mut old = BlockingDevice::new(here);
        let written_bytes = self.lifetime_written_bytes(&self.picture()?);
        let (device, handed, carried_bytes) = match successor {
            Successor::Heir(device) => {
                let mut new = BlockingDevice::new(device);
                let (heir, _) = recovery::load_superblock(&mut new)?;
                self.lasting.iter().try_for_each(|lasting| lasting.name_for(&heir.set_id))?;
                (device, repeat(|| recovery::hand_over(&mut old, &mut new, Mutations::NONE)), 0)
            }
            Successor::Same { cache_bytes } => {
                let set_id = random_bytes().context("cannot make a new set id")?;
                self.lasting.iter().try_for_each(|lasting| lasting.name_for(&set_id))?;
                let composition = era.identity.composition;
                let layout =
                    formatting::divide(&era.identity.profile, &composition, &era.name, *cache_bytes)?;
                let remade = repeat(|| {
                    recovery::remake(&mut old, (set_id, *cache_bytes), |_, _| layout, Mutations::NONE)
                });
                (here, remade, written_bytes)
            }
        };
        let superblock =
            handed.with_context(|| format!("the cache {} cannot give its place up", era.name))?;
        let mut notes = self.state.load_or_new(&superblock.set_id)?;
        notes.written_bytes = carried_bytes;
        self.record.succeed(notes, device.spec())?;
        let composition = superblock::composition(&superblock, &device.spec().to_string())?;
        let volumes = self.volumes.all();
        let mut config = engine_config(&superblock, &composition, discards(volumes.iter().map(|one| &**one)));
        let shares = share_memory((&superblock, false), &config, &self.options)?;
        if shares.kept_bytes > self.memory.kept_bytes {
            config.limit_memory(self.memory.kept_bytes / engine::units::BLOCK_BYTES);
        }
        let change = match successor {
            Successor::Heir(_) => {
                ("device", era.identity.device.clone(), device.spec().absolute().to_string())
            }
            Successor::Same { cache_bytes } => {
                ("size_bytes", era.cache_bytes.to_string(), cache_bytes.to_string())
            }
        };
        let change = Change::new(now_seconds(), "", change.0, &change.1, &change.2);
        let lasting = self.lasting.as_ref();
        let begun = begin_on(device, &self.record, (config, shares.index_bytes), lasting, Some(change))?;
        lasting.into_iter().for_each(|lasting| lasting.name_only(&superblock.set_id));
        let next = Era {
            name: device.spec().clone(),
            device: Some(device.clone()),
            cache_bytes: superblock.cache_bytes,
            session: begun.engine.superblock().session,
            began: Instant::now(),
            recovery: begun.recovery,
            written_before_bytes: carried_bytes,
            identity: CacheIdentity::new(device.spec(), &superblock, &composition),
        };
        Ok((next, begun.engine))
    }

    /// HAZARD 11: the clients stay: what the engine before did not tell them, this one has to.
    fn take_over_losses(&self, engine: &mut Engine) -> Result<(), ControlError> {
        engine.take_over_losses(&self.handle.with_core(|before| before.untold_losses())?);
        Ok(())
    }

    fn go_on_with(&self, next: Era, mut engine: Engine, successor: &Successor) -> Result<Arc<Era>> {
        self.take_over_losses(&mut engine)?;
        let cache = next.device.clone().filter(|_| matches!(successor, Successor::Heir(_)));
        self.handle.swap(engine, cache).context("the cache before has operations under way")?;
        // The lock of the one before ends with its last user.
        next.device.iter().for_each(|device| self.halves.succeed(Halves::single(device)));
        let next = Arc::new(next);
        *self.era.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&next);
        self.forget_holds();
        // Its marks are of another engine.
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = super::Watch::new();
        Ok(next)
    }

    /// Goes on with the cache as it was, if that is still the one. If not the daemon ends: what is left to do is told by the
    /// superblocks.
    fn go_on_as_before(&self, era: &Era, error: anyhow::Error) -> anyhow::Error {
        let resumed = self.begin_again(era);
        let opened = self.handle.open_gate();
        let resumed = resumed.and(opened.map_err(anyhow::Error::from));
        match resumed.and_then(|()| self.tell_engine_again()) {
            Ok(()) => error,
            Err(worse) => {
                let why = format!("{error:#}; the daemon ends: {worse:#}");
                let _ = self.broken.set(why.clone());
                anyhow!(why)
            }
        }
    }

    fn begin_again(&self, era: &Era) -> Result<()> {
        let volumes = self.volumes.all();
        let superblock = superblock::load(&mut BlockingDevice::new(era.device()?), &era.identity.device)?;
        let composition = &era.identity.composition;
        let config = engine_config(&superblock, composition, discards(volumes.iter().map(|one| &**one)));
        let (bounds, lasting) = ((config, self.memory.index_bytes), self.lasting.as_ref());
        let mut begun = begin_on(era.device()?, &self.record, bounds, lasting, None)?;
        self.take_over_losses(&mut begun.engine)?;
        self.handle.swap(begun.engine, None).context("the cache has operations under way")?;
        self.forget_holds();
        Ok(())
    }

    /// Answers verbs under another name of the cache from now on.
    fn answer_as(&self, spec: &DeviceSpec) {
        match self.listen_as(spec) {
            Ok(socket) => {
                self.sockets.lock().unwrap_or_else(PoisonError::into_inner).only(spec.clone(), socket);
            }
            Err(error) => event(
                Event::NotNoted,
                format_args!(
                    "no verb reaches the daemon under the name {spec}: {error:#}; restart it with that"
                ),
            ),
        }
    }

    fn let_go_of_cache(&self, device: Device) {
        self.interrupts.unwatch(&device);
        // It fails if the daemon is stopping, which lets go of everything.
        let _ = self.handle.forget_cache(device);
    }

    /// Why the daemon cannot go on, if it cannot.
    #[must_use]
    pub fn broken(&self) -> Option<&str> {
        self.broken.get().map(String::as_str)
    }
}

/// Repeats what a device may have failed by chance: it goes on where it was.
fn repeat<T>(mut job: impl FnMut() -> Result<T, SuccessionError>) -> Result<T> {
    let mut tries = 1;
    loop {
        match job() {
            Err(SuccessionError::Device(errno))
                if tries < WRITES_MAX && !errno.is_gone() && errno != Errno::NOSPC =>
            {
                tries += 1;
            }
            result => return result.map_err(anyhow::Error::from),
        }
    }
}
