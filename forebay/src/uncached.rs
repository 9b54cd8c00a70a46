//! Serving without the cache: it is missing, and some volumes cannot have anything in it that their
//! origins do not have.
//!
//! Hazard 10: before a client can write to an origin, it is noted durably that what the cache holds of the
//! volume is void. A cache that comes back is made to forget it by the next ordinary start.

use crate::arguments::RunOptions;
use crate::control::{Answer, Answering, Listener, Progress, Question};
use crate::events::Event;
use crate::interrupt::{Interrupts, spawn};
use crate::log::{Log, event, event_of};
use crate::losses::Losses;
use crate::opening::open_origin;
use crate::ownership::{User, check_start, give_up_elsewhere};
use crate::report::{
    AdviceReport, LimitsReport, Measured, RequestStats, StatsReport, StatusReport, VolumeReport, VolumeStats,
};
use crate::run_dir::RunDirectory;
use crate::running::{Doors, Watched, notices, recording};
use crate::service::{self, Watchdog};
use crate::setting::VolumeSettings;
use crate::state::{CacheRecord, LiveRecord, StateDirectory, VolumeNote};
use crate::watchers::{Figures, Source, Watchers};
use anyhow::{Context, Result, anyhow, bail};
use engine::effect::{Errno, WriteMode};
use engine::units::VolumeIndex;
use live::devices::{self, Access, Device, DeviceSpec};
use live::passthrough::Passthrough;
use live::server::{Config, ExportConfig, Handle, ListenAddress, POOL_BYTES_DEFAULT, Server};
use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A volume that its origin serves alone.
struct Bare {
    note: VolumeNote,
    origin: Device,
    settings: VolumeSettings,
}

/// Whether all volumes of the cache that was served from this device could be served without it.
///
/// # Errors
/// If the notes cannot be read.
pub fn is_possible(cache: &DeviceSpec, state: &StateDirectory) -> Result<bool> {
    let record = state.find_by_device(cache)?;
    Ok(record.is_some_and(|record| !record.volumes.is_empty() && record.volumes.iter().all(may_go_on)))
}

fn may_go_on(note: &VolumeNote) -> bool {
    !note.may_be_dirty || note.abandoned
}

/// Serves the volumes that can be served without the cache until an interrupt. `ready` is told the names of the
/// volumes and the addresses for clients.
///
/// # Errors
/// If nothing can be served so, with the reason.
pub fn serve(
    cache: &DeviceSpec,
    doors: impl FnOnce(&str) -> Result<Doors>,
    options: &RunOptions,
    state: StateDirectory,
    interrupts: &Interrupts,
    ready: impl FnOnce(&[String], &[ListenAddress]),
    watchers: Watchers,
) -> Result<()> {
    let record = state.find_by_device(cache)?.with_context(|| {
        format!("nothing is noted of a cache {cache}, so its volumes may have dirty data; connect the cache")
    })?;
    let mut volumes = open_origins(&record, options, interrupts)?;
    for volume in &volumes {
        check_start(&state, &volume.origin, user(cache, &record.set_id, &volume.note))?;
    }
    let Doors { listen, socket_permissions, access, device_timeout, threads, watching, .. } =
        doors(&volumes[0].note.name)?;
    for volume in &mut volumes {
        let (name, file) = (&volume.note.name, watching.configuration.as_ref());
        let configured = file.map_or(&[][..], |file| file.settings_of(name));
        volume.settings = VolumeSettings::of(configured.iter().chain(record.settings_of(name)).copied());
    }
    let set_id = record.set_id.clone();
    let record = Arc::new(LiveRecord::new(state.clone(), record));
    let losses = Losses::new(&record);
    let (log, printer) = Log::open()?;
    let ids: Vec<u32> = volumes.iter().map(|volume| volume.note.id).collect();
    let noted = Arc::clone(&losses);
    let config = Config {
        lasting: None,
        pool_bytes: POOL_BYTES_DEFAULT,
        kept_bytes: 0,
        cache: None,
        mirror: None,
        origins: volumes.iter().map(|volume| Some(volume.origin.clone())).collect(),
        exports: volumes
            .iter()
            .enumerate()
            .map(|(at, volume)| export(VolumeIndex(at as u8), volume))
            .collect(),
        listen,
        socket_permissions,
        socket_group: access.group.map(|group| group.0),
        tls: access.tls,
        limits: access.limits,
        // There is no cache left to give up.
        abandon: Box::new(|_| Ok(())),
        device_timeout,
        notice: Box::new(move |said| {
            notices::note_loss(&said, &noted, |index| ids.get(index.at()).copied(), &log);
            log.say(notices::event(&said), notices::kind(&said), said.to_string());
        }),
        reactors: threads,
    };
    let (server, handle) = Server::new(config)?;
    let names: Vec<String> = volumes.iter().map(|volume| volume.note.name.clone()).collect();
    let nbd = server.addresses().to_vec();
    let running = Arc::new(RunningBare { handle, volumes, nbd, watching });
    let source = Arc::clone(&running);
    let (answering, answerer) = mpsc::channel();
    let socket = Listener::open(&RunDirectory::find(), cache, access.control)?.answer_with(answerer)?;
    let (bare, looked_after, waiter) = (Arc::clone(&running), Arc::clone(&losses), interrupts.clone());
    spawn("stop", move || bare.look_after(&looked_after, &waiter))?;
    let watchers = watchers.serve(&source)?;
    let served = Arc::clone(&running);
    let core = server.run(|| {
        interrupts.attend();
        for volume in &running.volumes {
            give_up_elsewhere(&state, &volume.origin, user(cache, &set_id, &volume.note))?;
        }
        record.change(|record| {
            for note in &mut record.volumes {
                // A volume that cannot be written stays as it is, and so does its cached content.
                note.abandoned |=
                    !note.read_only && running.volumes.iter().any(|volume| volume.note.id == note.id);
            }
        })?;
        ready(&names, &running.nbd);
        // The thread waits for it.
        let _ = answering.send(running);
        let left = (0..).zip(&served.volumes);
        let left = left.filter_map(|(at, volume)| Some((VolumeIndex(at), losses.left(volume.note.id)?)));
        Ok::<_, anyhow::Error>(Passthrough::after_losses(&left.collect::<Vec<_>>()))
    })?;
    drop((socket, watchers));
    printer.finish();
    losses.follow(&served.untold(&core.untold_losses()), losses.noted(), true)
}

