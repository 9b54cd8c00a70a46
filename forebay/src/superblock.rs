//! The superblock as the command line reads and edits it, while no daemon has the cache.

use crate::output::Size;
use crate::report::now_seconds;
use crate::setting::Kept;
use crate::state::{StateDirectory, hexadecimal};
use anyhow::{Context, Result, anyhow, bail};
use engine::composition::Composition;
use engine::composition::axes::OrderChoice;
use engine::effect::{Errno, WriteMode};
use engine::format::{Change, SetId, Succession, Superblock, VolumeRecord};
use engine::image::Image;
use engine::mutation::Mutations;
use engine::recovery::{OpenError, SuperblockError, write_superblock};
use engine::units::VolumeIndex;
use live::devices::DeviceSpec;
use std::io;
use thiserror::Error;

/// A cache that another version of this program made.
#[derive(Debug, Error)]
#[error(
    "{device} has format version {found}, and this program knows version {supported}; {}",
    if found < supported {
        "detach its volumes with the forebay that made it, then create it again with this one"
    } else {
        "use the newer forebay that made it"
    }
)]
pub struct OtherVersion {
    device: String,
    found: u16,
    supported: u16,
}

/// Reads the superblock of a cache, whatever became of it.
///
/// # Errors
/// If the device is no cache, or its superblock cannot be trusted.
pub fn read(image: &mut impl Image, device: &str) -> Result<Superblock> {
    let (superblock, _) = engine::recovery::load_superblock(image).map_err(|error| refused(error, device))?;
    Ok(superblock)
}

/// Reads the superblock of a cache that is the one of its line.
///
/// # Errors
/// As [`read`]; or what became of it.
pub fn load(image: &mut impl Image, device: &str) -> Result<Superblock> {
    let superblock = read(image, device)?;
    check_line(&superblock, device)?;
    Ok(superblock)
}

/// The error for a cache whose superblock cannot be used.
pub fn refused(error: SuperblockError, device: &str) -> anyhow::Error {
    match error {
        SuperblockError::Version { found, supported } => {
            OtherVersion { device: device.to_owned(), found, supported }.into()
        }
        SuperblockError::DeviceTooSmall { device_bytes, cache_bytes } => anyhow!(
            "{device} cannot be used: it has {}, and had {} when it was formatted; give it its size back",
            Size(device_bytes),
            Size(cache_bytes)
        ),
        error @ SuperblockError::NotFormatted => anyhow!(
            "{device} cannot be used: {error}; name the cache as it was given to create, or make one of it: forebay create --help"
        ),
        error => anyhow!("{device} cannot be used: {error}"),
    }
}

/// The error for a cache that cannot be recovered, with the ways on.
pub fn not_recovered(error: &OpenError, cache: &DeviceSpec) -> anyhow::Error {
    // Nothing is found of a log but by its parts, and nothing in slots but by their records.
    let salvage = match error {
        OpenError::Scan(_) => format!(", and forebay salvage {cache} for what can still be read"),
        _ => String::new(),
    };
    anyhow!("the cache {cache} cannot be recovered: {error}; see forebay check {cache}{salvage}")
}

/// Refuses a cache that is not the one of its line (rule 16).
///
/// # Errors
/// What became of it, and what to do.
pub fn check_line(superblock: &Superblock, device: &str) -> Result<()> {
    let known = |set_id: &SetId| {
        let state = StateDirectory::find(None).ok()?;
        state.name_of_line(set_id).ok()?
    };
    match &superblock.line.succession {
        Succession::None => Ok(()),
        Succession::Replaced { by } => {
            let by = known(by).unwrap_or_else(|| format!("the cache with set id {}", hexadecimal(by)));
            bail!(
                "the cache {device} was replaced by {by}: serve that one; if it has no volumes, forebay replace {device} \
                 {by} finishes what was cut off"
            )
        }
        Succession::Heir { of } => {
            let of = known(of).unwrap_or_else(|| format!("the cache with set id {}", hexadecimal(of)));
            bail!(
                "the cache {device} was to replace {of}, and that was cut off: serve {of}, or finish it: forebay replace \
                 {of} {device}"
            )
        }
        Succession::Remade { .. } => {
            bail!(
                "the cache {device} gets another size, and that was cut off; forebay serve {device} finishes it"
            )
        }
    }
}

/// Composition of a cache.
///
/// # Errors
/// If the superblock does not say so, or says what nobody wrote.
pub fn composition(superblock: &Superblock, device: &str) -> Result<Composition> {
    Composition::of(superblock).map_err(|error| anyhow!("{device} cannot be used: {error}"))
}

