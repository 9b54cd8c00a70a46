//! A new volume on a cache that exists: what is checked before it is put there, whether a daemon serves the cache or not.

use crate::arguments::{mode, volume_name};
use crate::log::notice;
use crate::opening;
use crate::origin::{self, NewVolume};
use crate::ownership::{User, check_origin, is_same};
use crate::state::{StateDirectory, hexadecimal};
use crate::superblock::{self, ONE_STRICT_VOLUME};
use anyhow::{Result, anyhow, bail};
use engine::composition::axes::OrderChoice;
use engine::effect::WriteMode;
use engine::format::{Superblock, VolumeRecord};
use engine::units::{VOLUMES_MAX, VolumeId, VolumeIndex};
use live::devices::{self, Access, Device, DeviceError, DeviceSpec};
use serde::{Deserialize, Serialize};

/// Wish for a new volume, as a verb sends it to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Its name.
    pub name: String,
    /// Its origin, as a device name that does not depend on a directory.
    pub origin: String,
    /// Its mode; absent for that of the cache's profile.
    pub mode: Option<String>,
    /// The origin once more, if it is used although another cache has it.
    pub take_over: Option<String>,
}

/// Result of `add`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Added {
    /// The cache.
    pub cache: String,
    /// The origin.
    pub origin: String,
    /// The volume.
    pub name: String,
    /// Its mode.
    pub mode: String,
    /// Its size.
    pub origin_bytes: u64,
}

/// A volume that may be put on the cache.
pub struct Checked {
    /// Places for it that are free.
    pub places: Vec<VolumeIndex>,
    /// Its origin, opened and locked.
    pub origin: Device,
    /// Its record.
    pub record: VolumeRecord,
}

/// Checks a wish, and opens the origin. Changes nothing.
///
/// # Errors
/// Why the cache cannot have that volume.
pub fn check(
    wish: &Wish,
    cache: &DeviceSpec,
    superblock: &Superblock,
    state: &StateDirectory,
    access: Access,
) -> Result<Checked> {
    let spec = devices::parse(&wish.origin)?;
    let taken_over = wish.take_over.as_deref().map(devices::parse).transpose()?;
    let name = volume_name(&wish.name)?;
    check_pair(&spec, cache)?;
    let composition = superblock::composition(superblock, &cache.to_string())?;
    let asked = wish.mode.as_deref().map(mode).transpose()?;
    let mode = superblock::mode_of_new(asked, &composition, superblock.is_ephemeral);
    superblock::check_mode(&superblock.profile, &composition, superblock.is_ephemeral, mode)?;
    check_is_new(superblock, &name, &spec)?;
    let is_strict = matches!(composition.order, OrderChoice::Strict(_));
    if let Some(first) = superblock.volumes.iter().flatten().next().filter(|_| is_strict) {
        bail!("{ONE_STRICT_VOLUME}; set order=free for {}, or use another cache", first.name);
    }
    let places = (0..).zip(&superblock.volumes).filter(|(_, volume)| volume.is_none());
    let places: Vec<VolumeIndex> = places.map(|(at, _)| VolumeIndex(at)).collect();
    if places.is_empty() {
        bail!("{cache} has {VOLUMES_MAX} volumes, which is all it can hold");
    }
    let origin = open_origin(&spec, access)?;
    origin::check_mode(&origin, mode)?;
    let user = User { cache, set_id: &hexadecimal(&superblock.set_id), mode };
    check_origin(state, &origin, user, taken_over.as_ref())?;
    let id = VolumeId(superblock.next_volume_id);
    let record = origin::describe(&origin, NewVolume { id, name, mode })?;
    Ok(Checked { places, origin, record })
}

impl Checked {
    /// The report on it.
    #[must_use]
    pub fn report(&self, cache: &DeviceSpec) -> Added {
        Added {
            cache: cache.absolute().to_string(),
            origin: self.record.origin.clone(),
            name: self.record.name.clone(),
            mode: self.record.mode.name().to_owned(),
            origin_bytes: self.origin.size_bytes(),
        }
    }
}

fn check_is_new(superblock: &Superblock, name: &str, origin: &DeviceSpec) -> Result<()> {
    for volume in superblock.volumes.iter().flatten() {
        if volume.name == name {
            bail!("there is a volume {name} on this cache already; choose another --name");
        }
        if devices::parse(&volume.origin).is_ok_and(|known| is_same(&known, origin)) {
            bail!("{origin} is the origin of volume {} on this cache already", volume.name);
        }
    }
    Ok(())
}

/// Refuses devices that cannot be an origin and a cache before anything is opened.
///
/// # Errors
/// Why they cannot be.
pub fn check_pair(origin: &DeviceSpec, cache: &DeviceSpec) -> Result<()> {
    check_cache(cache)?;
    check_lasting(origin)?;
    if is_same(origin, cache) {
        bail!("the origin and the cache are both {cache}; they must be two devices");
    }
    Ok(())
}

/// Refuses a device that cannot be a cache.
///
/// # Errors
/// Why it cannot be.
pub fn check_cache(cache: &DeviceSpec) -> Result<()> {
    if matches!(cache, DeviceSpec::Nbd(_)) {
        bail!(
            "{cache} cannot be a cache: what is cached must be near; use a file or block device of this machine"
        );
    }
    check_lasting(cache)
}

fn check_lasting(spec: &DeviceSpec) -> Result<()> {
    if spec.is_fleeting() {
        bail!("{spec} is gone when this command ends; use a file (in /dev/shm, if it shall be in memory)");
    }
    Ok(())
}

/// Opens the origin of a new volume, unless it is in use. Says what of it will not be in its volume.
///
/// # Errors
/// The error of the device, with advice.
pub fn open_origin(spec: &DeviceSpec, access: Access) -> Result<Device> {
    let origin = opening::open(spec, access).map_err(|error| {
        let advice = match error {
            DeviceError::Missing { .. } => "; connect it, or name another one with --origin",
            DeviceError::Busy { .. } => "; unmount it: from now on it must be used through Forebay only",
            DeviceError::Locked { .. } => "; stop the daemon that serves it",
            _ => "",
        };
        anyhow!("the origin cannot be used: {error}{advice}")
    })?;
    if origin.unused_bytes() > 0 {
        notice(format_args!(
            "the last {} bytes of {spec} are not in the volume: it has whole sectors of {} bytes only",
            origin.unused_bytes(),
            origin.sector_bytes()
        ));
    }
    Ok(origin)
}

/// The wish for a volume, as a daemon in another directory understands it.
#[must_use]
pub fn wish(
    name: &str,
    origin: &DeviceSpec,
    mode: Option<WriteMode>,
    take_over: Option<&DeviceSpec>,
) -> Wish {
    Wish {
        name: name.to_owned(),
        origin: origin.absolute().to_string(),
        mode: mode.map(|mode| mode.name().to_owned()),
        take_over: take_over.map(|spec| spec.absolute().to_string()),
    }
}
