//! A device that is to be a cache: what it must not hold, how it is divided, and its space.

use crate::addition::check_cache;
use crate::log::notice;
use crate::opening;
use crate::output::Size;
use crate::ownership::{as_an_origin, is_same};
use crate::profile;
use crate::signature;
use crate::startup::index_bytes;
use crate::state::StateDirectory;
use crate::superblock::{self, system};
use anyhow::{Context, Result, anyhow, bail};
use engine::composition::Composition;
use engine::effect::Errno;
use engine::format::{Layout, SEGMENTS_OFFSET, Succession, Superblock};
use engine::mutation::Mutations;
use engine::recovery::{Options, SuperblockError, inspect};
use live::devices::{Access, BlockingDevice, Device, DeviceError, DeviceSpec};

/// Bytes that are zeroed at the end of a device that held something: backup labels live there.
const TAIL_BYTES: u64 = 1 << 20;
/// Sizes of caches are multiples of this.
const UNIT_BYTES: u64 = 4096;

/// A device that is to be formatted.
pub struct NewCache<'a> {
    /// The device.
    pub device: &'a Device,
    /// The device once more, if it is formatted although it holds something.
    pub wipe: Option<&'a DeviceSpec>,
    /// Whether no space is reserved for a device that is a file.
    pub sparse: bool,
}

impl NewCache<'_> {
    /// Makes sure that the device holds nothing, or zeroes the labels of what it holds, and reserves its space.
    ///
    /// # Errors
    /// What it holds, or that it has no room.
    pub fn prepare(&self, state: &StateDirectory) -> Result<()> {
        self.check_content(state)?;
        if self.sparse { Ok(()) } else { reserve_space(self.device) }
    }

    /// Refuses a device that holds something, unless `wipe` names it: then its labels are zeroed.
    fn check_content(&self, state: &StateDirectory) -> Result<()> {
        let NewCache { device, wipe, .. } = self;
        let spec = device.spec();
        let mut image = BlockingDevice::new(device);
        let found = match as_an_origin(state, device)? {
            Some(found) => Some(found),
            None => content(&mut image, device.size_bytes())?,
        };
        if let Some(found) = found {
            if wipe.is_none_or(|wipe| !is_same(wipe, spec)) {
                let dirty = match dirty_volume(&mut image, state)? {
                    None => String::new(),
                    Some(Dirty { volume, origin, size }) => format!(
                        "; it may hold data that {origin} does not have ({size}volume {volume}), bring it home first: \
                         forebay detach {spec} {volume}"
                    ),
                };
                bail!("{spec} {found}{dirty}; to format it all the same, add --wipe {spec}");
            }
            zero_labels(&mut image, device.size_bytes())
                .map_err(system)
                .context("cannot write to the cache device")?;
        }
        Ok(())
    }
}

/// Opens a device that is to be a cache.
///
/// # Errors
/// The error of the device, with advice.
pub fn open(spec: &DeviceSpec) -> Result<Device> {
    check_cache(spec)?;
    opening::open(spec, Access::Exclusive).map_err(|error| {
        let advice = match (&error, spec.path()) {
            (DeviceError::Missing { .. }, Some(path))
                if !path.starts_with("/dev") || path.starts_with("/dev/shm") =>
            {
                format!("; a file for it is made by: truncate -s 1G {}", path.display())
            }
            (DeviceError::Missing { .. }, _) => "; name the fast device with --cache".to_owned(),
            (DeviceError::Empty { .. }, Some(path)) => {
                format!("; give it a size by: truncate -s 1G {}", path.display())
            }
            (DeviceError::Locked { .. }, _) => "; stop the daemon that serves it".to_owned(),
            _ => String::new(),
        };
        anyhow!("the cache cannot be used: {error}{advice}")
    })
}

/// Makes sure that no write to a cache that is a file will find its file system full.
///
/// # Errors
/// If there is no room.
pub fn reserve_space(cache: &Device) -> Result<()> {
    let (spec, size) = (cache.spec(), Size(cache.size_bytes()));
    match cache.reserve_space() {
        Ok(true) => Ok(()),
        Ok(false) => {
            notice(format_args!(
                "the file system of {spec} cannot reserve space; keep {size} free for it, or the cache fails when it is full"
            ));
            Ok(())
        }
        Err(Errno::NOSPC) => bail!(
            "the file system of {spec} has no room for all of its {size}; make room, use a smaller file, or add \
             --sparse: the cache then fails when the file system is full"
        ),
        Err(errno) => {
            Err(system(errno)).with_context(|| format!("cannot reserve the {size} of {spec}; see --sparse"))
        }
    }
}

