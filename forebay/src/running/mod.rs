//! A running cache: the common part of the daemon and of the verbs that work without one.

mod adding;
mod change;
mod devices;
pub mod halves;
mod homecoming;
pub mod notices;
pub mod recording;
mod sampling;
mod schedule;
pub mod scrubbing;
mod settings;
pub mod succession;
mod volumes;
pub mod warming;
mod watch;
mod wear;

use crate::access::{Access, ControlAccess};
use crate::arguments::RunOptions;
use crate::attachment::AttachOptions;
use crate::configuration::Configuration;
use crate::control::{Answer, Answering, Progress, Question};
use crate::events::Event;
use crate::interrupt::{Interrupts, spawn};
use crate::lasting::LastingFile;
use crate::log::{Log, event};
use crate::losses::Losses;
use crate::ownership::User;
use crate::report::{
    AdviceReport, CacheIdentity, CacheReport, LimitsReport, Measured, RecoveryReport, StatsReport,
    StatusReport, VolumeFacts, VolumeReport, WearFacts, changes,
};
use crate::startup::{Begun, MemoryShares, Prepared, Served};
use crate::state::{LiveRecord, RecordNote, StateDirectory};
use crate::superblock::choose_name;
use crate::watchers::{Figures, Source};
use anyhow::{Context, Result, bail};
use engine::effect::{Errno, WriteMode};
use engine::engine::Engine;
use engine::format::Superblock;
use engine::status::{Counters, Status, VolumeStatus};
use engine::units::{VOLUMES_MAX, VolumeIndex};
use halves::{SharedHalves, Sockets};
use live::devices::{Device, DeviceSpec};
use live::server::{
    Acceptor, Config, ControlError, ExportConfig, Handle, ListenAddress, SOCKET_PERMISSIONS_DEFAULT, Server,
    TlsError,
};
use notices::{abandon, doubt, notices};
use sampling::Sampling;
use schedule::Schedule;
pub use schedule::flush_on_schedule;
use scrubbing::Scrubbing;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak, mpsc};
use std::time::{Duration, Instant};
use volumes::ServedVolumes;
use warming::ListKeeping;
use watch::Watch;

/// A cache that runs.
pub struct Running {
    handle: Handle<Engine>,
    volumes: ServedVolumes,
    record: Arc<LiveRecord>,
    /// The cache that it runs with now.
    era: RwLock<Arc<Era>>,
    nbd: Vec<ListenAddress>,
    /// The certificates for clients over TCP.
    tls: Option<Arc<Acceptor>>,
    /// Who may use its control socket.
    control: ControlAccess,
    /// The error after which the cache is not written any more.
    latch: Arc<OnceLock<Errno>>,
    /// Jobs that bring a volume's data home, by its slot: one that is interrupted must not end the others.
    drains: Mutex<[u32; VOLUMES_MAX]>,
    /// Figures that need to know the past.
    watch: Mutex<Watch>,
    /// Hours of the day that the engine was told of.
    schedule: Mutex<Schedule>,
    /// The load of late.
    sampling: Mutex<Sampling>,
    watching: Watched,
    /// The configuration as it was read last.
    configuration: Mutex<Option<Arc<Configuration>>>,
    /// Held from before a note on dirty data is made until its event has happened, so that `may_be_dirty` is never
    /// taken away from a volume that is just going into writeback.
    note_lock: Mutex<()>,
    /// Held while volumes are added or taken off.
    changing: Mutex<()>,
    /// How volumes that are added become devices, if all volumes are.
    attach_all: Option<AttachOptions>,
    /// Notes on all caches.
    state: StateDirectory,
    interrupts: Interrupts,
    options: RunOptions,
    memory: MemoryShares,
    /// Itself, to answer verbs under another name.
    me: OnceLock<Weak<Running>>,
    /// The control sockets, as long as they are there.
    sockets: Mutex<Sockets>,
    /// The halves of a mirrored cache.
    halves: SharedHalves,
    /// Why the daemon cannot go on.
    broken: OnceLock<String>,
    /// The volumes that are devices of this machine.
    attachments: Mutex<Vec<devices::Attachment>>,
    /// Its own warm list.
    list_keeping: ListKeeping,
    /// Where a warm list in the state directory is, or would be.
    kept_list: PathBuf,
    /// Bytes left of the warm-up by itself; 0 if none is under way.
    warming_left_bytes: AtomicU64,
    /// Its scrubs.
    scrubbing: Scrubbing,
    is_ending: AtomicBool,
    /// The file of memory that outlives the daemon, if there is one.
    lasting: Option<LastingFile>,
    /// Number of times that an origin was noted to need its cache after a failure.
    doubts: Arc<AtomicU64>,
    /// Notes on what origins lost.
    losses: Arc<Losses>,
}

