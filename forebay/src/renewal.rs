//! Renewal: an ephemeral cache is made anew on a blank device, in the place of the one that is gone (rule 17).
//!
//! 1. The notes must prove that nothing dirty can be lost, the device that it holds nothing, and each origin that it is the
//!    one on record, as far as the notes know it.
//! 2. The new cache, another set id, is noted as being formed; then it is noted of the one that is gone that it was replaced.
//!    Should that come back, it is refused.
//! 3. Where a superblock was cut off, what is left of it is overwritten. The device is formatted, its superblock last.
//!
//! A crash between any two of these writes repeats all of that with one more set id, unless the superblock is whole: then the
//! new cache is there. It is served by an ordinary start.

use crate::arguments::RunOptions;
use crate::blank;
use crate::events::Event;
use crate::formatting::reserve_space;
use crate::halves;
use crate::log::event;
use crate::opening::open_origin;
use crate::origin;
use crate::ownership::as_an_origin;
use crate::profile;
use crate::startup::random_bytes;
use crate::state::{CacheRecord, Renewal, StateDirectory, VolumeNote, hexadecimal};
use crate::superblock;
use crate::verbs::create::format;
use anyhow::{Context, Result, anyhow, bail};
use engine::composition::Composition;
use engine::effect::WriteMode;
use engine::format::{Fingerprint, Superblock, VolumeRecord};
use engine::mutation::Mutations;
use engine::recovery::{self, Lacking, NotedVolume, SuperblockError, load_superblock};
use engine::units::{SECTOR_BYTES, VOLUMES_MAX, VolumeId};
use live::devices::{self, Access, BlockingDevice, Device, DeviceError, DeviceSpec};

/// Whether the cache that was served under this name last was ephemeral, so that another one may take its place.
///
/// # Errors
/// If the notes cannot be read.
pub fn is_expected(spec: &DeviceSpec, state: &StateDirectory) -> Result<bool> {
    let is_there = devices::open(spec, Access::ReadOnlyExclusive).is_ok();
    let record = state.find_by_device(spec)?;
    Ok(is_there && record.is_some_and(|record| record.renewal.is_some()))
}

/// Makes an ephemeral cache anew if its device is blank. `allowed` is asked about its profile and composition first.
///
/// # Errors
/// Why it must not be made, or cannot; nothing was written then, unless a write failed.
pub fn renew(
    spec: &DeviceSpec,
    options: &RunOptions,
    state: &StateDirectory,
    allowed: impl FnOnce(&str, &Composition) -> Result<()>,
) -> Result<()> {
    let cache = halves::open(spec, Access::Exclusive)?.plain(spec)?;
    let mut image = BlockingDevice::new(&cache);
    let record =
        state.find_by_device(spec)?.with_context(|| format!("nothing is noted of a cache {spec}"))?;
    let renewal = record.renewal.clone();
    let is_forming = renewal.as_ref().is_some_and(|renewal| renewal.is_forming);
    match load_superblock(&mut image) {
        // Another daemon was faster.
        Ok(_) => return Ok(()),
        Err(SuperblockError::NotFormatted) => (),
        Err(SuperblockError::Damaged) if is_forming => (),
        Err(error) => bail!("{spec} is not blank, and no cache that can be used: {error}"),
    }
    check_notes(spec, &record)?;
    let Renewal { profile, composition, is_sparse, list, .. } =
        renewal.context("the cache was not ephemeral")?;
    let composition = Composition::parse(&composition)
        .map_err(|error| anyhow!("the notes on the cache {spec} are damaged: {error}"))?;
    profile::check_support(&profile, &composition)?;
    allowed(&profile, &composition)?;
    let layout = composition
        .divide(cache.size_bytes())
        .map_err(|error| anyhow!("{spec} cannot take the place of the cache that is gone: {error}"))?;
    let content = match as_an_origin(state, &cache)? {
        None => blank::content(&mut image, cache.size_bytes(), is_forming.then_some(&layout))
            .with_context(|| format!("cannot look into {spec}"))?,
        found => found,
    };
    if let Some(content) = content {
        bail!(
            "{spec} {content}, and the ephemeral cache that was there is gone; connect the right device, or begin anew: \
             forebay create --wipe {spec} ..."
        );
    }
    let volumes = volumes(&record, &composition, spec, options)?;
    let superblock = Superblock {
        is_ephemeral: true,
        composition: composition.text(),
        profile: profile.clone(),
        ..Superblock::of_new_cache(new_set_id(state)?, cache.size_bytes(), layout)
    }
    .with_volumes(volumes);
    superblock.validate().map_err(|error| anyhow!("the notes on the cache {spec} are damaged: {error}"))?;
    if !is_sparse {
        reserve_space(&cache)?;
    }
    let renewal = Renewal {
        profile,
        composition: superblock.composition.clone(),
        is_sparse,
        is_forming: true,
        is_cold: true,
        list,
    };
    take_place(&cache, superblock, state, renewal, &record)
}

/// Makes sure that nothing dirty can be lost with the cache that is gone.
fn check_notes(spec: &DeviceSpec, record: &CacheRecord) -> Result<()> {
    if record.volumes.is_empty() {
        bail!("{spec} is blank, and its cache had no volumes; begin anew: forebay create --cache {spec} ...");
    }
    let noted: Vec<NotedVolume> = record
        .volumes
        .iter()
        .map(|note| NotedVolume { may_be_dirty: note.may_be_dirty, is_abandoned: note.abandoned })
        .collect();
    match recovery::may_be_replaced(record.renewal.is_some(), &noted, Mutations::NONE) {
        Ok(()) => Ok(()),
        Err(Lacking::Ephemeral) => {
            bail!("{spec} is blank, and its cache was not ephemeral; connect the cache")
        }
        Err(Lacking::Origin { at }) => {
            let VolumeNote { name, origin, .. } = &record.volumes[at];
            bail!(
                "{spec} is blank, and its cache may have held data of volume {name} that {origin} does not have; connect the \
                 cache, or give that data up: forebay create --cache {spec} --take-over {origin} ..."
            )
        }
    }
}