/// How a device of that size is divided.
///
/// # Errors
/// If it is too small, or the profile cannot have it.
pub fn divide(
    profile: &str,
    composition: &Composition,
    spec: &DeviceSpec,
    cache_bytes: u64,
) -> Result<Layout> {
    composition.divide(cache_bytes).map_err(|error| match error.bytes_needed() {
        Some(needed_bytes) => anyhow!(
            "the cache {spec} would have {}, the least is {}{}; give it more",
            Size(cache_bytes),
            Size(needed_bytes),
            if profile == profile::DEFAULT { String::new() } else { format!(" with profile {profile}") }
        ),
        None => anyhow!("profile {profile}: {error}"),
    })
}

/// The size that a cache on `device` is to have: all of it, or what is wanted.
///
/// # Errors
/// If the device has less.
pub fn size_of(device: &Device, wanted_bytes: Option<u64>) -> Result<u64> {
    let spec = device.spec();
    let device_bytes = device
        .measure()
        .map_err(system)
        .with_context(|| format!("cannot ask the cache {spec} for its size"))?;
    match wanted_bytes {
        Some(wanted_bytes) if wanted_bytes > device_bytes => bail!(
            "the device {spec} has {}, less than {}; make it larger first",
            Size(device_bytes),
            Size(wanted_bytes)
        ),
        Some(wanted_bytes) => Ok(wanted_bytes / UNIT_BYTES * UNIT_BYTES),
        None => Ok(device_bytes),
    }
}

/// A statement of the content of the device, if that is recognised.
fn content(image: &mut BlockingDevice, size_bytes: u64) -> Result<Option<String>> {
    match engine::recovery::load_superblock(image) {
        Err(SuperblockError::NotFormatted) => (),
        Ok((superblock, _)) => return Ok(Some(cache_content(&superblock))),
        Err(_) => return Ok(Some("holds a damaged Forebay cache".to_owned())),
    }
    let found = signature::find(image, size_bytes).map_err(system).context("cannot read the cache device")?;
    Ok(found.map(|found| format!("holds {found}")))
}

/// A volume of which a cache may hold what the origin does not have.
struct Dirty {
    volume: String,
    origin: String,
    /// How much that is, as the beginning of a list; empty if only the notes speak of it.
    size: String,
}

/// The first volume of the cache on a device whose data would be lost with it, if there is one.
fn dirty_volume(image: &mut BlockingDevice, state: &StateDirectory) -> Result<Option<Dirty>> {
    let Ok((superblock, _)) = engine::recovery::load_superblock(image) else { return Ok(None) };
    let record = state.load_or_new(&superblock.set_id)?;
    let index_budget_bytes = index_bytes(&superblock, superblock.is_mirrored);
    let options = Options { index_budget_bytes, repair: false, mutations: Mutations::NONE };
    // One half of two does not tell what both have.
    let found = if superblock.is_mirrored { None } else { inspect(image, options).ok() };
    for (index, volume) in superblock::records(&superblock) {
        let note = record.volumes.iter().find(|note| note.id == volume.id.0);
        let size = match found.as_ref().map(|found| found.dirty_bytes(index)) {
            Some(bytes) => (bytes > 0).then(|| format!("{}, ", Size(bytes))),
            None => note.is_some_and(|note| note.may_be_dirty).then(String::new),
        };
        if let Some(size) = size.filter(|_| note.is_none_or(|note| !note.abandoned)) {
            let (volume, origin) = (volume.name.clone(), volume.origin.clone());
            return Ok(Some(Dirty { volume, origin, size }));
        }
    }
    Ok(None)
}

fn cache_content(superblock: &Superblock) -> String {
    if matches!(superblock.line.succession, Succession::Replaced { .. }) {
        return "holds a Forebay cache that was replaced".to_owned();
    }
    let names: Vec<&str> = superblock::records(superblock).map(|(_, volume)| volume.name.as_str()).collect();
    if names.is_empty() {
        "holds a Forebay cache without volumes".to_owned()
    } else {
        format!("holds a Forebay cache (volumes: {})", names.join(", "))
    }
}

/// Zeroes where other systems look for their marks: all before the segments, and the end.
fn zero_labels(image: &mut BlockingDevice, size_bytes: u64) -> Result<(), Errno> {
    let zeroes = vec![0; SEGMENTS_OFFSET as usize];
    let tail_at = (size_bytes - TAIL_BYTES) / UNIT_BYTES * UNIT_BYTES;
    let tail = vec![0; (size_bytes / UNIT_BYTES * UNIT_BYTES - tail_at) as usize];
    image.write_at(0, &zeroes)?;
    image.write_at(tail_at, &tail)?;
    image.flush()
}

/// Makes a device that was formatted, and took no cache's place, one that is no cache.
pub fn unformat(device: &Device) {
    let zeroes = vec![0; SEGMENTS_OFFSET as usize];
    let mut image = BlockingDevice::new(device);
    // Where that fails the next attempt finds a cache without volumes, which serves nothing.
    let _ = image.write_at(0, &zeroes).and_then(|()| image.flush());
}