/// A cache, from the beginning of a session with it to the end.
#[derive(Clone)]
pub struct Era {
    /// The cache as the operator named it.
    pub name: DeviceSpec,
    /// Its device; `None` if it is mirrored.
    device: Option<Device>,
    /// Its size.
    pub cache_bytes: u64,
    /// Its identity in reports.
    pub identity: CacheIdentity,
    /// The number of the session.
    pub session: u64,
    /// When it began.
    pub began: Instant,
    /// Findings of recovery.
    pub recovery: RecoveryReport,
    /// Bytes written to it by earlier sessions, as far as they were noted.
    pub written_before_bytes: u64,
}

impl Era {
    /// The cache as a user of an origin in that mode.
    pub(super) fn user(&self, mode: WriteMode) -> User<'_> {
        User { cache: &self.name, set_id: &self.identity.set_id, mode }
    }

    /// The era of the cache with which a daemon begins.
    fn first(
        name: DeviceSpec,
        device: Option<Device>,
        identity: CacheIdentity,
        begun: &Begun,
        written_before_bytes: u64,
    ) -> Era {
        let superblock = begun.engine.superblock();
        Era {
            name,
            device,
            cache_bytes: superblock.cache_bytes,
            identity,
            session: superblock.session,
            began: Instant::now(),
            recovery: begun.recovery,
            written_before_bytes,
        }
    }
}

/// Settings of how a daemon is watched.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The address of its metrics.
    pub metrics: Option<ListenAddress>,
    /// The address of its web page.
    pub web: Option<ListenAddress>,
    /// Bytes that the cache device may be written in its life.
    pub endurance_bytes: Option<u64>,
    /// Bytes that it may be written in a day, unless something else is set.
    pub wear_budget_bytes: Option<u64>,
    /// Days from one scrub to the next, unless something else is set.
    pub scrub_days: Option<u16>,
    /// The configuration file that it was started with.
    pub configuration: Option<Arc<Configuration>>,
}

/// Doors of a daemon: addresses, device timeout, threads; and how it is watched.
pub struct Doors {
    /// Addresses for NBD clients; none if the cache runs for a verb alone.
    pub listen: Vec<ListenAddress>,
    /// Permissions of unix sockets among them.
    pub socket_permissions: u32,
    /// Who may connect.
    pub access: Access,
    /// A device that does not answer for this long counts as gone.
    pub device_timeout: Duration,
    /// Number of threads that serve clients.
    pub threads: usize,
    /// How it is watched.
    pub watching: Watched,
    /// How volumes become devices, if all are to be.
    pub attach: Option<AttachOptions>,
    /// Its own warm list.
    pub list_keeping: ListKeeping,
}

impl Doors {
    /// No doors: the cache runs for a verb alone.
    #[must_use]
    pub fn none(device_timeout: Duration) -> Doors {
        Doors {
            listen: Vec::new(),
            socket_permissions: SOCKET_PERMISSIONS_DEFAULT,
            access: Access::private(),
            device_timeout,
            threads: 1,
            watching: Watched::default(),
            attach: None,
            list_keeping: ListKeeping::default(),
        }
    }
}