/// The missing cache as a user of the origin of a volume, which is written unless clients may only read it.
fn user<'a>(cache: &'a DeviceSpec, set_id: &'a str, note: &VolumeNote) -> User<'a> {
    let mode = if note.read_only { WriteMode::Readonly } else { WriteMode::Passthrough };
    User { cache, set_id, mode }
}

fn export(index: VolumeIndex, volume: &Bare) -> ExportConfig {
    ExportConfig {
        volume: index,
        name: volume.note.name.clone(),
        size_bytes: volume.note.size_bytes,
        min_block_bytes: volume.origin.sector_bytes(),
        read_only: volume.note.read_only,
    }
}

fn open_origins(record: &CacheRecord, options: &RunOptions, interrupts: &Interrupts) -> Result<Vec<Bare>> {
    if record.volumes.is_empty() {
        bail!("nothing is noted of volumes on this cache; there is nothing to serve without it");
    }
    let kept: Vec<&str> =
        record.volumes.iter().filter(|note| !may_go_on(note)).map(|note| note.name.as_str()).collect();
    if kept.len() == record.volumes.len() {
        bail!(
            "the cache may hold data that the origin of {} does not have; connect the cache",
            kept.join(", ")
        );
    }
    let mut volumes = Vec::new();
    for note in &record.volumes {
        if !may_go_on(note) {
            event_of(
                Event::NotServed,
                &note.name,
                format_args!(
                    "volume {} is not served: its cache may hold data that its origin does not have; connect the cache",
                    note.name
                ),
            );
            continue;
        }
        let given = options.origin.iter().find(|one| match &one.volume {
            Some(name) => *name == note.name,
            None => record.volumes.len() == 1,
        });
        let spec = match given {
            Some(one) => one.device.clone(),
            None => devices::parse(&note.origin)
                .with_context(|| format!("the origin noted for volume {} has no meaning", note.name))?,
        };
        let origin = open_origin(&spec, Access::Exclusive, &note.name)?;
        interrupts.watch(&origin);
        if !note.identity.is_empty() && !origin.identity().is_empty() && note.identity != origin.identity() {
            bail!(
                "{spec} is not the origin of volume {}: its identity is {} where {} was noted; connect the right disk",
                note.name,
                origin.identity(),
                note.identity
            );
        }
        if origin.size_bytes() < note.size_bytes {
            bail!(
                "the origin {spec} of volume {} has shrunk from {} to {} bytes",
                note.name,
                note.size_bytes,
                origin.size_bytes()
            );
        }
        let settings = VolumeSettings::default();
        volumes.push(Bare { note: note.clone(), origin, settings });
    }
    Ok(volumes)
}

/// Origins that are served alone.
struct RunningBare {
    handle: Handle<Passthrough>,
    volumes: Vec<Bare>,
    nbd: Vec<ListenAddress>,
    watching: Watched,
}