/// Refuses a mode that does not go with the rest of a cache.
///
/// # Errors
/// Which rule forbids it.
pub fn check_mode(
    profile: &str,
    composition: &Composition,
    is_ephemeral: bool,
    mode: WriteMode,
) -> Result<()> {
    // RULE 17: what is dirty would be nowhere else.
    if is_ephemeral && mode == WriteMode::Writeback {
        bail!(
            "an ephemeral cache may be gone at any start, and what it alone has in writeback would be lost; use writethrough, \
             writearound, passthrough or readonly"
        );
    }
    // RULE 14: writes to the origin would overtake what is on its way home.
    if matches!(composition.order, OrderChoice::Strict(_)) && mode != WriteMode::Writeback {
        bail!("strict order goes with writeback alone; set order=free for mode={}", mode.name());
    }
    let with_mode = Composition { write_mode: mode, ..*composition };
    with_mode.validate().map_err(|coupling| {
        anyhow!("profile {profile}: {}: {} ({})", coupling.name, coupling.rule, coupling.why)
    })
}

/// Why a cache in strict order has one volume.
pub const ONE_STRICT_VOLUME: &str =
    "in strict order what one volume has to keep until its origin takes it would hold up the others";

/// A composition with the order that was asked for, or its own.
///
/// # Errors
/// What it does not go with.
pub fn with_order(profile: &str, composition: &Composition, order: Option<&str>) -> Result<Composition> {
    let mut composition = *composition;
    if let Some(order) = order {
        composition.set("order", order)?;
    }
    composition.validate().map_err(|coupling| {
        anyhow!("profile {profile}: {}: {} ({})", coupling.name, coupling.rule, coupling.why)
    })?;
    Ok(composition)
}

/// The mode of a new volume: the one that was asked for, or that of the cache's profile, unless the cache may not have it.
#[must_use]
pub fn mode_of_new(asked: Option<WriteMode>, composition: &Composition, is_ephemeral: bool) -> WriteMode {
    match (asked, composition.write_mode) {
        (Some(mode), _) => mode,
        (None, WriteMode::Writeback) if is_ephemeral => WriteMode::Writethrough,
        (None, mode) => mode,
    }
}

/// Refuses a setting that a cache of this kind cannot keep.
///
/// # Errors
/// Which, and what there is instead.
pub fn check_kept(profile: &str, composition: &Composition, kept: Kept) -> Result<()> {
    if matches!(kept, Kept::CacheMin(Some(_))) && !composition.keeps_minimums() {
        bail!(
            "profile {profile} cannot keep a part of the cache for a volume; give the other volumes a cache-max"
        );
    }
    Ok(())
}

/// Writes both copies in turn, a flush after each, so that a crash leaves at least one whole.
///
/// # Errors
/// The device's errno: the edit may have been made or not.
pub fn store(image: &mut impl Image, superblock: &mut Superblock) -> Result<()> {
    superblock.update += 1;
    superblock.validate().map_err(|error| anyhow!("the superblock cannot hold that: {error}"))?;
    write_superblock(image, superblock, Mutations::NONE)
        .map_err(system)
        .context("cannot write the superblock of the cache")
}

/// Notes a change of a volume's setting, or of the cache's if no volume is named; it is durable with the next
/// [`store`].
pub fn note_change(superblock: &mut Superblock, volume: &str, what: &str, old: &str, new: &str) {
    superblock.history.note(Change::new(now_seconds(), volume, what, old, new));
}

/// An errno as the error it stands for.
#[must_use]
pub fn system(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0)
}

/// The volume of that name, or the only one.
///
/// # Errors
/// If there is none of that name, or several to choose from.
pub fn choose(superblock: &Superblock, name: Option<&str>) -> Result<VolumeIndex> {
    let volumes: Vec<(VolumeIndex, &str)> =
        records(superblock).map(|(index, record)| (index, record.name.as_str())).collect();
    choose_name(&volumes, name)
}

/// The volume of that name among `volumes`, or the only one.
///
/// # Errors
/// If there is none of that name, or several to choose from.
pub fn choose_name(volumes: &[(VolumeIndex, &str)], name: Option<&str>) -> Result<VolumeIndex> {
    let known = || volumes.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    match (name, volumes) {
        (_, []) => bail!("there is no volume on this cache; forebay add puts one on it"),
        (Some(name), _) => match volumes.iter().find(|(_, known)| *known == name) {
            Some((index, _)) => Ok(*index),
            None => bail!("there is no volume {name} on this cache; there are {}", known()),
        },
        (None, [(index, _)]) => Ok(*index),
        (None, _) => bail!("there are several volumes on this cache; name one of {}", known()),
    }
}

/// The volumes with their slots.
pub fn records(superblock: &Superblock) -> impl Iterator<Item = (VolumeIndex, &VolumeRecord)> {
    superblock
        .volumes
        .iter()
        .enumerate()
        .filter_map(|(at, record)| record.as_ref().map(|record| (VolumeIndex(at as u8), record)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_named_or_the_only_one() {
        let one = [(VolumeIndex(3), "disk")];
        let two = [(VolumeIndex(0), "a"), (VolumeIndex(1), "b")];
        assert_eq!(choose_name(&one, None).unwrap(), VolumeIndex(3));
        assert_eq!(choose_name(&two, Some("b")).unwrap(), VolumeIndex(1));
        assert!(choose_name(&two, None).unwrap_err().to_string().contains("a, b"));
        assert!(choose_name(&two, Some("c")).unwrap_err().to_string().contains("a, b"));
        assert!(choose_name(&[], None).is_err());
    }
}