/// Runs a cache until `job` is done, then stops it cleanly. The job runs in a thread of its own.
///
/// RULE 11: all that a start can lack (addresses, the control socket, memory, threads, descriptors) is taken before
/// the session begins. A start that lacks something leaves cache and notes as they were.
///
/// # Errors
/// The error of the job, or of running or stopping the cache.
pub fn run<T: Send + 'static>(
    prepared: Prepared,
    doors: Doors,
    interrupts: &Interrupts,
    job: impl FnOnce(&Arc<Running>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let Prepared { cache, halves, volumes, record, state, identity, memory, options, session, lasting } =
        prepared;
    let (lasting, lasting_memory) = lasting.unzip();
    let volumes = ServedVolumes::new(volumes);
    let (log, printer) = Log::open()?;
    let latch = Arc::new(OnceLock::new());
    let is_daemon = !doors.listen.is_empty();
    let exports = if is_daemon { exports(&volumes) } else { Vec::new() };
    let doubts = Arc::new(AtomicU64::new(0));
    let ([first, second], shared) = (halves.devices.clone(), SharedHalves::new(halves));
    let (half_watch, lost) = shared.watch();
    let doubt = doubt(&volumes, &record, identity.ephemeral, Arc::clone(&doubts), log.clone());
    let losses = Losses::new(&record);
    let noted_losses = Arc::clone(&losses);
    let config = Config {
        pool_bytes: memory.pool_bytes,
        kept_bytes: memory.kept_bytes,
        lasting: lasting_memory,
        cache: first,
        mirror: second,
        origins: origins(&volumes),
        exports,
        listen: doors.listen,
        socket_permissions: doors.socket_permissions,
        socket_group: doors.access.group.map(|group| group.0),
        tls: doors.access.tls.clone(),
        limits: doors.access.limits,
        abandon: abandon(&volumes, &record, log.clone()),
        device_timeout: doors.device_timeout,
        notice: Box::new(notices(&volumes, is_daemon, &latch, log, half_watch, doubt, noted_losses)),
        reactors: doors.threads,
    };
    let (server, handle) = Server::new(config)?;
    let (sockets, answering) = Sockets::open(&cache, &shared, doors.access.control, lost)?;
    let (start, outcome) = do_once_started(job)?;
    let (nbd, watching, list_keeping) = (server.addresses().to_vec(), doors.watching, doors.list_keeping);
    let (kept_list, written_before_bytes) = (record.list(), record.written_bytes());
    let mut begun = None;
    let engine = server.run(|| {
        interrupts.attend();
        let mut begun_now = session.begin()?;
        volumes.hand_on(&losses, &mut begun_now.engine);
        let era = Era::first(cache, shared.only(), identity, &begun_now, written_before_bytes);
        let Begun { engine, .. } = begun_now;
        let running = Arc::new(Running {
            handle,
            volumes,
            record,
            sampling: Mutex::new(Sampling::new(era.cache_bytes)),
            era: RwLock::new(Arc::new(era)),
            nbd,
            tls: doors.access.tls,
            control: doors.access.control,
            latch,
            drains: Mutex::default(),
            watch: Mutex::new(Watch::new()),
            schedule: Mutex::default(),
            configuration: Mutex::new(watching.configuration.clone()),
            watching,
            note_lock: Mutex::default(),
            changing: Mutex::default(),
            attach_all: doors.attach,
            state,
            interrupts: interrupts.clone(),
            options,
            memory,
            me: OnceLock::new(),
            sockets: Mutex::new(sockets),
            halves: shared,
            broken: OnceLock::new(),
            attachments: Mutex::default(),
            doubts,
            losses,
            list_keeping,
            kept_list,
            warming_left_bytes: AtomicU64::new(0),
            scrubbing: Scrubbing::default(),
            is_ending: AtomicBool::new(false),
            lasting,
        });
        let _ = running.me.set(Arc::downgrade(&running));
        begun = Some(Arc::clone(&running));
        // All these threads wait for it.
        answering.iter().for_each(|answering| drop(answering.send(Arc::clone(&running))));
        let _ = start.send(running);
        Ok::<_, anyhow::Error>(engine)
    })?;
    let begun = begun.context("the session did not begin")?;
    begun.close_sockets();
    printer.finish();
    begun.note_clean(&engine);
    outcome.recv().context("the job ended without a result")?
    // The devices and with them the locks end here, after all notes are made.
}

/// The way to begin a job, and its outcome.
type Started<T> = (mpsc::Sender<Arc<Running>>, mpsc::Receiver<Result<T>>);