/// A set id that no cache has or had.
fn new_set_id(state: &StateDirectory) -> Result<[u8; 16]> {
    let set_id = random_bytes().context("cannot make a new set id")?;
    if state.load(&set_id)?.is_some() {
        bail!("the system's random numbers repeat: there is a cache {} already", hexadecimal(&set_id));
    }
    Ok(set_id)
}

/// Notes that the new cache takes the place of the one that is gone, and formats it.
fn take_place(
    cache: &Device,
    mut superblock: Superblock,
    state: &StateDirectory,
    renewal: Renewal,
    gone: &CacheRecord,
) -> Result<()> {
    let spec = cache.spec();
    let mut record = state.load_or_new(&superblock.set_id)?;
    record.renewal = Some(renewal);
    let records = superblock.volumes.iter().flatten().zip(&gone.volumes);
    let note = |(volume, gone): (&VolumeRecord, &VolumeNote)| VolumeNote {
        untold: gone.untold.clone(),
        ..VolumeNote::new(volume, true, false)
    };
    record.volumes = records.map(note).collect();
    // RULE 17: the cache that is gone may come back. That it is void is durable before there is another one.
    state.replace_by(&mut record, spec, Some(&gone.set_id))?;
    if gone.renewal.as_ref().is_some_and(|renewal| renewal.is_forming) {
        recovery::void_superblocks(&mut BlockingDevice::new(cache))
            .map_err(superblock::system)
            .with_context(|| format!("cannot write the superblock to {spec}"))?;
    }
    format(cache, &mut superblock)?;
    event(
        Event::CacheRenewed,
        format_args!("the ephemeral cache {spec} was blank: another one is formatted in its place"),
    );
    Ok(())
}

/// The records of the volumes on the new cache.
fn volumes(
    record: &CacheRecord,
    composition: &Composition,
    spec: &DeviceSpec,
    options: &RunOptions,
) -> Result<Vec<VolumeRecord>> {
    let (mut volumes, mut missing, mut is_any_there) = (Vec::new(), None, false);
    let profile = record.renewal.as_ref().map_or("", |renewal| renewal.profile.as_str());
    for (note, number) in record.volumes.iter().take(VOLUMES_MAX).zip(1..) {
        let noted = noted_record(note, VolumeId(number))
            .with_context(|| format!("the notes on volume {} of the cache {spec} are damaged", note.name))?;
        superblock::check_mode(profile, composition, true, noted.mode)?;
        let given = options.origin.iter().find(|one| match &one.volume {
            Some(name) => *name == note.name,
            None => record.volumes.len() == 1,
        });
        let origin = match given {
            Some(one) => one.device.clone(),
            None => devices::parse(&note.origin)
                .with_context(|| format!("the origin noted for volume {} has no meaning", note.name))?,
        };
        if is_missing(&origin) {
            missing = Some((origin, noted.name.clone()));
            volumes.push(noted);
        } else {
            volumes.push(with_origin(noted, &origin, spec)?);
            is_any_there = true;
        }
    }
    if let (false, Some((origin, name))) = (is_any_there, missing) {
        // The error says what is missing.
        open_origin(&origin, Access::ReadOnlyExclusive, &name)?;
    }
    Ok(volumes)
}

/// A volume's record as the notes have it.
fn noted_record(note: &VolumeNote, id: VolumeId) -> Result<VolumeRecord> {
    let record = note.record.as_ref().context("its mode is missing")?;
    let mut fingerprint = [const { None }; engine::fingerprint::PLACES];
    // Who wrote to the origin without the cache changed them.
    let places = record.places.iter().filter(|_| !note.abandoned);
    for (slot, place) in fingerprint.iter_mut().zip(places) {
        *slot = Some(Fingerprint { offset_bytes: place.offset_bytes, checksum: place.checksum });
    }
    Ok(VolumeRecord {
        id,
        name: note.name.clone(),
        origin: note.origin.clone(),
        identity: note.identity.clone(),
        size_sectors: note.size_bytes / SECTOR_BYTES,
        sector_bytes: record.sector_bytes,
        mode: WriteMode::parse(&record.mode).context("its mode is unknown")?,
        clean_floor_sequence: 0,
        fingerprint,
    })
}

/// Whether an origin is merely missing: it is looked at by the start that finds it.
fn is_missing(spec: &DeviceSpec) -> bool {
    let opened = devices::open(spec, Access::ReadOnly);
    matches!(opened, Err(DeviceError::Missing { .. } | DeviceError::Unreachable { .. }))
}

/// The record with what its origin is now, which must be the one that was noted.
fn with_origin(noted: VolumeRecord, spec: &DeviceSpec, cache: &DeviceSpec) -> Result<VolumeRecord> {
    let device = open_origin(spec, Access::Exclusive, &noted.name)?;
    let accepting = format!(
        "begin anew with it: forebay create --ephemeral --origin {spec} --cache {cache} --name {}",
        noted.name
    );
    origin::verify_or(&noted, &device, &accepting)?;
    origin::check_mode(&device, noted.mode)?;
    let fingerprint = origin::fingerprint_within(&device, noted.size_sectors)?;
    let identity = if device.identity().is_empty() { noted.identity } else { device.identity().to_owned() };
    Ok(VolumeRecord { identity, fingerprint, ..noted })
}
