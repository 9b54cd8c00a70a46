//! Ownership of devices: which caches have a device as an origin, as far as the notes know. `create` and `add` ask
//! before they give an origin a second cache or format an origin, and a start asks before it uses its origins.

use crate::control::Connection;
use crate::events::Event;
use crate::log::event_of;
use crate::state::{CacheRecord, Renewal, StateDirectory, VolumeNote, names_of};
use crate::superblock;
use anyhow::{Result, bail};
use engine::effect::WriteMode;
use engine::format::Superblock;
use engine::mutation::Mutations;
use engine::recovery::load_superblock;
use live::devices::{self, BlockingDevice, Device, DeviceSpec};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A volume of a noted cache.
struct Owner {
    /// The name under which the cache was last served or formatted.
    cache: String,
    /// The file with the notes on that cache.
    file: PathBuf,
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

/// Whether a noted volume has `device` as its origin.
fn is_of(note: &VolumeNote, device: &Device) -> bool {
    (!note.identity.is_empty() && note.identity == device.identity())
        || devices::parse(&note.origin).is_ok_and(|origin| is_same(&origin, device.spec()))
}

/// A cache that is to use an origin.
#[derive(Clone, Copy)]
pub struct User<'a> {
    /// The cache.
    pub cache: &'a DeviceSpec,
    /// Its set id in hexadecimal.
    pub set_id: &'a str,
    /// The mode of its volume.
    pub mode: WriteMode,
}

impl User<'_> {
    /// Whether what `record` notes is of another cache. One whose name this one has got does not exist any more, and one
    /// whose place was taken is void.
    fn is_other(&self, record: &CacheRecord) -> bool {
        let own = names_of(self.cache);
        record.set_id != self.set_id
            && record.replaced_by.is_none()
            && !record.caches.iter().any(|name| own.contains(name))
    }

    /// Whether what another cache holds of `origin`, by its note, would not be right any more beside this one. Two that only
    /// read do not harm each other.
    fn is_rival(&self, note: &VolumeNote, origin: &Device) -> bool {
        let only_read = note.read_only && !note.may_be_dirty && self.mode == WriteMode::Readonly;
        !note.abandoned && !only_read && is_of(note, origin)
    }

    /// The volumes of other caches that use `origin`, too.
    fn rivals(&self, state: &StateDirectory, origin: &Device) -> Result<Vec<Owner>> {
        owners(state, |record| self.is_other(record), |note| self.is_rival(note, origin))
    }
}

fn owners(
    state: &StateDirectory,
    is_meant: impl Fn(&CacheRecord) -> bool,
    is_it: impl Fn(&VolumeNote) -> bool,
) -> Result<Vec<Owner>> {
    let mut owners = Vec::new();
    for record in state.all()?.into_iter().filter(is_meant) {
        let Some(cache) = record.caches.last() else { continue };
        let found = record.volumes.iter().filter(|note| is_it(note));
        let (cache, file) = (cache.clone(), state.file_named(&record.set_id));
        owners.extend(found.map(|note| Owner {
            cache: cache.clone(),
            file: file.clone(),
            note: note.clone(),
        }));
    }
    Ok(owners)
}