/// Starts the thread of the job, which waits for the session to begin, and stops the cache when the job is done.
fn do_once_started<T: Send + 'static>(
    job: impl FnOnce(&Arc<Running>) -> Result<T> + Send + 'static,
) -> Result<Started<T>> {
    let (start, started) = mpsc::channel::<Arc<Running>>();
    let (done, outcome) = mpsc::channel();
    spawn("job", move || {
        // Without a session there is no job.
        let Ok(running) = started.recv() else { return };
        let result = job(&running);
        let stopped = running.handle.stop().context("the cache did not stop cleanly");
        // The receiver exists as long as the server runs; after its failure the result is not needed.
        let _ = done.send(result.and_then(|value| stopped.map(|()| value)));
    })?;
    Ok((start, outcome))
}

/// The origins by slot.
fn origins(volumes: &ServedVolumes) -> Vec<Option<Device>> {
    let mut origins = vec![None; VOLUMES_MAX];
    for volume in volumes.all() {
        origins[volume.index.at()].clone_from(&volume.origin);
    }
    origins
}

fn exports(volumes: &ServedVolumes) -> Vec<ExportConfig> {
    volumes.all().iter().filter(|volume| volume.origin.is_some()).map(|volume| export(volume)).collect()
}

/// A volume as its clients see it.
fn export(volume: &Served) -> ExportConfig {
    ExportConfig {
        volume: volume.index,
        name: volume.name.clone(),
        size_bytes: volume.size_bytes,
        min_block_bytes: volume.min_block_bytes,
        read_only: volume.mode == WriteMode::Readonly,
    }
}

impl Running {
    pub fn picture(&self) -> Result<Status> {
        Ok(self.handle.with_core(|engine| engine.status())?)
    }

    /// A volume for a request that is about none; there may be no first one any more.
    fn any_volume(&self) -> Result<VolumeIndex> {
        Ok(self.picture()?.volumes.first().map_or(VolumeIndex(0), |volume| volume.index))
    }

    fn volume(&self, served: &Served) -> Result<VolumeStatus> {
        let mut volumes = self.picture()?.volumes.into_iter();
        volumes.find(|volume| volume.index == served.index).context("the volume is gone")
    }

    fn served(&self, index: VolumeIndex) -> Result<Arc<Served>> {
        self.volumes.of(index).context("the volume is gone")
    }

    /// Addresses for NBD clients.
    #[must_use]
    pub fn nbd(&self) -> &[ListenAddress] {
        &self.nbd
    }

