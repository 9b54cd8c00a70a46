//! Ownership of devices: which caches have a device as an origin, as far as the notes know. `create` and `add` ask
//! before they give an origin a second cache or format an origin.

use crate::state::{CacheRecord, Renewal, StateDirectory, VolumeNote, names_of};
use crate::superblock;
use anyhow::{Result, bail};
use engine::format::Superblock;
use engine::mutation::Mutations;
use engine::recovery::load_superblock;
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

/// Notes the volumes of a cache that was just formatted, which is new, or got one more.
///
/// # Errors
/// If the notes cannot be read or written.
pub fn remember(
    state: &StateDirectory,
    superblock: &Superblock,
    cache: &DeviceSpec,
    is_new: bool,
    is_sparse: bool,
) -> Result<()> {
    let mut record = state.load_or_new(&superblock.set_id)?;
    note_renewal(&mut record, superblock, is_sparse);
    for (_, volume) in superblock::records(superblock) {
        if record.volumes.iter().any(|note| note.id == volume.id.0) {
            continue;
        }
        // Nothing was written yet; a start notes what may be.
        record.volumes.push(VolumeNote::new(volume, superblock.is_ephemeral, false));
    }
    if is_new {
        return state.replace_by(&mut record, cache, None);
    }
    state.claim_name(&mut record, cache)?;
    state.store(&record)
}

/// Notes the devices of a new mirrored cache, which is found by either name from then on.
///
/// # Errors
/// If the notes cannot be read or written.
pub fn remember_halves(
    state: &StateDirectory,
    superblock: &Superblock,
    [first, second]: [&DeviceSpec; 2],
) -> Result<()> {
    let mut record = state.load_or_new(&superblock.set_id)?;
    state.claim_name(&mut record, second)?;
    state.claim_name(&mut record, first)?;
    record.halves = Some([first, second].map(|half| half.absolute().to_string()));
    state.store(&record)
}

/// Notes how an ephemeral cache is made anew.
pub fn note_renewal(record: &mut CacheRecord, superblock: &Superblock, is_sparse: bool) {
    let old = record.renewal.take();
    record.renewal = superblock.is_ephemeral.then(|| Renewal {
        profile: superblock.profile.clone(),
        composition: superblock.composition.clone(),
        is_sparse: is_sparse || old.as_ref().is_some_and(|old| old.is_sparse),
        is_forming: false,
        is_cold: old.as_ref().is_some_and(|old| old.is_cold),
        list: old.map_or_else(|| format!("{}.warm", record.set_id), |old| old.list),
    });
}

/// Brings the notes on an ephemeral cache up to a change of its superblock that was made while it was not served.
///
/// # Errors
/// If the notes cannot be read or written.
pub fn follow(state: &StateDirectory, superblock: &Superblock) -> Result<()> {
    let Some(mut record) = state.load(&superblock.set_id)?.filter(|_| superblock.is_ephemeral) else {
        return Ok(());
    };
    let old = std::mem::take(&mut record.volumes);
    for (_, volume) in superblock::records(superblock) {
        let noted = old.iter().find(|note| note.id == volume.id.0);
        // One with a new number has nothing in the cache.
        let may_be_dirty = noted.is_some_and(|note| note.may_be_dirty);
        let abandoned = noted.is_some_and(|note| note.abandoned);
        record.volumes.push(VolumeNote { abandoned, ..VolumeNote::new(volume, true, may_be_dirty) });
    }
    state.store(&record)
}

/// Refuses a cache whose place another one took.
///
/// # Errors
/// If it is one, with the ways on.
pub fn check_not_replaced(record: &CacheRecord, spec: &DeviceSpec) -> Result<()> {
    if engine::recovery::is_replaced(record.replaced_by.is_some(), Mutations::NONE) {
        bail!(
            "{spec} holds an older cache than the one that was served in its place since: what it holds is void; connect \
             the newer one, or begin anew: forebay create --wipe {spec} ..."
        );
    }
    Ok(())
}