/// Refuses an origin that another cache has, or that is a cache itself, unless `taken_over` names it.
///
/// # Errors
/// Whose it is, and the ways on; or the notes cannot be read.
pub fn check_origin(
    state: &StateDirectory,
    origin: &Device,
    user: User<'_>,
    taken_over: Option<&DeviceSpec>,
) -> Result<()> {
    let spec = origin.spec();
    let rivals = user.rivals(state, origin)?;
    if let Some(named) = taken_over {
        if !is_same(named, spec) {
            bail!("--take-over {named} is not the origin; name {spec} there, or leave it out");
        }
        return rivals.iter().try_for_each(|rival| check_stopped(rival, origin));
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
    match rivals.into_iter().max_by_key(|rival| rival.note.may_be_dirty) {
        None => Ok(()),
        Some(Owner { cache, note: VolumeNote { name, may_be_dirty: true, .. }, .. }) => bail!(
            "the cache {cache} may hold data that {spec} does not have yet, as its volume {name}; bring it home first: \
             forebay detach {cache} {name}; or give it up: add --take-over {spec}"
        ),
        Some(Owner { cache, note: VolumeNote { name, .. }, .. }) => bail!(
            "{spec} is the origin of volume {name} of the cache {cache} already; take it off there first: forebay detach \
             {cache} {name}; or give up what is cached there: add --take-over {spec}"
        ),
    }
}

/// Refuses to start on an origin of which another cache may hold newer data.
///
/// # Errors
/// Which cache that is, and the ways on; or the notes cannot be read.
pub fn check_start(state: &StateDirectory, origin: &Device, user: User<'_>) -> Result<()> {
    let spec = origin.spec();
    for rival in user.rivals(state, origin)? {
        check_stopped(&rival, origin)?;
        let Owner { cache, file, note: VolumeNote { name, may_be_dirty, .. } } = rival;
        if may_be_dirty {
            bail!(
                "the cache {cache} may hold data that {spec} does not have yet, as its volume {name}; bring it home first: \
                 forebay detach {cache} {name}; or give it up: forebay set {cache} {name} origin=changed-discard-dirty; if \
                 that cache is gone, move {} away",
                file.display()
            );
        }
    }
    Ok(())
}

/// Refuses an origin while a daemon serves the other cache that has it: the daemon would write its notes anew.
fn check_stopped(rival: &Owner, origin: &Device) -> Result<()> {
    let Owner { cache, note, .. } = rival;
    let Ok(other) = devices::parse(cache) else { return Ok(()) };
    if Connection::open(&other)?.is_some() {
        bail!(
            "{} is the origin of volume {} of the cache {cache}; stop its daemon first",
            origin.spec(),
            note.name
        );
    }
    Ok(())
}

/// Notes that what other caches hold of `origin` is void, as it is going to be used without them; durable on return. Each
/// drops it at its next start (hazard 10).
///
/// # Errors
/// If the notes cannot be read or written.
pub fn give_up_elsewhere(state: &StateDirectory, origin: &Device, user: User<'_>) -> Result<()> {
    for mut record in state.all()?.into_iter().filter(|record| user.is_other(record)) {
        let before = record.clone();
        for note in record.volumes.iter_mut().filter(|note| user.is_rival(note, origin)) {
            (note.abandoned, note.may_be_dirty) = (true, false);
            // One without a name does not exist any more.
            if let Some(cache) = record.caches.last() {
                event_of(
                    Event::ContentDropped,
                    &note.name,
                    format_args!(
                        "{} is used without the cache {cache} now: what that holds of volume {} is void",
                        origin.spec(),
                        note.name
                    ),
                );
            }
        }
        if record != before {
            state.store(&record)?;
        }
    }
    Ok(())
}

/// A statement of the volume that has `device` as its origin, if one has.
///
/// # Errors
/// If the notes cannot be read.
pub fn as_an_origin(state: &StateDirectory, device: &Device) -> Result<Option<String>> {
    let own = names_of(device.spec());
    let is_other = |record: &CacheRecord| !record.caches.iter().any(|name| own.contains(name));
    let owner = owners(state, is_other, |note| is_of(note, device))?.into_iter().next();
    Ok(owner.map(|Owner { cache, note, .. }| {
        format!("is the origin of volume {} of the cache {cache}", note.name)
    }))
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

/// Brings the notes on a cache up to a change of its superblock that was made while it was not served.
///
/// # Errors
/// If the notes cannot be read or written.
pub fn follow(state: &StateDirectory, superblock: &Superblock) -> Result<()> {
    let Some(mut record) = state.load(&superblock.set_id)? else { return Ok(()) };
    let old = std::mem::take(&mut record.volumes);
    for (_, volume) in superblock::records(superblock) {
        let noted = old.iter().find(|note| note.id == volume.id.0);
        // One with a new number has nothing in the cache.
        let may_be_dirty = noted.is_some_and(|note| note.may_be_dirty);
        let abandoned = noted.is_some_and(|note| note.abandoned);
        let untold = noted.and_then(|note| note.untold.clone());
        let new = VolumeNote::new(volume, superblock.is_ephemeral, may_be_dirty);
        record.volumes.push(VolumeNote { abandoned, untold, ..new });
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