    /// The cache that it runs with now.
    #[must_use]
    pub fn era(&self) -> Arc<Era> {
        Arc::clone(&self.era.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The configuration as it was read last, if there is one.
    #[must_use]
    pub fn configuration(&self) -> Option<Arc<Configuration>> {
        self.configuration.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the certificates again, for clients that come from now on; the error if they cannot be used.
    ///
    /// # Errors
    /// As it says: then the former ones stay.
    pub fn reload_certificates(&self) -> Result<(), TlsError> {
        self.tls.as_ref().map_or(Ok(()), |tls| tls.reload())
    }

    /// The mode that writes to a volume follow; `None` if there is no such volume.
    ///
    /// # Errors
    /// If it is stopping.
    pub fn mode_of(&self, volume: &str) -> Result<Option<WriteMode>> {
        let status = self.picture()?;
        let found = status.volumes.iter().find(|status| status.name == volume);
        Ok(found.map(|status| status.mode_target))
    }

    /// Its status report.
    ///
    /// # Errors
    /// If it is stopping.
    pub fn status(&self) -> Result<StatusReport> {
        let (status, era) = (self.picture()?, self.era());
        let configuration = self.configuration();
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = |volume: &VolumeStatus| watch.destage_bytes_per_second(volume.index);
        let configured = |volume: &VolumeStatus| {
            configuration.as_ref()?.mode_of(&volume.name).map(|mode| mode.name().to_owned())
        };
        let volumes = status.volumes.iter().map(|volume| VolumeReport {
            destage_bytes_per_second: rate(volume),
            mode_configured: configured(volume),
            limits: LimitsReport::new(self.settings_of(&volume.name)),
            configured: self.differing_settings(&volume.name).iter().map(ToString::to_string).collect(),
            ..self.report(volume)
        });
        let mut volumes: Vec<VolumeReport> = volumes.collect();
        if status.cache.pair.is_some() {
            let own_modes = self.own_modes()?;
            for (report, volume) in volumes.iter_mut().zip(&status.volumes) {
                own_modes[volume.index.at()].into_iter().for_each(|own| report.note_own_mode(own));
            }
        }
        let history = self.handle.with_core(|engine| changes(&engine.superblock().history))?;
        // The last look may be a second old.
        let is_dirty = status.volumes.iter().any(|volume| volume.dirty_bytes > 0);
        let oldest_dirty_seconds =
            Some(if is_dirty { watch.oldest_dirty_seconds(Instant::now()) } else { 0.0 });
        Ok(StatusReport {
            refused: Vec::new(),
            clients: Some(self.handle.clients()?.into()),
            running: true,
            volumes,
            cache: Some(CacheReport {
                latched_because: self.latch.get().map(|errno| notices::latched(*errno)),
                lifetime_written_bytes: self.lifetime_written_bytes(&status),
                endurance_bytes: self.watching.endurance_bytes,
                mirror: self.mirror_report(status.cache.pair.as_ref()),
                ..CacheReport::new(&status.cache, &era.identity)
            }),
            session: status.session,
            recovery: Some(era.recovery),
            nbd: self.nbd.iter().map(ToString::to_string).collect(),
            metrics: self.watching.metrics.as_ref().map(ToString::to_string),
            web: self.watching.web.as_ref().map(ToString::to_string),
            oldest_dirty_seconds,
            warming_left_bytes: self.warming_left_bytes(),
            scrub: Some(self.scrub_report(&status)),
            config: configuration.as_ref().map(|configuration| configuration.path.display().to_string()),
            history,
        })
    }

    fn lifetime_written_bytes(&self, status: &Status) -> u64 {
        self.era().written_before_bytes + status.cache.device.written_bytes
    }

    /// Looks after the cache, of which `status` is the picture: to be called once a second.
    ///
    /// # Errors
    /// If it is stopping, or the notes cannot be written.
    pub fn look(&self, status: &Status) -> Result<()> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).look(status, Instant::now());
        self.keep_hours(status)?;
        self.sample(status.cache.size_bytes)?;
        self.note_drained()
    }

    /// Notes how much was written to the cache.
    ///
    /// # Errors
    /// If it is stopping, or the notes cannot be written.
    pub fn note_written(&self) -> Result<()> {
        let status = self.picture()?;
        let written_bytes = self.lifetime_written_bytes(&status);
        self.record.change(|record| record.written_bytes = written_bytes)?;
        self.note_wear(&status)
    }

    fn report(&self, status: &VolumeStatus) -> VolumeReport {
        let served = self.volumes.of(status.index);
        let served = served.as_deref();
        let mut report =
            VolumeReport::new(status, served.map_or_else(String::new, |served| served.origin_name.clone()));
        if served.is_some_and(|served| served.origin.is_none()) {
            report.state = "origin-missing".to_owned();
        }
        if let Some(away) = served.and_then(|served| served.origin.as_ref()).and_then(Device::away) {
            report.origin_away_seconds = Some(away.lasts.as_secs_f64());
            report.origin_away_because = Some(away.reason);
        }
        report.device = self.device_of(status.index);
        report
    }

    /// The modes on record, by slot: one half of a mirrored cache alone writes through, whatever they are.
    fn own_modes(&self) -> Result<Vec<Option<WriteMode>>> {
        let modes = |superblock: &Superblock| {
            superblock.volumes.iter().map(|record| record.as_ref().map(|record| record.mode)).collect()
        };
        Ok(self.handle.with_core(move |engine| modes(engine.superblock()))?)
    }

    /// Its statistics.
    ///
    /// # Errors
    /// If it is stopping.
    pub fn stats(&self) -> Result<StatsReport> {
        let status = self.picture()?;
        let measured = |volume: &VolumeStatus| {
            let histograms = self.handle.histograms(volume.index)?;
            let measured = histograms.as_deref().map_or_else(Measured::default, Measured::from);
            Ok(Measured { held_back: self.handle.held_back(volume.index)?.into(), ..measured })
        };
        let measured = status.volumes.iter().map(measured).collect::<Result<Vec<_>, ControlError>>()?;
        Ok(StatsReport::new(&status, measured))
    }

    /// Advice from its load.
    ///
    /// # Errors
    /// If it is stopping.
    pub fn advice(&self) -> Result<AdviceReport> {
        let status = self.picture()?;
        let cache = &status.cache;
        self.sample(cache.size_bytes)?;
        let sampling = self.sampling.lock().unwrap_or_else(PoisonError::into_inner);
        let facts = |volume: &VolumeStatus| VolumeFacts {
            name: volume.name.clone(),
            mode: volume.mode_target,
            reuse: sampling.curve().reuse(u32::from(volume.index.0)),
            writes: volume.counters.writes,
            flushes: volume.counters.flushes,
            dirty_bytes: volume.dirty_bytes,
        };
        let volumes = status.volumes.iter().map(facts).collect();
        let sum = |count: fn(&VolumeStatus) -> u64| -> u64 { status.volumes.iter().map(count).sum() };
        let hits = sum(|volume| volume.counters.hit_blocks);
        let reads = hits + sum(|volume| volume.counters.miss_blocks);
        let wear = WearFacts {
            written: cache.written.into(),
            seconds: self.era().began.elapsed().as_secs_f64(),
            lifetime_written_bytes: self.lifetime_written_bytes(&status),
            endurance_bytes: self.watching.endurance_bytes,
            budget_bytes_per_day: cache.wear.map(|wear| wear.day_bytes),
            budget_blocks: sum(|volume| {
                let Counters { read_bypasses, write_bypasses, .. } = &volume.counters;
                read_bypasses.budget_blocks + write_bypasses.budget_blocks
            }),
        };
        Ok(AdviceReport::new(
            sampling.curve(),
            sampling.span().as_secs_f64(),
            cache.size_bytes,
            (reads > 0).then(|| hits as f64 / reads as f64),
            volumes,
            wear,
        ))
    }

    fn choose(&self, status: &Status, name: Option<&str>) -> Result<VolumeIndex> {
        let names: Vec<(VolumeIndex, &str)> =
            status.volumes.iter().map(|volume| (volume.index, volume.name.as_str())).collect();
        choose_name(&names, name)
    }

    /// Takes `may_be_dirty` away from volumes that have nothing dirty and are not in writeback, and the notes on losses that
    /// clients were told of.
    ///
    /// # Errors
    /// If it is stopping, or the notes cannot be written.
    pub fn note_drained(&self) -> Result<()> {
        let _held = self.note_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let (doubts, noted) = (self.doubts.load(Ordering::SeqCst), self.losses.noted());
        // A mirrored cache with one half writes through, and back again when both count.
        let volumes = self.volumes.clone();
        let (status, modes, untold) = self.handle.with_core(move |engine| {
            let records = engine.superblock().volumes.iter();
            let modes: Vec<_> = records.map(|record| record.as_ref().map(|record| record.mode)).collect();
            (engine.status(), modes, volumes.untold_losses(engine))
        })?;
        self.losses.follow(&untold, noted, false)?;
        let is_clean = |volume: &VolumeStatus| {
            let is_back = |mode| mode == WriteMode::Writeback;
            let may_be_back = is_back(volume.mode_target) || modes[volume.index.at()].is_some_and(is_back);
            !may_be_back && volume.dirty_bytes == 0 && volume.lost_bytes == 0
        };
        self.note(&status, doubts, is_clean)
    }

    /// After a clean stop nothing gets dirty any more, in any mode.
    fn note_clean(&self, engine: &Engine) {
        let (status, superblock) = (&engine.status(), engine.superblock());
        let is_clean = |volume: &VolumeStatus| volume.dirty_bytes == 0 && volume.lost_bytes == 0;
        let doubts = self.doubts.load(Ordering::SeqCst);
        let untold = self.volumes.untold_losses(engine);
        let losses = || self.losses.follow(&untold, self.losses.noted(), true);
        let noted = self.note(status, doubts, is_clean).and_then(|()| losses()).and_then(|()| {
            if status.cache.latched {
                return Ok(());
            }
            // A session that did not end cleanly may still have something there.
            self.lasting.iter().filter(|_| superblock.clean_stop).for_each(LastingFile::remove);
            self.record.change(|record| {
                record.superblock_update = superblock.update;
                record.written_bytes = self.lifetime_written_bytes(status);
                for volume in superblock.volumes.iter().flatten().filter(|_| superblock.is_ephemeral) {
                    if let Some(note) = record.volumes.iter_mut().find(|note| note.id == volume.id.0) {
                        note.record = Some(RecordNote::new(volume));
                    }
                }
            })?;
            self.note_wear(status)
        });
        if let Err(error) = noted {
            // The notes stay on the safe side.
            event(Event::NotNoted, format_args!("{error:#}"));
        }
    }

    /// Takes `may_be_dirty` away, unless an origin failed since `doubts` was read, before the status was.
    fn note(&self, status: &Status, doubts: u64, is_clean: impl Fn(&VolumeStatus) -> bool) -> Result<()> {
        if status.cache.latched {
            return Ok(());
        }
        self.record.change(|record| {
            if self.doubts.load(Ordering::SeqCst) != doubts {
                return;
            }
            for volume in status.volumes.iter().filter(|volume| is_clean(volume)) {
                if let Some(note) = record.volumes.iter_mut().find(|note| note.id == volume.id.0) {
                    note.may_be_dirty = false;
                }
            }
        })
    }
}

impl Source for Running {
    fn figures(&self) -> Result<Figures> {
        Ok(Figures { status: self.status()?, stats: self.stats()? })
    }

