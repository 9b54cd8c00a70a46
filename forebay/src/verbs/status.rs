//! `forebay status`: asks the daemon, or looks at the device if there is none.

use crate::arguments::look::Status;
use crate::control::{Answer, Connection, Question};
use crate::halves;
use crate::lasting;
use crate::opening::open_origin;
use crate::origin;
use crate::output::Output;
use crate::report::{
    CacheIdentity, CacheReport, HalfReport, RecoveryReport, StatusReport, VolumeReport, changes,
};
use crate::startup::{check_memory_for_index, check_newest, index_bytes};
use crate::state::{CacheRecord, StateDirectory};
use crate::superblock;
use anyhow::{Context, Result, bail};
use engine::effect::WriteMode;
use engine::engine::Engine;
use engine::format::{Superblock, VolumeRecord};
use engine::mutation::Mutations;
use engine::recovery::{self, Options};
use engine::status::VolumeStatus;
use live::devices::{self, Access, DeviceSpec};
use std::time::Instant;

pub(super) fn run(Status { look: arguments, history }: &Status) -> Result<()> {
    let mut status = match Connection::open(&arguments.cache)? {
        Some(mut daemon) => match daemon.ask(&Question::Status, |_| ())? {
            Answer::Status(status) => *status,
            other => return super::unexpected(&other),
        },
        None => {
            let state = StateDirectory::find(arguments.places.state_dir.as_deref())?;
            look(&arguments.cache, &state)?
        }
    };
    if let Some(volume) = &arguments.volume
        && !status.keep_only(volume)
    {
        bail!("there is no volume {volume} on this cache; see forebay status {}", arguments.cache);
    }
    let mut output = Output::stdout();
    if arguments.report.json {
        output.json(&status)?;
    } else {
        status.print(&mut output)?;
        if *history {
            status.print_history(&mut output)?;
        }
    }
    Ok(output.finish()?)
}

/// Findings of a start, if it were now. Nothing is written.
fn look(spec: &DeviceSpec, state: &StateDirectory) -> Result<StatusReport> {
    let mut found = halves::find(spec, None, Access::ReadOnlyExclusive, Some(state))?;
    let image = &mut found.image;
    let superblock = superblock::load(image, &spec.to_string())?;
    let composition = superblock::composition(&superblock, &spec.to_string())?;
    check_memory_for_index(&superblock)?;
    let index_budget_bytes = index_bytes(&superblock, image.is_mirrored());
    let options = Options { index_budget_bytes, repair: false, mutations: Mutations::NONE };
    let started_at = Instant::now();
    let opened =
        recovery::inspect(image, options).map_err(|error| superblock::not_recovered(&error, spec))?;
    let recovery = RecoveryReport::new(started_at.elapsed(), &opened.report);
    let record = state.load_or_new(&superblock.set_id)?;
    let refused = refusals(spec, &superblock, &record, state);
    let (notes, lifetime_written_bytes) = (record.volumes, record.written_bytes);
    let is_abandoned =
        |volume: &VolumeStatus| notes.iter().any(|note| note.id == volume.id.0 && note.abandoned);
    let engine = Engine::new(opened, composition.config(&superblock.layout));
    let status = engine.status();
    let names = found.halves.names.into_iter().flatten();
    let mirror =
        names.zip(found.image.standings()).map(|(name, standing)| HalfReport::at_rest(name, standing));
    let mirror: Vec<HalfReport> = mirror.collect();
    let is_degraded = mirror.iter().any(|half| !half.counts());
    let volumes = status
        .volumes
        .iter()
        .map(|volume| {
            let record = superblock.volumes[volume.index.at()].as_ref();
            let mut report =
                VolumeReport::new(volume, record.map_or_else(String::new, |record| record.origin.clone()));
            if is_abandoned(volume) {
                report.forget_content();
            }
            // As the next start would have it.
            report.lone_half =
                is_degraded && report.order.is_none() && volume.mode_target == WriteMode::Writeback;
            report
        })
        .collect();
    let identity = CacheIdentity::new(spec, &superblock, &composition);
    Ok(StatusReport {
        refused,
        clients: None,
        running: false,
        volumes,
        cache: Some(CacheReport {
            lifetime_written_bytes,
            mirror,
            ..CacheReport::new(&status.cache, &identity)
        }),
        session: status.session,
        recovery: Some(recovery),
        nbd: Vec::new(),
        metrics: None,
        web: None,
        oldest_dirty_seconds: None,
        warming_left_bytes: None,
        scrub: None,
        config: None,
        history: changes(&superblock.history),
    })
}

/// Reasons why a start would refuse the cache or one of its volumes. Nothing is written, and no lock taken that a start
/// needs.
fn refusals(
    spec: &DeviceSpec,
    superblock: &Superblock,
    record: &CacheRecord,
    state: &StateDirectory,
) -> Vec<String> {
    let cache =
        check_newest(spec, superblock, record, state).and_then(|()| lasting::check_found(superblock, spec));
    if let Err(error) = cache {
        // An older copy has another origin in mind, too.
        return vec![format!("{error:#}")];
    }
    let origins = superblock::records(superblock).map(|(_, volume)| {
        let note = record.volumes.iter().find(|note| note.id == volume.id.0);
        check_origin(volume, note.is_some_and(|note| note.abandoned), spec)
    });
    origins.filter_map(Result::err).map(|error| format!("{error:#}")).collect()
}

/// Makes sure that a start would take the origin of a volume.
fn check_origin(volume: &VolumeRecord, is_abandoned: bool, cache: &DeviceSpec) -> Result<()> {
    let spec = devices::parse(&volume.origin).context("the origin noted for the volume has no meaning")?;
    if spec.path().is_none() {
        // A server may take long to answer: it is asked by a start alone.
        return Ok(());
    }
    let origin = open_origin(&spec, Access::ReadOnly, &volume.name)?;
    let mut volume = volume.clone();
    if is_abandoned {
        // It was written without its cache, and a start takes it as it is.
        volume.fingerprint = Default::default();
    }
    origin::verify(&volume, &origin, cache).map(drop)
}
