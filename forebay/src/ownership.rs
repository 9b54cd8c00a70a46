//! Ownership of devices: which caches have a device as an origin, as far as the notes know. `create` and `add` ask
//! before they give an origin a second cache or format an origin.

use crate::state::{CacheRecord, StateDirectory, VolumeNote, names_of};
use crate::superblock;
use anyhow::{Result, bail};
use engine::format::Superblock;
use engine::recovery::load_superblock;
use engine::units::SECTOR_BYTES;
use live::devices::{self, BlockingDevice, Device, DeviceSpec};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// A volume of a noted cache.
struct Owner {
    /// The name under which the cache was last served or formatted.
    cache: String,
    note: VolumeNote,
}

/// Whether two names lead to one file or block device, by whatever links.
pub fn is_same(one: &DeviceSpec, other: &DeviceSpec) -> bool {
    let key = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        let is_block = metadata.file_type().is_block_device();
        Some(if is_block { (0, metadata.rdev()) } else { (metadata.dev(), metadata.ino()) })
    };
    match (one.path().and_then(key), other.path().and_then(key)) {
        (Some(one), Some(other)) => one == other,
        _ => one.canonical() == other.canonical(),
    }
}

/// The volumes whose origin is `device`, of all caches but the one at `but`. A cache whose name another one has got
/// does not exist any more.
fn owners(state: &StateDirectory, device: &Device, but: &DeviceSpec) -> Result<Vec<Owner>> {
    let formatted = names_of(but);
    let is_it = |note: &VolumeNote| {
        (!note.identity.is_empty() && note.identity == device.identity())
            || devices::parse(&note.origin).is_ok_and(|origin| is_same(&origin, device.spec()))
    };
    let mut owners = Vec::new();
    for CacheRecord { caches, volumes, .. } in state.all()? {
        let Some(cache) = caches.last().filter(|_| !caches.iter().any(|name| formatted.contains(name)))
        else {
            continue;
        };
        let found = volumes.into_iter().filter(is_it);
        owners.extend(found.map(|note| Owner { cache: cache.clone(), note }));
    }
    Ok(owners)
}

/// Refuses an origin of which another cache may hold newer data, or that is a cache itself, unless `taken_over` names
/// it.
///
/// # Errors
/// Whose it is, and the ways on; or the notes cannot be read.
pub fn check_origin(
    state: &StateDirectory,
    origin: &Device,
    cache: &DeviceSpec,
    taken_over: Option<&DeviceSpec>,
) -> Result<()> {
    let spec = origin.spec();
    if taken_over.is_some_and(|named| is_same(named, spec)) {
        return Ok(());
    }
    if let Ok((superblock, _)) = load_superblock(&mut BlockingDevice::new(origin))
        && let Some(volume) = superblock.volumes.iter().flatten().next()
    {
        bail!(
            "{spec} is a Forebay cache (of {}), not an origin; are --origin and --cache swapped? To use it as an origin \
             all the same, add --take-over {spec}",
            volume.origin
        );
    }
    match owners(state, origin, cache)?.into_iter().find(|owner| owner.note.may_be_dirty) {
        Some(Owner { cache, note: VolumeNote { name, .. } }) => bail!(
            "the cache {cache} may hold data that {spec} does not have yet, as its volume {name}; bring it home first: \
             forebay detach {cache} {name}; or give it up: add --take-over {spec}"
        ),
        None => Ok(()),
    }
}

/// A statement of the volume that has `device` as its origin, if one has.
///
/// # Errors
/// If the notes cannot be read.
pub fn as_an_origin(state: &StateDirectory, device: &Device) -> Result<Option<String>> {
    let owner = owners(state, device, device.spec())?.into_iter().next();
    Ok(owner
        .map(|Owner { cache, note }| format!("is the origin of volume {} of the cache {cache}", note.name)))
}

/// Notes the volumes of a cache that was just formatted, or got one more.
///
/// # Errors
/// If the notes cannot be read or written.
pub fn remember(state: &StateDirectory, superblock: &Superblock, cache: &DeviceSpec) -> Result<()> {
    let mut record = state.load_or_new(&superblock.set_id)?;
    for (_, volume) in superblock::records(superblock) {
        if record.volumes.iter().any(|note| note.id == volume.id.0) {
            continue;
        }
        record.volumes.push(VolumeNote {
            id: volume.id.0,
            name: volume.name.clone(),
            origin: volume.origin.clone(),
            identity: volume.identity.clone(),
            size_bytes: volume.size_sectors * SECTOR_BYTES,
            read_only: false,
            // Nothing was written yet; a start notes what may be.
            may_be_dirty: false,
            abandoned: false,
        });
    }
    state.claim_name(&mut record, cache)?;
    state.store(&record)
}