    fn advice(&self) -> Result<AdviceReport> {
        Running::advice(self)
    }
}

impl Answering for Running {
    fn answer(
        &self,
        question: Question,
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Answer> {
        match question {
            Question::Status => self.status().map(Box::new).map(Answer::Status),
            Question::Stats => self.stats().map(Box::new).map(Answer::Stats),
            Question::Advice => Ok(Answer::Advice(Box::new(self.advice()?))),
            Question::Record => bail!("a recording is no single answer"),
            Question::Set { volume, setting } => {
                self.set(volume.as_deref(), setting)?;
                Ok(Answer::Set)
            }
            Question::SetAll { volume, settings } => {
                self.set_all(volume.as_deref(), &settings)?;
                Ok(Answer::Set)
            }
            Question::Flush { volume } => self.flush(volume.as_deref(), on_progress).map(Answer::Flushed),
            Question::Detach { volume, verify } => {
                self.detach(volume.as_deref(), verify, on_progress).map(Answer::Detached)
            }
            Question::Add { wish } => self.add(&wish).map(Answer::Added),
            Question::Replace { wish } => self.replace(&wish, on_progress).map(Answer::Succeeded),
            Question::Rejoin { wish } => self.rejoin(&wish, on_progress).map(Answer::Rejoined),
            Question::Resize { wanted_bytes } => {
                self.resize(wanted_bytes, on_progress).map(Answer::Succeeded)
            }
            Question::Warm { volume, list, rate_bytes } => {
                self.warm(volume.as_deref(), list, rate_bytes, on_progress).map(Answer::Warmed)
            }
            Question::Scrub { rate_bytes } => self.scrub(rate_bytes, on_progress).map(Answer::Scrubbed),
            Question::Attach { volume, options } => {
                self.attach(volume.as_deref(), &options).map(Answer::Attached)
            }
            Question::Unattach { volume } => self.unattach(volume.as_deref()).map(Answer::Unattached),
        }
    }

    fn record(&self, say: &mut dyn FnMut(Answer) -> ControlFlow<()>) -> Result<()> {
        let mut names = vec![None; VOLUMES_MAX];
        for volume in &self.picture()?.volumes {
            names[volume.index.at()] = Some(volume.name.clone());
        }
        recording::record(&self.handle, names, say)
    }
}
