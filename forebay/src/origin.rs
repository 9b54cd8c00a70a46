//! The origin of a volume: its record, and the check that a device is still the same one (hazard 9).
//!
//! What is compared is the engine's to say (`recovery::compare_origin`); here a difference gets its words.

use crate::output::Size;
use crate::ownership::is_same;
use crate::superblock::system;
use anyhow::{Context, Result, bail};
use engine::effect::WriteMode;
use engine::fingerprint::{PLACES, offsets_bytes};
use engine::format::{Fingerprint, VolumeRecord};
use engine::mutation::Mutations;
use engine::recovery::{Difference, Growth, OriginSeen, compare_origin};
use engine::units::{BLOCK_BYTES, SECTOR_BYTES, VOLUME_BLOCKS_MAX, VolumeId, payload_checksum};
use live::devices::BlockingDevice;
use live::devices::{self, Device, DeviceSpec};

fn checksum_at(device: &mut BlockingDevice, offset_bytes: u64) -> Result<u32> {
    let mut block = [0; BLOCK_BYTES as usize];
    device
        .read_at(offset_bytes, &mut block)
        .map_err(system)
        .with_context(|| format!("cannot read the origin at byte {offset_bytes}"))?;
    Ok(payload_checksum(&block))
}

/// Checksums of the well-known places of an origin.
///
/// # Errors
/// If it cannot be read.
pub fn fingerprint(origin: &Device) -> Result<[Option<Fingerprint>; PLACES]> {
    fingerprint_within(origin, origin.size_bytes() / SECTOR_BYTES)
}

/// The same of a volume that ends before its origin does.
///
/// # Errors
/// If it cannot be read.
pub fn fingerprint_within(origin: &Device, size_sectors: u64) -> Result<[Option<Fingerprint>; PLACES]> {
    let mut device = BlockingDevice::new(origin);
    // A power cut must not take back what is recorded, or the volume's own origin would be refused.
    device.flush().map_err(system).context("cannot flush the origin")?;
    let mut fingerprint = [const { None }; PLACES];
    for (slot, offset_bytes) in fingerprint.iter_mut().zip(offsets_bytes(size_sectors)) {
        if let Some(offset_bytes) = offset_bytes {
            let checksum = checksum_at(&mut device, offset_bytes)?;
            *slot = Some(Fingerprint { offset_bytes, checksum });
        }
    }
    Ok(fingerprint)
}

/// Name and write mode of a new volume.
pub struct NewVolume {
    /// Its durable number.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Its mode.
    pub mode: WriteMode,
}

/// The record of a new volume over `origin`, which is only read.
///
/// # Errors
/// If the origin is too large, or cannot be read.
pub fn describe(origin: &Device, new: NewVolume) -> Result<VolumeRecord> {
    check_size(origin)?;
    let NewVolume { id, name, mode } = new;
    Ok(VolumeRecord {
        id,
        name,
        origin: origin.spec().absolute().to_string(),
        identity: origin.identity().to_owned(),
        size_sectors: origin.size_bytes() / SECTOR_BYTES,
        sector_bytes: origin.sector_bytes(),
        mode,
        clean_floor_sequence: 0,
        fingerprint: fingerprint(origin)?,
    })
}

/// Refuses an origin that is larger than the format can address.
///
/// # Errors
/// If it is.
pub fn check_size(origin: &Device) -> Result<()> {
    let most = VOLUME_BLOCKS_MAX * BLOCK_BYTES;
    if origin.size_bytes() > most {
        bail!(
            "the origin {} has {}, more than the {} that the format can address; use a partition of it",
            origin.spec(),
            Size(origin.size_bytes()),
            Size(most)
        );
    }
    Ok(())
}

/// Refuses a mode that writes to an origin that cannot be written.
///
/// # Errors
/// If it is.
pub fn check_mode(origin: &Device, mode: WriteMode) -> Result<()> {
    if !origin.is_read_only() || mode == WriteMode::Readonly {
        return Ok(());
    }
    let spec = origin.spec();
    if origin.is_block_device() {
        bail!(
            "the device {spec} is read-only; use mode readonly, or make it writable: blockdev --setrw {spec}"
        );
    }
    bail!("the server of {spec} lets nobody write to it; use mode readonly, or make it writable there")
}

/// Makes sure that `origin` is the disk in `record`, unchanged.
///
/// # Errors
/// If it is another one, has shrunk, or was changed: which it is, and the ways on.
pub fn verify(record: &VolumeRecord, origin: &Device, cache: &DeviceSpec) -> Result<Growth> {
    verify_or(record, origin, &accepting(record, origin.spec(), cache))
}

/// The way to accept `origin` as it is for a volume.
#[must_use]
pub fn accepting(record: &VolumeRecord, origin: &DeviceSpec, cache: &DeviceSpec) -> String {
    // Without its name the one on record would be accepted.
    let is_on_record = devices::parse(&record.origin).is_ok_and(|noted| is_same(&noted, origin));
    let name = if is_on_record { String::new() } else { format!(" --origin {origin}") };
    format!("forget what is cached of it: forebay set {cache} {} origin=changed{name}", record.name)
}

/// The same, where another origin is accepted by `accepting`.
///
/// # Errors
/// As there.
pub fn verify_or(record: &VolumeRecord, origin: &Device, accepting: &str) -> Result<Growth> {
    let (spec, name) = (origin.spec(), &record.name);
    let ways_on = format!("connect the right disk, or accept this one and {accepting}");
    let seen = OriginSeen {
        identity: origin.identity(),
        size_sectors: origin.size_bytes() / SECTOR_BYTES,
        sector_bytes: origin.sector_bytes(),
    };
    let mut device = BlockingDevice::new(origin);
    let read = |offset_bytes| checksum_at(&mut device, offset_bytes);
    let difference = match compare_origin(record, &seen, read, Mutations::NONE)? {
        Ok(growth) => return Ok(growth),
        Err(difference) => difference,
    };
    let (bytes, noted_bytes) = (origin.size_bytes(), record.size_sectors * SECTOR_BYTES);
    match difference {
        Difference::Identity => bail!(
            "{spec} is not the origin of volume {name}: its identity is {} where {} was noted; {ways_on}",
            seen.identity,
            record.identity
        ),
        Difference::Shrunk => bail!(
            "the origin {spec} of volume {name} has shrunk from {noted_bytes} to {bytes} bytes; give it its size \
             back, or accept it and {accepting}"
        ),
        Difference::Sectors => bail!(
            "the origin {spec} of volume {name} has sectors of {} bytes where {} were noted; {ways_on}",
            seen.sector_bytes,
            record.sector_bytes
        ),
        Difference::Place { offset_bytes } => bail!(
            "the origin {spec} of volume {name} was changed behind the cache at byte {offset_bytes}; {ways_on}"
        ),
    }
}