impl RunningBare {
    /// The losses of which no FLUSH has told yet, by the ids of volumes: those that the core knows of, and servers.
    fn untold(&self, of_core: &[(VolumeIndex, Errno)]) -> Vec<(u32, Errno)> {
        let of_core = of_core.iter().map(|(at, errno)| (self.volumes[at.at()].note.id, *errno));
        let of_servers = self.volumes.iter().filter(|volume| volume.origin.owes_failure());
        of_core.chain(of_servers.map(|volume| (volume.note.id, Errno::IO))).collect()
    }

    /// Looks after the volumes until an interrupt comes, and stops then.
    fn look_after(&self, losses: &Losses, interrupts: &Interrupts) {
        for (at, volume) in (0..).zip(&self.volumes) {
            // It fails only if the server has ended.
            let _ = self.handle.set_limits(VolumeIndex(at), volume.settings.limits);
        }
        let mut watchdog = Watchdog::of_service();
        while !interrupts.wait(Duration::from_secs(1)) {
            let noted = losses.noted();
            // An answer is the proof that it works.
            let Ok(untold) = self.handle.with_core(|core| core.untold_losses()) else { continue };
            watchdog.pat();
            if let Err(error) = losses.follow(&self.untold(&untold), noted, false) {
                event(Event::NotNoted, format_args!("{error:#}"));
            }
        }
        service::stopping();
        // If it has stopped by itself there is nothing to stop.
        let _ = self.handle.stop();
    }

    fn status(&self) -> Result<StatusReport> {
        let report = |volume: &Bare| {
            let note = &volume.note;
            VolumeReport {
                limits: LimitsReport::new(volume.settings),
                ..VolumeReport::without_cache(note.name.clone(), note.origin.clone(), note.size_bytes)
            }
        };
        Ok(StatusReport {
            refused: Vec::new(),
            clients: Some(self.handle.clients()?.into()),
            running: true,
            volumes: self.volumes.iter().map(report).collect(),
            cache: None,
            session: 0,
            recovery: None,
            nbd: self.nbd.iter().map(ToString::to_string).collect(),
            metrics: self.watching.metrics.as_ref().map(ToString::to_string),
            web: self.watching.web.as_ref().map(ToString::to_string),
            oldest_dirty_seconds: None,
            warming_left_bytes: None,
            scrub: None,
            config: self.watching.configuration.as_ref().map(|file| file.path.display().to_string()),
            history: Vec::new(),
        })
    }

    fn stats(&self) -> Result<StatsReport> {
        let mut volumes = Vec::new();
        for (at, volume) in self.volumes.iter().enumerate() {
            let histograms = self.handle.histograms(VolumeIndex(at as u8));
            let histograms = histograms.map_err(|_| anyhow!("the daemon is stopping"))?;
            let Measured { latency, durations, .. } =
                histograms.as_deref().map_or_else(Measured::default, Measured::from);
            let held_back = self.handle.held_back(VolumeIndex(at as u8));
            let held_back = held_back.map_err(|_| anyhow!("the daemon is stopping"))?.into();
            let requests = RequestStats {
                reads: latency.read.count,
                writes: latency.write.count,
                flushes: latency.flush.count,
                ..RequestStats::default()
            };
            volumes.push(VolumeStats {
                name: volume.note.name.clone(),
                requests,
                origin: crate::report::DeviceStats::default(),
                latency,
                durations,
                held_back,
            });
        }
        Ok(StatsReport::without_cache(volumes))
    }
}

impl Source for RunningBare {
    fn figures(&self) -> Result<Figures> {
        Ok(Figures { status: self.status()?, stats: self.stats()? })
    }

    fn advice(&self) -> Result<AdviceReport> {
        bail!("the cache is missing: there is nothing to give advice on")
    }
}

impl Answering for RunningBare {
    fn answer(
        &self,
        question: Question,
        _on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Answer> {
        match question {
            Question::Status => self.status().map(Box::new).map(Answer::Status),
            Question::Stats => self.stats().map(Box::new).map(Answer::Stats),
            Question::Record => bail!("a recording is no single answer"),
            Question::Advice
            | Question::Set { .. }
            | Question::SetAll { .. }
            | Question::Flush { .. }
            | Question::Detach { .. }
            | Question::Add { .. }
            | Question::Replace { .. }
            | Question::Rejoin { .. }
            | Question::Resize { .. }
            | Question::Warm { .. }
            | Question::Scrub { .. }
            | Question::Attach { .. }
            | Question::Unattach { .. } => {
                bail!(
                    "the cache is missing and its volumes are served without it; connect it and start again"
                )
            }
        }
    }

    fn record(&self, say: &mut dyn FnMut(Answer) -> ControlFlow<()>) -> Result<()> {
        let names = self.volumes.iter().map(|volume| Some(volume.note.name.clone())).collect();
        recording::record(&self.handle, names, say)
    }
}
